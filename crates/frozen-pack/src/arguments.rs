//! The command line.

use std::ops::Range;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use frozen_pack::code::InstructionSet;
use frozen_pack::format::PAGE_SIZES;
use frozen_pack::input::SECTIONS;
use kplan::Mechanism;

/// Plans which code and read-only data of a kernel stay packed until they are used, and packs them page by page
///
/// Every page can be decoded on its own, in few instructions, by the freestanding decoder in kdecomp-rt/. The coder
/// models the instructions of i386 and 32-bit ARM, and therefore packs them better than general coders do.
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
    /// Add to a plan what of a kernel freezes
    ///
    /// Reads the plan from a pipe, with what ran in its section `coverage` (see `coverage --help`), and prints it with a
    /// section `frozen` for `kshrink-spec`: code that did not run, and read-only data that was not read or, where the
    /// traces do not tell, that no other code names. What must
    /// be in memory anyway, because a page fault could not be handled without it, is pinned. A table on standard error
    /// says why, and what that costs.
    Plan {
        /// The kernel, in the directory where it was built
        vmlinux: PathBuf,

        /// How what is frozen comes back
        #[arg(long, value_enum, default_value_t = HowItComesBack::Page)]
        mechanism: HowItComesBack,

        /// Freeze the regions that are not smaller than this, instead of those that are worth it
        #[arg(long, value_name = "BYTES")]
        minimum: Option<u32>,

        /// Freeze all that may freeze, whatever ran: to test that everything can come back
        #[arg(long)]
        everything: bool,

        /// Freeze as well what is used only while the kernel boots
        ///
        /// PLAN says in its section `coverage` what ran afterwards (see `coverage qemu --after-boot`). The rest of the
        /// code that ran is in pages of its own, which the boot image also has unpacked: less memory for a larger
        /// image.
        #[arg(long, value_name = "PLAN", conflicts_with = "everything")]
        after_boot: Option<PathBuf>,

        /// Do not freeze this function or variable; repeatable
        #[arg(long, value_name = "SYMBOL")]
        pin: Vec<String>,

        /// Take this function for one that did not run; repeatable
        #[arg(long, value_name = "SYMBOL", conflicts_with = "everything")]
        assume_cold: Vec<String>,

        /// Print no plan, but why this function or variable freezes or does not
        #[arg(long, value_name = "SYMBOL")]
        why: Option<String>,

        /// Print no plan, but all code that is pinned: bytes, how many of them are cold, function, why; tabs between
        #[arg(long, conflicts_with = "why")]
        pinned: bool,

        /// Write to FILE instead of standard output
        #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true)]
        output: PathBuf,
    },

    /// Print what coders make of the pages of a kernel
    ///
    /// Code and data are cut into pages, and each page is packed on its own. `total` and `ratio` count all that
    /// decoding any one page takes: the packed pages, tables or a dictionary that they share, four bytes a page for an
    /// index, and the decoder where it is ours.
    Bench {
        /// The linked kernel; `-` is standard input
        vmlinux: PathBuf,

        #[command(flatten)]
        pages: Pages,

        /// The sections, separated by commas
        #[arg(long, value_name = "SECTION", value_delimiter = ',', default_values = SECTIONS)]
        section: Vec<String>,

        /// What to print
        #[arg(short, long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },

    /// Pack sections of a linked kernel, or a range of any file
    ///
    /// What is packed is unpacked again and compared before anything is written. The format is described in
    /// docs/frozen-format.md.
    Pack {
        /// The file; `-` is standard input
        file: PathBuf,

        #[command(flatten)]
        pages: Pages,

        /// The sections, separated by commas
        #[arg(long, value_name = "SECTION", value_delimiter = ',', default_values = SECTIONS)]
        section: Vec<String>,

        /// Pack these bytes of the file instead, which need be no ELF file
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

    /// Print what was packed, one section behind the other
    Unpack {
        /// The packed file; `-` is standard input
        file: PathBuf,

        /// Print this page alone, counted from 0
        #[arg(long, value_name = "N")]
        page: Option<u32>,

        /// Write to FILE instead of standard output
        #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true)]
        output: PathBuf,
    },

    /// Print what of a kernel is frozen, by page and by function and variable
    ///
    /// The packed bytes of a function or variable are its share of those of its pages, without the tables that all pages
    /// share.
    Show {
        /// The kernel, as kshrink-spec has linked it; `-` is standard input
        vmlinux: PathBuf,

        /// What to print
        #[arg(short, long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
}

/// How the pages are cut.
#[derive(Args, Debug)]
pub struct Pages {
    /// Size of a page in bytes, a power of two from 256 to 65536
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = page_size)]
    pub page_size: u32,
}

/// How code is encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Set {
    /// i386
    I386,
    /// Thumb-2 code of 32-bit ARM
    Thumb,
    /// ARM code of 32-bit ARM
    Arm,
}

impl From<Set> for InstructionSet {
    fn from(set: Set) -> InstructionSet {
        match set {
            Set::I386 => InstructionSet::I386,
            Set::Thumb => InstructionSet::Thumb,
            Set::Arm => InstructionSet::Arm,
        }
    }
}

/// How what is frozen comes back when it is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum HowItComesBack {
    /// By page faults: code and read-only data in pages that are absent
    Page,
    /// Through stubs: code in regions that are entered at one place each, without page faults
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

/// What `bench` and `show` print.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// Tables for people
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
      why a function freezes or does not
  frozen-pack bench vmlinux
      what each coder makes of .text and .rodata
  frozen-pack pack vmlinux --section .text,.rodata -o text.frozen
      pack two sections
  frozen-pack unpack text.frozen | cmp - <(objcopy -O binary -j .text vmlinux /dev/stdout)
      compare (with --section .text alone)
  frozen-pack pack dump.bin --range 0x1000-0x5000 --address 0xc1000000 --code -o dump.frozen
      pack code that is in no ELF file

Exit status:
  0  success
  1  the job failed: a file could not be read or written; nothing was written
  2  usage error or bad input";
