//! Registers with a special role. All registers have the numbers of the machine; `r15`, the program counter, is a
//! constant to the model, which knows the address of each instruction.

use crate::Reg;

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
