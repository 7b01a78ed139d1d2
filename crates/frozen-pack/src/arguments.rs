//! The command line.

use std::ops::Range;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use frozen_pack::codec::code::InstructionSet;
use frozen_pack::codec::format::PAGE_SIZES;
use frozen_pack::input::SECTIONS;
use kplan::Mechanism;

/// Plans which code and read-only data of a kernel are packed until their first use, and packs them page by page
///
/// The freestanding decoder in kdecomp-rt/ can decode every page on its own, in few instructions. The coder models the
/// instructions of i386, x86-64 and 32-bit ARM, and therefore packs them better than general coders do.
#[derive(Parser, Debug)]
#[command(version, after_help = EXAMPLES)]
pub struct Arguments {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Add the code and data of a kernel that freeze to a plan
    ///
    /// Reads the plan with its section `coverage` (see `coverage --help`) from a pipe, and prints it with a section
    /// `frozen` for `kshrink-spec`: code that did not run, and read-only data that was not read (or that no other code
    /// names, if the traces do not record reads). Code and data that must stay in memory to handle a page fault are
    /// pinned. A table on standard error lists the reasons, and the cost.
    Plan {
        /// The kernel, in the directory where it was built
        vmlinux: PathBuf,

        /// The mechanism that thaws frozen code and data
        #[arg(long, value_enum, default_value_t = HowItComesBack::Page)]
        mechanism: HowItComesBack,

        /// Freeze the regions of at least this many bytes, instead of the regions where freezing saves memory
        #[arg(long, value_name = "BYTES")]
        minimum: Option<u32>,

        /// Freeze all that may freeze, even if it ran, to test thawing
        #[arg(long)]
        everything: bool,

        /// Also freeze code and data that are used only while the kernel boots
        ///
        /// The section `coverage` of PLAN lists the code that ran afterwards (see `coverage qemu --after-boot`). Code
        /// that ran only during boot gets pages of its own, which the boot image also contains unpacked: less memory
        /// for a larger image.
        #[arg(long, value_name = "PLAN", conflicts_with = "everything")]
        after_boot: Option<PathBuf>,

        /// Do not freeze this function or variable; repeatable
        #[arg(long, value_name = "SYMBOL")]
        pin: Vec<String>,

        /// Treat this function as one that did not run; repeatable
        #[arg(long, value_name = "SYMBOL", conflicts_with = "everything")]
        assume_cold: Vec<String>,

        /// Print no plan, but the reason why this function or variable freezes or does not
        #[arg(long, value_name = "SYMBOL")]
        why: Option<String>,

        /// Print no plan, but all pinned code: bytes, cold bytes among them, function, reason, separated by tabs
        #[arg(long, conflicts_with = "why")]
        pinned: bool,

        /// Write to FILE instead of standard output
        #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true)]
        output: PathBuf,
    },

    /// Compare coders on the pages of a kernel
    ///
    /// Code and data are cut into pages, and each page is packed on its own. `total` and `ratio` include all that is
    /// needed to decode any one page: the packed pages, shared tables or a shared dictionary, four bytes a page for an
    /// index, and the size of our own decoder.
    Bench {
        /// The linked kernel; `-` is standard input
        vmlinux: PathBuf,

        #[command(flatten)]
        pages: Pages,

        /// The sections, separated by commas
        #[arg(long, value_name = "SECTION", value_delimiter = ',', default_values = SECTIONS)]
        section: Vec<String>,

        /// The output format
        #[arg(short, long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },

    /// Pack sections of a linked kernel, or a range of any file
    ///
    /// The packed bytes are unpacked again and compared before anything is written. docs/frozen-format.md describes the
    /// format.
    Pack {
        /// The file; `-` is standard input
        file: PathBuf,

        #[command(flatten)]
        pages: Pages,

        /// The sections, separated by commas
        #[arg(long, value_name = "SECTION", value_delimiter = ',', default_values = SECTIONS)]
        section: Vec<String>,

        /// Pack these bytes of the file instead, which need not be an ELF file
        #[arg(long, value_name = "START-END", value_parser = range, conflicts_with = "section")]
        range: Option<Range<usize>>,

        /// The address at which the range runs or is read
        #[arg(long, value_name = "ADDRESS", value_parser = address, default_value = "0", requires = "range")]
        address: u32,

        /// The range is code
        #[arg(long, value_enum, value_name = "SET", requires = "range", num_args = 0..=1, require_equals = true, default_missing_value = "i386")]
        code: Option<Set>,

        /// Write to FILE instead of standard output
        #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true)]
        output: PathBuf,
    },

    /// Print the unpacked sections, one after the other
    Unpack {
        /// The packed file; `-` is standard input
        file: PathBuf,

        /// Print only this page, counted from 0
        #[arg(long, value_name = "N")]
        page: Option<u32>,

        /// Write to FILE instead of standard output
        #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true)]
        output: PathBuf,
    },

    /// Print the frozen parts of a kernel, by page and by function and variable
    ///
    /// The packed bytes of a function or variable are its share of its packed pages, without the tables that all pages
    /// share.
    Show {
        /// The kernel, as linked by kshrink-spec; `-` is standard input
        vmlinux: PathBuf,

        /// The output format
        #[arg(short, long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
}

/// The size of pages.
#[derive(Args, Debug)]
pub struct Pages {
    /// Size of a page in bytes, a power of two from 256 to 65536
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = page_size)]
    pub page_size: u32,
}

