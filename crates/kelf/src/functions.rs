//! The functions of a linked kernel, by address and by name.
//!
//! A function keeps its name in every link of the kernel. The name consists of the symbol name, for a local symbol the
//! file in the symbol table, and a number that distinguishes equal names. Many locals of a kernel share one name, and
//! even their files may.
//!
//! Functions are found by these rules, in order:
//!
//! - a symbol of type `STT_FUNC` with a size is a function of that size; if several are at one address, one is picked,
//!   global before local and then the first, and a symbol within a function is a name for that place in it;
//! - code outside such functions (hand-written labels) belongs to the closest symbol before it in its section, of any
//!   kind, up to the next one;
//! - the rest, padding after functions and code before the first symbol of a section, belongs to no function.

use std::ops::Range;
use std::path::Path;

use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHN_LORESERVE};
use goblin::elf::sym::{STB_LOCAL, STT_FILE, STT_FUNC, STT_SECTION, Sym};
use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::headers::{ElfFile, read_linked};
use crate::index::FunctionIndex;
use crate::machine::Machine;
use crate::segments::Segments;

/// The functions of a linked kernel (or program), and the sections that contain them.
#[derive(Clone, Debug)]
pub struct Functions {
    /// The machine of the code.
    pub machine: Machine,
    /// The address of the first instruction; the load address for a kernel that starts before paging is on.
    pub entry: u64,
    /// The build ID of the file in hexadecimal digits, if it has one.
    pub build_id: Option<String>,
    /// The executable sections, by ascending address.
    pub sections: Vec<TextSection>,
    /// The functions, by ascending address, without overlaps.
    pub functions: Vec<Function>,
    /// The meanings of each name, in the order of the symbol table.
    names: FxHashMap<String, Vec<SymbolMeaning>>,
    /// Addresses of the global symbols, of code and of data.
    globals: FxHashMap<String, u64>,
    /// On 32-bit ARM, the addresses at which Thumb code begins or ends, ascending.
    encodings: Vec<(u64, bool)>,
    segments: Segments,
}

/// An executable section.
#[derive(Clone, Debug)]
pub struct TextSection {
    /// Its name.
    pub name: String,
    /// The address at which it runs.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Its physical address when the kernel starts.
    pub load_address: u64,
    /// Its bytes; none if the file has no content for it.
    pub bytes: Vec<u8>,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// For a local symbol, the name of the preceding `STT_FILE` symbol, if there is one.
    pub file: Option<String>,
    /// Number of symbols of the same name and file, in executable sections, that precede its own in the symbol table.
    pub nth: u32,
    /// Its section, as an index into [`Functions::sections`].
    pub section: usize,
    /// Its address.
    pub address: u64,
    /// Its size in bytes, at least 1.
    pub size: u64,
    /// Whether it is a label: code outside every sized `STT_FUNC` symbol.
    pub is_label: bool,
}

/// The meaning of one symbol.
#[derive(Clone, Debug)]
struct SymbolMeaning {
    file: Option<String>,
    nth: u32,
    function: FunctionIndex,
    offset: u64,
}

/// A symbol of an executable section.
struct Candidate<'a> {
    name: &'a str,
    file: Option<&'a str>,
    nth: u32,
    section: usize,
    address: u64,
    /// Its size if it is an `STT_FUNC`, else 0.
    function_size: u64,
    has_size: bool,
    is_local: bool,
}

impl Functions {
    /// Reads the symbol table and the executable sections of the linked file at `path`.
    ///
    /// # Errors
    /// [`Error::Read`] if it cannot be read, [`Error::WrongKind`] if it is not a linked ELF file, [`Error::Damaged`] if
    /// it is incomplete, [`Error::Build`] if its symbols were stripped.
    pub fn read(path: &Path) -> Result<Functions> {
        let bytes = read_linked(path)?;
        let expected = "a linked kernel (vmlinux) or program";
        let file = ElfFile::parse_linked(&path.display().to_string(), &bytes, expected)?;
        let (numbers, sections) = code_sections(&file)?;
        let symbols = file.symbols()?;
        let globals = symbols
            .iter()
            .filter(|(symbol, _)| symbol.st_bind() != STB_LOCAL && symbol.st_shndx != 0)
            .map(|&(ref symbol, name)| (name.to_owned(), symbol.st_value))
            .collect();
        let candidates = candidates(&file, &symbols, &numbers);
        if candidates.is_empty() {
            return Err(Error::Build {
                path: path.into(),
                problem: "has no symbols of code".into(),
                advice: "use the vmlinux that the build made, before it was stripped".into(),
            });
        }
        let mut result = Functions {
            machine: file.machine,
            entry: file.header.e_entry,
            build_id: file.build_id()?,
            sections,
            functions: Vec::new(),
            names: FxHashMap::default(),
            globals,
            encodings: encodings(file.machine, &symbols),
            segments: Segments::of(&file)?,
        };
        result.place(candidates);
        Ok(result)
    }

    /// Returns the function at `index`.
    ///
    /// # Panics
    /// If there is no such function.
    pub fn function(&self, index: FunctionIndex) -> &Function {
        &self.functions[index.get()]
    }

