//! Text in the 2 MiB of entry text.
//!
//! Page-table isolation maps these 2 MiB into the page tables of programs (`pti_clone_entry_text`), and the mitigation of
//! speculative return stack overflow places a function in their middle. Entry text has some KB; the rest of the 2 MiB is
//! empty. Any text may be there, because text is no secret: it is that of the boot image. Data may not.

use goblin::elf::section_header::SHF_EXECINSTR;
use kelf::{KernelBuild, Object, Section};

use super::fills;

/// The size of a large page in bytes.
const LARGE_PAGE: u64 = 2 << 20;
/// The least distance in bytes of the safe function from the start of the large page (the bits in
/// arch/x86/kernel/vmlinux.lds.S).
const SAFE_AT: u64 = 1 << 2 | 1 << 8 | 1 << 14 | 1 << 20;
/// Bytes that stay empty for alignment between sections.
const SLACK: u64 = 4096;

/// The sections of the script before the first and the second place that is filled.
const UNTRAINING: &str = ".text..__x86.rethunk_untrain";
const ENTRIES: &str = ".entry.text";
const SAFE: &str = ".text..__x86.rethunk_safe";

/// The names of sections that fill the places after entry text and after the safe function.
const FILLERS: [&str; 2] = [".text..kshrink.entries", ".text..kshrink.safe"];

/// Renames sections of text so that they fill the 2 MiB of entry text, if these keep their alignment. Returns their bytes.
pub(in crate::segments) fn fill(object: &mut Object<'_>, build: &KernelBuild) -> u64 {
    if fills(build) { fill_rooms(object) } else { 0 }
}

fn fill_rooms(object: &mut Object<'_>) -> u64 {
    let mut rooms = rooms(object);
    let is_text = |section: &Section<'_>| {
        let name = section.name == ".text" || section.name.starts_with(".text.unlikely");
        name && section.flags & u64::from(SHF_EXECINSTR) != 0 && section.size > 0
    };
    let mut order: Vec<usize> =
        (0..object.sections.len()).filter(|&index| is_text(&object.sections[index])).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(object.sections[index].size));
    let mut filled = 0;
    for index in order {
        let section = &mut object.sections[index];
        // Whatever comes before it, it takes no more.
        let taken = section.size.next_multiple_of(section.align.max(1));
        if let Some(place) = rooms.iter().position(|&room| taken <= room) {
            rooms[place] -= taken;
            section.name = FILLERS[place];
            filled += section.size;
        }
    }
    filled
}

/// Returns the bytes that are free after entry text, and after the safe function if there is one.
fn rooms(object: &Object<'_>) -> [u64; 2] {
    let size_of = |name: &str| {
        let sections = object.sections.iter().filter(|section| section.name == name);
        sections.map(|section| section.size.next_multiple_of(section.align.max(1))).sum::<u64>()
    };
    let (entries, safe) = (size_of(UNTRAINING) + size_of(ENTRIES), size_of(SAFE));
    let end = if safe > 0 { SAFE_AT } else { LARGE_PAGE };
    let second = if safe > 0 { (LARGE_PAGE - SAFE_AT).saturating_sub(safe + SLACK) } else { 0 };
    [end.saturating_sub(entries + SLACK), second]
}

/// Returns the script with the fillers after entry text and after the safe function.
pub(super) fn with_fillers(script: &str) -> Result<String, String> {
    let end = "__entry_text_end = .;";
    let (before, after) = script.split_once(end).ok_or("does not define __entry_text_end")?;
    let safe = format!("*({SAFE})");
    let after = after.replacen(&safe, &format!("{safe} *({})", FILLERS[1]), 1);
    Ok([before, end, " *(", FILLERS[0], ")", &after].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fillers_follow_entries_and_the_safe_function() {
        let script = "__entry_text_start = .; *(.entry.text) __entry_text_end = .;\n \
            . = srso_alias_untrain_ret | (1 << 20);\n *(.text..__x86.rethunk_safe)\n . = ALIGN((1 << 21));\n";
        let filled = "__entry_text_start = .; *(.entry.text) __entry_text_end = .; *(.text..kshrink.entries)\n \
            . = srso_alias_untrain_ret | (1 << 20);\n *(.text..__x86.rethunk_safe) *(.text..kshrink.safe)\n \
            . = ALIGN((1 << 21));\n";
        assert_eq!(with_fillers(script).unwrap(), filled);
        assert!(with_fillers("").is_err());
    }
}
