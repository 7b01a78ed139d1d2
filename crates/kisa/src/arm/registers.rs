//! Registers with a special role. All registers have the numbers of the machine; `r15`, the program counter, is a
//! constant to the model, which knows the address of each instruction.

use crate::Reg;
use crate::convention::{Convention, SystemCall, set};

/// The first argument and the result of a call.
pub const R0: Reg = Reg(0);
/// The number of a system call.
pub const R7: Reg = Reg(7);
/// The register that linkers use in veneers (`ip`).
pub const IP: Reg = Reg(12);
/// The stack pointer.
pub const SP: Reg = Reg(13);
/// The return address.
pub const LR: Reg = Reg(14);
/// The program counter.
pub(crate) const PC: Reg = Reg(15);

/// IHI 0042: sections 6.1.1 (registers), 6.4 (results; a vector of 16 bytes is in `r0` to `r3`) and 6.5 (arguments).
pub(super) static CONVENTION: Convention = Convention {
    stack_pointer: SP,
    link_register: Some(LR),
    call_clobbered: set(&[R0, Reg(1), Reg(2), Reg(3), IP, LR]),
    arguments: &[R0, Reg(1), Reg(2), Reg(3)],
    // Some of glibc's stubs pass the number of a system call in `ip` to the common code that makes the call, and PLT
    // entries use `ip`.
    other_inputs: &[IP],
    passes_on_stack: false,
    results: [R0, Reg(1)],
    returned: set(&[R0, Reg(1), Reg(2), Reg(3)]),
    system_call: SystemCall { number: R7, arguments: [R0, Reg(1), Reg(2), Reg(3), Reg(4), Reg(5)] },
};
