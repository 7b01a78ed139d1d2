//! Instructions as text, by Capstone.

use std::cell::OnceCell;

use capstone::Capstone;
use capstone::arch::arm::{ArchExtraMode, ArchMode};
use capstone::prelude::*;

use super::Arm;
use super::literal::literal;
use crate::{At, Encoding, Rewritable};

thread_local! {
    static MAIN: OnceCell<Option<Capstone>> = const { OnceCell::new() };
    static THUMB: OnceCell<Option<Capstone>> = const { OnceCell::new() };
}

/// See [`Rewritable::format`](crate::Rewritable::format). Instructions that Capstone does not support are printed as
/// the assembler's directive for them.
pub(super) fn format(bytes: &[u8], at: At) -> String {
    let length = Arm.length(bytes, at.encoding).unwrap_or(bytes.len());
    let bytes = &bytes[..length];
    match disassemble(bytes, at) {
        Some(text) if computes_address(bytes, at) => address_of(&text).unwrap_or(text),
        Some(text) => text,
        None => directive(bytes, at.encoding),
    }
}

/// Whether the instruction is `adr`.
fn computes_address(bytes: &[u8], at: At) -> bool {
    literal(bytes, at).is_some_and(|literal| literal.read.is_none())
}

/// Replaces `add` or `sub` of the program counter and a number by the architecture's name `adr`: `adrne.w r1, #-8` for
/// `subwne r1, pc, #8`.
fn address_of(text: &str) -> Option<String> {
    let (mnemonic, operands) = text.split_once(' ')?;
    let (sign, rest) = match mnemonic.strip_prefix("add") {
        Some(rest) => ("", rest),
        None => ("-", mnemonic.strip_prefix("sub")?),
    };
    let (condition, width) = rest.strip_prefix('w').map_or((rest, ""), |condition| (condition, ".w"));
    let (register, number) = operands.split_once(", pc, #")?;
    Some(format!("adr{condition}{width} {register}, #{sign}{number}"))
}

/// Disassembles `bytes` as exactly one instruction.
fn disassemble(bytes: &[u8], at: At) -> Option<String> {
    let (printer, mode) = match at.encoding {
        Encoding::Main => (&MAIN, ArchMode::Arm),
        Encoding::Thumb => (&THUMB, ArchMode::Thumb),
    };
    // Capstone learns the condition only from a preceding `it`.
    let it = at.condition.map_or(Vec::new(), |condition| vec![condition << 4 | 8, 0xbf]);
    let start = (at.address as u32).wrapping_sub(it.len() as u32);
    let code = [&it, bytes].concat();
    printer.with(|printer| {
        let capstone = printer.get_or_init(|| open(mode)).as_ref()?;
        let read = capstone.disasm_all(&code, start.into()).ok()?;
        let instruction = read.last()?;
        if instruction.len() != bytes.len() {
            return None;
        }
        let (mnemonic, operands) = (instruction.mnemonic()?, instruction.op_str().unwrap_or_default());
        Some(format!("{mnemonic} {operands}").trim_end().to_owned())
    })
}

/// Opens Capstone with the largest set of instructions.
fn open(mode: ArchMode) -> Option<Capstone> {
    Capstone::new().arm().mode(mode).extra_mode([ArchExtraMode::V8].into_iter()).build().ok()
}

