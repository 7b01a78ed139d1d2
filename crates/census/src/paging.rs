//! The kernel's own page tables: the memory that they map at other addresses than the linear mapping and the mapping of the
//! kernel's image do (`vmalloc`), and the tables.

use rustc_hash::FxHashSet;

use crate::error::Result;
use crate::machine::Format;
use crate::memory::{Mapping, Memory, PAGE};

/// The content of page tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mappings {
    /// The memory that is mapped elsewhere, in the order of the tables.
    pub memory: Vec<Mapping>,
    /// The physical addresses of the pages with tables of the lower levels.
    pub tables: Vec<u64>,
}

/// Reads the page tables whose upper table is at the virtual address `table`.
///
/// # Errors
/// If the core lacks a table.
pub fn read(memory: &mut Memory<'_>, format: &Format, table: u64) -> Result<Mappings> {
    let mut walk = Walk { format, seen: FxHashSet::default(), found: Mappings::default() };
    walk.read_table(memory, 0, table, 0)?;
    let mut found = walk.found;
    found.tables.sort_unstable();
    found.tables.dedup();
    Ok(found)
}

/// The walk over the tables.
struct Walk<'a> {
    format: &'a Format,
    /// The tables that were read, by level and physical address. Some areas share tables, and damaged tables may refer to
    /// themselves.
    seen: FxHashSet<(usize, u64)>,
    found: Mappings,
}

impl Walk<'_> {
    /// Reads the table at a virtual address. Its first entry is for the address `start`.
    fn read_table(&mut self, memory: &mut Memory<'_>, level: usize, table: u64, start: u64) -> Result<()> {
        let rules = &self.format.levels[level];
        let bits = match level.checked_sub(1) {
            Some(upper) => self.format.levels[upper].shift,
            None => self.format.address_bits,
        };
        let is =
            |entry: u64, value: Option<(u64, u64)>| value.is_some_and(|(mask, value)| entry & mask == value);
        for index in 0..1 << (bits - rules.shift) {
            let entry = memory.integer(table.wrapping_add(index * self.format.entry), self.format.entry)?;
            let address = start | index << rules.shift;
            if is(entry, rules.table) {
                let lower = entry & rules.table_address;
                self.found.tables.push(lower & !(PAGE - 1));
                if self.seen.insert((level, lower)) {
                    self.read_table(memory, level + 1, memory.linear(lower), address)?;
                }
            } else if is(entry, rules.page) {
                let physical = entry & rules.page_address;
                self.add(
                    memory,
                    Mapping { address: self.canonical(address), physical, size: 1 << rules.shift },
                );
            }
        }
        Ok(())
    }

    /// Returns an address with its highest bits equal to the highest translated one.
    fn canonical(&self, address: u64) -> u64 {
        match self.format.address_bits {
            bits if bits > 32 && address >> (bits - 1) != 0 => address | u64::MAX << bits,
            _ => address,
        }
    }

    /// Adds a mapping, unless the address always means that memory.
    fn add(&mut self, memory: &Memory<'_>, mapping: Mapping) {
        if memory.space().physical(mapping.address) == mapping.physical {
            return;
        }
        match self.found.memory.last_mut() {
            Some(last)
                if last.address.wrapping_add(last.size) == mapping.address
                    && last.physical + last.size == mapping.physical =>
            {
                last.size += mapping.size;
            }
            _ => self.found.memory.push(mapping),
        }
    }
}

#[cfg(test)]
mod tests {
    use kelf::Machine;

    use super::*;
    use crate::machine::Rules;
    use crate::memory::AddressSpace;
    use crate::memory::handmade::{self, Pages, START};

    fn mapping(address: u64, physical: u64, size: u64) -> Mapping {
        Mapping { address, physical, size }
    }