    /// Returns the section that contains a function.
    pub fn section_of(&self, function: &Function) -> &TextSection {
        &self.sections[function.section]
    }

    /// Returns the function at an address, and the address's offset in it.
    pub fn at(&self, address: u64) -> Option<(FunctionIndex, u64)> {
        let after = self.functions.partition_point(|function| function.address <= address);
        let index = after.checked_sub(1)?;
        let offset = address - self.functions[index].address;
        (offset < self.functions[index].size).then(|| (FunctionIndex::from(index), offset))
    }

    /// Returns the place of the symbol with this name, file and number: a function, and an offset in it, which is 0
    /// unless the symbol is within the function.
    pub fn find(&self, name: &str, file: Option<&str>, nth: u32) -> Option<(FunctionIndex, u64)> {
        let meanings = self.names.get(name)?.iter();
        let mut meanings = meanings.filter(|meaning| meaning.nth == nth && meaning.file.as_deref() == file);
        meanings.next().map(|meaning| (meaning.function, meaning.offset))
    }

    /// Returns the functions that have a symbol of this name, each once, in the order of the symbol table.
    pub fn named(&self, name: &str) -> Vec<FunctionIndex> {
        let mut functions = Vec::new();
        for meaning in self.names.get(name).into_iter().flatten() {
            if !functions.contains(&meaning.function) {
                functions.push(meaning.function);
            }
        }
        functions
    }

    /// Returns the addresses of the code symbols with this name, in the order of the symbol table.
    pub fn addresses_named(&self, name: &str) -> Vec<u64> {
        self.names.get(name).into_iter().flatten().map(|meaning| self.address(meaning)).collect()
    }

