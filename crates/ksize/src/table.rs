//! The size table: the columns of Table I of Chanet et al. 2007, "Automated reduction of the memory
//! footprint of the Linux kernel", for one linked kernel or program.
//!
//! The figures are sums of sections, not of segments or files: padding between sections would hide the gain of a
//! rewriter until it crosses a page. Everything that takes memory is text if it is executable and data otherwise;
//! `.brk` is freed at boot and appears nowhere.
//!
//! Memory between `__init_begin` and `__init_end` is freed after boot. Sections are compared with these two by *load*
//! address: on x86-64, `.data..percpu` runs at address 0 but is loaded, and freed, among the init sections. A section
//! across a boundary is split there.
//!
//! A device has pages, not bytes: [`SizeTable::memory`] is what the booted kernel keeps of them ([`KernelMemory`]).

use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use goblin::elf::Sym;
use goblin::elf::section_header::SHF_EXECINSTR;
use kelf::{ElfFile, Error, Machine, Result, Segments, read_linked};
use serde::{Deserialize, Serialize};

use crate::frozen::FrozenSizes;
use crate::memory::{KernelMemory, overlap, takes_memory};

/// Sizes of one linked kernel or program, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeTable {
    /// The file.
    pub path: PathBuf,
    /// The pages that the booted kernel keeps; `None` for a user program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<KernelMemory>,
    /// Executable sections that remain after boot.
    pub text: u64,
    /// Other sections that remain after boot: read-only, writable and zero-initialised.
    pub data: u64,
    /// The frozen parts, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<FrozenSizes>,
    /// Executable sections that are freed after boot.
    pub init_text: u64,
    /// Other sections that are freed after boot.
    pub init_data: u64,
    /// The content to load: all sections with content.
    pub image: u64,
    /// The same content through `gzip -9`.
    pub compressed_image: u64,
    /// The boot image of the kernel build (`bzImage`, `zImage`, `Image.gz`), if it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_image: Option<u64>,
    /// Memory taken during boot: `text + data + init_text + init_data`.
    pub init_footprint: u64,
    /// Memory taken after boot: `text + data`.
    pub footprint: u64,
}

impl SizeTable {
    /// Measures the linked kernel or program at `path`. A program has no init sections.
    ///
    /// # Errors
    /// [`Error::Read`] if it cannot be read, [`Error::WrongKind`] if it is not a linked ELF file, [`Error::Damaged`] if
    /// it is incomplete, [`Error::Build`] for a kernel without symbols.
    pub fn of(path: &Path) -> Result<SizeTable> {
        let bytes = read_linked(path)?;
        let expected = "a linked kernel (vmlinux) or program";
        let file = ElfFile::parse_linked(&path.display().to_string(), &bytes, expected)?;
        let symbols = file.symbols()?;
        let mut table = SizeTable {
            path: path.into(),
            memory: None,
            text: 0,
            data: 0,
            frozen: FrozenSizes::of(&file, &symbols)?,
            init_text: 0,
            init_data: 0,
            image: 0,
            compressed_image: 0,
            boot_image: boot_image(file.machine, path),
            init_footprint: 0,
            footprint: 0,
        };
        let segments = Segments::of(&file)?;
        let init = init_range(&file, &symbols, path)?.map(|range| segments.load_range(range));
        if init.is_some() {
            table.memory = KernelMemory::of(&file, &symbols, &segments)?;
        }
        let mut compressed = GzEncoder::new(Count(0), Compression::best());
        for (index, header) in file.sections.iter().enumerate() {
            if !takes_memory(header, file.section_name(index)?) {
                continue;
            }
            let start = segments.load_address(header.sh_addr);
            let range = start..start.saturating_add(header.sh_size);
            let freed = init.as_ref().map_or(0, |init| overlap(init, &range));
            let (kept_sum, freed_sum) = if header.sh_flags & u64::from(SHF_EXECINSTR) != 0 {
                (&mut table.text, &mut table.init_text)
            } else {
                (&mut table.data, &mut table.init_data)
            };
            // Only a damaged file reaches the limit.
            *kept_sum = kept_sum.saturating_add(header.sh_size - freed);
            *freed_sum = freed_sum.saturating_add(freed);
            let content = file.content(index)?;
            table.image += content.len() as u64;
            if table.image > bytes.len() as u64 {
                let problem = "with those before it has more content than the file: they overlap";
                return Err(file.damaged(file.describe(index), problem));
            }
            // `Count` takes any number of bytes.
            let _ = compressed.write_all(content);
        }
        table.compressed_image = compressed.finish().map_or(0, |count| count.0);
        table.footprint = table.text.saturating_add(table.data);
        let init_sizes = table.init_text.saturating_add(table.init_data);
        table.init_footprint = table.footprint.saturating_add(init_sizes);
        Ok(table)
    }

    /// Returns the columns in order with their names; `None` for a missing boot image, missing frozen parts, and the
    /// memory of a user program.
    pub fn columns(&self) -> [(&'static str, Option<u64>); 14] {
        [
            ("resident", self.memory.map(|memory| memory.resident)),
            ("padding", self.memory.map(|memory| memory.padding)),
            ("text", Some(self.text)),
            ("data", Some(self.data)),
            ("frozen text", self.frozen.map(|frozen| frozen.text)),
            ("frozen data", self.frozen.map(|frozen| frozen.data)),
            ("packed", self.frozen.map(|frozen| frozen.packed)),
            ("init text", Some(self.init_text)),
            ("init data", Some(self.init_data)),
            ("image", Some(self.image)),
            ("compressed image", Some(self.compressed_image)),
            ("boot image", self.boot_image),
            ("init footprint", Some(self.init_footprint)),
            ("footprint", Some(self.footprint)),
        ]
    }
}

/// A sink that counts bytes.
struct Count(u64);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the addresses of `__init_begin` and `__init_end`; `None` for a user program.
fn init_range(file: &ElfFile<'_>, symbols: &[(Sym, &str)], path: &Path) -> Result<Option<Range<u64>>> {
    let address = |wanted: &str| {
        let symbol = symbols.iter().find(|(_, name)| *name == wanted);
        symbol.map(|(symbol, _)| symbol.st_value)
    };
    match (address("__init_begin"), address("__init_end")) {
        (Some(begin), Some(end)) if begin <= end => Ok(Some(begin..end)),
        (None, None) => {
            for index in 0..file.sections.len() {
                if file.section_name(index)? == ".init.text" {
                    return Err(Error::Build {
                        path: path.into(),
                        problem: "is a kernel without the symbols __init_begin and __init_end".into(),
                        advice: "measure the vmlinux that the build made, before it was stripped".into(),
                    });
                }
            }
            Ok(None)
        }
        (begin, end) => {
            let problem = format!(
                "__init_begin is {begin:#x?} and __init_end is {end:#x?}; expected the first \
                 below the second"
            );
            Err(file.damaged("symbols", problem))
        }
    }
}

/// Returns the size of the boot image that was built with the kernel at `path`.
fn boot_image(machine: Machine, path: &Path) -> Option<u64> {
    let dir = path.parent()?;
    machine.target().kernel.boot_images.iter().find_map(|name| Some(fs::metadata(dir.join(name)).ok()?.len()))
}
