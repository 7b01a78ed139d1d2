//! The store at the start of instrumented blocks.

use goblin::elf::reloc::{R_386_32, R_X86_64_PC32};
use kelf::RelocClass;

use crate::{AddressField, StoreLayout, StoreOne};

/// The linker adds any distance to the address.
pub(super) const LAYOUT: StoreLayout =
    StoreLayout { align: 1, first: 0, span: i32::MAX as u32, takes_register: false };

/// See [`crate::Rewritable::encode_store_one`]: `movb $1, address`.
pub(super) fn store_one(bits: u32, displacement: u32, out: &mut Vec<u8>) -> StoreOne {
    // Without base and index, 64-bit mode counts from the end of the instruction.
    out.extend([0xc6, 0x05, 0, 0, 0, 0, 1]);
    let (r_type, class, bias) = match bits {
        64 => (R_X86_64_PC32, RelocClass::Relative, 5),
        _ => (R_386_32, RelocClass::Absolute, 0),
    };
    let field = AddressField { offset: 2, width: 4, bias, r_type, class };
    StoreOne { fields: vec![field], addend: displacement.into(), saves: false }
}
