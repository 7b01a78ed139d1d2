//! The memory of running kernels, by machine.
//!
//! Formats of page tables: Intel SDM volume 3A, section 4.3 (32-bit paging); ARM DDI 0406C, section B3.5.1 (short
//! descriptors).

use kelf::Machine;

use crate::memory::PAGE;

/// The rules of a machine's kernels.
#[derive(Debug)]
pub struct Rules {
    /// The format of page tables.
    pub tables: Format,
    /// Bytes of the upper table of a process.
    pub upper_size: u64,
    /// Whether the first MiB is reserved.
    pub reserves_low: bool,
    /// Whether the page allocator also got the `struct page` of frames between banks of memory (`free_unused_memmap` in
    /// `mm/memblock.c`).
    pub frees_map_between_banks: bool,
    /// Whether a randomized kernel moves within the linear mapping.
    pub slides: bool,
    /// Whether calls write their return address into memory, so that a recording shows the callers of allocations.
    pub writes_return_addresses: bool,
}

/// The format of page tables of two levels.
#[derive(Debug)]
pub struct Format {
    /// The number of address bits below an entry of the upper level.
    pub upper_shift: u64,
    /// Bits of an entry of the upper level that refers to a table: mask and value.
    pub is_table: (u64, u64),
    /// The bits of an upper entry that are the address of the table.
    pub table_mask: u64,
    /// Number of entries of a lower table.
    pub lower_count: u64,
    /// The bits of a lower entry of which one is set if it maps a page.
    pub is_page: u64,
}

const I386: Rules = Rules {
    tables: Format {
        upper_shift: 22,
        is_table: (0x81, 0x01),
        table_mask: !0xfff,
        lower_count: 1024,
        is_page: 0x1,
    },
    upper_size: PAGE,
    reserves_low: true,
    frees_map_between_banks: false,
    slides: true,
    writes_return_addresses: true,
};

const ARM: Rules = Rules {
    tables: Format {
        upper_shift: 20,
        is_table: (0x3, 0x1),
        table_mask: !0x3ff,
        lower_count: 256,
        is_page: 0x2,
    },
    // 4,096 entries of 4 bytes.
    upper_size: 4 * PAGE,
    reserves_low: false,
    frees_map_between_banks: true,
    slides: false,
    writes_return_addresses: false,
};

impl Default for &'static Rules {
    fn default() -> &'static Rules {
        &I386
    }
}

impl Rules {
    /// Returns the rules of a machine's kernels; `None` if it is not supported.
    pub fn of(machine: Machine) -> Option<&'static Rules> {
        match machine {
            Machine::I386 => Some(&I386),
            Machine::Arm => Some(&ARM),
            Machine::X86_64 | Machine::Aarch64 => None,
        }
    }
}
