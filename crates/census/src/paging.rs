//! The kernel's own page tables: the pages that are mapped outside of the linear mapping (`vmalloc`), and the tables.

use crate::error::Result;
use crate::machine::Format;
use crate::memory::{Memory, PAGE};

/// What the page tables map above the linear mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mappings {
    /// The number of each virtual page, and the physical address that it maps.
    pub pages: Vec<(u64, u64)>,
    /// The physical addresses of the pages with tables of the lower level.
    pub tables: Vec<u64>,
}

/// Reads the mappings from the virtual address `start` on, from the table at the virtual address `table`.
///
/// # Errors
/// If the core lacks a table.
pub fn read(memory: &mut Memory<'_>, format: &Format, table: u64, start: u64) -> Result<Mappings> {
    let mut mappings = Mappings::default();
    for index in start >> format.upper_shift..1 << (32 - format.upper_shift) {
        let entry = memory.word(table.wrapping_add(index * 4))?;
        let (mask, value) = format.is_table;
        if entry & mask != value {
            continue;
        }
        let lower = entry & format.table_mask;
        mappings.tables.push(lower & !(PAGE - 1));
        let lower = memory.linear(lower);
        for number in 0..format.lower_count {
            let address = (index << format.upper_shift) + number * PAGE;
            let entry = memory.word(lower.wrapping_add(number * 4))?;
            if address >= start && entry & format.is_page != 0 {
                mappings.pages.push((address / PAGE, entry & !(PAGE - 1)));
            }
        }
    }
    mappings.tables.sort_unstable();
    mappings.tables.dedup();
    Ok(mappings)
}

#[cfg(test)]
mod tests {
    use kelf::Machine;

    use super::*;
    use crate::machine::Rules;
    use crate::memory::handmade::{Pages, START};

    #[test]
    fn small_pages_of_both_formats_are_found() {
        // Page 4 has the lower table; the upper one also has a large page, which is part of the linear mapping.
        let mut pages = Pages::new(5);
        pages.write(START + 1020 * 4, &[0x0000_00e3, 0x4063]);
        pages.write(START + 0x4000, &[0x2063, 0, 0x3000]);
        let mut memory = Memory::new(&mut pages, START, "vmlinux");
        let found = read(&mut memory, &Rules::of(Machine::I386).unwrap().tables, START, 0xff00_0000).unwrap();
        assert_eq!(found, Mappings { pages: vec![(0xff40_0000 / PAGE, 0x2000)], tables: vec![0x4000] });

        let mut pages = Pages::new(5);
        pages.write(START + 0xff0 * 4, &[0x0000_040e, 0x4401]);
        pages.write(START + 0x4400, &[0x2453, 0, 0x3000]);
        let mut memory = Memory::new(&mut pages, START, "vmlinux");
        let found = read(&mut memory, &Rules::of(Machine::Arm).unwrap().tables, START, 0xff00_0000).unwrap();
        assert_eq!(found, Mappings { pages: vec![(0xff10_0000 / PAGE, 0x2000)], tables: vec![0x4000] });
    }
}
