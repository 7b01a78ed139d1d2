//! Calling conventions: the registers that pass values between functions, and into the kernel.

use crate::semantics::Reg;

/// The calling convention of a machine's C compilers on Linux. Sets of registers are bits by [`Reg`].
#[derive(Debug)]
pub struct Convention {
    /// The stack pointer.
    pub stack_pointer: Reg,
    /// The register in which a call leaves the return address; `None` if calls push it.
    pub link_register: Option<Reg>,
    /// The registers that a called function may change (caller-saved).
    pub call_clobbered: u64,
    /// The registers of a function's arguments, in order. On i386, these are the registers of the kernel
    /// (`-mregparm=3`), which compilers also use between the functions of one file of a program.
    pub arguments: &'static [Reg],
    /// The other registers that may pass a value into a function.
    pub other_inputs: &'static [Reg],
    /// Whether the functions of programs that other files call have all arguments on the stack, and may pop them.
    pub passes_on_stack: bool,
    /// The registers of a function's result, the low half first if it takes two.
    pub results: [Reg; 2],
    /// All registers that may hold a function's result.
    pub returned: u64,
    /// The registers of a system call.
    pub system_call: SystemCall,
}

/// The registers of a system call (`syscall(2)`).
#[derive(Debug)]
pub struct SystemCall {
    /// The number of the call.
    pub number: Reg,
    /// The arguments, in order.
    pub arguments: [Reg; 6],
}

impl Convention {
    /// Whether a called function may change a register.
    pub fn clobbers(&self, reg: Reg) -> bool {
        self.call_clobbered >> reg.0 & 1 != 0
    }

    /// Returns the registers that a called function may change, with the registers that may pass a value into it.
    pub fn clobbered(&self) -> impl Iterator<Item = Reg> {
        (0..u64::BITS as u8).map(Reg).filter(|&reg| self.clobbers(reg))
    }

    /// Returns the registers that may pass a value into a function.
    pub fn inputs(&self) -> impl Iterator<Item = Reg> {
        self.arguments.iter().chain(self.other_inputs).copied()
    }

    /// Whether a register may pass a value into a function.
    pub fn is_input(&self, reg: Reg) -> bool {
        self.inputs().any(|input| input == reg)
    }
}

/// Returns a set of registers.
pub(crate) const fn set(registers: &[Reg]) -> u64 {
    let (mut set, mut index) = (0, 0);
    while index < registers.len() {
        set |= 1 << registers[index].0;
        index += 1;
    }
    set
}

#[cfg(test)]
mod tests {
    use kelf::Machine;

    #[test]
    fn calls_keep_the_stack_pointer_and_change_results() {
        for machine in Machine::ALL {
            let convention = crate::isa(machine).convention();
            let mut changed = convention.inputs().chain(convention.results);
            assert!(changed.all(|reg| convention.clobbers(reg)), "{machine}");
            assert_eq!(convention.returned & !convention.call_clobbered, 0, "{machine}");
            assert!(!convention.clobbers(convention.stack_pointer), "{machine}");
            assert!(convention.link_register.is_none_or(|link| convention.clobbers(link)), "{machine}");
        }
    }
}
