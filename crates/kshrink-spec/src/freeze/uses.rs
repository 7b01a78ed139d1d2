//! The uses of frozen code by code and data that do not freeze.

use goblin::elf::section_header::SHF_EXCLUDE;
use kcli::Failure;
use kelf::{Object, Place, Section, reloc};

use super::unwind;

/// Tables in which the runtime looks up the addresses of thawed instructions (kdecomp-rt/kernel/stub.c).
const TRANSLATED: [&str; 3] = ["__bug_table", "__ex_table", unwind::TABLE];

/// Checks that among the sections that do not freeze, only tables about instructions contain addresses of frozen code,
/// from `first` up to `end`.
///
/// # Errors
/// The section and place with another such address.
pub fn check_uses(object: &Object<'_>, first: u32, end: u32) -> Result<(), Failure> {
    let is_frozen = |reloc: &kelf::Reloc| {
        let symbol = object.symbol(reloc.symbol);
        let range = u64::from(first)..u64::from(end);
        symbol.place == Place::Absolute && range.contains(&symbol.value)
    };
    let is_linked = |section: &&Section<'_>| section.flags & u64::from(SHF_EXCLUDE) == 0;
    let sections = object.sections.iter().filter(is_linked);
    for section in sections.filter(|section| !TRANSLATED.contains(&section.name)) {
        if let Some(reloc) = section.relocs.iter().find(|reloc| is_frozen(reloc)) {
            return Err(Failure::job(format!(
                "section {} refers to frozen code at {:#x} ({}), which must be entered through its stub",
                section.name,
                reloc.offset,
                reloc::name(object.machine, reloc.r_type)
            )));
        }
    }
    Ok(())
}
