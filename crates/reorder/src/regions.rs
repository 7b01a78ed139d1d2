//! The regions of a kernel's executable sections, as made by the linker script.
//!
//! A linker script gathers some input sections between marker symbols, because the kernel tests whether an address is
//! between them: `.sched.text` between `__sched_text_start` and `__sched_text_end`, `.noinstr.text`, `.entry.text` and
//! others. Nothing may move across such a marker. The code between two markers is a [`Region`]. The largest region
//! outside of all markers is the compiler's ordinary code, the only one whose functions get sections of their own with
//! `-ffunction-sections`.

use std::ops::Range;

use kelf::functions::TextSection;

/// A part of an executable section within which code may move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its name: the name of the section, `.sched.text` for the code between markers, or `behind …` for the code
    /// between two such regions.
    pub name: String,
    /// Its addresses.
    pub addresses: Range<u64>,
    /// The name of its section.
    pub section: String,
    /// Whether it is between markers, so that no code may leave it.
    pub between_markers: bool,
    /// Whether its functions have sections of their own if compiled with `-ffunction-sections`.
    pub has_function_sections: bool,
}

/// Splits sections, by rising address, at the markers among `symbols`, which are names with addresses. The memory at
/// the addresses `init` is freed after boot.
pub fn cut<'a>(
    sections: &[TextSection],
    init: &Range<u64>,
    symbols: impl Iterator<Item = (&'a str, u64)>,
) -> Vec<Region> {
    let marked = marked_ranges(symbols);
    let mut regions = Vec::new();
    for section in sections {
        cut_section(section, init.contains(&section.address), &marked, &mut regions);
    }
    regions
}

/// Returns the region that contains an address, as an index into `regions`, which are by rising address.
pub fn region_at(regions: &[Region], address: u64) -> Option<usize> {
    let after = regions.partition_point(|region| region.addresses.start <= address);
    let index = after.checked_sub(1)?;
    regions[index].addresses.contains(&address).then_some(index)
}

/// Returns the ranges between `__NAME_text_start` and `__NAME_text_end`, named `.NAME.text`, without empty ones.
fn marked_ranges<'a>(symbols: impl Iterator<Item = (&'a str, u64)>) -> Vec<(String, Range<u64>)> {
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for (name, address) in symbols {
        let Some(name) = name.strip_prefix("__") else { continue };
        if let Some(class) = name.strip_suffix("_text_start") {
            starts.push((class, address));
        } else if let Some(class) = name.strip_suffix("_text_end") {
            ends.push((class, address));
        }
    }
    let mut marked = Vec::new();
    for (class, start) in starts {
        let end = ends.iter().find(|(other, end)| *other == class && *end > start);
        if let Some((_, end)) = end {
            marked.push((format!(".{class}.text"), start..*end));
        }
    }
    marked
}

/// Appends the regions of one section.
fn cut_section(
    section: &TextSection,
    is_init: bool,
    marked: &[(String, Range<u64>)],
    regions: &mut Vec<Region>,
) {
    let Range { start, end } = section.addresses();
    if start >= end {
        return;
    }
    let inside = |(_, range): &&(String, Range<u64>)| start <= range.start && range.end <= end;
    let marked: Vec<_> = marked.iter().filter(inside).collect();
    let mut cuts: Vec<u64> = marked.iter().flat_map(|(_, range)| [range.start, range.end]).collect();
    cuts.extend([start, end]);
    cuts.sort_unstable();
    cuts.dedup();

    let first = regions.len();
    for pair in cuts.windows(2) {
        let addresses = pair[0]..pair[1];
        // Markers nest: `.cpuidle.text` is inside `.noinstr.text`. The smallest range is the innermost.
        let holds = |(_, range): &&&(String, Range<u64>)| range.contains(&addresses.start);
        let innermost = marked.iter().filter(holds).min_by_key(|(_, range)| range.end - range.start);
        let name = match (innermost, regions[first..].last()) {
            (Some((name, _)), _) => name.clone(),
            (None, None) => section.name.clone(),
            (None, Some(before)) => format!("behind {}", before.name),
        };
        let is_plain = innermost.is_none();
        let has_function_sections = is_plain && !is_init;
        regions.push(Region {
            name,
            addresses,
            section: section.name.clone(),
            between_markers: !is_plain,
            has_function_sections,
        });
    }
    let regions = &mut regions[first..];
    let size = |region: &&mut Region| region.addresses.end - region.addresses.start;
    let plain = |region: &&mut Region| region.has_function_sections;
    if let Some(main) = regions.iter_mut().filter(plain).max_by_key(size) {
        main.name = section.name.clone();
        let start = main.addresses.start;
        for region in regions {
            region.has_function_sections = region.addresses.start == start && section.name == ".text";
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INIT: Range<u64> = 900..1000;

    fn section(name: &str, addresses: Range<u64>) -> TextSection {
        let (address, size) = (addresses.start, addresses.end - addresses.start);
        TextSection { name: name.into(), address, size, load_address: address, bytes: Vec::new() }
    }

    #[test]
    fn markers_cut_and_nest() {
        let sections = [section(".text", 100..800), section(".init.text", 900..950)];
        let symbols = [
            ("__noinstr_text_start", 500),
            ("__cpuidle_text_start", 560),
            ("__cpuidle_text_end", 600),
            ("__noinstr_text_end", 600),
            ("__sched_text_start", 640),
            ("__sched_text_end", 700),
            ("__lock_text_start", 700),
            ("__lock_text_end", 700),
            ("vfs_read", 120),
            ("__odd_text_start", 990),
        ];
        let regions = cut(&sections, &INIT, symbols.into_iter());
        let found: Vec<_> =
            regions.iter().map(|r| (r.name.as_str(), r.addresses.clone(), r.has_function_sections)).collect();
        let expected = [
            (".text", 100..500, true),
            (".noinstr.text", 500..560, false),
            (".cpuidle.text", 560..600, false),
            ("behind .cpuidle.text", 600..640, false),
            (".sched.text", 640..700, false),
            ("behind .sched.text", 700..800, false),
            (".init.text", 900..950, false),
        ];
        assert_eq!(found, expected);
        let at = |address| region_at(&regions, address);
        assert_eq!((at(560), at(99), at(800), at(949)), (Some(2), None, None, Some(6)));
    }

    #[test]
    fn the_ordinary_code_may_come_behind_the_markers() {
        let symbols = [("__entry_text_start", 110), ("__entry_text_end", 200)];
        let regions = cut(&[section(".text", 100..800)], &INIT, symbols.into_iter());
        let found: Vec<_> = regions.iter().map(|r| (r.name.as_str(), r.has_function_sections)).collect();
        assert_eq!(found, [(".text", false), (".entry.text", false), (".text", true)]);
    }

    #[test]
    fn a_section_without_markers_is_one_region() {
        let regions = cut(&[section(".text", 0..10), section(".empty", 20..20)], &INIT, [].into_iter());
        assert_eq!(regions.len(), 1);
        assert!(regions[0].has_function_sections);
    }
}
