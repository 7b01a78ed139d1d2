//! Edits of the lowered object: sections that are taken out, and symbols of the runtime that are defined.

use goblin::elf::section_header::SHT_PROGBITS;
use kcli::Failure;
use kelf::{Object, Place, Section, SectionIndex, SymbolIndex};

/// The placeholder for a section that was taken out; the linker script drops it.
const GONE: &str = ".discard.kshrink";

/// Takes a section out, and leaves a placeholder that symbols may still be in.
pub fn take_out<'g>(object: &mut Object<'g>, section: SectionIndex) -> Section<'g> {
    let gone = Section { name: GONE, kind: SHT_PROGBITS, ..Section::null() };
    std::mem::replace(&mut object.sections[section.get()], gone)
}

/// Defines a symbol that the runtime refers to, with an offset in a section or, if it is absolute, an address.
pub fn define(object: &mut Object<'_>, name: &str, place: Place, value: u32) -> Result<SymbolIndex, Failure> {
    let found = object.symbols.iter().position(|symbol| symbol.name == name && symbol.is_undefined());
    let index = found.ok_or_else(|| Failure::job(format!("the runtime does not refer to {name}")))?;
    object.symbols[index].place = place;
    object.symbols[index].value =
        if place == Place::Absolute { object.machine.kernel_address(value) } else { value.into() };
    Ok(SymbolIndex::from(index))
}
