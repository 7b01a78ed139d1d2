/*!
The record, in an emitted object, of its opaque code and data.

Whether code may be split into blocks depends on its object: neither code of `.S` files nor code of a file with labels
of top-level `asm` may be split. One emitted object holds compiled and hand-written code, even in one section, and the
label or reference that made a function opaque may have been removed from it. The object therefore lists its opaque
parts in a section [`NAME`], with an entry for each:

| field | bytes | what |
| --- | --- | --- |
| start | a word | its address: a relocation against a symbol of its section |
| size | 4 | in bytes |
| reason | 4 | 0 hand-written; 1 anything else; 2 a jump table whose jump was removed; 3 code outside of any function |

A jump table is kept without its jump if another reference leads into it. Its slots then still refer only to the first
bytes of blocks; without the jump and without an entry here, they would look like pointers into the middle of a
function.

Because the addresses are relocations, the entries remain correct through `ld -r`. The section has the flag
`SHF_EXCLUDE` (gABI, chapter 4), so a final link drops it, even under a linker script that must list every section
(`--orphan-handling=error`). Its name begins with `.comment`, because the kernel's `modpost` reports other sections
that are not loaded as errors.
*/

use std::ops::Range;

use goblin::elf::section_header::{SHF_EXCLUDE, SHT_PROGBITS};
use kelf::{Machine, Object, Place, Reloc, RelocClass, Section, SectionIndex, SymbolIndex, reloc};

/// The name of the section.
const NAME: &str = ".comment.kshrink";
/// Size in bytes of an entry after the address.
const DETAIL: usize = 8;

/// Reason: no symbol of a function covers the code.
pub(crate) const NO_FUNCTION: &str = "code outside of any function";
/// Reason: code written in assembly.
pub const HAND_WRITTEN: &str = "hand-written";
/// Reason: compiler-made, and already opaque when its object was emitted.
const EARLIER: &str = "already opaque in an earlier rewrite";

/// Reason for data: slots of a jump table whose jump was removed.
pub(crate) const TABLE: &str = "a jump table whose jump was removed";

/// The reasons, by the number in an entry.
const REASONS: [&str; 4] = [HAND_WRITTEN, EARLIER, TABLE, NO_FUNCTION];

/// An opaque part of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Carried {
    /// The section of the object.
    pub section: SectionIndex,
    /// Offsets in bytes in it.
    pub range: Range<u32>,
    /// The reason.
    pub reason: &'static str,
}

/// Reads all opaque parts of an object, by ascending section and offset. Returns `None` if it lacks the section.
///
/// # Errors
/// A short description of the problem with the section.
pub(crate) fn read(object: &Object<'_>) -> Result<Option<Vec<Carried>>, String> {
    let Some(section) = object.sections.iter().find(|section| section.name == NAME) else { return Ok(None) };
    let entry = usize::from(object.machine.word_size()) + DETAIL;
    let entries = section.data.chunks_exact(entry);
    let mut relocs = section.relocs.iter();
    if !entries.remainder().is_empty() {
        return Err(format!("{} bytes; expected entries of {entry} bytes", section.data.len()));
    }
    let mut all = Vec::with_capacity(entries.len());
    for (at, bytes) in entries.enumerate().map(|(i, bytes)| (i * entry, bytes)) {
        let reloc = relocs.next().filter(|reloc| reloc.offset == at as u64);
        let place = reloc.and_then(|reloc| place(object, reloc));
        let (section, start) = place.ok_or_else(|| {
            format!("the entry at {at:#x} has no absolute relocation to a place in a section")
        })?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let end = start.checked_add(word(entry - DETAIL));
        let range = end.filter(|&end| u64::from(end) <= object.section(section).size).map(|end| start..end);
        let range = range.ok_or_else(|| format!("the entry at {at:#x} ends outside of the section"))?;
        let reason = REASONS.get(word(entry - DETAIL + 4) as usize);
        let reason =
            reason.ok_or_else(|| format!("the entry at {at:#x} has a reason above {}", REASONS.len() - 1))?;
        all.push(Carried { section, range, reason });
    }
    all.sort_by_key(|carried| (carried.section, carried.range.start));
    Ok(Some(all))
}

/// Returns the section and the offset that an absolute relocation refers to.
fn place(object: &Object<'_>, reloc: &Reloc) -> Option<(SectionIndex, u32)> {
    let symbol = object.symbol(reloc.symbol);
    match symbol.place {
        Place::Section(section) if reloc.class == RelocClass::Absolute => {
            Some((section, u32::try_from(i64::try_from(symbol.value).ok()? + reloc.addend).ok()?))
        }
        _ => None,
    }
}

/// Encodes the section, given the symbol of each section of the object.
pub(crate) fn section(machine: Machine, all: &[Carried], symbols: &[SymbolIndex]) -> Section<'static> {
    let word = machine.word_size();
    let mut data: Vec<u8> = Vec::with_capacity(all.len() * (usize::from(word) + DETAIL));
    let mut relocs = Vec::with_capacity(all.len());
    for Carried { section, range, reason } in all {
        relocs.push(Reloc {
            offset: data.len() as u64,
            r_type: reloc::absolute_word(machine),
            class: RelocClass::Absolute,
            width: word,
            symbol: symbols[section.get()],
            addend: i64::from(range.start),
        });
        data.resize(data.len() + usize::from(word), 0);
        data.extend_from_slice(&(range.len() as u32).to_le_bytes());
        let number = REASONS.iter().position(|known| known == reason).unwrap_or(1) as u32;
        data.extend_from_slice(&number.to_le_bytes());
    }
    Section {
        name: NAME,
        kind: SHT_PROGBITS,
        flags: u64::from(SHF_EXCLUDE),
        size: data.len() as u64,
        data: data.into(),
        relocs,
        ..Section::null()
    }
}
