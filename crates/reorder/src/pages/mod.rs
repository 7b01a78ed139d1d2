//! The density of a kernel's text pages: the figures of the study of boot-time function reordering
//! (docs/pages-arm64.md), and the other content of touched pages.
//!
//! A page is *touched* if a byte of it ran. No layout of whole functions touches fewer pages than needed for the
//! functions that ran (the minimum by function), and no layout at all fewer than needed for the bytes that ran (the
//! minimum by byte). More pages are touched than the minimum by byte, because pages also contain the rest of their
//! functions, functions that did not run, and padding.

mod print;
#[cfg(test)]
mod tests;

use std::ops::Range;

use kelf::Function;
use ktext::{Page, PageMap, SectionPages};
use serde::Serialize;

use crate::regions::Region;

/// The use of the pages of a kernel's text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PageReport {
    /// Size of a page in bytes.
    pub page_size: u64,
    /// The text that is kept after boot.
    pub text: Area,
    /// The text that is freed after boot.
    pub init_text: Area,
}

/// The use of the pages of some sections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Area {
    /// Number of pages of the sections.
    pub pages: u64,
    /// Number of pages with a byte that ran.
    pub touched: u64,
    /// Number of pages that the functions that ran would fill.
    pub minimum_by_function: u64,
    /// Number of pages that the bytes that ran would fill.
    pub minimum_by_byte: u64,
    /// The content of the touched pages.
    pub bytes: Bytes,
    /// The touched pages, by address.
    pub touched_pages: Vec<TouchedPage>,
    /// The size in bytes of the functions that ran.
    pub function_bytes: u64,
    /// The bytes that ran.
    pub bytes_run: u64,
    /// The size in bytes of the sections.
    pub size: u64,
}

/// The bytes of pages by category; their sum is the size of the pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// Bytes that ran.
    pub ran: u64,
    /// Bytes that did not run, of functions that did.
    pub cold_parts: u64,
    /// Bytes of functions that did not run.
    pub cold_functions: u64,
    /// Bytes between functions: padding, and code without a symbol.
    pub padding: u64,
    /// Bytes before the start or after the end of the section.
    pub outside: u64,
}

impl Bytes {
    fn add(&mut self, other: &Bytes) {
        self.ran += other.ran;
        self.cold_parts += other.cold_parts;
        self.cold_functions += other.cold_functions;
        self.padding += other.padding;
        self.outside += other.outside;
    }
}

/// A touched page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TouchedPage {
    /// Its address.
    pub address: u64,
    /// Its content.
    pub bytes: Bytes,
    /// The functions that ran on it, by address.
    pub functions: Vec<String>,
    /// Whether one of these is hand-written.
    pub hand_written: bool,
    /// The regions that begin on it; nothing may move from one region to another.
    pub borders: Vec<String>,
}

impl PageReport {
    /// Reports on the pages of a kernel with these functions and regions. The sections at the addresses `init` are
    /// freed after boot.
    pub fn new(map: &PageMap, functions: &[Function], regions: &[Region], init: &Range<u64>) -> PageReport {
        let area = |of_init: bool| {
            let sections = map.sections.iter().filter(|section| init.contains(&section.address) == of_init);
            Area::new(map, sections, functions, regions)
        };
        PageReport { page_size: map.page_size, text: area(false), init_text: area(true) }
    }
}

impl Area {
    fn new<'m>(
        map: &PageMap,
        sections: impl Iterator<Item = &'m SectionPages>,
        functions: &[Function],
        regions: &[Region],
    ) -> Area {
        let mut area = Area::default();
        let mut last_page = None;
        for section in sections {
            let (Some(first), Some(last)) = (section.pages.first(), section.pages.last()) else { continue };
            area.size += section.size;
            area.function_bytes += section.function_bytes;
            // Two sections may share a page.
            area.pages += section.pages.len() as u64 - u64::from(last_page == Some(first.address));
            last_page = Some(last.address);
            // A region at the start of its section has no border.
            let inner = section.address + 1..section.address + section.size;
            for page in section.pages.iter().filter(|page| page.ran > 0) {
                let mut touched = TouchedPage::new(page, functions, &map.has_run);
                let addresses = page.address.max(inner.start)..inner.end.min(page.address + map.page_size);
                let begins = |region: &&Region| addresses.contains(&region.addresses.start);
                touched.borders.extend(regions.iter().filter(begins).map(|region| region.name.clone()));
                match area.touched_pages.last_mut() {
                    Some(shared) if shared.address == page.address => shared.add(touched),
                    _ => area.touched_pages.push(touched),
                }
            }
        }
        for page in &mut area.touched_pages {
            let Bytes { ran, cold_parts, cold_functions, padding, .. } = page.bytes;
            page.bytes.outside = map.page_size - (ran + cold_parts + cold_functions + padding);
            area.bytes.add(&page.bytes);
        }
        area.touched = area.touched_pages.len() as u64;
        area.bytes_run = area.bytes.ran;
        area.minimum_by_function = area.function_bytes.div_ceil(map.page_size);
        area.minimum_by_byte = area.bytes_run.div_ceil(map.page_size);
        area
    }
}

impl TouchedPage {
    /// Creates the part of one section on a page.
    fn new(page: &Page, functions: &[Function], has_run: &[bool]) -> TouchedPage {
        let mut touched = TouchedPage { address: page.address, ..TouchedPage::default() };
        touched.bytes.ran = page.ran;
        touched.bytes.padding = page.size;
        for part in &page.functions {
            let function = &functions[part.function];
            touched.bytes.padding -= part.size;
            match has_run[part.function] {
                true => touched.bytes.cold_parts += part.size - part.ran,
                false => touched.bytes.cold_functions += part.size,
            }
            if part.ran > 0 && touched.functions.last() != Some(&function.name) {
                touched.functions.push(function.name.clone());
                touched.hand_written |= function.is_label;
            }
        }
        touched
    }

    /// Adds the page's content from another section.
    fn add(&mut self, other: TouchedPage) {
        self.bytes.add(&other.bytes);
        self.functions.extend(other.functions);
        self.hand_written |= other.hand_written;
        self.borders.extend(other.borders);
    }
}