    #[test]
    fn mappings_of_32_bit_formats_are_found() {
        // Page 4 has the lower table. One large page is part of the linear mapping.
        let read = |machine: Machine, upper: &[(u64, u64)], lower: u64, entries: &[u64]| {
            let mut pages = Pages::new(5);
            upper.iter().for_each(|&(index, entry)| pages.write(START + index * 4, &[entry]));
            pages.write(START + lower, entries);
            let format = &Rules::of(machine).unwrap().tables[0];
            super::read(&mut handmade::memory(&mut pages), format, START).unwrap()
        };
        let upper = [(768, 0x0000_00e3), (1020, 0x0080_00e3), (1021, 0x4063)];
        assert_eq!(
            read(Machine::I386, &upper, 0x4000, &[0x2063, 0, 0x3000, 0x1063, 0x2063]),
            Mappings {
                memory: vec![
                    mapping(0xff00_0000, 0x80_0000, 4 << 20),
                    mapping(0xff40_0000, 0x2000, PAGE),
                    mapping(0xff40_3000, 0x1000, 2 * PAGE),
                ],
                tables: vec![0x4000]
            }
        );
        let upper = [(0xc00, 0x0000_040e), (0xfef, 0x0800_040e), (0xff0, 0x4401)];
        assert_eq!(
            read(Machine::Arm, &upper, 0x4400, &[0x2453, 0, 0x3000]),
            Mappings {
                memory: vec![mapping(0xfef0_0000, 0x800_0000, 1 << 20), mapping(0xff00_0000, 0x2000, PAGE)],
                tables: vec![0x4000]
            }
        );
    }

    const IMAGE: u64 = 0xffff_ffff_8000_0000;

    /// Reads the tables of x86-64 with these entries: page, index, entry. Page 0 is the upper table. The linear mapping is
    /// at the address `linear`, and the kernel's image at [`IMAGE`] is mapped from 16 MiB on.
    fn read_64(number: usize, linear: u64, entries: &[(u64, u64, u64)]) -> Mappings {
        let mut pages = Pages::new(8);
        for &(page, index, entry) in entries {
            pages.write(START + page * PAGE + index * 8, &[entry & 0xffff_ffff, entry >> 32]);
        }
        let space = AddressSpace { word: 8, linear, image: Some(mapping(IMAGE, 16 << 20, 1 << 30)) };
        let mut memory = Memory::new(&mut pages, space, "vmlinux");
        read(&mut memory, &Rules::of(Machine::X86_64).unwrap().tables[number], linear).unwrap()
    }

    #[test]
    fn four_levels_map_pages_of_three_sizes() {
        let linear = 0xffff_8880_0000_0000;
        let found = read_64(
            0,
            linear,
            &[
                // The linear mapping, by pages of 1 GiB.
                (0, 273, 0x1067),
                (1, 0, 0xe3),
                (1, 1, 0x4000_00e3),
                // vmalloc: a small page that may not execute, and its neighbour, then a large page.
                (0, 402, 0x2067),
                (2, 0, 0x3067),
                (2, 1, 1 << 63 | 0x8000_00e3),
                (3, 0, 0x4067),
                (3, 1, 1 << 63 | 0x0060_01e3),
                (4, 510, 1 << 63 | 0x7163),
                (4, 511, 1 << 63 | 0x8163),
                // Not present.
                (4, 509, 0x9062),
                // The kernel's image, and a page in its area that is another one. Bit 7 is no large page here.
                (0, 511, 0x5067),
                (5, 510, 0x6067),
                (6, 0, 0x0100_00e3),
                (6, 511, 0x7067),
                (7, 3, 0x5_55e3),
            ],
        );
        let vmalloc = 0xffff_c900_0000_0000;
        let expected = [
            mapping(vmalloc + 510 * PAGE, 0x7000, 2 * PAGE),
            mapping(vmalloc + (2 << 20), 0x60_0000, 2 << 20),
            mapping(vmalloc + (1 << 30), 0x8000_0000, 1 << 30),
            mapping(IMAGE + (511 << 21) + 3 * PAGE, 0x5_5000, PAGE),
        ];
        assert_eq!(found.memory, expected);
        assert_eq!(found.tables, [0x1000, 0x2000, 0x3000, 0x4000, 0x5000, 0x6000, 0x7000]);
    }

    #[test]
    fn five_levels_reach_other_addresses() {
        let linear = 0xff11_0000_0000_0000;
        let entries = [(0, 420, 0x1067), (1, 1, 0x2067), (2, 0, 0x3067), (3, 0, 0x20_00e3)];
        let found = read_64(1, linear, &entries);
        assert_eq!(found.memory, [mapping((420 << 48 | 1 << 39) | u64::MAX << 57, 0x20_0000, 2 << 20)]);
    }

    #[test]
    fn table_that_refers_to_itself_ends_the_walk() {
        let entries = [(0, 273, 0x67), (0, 300, 0x67)];
        let found = read_64(0, 0xffff_8880_0000_0000, &entries);
        assert_eq!(found.tables, [0]);
        assert!(found.memory.len() < 10, "{found:?}");
    }
}
