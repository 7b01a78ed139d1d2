//! The executable sections of a kernel, page by page: how many bytes of each ran.

use std::ops::Range;

use kplan::Coverage;
use rangemap::RangeSet;

use crate::code::Code;

/// Size of a page in bytes, on every machine that is known here unless it was configured otherwise.
pub const PAGE_SIZE: u64 = 4096;

/// What ran of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// The executable sections, by rising address.
    pub sections: Vec<SectionMap>,
    /// Functions of the coverage that the kernel does not have.
    pub missing: usize,
}

/// What ran of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionMap {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Bytes that ran, or that are of functions of which no more is known than that they ran.
    pub ran: u64,
    /// Bytes of functions that ran.
    pub functions: u64,
    /// Number of functions that ran.
    pub function_count: usize,
    /// Number of functions.
    pub function_total: usize,
    /// The pages that it lies on, by rising address.
    pub pages: Vec<Page>,
}

/// A page of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its address.
    pub address: u64,
    /// Bytes of the section that lie on it.
    pub size: u64,
    /// Bytes of these that ran.
    pub ran: u64,
    /// The functions on it, by rising address.
    pub functions: Vec<OnPage>,
}

/// The part of a function that lies on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnPage {
    /// The function, as an index into [`kelf::Functions::functions`].
    pub function: usize,
    /// Bytes of it on the page.
    pub size: u64,
    /// Bytes of these that ran.
    pub ran: u64,
}

impl SectionMap {
    /// Number of pages of which a byte ran.
    pub fn touched(&self) -> usize {
        self.pages.iter().filter(|page| page.ran > 0).count()
    }
}

impl Map {
    /// The map of a kernel of which this is a coverage, made of it or of another link of it.
    pub fn of(code: &Code, coverage: &Coverage) -> Map {
        let mut ran = RangeSet::new();
        let mut has_run = vec![false; code.linked.functions.len()];
        let mut missing = 0;
        for function in &coverage.functions {
            match code.addresses_of(function) {
                Some(addresses) => ran.extend(addresses.into_iter().filter(|range| !range.is_empty())),
                None => missing += 1,
            }
        }
        for range in ran.iter() {
            let functions = &code.linked.functions;
            // The one that the range begins in, if there is one, and those that begin within it.
            let first = functions.partition_point(|function| function.address + function.size <= range.start);
            let end = functions.partition_point(|function| function.address < range.end);
            has_run[first..end].fill(true);
        }
        let mut sections: Vec<SectionMap> = code
            .linked
            .sections
            .iter()
            .map(|section| SectionMap {
                name: section.name.clone(),
                address: section.address,
                size: section.size,
                ran: 0,
                functions: 0,
                function_count: 0,
                function_total: 0,
                pages: pages(section.addresses()),
            })
            .collect();
        for (index, (function, has_run)) in code.linked.functions.iter().zip(has_run).enumerate() {
            let section = &mut sections[function.section];
            section.place(index, function.address..function.address + function.size, &ran);
            section.function_total += 1;
            if has_run {
                section.function_count += 1;
                section.functions += function.size;
            }
        }
        for section in &mut sections {
            section.count(&ran);
        }
        Map { sections, missing }
    }
}

impl SectionMap {
    /// Counts the bytes of `ran`.
    fn count(&mut self, ran: &RangeSet<u64>) {
        let section = self.address..self.address + self.size;
        for page in &mut self.pages {
            page.ran = overlap(ran, &intersection(&page.addresses(), &section));
            self.ran += page.ran;
        }
    }

    /// Enters a function on its pages.
    fn place(&mut self, function: usize, addresses: Range<u64>, ran: &RangeSet<u64>) {
        let first = self.pages.partition_point(|page| page.addresses().end <= addresses.start);
        for page in self.pages[first..].iter_mut().take_while(|page| page.address < addresses.end) {
            let here = intersection(&page.addresses(), &addresses);
            let size = here.end - here.start;
            page.functions.push(OnPage { function, size, ran: overlap(ran, &here) });
        }
    }
}

impl Page {
    /// The addresses of the whole page.
    fn addresses(&self) -> Range<u64> {
        self.address..self.address.saturating_add(PAGE_SIZE)
    }
}

/// What two ranges share; empty, but not reversed, if that is nothing.
fn intersection(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    let start = one.start.max(other.start);
    start..one.end.min(other.end).max(start)
}

/// How many bytes of `wanted` are in `ranges`.
fn overlap(ranges: &RangeSet<u64>, wanted: &Range<u64>) -> u64 {
    let within = ranges.overlapping(wanted);
    within.map(|range| intersection(range, wanted)).map(|shared| shared.end - shared.start).sum()
}

/// The pages that a section at these addresses lies on.
fn pages(section: Range<u64>) -> Vec<Page> {
    if section.is_empty() {
        return Vec::new();
    }
    let first = section.start / PAGE_SIZE;
    let last = (section.end - 1) / PAGE_SIZE;
    let page = |number: u64| {
        let address = number * PAGE_SIZE;
        let size = section.end.min(address.saturating_add(PAGE_SIZE)) - section.start.max(address);
        Page { address, size, ran: 0, functions: Vec::new() }
    };
    (first..=last).map(page).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_section_that_begins_and_ends_within_one() {
        let pages = pages(0x1ff0..0x4001);
        let sizes: Vec<(u64, u64)> = pages.iter().map(|page| (page.address, page.size)).collect();
        assert_eq!(sizes, [(0x1000, 16), (0x2000, 4096), (0x3000, 4096), (0x4000, 1)]);
        assert!(super::pages(0x1000..0x1000).is_empty());
    }

    #[test]
    fn bytes_are_counted_on_their_page() {
        let mut section = SectionMap {
            name: ".text".into(),
            address: 0x1800,
            size: 0x1000,
            ran: 0,
            functions: 0,
            function_count: 0,
            function_total: 0,
            pages: pages(0x1800..0x2800),
        };
        section.count(&RangeSet::from([0x1000..0x1810, 0x1ff8..0x2008, 0x2700..0x3000]));
        let ran: Vec<u64> = section.pages.iter().map(|page| page.ran).collect();
        assert_eq!(ran, [16 + 8, 8 + 0x100]);
        assert_eq!((section.ran, section.touched()), (ran.iter().sum(), 2));
        section.place(7, 0x1ff0..0x2010, &RangeSet::from([0x1000..0x1810, 0x1ff8..0x2008]));
        assert_eq!(section.pages[0].functions, [OnPage { function: 7, size: 16, ran: 8 }]);
        assert_eq!(section.pages[1].functions, [OnPage { function: 7, size: 16, ran: 8 }]);
    }
}
