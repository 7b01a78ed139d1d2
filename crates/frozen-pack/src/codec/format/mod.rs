//! The packed file, as `docs/frozen-format.md` describes it.

pub mod parts;
mod words;

use flate2::Crc;

use crate::codec::code::Model;
use crate::codec::data::DataModel;
use crate::codec::entropy::tables::Tables;
use crate::codec::error::Damaged;
use parts::{read_code, read_data, write_code, write_data};
use words::{Input, SHORT, put};

/// The first bytes of a packed file.
pub const MAGIC: [u8; 8] = *b"kfrozen\n";

/// The version of the format for i386 code in which all pages of a segment except the last are full.
pub const VERSION: u32 = 2;

/// The same version for code of 32-bit ARM.
pub const ARM_VERSION: u32 = 4;

/// The same version for x86-64 code.
pub const X86_64_VERSION: u32 = 6;

/// Added to a version if each page has its own size: the regions of mechanism `stub`.
pub const OF_REGIONS: u32 = 1;

/// The possible sizes of a page, in bytes; only powers of two.
pub const PAGE_SIZES: std::ops::RangeInclusive<u32> = 256..=65536;

/// Bits of an index entry for the place of a page.
const OFFSET_BITS: u32 = 28;

/// The coding of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Layout {
    /// Uncoded.
    Plain = 0,
    /// [`crate::codec::code`].
    Code = 1,
    /// [`crate::codec::data`].
    Data = 2,
    /// [`crate::codec::data::distances`], only for x86-64.
    Distances = 3,
}

/// Bits of an index entry of regions for the size; the other bits are the place, in units of 2 bytes.
const SIZE_BITS: u32 = 12;

/// Maximum size of a region in bytes.
pub const MOST_OF_REGION: usize = (1 << SIZE_BITS) - 1;

/// The alignment of regions, which literals of ARM code require.
pub const REGION_ALIGN: u32 = 4;

/// A range of addresses whose pages are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its address.
    pub address: u32,
    /// Its size in bytes, not 0.
    pub size: u32,
    /// The number of its first page.
    pub first_page: u32,
}

/// The place of a page in the file, and its coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageEntry {
    /// The offset in the streams.
    pub offset: u32,
    /// Its coding.
    pub layout: Layout,
}

/// A packed file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// The size of a page in bytes.
    pub page_size: u32,
    /// The packed ranges.
    pub segments: Vec<Segment>,
    /// The pages of all segments; each ends at the start of the next one.
    pub index: Vec<PageEntry>,
    /// The sizes of the pages in bytes, if each has its own.
    pub sizes: Option<Vec<u16>>,
    /// The model and tables that pages of code share.
    pub code: Option<(Model, Tables)>,
    /// The model and tables that pages of data share.
    pub data: Option<(DataModel, Tables)>,
    /// The packed pages.
    pub streams: Vec<u8>,
}

/// The sizes of the parts of a packed file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Header, segments and index.
    pub fixed: usize,
    /// The model and tables that pages of code share.
    pub code: usize,
    /// The model and tables that pages of data share.
    pub data: usize,
    /// The packed pages.
    pub streams: usize,
}

impl Sizes {
    /// Returns the total size.
    pub fn total(&self) -> usize {
        self.fixed + self.code + self.data + self.streams
    }
}

impl Packed {
    /// Returns the bytes of the file.
    ///
    /// # Errors
    /// If a part exceeds the limits of the format.
    pub fn write(&self) -> Result<Vec<u8>, Damaged> {
        if self.streams.len() >= 1 << OFFSET_BITS {
            return Err(Damaged("the packed pages exceed 256 MiB; pack less at once"));
        }
        let code = self.code.as_ref().map_or(Vec::new(), |(model, tables)| write_code(model, tables));
        let data = self.data.as_ref().map_or(Vec::new(), |(model, tables)| write_data(model, tables));
        let mut body = Vec::new();
        for segment in &self.segments {
            put(&mut body, [segment.address, segment.size, segment.first_page]);
        }
        match &self.sizes {
            None => {
                let entries = self.index.iter().map(|page| (page.layout as u32) << OFFSET_BITS | page.offset);
                put(&mut body, entries.chain([self.streams.len() as u32]));
            }
            Some(sizes) => {
                if self.streams.len() >= 2 << (32 - SIZE_BITS) {
                    return Err(Damaged("the packed regions exceed 2 MiB; freeze less"));
                }
                let entry = |offset: u32, size: u16| (offset / 2) << SIZE_BITS | u32::from(size);
                let entries = self.index.iter().zip(sizes).map(|(page, &size)| entry(page.offset, size));
                put(&mut body, entries.chain([entry(self.streams.len() as u32, 0)]));
                put(&mut body, [self.code.as_ref().and_then(|(model, _)| model.high()).unwrap_or_default()]);
            }
        }
        body.extend([&code[..], &data, &self.streams].concat());

        let is_64 = self.data.as_ref().is_some_and(|(model, _)| model.is_64);
        let version = match &self.code {
            Some((Model::Arm(_), _)) => ARM_VERSION,
            Some((Model::X86(model), _)) if model.is_64 => X86_64_VERSION,
            None if is_64 => X86_64_VERSION,
            _ => VERSION,
        };
        let version = version + if self.sizes.is_some() { OF_REGIONS } else { 0 };
        let mut crc = Crc::new();
        crc.update(&body);
        let mut bytes = MAGIC.to_vec();
        let counts = [self.segments.len(), self.index.len(), code.len(), data.len(), self.streams.len()];
        put(&mut bytes, [version, self.page_size]);
        put(&mut bytes, counts.map(|count| count as u32));
        put(&mut bytes, [crc.sum()]);
        bytes.extend(body);
        Ok(bytes)
    }

