//! The executable sections of a kernel, page by page, with the number of bytes that ran on each page.

use std::ops::Range;

use kelf::Function;
use kelf::functions::TextSection;
use rangemap::RangeSet;

/// Size of a memory page in bytes on x86 and, in most configurations, on ARM.
pub const PAGE_SIZE: u64 = 4096;

/// The pages of a kernel's executable sections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageMap {
    /// Size of a page in bytes.
    pub page_size: u64,
    /// The executable sections by ascending address, with the same indices as in the kernel.
    pub sections: Vec<SectionPages>,
    /// For each function of the kernel, whether a byte of it ran.
    pub has_run: Vec<bool>,
}

/// The pages of one section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionPages {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Bytes of the section that ran.
    pub ran: u64,
    /// Size in bytes of the functions that ran.
    pub function_bytes: u64,
    /// Number of functions that ran.
    pub functions_run: usize,
    /// Number of functions.
    pub functions: usize,
    /// The pages of the section, by ascending address.
    pub pages: Vec<Page>,
}

/// A page of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its address.
    pub address: u64,
    /// Bytes of the section on the page.
    pub size: u64,
    /// Bytes of the section on the page that ran.
    pub ran: u64,
    /// The functions on it, by ascending address.
    pub functions: Vec<FunctionPart>,
}

/// The part of a function on one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionPart {
    /// The function, as an index into [`kelf::Functions::functions`].
    pub function: usize,
    /// Bytes of the function on the page.
    pub size: u64,
    /// Bytes of the function on the page that ran.
    pub ran: u64,
}

impl PageMap {
    /// Distributes `sections` and `functions` over pages of `page_size` bytes. Both lists are sorted by address, and
    /// functions do not overlap. `ran` holds the addresses that ran.
    pub fn new(
        sections: &[TextSection],
        functions: &[Function],
        ran: &RangeSet<u64>,
        page_size: u64,
    ) -> PageMap {
        let mut has_run = vec![false; functions.len()];
        for range in ran.iter() {
            // The function that contains the start of the range, if any, and the functions that begin within the range.
            let first = functions.partition_point(|function| function.addresses().end <= range.start);
            let end = functions.partition_point(|function| function.address < range.end);
            has_run[first..end].fill(true);
        }
        let pages = |section: &TextSection| SectionPages::new(section, ran, page_size);
        let mut sections: Vec<SectionPages> = sections.iter().map(pages).collect();
        for (index, (function, &has_run)) in functions.iter().zip(&has_run).enumerate() {
            let section = &mut sections[function.section];
            section.place(index, function.addresses(), ran, page_size);
            section.functions += 1;
            if has_run {
                section.functions_run += 1;
                section.function_bytes += function.size;
            }
        }
        PageMap { page_size, sections, has_run }
    }
}

impl SectionPages {
    /// Creates the pages of a section, without its functions.
    fn new(section: &TextSection, ran: &RangeSet<u64>, page_size: u64) -> SectionPages {
        let addresses = section.addresses();
        let numbers = match addresses.is_empty() {
            true => 0..0,
            false => addresses.start / page_size..(addresses.end - 1) / page_size + 1,
        };
        let page = |number: u64| {
            let address = number * page_size;
            let here = intersection(&page_at(address, page_size), &addresses);
            Page { address, size: here.end - here.start, ran: overlap(ran, &here), functions: Vec::new() }
        };
        let pages: Vec<Page> = numbers.map(page).collect();
        SectionPages {
            name: section.name.clone(),
            address: section.address,
            size: section.size,
            ran: pages.iter().map(|page| page.ran).sum(),
            function_bytes: 0,
            functions_run: 0,
            functions: 0,
            pages,
        }
    }

    /// Returns the number of pages with a byte that ran.
    pub fn touched(&self) -> usize {
        self.pages.iter().filter(|page| page.ran > 0).count()
    }

    /// Adds a function to the pages that contain it.
    fn place(&mut self, function: usize, addresses: Range<u64>, ran: &RangeSet<u64>, page_size: u64) {
        let end = |page: &Page| page_at(page.address, page_size).end;
        let first = self.pages.partition_point(|page| end(page) <= addresses.start);
        for page in self.pages[first..].iter_mut().take_while(|page| page.address < addresses.end) {
            let here = intersection(&page_at(page.address, page_size), &addresses);
            let size = here.end - here.start;
            page.functions.push(FunctionPart { function, size, ran: overlap(ran, &here) });
        }
    }
}

/// Returns the addresses of the page at `address`.
fn page_at(address: u64, page_size: u64) -> Range<u64> {
    address..address.saturating_add(page_size)
}

/// Returns the intersection of two ranges; empty, but never reversed, if they are disjoint.
fn intersection(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    let start = one.start.max(other.start);
    start..one.end.min(other.end).max(start)
}

/// Returns the number of bytes of `wanted` in `ranges`.
fn overlap(ranges: &RangeSet<u64>, wanted: &Range<u64>) -> u64 {
    let within = ranges.overlapping(wanted);
    within.map(|range| intersection(range, wanted)).map(|shared| shared.end - shared.start).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(addresses: Range<u64>) -> TextSection {
        let (address, size) = (addresses.start, addresses.end - addresses.start);
        TextSection { name: ".text".into(), address, size, load_address: address, bytes: Vec::new() }
    }

    #[test]
    fn pages_of_a_section_that_begins_and_ends_within_one() {
        let section = |addresses| SectionPages::new(&section(addresses), &RangeSet::new(), PAGE_SIZE);
        let pages = section(0x1ff0..0x4001).pages;
        let sizes: Vec<(u64, u64)> = pages.iter().map(|page| (page.address, page.size)).collect();
        assert_eq!(sizes, [(0x1000, 16), (0x2000, 4096), (0x3000, 4096), (0x4000, 1)]);
        assert!(section(0x1000..0x1000).pages.is_empty());
    }

    #[test]
    fn bytes_are_counted_on_their_page() {
        let ran = RangeSet::from([0x1000..0x1810, 0x1ff8..0x2008, 0x2700..0x3000]);
        let function = |name: &str, address: u64, size: u64| Function {
            name: name.into(),
            file: None,
            nth: 0,
            section: 0,
            address,
            size,
            is_label: false,
        };
        let functions = [function("cold", 0x1810, 0x10), function("hot", 0x1ff0, 0x20)];
        let map = PageMap::new(&[section(0x1800..0x2800)], &functions, &ran, PAGE_SIZE);
        let section = &map.sections[0];
        let bytes: Vec<u64> = section.pages.iter().map(|page| page.ran).collect();
        assert_eq!(bytes, [16 + 8, 8 + 0x100]);
        assert_eq!((section.ran, section.touched()), (bytes.iter().sum(), 2));
        assert_eq!((section.functions, section.functions_run, section.function_bytes), (2, 1, 0x20));
        assert_eq!(map.has_run, [false, true]);
        let part = |function, size, ran| FunctionPart { function, size, ran };
        assert_eq!(section.pages[0].functions, [part(0, 16, 0), part(1, 16, 8)]);
        assert_eq!(section.pages[1].functions, [part(1, 16, 8)]);
    }
}
