//! Registers with a special role. Registers 0 to 30 have the numbers of the machine.

use crate::Reg;

/// The first argument and the result of a call.
pub const X0: Reg = Reg(0);
/// The number of a system call.
pub const X8: Reg = Reg(8);
/// The return address.
pub const LR: Reg = Reg(30);
/// The stack pointer, number 31. If 31 means the zero register in an instruction, the model has the constant 0.
pub const SP: Reg = Reg(31);
