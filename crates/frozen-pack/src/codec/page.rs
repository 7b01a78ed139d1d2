//! One page of a packed file.

use crate::codec::data::distances;
use crate::codec::entropy::tables::Symbols;
use crate::codec::error::Damaged;
use crate::codec::format::{Layout, Packed, REGION_ALIGN, Segment};

impl Packed {
    /// Returns the segment of a page.
    fn segment_of(&self, page: u32) -> Option<&Segment> {
        let after = self.segments.partition_point(|segment| segment.first_page <= page);
        self.segments.get(after.checked_sub(1)?)
    }

    /// Returns the address and the size of a page. Regions are adjacent.
    pub fn place(&self, page: u32) -> Option<(u32, usize)> {
        let segment = self.segment_of(page)?;
        if let Some(sizes) = &self.sizes {
            let (before, own) = (sizes.get(..page as usize)?, sizes.get(page as usize)?);
            let start: u32 = before.iter().map(|&size| u32::from(size).next_multiple_of(REGION_ALIGN)).sum();
            return Some((segment.address.wrapping_add(start), usize::from(*own)));
        }
        let start = (page - segment.first_page).checked_mul(self.page_size)?;
        let size = segment.size.checked_sub(start).filter(|size| *size > 0)?.min(self.page_size);
        Some((segment.address.wrapping_add(start), size as usize))
    }

    /// Returns the address for which a page is coded, and its size. All regions share one address.
    fn coded_for(&self, page: u32) -> Option<(u32, usize)> {
        match &self.sizes {
            Some(sizes) => Some((self.segment_of(page)?.address, usize::from(*sizes.get(page as usize)?))),
            None => self.place(page),
        }
    }

    /// Returns the bytes of a page in the file.
    pub fn stream(&self, page: u32) -> Option<&[u8]> {
        let index = page as usize;
        let start = self.index.get(index)?.offset as usize;
        let end = self.index.get(index + 1).map_or(self.streams.len(), |next| next.offset as usize);
        self.streams.get(start..end)
    }

    /// Decodes a page; the last one of a segment may be short.
    ///
    /// # Errors
    /// If there is no such page, or it is damaged.
    pub fn page(&self, page: u32) -> Result<Vec<u8>, Damaged> {
        let (address, _) = self.coded_for(page).ok_or(Damaged("there is no such page"))?;
        self.page_at(page, address)
    }

    /// Decodes a page that runs at another address than the one it is coded for: branches out of the page are relative
    /// to the new address.
    ///
    /// # Errors
    /// If there is no such page, or it is damaged.
    pub fn page_at(&self, page: u32, runs_at: u32) -> Result<Vec<u8>, Damaged> {
        let missing = Damaged("there is no such page");
        let (address, size) = self.coded_for(page).ok_or(missing)?;
        let stream = self.stream(page).ok_or(missing)?;
        let mut out = vec![0; size];
        match self.index[page as usize].layout {
            Layout::Plain => {
                if stream.len() != out.len() {
                    return Err(Damaged("an uncoded page has a wrong size"));
                }
                out.copy_from_slice(stream);
            }
            Layout::Code => {
                let (model, tables) = self.code.as_ref().ok_or(Damaged("the tables for code are missing"))?;
                let mut symbols = Symbols::new(tables, stream)?;
                model.decode(&mut symbols, address, runs_at, &mut out)?;
                symbols.finish()?;
            }
            Layout::Distances => {
                let (_, tables) = self.data.as_ref().ok_or(Damaged("the tables for data are missing"))?;
                let mut symbols = Symbols::new(tables, stream)?;
                distances::decode(&mut symbols, &mut out)?;
                symbols.finish()?;
            }
            Layout::Data => {
                let (model, tables) = self.data.as_ref().ok_or(Damaged("the tables for data are missing"))?;
                let mut symbols = Symbols::new(tables, stream)?;
                model.decode(&mut symbols, &mut out)?;
                symbols.finish()?;
            }
        }
        Ok(out)
    }

    /// Decodes a whole segment.
    ///
    /// # Errors
    /// The number of the first damaged page, and the damage.
    pub fn unpack(&self, segment: &Segment) -> Result<Vec<u8>, (u32, Damaged)> {
        let pages = segment.first_page..segment.first_page + segment.size.div_ceil(self.page_size);
        let pages: Result<Vec<_>, _> =
            pages.map(|page| self.page(page).map_err(|damaged| (page, damaged))).collect();
        Ok(pages?.concat())
    }
}