    /// Returns the addresses of all code symbols, ascending, each once.
    pub fn symbol_addresses(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.names.values().flatten().map(|meaning| self.address(meaning)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn address(&self, meaning: &SymbolMeaning) -> u64 {
        self.function(meaning.function).address + meaning.offset
    }

    /// Returns the address of a global symbol, of code or of data.
    pub fn address_of(&self, global: &str) -> Option<u64> {
        self.globals.get(global).copied()
    }

    /// Whether the code at an address is Thumb code of 32-bit ARM.
    pub fn is_thumb(&self, address: u64) -> bool {
        let after = self.encodings.partition_point(|&(start, _)| start <= address);
        after.checked_sub(1).is_some_and(|index| self.encodings[index].1)
    }

    /// Returns the global symbols with their addresses, of code and of data, in no particular order.
    pub fn globals(&self) -> impl Iterator<Item = (&str, u64)> {
        self.globals.iter().map(|(name, &address)| (name.as_str(), address))
    }

    /// Returns the physical address of `address`, of code or data, when the kernel starts.
    pub fn load_address(&self, address: u64) -> u64 {
        self.segments.load_address(address)
    }

    /// Returns the executable section that contains an address.
    pub fn section_at(&self, address: u64) -> Option<&TextSection> {
        self.sections.iter().find(|section| section.addresses().contains(&address))
    }

    /// Returns the `size` bytes of the file at an address of its code.
    pub fn bytes_at(&self, address: u64, size: usize) -> Option<&[u8]> {
        let section = self.section_at(address)?;
        let offset = usize::try_from(address - section.address).ok()?;
        section.bytes.get(offset..offset.checked_add(size)?)
    }

    /// Returns the addresses that are freed after boot, between `__init_begin` and `__init_end`; none in a program,
    /// which lacks these symbols.
    pub fn init_addresses(&self) -> Range<u64> {
        match (self.address_of("__init_begin"), self.address_of("__init_end")) {
            (Some(begin), Some(end)) => begin..end,
            _ => 0..0,
        }
    }

    /// Divides the sections into functions, and records the meaning of each candidate.
    fn place(&mut self, mut candidates: Vec<Candidate<'_>>) {
        // Linker scripts attach symbols to a section whose values are elsewhere (`__stubs_lma` of ARM kernels).
        candidates.retain(|candidate| {
            let addresses = self.sections[candidate.section].addresses();
            (addresses.start..=addresses.end).contains(&candidate.address)
        });
        // Stable, so that symbols of one address keep the order of the table.
        candidates.sort_by_key(|candidate| (candidate.section, candidate.address));
        for group in candidates.chunk_by(|a, b| (a.section, a.address) == (b.section, b.address)) {
            let (section, address) = (group[0].section, group[0].address);
            let section_end = self.sections[section].addresses().end;
            let size = group.iter().map(|candidate| candidate.function_size).max().unwrap_or(0);
            let last = self.functions.last_mut().filter(|last| last.section == section);
            let is_within = match last {
                Some(last) if last.is_label => {
                    last.size = address - last.address;
                    false
                }
                Some(last) if address < last.address + last.size => {
                    let is_within = address + size <= last.address + last.size;
                    if !is_within {
                        last.size = address - last.address;
                    }
                    is_within
                }
                _ => false,
            };
            if !is_within && address < section_end {
                let rank = |candidate: &&Candidate<'_>| {
                    (candidate.function_size == 0, !candidate.has_size, candidate.is_local)
                };
                let picked = group.iter().min_by_key(rank).expect("a group is not empty");
                let left = section_end - address;
                self.functions.push(Function {
                    name: picked.name.to_owned(),
                    file: picked.file.map(str::to_owned),
                    nth: picked.nth,
                    section,
                    address,
                    size: if size == 0 { left } else { size.min(left) },
                    is_label: size == 0,
                });
            }
        }
        for candidate in &candidates {
            if let Some((function, offset)) = self.at(candidate.address) {
                let meanings = self.names.entry(candidate.name.to_owned()).or_default();
                let file = candidate.file.map(str::to_owned);
                meanings.push(SymbolMeaning { file, nth: candidate.nth, function, offset });
            }
        }
        for meanings in self.names.values_mut() {
            meanings.sort_by_key(|meaning| meaning.nth);
        }
    }
}

impl Function {
    /// Returns the addresses of its bytes.
    pub fn addresses(&self) -> Range<u64> {
        self.address..self.address + self.size
    }
}

impl TextSection {
    /// Returns the addresses at which it runs.
    pub fn addresses(&self) -> Range<u64> {
        self.address..self.address + self.size
    }
}

/// Returns the executable sections by ascending address, and for each section of the file its index among them. If
/// several sections run at the same address (`OVERLAY` of linker scripts; the vectors of ARM kernels, one of which is
/// chosen at boot), the first is used.
fn code_sections(file: &ElfFile<'_>) -> Result<(Vec<Option<usize>>, Vec<TextSection>)> {
    let segments = Segments::of(file)?;
    let flags = u64::from(SHF_ALLOC | SHF_EXECINSTR);
    let mut found = Vec::new();
    for (index, header) in file.sections.iter().enumerate() {
        if header.sh_flags & flags != flags {
            continue;
        }
        if header.sh_addr.checked_add(header.sh_size).is_none() {
            return Err(file.damaged(file.describe(index), "its addresses exceed 64 bits"));
        }
        let section = TextSection {
            name: file.section_name(index)?.to_owned(),
            address: header.sh_addr,
            size: header.sh_size,
            load_address: segments.load_address(header.sh_addr),
            bytes: file.content(index)?.to_vec(),
        };
        found.push((index, section));
    }
    found.sort_by_key(|(_, section)| section.address);
    let mut numbers = vec![None; file.sections.len()];
    let mut sections: Vec<TextSection> = Vec::with_capacity(found.len());
    for (index, section) in found {
        if sections.last().is_some_and(|last| last.address == section.address && last.size > 0) {
            continue;
        }
        if sections.last().is_some_and(|last| last.addresses().end > section.address) {
            return Err(file.damaged(file.describe(index), "overlaps the executable section before it"));
        }
        numbers[index] = Some(sections.len());
        sections.push(section);
    }
    Ok((numbers, sections))
}

/// Returns the symbols that name code, in the order of the symbol table.
fn candidates<'a>(
    file: &ElfFile<'_>,
    symbols: &[(Sym, &'a str)],
    numbers: &[Option<usize>],
) -> Vec<Candidate<'a>> {
    let mut counts: FxHashMap<(&str, Option<&str>), u32> = FxHashMap::default();
    let mut current_file = None;
    let mut candidates = Vec::new();
    for &(ref symbol, name) in symbols {
        let kind = symbol.st_type();
        if kind == STT_FILE {
            // The linker ends the last file's symbols with a file without a name.
            current_file = Some(name).filter(|name| !name.is_empty());
            continue;
        }
        let section = match symbol.st_shndx {
            reserved if reserved >= SHN_LORESERVE as usize => None,
            section => numbers.get(section).copied().flatten(),
        };
        let Some(section) = section else { continue };
        if kind == STT_SECTION || name.is_empty() || file.machine.is_mapping_symbol(name) {
            continue;
        }
        let is_local = symbol.st_bind() == STB_LOCAL;
        let source = current_file.filter(|_| is_local);
        let count = counts.entry((name, source)).or_default();
        let nth = *count;
        *count += 1;
        let is_function = kind == STT_FUNC;
        candidates.push(Candidate {
            name,
            file: source,
            nth,
            section,
            address: if is_function { file.machine.first_byte(symbol.st_value) } else { symbol.st_value },
            function_size: if is_function { symbol.st_size } else { 0 },
            has_size: symbol.st_size > 0,
            is_local,
        });
    }
    candidates
}

/// Returns the addresses at which the kind of code changes according to mapping symbols, ascending, each with whether
/// Thumb code begins there.
fn encodings(machine: Machine, symbols: &[(Sym, &str)]) -> Vec<(u64, bool)> {
    let has_encodings = machine.target().has_encoding_bit;
    let mapping = symbols.iter().filter(|(_, name)| has_encodings && machine.is_mapping_symbol(name));
    let mut all: Vec<(u64, bool)> =
        mapping.map(|(symbol, name)| (symbol.st_value, name.starts_with("$t"))).collect();
    all.sort_by_key(|&(start, _)| start);
    all
}
