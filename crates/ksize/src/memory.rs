//! The sections that take memory, and the pages that a booted kernel keeps.
//!
//! A kernel reserves the memory of its image, page by page, and gives some of it back while it boots. What remains is
//! *resident*: nothing else can use it. The symbols that bound these ranges are those that the kernel's own code uses:
//!
//! | machine | reserved | given back |
//! | --- | --- | --- |
//! | i386 | `_text` to `__end_of_kernel_reserve` (`early_reserve_memory`, `arch/x86/kernel/setup.c`) | init (`free_initmem`, `arch/x86/mm/init.c`) |
//! | x86-64 | the same | init, and the memory on both sides of the read-only data (`mark_rodata_ro`, `arch/x86/mm/init_64.c`) |
//! | 32-bit ARM | `_stext` to `_end` (`arm_memblock_init`, `arch/arm/mm/init.c`) | init (`free_initmem`, same file) |
//! | AArch64 | `_stext` to `_end` (`arm64_memblock_init`, `arch/arm64/mm/init.c`) | init (`free_initmem`, same file) |
//!
//! Memory that the kernel allocates while it boots is in no figure: `struct page`, per-CPU copies, the first page tables
//! (the used part of `.brk` on x86, 16 KiB on ARM).

use std::collections::BTreeSet;
use std::ops::Range;

use goblin::elf::Sym;
use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHF_TLS, SHF_WRITE, SHT_NOBITS, SectionHeader};
use kelf::target::Kernel;
use kelf::{ElfFile, Result, Segments};
use serde::{Deserialize, Serialize};

/// The size of a page in bytes.
const PAGE: u64 = 4096;

/// A symbol that only kernels with packed segments have (`kdecomp-rt/kernel/arm_segments.c`). Their kernel makes a page
/// table for each pair of sections, 2 MiB, in which the protection of memory changes.
const SPLITTER: &str = "kshrink_split_sections";
/// The bounds of memory with one protection in such a kernel.
const BOUNDS: [&str; 3] = ["__start_rodata", "__init_begin", "__init_end"];
/// The size of a section of 32-bit ARM, in the sense of its page tables (ARM DDI 0406C, section B3.5.1).
const SECTION: u64 = 1 << 20;

/// Memory of a booted kernel, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelMemory {
    /// The pages of the image that the kernel never gives back.
    pub resident: u64,
    /// The part of them that holds nothing: memory between sections, and in sections of code the places of a page or
    /// more that are filled with one byte and belong to no symbol.
    pub padding: u64,
}

impl KernelMemory {
    /// Measures a linked kernel; `None` if it lacks the symbols that bound its image.
    pub(crate) fn of(
        file: &ElfFile<'_>,
        symbols: &[(Sym, &str)],
        segments: &Segments,
    ) -> Result<Option<KernelMemory>> {
        let address = |wanted: &str| {
            symbols.iter().find(|(_, name)| *name == wanted).map(|(symbol, _)| symbol.st_value)
        };
        let range = |(start, end): (&str, &str)| {
            let (start, end) = (address(start)?, address(end)?);
            (start <= end).then_some(start..end)
        };
        let Kernel { reserved, freed: given_back, .. } = file.machine.target().kernel;
        let Some(reserved) = reserved.iter().find_map(|&bounds| range(bounds)) else { return Ok(None) };
        let reserved = outward(segments.load_range(reserved));
        let given_back: Vec<Range<u64>> = given_back
            .iter()
            .filter_map(|&bounds| range(bounds))
            .map(|range| inward(segments.load_range(range)))
            .collect();
        let kept = |range: &Range<u64>| {
            let part = range.start.max(reserved.start)..range.end.min(reserved.end);
            let freed: u64 = given_back.iter().map(|freed| overlap(freed, &part)).sum();
            part.end.saturating_sub(part.start).saturating_sub(freed)
        };
        let image = kept(&reserved);
        let mut padding = image;
        let named = named(symbols);
        for (index, header) in file.sections.iter().enumerate() {
            if !takes_memory(header, file.section_name(index)?) {
                continue;
            }
            let start = segments.load_address(header.sh_addr);
            padding = padding.saturating_sub(kept(&(start..start.saturating_add(header.sh_size))));
            let is_code = header.sh_flags & u64::from(SHF_EXECINSTR | SHF_WRITE) == u64::from(SHF_EXECINSTR);
            if is_code {
                for fill in fills(file.content(index)?) {
                    let at = header.sh_addr.saturating_add(fill.start as u64);
                    if let Some(fill) = unnamed(&named, at..at.saturating_add(fill.len() as u64)) {
                        padding = padding.saturating_add(kept(&segments.load_range(fill)));
                    }
                }
            }
        }
        let mut tables = BTreeSet::new();
        if address(SPLITTER).is_some() {
            let bounds = BOUNDS.iter().filter_map(|bound| address(bound));
            tables.extend(bounds.filter(|bound| bound % SECTION != 0).map(|bound| bound / (2 * SECTION)));
        }
        let resident = image.saturating_add(tables.len() as u64 * PAGE);
        Ok(Some(KernelMemory { resident, padding }))
    }
}

