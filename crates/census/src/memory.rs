//! The memory of the kernel in a core, by virtual address.

use std::ops::Range;

use kelf::{Dump, DumpError};
use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::layout::Field;

/// The size of a page in bytes.
pub const PAGE: u64 = 4096;

/// Maximum number of pages that are kept for the next reads: 16 MiB.
const MAX_CACHED: usize = 4096;

/// An image of a machine's memory.
pub trait Image {
    /// Returns its name, for messages.
    fn name(&self) -> &str;

    /// Fills `bytes` from the virtual address, or else from the physical one. Returns whether the image has them.
    ///
    /// # Errors
    /// If the image cannot be read.
    fn read(&mut self, address: u64, physical: u64, bytes: &mut [u8]) -> Result<bool, DumpError>;
}

impl Image for Dump {
    fn name(&self) -> &str {
        Dump::name(self)
    }

    fn read(&mut self, address: u64, physical: u64, bytes: &mut [u8]) -> Result<bool, DumpError> {
        Dump::read(self, address, physical, bytes)
    }
}

/// The addresses of a running kernel that need no page tables to translate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressSpace {
    /// Bytes of an address.
    pub word: u64,
    /// The difference between virtual and physical addresses of the linear mapping.
    pub linear: u64,
    /// The mapping of the kernel's image, if the image is not in the linear mapping.
    pub image: Option<Mapping>,
}

impl AddressSpace {
    /// Limits an address to the bits that it has.
    pub fn wrap(&self, address: u64) -> u64 {
        address & (u64::MAX >> (64 - 8 * self.word))
    }

    /// Returns the physical address of a virtual one.
    pub fn physical(&self, address: u64) -> u64 {
        match self.image.filter(|image| address.wrapping_sub(image.address) < image.size) {
            Some(image) => image.physical.wrapping_add(address - image.address),
            None => self.wrap(address.wrapping_sub(self.linear)),
        }
    }
}

/// Adjacent memory that page tables map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The virtual address.
    pub address: u64,
    /// The physical address.
    pub physical: u64,
    /// The size in bytes.
    pub size: u64,
}

/// The memory of a kernel.
pub struct Memory<'a> {
    image: &'a mut dyn Image,
    /// The translation of all addresses that are not mapped elsewhere.
    space: AddressSpace,
    /// The memory that is mapped elsewhere, by ascending address.
    mapped: Vec<Mapping>,
    cached: FxHashMap<u64, Box<[u8]>>,
    /// The name of the kernel's file, for messages.
    kernel: &'a str,
}

