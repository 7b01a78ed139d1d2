//! The linked kernel: addresses of its symbols, and what identifies it in memory.

use std::path::Path;

use kelf::{linked_machine, read_linked};
use object::read::elf::ProgramHeader;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};
use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::machine::{ImageMapping, Rules};
use crate::memory::{AddressSpace, Mapping};

/// Maximum length of the text that identifies a kernel, in bytes.
const MAX_BANNER: usize = 512;

/// A variable of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Variable {
    /// Its linked address.
    pub address: u64,
    /// Its size in bytes, at least that of a pointer.
    pub size: u64,
    /// Its name.
    pub name: String,
}

/// A linked kernel.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    /// The path of its file.
    pub path: String,
    /// The rules of its machine.
    pub rules: &'static Rules,
    /// The addresses of its symbols, and their sizes. Of local symbols with equal names, none.
    symbols: FxHashMap<String, (u64, u64)>,
    /// The variables, by ascending linked address.
    pub variables: Vec<Variable>,
    /// The text `Linux version …` without its end, and its address.
    pub banner: (u64, Vec<u8>),
    /// The notes of the file, which contain the build ID, and their address.
    pub notes: Option<(u64, Vec<u8>)>,
    /// The build ID in hexadecimal digits, if the file has one.
    pub build_id: Option<String>,
    /// The difference between virtual and physical addresses that the file records.
    pub linear: u64,
}

