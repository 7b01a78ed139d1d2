//! Instructions that can move into a called function, or out of one.

use iced_x86::{ConstantOffsets, OpKind, Register};

use super::computes::{only_computes, only_stores};
use super::decode::Decoded;

/// Bytes that a call pushes.
const RETURN_ADDRESS: i32 = 4;

/// See [`crate::Rewritable::move_into_callee`]. Not supported for 64-bit code, which may keep values below the stack
/// pointer that a call would overwrite (the red zone of the System V ABI, section 3.2.2).
pub(super) fn move_into_callee(bits: u32, bytes: &mut [u8]) -> bool {
    let Some(Decoded { instruction, constants, .. }) = &Decoded::new(bits, bytes, 0) else { return false };
    if bits == 64 || !only_computes(instruction) && !only_stores(instruction) {
        return false;
    }
    let is_stack = |register: Register| register.full_register() == Register::RSP;
    let mut registers = (0..instruction.op_count()).filter(|&at| instruction.op_kind(at) == OpKind::Register);
    if registers.any(|at| is_stack(instruction.op_register(at))) {
        return false;
    }
    if !is_stack(instruction.memory_base()) {
        return true;
    }
    // The return address would overwrite a value below the stack pointer.
    displacement(constants, bytes).is_some_and(|own| own >= 0) && shift(constants, bytes, RETURN_ADDRESS)
}

/// See [`crate::Rewritable::shift_operand`].
pub(super) fn shift_operand(bits: u32, bytes: &mut [u8], by: i32) -> bool {
    Decoded::new(bits, bytes, 0).is_some_and(|decoded| shift(&decoded.constants, bytes, by))
}

/// Returns the displacement of a memory operand; `None` if the instruction has no field for one.
fn displacement(constants: &ConstantOffsets, bytes: &[u8]) -> Option<i32> {
    let first = constants.displacement_offset();
    match *bytes.get(first..first + constants.displacement_size())? {
        [byte] => Some(i32::from(byte as i8)),
        [a, b, c, d] => Some(i32::from_le_bytes([a, b, c, d])),
        _ => None,
    }
}

/// Adds to the displacement of a memory operand; returns whether there is one and the sum fits.
fn shift(constants: &ConstantOffsets, bytes: &mut [u8], by: i32) -> bool {
    let sum = displacement(constants, bytes).and_then(|own| own.checked_add(by));
    let size = constants.displacement_size();
    let Some(sum) = sum.filter(|&sum| size == 4 || i8::try_from(sum).is_ok()) else { return false };
    let first = constants.displacement_offset();
    bytes[first..first + size].copy_from_slice(&sum.to_le_bytes()[..size]);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the moved instruction; `None` if it cannot move.
    fn moved(bits: u32, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = bytes.to_vec();
        let before = bytes.clone();
        let moves = move_into_callee(bits, &mut bytes);
        assert!(moves || bytes == before, "what cannot move stays as it is");
        moves.then_some(bytes)
    }

    #[test]
    fn what_counts_from_the_stack_pointer_counts_from_further() {
        let moved = |bytes: &[u8]| moved(32, bytes);
        // mov 8(%esp),%edx; lea 4(%esp,%eax,2),%edx; mov %edx,0x100(%esp)
        assert_eq!(moved(&[0x8b, 0x54, 0x24, 8]), Some(vec![0x8b, 0x54, 0x24, 12]));
        assert_eq!(moved(&[0x8d, 0x54, 0x44, 4]), Some(vec![0x8d, 0x54, 0x44, 8]));
        assert_eq!(moved(&[0x89, 0x94, 0x24, 0, 1, 0, 0]), Some(vec![0x89, 0x94, 0x24, 4, 1, 0, 0]),);
        // mov 0x7c(%esp),%edx; mov (%esp),%edx: no space.
        assert_eq!(moved(&[0x8b, 0x54, 0x24, 0x7c]), None);
        assert_eq!(moved(&[0x8b, 0x14, 0x24]), None);
        // mov %edx,-4(%esp); mov %edx,-0x100(%esp): a call would overwrite the data.
        assert_eq!(moved(&[0x89, 0x54, 0x24, 0xfc]), None);
        assert_eq!(moved(&[0x89, 0x94, 0x24, 0, 0xff, 0xff, 0xff]), None);
        // mov 8(%ebp),%edx; mov $4,%eax
        assert_eq!(moved(&[0x8b, 0x55, 8]), Some(vec![0x8b, 0x55, 8]));
        assert_eq!(moved(&[0xb8, 4, 0, 0, 0]), Some(vec![0xb8, 4, 0, 0, 0]));
    }

    #[test]
    fn operands_are_shifted_within_their_fields() {
        let shifted = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            shift_operand(32, &mut bytes, -4).then_some(bytes)
        };
        // mov 8(%esp),%edx; push 0x100(%esp); fldl 4(%ebp)
        assert_eq!(shifted(&[0x8b, 0x54, 0x24, 8]), Some(vec![0x8b, 0x54, 0x24, 4]));
        assert_eq!(shifted(&[0xff, 0xb4, 0x24, 0, 1, 0, 0]), Some(vec![0xff, 0xb4, 0x24, 0xfc, 0, 0, 0]));
        assert_eq!(shifted(&[0xdd, 0x45, 4]), Some(vec![0xdd, 0x45, 0]));
        // mov (%esp),%edx; mov -0x80(%ebp),%edx; push %eax
        assert_eq!(shifted(&[0x8b, 0x14, 0x24]), None);
        assert_eq!(shifted(&[0x8b, 0x55, 0x80]), None);
        assert_eq!(shifted(&[0x50]), None);
    }

    #[test]
    fn what_uses_the_stack_otherwise_stays() {
        // push %eax; pop %eax; mov %esp,%eax; add $4,%esp; leave; pushf; call; ret
        let all: [&[u8]; 8] = [
            &[0x50],
            &[0x58],
            &[0x89, 0xe0],
            &[0x83, 0xc4, 4],
            &[0xc9],
            &[0x9c],
            &[0xe8, 0, 0, 0, 0],
            &[0xc3],
        ];
        for bytes in all {
            assert_eq!(moved(32, bytes), None, "{bytes:02x?}");
        }
        // mov $4,%eax, in code that may keep data below the stack pointer
        assert_eq!(moved(64, &[0xb8, 4, 0, 0, 0]), None);
    }
}
