/*!
32-bit ARM in its two encodings, A32 and T32 (Thumb), decoded by hand.

A Thumb instruction does not show that a preceding `it` makes it conditional; a caller that has seen the `it` states the
condition ([`At::on`]).

Both encodings are decoded into the same small set of operations (`op`), which `semantics` turns into effects. An
instruction that is not distinguished within its class clobbers every register that can be a destination in that class.
*/

mod a32;
mod branch;
mod compare;
mod literal;
mod number;
pub(crate) mod op;
mod print;
pub mod registers;
mod rewrite;
mod semantics;
mod store;
mod t32;

use kelf::Machine;

use super::{Addressing, At, Convention, Effect, Encoding, Inst, Isa, MemoryOperand, Reader};
use crate::inst;
use crate::reading::PlainReader;
use op::Decoded;
pub(super) use op::condition;
pub use semantics::program_counter;

/// A 32-bit ARM processor.
pub struct Arm;

fn decode(bytes: &[u8], at: At) -> Option<Decoded> {
    let address = at.address as u32;
    match at.encoding {
        Encoding::Main => a32::decode(u32::from_le_bytes(*bytes.first_chunk()?), address),
        Encoding::Thumb => t32::decode(bytes, address, at.condition),
    }
}

/// Returns the address of an instruction as its own operands have it: with bit 0 set in Thumb code.
fn own(at: At) -> u32 {
    at.pointer() as u32
}

impl Isa for Arm {
    fn machine(&self) -> Machine {
        Machine::Arm
    }

    fn decode<'b>(&self, bytes: &'b [u8], at: At) -> Option<Inst<'b>> {
        let decoded = decode(bytes, at)?;
        let insn = semantics::instruction(&decoded, at.encoding);
        Some(Inst::new(bytes, at, insn, inst::Decoded::Arm(decoded)))
    }

    fn effects(&self, inst: &Inst<'_>, out: &mut Vec<Effect>) {
        semantics::effects(inst.arm(), own(inst.at), out);
    }

    fn memory_operand(&self, inst: &Inst<'_>) -> Option<MemoryOperand> {
        semantics::memory_operand(inst.arm(), own(inst.at))
    }

    fn registers_read(&self, inst: &Inst<'_>) -> u64 {
        semantics::registers_read(inst.arm())
    }

    fn reader<'b>(&'b self, bytes: &'b [u8]) -> Box<dyn Reader<'b> + 'b> {
        Box::new(PlainReader { isa: self, bytes })
    }

    fn convention(&self) -> &'static Convention {
        &registers::CONVENTION
    }

    fn addressing(&self) -> Addressing {
        Addressing::Literals
    }

    fn may_enter_kernel(&self, code: &[u8]) -> bool {
        // `svc` of Thumb code; the low byte of the `svc` of ARM code is mostly arbitrary.
        code.windows(2).any(|pair| pair[1] == 0xdf || pair[1] & 0x0f == 0x0f)
    }

    fn is_halt(&self, _bytes: &[u8]) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Flow, Rewritable};

    fn main(bytes: &[u8]) -> Inst<'_> {
        Arm.decode(bytes, Encoding::Main.at(0)).unwrap()
    }

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
            let inst = Arm.decode(bytes, encoding.at(0)).unwrap();
            assert_eq!(inst.insn.flow, Flow::Next, "{bytes:x?}");
            let mut effects = Vec::new();
            Arm.effects(&inst, &mut effects);
            let written = effects.iter().fold(0, |set, effect| set | effect.registers_written());
            assert_eq!(written, 0x5fff, "{bytes:x?}");
            assert!(effects.contains(&Effect::ClobberFlags), "{bytes:x?}");
            let reads = Arm.reads(&inst);
            assert_eq!((reads.registers, reads.flags), (0x7fff, true), "{bytes:x?}");
        }
    }

    /// `cpsid i`, `udf`, whose encoding is next to `smc`, and the return from an exception.
    #[test]
    fn instructions_of_the_kernel() {
        let decode =
            |encoding: Encoding, bytes: &[u8]| Arm.decode(bytes, encoding.at(0)).map(|inst| inst.insn.flow);
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
        assert!(Arm.can_move(&main(frame)) && !Arm.can_move(&main(other)) && !Arm.can_move(&main(kept)));
        let last_stored = |bytes: &[u8]| {
            let mut effects = Vec::new();
            Arm.effects(&Arm.decode(bytes, Encoding::Main.at(0x100)).unwrap(), &mut effects);
            effects.iter().rev().find_map(|effect| match effect {
                Effect::Store { value, .. } => Some(*value),
                _ => None,
            })
        };
        assert_eq!(last_stored(frame), Some(crate::Value::Unknown));
        assert_eq!(last_stored(other), Some(crate::Value::Const(0x108)));
        let (sets, other, leaves): (&[u8], &[u8], &[u8]) =
            (&[0x04, 0xb0, 0x4c, 0xe2], &[0x08, 0xb0, 0x4c, 0xe2], &[0x00, 0xa8, 0x9d, 0xe8]);
        assert!(!Arm.only_computes(&main(sets)) && Arm.only_computes(&main(other)));
        assert_eq!(Arm.reads(&main(leaves)).registers, 1 << 13 | 1 << 11);
    }

    /// No pass may remove an exclusive load, an instruction after an `it`, or one that waits.
    #[test]
    fn what_does_more_than_compute() {
        let thumb = Encoding::Thumb.at(0);
        let computes = |bytes: &[u8], at: At| Arm.only_computes(&Arm.decode(bytes, at).unwrap());
        let (ldr, ldrex, movs): (&[u8], &[u8], &[u8]) =
            (&[0x03, 0x68], &[0x50, 0xe8, 0x00, 0x3f], &[0x01, 0x23]);
        assert!(computes(ldr, thumb) && computes(movs, thumb));
        assert!(!computes(ldrex, thumb));
        assert!(!computes(movs, thumb.on(Some(0))));
        // ldrex r3, [r0]; ldr pc, [r0]; ldr r3, [r0]
        assert!(!computes(&[0x9f, 0x3f, 0x90, 0xe1], Encoding::Main.at(0)));
        assert!(!computes(&[0x00, 0xf0, 0x90, 0xe5], Encoding::Main.at(0)));
        assert!(computes(&[0x00, 0x30, 0x90, 0xe5], Encoding::Main.at(0)));
        // mov r1, r1 in both encodings, which may wait for a coprocessor; mov r1, r2
        assert!(
            !computes(&[0x01, 0x10, 0xa0, 0xe1], Encoding::Main.at(0)) && !computes(&[0x09, 0x46], thumb)
        );
        assert!(computes(&[0x02, 0x10, 0xa0, 0xe1], Encoding::Main.at(0)));
    }
}
