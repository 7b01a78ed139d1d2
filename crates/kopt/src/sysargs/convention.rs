//! The conventions by which system-call handlers get their arguments, by machine.

use kelf::Machine;
use kflow::Guard;
use kisa::{Reg, Rewritable};

/// Bytes of an argument that are compared. On x86-64, these are its low half: an `int` leaves the other half undefined.
const WORD: u8 = 4;

/// The convention of a machine.
pub(super) struct Convention {
    /// The prefix of the names of handlers.
    pub prefix: &'static str,
    passing: Passing,
}

/// The way in which handlers get the arguments of a system call.
enum Passing {
    /// The first argument of a handler points to the saved registers of the program. The arguments of the system call
    /// are at these offsets in `struct pt_regs`, in bytes.
    Saved([u8; 6]),
    /// As ordinary function arguments: in registers, then on the stack.
    Passed,
}

/// The place of an argument on entry to a handler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    Register(Reg),
    /// A word in memory, at this displacement from a register.
    Word {
        base: Reg,
        displacement: u8,
    },
}

impl Convention {
    /// Returns the convention of a machine; `None` if it is not supported.
    pub fn of(machine: Machine) -> Option<&'static Convention> {
        match machine {
            // arch/x86/include/asm/syscall_wrapper.h, and ptrace.h: bx, cx, dx, si, di, bp.
            Machine::I386 => {
                Some(&Convention { prefix: "__ia32_sys_", passing: Passing::Saved([0, 4, 8, 12, 16, 20]) })
            }
            // The same: di, si, dx, r10, r8, r9.
            Machine::X86_64 => Some(&Convention {
                prefix: "__x64_sys_",
                passing: Passing::Saved([0x70, 0x68, 0x60, 0x38, 0x48, 0x40]),
            }),
            // arch/arm/kernel/entry-common.S: `vector_swi` leaves r0 to r3 as they are, and pushes r4 and r5.
            Machine::Arm => Some(&Convention { prefix: "sys_", passing: Passing::Passed }),
            Machine::Aarch64 => None,
        }
    }

    /// Whether handlers get a pointer to the saved registers of the program.
    pub fn passes_registers(&self) -> bool {
        matches!(self.passing, Passing::Saved(_))
    }

    /// Returns the place of an argument, by its index from 0.
    pub fn place(&self, isa: &dyn Rewritable, argument: u8) -> Option<Place> {
        let convention = isa.convention();
        match &self.passing {
            Passing::Saved(offsets) => {
                let base = *convention.arguments.first()?;
                Some(Place::Word { base, displacement: *offsets.get(usize::from(argument))? })
            }
            Passing::Passed => match convention.arguments.get(usize::from(argument)) {
                Some(&reg) => Some(Place::Register(reg)),
                None => {
                    let on_stack = argument - convention.arguments.len() as u8;
                    let displacement = on_stack.checked_mul(WORD)?;
                    Some(Place::Word { base: convention.stack_pointer, displacement })
                }
            },
        }
    }

    /// Returns a register that holds no input on entry to a handler, and that the handler need not preserve.
    pub fn scratch(&self, isa: &dyn Rewritable) -> Option<Reg> {
        let convention = isa.convention();
        let arguments = match self.passing {
            Passing::Saved(_) => 1,
            Passing::Passed => usize::MAX,
        };
        let passed = convention.arguments.iter().take(arguments).chain(&convention.link_register);
        let free = passed.fold(convention.call_clobbered, |free, reg| free & !(1 << reg.0));
        free.checked_ilog2().map(|reg| Reg(reg as u8))
    }

    /// The place that guards of handlers check.
    pub fn guard(&self, isa: &dyn Rewritable) -> Option<Guard> {
        match self.passing {
            Passing::Saved(_) => isa.convention().arguments.first().copied().map(Guard::Memory),
            Passing::Passed => Some(Guard::Passed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_and_a_free_register_are_found() {
        let of = |machine| {
            let (convention, isa) = (Convention::of(machine).unwrap(), kisa::rewritable(machine).unwrap());
            let places: Vec<_> =
                [1, 4, 5].map(|argument| convention.place(isa, argument).unwrap()).into_iter().collect();
            (places, convention.scratch(isa))
        };
        let word = |base, displacement| Place::Word { base: Reg(base), displacement };
        // %eax and %edx; ip and sp.
        assert_eq!(of(Machine::I386), (vec![word(0, 4), word(0, 16), word(0, 20)], Some(Reg(2))));
        assert_eq!(
            of(Machine::Arm),
            (vec![Place::Register(Reg(1)), word(13, 0), word(13, 4)], Some(Reg(12)))
        );
        // %rdi and %r11.
        assert_eq!(of(Machine::X86_64), (vec![word(7, 0x68), word(7, 0x48), word(7, 0x40)], Some(Reg(11))));
        assert!(Convention::of(Machine::Aarch64).is_none());
    }
}
