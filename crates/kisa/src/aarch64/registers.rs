//! Registers with a special role. Registers 0 to 30 have the numbers of the machine.

use crate::Reg;
use crate::convention::{Convention, SystemCall, set};

/// The first argument and the result of a call.
pub const X0: Reg = Reg(0);
/// The number of a system call.
pub const X8: Reg = Reg(8);
/// The return address.
pub const LR: Reg = Reg(30);
/// The stack pointer, number 31. If 31 means the zero register in an instruction, the model has the constant 0.
pub const SP: Reg = Reg(31);

/// IHI 0055: sections 6.1.1 (registers), 6.8 (arguments; `x8` has the address of a result in memory) and 6.9 (results).
pub(super) static CONVENTION: Convention = Convention {
    stack_pointer: SP,
    link_register: Some(LR),
    // `x0` to `x18` and the link register. `x18`, the platform register, is not preserved on Linux.
    call_clobbered: ((1 << 19) - 1) | set(&[LR]),
    arguments: &[X0, Reg(1), Reg(2), Reg(3), Reg(4), Reg(5), Reg(6), Reg(7)],
    other_inputs: &[X8],
    passes_on_stack: false,
    results: [X0, Reg(1)],
    returned: set(&[X0, Reg(1)]),
    system_call: SystemCall { number: X8, arguments: [X0, Reg(1), Reg(2), Reg(3), Reg(4), Reg(5)] },
};