/// Returns the directive that GNU as reads as the instruction.
fn directive(bytes: &[u8], encoding: Encoding) -> String {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0u32, |word, &byte| word << 8 | u32::from(byte));
    match (encoding, bytes) {
        (Encoding::Main, _) => format!(".inst {:#x}", word(bytes)),
        (Encoding::Thumb, &[a, b, c, d]) => format!(".inst.w {:#x}", word(&[c, d, a, b])),
        (Encoding::Thumb, _) => format!(".inst.n {:#x}", word(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::format;
    use crate::{At, Encoding};

    const MAIN: At = At { address: 0, encoding: Encoding::Main, condition: None };

    fn thumb(address: u64, condition: Option<u8>) -> At {
        Encoding::Thumb.at(address).on(condition)
    }

    #[test]
    fn instructions_as_the_assembler_reads_them() {
        let cases: [(At, &[u8], &str); 10] = [
            (MAIN, &[0x00, 0x30, 0x90, 0xe5], "ldr r3, [r0]"),
            (MAIN, &[0x01, 0x20, 0xa0, 0x03], "moveq r2, #1"),
            (thumb(0x100, None), &[0x01, 0x23], "movs r3, #1"),
            (thumb(0x100, None), &[0x08, 0xbf], "it eq"),
            // Bytes after the instruction are ignored.
            (thumb(0x100, None), &[0x08, 0xbf, 0x01, 0x23], "it eq"),
            (thumb(0x102, Some(0)), &[0x01, 0x23], "moveq r3, #1"),
            (thumb(0x0, Some(1)), &[0xd4, 0xf8, 0x90, 0x11], "ldrne.w r1, [r4, #0x190]"),
            // The condition of one instruction does not apply to the next.
            (thumb(0x100, None), &[0x70, 0x47], "bx lr"),
            // An instruction that Capstone does not know, in both encodings.
            (MAIN, &[0x90, 0x10, 0x02, 0xe1], ".inst 0xe1021090"),
            (thumb(0x100, None), &[0x80, 0xec, 0x00, 0x00], ".inst.w 0xec800000"),
        ];
        for (at, bytes, text) in cases {
            assert_eq!(format(bytes, at), text);
        }
    }

    #[test]
    fn addresses_near_by() {
        let cases: [(At, &[u8], &str); 11] = [
            (MAIN, &[0x04, 0x10, 0x8f, 0xe2], "adr r1, #4"),
            (MAIN, &[0x04, 0x10, 0x4f, 0x12], "adrne r1, #-4"),
            (MAIN, &[0xff, 0x1c, 0x8f, 0xe2], "adr r1, #0xff00"),
            // The flags are set; the number is in a register.
            (MAIN, &[0x04, 0x10, 0x5f, 0xe2], "subs r1, pc, #4"),
            (MAIN, &[0x04, 0x10, 0x8f, 0xe0], "add r1, pc, r4"),
            (thumb(0x100, None), &[0x01, 0xa1], "adr r1, #4"),
            (thumb(0x100, None), &[0x0f, 0xf2, 0x04, 0x01], "adr.w r1, #4"),
            (thumb(0x100, None), &[0xaf, 0xf2, 0x08, 0x01], "adr.w r1, #-8"),
            (thumb(0x100, Some(1)), &[0xaf, 0xf2, 0x08, 0x01], "adrne.w r1, #-8"),
            // Thumb code with a number of its own, and with another register.
            (thumb(0x100, None), &[0x78, 0x44], "add r0, pc"),
            (thumb(0x100, None), &[0x02, 0xf2, 0x04, 0x01], "addw r1, r2, #4"),
        ];
        for (at, bytes, text) in cases {
            assert_eq!(format(bytes, at), text);
        }
    }

    /// `rfe` and `srs`, which [`Isa::decode`](crate::Isa::decode) does not support.
    #[test]
    fn exceptions_of_the_kernel() {
        let cases: [(At, &[u8], &str); 6] = [
            (MAIN, &[0x00, 0x0a, 0xb0, 0xf8], "rfeia r0!"),
            (MAIN, &[0x13, 0x05, 0x6d, 0xf9], "srsdb sp!, #0x13"),
            (thumb(0x0, None), &[0x90, 0xe9, 0x00, 0xc0], "rfeia r0"),
            (thumb(0x0, None), &[0x30, 0xe8, 0x00, 0xc0], "rfedb r0!"),
            (thumb(0x0, None), &[0x2d, 0xe8, 0x13, 0xc0], "srsdb sp!, #0x13"),
            // Bytes after it are ignored.
            (thumb(0x0, None), &[0x8d, 0xe9, 0x13, 0xc0, 0x70, 0x47], "srsia sp, #0x13"),
        ];
        for (at, bytes, text) in cases {
            assert_eq!(format(bytes, at), text);
        }
    }
}
