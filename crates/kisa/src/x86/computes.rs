//! Instructions that only compute or only store.

use iced_x86::{Instruction, Mnemonic, OpKind};

use super::semantics::{general, is_move_on_condition, is_set_on_condition};

/// See [`crate::Rewritable::only_computes`].
pub(super) fn only_computes(instruction: &Instruction) -> bool {
    let is_general = |operand: u32| general(instruction.op_register(operand)).is_some();
    let registers = (0..instruction.op_count()).filter(|&at| instruction.op_kind(at) == OpKind::Register);
    !instruction.has_lock_prefix()
        && registers.into_iter().all(is_general)
        && (computes_a_register(instruction) || compares(instruction))
}

/// Whether it only writes flags and its first operand, a register. (A division may fault.)
fn computes_a_register(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    let known = match instruction.mnemonic() {
        Nop | Cwde | Cdqe | Cbw | Cwd | Cdq | Cqo | Mul => return instruction.op_count() < 2,
        Mov | Movzx | Movsx | Movsxd | Lea | Bswap => true,
        Add | Adc | Sub | Sbb | And | Or | Xor | Inc | Dec | Neg | Not | Imul => true,
        Shl | Sal | Shr | Sar | Shld | Shrd | Rol | Ror | Rcl | Rcr => true,
        Bts | Btr | Btc | Bsf | Bsr | Xchg => true,
        _ => is_move_on_condition(instruction) || is_set_on_condition(instruction),
    };
    let in_memory = |at: u32| instruction.op_kind(at) == OpKind::Memory;
    let exchanges = instruction.mnemonic() == Xchg && in_memory(1);
    known && instruction.op0_kind() == OpKind::Register && !exchanges
}

/// See [`crate::Rewritable::only_stores`].
pub(super) fn only_stores(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    let known = match instruction.mnemonic() {
        Mov | Add | Adc | Sub | Sbb | And | Or | Xor | Inc | Dec | Neg | Not | Shl | Sal | Shr | Sar => true,
        _ => is_set_on_condition(instruction),
    };
    let from_general = instruction.op_count() < 2
        || instruction.op1_kind() != OpKind::Register
        || general(instruction.op1_register()).is_some();
    known && from_general && instruction.op0_kind() == OpKind::Memory && !instruction.has_lock_prefix()
}

/// Whether it writes flags only.
fn compares(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Bt)
}
