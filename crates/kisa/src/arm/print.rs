//! Instructions as text, by Capstone.

use std::cell::OnceCell;

use capstone::Capstone;
use capstone::arch::arm::{ArchExtraMode, ArchMode};
use capstone::prelude::*;

use super::{decode, encoding, predicate};
use crate::Encoding;

thread_local! {
    static MAIN: OnceCell<Option<Capstone>> = const { OnceCell::new() };
    static THUMB: OnceCell<Option<Capstone>> = const { OnceCell::new() };
}

/// See [`Rewritable::format`](crate::Rewritable::format). What Capstone does not know is printed as the assembler's
/// directive for it.
pub(super) fn format(bytes: &[u8], address: u64) -> String {
    let length = decode(bytes, address).map_or(bytes.len(), |decoded| usize::from(decoded.len));
    let bytes = &bytes[..length.min(bytes.len())];
    disassemble(bytes, address).unwrap_or_else(|| directive(bytes, encoding(address)))
}

/// The one instruction that `bytes` are.
fn disassemble(bytes: &[u8], address: u64) -> Option<String> {
    let encoding = encoding(address);
    let (printer, mode) = match encoding {
        Encoding::Main => (&MAIN, ArchMode::Arm),
        Encoding::Thumb => (&THUMB, ArchMode::Thumb),
    };
    // Capstone knows of a condition what it reads in the `it` in front.
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

/// Capstone for the instructions of the processors that have the most of them.
fn open(mode: ArchMode) -> Option<Capstone> {
    Capstone::new().arm().mode(mode).extra_mode([ArchExtraMode::V8].into_iter()).build().ok()
}

/// What GNU as reads as the instruction.
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
            // What is behind the instruction is not looked at.
            (0x101, &[0x08, 0xbf, 0x01, 0x23], "it eq"),
            (predicated(0x103, 0), &[0x01, 0x23], "moveq r3, #1"),
            (predicated(1, 1), &[0xd4, 0xf8, 0x90, 0x11], "ldrne.w r1, [r4, #0x190]"),
            // The condition of one instruction is none of the next.
            (0x101, &[0x70, 0x47], "bx lr"),
            // An instruction that Capstone does not know, in both encodings.
            (0, &[0x90, 0x10, 0x02, 0xe1], ".inst 0xe1021090"),
            (0x101, &[0x80, 0xec, 0x00, 0x00], ".inst.w 0xec800000"),
        ];
        for (address, bytes, text) in cases {
            assert_eq!(format(bytes, address), text);
        }
    }
}
