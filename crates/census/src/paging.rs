//! The kernel's own page tables: the pages that are mapped outside of the linear mapping (`vmalloc`), and the tables.
//!
//! Formats: Intel SDM volume 3A, section 4.3 (32-bit paging); ARM DDI 0406C, section B3.5.1 (short descriptors).

use kelf::Machine;

use crate::error::Result;
use crate::memory::{Memory, PAGE};

/// What the page tables map above the linear mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mappings {
    /// The number of each virtual page, and the physical address that it maps.
    pub pages: Vec<(u64, u64)>,
    /// The physical addresses of the pages with tables of the lower level.
    pub tables: Vec<u64>,
}

/// The format of page tables of two levels.
struct Format {
    /// The number of address bits below an entry of the upper level.
    upper_shift: u64,
    /// Bits of an entry of the upper level that refers to a table: mask and value.
    is_table: (u64, u64),
    /// The bits of an upper entry that are the address of the table.
    table_mask: u64,
    /// Number of entries of a lower table.
    lower_count: u64,
    /// The bits of a lower entry of which one is set if it maps a page.
    is_page: u64,
}

const I386: Format =
    Format { upper_shift: 22, is_table: (0x81, 0x01), table_mask: !0xfff, lower_count: 1024, is_page: 0x1 };
const ARM: Format =
    Format { upper_shift: 20, is_table: (0x3, 0x1), table_mask: !0x3ff, lower_count: 256, is_page: 0x2 };

/// Reads the mappings from the virtual address `start` on, from the table at the virtual address `table`.
///
/// # Errors
/// If the core lacks a table.
pub fn read(memory: &mut Memory<'_>, machine: Machine, table: u64, start: u64) -> Result<Mappings> {
    let format = if machine == Machine::I386 { I386 } else { ARM };
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
    use super::*;
    use crate::memory::handmade::{Pages, START};

    #[test]
    fn small_pages_of_both_formats_are_found() {
        // Page 4 has the lower table; the upper one also has a large page, which is part of the linear mapping.
        let mut pages = Pages::new(5);
        pages.write(START + 1020 * 4, &[0x0000_00e3, 0x4063]);
        pages.write(START + 0x4000, &[0x2063, 0, 0x3000]);
        let mut memory = Memory::new(&mut pages, START, "vmlinux");
        let found = read(&mut memory, Machine::I386, START, 0xff00_0000).unwrap();
        assert_eq!(found, Mappings { pages: vec![(0xff40_0000 / PAGE, 0x2000)], tables: vec![0x4000] });

        let mut pages = Pages::new(5);
        pages.write(START + 0xff0 * 4, &[0x0000_040e, 0x4401]);
        pages.write(START + 0x4400, &[0x2453, 0, 0x3000]);
        let mut memory = Memory::new(&mut pages, START, "vmlinux");
        let found = read(&mut memory, Machine::Arm, START, 0xff00_0000).unwrap();
        assert_eq!(found, Mappings { pages: vec![(0xff10_0000 / PAGE, 0x2000)], tables: vec![0x4000] });
    }
}
