/*!
32-bit ARM in its two encodings, A32 and T32 (Thumb), decoded by hand.

The address of an instruction selects its encoding: bit 0 is set for Thumb code, as in ELF and in the branch
instructions. A Thumb instruction does not show that a preceding `it` makes it conditional; a caller that has seen the
`it` adds the condition to the address by [`predicated`].

Both encodings are decoded into the same small set of operations (`op`), which `semantics` turns into effects. An
instruction that is not distinguished within its class clobbers every register that can be a destination in that class.
*/

mod a32;
mod branch;
mod compare;
mod literal;
mod number;
mod op;
mod print;
pub mod registers;
mod rewrite;
mod semantics;
mod store;
mod t32;

use kelf::Machine;

use super::{Effect, Encoding, Explained, Insn, Isa, MemoryOperand, Reader, Reg};
use crate::reading::PlainReader;
use op::Decoded;
pub(super) use op::condition;

/// A 32-bit ARM processor.
pub struct Arm;

/// Returns the address of a Thumb instruction to which `it` applies a condition.
pub fn predicated(address: u64, condition: u8) -> u64 {
    address | (u64::from(condition) + 1) << 32
}

/// Returns the condition that `it` applies to the instruction, from its address.
fn predicate(address: u64) -> Option<u8> {
    (address >> 32).checked_sub(1).map(|condition| condition as u8)
}

/// Returns the encoding of the instruction, from its address.
fn encoding(address: u64) -> Encoding {
    if address & 1 == 0 { Encoding::Main } else { Encoding::Thumb }
}

fn decode(bytes: &[u8], address: u64) -> Option<Decoded> {
    let at = address as u32;
    match at & 1 {
        0 => a32::decode(u32::from_le_bytes(*bytes.first_chunk()?), at),
        _ => t32::decode(bytes, at & !1, predicate(address)),
    }
}

impl Isa for Arm {
    fn machine(&self) -> Machine {
        Machine::Arm
    }

    fn decode(&self, bytes: &[u8], address: u64) -> Option<Insn> {
        decode(bytes, address).map(|decoded| semantics::instruction(&decoded, encoding(address)))
    }

    fn effects(&self, bytes: &[u8], address: u64, out: &mut Vec<Effect>) {
        if let Some(decoded) = decode(bytes, address) {
            semantics::effects(&decoded, address as u32, out);
        }
    }

    fn memory_operand(&self, bytes: &[u8], address: u64) -> Option<MemoryOperand> {
        semantics::memory_operand(&decode(bytes, address)?, address as u32)
    }

    fn registers_read(&self, bytes: &[u8], address: u64) -> u64 {
        decode(bytes, address).map_or(u64::MAX, |decoded| semantics::registers_read(&decoded))
    }

    fn explain(&self, bytes: &[u8], address: u64, out: &mut Vec<Effect>) -> Option<Explained> {
        let decoded = decode(bytes, address)?;
        semantics::effects(&decoded, address as u32, out);
        let operand = semantics::memory_operand(&decoded, address as u32);
        Some(Explained { insn: semantics::instruction(&decoded, encoding(address)), operand })
    }

    fn reader<'b>(&'b self, bytes: &'b [u8]) -> Box<dyn Reader + 'b> {
        Box::new(PlainReader { isa: self, bytes })
    }

    fn stack_pointer(&self) -> Reg {
        registers::SP
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Flow, Rewritable};

    /// `hvc` and `smc` return with other registers and flags, except for the stack pointer.
    #[test]
    fn calls_of_firmware_change_registers() {
        let cases: [(Encoding, &[u8]); 4] = [
            (Encoding::Main, &[0x70, 0x00, 0x40, 0xe1]),
            (Encoding::Main, &[0x70, 0x00, 0x60, 0xe1]),
            (Encoding::Thumb, &[0xe0, 0xf7, 0x00, 0x80]),
            (Encoding::Thumb, &[0xf0, 0xf7, 0x00, 0x80]),
        ];
        for (encoding, bytes) in cases {
            let address = encoding.address(0);
            assert_eq!(Arm.decode(bytes, address).map(|insn| insn.flow), Some(Flow::Next), "{bytes:x?}");
            let mut effects = Vec::new();
            Arm.effects(bytes, address, &mut effects);
            let written = effects.iter().fold(0, |set, effect| set | effect.registers_written());
            assert_eq!(written, 0x5fff, "{bytes:x?}");
            assert!(effects.contains(&Effect::ClobberFlags), "{bytes:x?}");
            let reads = Arm.reads(bytes, address);
            assert_eq!((reads.registers, reads.flags), (0x7fff, true), "{bytes:x?}");
        }
    }