/// Whether a section takes memory: it is allocated, not freed at boot (`.brk`), and not the zero-initialised thread
/// storage of a program, of which only threads have copies.
pub(crate) fn takes_memory(header: &SectionHeader, name: &str) -> bool {
    let thread_storage = header.sh_flags & u64::from(SHF_TLS) != 0 && header.sh_type == SHT_NOBITS;
    header.sh_flags & u64::from(SHF_ALLOC) != 0 && !thread_storage && !is_given_back(name)
}

/// Whether a section with this name, in a kernel or its objects, is freed at boot and therefore in no figure.
pub fn is_given_back(name: &str) -> bool {
    matches!(name, ".brk" | ".bss..brk")
}

/// Returns the number of bytes in both ranges.
pub(crate) fn overlap(one: &Range<u64>, other: &Range<u64>) -> u64 {
    one.end.min(other.end).saturating_sub(one.start.max(other.start))
}

/// Rounds a range to pages that contain it.
fn outward(range: Range<u64>) -> Range<u64> {
    range.start & !(PAGE - 1)..range.end.saturating_add(PAGE - 1) & !(PAGE - 1)
}

/// Rounds a range to the pages that it contains.
fn inward(range: Range<u64>) -> Range<u64> {
    range.start.saturating_add(PAGE - 1) & !(PAGE - 1)..range.end & !(PAGE - 1)
}

/// Returns the ranges of all symbols with a size, by address.
fn named(symbols: &[(Sym, &str)]) -> Vec<Range<u64>> {
    let sized = symbols.iter().filter(|(symbol, _)| symbol.st_size > 0);
    let mut named: Vec<Range<u64>> =
        sized.map(|(symbol, _)| symbol.st_value..symbol.st_value.saturating_add(symbol.st_size)).collect();
    named.sort_unstable_by_key(|range| (range.start, range.end));
    named
}

/// Returns a range without the symbols that reach into it at its begin and its end: the last instruction of a function
/// may be the byte that fills the place after it. `None` if a symbol is inside of the rest, or less than a page remains.
fn unnamed(named: &[Range<u64>], range: Range<u64>) -> Option<Range<u64>> {
    let after = named.partition_point(|symbol| symbol.start <= range.start);
    let start = named[..after].iter().map(|symbol| symbol.end).fold(range.start, u64::max);
    let end = named[after..].first().map_or(range.end, |symbol| range.end.min(symbol.start));
    let rest_is_named =
        named[after..].iter().any(|symbol| symbol.start < range.end && symbol.end < range.end);
    (!rest_is_named && end.checked_sub(start)? >= PAGE).then_some(start..end)
}

/// Returns the runs of one byte of at least a page.
fn fills(content: &[u8]) -> Vec<Range<usize>> {
    let mut fills = Vec::new();
    let mut start = 0;
    for run in content.chunk_by(|one, other| one == other) {
        if run.len() as u64 >= PAGE {
            fills.push(start..start + run.len());
        }
        start += run.len();
    }
    fills
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn straddling_ranges_are_split() {
        assert_eq!(overlap(&(10..20), &(15..40)), 5);
        assert_eq!(overlap(&(10..20), &(0..40)), 10);
        assert_eq!(overlap(&(10..20), &(20..40)), 0);
        assert_eq!(overlap(&(10..20), &(0..5)), 0);
    }

    #[test]
    fn ranges_are_rounded_to_pages() {
        assert_eq!(outward(0x1001..0x2fff), 0x1000..0x3000);
        assert_eq!(outward(0x1000..0x3000), 0x1000..0x3000);
        assert_eq!(inward(0x1001..0x3fff), 0x2000..0x3000);
        let empty = inward(0x1001..0x1fff);
        assert_eq!(overlap(&empty, &(0..u64::MAX)), 0);
    }

    #[test]
    fn fills_end_at_symbols() {
        let named = [0x1000..0x1041, 0x1040..0x1048, 0x5000..0x5008];
        assert_eq!(unnamed(&named, 0x1047..0x5000), Some(0x1048..0x5000));
        assert_eq!(unnamed(&named, 0x1048..0x5001), Some(0x1048..0x5000));
        assert_eq!(unnamed(&named, 0x1047..0x6000), None);
        assert_eq!(unnamed(&named, 0x1047..0x2000), None);
        assert_eq!(unnamed(&named, 0x6000..0x7000), Some(0x6000..0x7000));
    }

    #[test]
    fn fills_are_long_runs_of_one_byte() {
        let mut content = vec![1, 2];
        content.extend([0xcc; 4095]);
        content.push(3);
        assert!(fills(&content).is_empty());
        content.extend([0xcc; 4097]);
        assert_eq!(fills(&content), vec![4098..8195]);
    }
}