impl Kernel {
    /// Reads the kernel at `path`. Returns it with the content of the file.
    ///
    /// # Errors
    /// If it cannot be read, is not a linked kernel of a supported machine, or was stripped.
    pub fn read(path: &Path) -> Result<(Kernel, Vec<u8>)> {
        let name = path.display().to_string();
        let bytes = read_linked(path)?;
        let unsupported = |problem: String, advice: &'static str| Error::Unsupported {
            kernel: name.clone(),
            problem,
            advice,
        };
        let machine = linked_machine(
            &name,
            &bytes,
            "vmlinux, the linked kernel as an ELF file (not bzImage or Image)",
        )?;
        let Some(rules) = Rules::of(machine) else {
            let problem = format!("a kernel for {machine}");
            return Err(unsupported(problem, "census supports kernels for i386, x86-64 and 32-bit ARM"));
        };
        let file = object::File::parse(&bytes[..])
            .map_err(|error| unsupported(format!("damaged ({error})"), "build the kernel again"))?;
        let mut kernel = Kernel { path: name.clone(), rules, ..Kernel::default() };
        kernel.read_symbols(&file);
        let Some(banner) = kernel.optional_symbol("linux_banner") else {
            return Err(unsupported(
                "it has no symbol linux_banner".into(),
                "give a kernel that was not stripped",
            ));
        };
        let text =
            file.sections().find_map(|section| section.data_range(banner, 1).ok()??.first().map(|_| section));
        let text = text.and_then(|section| {
            let data = section.data().ok()?.get(usize::try_from(banner - section.address()).ok()?..)?;
            data[..data.len().min(MAX_BANNER)].split(|&byte| byte == 0).next()
        });
        match text {
            Some(text) if text.starts_with(b"Linux version ") => kernel.banner = (banner, text.to_vec()),
            _ => {
                let problem = format!("linux_banner at {banner:#x} does not begin with `Linux version `");
                return Err(unsupported(problem, "give the vmlinux of a Linux kernel"));
            }
        }
        kernel.notes = file
            .section_by_name(".notes")
            .filter(|section| section.address() != 0)
            .and_then(|section| Some((section.address(), section.data().ok()?.to_vec())));
        kernel.build_id = file
            .build_id()
            .map_err(|error| unsupported(format!("damaged ({error})"), "build the kernel again"))?
            .map(|bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect());
        for segment in file.segments() {
            let object::SegmentFlags::Elf { .. } = segment.flags() else { continue };
            let start = segment.address();
            if (start..start.saturating_add(segment.size())).contains(&banner) {
                kernel.linear = start.wrapping_sub(physical_address(&file, start).unwrap_or(start));
            }
        }
        Ok((kernel, bytes))
    }

    fn read_symbols(&mut self, file: &object::File<'_>) {
        let mut doubtful: FxHashMap<&str, bool> = FxHashMap::default();
        for symbol in file.symbols() {
            let (Ok(name), false) = (symbol.name(), symbol.is_undefined()) else { continue };
            if matches!(symbol.kind(), SymbolKind::File | SymbolKind::Section) || name.is_empty() {
                continue;
            }
            // A global symbol wins over a local one; several local ones mean none.
            let is_global = symbol.is_global();
            match doubtful.get(name) {
                Some(false) if !is_global => drop(self.symbols.remove(name)),
                Some(true) if !is_global => {}
                _ => drop(self.symbols.insert(name.to_owned(), (symbol.address(), symbol.size()))),
            }
            let known = doubtful.entry(name).or_insert(is_global);
            *known |= is_global;
            if symbol.kind() == SymbolKind::Data && symbol.size() >= self.rules.word {
                let (address, size) = (symbol.address(), symbol.size());
                self.variables.push(Variable { address, size, name: name.to_owned() });
            }
        }
        self.variables.sort_unstable();
    }

    /// Returns the addresses of the kernel if this is the difference between virtual and physical addresses of its image.
    pub fn space(&self, difference: u64) -> AddressSpace {
        let image = self.rules.image.as_ref().map(|image| Mapping {
            address: image.start,
            physical: image.start.wrapping_sub(difference),
            size: self.image_size(image),
        });
        AddressSpace { word: self.rules.word, linear: difference, image }
    }

    /// Returns the number of bytes from the start of the mapping of the image to its end in whole large pages.
    pub fn image_size(&self, mapping: &ImageMapping) -> u64 {
        let end = self.optional_symbol("_end").and_then(|end| end.checked_sub(mapping.start));
        end.and_then(|size| size.checked_next_multiple_of(mapping.page)).unwrap_or(mapping.size)
    }

    /// Creates a kernel with symbols alone.
    #[cfg(test)]
    pub fn with_symbols(symbols: &[(&str, u64)]) -> Kernel {
        let symbols = symbols.iter().map(|&(name, address)| (name.to_owned(), (address, 4))).collect();
        Kernel { symbols, ..Kernel::default() }
    }

    /// Returns the linked address of a symbol.
    pub fn optional_symbol(&self, name: &str) -> Option<u64> {
        self.symbols.get(name).map(|&(address, _)| address)
    }

    /// Returns the size of a variable in bytes; 0 if the kernel has no such symbol, or several.
    pub fn size_of(&self, name: &str) -> u64 {
        self.symbols.get(name).map_or(0, |&(_, size)| size)
    }

    /// Returns the linked address of a symbol.
    ///
    /// # Errors
    /// If the kernel has no such symbol, or several.
    pub fn symbol(&self, name: &str) -> Result<u64> {
        self.optional_symbol(name).ok_or_else(|| Error::Unsupported {
            kernel: self.path.clone(),
            problem: format!("it has no symbol {name}"),
            advice: "census supports kernels with an MMU and SLUB, from Linux 6.12 on",
        })
    }

    /// Returns the first line of the text that identifies it.
    pub fn banner_line(&self) -> String {
        first_line(&self.banner.1)
    }
}

/// Returns the first line of a text, for messages and documents.
pub fn first_line(text: &[u8]) -> String {
    let line = text.split(|&byte| byte == b'\n' || byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(line).chars().filter(|c| !c.is_control()).collect()
}

/// Returns the physical address that the program headers of a file give for the start of a segment.
fn physical_address(file: &object::File<'_>, start: u64) -> Option<u64> {
    match file {
        object::File::Elf32(file) => segment_at(file.elf_program_headers(), file.endian(), start),
        object::File::Elf64(file) => segment_at(file.elf_program_headers(), file.endian(), start),
        _ => None,
    }
}

/// Returns the physical address of the segment that starts at a virtual one.
fn segment_at<H: ProgramHeader>(headers: &[H], endian: H::Endian, start: u64) -> Option<u64> {
    let is_wanted =
        |header: &&H| header.p_type(endian) == object::elf::PT_LOAD && header.p_vaddr(endian).into() == start;
    Some(headers.iter().find(is_wanted)?.p_paddr(endian).into())
}
