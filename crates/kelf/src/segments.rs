//! The loaded segments of a linked file, which map addresses to load addresses.

use std::ops::Range;

use goblin::elf::program_header::{PT_LOAD, ProgramHeader};
use scroll::Pread;

use crate::error::Result;
use crate::headers::ElfFile;

/// The loaded segments, in the order of the program headers.
#[derive(Clone, Debug)]
pub struct Segments(Vec<ProgramHeader>);

impl Segments {
    /// Reads the program headers of `file`.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) if they lie outside the file or their addresses exceed 64 bits.
    pub fn of(file: &ElfFile<'_>) -> Result<Segments> {
        let mut segments = Vec::new();
        let (size, expected) = (usize::from(file.header.e_phentsize), ProgramHeader::size(file.ctx));
        if file.header.e_phnum != 0 && size != expected {
            let problem = format!("entries of {size} bytes; expected {expected}");
            return Err(file.damaged("program headers", problem));
        }
        let mut at = usize::try_from(file.header.e_phoff).unwrap_or(usize::MAX);
        for index in 0..file.header.e_phnum {
            let place = || format!("program header {index}");
            let segment: ProgramHeader = file
                .bytes
                .gread_with(&mut at, file.ctx)
                .map_err(|_| file.damaged(place(), "lies outside the file"))?;
            let bounds = segment.p_vaddr.checked_add(segment.p_memsz);
            if bounds.is_none() || segment.p_paddr.checked_add(segment.p_memsz).is_none() {
                return Err(file.damaged(place(), "its addresses exceed 64 bits"));
            }
            if segment.p_type == PT_LOAD {
                segments.push(segment);
            }
        }
        Ok(Segments(segments))
    }

    /// Returns the load address of `address`. Memory behind a segment belongs to it, up to the next segment: symbols may
    /// bound the gap between two.
    pub fn load_address(&self, address: u64) -> u64 {
        let holds = |segment: &&ProgramHeader| {
            (segment.p_vaddr..segment.p_vaddr + segment.p_memsz).contains(&address)
        };
        let end = |segment: &&ProgramHeader| segment.p_vaddr + segment.p_memsz;
        let before = || self.0.iter().filter(|segment| end(segment) <= address).max_by_key(end);
        let segment = self.0.iter().find(holds).or_else(before);
        segment.map_or(address, |segment| (address - segment.p_vaddr).saturating_add(segment.p_paddr))
    }

    /// Returns the load addresses of `range`.
    pub fn load_range(&self, range: Range<u64>) -> Range<u64> {
        let start = self.load_address(range.start);
        start..start.saturating_add(range.end - range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(p_vaddr: u64, p_paddr: u64, p_memsz: u64) -> ProgramHeader {
        ProgramHeader { p_vaddr, p_paddr, p_memsz, ..ProgramHeader::default() }
    }

    #[test]
    fn percpu_at_address_zero_is_loaded_among_init_sections() {
        // The segments of an x86-64 kernel: text and data, percpu, init.
        let segments = Segments(vec![
            segment(0xffff_ffff_8100_0000, 0x100_0000, 0x20_0000),
            segment(0, 0x120_0000, 0x2_0000),
            segment(0xffff_ffff_8122_0000, 0x122_0000, 0x10_0000),
        ]);
        // __init_begin is at the end of the first segment, and no other segment begins there.
        let init = segments.load_range(0xffff_ffff_8120_0000..0xffff_ffff_8132_0000);
        assert_eq!(init, 0x120_0000..0x132_0000);
        assert_eq!(segments.load_range(0..0x2_0000), 0x120_0000..0x122_0000);
        // __end_rodata, on the next page after the segment.
        assert_eq!(segments.load_address(0xffff_ffff_8120_0f00), 0x120_0f00);
        // Without program headers, addresses are unchanged.
        assert_eq!(Segments(Vec::new()).load_address(0x1000), 0x1000);
    }
}
