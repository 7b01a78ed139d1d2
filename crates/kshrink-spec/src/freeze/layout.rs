//! The addresses of the frozen sections.

use std::ops::Range;

use frozen_pack::codec::format::REGION_ALIGN;
use goblin::elf::section_header::{SHF_MERGE, SHF_TLS, SHF_WRITE, SHT_NOBITS};
use kcli::Failure;
use kelf::{Object, SectionIndex};
use kopt::freeze::{BOOT_RODATA, BOOT_TEXT, RODATA, TEXT};

use super::runtime::FrozenPlace;
use super::stubs::Stubs;

/// The size of a page in bytes.
pub const PAGE: u32 = 4096;

/// Number of pages of page tables that map a range of addresses, if each maps this number of bytes.
fn tables(range: &Range<u32>, by_table: u32) -> u32 {
    match range.is_empty() {
        true => 0,
        false => range.end.div_ceil(by_table) - range.start / by_table,
    }
}

/// Sections that are frozen as code, executable at their addresses: first used at boot, then not.
const CODE: [&str; 2] = [BOOT_TEXT, TEXT];
/// Sections that are frozen as data.
const DATA: [&str; 2] = [BOOT_RODATA, RODATA];

/// The largest frozen range in bytes.
const LARGEST: u32 = 64 << 20;

/// Maximum number of regions (`COPY_SHEETS` of kdecomp-rt/kernel/stub.c).
const MOST_REGIONS: usize = 16 << 10;

/// In a window, bytes for copies that are dropped because another processor has made the same copy.
const GIVEN_UP: u32 = 64 << 10;

/// The layout of frozen code, then data, each starting at a page boundary. With mechanism `stub`, an address window for
/// copies takes the place of data, if they need one.
pub struct Layout {
    /// The addresses of code, up to its last byte.
    pub code: Range<u32>,
    /// The addresses of data, up to its last byte.
    pub data: Range<u32>,
    /// The end of the last page.
    pub end: u32,
    /// With mechanism `page`, the pages of code and of data that every boot uses; they come first.
    pub at_boot: [Range<u32>; 2],
    /// The frozen sections of the object with their addresses.
    pub sections: Vec<(SectionIndex, u32)>,
    /// The addresses that need page tables. With mechanism `page`, all; with `stub`, the window for copies, if any.
    pub mapped: Range<u32>,
    /// Number of pages that these page tables take.
    pub page_tables: u32,
    /// With mechanism `stub`, the stubs; every section of code is a region.
    pub stubs: Option<Stubs>,
}

impl Layout {
    /// Lays out the frozen sections of an object so that they end at the end of the place's range, a page boundary.
    ///
    /// # Errors
    /// If no section is frozen, or a section cannot be frozen.
    pub fn of(object: &Object<'_>, place: &FrozenPlace) -> Result<Layout, Failure> {
        let range = &place.range;
        let stubs = Stubs::find(object)?;
        let code = match &stubs {
            Some(stubs) => place_regions(object, &stubs.regions)?,
            None => place_sections(object, CODE)?,
        };
        let data = place_sections(object, DATA)?;
        let copies = if stubs.is_some() && place.has_window { window(code.size) } else { 0 };
        let size = code.size.next_multiple_of(PAGE) + data.size.next_multiple_of(PAGE) + copies;
        if size == 0 {
            return Err(Failure::bad_input(
                "nothing is frozen: the listed code and data was removed or must not freeze; see report.json of --passes freeze",
            ));
        }
        if size > range.len() as u32 || range.end % PAGE != 0 {
            return Err(Failure::bad_input(format!(
                "{size} bytes are to be frozen below {:#x}; expected at most {} below the start of a page",
                range.end,
                range.len()
            )));
        }
        let code_start = range.end - size;
        let data_start = code_start + code.size.next_multiple_of(PAGE);
        let at_boot = |placed: &Placed, start: u32| start..start + placed.at_boot.next_multiple_of(PAGE);
        let at = |placed: &Placed, start: u32| -> Vec<(SectionIndex, u32)> {
            placed.sections.iter().map(|(section, offset)| (*section, start + offset)).collect()
        };
        let mapped = match (&stubs, copies) {
            (Some(_), 0) => range.end..range.end,
            (Some(_), _) => data_start..range.end,
            (None, _) => code_start..range.end,
        };
        Ok(Layout {
            code: code_start..code_start + code.size,
            data: data_start..data_start + data.size,
            end: range.end,
            page_tables: tables(&mapped, place.by_table),
            mapped,
            at_boot: [at_boot(&code, code_start), at_boot(&data, data_start)],
            sections: [at(&code, code_start), at(&data, data_start)].concat(),
            stubs,
        })
    }

