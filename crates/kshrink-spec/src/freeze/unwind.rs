//! Unwind tables of frozen code (`.ARM.exidx`; IHI 0038, section 5).
//!
//! The linker sorts the kernel's index by the order of its code, section by section. Frozen code is in no section of
//! the link, so its `.ARM.exidx` entries form a separate table, which the runtime registers like a module's
//! (`unwind_table_add` of arch/arm/kernel/unwind.c).

use goblin::elf::section_header::{SHF_ALLOC, SHT_PROGBITS};
use kcli::Failure;
use kelf::{Object, Place, Reloc, RelocClass, Section, SectionIndex};

use super::layout::Layout;
use super::stubs::Stubs;
use crate::edits::define;

/// The section of the table, which the linker script places in read-only data.
pub const TABLE: &str = ".rodata.kshrink.unwind";

/// The runtime's names for the start and the end of the table.
const SYMBOLS: [&str; 2] = ["kshrink_unwind", "kshrink_unwind_end"];

/// The size of an entry in bytes: an address, and its unwind information.
const ENTRY: usize = 8;

/// The unwind information of code that cannot be unwound (`EXIDX_CANTUNWIND`).
const NOT_UNWOUND: u32 = 1;

/// Joins the index sections of frozen code in one section, and replaces the entries about stubs by one. Does nothing if
/// the runtime does not request it.
///
/// # Errors
/// If the size of a section is not a multiple of the entry size.
pub fn move_index(object: &mut Object<'_>, layout: &Layout) -> Result<(), Failure> {
    if !object.symbols.iter().any(|symbol| symbol.name == SYMBOLS[0]) {
        return Ok(());
    }
    if let Some(stubs) = &layout.stubs {
        forget_stubs(object, stubs);
    }
    let mut data: Vec<u8> = Vec::new();
    let mut relocs: Vec<Reloc> = Vec::new();
    for section in indices_of_frozen(object, layout) {
        let index = object.take_section(section);
        if index.data.len() % ENTRY != 0 {
            return Err(Failure::job(format!("section {} is no unwind index", index.name)));
        }
        for (at, entry) in index.data.chunks(ENTRY).enumerate().map(|(i, entry)| (i * ENTRY, entry)) {
            let own = |reloc: &&Reloc| {
                reloc.class != RelocClass::None && (at..at + ENTRY).contains(&(reloc.offset as usize))
            };
            let own: Vec<&Reloc> = index.relocs.iter().filter(own).collect();
            // An entry also covers the following code, if both entries hold the same unwind information inline.
            let is_inline =
                own.len() == 1 && relocs.last().is_none_or(|last| last.offset % ENTRY as u64 == 0);
            if is_inline && data.len() >= ENTRY && data[data.len() - 4..] == entry[4..] {
                continue;
            }
            let moved =
                |reloc: &Reloc| Reloc { offset: reloc.offset - at as u64 + data.len() as u64, ..*reloc };
            relocs.extend(own.into_iter().map(moved));
            data.extend(entry);
        }
    }
    let place = Place::Section(SectionIndex::from(object.sections.len()));
    let size = data.len() as u32;
    object.sections.push(Section {
        name: TABLE,
        kind: SHT_PROGBITS,
        flags: u64::from(SHF_ALLOC),
        align: 4,
        size: size.into(),
        data: data.into(),
        relocs,
        ..Section::null()
    });
    define(object, SYMBOLS[0], place, 0)?;
    define(object, SYMBOLS[1], place, size)?;
    Ok(())
}

/// Leaves one entry about all stubs, which marks them as not unwindable. No stub calls anything, and its stack differs
/// from its function's.
fn forget_stubs(object: &mut Object<'_>, stubs: &Stubs) {
    let is_it = |section: &&mut Section<'_>| section.link_order == Some(stubs.section);
    let Some(index) = object.sections.iter_mut().find(is_it) else { return };
    let Some(&first) = index.relocs.iter().find(|reloc| reloc.class != RelocClass::None) else { return };
    let mut entry = vec![0; ENTRY];
    entry[..4].copy_from_slice(&index.data[..4]);
    entry[4..].copy_from_slice(&NOT_UNWOUND.to_le_bytes());
    index.size = ENTRY as u64;
    index.data = entry.into();
    index.relocs = vec![first];
}

/// Returns the index sections of frozen code, in the order of the code.
fn indices_of_frozen(object: &Object<'_>, layout: &Layout) -> Vec<SectionIndex> {
    let mut found: Vec<(u32, SectionIndex)> = Vec::new();
    for (i, section) in object.sections.iter().enumerate() {
        if let Some(address) = section.link_order.and_then(|code| layout.address(code)) {
            found.push((address, SectionIndex::from(i)));
        }
    }
    found.sort_unstable_by_key(|&(address, _)| address);
    found.into_iter().map(|(_, section)| section).collect()
}

#[cfg(test)]
mod tests {
    use goblin::elf::reloc::{R_ARM_NONE, R_ARM_PREL31};
    use goblin::elf::section_header::SHF_EXECINSTR;
    use kelf::{Machine, Place, Reloc, RelocClass, Section, SectionIndex, SymbolIndex};

    use super::super::handmade::{self, of_section, section};
    use super::move_index;

    fn reloc(offset: u64, r_type: u32, addend: i64) -> Reloc {
        let class = if r_type == R_ARM_NONE { RelocClass::None } else { RelocClass::Relative };
        Reloc { offset, r_type, class, width: 4, symbol: SymbolIndex(1), addend }
    }

    #[test]
    fn entries_of_frozen_code_become_a_table() {
        // Two functions with the same unwind information, one that cannot be unwound, and one with an unwind table.
        let words: [u32; 8] = [0, 0x80b0_b0b0, 0, 0x80b0_b0b0, 0, 1, 0, 0];
        let index = Section {
            link_order: Some(SectionIndex(1)),
            ..section(
                ".ARM.exidx.kshrink.frozen.text",
                0,
                4,
                words.iter().flat_map(|word| word.to_le_bytes()).collect(),
                vec![
                    reloc(0, R_ARM_NONE, 0),
                    reloc(0, R_ARM_PREL31, 0),
                    reloc(8, R_ARM_PREL31, 16),
                    reloc(16, R_ARM_PREL31, 32),
                    reloc(24, R_ARM_PREL31, 48),
                    reloc(28, R_ARM_PREL31, 0),
                ],
            )
        };
        let mut object = handmade::object(
            vec![section(".kshrink.frozen.text", SHF_EXECINSTR, 4, vec![0; 64], Vec::new()), index],
            vec![of_section(1)],
            &["kshrink_unwind", "kshrink_unwind_end"],
        );
        object.machine = Machine::Arm;
        let layout = handmade::lay_out(&object);
        move_index(&mut object, &layout).unwrap_or_else(|failure| panic!("{}", failure.message()));
        let table = object.sections.last().expect("the table");
        let words: Vec<u8> =
            [0, 0x80b0_b0b0, 0, 1, 0, 0u32].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!((table.name, &*table.data, table.link_order), (super::TABLE, &*words, None));
        let fields: Vec<(u64, i64)> = table.relocs.iter().map(|reloc| (reloc.offset, reloc.addend)).collect();
        assert_eq!(fields, [(0, 0), (8, 32), (16, 48), (20, 0)]);
        let end = object.symbols.iter().find(|symbol| symbol.name == "kshrink_unwind_end").expect("the end");
        assert_eq!((end.place, end.value), (Place::Section(SectionIndex(3)), 24));
        assert!(object.section(SectionIndex(2)).data.is_empty());
    }
}
