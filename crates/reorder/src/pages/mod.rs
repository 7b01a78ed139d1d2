//! How densely the pages of a kernel's text are used: the table of the study of boot-time function
//! reordering, and where its pages go.
//!
//! A page is *touched* if a byte of it ran. No layout of whole functions touches fewer pages than the functions
//! that ran fill (the minimum by function), and none at all fewer than the bytes that ran fill (the minimum by
//! byte). What lies between is on the touched pages beside the bytes that ran: the rest of their functions,
//! functions that did not run, padding.

mod print;
#[cfg(test)]
mod tests;

use std::ops::Range;

use rangemap::RangeSet;
use serde::Serialize;

use crate::hot::HotCode;
use crate::text::{Region, TextSection};

/// Any function of a kernel, whether it ran or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// What to call it.
    pub name: String,
    /// Where it lies.
    pub addresses: Range<u64>,
    /// Whether it is code between labels, without a symbol that gives a function its size.
    pub hand_written: bool,
}

/// The use of the pages of a kernel's text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pages {
    /// Size of a page in bytes.
    pub page_size: u64,
    /// The text that stays after boot.
    pub text: Area,
    /// The text that is given back.
    pub init_text: Area,
}

/// The use of the pages of some sections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Area {
    /// Pages that the sections lie on.
    pub pages: u64,
    /// Pages of which a byte ran.
    pub touched: u64,
    /// Pages that the functions that ran would fill.
    pub minimum_by_function: u64,
    /// Pages that the bytes that ran would fill.
    pub minimum_by_byte: u64,
    /// What lies on the touched pages.
    pub bytes: Bytes,
    /// The touched pages, by address.
    pub touched_pages: Vec<Page>,
    /// The size in bytes of the functions that ran.
    pub function_bytes: u64,
    /// The bytes that ran.
    pub bytes_run: u64,
    /// The size in bytes of the sections.
    pub size: u64,
}

/// The bytes of pages, by what they are; they add up to the size of the pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// They ran.
    pub ran: u64,
    /// They did not, but others of their function did.
    pub cold_parts: u64,
    /// Of functions that did not run.
    pub cold_functions: u64,
    /// Between functions: padding, and code that no symbol names.
    pub padding: u64,
    /// Before the section's first byte or behind its last.
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
pub struct Page {
    /// Its address.
    pub address: u64,
    /// What is on it.
    pub bytes: Bytes,
    /// The functions that ran on it, by address.
    pub functions: Vec<String>,
    /// Whether some of these are hand-written.
    pub hand_written: bool,
    /// The regions that begin on it: nothing may move from one to another.
    pub borders: Vec<String>,
}

impl Pages {
    /// Counts. `functions` are all functions of the kernel by rising address; what overlaps one before it
    /// counts as part of that.
    pub fn count(hot: &HotCode, functions: &[Function], page_size: u64) -> Pages {
        let area = |init: bool| {
            let sections: Vec<&TextSection> =
                hot.text.sections.iter().filter(|section| section.init == init).collect();
            count(hot, &sections, functions, page_size)
        };
        Pages { page_size, text: area(false), init_text: area(true) }
    }
}

/// Bytes of one kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ran,
    ColdPart,
    ColdFunction,
    Padding,
}