    /// Returns the address of a section; `None` if it is not frozen.
    pub fn address(&self, section: SectionIndex) -> Option<u32> {
        self.sections.iter().find(|(frozen, _)| *frozen == section).map(|(_, address)| *address)
    }

    /// Number of pages.
    pub fn pages(&self) -> u32 {
        (self.end - self.code.start) / PAGE
    }
}

/// With mechanism `stub`, the maximum size of the address window for copies, given the size of all regions. A
/// page of copies is at least half full: a region that does not fit goes to the next page.
fn window(regions: u32) -> u32 {
    (2 * regions + GIVEN_UP).next_multiple_of(PAGE)
}

/// Places regions one after the other.
fn place_regions(object: &Object<'_>, regions: &[SectionIndex]) -> Result<Placed, Failure> {
    let mut placed = Placed::default();
    for &region in regions {
        let section = object.section(region);
        let fits = (1..=MOST_OF_REGION).contains(&section.size) && section.align <= u64::from(REGION_ALIGN);
        if !fits || placed.sections.len() == MOST_REGIONS {
            return Err(Failure::job(format!(
                "{} regions are to be frozen, and section {} has {} bytes, aligned to {}; expected at most {MOST_REGIONS} \
                 regions of {MOST_OF_REGION} bytes, aligned to {REGION_ALIGN}",
                regions.len(),
                section.name,
                section.size,
                section.align
            )));
        }
        let offset = placed.size.next_multiple_of(REGION_ALIGN);
        placed.sections.push((region, offset));
        placed.size = offset + section.size as u32;
    }
    Ok(placed)
}

/// Maximum size of a region: a page without the runtime's own data there (`struct room` of kdecomp-rt/kernel/stub.c).
const MOST_OF_REGION: u64 = PAGE as u64 - 8;

/// Sections placed one after the other.
#[derive(Default)]
struct Placed {
    sections: Vec<(SectionIndex, u32)>,
    size: u32,
    /// Number of bytes at the start that are used at boot.
    at_boot: u32,
}

/// Places the sections with these names. Sections with the first name are used at boot.
fn place_sections(object: &Object<'_>, names: [&'static str; 2]) -> Result<Placed, Failure> {
    let mut placed = Placed::default();
    let all = || object.sections.iter().enumerate();
    for (i, section) in names.into_iter().flat_map(|name| all().filter(move |(_, s)| s.name == name)) {
        let fail = |problem: &str| Err(Failure::job(format!("section {} {problem}", section.name)));
        let index = SectionIndex::from(i);
        if section.flags & u64::from(SHF_WRITE | SHF_TLS | SHF_MERGE) != 0 || section.kind == SHT_NOBITS {
            return fail("is not plain read-only code or data, and cannot be frozen");
        }
        if object.groups.iter().any(|group| group.members.contains(&index)) {
            return fail("is part of a section group, and cannot be frozen");
        }
        let (Ok(align), Ok(size)) = (u32::try_from(section.align), u32::try_from(section.size)) else {
            return fail("is too large to be frozen");
        };
        if align > PAGE || size > LARGEST || placed.size > LARGEST {
            return fail("is too large, or needs a larger alignment than a page has, to be frozen");
        }
        let offset = placed.size.next_multiple_of(align);
        placed.sections.push((index, offset));
        placed.size = offset + size;
        if section.name == names[0] {
            placed.at_boot = placed.size;
        }
    }
    Ok(placed)
}
