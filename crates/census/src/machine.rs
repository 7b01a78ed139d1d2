//! The memory of running kernels, by machine.
//!
//! Formats of page tables: Intel SDM volume 3A, sections 4.3 (32-bit paging) and 4.5 (4-level and 5-level paging); ARM DDI
//! 0406C, section B3.5.1 (short descriptors). Addresses of x86-64 kernels: `Documentation/arch/x86/x86_64/mm.rst`.

use kelf::Machine;

use crate::memory::PAGE;

/// The rules of a machine's kernels.
#[derive(Debug)]
pub struct Rules {
    /// Bytes of an address, and of `unsigned long`.
    pub word: u64,
    /// The formats of page tables. If there are several, the kernel's variable `pgdir_shift` selects one.
    pub tables: &'static [Format],
    /// The kernel's own upper page table.
    pub upper_table: &'static str,
    /// Bytes of the upper table of a process.
    pub upper_size: u64,
    /// The order of a huge page of programs (`HPAGE_PMD_ORDER`).
    pub huge_order: u64,
    /// The mapping of the kernel's image, if the image is not in the linear mapping.
    pub image: Option<ImageMapping>,
    /// Number of address bits in a section of memory (`SECTION_SIZE_BITS`) with `CONFIG_SPARSEMEM_EXTREME`; `None` for
    /// kernels with `CONFIG_FLATMEM`.
    pub section_bits: Option<u64>,
    /// Whether the first MiB is reserved.
    pub reserves_low: bool,
    /// Whether the page allocator also got the `struct page` of frames between banks of memory (`free_unused_memmap` in
    /// `mm/memblock.c`).
    pub frees_map_between_banks: bool,
    /// Whether a randomized kernel moves within the linear mapping.
    pub slides: bool,
    /// The lowest address of the kernel.
    pub kernel_start: u64,
    /// Whether calls write their return address into memory, so that a recording shows the callers of allocations.
    pub writes_return_addresses: bool,
}

/// The mapping of a kernel's image beside the linear mapping.
#[derive(Debug)]
pub struct ImageMapping {
    /// The address of the mapping (`__START_KERNEL_map`), from where the variable `phys_base` counts.
    pub start: u64,
    /// Maximum number of bytes between the linked and the running address of the image (`KERNEL_IMAGE_SIZE`).
    pub size: u64,
    /// Bytes of a page of the mapping.
    pub page: u64,
    /// The address of the linear mapping, if the kernel has no variable `page_offset_base`.
    pub linear: u64,
}

/// The format of page tables.
#[derive(Debug)]
pub struct Format {
    /// Number of bits of an address that the tables translate. The other ones are equal to the highest of these.
    pub address_bits: u64,
    /// Bytes of an entry.
    pub entry: u64,
    /// The levels of tables, the uppermost first.
    pub levels: &'static [Level],
}

/// A level of page tables.
#[derive(Debug)]
pub struct Level {
    /// Number of address bits below the index of an entry.
    pub shift: u64,
    /// Bits of an entry that refers to a table: mask and value. `None` if the level has no such entry.
    pub table: Option<(u64, u64)>,
    /// The bits of such an entry that are the physical address of the table.
    pub table_address: u64,
    /// Bits of an entry that maps memory: mask and value.
    pub page: Option<(u64, u64)>,
    /// The bits of such an entry that are the physical address of the memory.
    pub page_address: u64,
}

const I386_TABLES: [Format; 1] = [Format {
    address_bits: 32,
    entry: 4,
    levels: &[
        Level {
            shift: 22,
            table: Some((0x81, 0x01)),
            table_address: 0xffff_f000,
            page: Some((0x81, 0x81)),
            page_address: 0xffc0_0000,
        },
        Level { shift: 12, table: None, table_address: 0, page: Some((0x1, 0x1)), page_address: 0xffff_f000 },
    ],
}];

const I386: Rules = Rules {
    word: 4,
    tables: &I386_TABLES,
    upper_table: "swapper_pg_dir",
    upper_size: PAGE,
    huge_order: 10,
    image: None,
    section_bits: None,
    reserves_low: true,
    frees_map_between_banks: false,
    slides: true,
    kernel_start: 0xc000_0000,
    writes_return_addresses: true,
};

const ARM_TABLES: [Format; 1] = [Format {
    address_bits: 32,
    entry: 4,
    levels: &[
        Level {
            shift: 20,
            table: Some((0x3, 0x1)),
            table_address: 0xffff_fc00,
            page: Some((0x2, 0x2)),
            page_address: 0xfff0_0000,
        },
        Level { shift: 12, table: None, table_address: 0, page: Some((0x2, 0x2)), page_address: 0xffff_f000 },
    ],
}];

const ARM: Rules = Rules {
    word: 4,
    tables: &ARM_TABLES,
    upper_table: "swapper_pg_dir",
    // 4,096 entries of 4 bytes.
    upper_size: 4 * PAGE,
    // Tables of this format have no huge pages of programs.
    huge_order: 0,
    image: None,
    section_bits: None,
    reserves_low: false,
    frees_map_between_banks: true,
    slides: false,
    kernel_start: 0xc000_0000,
    writes_return_addresses: false,
};

/// The levels of x86-64. With four levels, the first one is not used.
const X86_64_LEVELS: [Level; 5] = [
    x86_64_level(48, false),
    x86_64_level(39, false),
    x86_64_level(30, true),
    x86_64_level(21, true),
    // Bit 7 selects a type of memory.
    Level {
        shift: 12,
        table: None,
        table_address: 0,
        page: Some((0x1, 0x1)),
        page_address: 0x000f_ffff_ffff_f000,
    },
];

/// Returns the level of x86-64 above the lowest one whose entries are for `1 << shift` bytes. Bit 0 of an entry is set if it
/// is used, and bit 7 if it maps memory.
const fn x86_64_level(shift: u64, has_large_pages: bool) -> Level {
    Level {
        shift,
        table: Some((0x81, 0x01)),
        table_address: 0x000f_ffff_ffff_f000,
        page: if has_large_pages { Some((0x81, 0x81)) } else { None },
        page_address: 0x000f_ffff_ffff_f000 & !((1 << shift) - 1),
    }
}

const X86_64_TABLES: [Format; 2] = [
    Format { address_bits: 48, entry: 8, levels: X86_64_LEVELS.split_at(1).1 },
    Format { address_bits: 57, entry: 8, levels: &X86_64_LEVELS },
];

const X86_64: Rules = Rules {
    word: 8,
    tables: &X86_64_TABLES,
    upper_table: "init_top_pgt",
    upper_size: PAGE,
    huge_order: 9,
    image: Some(ImageMapping {
        start: 0xffff_ffff_8000_0000,
        size: 1 << 30,
        page: 1 << 21,
        linear: 0xffff_8880_0000_0000,
    }),
    section_bits: Some(27),
    reserves_low: true,
    frees_map_between_banks: false,
    slides: false,
    kernel_start: 0xff00_0000_0000_0000,
    writes_return_addresses: true,
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
            Machine::X86_64 => Some(&X86_64),
            Machine::Aarch64 => None,
        }
    }
}