    /// Reads the output of [`Packed::write`].
    ///
    /// # Errors
    /// If the bytes are something else, or damaged.
    pub fn read(bytes: &[u8]) -> Result<Packed, Damaged> {
        let no_file = Damaged("is not a packed file; make one with `frozen-pack pack`");
        let mut input = Input(bytes.strip_prefix(&MAGIC).ok_or(no_file)?);
        let version = input.word()?;
        if !(VERSION..=X86_64_VERSION + OF_REGIONS).contains(&version) {
            return Err(Damaged("has another version of the format; pack it again with this frozen-pack"));
        }
        let page_size = input.word()?;
        let [segments, pages, code, data, streams] = input.counts()?;
        let sum = input.word()?;
        let mut crc = Crc::new();
        crc.update(input.0);
        if crc.sum() != sum {
            return Err(Damaged("its checksum is wrong, or its end is missing"));
        }
        if !page_size.is_power_of_two() || !PAGE_SIZES.contains(&page_size) {
            return Err(Damaged("the size of its pages is out of range"));
        }
        let segments = input.words(segments.checked_mul(3).ok_or(SHORT)?)?;
        let segments = segments
            .chunks_exact(3)
            .map(|words| Segment { address: words[0], size: words[1], first_page: words[2] })
            .collect();
        let entries = input.words(pages.checked_add(1).ok_or(SHORT)?)?;
        let (mut sizes, mut high) = (None, None);
        if version & OF_REGIONS != 0 {
            high = Some(input.word()?);
            let size = |&entry: &u32| (entry & ((1 << SIZE_BITS) - 1)) as u16;
            sizes = Some(entries[..pages].iter().map(size).collect::<Vec<u16>>());
        }
        let version = version & !OF_REGIONS;
        let code = Some(input.take(code)?).filter(|part| !part.is_empty());
        let code = code.map(|part| read_code(part, version, high)).transpose()?;
        let data = Some(input.take(data)?).filter(|part| !part.is_empty());
        let data = data.map(|part| read_data(part, version == X86_64_VERSION)).transpose()?;
        let streams = input.take(streams)?.to_vec();
        if !input.0.is_empty() {
            return Err(Damaged("there are bytes after its end"));
        }
        let index = match &sizes {
            None => read_index(&entries, streams.len(), version)?,
            Some(_) => read_regions(&entries, streams.len())?,
        };
        let packed = Packed { page_size, segments, index, sizes, code, data, streams };
        packed.check_segments()?;
        Ok(packed)
    }

    /// Checks that the segments have successive pages.
    fn check_segments(&self) -> Result<(), Damaged> {
        let mut next = 0;
        for segment in &self.segments {
            if segment.first_page != next || segment.size == 0 {
                return Err(Damaged("its segments do not have its pages in order"));
            }
            next = segment.size.div_ceil(self.page_size).checked_add(next).ok_or(SHORT)?;
        }
        if next as usize != self.index.len() {
            return Err(Damaged("its segments do not have as many pages as the index"));
        }
        let fits = |&size: &u16| size > 0 && u32::from(size) <= self.page_size;
        if !self.sizes.iter().flatten().all(fits) {
            return Err(Damaged("a page has an invalid size"));
        }
        Ok(())
    }

    /// Returns the sizes of the parts.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            fixed: 40
                + 12 * self.segments.len()
                + 4 * (self.index.len() + 1)
                + if self.sizes.is_some() { 4 } else { 0 },
            code: self.code.as_ref().map_or(0, |(model, tables)| write_code(model, tables).len()),
            data: self.data.as_ref().map_or(0, |(model, tables)| write_data(model, tables).len()),
            streams: self.streams.len(),
        }
    }
}

fn read_index(entries: &[u32], streams: usize, version: u32) -> Result<Vec<PageEntry>, Damaged> {
    let offset = |entry: u32| entry & ((1 << OFFSET_BITS) - 1);
    if !entries.is_sorted_by_key(|&entry| offset(entry)) || entries.last() != Some(&(streams as u32)) {
        return Err(Damaged("its index is not in order"));
    }
    let entries = entries[..entries.len() - 1].iter().map(|&entry| {
        let layouts = [Layout::Plain, Layout::Code, Layout::Data, Layout::Distances];
        let layout = *layouts.get((entry >> OFFSET_BITS) as usize)?;
        let exists = layout != Layout::Distances || version == X86_64_VERSION;
        exists.then_some(PageEntry { offset: offset(entry), layout })
    });
    entries.collect::<Option<_>>().ok_or(Damaged("a page has an unknown coding"))
}

/// Reads an index with sizes.
fn read_regions(entries: &[u32], streams: usize) -> Result<Vec<PageEntry>, Damaged> {
    let offset = |entry: u32| entry >> SIZE_BITS << 1;
    let (last, entries) = entries.split_last().ok_or(SHORT)?;
    if !entries.is_sorted_by_key(|&entry| offset(entry))
        || entries.last().is_some_and(|&entry| offset(entry) > offset(*last))
        || *last != ((streams as u32) / 2) << SIZE_BITS
        || streams % 2 != 0
    {
        return Err(Damaged("its index is not in order"));
    }
    Ok(entries.iter().map(|&entry| PageEntry { offset: offset(entry), layout: Layout::Code }).collect())
}