impl<'a> Memory<'a> {
    /// Creates the memory of the kernel in the file `kernel`.
    pub fn new(image: &'a mut dyn Image, space: AddressSpace, kernel: &'a str) -> Memory<'a> {
        Memory { image, space, mapped: Vec::new(), cached: FxHashMap::default(), kernel }
    }

    /// Returns the addresses that need no page tables to translate.
    pub fn space(&self) -> AddressSpace {
        self.space
    }

    /// Returns the number of bytes of an address, and of `unsigned long`.
    pub fn word_size(&self) -> u64 {
        self.space.word
    }

    /// Limits an address to the bits that it has.
    pub fn wrap(&self, address: u64) -> u64 {
        self.space.wrap(address)
    }

    /// Returns the physical address of a virtual one.
    pub fn physical(&self, address: u64) -> u64 {
        let next = self.mapped.partition_point(|mapping| mapping.address <= address);
        let mapping = next.checked_sub(1).map(|number| self.mapped[number]);
        match mapping.filter(|mapping| address - mapping.address < mapping.size) {
            Some(mapping) => mapping.physical + (address - mapping.address),
            None => self.space.physical(address),
        }
    }

    /// Returns the virtual address of a physical one in the linear mapping.
    pub fn linear(&self, physical: u64) -> u64 {
        self.wrap(physical.wrapping_add(self.space.linear))
    }

    /// Adds mappings by page tables.
    pub fn map(&mut self, mappings: impl IntoIterator<Item = Mapping>) {
        self.mapped.extend(mappings);
        self.mapped.sort_unstable_by_key(|mapping| mapping.address);
    }

    /// Returns the mappings by page tables within a range of addresses.
    pub fn mapped(&self, range: Range<u64>) -> Vec<Mapping> {
        let part = |mapping: &Mapping| {
            let start = mapping.address.max(range.start);
            let size = (mapping.size - (start - mapping.address).min(mapping.size))
                .min(range.end.saturating_sub(start));
            (size > 0).then(|| Mapping {
                address: start,
                physical: mapping.physical + (start - mapping.address),
                size,
            })
        };
        self.mapped.iter().filter_map(part).collect()
    }

    /// Returns the physical addresses of a range of virtual ones.
    pub fn physical_ranges(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mapped = self.mapped(range.clone());
        if mapped.is_empty() {
            let start = self.physical(range.start);
            let physical = start..start.saturating_add(range.end.saturating_sub(range.start));
            return vec![physical];
        }
        mapped.into_iter().map(|mapping| mapping.physical..mapping.physical + mapping.size).collect()
    }

    /// Fills `bytes` from an address.
    ///
    /// # Errors
    /// If the core lacks a part of them.
    pub fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let at = self.wrap(address.wrapping_add(done as u64));
            let start = (at % PAGE) as usize;
            let part = (PAGE as usize - start).min(bytes.len() - done);
            let into = &mut bytes[done..done + part];
            if let Some(page) = self.page(at)? {
                into.copy_from_slice(&page[start..start + part]);
            } else if !self.image.read(at, self.physical(at), into)? {
                return Err(self.damaged(
                    &format!("memory at {at:#x}"),
                    "the core does not hold it, or a pointer to it is wrong",
                    "the whole memory of the machine",
                ));
            }
            done += part;
        }
        Ok(())
    }

    /// Fills `bytes` from an address, as [`read`](Memory::read). Returns whether the core has them.
    ///
    /// # Errors
    /// If the core cannot be read.
    pub fn try_read(&mut self, address: u64, bytes: &mut [u8]) -> Result<bool> {
        match self.read(address, bytes) {
            Ok(()) => Ok(true),
            Err(Error::Damaged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the pointer or `unsigned long` at an address, if the core has it.
    ///
    /// # Errors
    /// If the core cannot be read.
    pub fn try_word(&mut self, address: u64) -> Result<Option<u64>> {
        let mut bytes = [0; 8];
        let size = self.word_size() as usize;
        Ok(self.try_read(address, &mut bytes[..size])?.then(|| u64::from_le_bytes(bytes)))
    }

    /// Returns the page that contains an address; `None` if the core lacks a part of it.
    fn page(&mut self, address: u64) -> Result<Option<&[u8]>> {
        let start = address - address % PAGE;
        let physical = self.physical(start);
        if !self.cached.contains_key(&physical) {
            let mut page = vec![0; PAGE as usize].into_boxed_slice();
            if !self.image.read(start, physical, &mut page)? {
                return Ok(None);
            }
            if self.cached.len() >= MAX_CACHED {
                self.cached.clear();
            }
            self.cached.insert(physical, page);
        }
        Ok(Some(&self.cached[&physical]))
    }

    /// Returns the unsigned integer of `size` bytes, from 1 to 8, at an address.
    ///
    /// # Errors
    /// If the core lacks it.
    pub fn integer(&mut self, address: u64, size: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes[..size.min(8) as usize])?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Returns the pointer or `unsigned long` at an address.
    ///
    /// # Errors
    /// If the core lacks it.
    pub fn word(&mut self, address: u64) -> Result<u64> {
        self.integer(address, self.word_size())
    }

    /// Returns a member, with at most 8 bytes, of the structure at an address.
    ///
    /// # Errors
    /// If the core lacks it.
    pub fn field(&mut self, address: u64, field: Field) -> Result<u64> {
        let value = self.integer(address.wrapping_add(field.offset), field.size)?;
        Ok(field.bits.map_or(value, |(low, width)| (value >> low.min(63)) & ((1 << width.min(63)) - 1)))
    }

    /// Returns the text at an address, up to its end or `limit` bytes, without characters that a terminal interprets.
    ///
    /// # Errors
    /// If the core lacks it, or it is no text.
    pub fn text(&mut self, address: u64, limit: u64, place: &str) -> Result<String> {
        let mut text = String::new();
        for offset in 0..limit {
            match self.integer(address.wrapping_add(offset), 1)? as u8 {
                0 if offset > 0 => return Ok(text),
                byte @ 0x20..=0x7e => text.push(char::from(byte)),
                byte => {
                    let problem = format!("its name has the byte {byte:#04x}");
                    return Err(self.damaged(place, problem, "text"));
                }
            }
        }
        Ok(text)
    }

    /// Returns the addresses of the members of a list, which are linked by `struct list_head`. `head` is the address of
    /// the list, which is no member. A list of more than `limit` members is damaged.
    ///
    /// # Errors
    /// If a link is wrong.
    pub fn list(&mut self, head: u64, limit: u64, place: &str) -> Result<Vec<u64>> {
        let mut members = Vec::new();
        let (mut previous, mut member) = (head, self.word(head)?);
        loop {
            let back = self.word(member.wrapping_add(self.word_size()))?;
            if back != previous {
                let problem = format!("the member at {member:#x} has the predecessor {back:#x}");
                return Err(self.damaged(place, problem, format!("{previous:#x}")));
            }
            if member == head {
                return Ok(members);
            }
            if members.len() as u64 >= limit {
                return Err(self.damaged(place, format!("more than {limit} members"), "fewer"));
            }
            members.push(member);
            (previous, member) = (member, self.word(member)?);
        }
    }

    /// Creates the error for memory that contradicts itself.
    pub fn damaged(&self, place: &str, problem: impl Into<String>, expected: impl Into<String>) -> Error {
        Error::Damaged {
            name: self.image.name().into(),
            kernel: self.kernel.into(),
            place: place.into(),
            problem: problem.into(),
            expected: expected.into(),
        }
    }
}

/// Returns the pages that overlap a range of addresses, by number.
pub fn pages_of(range: Range<u64>) -> Range<u64> {
    range.start / PAGE..range.end.div_ceil(PAGE)
}

#[cfg(test)]
pub mod handmade {
    //! Memory that tests make by hand.

    use super::{AddressSpace, Image, Memory, PAGE};
    use kelf::DumpError;

    /// The address of the first byte.
    pub const START: u64 = 0xc000_0000;

    /// Pages from the physical address 0 on.
    pub struct Pages(Vec<u8>);

    /// Returns the memory of a kernel of 32 bits with these pages.
    pub fn memory(pages: &mut Pages) -> Memory<'_> {
        Memory::new(pages, AddressSpace { word: 4, linear: START, image: None }, "vmlinux")
    }

    impl Pages {
        /// Creates pages of zeros.
        pub fn new(count: u64) -> Pages {
            Pages(vec![0; (count * PAGE) as usize])
        }

        /// Writes words from an address on.
        pub fn write(&mut self, address: u64, words: &[u64]) {
            for (number, word) in words.iter().enumerate() {
                let at = (address - START) as usize + number * 4;
                self.0[at..at + 4].copy_from_slice(&(*word as u32).to_le_bytes());
            }
        }
    }

    impl Image for Pages {
        fn name(&self) -> &str {
            "pages"
        }

        fn read(&mut self, _: u64, physical: u64, bytes: &mut [u8]) -> Result<bool, DumpError> {
            let found = self.0.get(physical as usize..physical as usize + bytes.len());
            found.into_iter().for_each(|found| bytes.copy_from_slice(found));
            Ok(found.is_some())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::handmade::{Pages, START, memory};
    use super::*;

    #[test]
    fn list_with_a_wrong_link_is_damaged() {
        let (head, one, two) = (START, START + 0x10, START + 0x20);
        let list = |links: [[u64; 2]; 3], limit| {
            let mut pages = Pages::new(1);
            for (address, links) in [head, one, two].into_iter().zip(links) {
                pages.write(address, &links);
            }
            memory(&mut pages).list(head, limit, "the list").map_err(|error| error.to_string())
        };
        let whole = [[one, two], [two, head], [head, one]];
        assert_eq!(list(whole, 2), Ok(vec![one, two]));
        assert_eq!(list([[head, head], [0, 0], [0, 0]], 0), Ok(vec![]));
        assert!(list(whole, 1).unwrap_err().contains("the list: more than 1 members"));
        // A loop that does not lead back, and a link into memory that does not exist.
        let looped = list([[one, two], [two, head], [one, one]], 9).unwrap_err();
        assert!(looped.contains("has the predecessor 0xc0000000; expected 0xc0000020"), "{looped}");
        let outside = list([[one, two], [START + 0x9000, head], [0, 0]], 9).unwrap_err();
        assert!(outside.contains("memory at 0xc0009004"), "{outside}");
    }

    #[test]
    fn bits_and_mapped_pages_are_read() {
        let mut pages = Pages::new(3);
        pages.write(START + 2 * PAGE - 4, &[0x8040_0041, 7]);
        let mut memory = memory(&mut pages);
        let bits = |low, width| Field { offset: 4, size: 4, count: 1, bits: Some((low, width)) };
        let at = START + 2 * PAGE - 8;
        assert_eq!(memory.field(at, bits(0, 16)).unwrap(), 0x41);
        assert_eq!(memory.field(at, bits(16, 15)).unwrap(), 0x40);
        assert_eq!(memory.field(at, bits(31, 1)).unwrap(), 1);
        memory.map([Mapping { address: 0xf000_0000, physical: 2 * PAGE, size: PAGE }]);
        assert_eq!(memory.word(0xf000_0000).unwrap(), 7);
        assert!(memory.word(0xf000_1000).is_err());
    }
}
