//! Instructions as text, by Capstone.

use std::cell::OnceCell;

use capstone::Capstone;
use capstone::arch::arm::{ArchExtraMode, ArchMode};
use capstone::prelude::*;

use super::literal::literal;
use super::{Arm, encoding, predicate};
use crate::{Encoding, Rewritable};

thread_local! {
    static MAIN: OnceCell<Option<Capstone>> = const { OnceCell::new() };
    static THUMB: OnceCell<Option<Capstone>> = const { OnceCell::new() };
}

/// See [`Rewritable::format`](crate::Rewritable::format). Instructions that Capstone does not support are printed as
/// the assembler's directive for them.
pub(super) fn format(bytes: &[u8], address: u64) -> String {
    let length = Arm.length(bytes, address).unwrap_or(bytes.len());
    let bytes = &bytes[..length];
    match disassemble(bytes, address) {
        Some(text) if computes_address(bytes, address) => address_of(&text).unwrap_or(text),
        Some(text) => text,
        None => directive(bytes, encoding(address)),
    }
}

/// Whether the instruction is `adr`.
fn computes_address(bytes: &[u8], address: u64) -> bool {
    literal(bytes, encoding(address), address).is_some_and(|literal| literal.read.is_none())
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
fn disassemble(bytes: &[u8], address: u64) -> Option<String> {
    let encoding = encoding(address);
    let (printer, mode) = match encoding {
        Encoding::Main => (&MAIN, ArchMode::Arm),
        Encoding::Thumb => (&THUMB, ArchMode::Thumb),
    };
    // Capstone learns the condition only from a preceding `it`.
    let it = predicate(address).map_or(Vec::new(), |condition| vec![condition << 4 | 8, 0xbf]);
    let at = (address as u32 & !1).wrapping_sub(it.len() as u32);
    let code = [&it, bytes].concat();
    printer.with(|printer| {
        let capstone = printer.get_or_init(|| open(mode)).as_ref()?;
        let read = capstone.disasm_all(&code, at.into()).ok()?;
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
    use crate::arm::predicated;

    #[test]
    fn instructions_as_the_assembler_reads_them() {
        let cases: [(u64, &[u8], &str); 10] = [
            (0, &[0x00, 0x30, 0x90, 0xe5], "ldr r3, [r0]"),
            (0, &[0x01, 0x20, 0xa0, 0x03], "moveq r2, #1"),
            (0x101, &[0x01, 0x23], "movs r3, #1"),
            (0x101, &[0x08, 0xbf], "it eq"),
            // Bytes after the instruction are ignored.
            (0x101, &[0x08, 0xbf, 0x01, 0x23], "it eq"),
            (predicated(0x103, 0), &[0x01, 0x23], "moveq r3, #1"),
            (predicated(1, 1), &[0xd4, 0xf8, 0x90, 0x11], "ldrne.w r1, [r4, #0x190]"),
            // The condition of one instruction does not apply to the next.
            (0x101, &[0x70, 0x47], "bx lr"),
            // An instruction that Capstone does not know, in both encodings.
            (0, &[0x90, 0x10, 0x02, 0xe1], ".inst 0xe1021090"),
            (0x101, &[0x80, 0xec, 0x00, 0x00], ".inst.w 0xec800000"),
        ];
        for (address, bytes, text) in cases {
            assert_eq!(format(bytes, address), text);
        }
    }

    #[test]
    fn addresses_near_by() {
        let cases: [(u64, &[u8], &str); 11] = [
            (0, &[0x04, 0x10, 0x8f, 0xe2], "adr r1, #4"),
            (0, &[0x04, 0x10, 0x4f, 0x12], "adrne r1, #-4"),
            (0, &[0xff, 0x1c, 0x8f, 0xe2], "adr r1, #0xff00"),
            // The flags are set; the number is in a register.
            (0, &[0x04, 0x10, 0x5f, 0xe2], "subs r1, pc, #4"),
            (0, &[0x04, 0x10, 0x8f, 0xe0], "add r1, pc, r4"),
            (0x101, &[0x01, 0xa1], "adr r1, #4"),
            (0x101, &[0x0f, 0xf2, 0x04, 0x01], "adr.w r1, #4"),
            (0x101, &[0xaf, 0xf2, 0x08, 0x01], "adr.w r1, #-8"),
            (predicated(0x101, 1), &[0xaf, 0xf2, 0x08, 0x01], "adrne.w r1, #-8"),
            // Thumb code with a number of its own, and with another register.
            (0x101, &[0x78, 0x44], "add r0, pc"),
            (0x101, &[0x02, 0xf2, 0x04, 0x01], "addw r1, r2, #4"),
        ];
        for (address, bytes, text) in cases {
            assert_eq!(format(bytes, address), text);
        }
    }

    /// `rfe` and `srs`, which [`Isa::decode`](crate::Isa::decode) does not support.
    #[test]
    fn exceptions_of_the_kernel() {
        let cases: [(u64, &[u8], &str); 6] = [
            (0, &[0x00, 0x0a, 0xb0, 0xf8], "rfeia r0!"),
            (0, &[0x13, 0x05, 0x6d, 0xf9], "srsdb sp!, #0x13"),
            (1, &[0x90, 0xe9, 0x00, 0xc0], "rfeia r0"),
            (1, &[0x30, 0xe8, 0x00, 0xc0], "rfedb r0!"),
            (1, &[0x2d, 0xe8, 0x13, 0xc0], "srsdb sp!, #0x13"),
            // Bytes after it are ignored.
            (1, &[0x8d, 0xe9, 0x13, 0xc0, 0x70, 0x47], "srsia sp, #0x13"),
        ];
        for (address, bytes, text) in cases {
            assert_eq!(format(bytes, address), text);
        }
    }
}
