//! The frozen parts of a linked kernel: by function and variable, and by page.

use std::fmt;

use goblin::elf::Elf;
use goblin::elf::section_header::SHT_NOBITS;
use goblin::elf::sym::{STT_FILE, STT_SECTION};
use kcli::{Table, human};
use ksize::FROZEN_SYMBOLS;
use serde::Serialize;

use crate::codec::error::Damaged;
use crate::codec::format::{Layout, Packed};

/// The reason why nothing can be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The file is a damaged ELF file.
    #[error("is a damaged ELF file: {0}")]
    Elf(String),
    /// The file has no frozen parts.
    #[error(
        "has no symbol {0}, so it has no frozen parts; expected the vmlinux that kshrink-spec makes with the pass \
         freeze"
    )]
    NotFrozen(&'static str),
    /// The packed bytes cannot be found or read.
    #[error("has damaged packed bytes: {0}")]
    Packed(Damaged),
}

/// The frozen parts of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shown {
    /// The size of all frozen bytes.
    pub size: u64,
    /// Their size in memory: packed pages, tables, an index.
    pub packed: u64,
    /// The part of it that all pages share: tables and the index.
    pub shared: u64,
    /// The pages, by address.
    pub pages: Vec<Page>,
    /// The functions and variables, by address.
    pub symbols: Vec<Named>,
}

/// A page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Page {
    /// Its number, as in the packed file.
    pub page: u32,
    /// Its address.
    pub address: u32,
    /// `plain`, `code` or `data`: its coding.
    pub layout: &'static str,
    /// Its size in bytes.
    pub size: u64,
    /// Its packed size in bytes.
    pub packed: u64,
    /// `packed` by `size`.
    pub ratio: f64,
}

/// A function or variable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Named {
    /// Its symbol.
    pub name: String,
    /// Whether it is code.
    pub code: bool,
    /// Its address.
    pub address: u32,
    /// Its size in bytes, up to the next symbol if the symbol has none.
    pub size: u64,
    /// The numbers of its first and of its last page.
    pub pages: [u32; 2],
    /// Its share of the packed size of these pages, by bytes.
    pub packed: u64,
}

/// Returns the frozen parts of a kernel, given its bytes.
///
/// # Errors
/// If it is not a kernel with frozen parts, or they are damaged.
pub fn show(vmlinux: &[u8]) -> Result<Shown, Error> {
    let elf = Elf::parse(vmlinux).map_err(|error| Error::Elf(error.to_string()))?;
    let named = |wanted: &'static str| {
        let mut symbols = elf.syms.iter();
        symbols
            .find(|symbol| elf.strtab.get_at(symbol.st_name) == Some(wanted))
            .ok_or(Error::NotFrozen(wanted))
    };
    let [_, data, packed, _] = FROZEN_SYMBOLS;
    let (data, room) = (named(data)?, named(packed)?);
    let file = packed_file(&elf, vmlinux, room.st_value, room.st_size);
    let file = file.ok_or(Error::Packed(Damaged("they are outside of the file")))?;
    let packed = Packed::read(file).map_err(Error::Packed)?;
    let pages = pages(&packed).ok_or(Error::Packed(Damaged("a page is missing")))?;
    let streams: u64 = pages.iter().map(|page| page.packed).sum();
    let symbols = symbols(&elf, &packed, &pages, data.st_value);
    Ok(Shown {
        size: pages.iter().map(|page| page.size).sum(),
        packed: file.len() as u64,
        shared: file.len() as u64 - streams,
        pages,
        symbols,
    })
}

/// Returns the packed file, stored after its size in 4 bytes, at an address.
fn packed_file<'v>(elf: &Elf<'_>, vmlinux: &'v [u8], address: u64, room: u64) -> Option<&'v [u8]> {
    let holds = |header: &&goblin::elf::SectionHeader| {
        header.sh_type != SHT_NOBITS
            && header.sh_addr <= address
            && address.checked_add(room).is_some_and(|end| end <= header.sh_addr + header.sh_size)
    };
    let header = elf.section_headers.iter().filter(|header| header.sh_addr != 0).find(holds)?;
    let start = usize::try_from(header.sh_offset + (address - header.sh_addr)).ok()?;
    let (size, rest) = vmlinux.get(start..)?.split_first_chunk()?;
    rest.get(..u32::from_le_bytes(*size) as usize)
}