fn count(hot: &HotCode, sections: &[&TextSection], functions: &[Function], page_size: u64) -> Area {
    let ran = ran(hot);
    let mut area = Area::default();
    let mut last = None;
    for section in sections {
        let Range { start, end } = section.addresses;
        if start >= end {
            continue;
        }
        area.size += end - start;
        let (first_page, end_page) = (start / page_size, end.div_ceil(page_size));
        // Two sections may share a page.
        area.pages += end_page - first_page - u64::from(last == Some(first_page));
        last = Some(end_page - 1);

        let mut pages: Vec<Page> = (first_page..end_page)
            .map(|page| Page { address: page * page_size, ..Page::default() })
            .collect();
        let mut put = |kind: Kind, range: Range<u64>, function: Option<&Function>| {
            let mut at = range.start.max(start);
            let stop = range.end.min(end);
            while at < stop {
                let page = &mut pages[(at / page_size - first_page) as usize];
                let upto = stop.min(page.address + page_size);
                page.put(kind, upto - at, function);
                at = upto;
            }
        };
        let mut at = start;
        let begin = functions.partition_point(|function| function.addresses.end <= start);
        for function in functions[begin..].iter().take_while(|function| function.addresses.start < end) {
            let range = function.addresses.start.max(at)..function.addresses.end.min(end);
            if range.is_empty() {
                continue;
            }
            put(Kind::Padding, at..range.start, None);
            at = range.end;
            let mut inside = ran.overlapping(&range).peekable();
            let rest = if inside.peek().is_none() { Kind::ColdFunction } else { Kind::ColdPart };
            let mut from = range.start;
            for ran in inside {
                let (ran_start, ran_end) = (ran.start.max(range.start), ran.end.min(range.end));
                put(rest, from..ran_start, Some(function));
                put(Kind::Ran, ran_start..ran_end, Some(function));
                from = ran_end;
            }
            put(rest, from..range.end, Some(function));
            if rest == Kind::ColdPart {
                area.function_bytes += range.end - range.start;
            }
        }
        put(Kind::Padding, at..end, None);
        finish(&mut area, pages, section, &hot.text.regions, page_size);
    }
    area.touched = area.touched_pages.len() as u64;
    for page in &area.touched_pages {
        area.bytes.add(&page.bytes);
    }
    area.bytes_run = area.bytes.ran;
    area.minimum_by_function = area.function_bytes.div_ceil(page_size);
    area.minimum_by_byte = area.bytes_run.div_ceil(page_size);
    area
}

impl Page {
    fn put(&mut self, kind: Kind, size: u64, function: Option<&Function>) {
        match kind {
            Kind::Ran => self.bytes.ran += size,
            Kind::ColdPart => self.bytes.cold_parts += size,
            Kind::ColdFunction => self.bytes.cold_functions += size,
            Kind::Padding => self.bytes.padding += size,
        }
        if let (Kind::Ran, Some(function)) = (kind, function)
            && self.functions.last() != Some(&function.name)
        {
            self.functions.push(function.name.clone());
            self.hand_written |= function.hand_written;
        }
    }
}

/// Adds the touched pages of a section to the area.
fn finish(area: &mut Area, pages: Vec<Page>, section: &TextSection, regions: &[Region], page_size: u64) {
    for mut page in pages.into_iter().filter(|page| page.bytes.ran > 0) {
        let addresses = page.address..page.address + page_size;
        let inner = section.addresses.start + 1..section.addresses.end;
        let begins = |region: &&Region| {
            addresses.contains(&region.addresses.start) && inner.contains(&region.addresses.start)
        };
        page.borders.extend(regions.iter().filter(begins).map(|region| region.name.clone()));
        match area.touched_pages.last_mut() {
            Some(shared) if shared.address == page.address => {
                shared.bytes.add(&page.bytes);
                shared.functions.extend(page.functions);
                shared.hand_written |= page.hand_written;
                shared.borders.extend(page.borders);
            }
            _ => area.touched_pages.push(page),
        }
    }
    for page in &mut area.touched_pages {
        let Bytes { ran, cold_parts, cold_functions, padding, .. } = page.bytes;
        page.bytes.outside = page_size - (ran + cold_parts + cold_functions + padding);
    }
}

/// The addresses that ran.
fn ran(hot: &HotCode) -> RangeSet<u64> {
    let ranges = hot.functions.iter().flat_map(|function| {
        function.ran.iter().map(|range| function.address + range.start..function.address + range.end)
    });
    ranges.filter(|range| !range.is_empty()).collect()
}
