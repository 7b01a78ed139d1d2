//! The store that instrumented blocks begin with.

use goblin::elf::reloc::{R_386_32, R_X86_64_PC32};
use kelf::RelocClass;

use crate::AddressField;

/// See [`crate::Rewritable::encode_store_one`]: `movb $1, address`.
pub(super) fn store_one(bits: u32, out: &mut Vec<u8>) -> AddressField {
    // Without base and index, the 64-bit mode counts from the end of the instruction.
    out.extend([0xc6, 0x05, 0, 0, 0, 0, 1]);
    let (r_type, class, bias) = match bits {
        64 => (R_X86_64_PC32, RelocClass::Relative, 5),
        _ => (R_386_32, RelocClass::Absolute, 0),
    };
    AddressField { offset: 2, width: 4, bias, r_type, class }
}