    /// `cpsid i`, `udf`, whose encoding is next to `smc`, and the return from an exception.
    #[test]
    fn instructions_of_the_kernel() {
        let decode =
            |encoding: Encoding, bytes: &[u8]| Arm.decode(bytes, encoding.address(0)).map(|insn| insn.flow);
        assert_eq!(decode(Encoding::Main, &[0x80, 0x00, 0x0c, 0xf1]), Some(Flow::Next));
        assert_eq!(decode(Encoding::Thumb, &[0x72, 0xb6]), Some(Flow::Next));
        assert_eq!(decode(Encoding::Thumb, &[0xf0, 0xf7, 0x03, 0xa0]), Some(Flow::Trap));
        // subs pc, lr, #4
        assert_eq!(decode(Encoding::Thumb, &[0xde, 0xf3, 0x04, 0x8f]), Some(Flow::Return));
    }

    /// The address that is stored where an APCS frame begins is for backtraces alone; elsewhere it is not. The frame
    /// pointer is excluded: no pass may remove `sub fp, ip, #4`, or use the register before `ldm sp, {fp, sp, pc}`.
    #[test]
    fn apcs_frames() {
        // push {fp, ip, lr, pc}; push {r4, pc}; stmdb sp, {fp, ip, lr, pc}
        let (frame, other, kept): (&[u8], &[u8], &[u8]) =
            (&[0x00, 0xd8, 0x2d, 0xe9], &[0x10, 0x80, 0x2d, 0xe9], &[0x00, 0xd8, 0x0d, 0xe9]);
        assert!(Arm.can_move(frame, 0) && !Arm.can_move(other, 0) && !Arm.can_move(kept, 0));
        let last_stored = |bytes: &[u8]| {
            let mut effects = Vec::new();
            Arm.effects(bytes, 0x100, &mut effects);
            effects.iter().rev().find_map(|effect| match effect {
                Effect::Store { value, .. } => Some(*value),
                _ => None,
            })
        };
        assert_eq!(last_stored(frame), Some(crate::Value::Unknown));
        assert_eq!(last_stored(other), Some(crate::Value::Const(0x108)));
        let (sets, other, leaves): (&[u8], &[u8], &[u8]) =
            (&[0x04, 0xb0, 0x4c, 0xe2], &[0x08, 0xb0, 0x4c, 0xe2], &[0x00, 0xa8, 0x9d, 0xe8]);
        assert!(!Arm.only_computes(sets, 0) && Arm.only_computes(other, 0));
        assert_eq!(Arm.reads(leaves, 0).registers, 1 << 13 | 1 << 11);
    }

    /// No pass may remove an exclusive load, an instruction after an `it`, or one that waits.
    #[test]
    fn what_does_more_than_compute() {
        let computes = |bytes: &[u8], address: u64| Arm.only_computes(bytes, address);
        let (ldr, ldrex, movs): (&[u8], &[u8], &[u8]) =
            (&[0x03, 0x68], &[0x50, 0xe8, 0x00, 0x3f], &[0x01, 0x23]);
        assert!(computes(ldr, 1) && computes(movs, 1));
        assert!(!computes(ldrex, 1));
        assert!(!computes(movs, predicated(1, 0)));
        // ldrex r3, [r0]; ldr pc, [r0]; ldr r3, [r0]
        assert!(!computes(&[0x9f, 0x3f, 0x90, 0xe1], 0));
        assert!(!computes(&[0x00, 0xf0, 0x90, 0xe5], 0));
        assert!(computes(&[0x00, 0x30, 0x90, 0xe5], 0));
        // mov r1, r1 in both encodings, which may wait for a coprocessor; mov r1, r2
        assert!(!computes(&[0x01, 0x10, 0xa0, 0xe1], 0) && !computes(&[0x09, 0x46], 1));
        assert!(computes(&[0x02, 0x10, 0xa0, 0xe1], 0));
    }
}