fn pages(packed: &Packed) -> Option<Vec<Page>> {
    let page = |(page, entry): (u32, &crate::codec::format::PageEntry)| {
        let (address, size) = packed.place(page)?;
        let (size, stream) = (size as u64, packed.stream(page)?.len() as u64);
        let layout = match entry.layout {
            Layout::Plain => "plain",
            Layout::Code => "code",
            Layout::Data | Layout::Distances => "data",
        };
        Some(Page { page, address, layout, size, packed: stream, ratio: stream as f64 / size as f64 })
    };
    (0..).zip(&packed.index).map(page).collect()
}

/// Returns the symbols of frozen parts. Of several at one address, uses the largest, then the first.
fn symbols(elf: &Elf<'_>, packed: &Packed, pages: &[Page], data: u64) -> Vec<Named> {
    let mut found: Vec<(u64, u64, &str)> = elf
        .syms
        .iter()
        .filter(|symbol| !matches!(symbol.st_type(), STT_FILE | STT_SECTION))
        .filter_map(|symbol| Some((symbol.st_value, symbol.st_size, elf.strtab.get_at(symbol.st_name)?)))
        .filter(|(_, _, name)| !name.is_empty() && !FROZEN_SYMBOLS.contains(name))
        .collect();
    found.sort_by_key(|&(address, size, _)| (address, std::cmp::Reverse(size)));
    found.dedup_by_key(|(address, _, _)| *address);
    let mut named = Vec::new();
    for (index, &(address, size, name)) in found.iter().enumerate() {
        let segment = packed.segments.iter().find(|segment| {
            (u64::from(segment.address)..u64::from(segment.address) + u64::from(segment.size))
                .contains(&address)
        });
        let Some(segment) = segment else { continue };
        let end = u64::from(segment.address) + u64::from(segment.size);
        let next = found.get(index + 1).map_or(end, |next| next.0);
        let end = end.min(if size > 0 { address + size } else { next });
        let page_of = |address: u64| {
            let behind = pages.partition_point(|page| u64::from(page.address) <= address);
            behind.saturating_sub(1) as u32
        };
        let own = [page_of(address), page_of(end.max(address + 1) - 1)];
        let share: f64 = (own[0]..=own[1])
            .filter_map(|page| pages.get(page as usize))
            .map(|page| {
                let start = u64::from(page.address);
                let bytes = end.min(start + page.size).saturating_sub(address.max(start));
                bytes as f64 * page.ratio
            })
            .sum();
        named.push(Named {
            name: name.to_owned(),
            code: address < data,
            address: address as u32,
            size: end - address,
            pages: own,
            packed: share.round() as u64,
        });
    }
    named
}

impl fmt::Display for Shown {
    /// Writes a table by page, and a table by function and variable, largest first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ratio = |packed: u64, size: u64| match size {
            0 => String::new(),
            _ => format!("{:.3}", packed as f64 / size as f64),
        };
        let mut table = Table::new(["page", "address", "coded as", "bytes", "packed", "ratio"]);
        let mut row = |cells: [String; 6]| table.row(cells);
        for page in &self.pages {
            row([
                page.page.to_string(),
                format!("{:#x}", page.address),
                page.layout.to_owned(),
                human(page.size),
                human(page.packed),
                ratio(page.packed, page.size),
            ]);
        }
        let empty = String::new;
        row(["shared".to_owned(), empty(), empty(), empty(), human(self.shared), empty()]);
        row([
            "all".to_owned(),
            empty(),
            empty(),
            human(self.size),
            human(self.packed),
            ratio(self.packed, self.size),
        ]);
        table.fmt(f)?;
        writeln!(f)?;
        let mut symbols: Vec<&Named> = self.symbols.iter().collect();
        symbols.sort_by_key(|symbol| (std::cmp::Reverse(symbol.size), symbol.address));
        let mut table = Table::new(["function or variable", "", "address", "bytes", "packed", "pages"]);
        for symbol in symbols {
            let [first, last] = symbol.pages;
            table.row([
                symbol.name.clone(),
                if symbol.code { "code" } else { "data" }.to_owned(),
                format!("{:#x}", symbol.address),
                human(symbol.size),
                human(symbol.packed),
                if first == last { first.to_string() } else { format!("{first}-{last}") },
            ]);
        }
        table.fmt(f)
    }
}