/// The encoding of code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Set {
    /// i386
    I386,
    /// x86-64
    #[value(name = "x86-64")]
    X86_64,
    /// Thumb-2 code of 32-bit ARM
    Thumb,
    /// ARM code of 32-bit ARM
    Arm,
}

impl From<Set> for InstructionSet {
    fn from(set: Set) -> InstructionSet {
        match set {
            Set::I386 => InstructionSet::I386,
            Set::X86_64 => InstructionSet::X86_64,
            Set::Thumb => InstructionSet::Thumb,
            Set::Arm => InstructionSet::Arm,
        }
    }
}

/// The mechanism that thaws frozen code and data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum HowItComesBack {
    /// Page faults: code and read-only data in absent pages
    Page,
    /// Stubs: code in regions with a single entry, without page faults
    Stub,
}

impl From<HowItComesBack> for Mechanism {
    fn from(how: HowItComesBack) -> Mechanism {
        match how {
            HowItComesBack::Page => Mechanism::Page,
            HowItComesBack::Stub => Mechanism::Stub,
        }
    }
}

/// The output of `bench` and `show`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// Human-readable tables
    Text,
    /// JSON: an array with an object for each row, or an object with the pages and the symbols
    Json,
}

fn page_size(text: &str) -> Result<u32, String> {
    let size = number(text).and_then(|size| u32::try_from(size).ok());
    size.filter(|size| size.is_power_of_two() && PAGE_SIZES.contains(size))
        .ok_or_else(|| "expected a power of two from 256 to 65536, such as 4096".to_owned())
}

fn address(text: &str) -> Result<u32, String> {
    let address = number(text).and_then(|address| u32::try_from(address).ok());
    address.ok_or_else(|| "expected an address of 32 bits, such as 0xc1000000".to_owned())
}

fn range(text: &str) -> Result<Range<usize>, String> {
    let parts = text.split_once('-').and_then(|(start, end)| Some(number(start)?..number(end)?));
    parts
        .filter(|range| range.start < range.end)
        .ok_or_else(|| "expected two offsets, the lower one first, such as 0x1000-0x3000".to_owned())
}

fn number(text: &str) -> Option<usize> {
    match text.strip_prefix("0x") {
        Some(digits) => usize::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

const EXAMPLES: &str = "\
Examples:
  coverage qemu build/vmlinux trace | frozen-pack plan build/vmlinux | kshrink-spec build/vmlinux -o out
      freeze what did not run
  frozen-pack plan build/vmlinux --why kfree < plan.json
      print why a function freezes or does not
  frozen-pack bench vmlinux
      compare coders on .text and .rodata
  frozen-pack pack vmlinux --section .text,.rodata -o text.frozen
      pack two sections
  frozen-pack unpack text.frozen | cmp - <(objcopy -O binary -j .text vmlinux /dev/stdout)
      compare (with --section .text alone)
  frozen-pack pack dump.bin --range 0x1000-0x5000 --address 0xc1000000 --code -o dump.frozen
      pack code outside of an ELF file

Exit status:
  0  success
  1  the job failed: a file could not be read or written; nothing was written
  2  usage error or bad input";
