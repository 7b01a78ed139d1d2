//! Reads a relocatable object: bytes in, [`Object`] out, borrowing from the bytes.
//!
//! The reader is strict. `ld` accepts files that contradict themselves and links what it can; a rewriter that did so
//! would spread the damage. Every index and range is therefore checked here, once, and the rest of the project indexes
//! without checks. No byte of a file belongs to two tables, which also bounds the memory for a damaged file: tables
//! whose sizes sum to more than the file are refused.

use std::borrow::Cow;
use std::io::Read;

use goblin::elf::compression_header::{CompressionHeader, ELFCOMPRESS_ZLIB};
use goblin::elf::section_header::{
    SHF_ALLOC, SHF_COMPRESSED, SHF_EXECINSTR, SHF_LINK_ORDER, SHN_ABS, SHN_COMMON, SHN_HIRESERVE,
    SHN_LORESERVE, SHN_UNDEF, SHN_XINDEX, SHT_GROUP, SHT_NOBITS, SHT_NULL, SHT_REL, SHT_RELA, SHT_STRTAB,
    SHT_SYMTAB, SHT_SYMTAB_SHNDX,
};
use goblin::elf::sym::{STB_LOCAL, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, Sym};
use scroll::{LE, Pread};

use crate::error::{Error, Result};
use crate::headers::{ElfFile, range};
use crate::index::{SectionIndex, SymbolIndex};
use crate::object::{Group, Object, Place, SHT_LLVM_ADDRSIG, Section, Symbol};
use crate::reloc::{Reloc, describe};
use crate::{addend, reloc};

/// The largest section in bytes: the span of a 32-bit displacement, so that sums of offsets and alignments fit in 32
/// bits.
const MAX_SECTION_SIZE: u64 = i32::MAX as u64;
/// The largest alignment in bytes: the largest page size (x86-64).
const MAX_ALIGN: u64 = 1 << 30;
/// The largest distance in bytes from a section anchor back to the first variable reached from it
/// (`TARGET_MIN_ANCHOR_OFFSET` of GCC's gcc/config/arm/arm.cc).
const ANCHOR_REACH: u64 = 4 << 10;
/// The largest addend: its sum with any offset in a section fits in 64 bits.
const MAX_ADDEND: u64 = 1 << 62;

/// The symbol that marks an object without machine code for GCC's linker plugin (GCC's `toplev.cc`).
const SLIM_LTO: &str = "__gnu_lto_slim";

impl<'a> Object<'a> {
    /// Reads the relocatable object `bytes`; `name` is for messages.
    ///
    /// Compressed debug sections (`SHF_COMPRESSED`, zlib) are decompressed, because relocation offsets refer to the
    /// decompressed content.
    ///
    /// # Errors
    /// [`Error::WrongKind`] if this is not a relocatable object for a supported machine. [`Error::Damaged`] if it
    /// contradicts itself. [`Error::Unsupported`] for unsupported relocations or compression.
    pub fn read(name: &str, bytes: &'a [u8]) -> Result<Object<'a>> {
        let file = ElfFile::parse_object(name, bytes)?;
        check_total_size(&file)?;
        let table = file.symbol_table()?;
        let sections = sections(&file, table)?;
        let symbols = symbols(&file, table, &sections)?;
        if symbols.iter().any(|symbol| symbol.name == SLIM_LTO) {
            return Err(Error::WrongKind {
                file: name.into(),
                found: "a slim LTO object, in which gcc -flto puts its bytecode in place of machine code"
                    .into(),
                expected: "machine code; compile it without -flto, or with -ffat-lto-objects".into(),
            });
        }
        let mut object = Object {
            name: name.to_string(),
            machine: file.machine,
            flags: file.header.e_flags,
            sections,
            symbols,
            groups: Vec::new(),
        };
        for index in 0..file.sections.len() {
            match file.sections[index].sh_type {
                SHT_REL | SHT_RELA => relocations(&file, index, table, &mut object)?,
                SHT_GROUP => {
                    let group = group(&file, index, table, &object)?;
                    object.groups.push(group);
                }
                _ => {}
            }
        }
        Ok(object)
    }
}

/// Refuses a file whose sections claim more content than the file has.
fn check_total_size(file: &ElfFile<'_>) -> Result<()> {
    let content = file.sections.iter().filter(|header| !matches!(header.sh_type, SHT_NOBITS | SHT_NULL));
    let total = content.fold(0u64, |total, header| total.saturating_add(header.sh_size));
    let length = file.bytes.len() as u64;
    if total <= length {
        return Ok(());
    }
    // A single section beyond the end is the likelier cause, with a clearer message.
    for index in 0..file.sections.len() {
        file.content(index)?;
    }
    let problem = format!("their contents sum to {total} bytes in a file of {length}: they overlap");
    Err(file.damaged("section headers", problem))
}

fn sections<'a>(file: &ElfFile<'a>, table: Option<usize>) -> Result<Vec<Section<'a>>> {
    let strings = [table.map(|table| file.sections[table].sh_link as usize), file.name_table()];
    let mut sections = Vec::with_capacity(file.sections.len().max(1));
    for (index, header) in file.sections.iter().enumerate() {
        let align = header.sh_addralign.max(1);
        if !align.is_power_of_two() || align > MAX_ALIGN {
            let problem = format!("alignment {align}; expected a power of two up to {MAX_ALIGN}");
            return Err(file.damaged(file.describe(index), problem));
        }
        let is_table = match header.sh_type {
            SHT_NULL | SHT_SYMTAB | SHT_SYMTAB_SHNDX | SHT_REL | SHT_RELA | SHT_GROUP | SHT_LLVM_ADDRSIG => {
                true
            }
            SHT_STRTAB => strings.contains(&Some(index)),
            _ => false,
        };
        let mut flags = header.sh_flags;
        let content = file.content(index)?;
        let data = if is_table {
            Cow::Borrowed(&[][..])
        } else if flags & u64::from(SHF_COMPRESSED) != 0 {
            if flags & u64::from(SHF_ALLOC) != 0 {
                let problem = "is compressed, although it is loaded; expected an uncompressed section";
                return Err(file.damaged(file.describe(index), problem));
            }
            flags &= !u64::from(SHF_COMPRESSED);
            Cow::Owned(decompress(file, index, content)?)
        } else {
            Cow::Borrowed(content)
        };
        let size = match header.sh_type {
            SHT_NOBITS => header.sh_size,
            _ => data.len() as u64,
        };
        if size > MAX_SECTION_SIZE {
            return Err(Error::Unsupported {
                file: file.name.clone(),
                place: file.describe(index),
                problem: format!("{size} bytes; kshrink handles sections of up to {MAX_SECTION_SIZE}"),
            });
        }
        sections.push(Section {
            name: file.section_name(index)?,
            kind: header.sh_type,
            flags,
            align,
            entsize: header.sh_entsize,
            size,
            data,
            relocs: Vec::new(),
            link_order: link_order(file, index)?,
        });
    }
    match sections.first() {
        None => sections.push(Section::null()),
        Some(first) if first.kind == SHT_NULL => sections[0] = Section::null(),
        Some(_) => return Err(file.damaged("section 0", "expected the null section")),
    }
    Ok(sections)
}

fn link_order(file: &ElfFile<'_>, index: usize) -> Result<Option<SectionIndex>> {
    let header = &file.sections[index];
    let target = header.sh_link as usize;
    // Link 0 is allowed: the section has no order.
    if header.sh_flags & u64::from(SHF_LINK_ORDER) == 0 || target == 0 {
        return Ok(None);
    }
    if target >= file.sections.len() {
        let problem = format!("is ordered by section {target}, which does not exist");
        return Err(file.damaged(file.describe(index), problem));
    }
    Ok(Some(SectionIndex::from(target)))
}

/// Returns the number of bytes by which a symbol may lie beyond the end of its section. GCC's section anchors for ARM
/// do so: they are local labels up to 8 KiB apart, from which code reaches the variables before and after them.
fn reach_behind(file: &ElfFile<'_>, symbol: &Sym, name: &str, section: &Section<'_>) -> u64 {
    let is_label = symbol.st_bind() == STB_LOCAL && symbol.st_type() == STT_NOTYPE && name.starts_with(".L");
    let is_data = section.flags & u64::from(SHF_EXECINSTR) == 0;
    if file.machine.target().has_section_anchors && is_label && is_data { ANCHOR_REACH } else { 0 }
}

fn decompress(file: &ElfFile<'_>, index: usize, content: &[u8]) -> Result<Vec<u8>> {
    let place = || file.describe(index);
    let header: CompressionHeader = content
        .pread_with(0, file.ctx)
        .map_err(|_| file.damaged(place(), "too short for a compression header"))?;
    if header.ch_type != ELFCOMPRESS_ZLIB {
        return Err(Error::Unsupported {
            file: file.name.clone(),
            place: place(),
            problem: format!(
                "compression method {}; only zlib is supported, build with uncompressed debug sections",
                header.ch_type
            ),
        });
    }
    let stream = &content[CompressionHeader::size(file.ctx)..];
    let mut data = Vec::new();
    // One byte more than declared is enough to detect excess. zlib expands at most 1032-fold, so the content bounds the
    // memory.
    let result =
        flate2::read::ZlibDecoder::new(stream).take(header.ch_size.saturating_add(1)).read_to_end(&mut data);
    if result.is_err() || data.len() as u64 != header.ch_size {
        let problem = format!("does not decompress to the {} bytes that it declares", header.ch_size);
        return Err(file.damaged(place(), problem));
    }
    Ok(data)
}

fn symbols<'a>(
    file: &ElfFile<'a>,
    table: Option<usize>,
    sections: &[Section<'_>],
) -> Result<Vec<Symbol<'a>>> {
    let Some(table) = table else {
        return Ok(vec![Symbol::null()]);
    };
    let raw = file.symbols_in(table)?;
    let extended = (0..file.sections.len()).find(|&index| {
        let header = &file.sections[index];
        header.sh_type == SHT_SYMTAB_SHNDX && header.sh_link as usize == table
    });
    let extended = extended.map(|index| file.content(index)).transpose()?;
    let mut symbols = Vec::with_capacity(raw.len().max(1));
    for (index, (symbol, name)) in raw.into_iter().enumerate() {
        let describe = || format!("symbol {index} ({name})");
        let place = match symbol.st_shndx as u32 {
            SHN_UNDEF => Place::Undefined,
            SHN_ABS => Place::Absolute,
            SHN_COMMON => Place::Common,
            SHN_XINDEX => {
                let number = extended.and_then(|table| table.pread_with(4 * index, LE).ok());
                let number: u32 = number.ok_or_else(|| {
                    file.damaged(describe(), "its section number is in a table that does not have it")
                })?;
                Place::Section(SectionIndex(number))
            }
            reserved @ SHN_LORESERVE..=SHN_HIRESERVE => {
                return Err(Error::Unsupported {
                    file: file.name.clone(),
                    place: describe(),
                    problem: format!("reserved section number {reserved:#x}, of unknown meaning"),
                });
            }
            number => Place::Section(SectionIndex(number)),
        };
        let is_function = matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC);
        let thumb = file.machine.target().has_encoding_bit
            && is_function
            && matches!(place, Place::Section(_))
            && symbol.st_value & 1 != 0;
        let value = symbol.st_value & !u64::from(thumb);
        let problem = match place {
            Place::Section(number) => match sections.get(number.get()) {
                None => Some(format!("is in section {} of {}", number.get(), sections.len())),
                Some(section) if value > section.size + reach_behind(file, &symbol, name, section) => {
                    let (name, size) = (section.name, section.size);
                    Some(format!(
                        "lies at {value:#x} of section {} ({name}), which has {size:#x} bytes",
                        number.get()
                    ))
                }
                Some(_) => None,
            },
            Place::Common if value != 0 && !value.is_power_of_two() => {
                Some(format!("alignment {value} of a common symbol; expected a power of two"))
            }
            _ => None,
        };
        if let Some(problem) = problem {
            return Err(file.damaged(describe(), problem));
        }
        symbols.push(Symbol {
            name,
            value,
            thumb,
            size: symbol.st_size,
            binding: symbol.st_bind(),
            kind: symbol.st_type(),
            other: symbol.st_other,
            place,
        });
    }
    match symbols.first() {
        None => symbols.push(Symbol::null()),
        Some(first) if *first == Symbol::null() => {}
        Some(_) => return Err(file.damaged("symbol 0", "expected the null symbol")),
    }
    Ok(symbols)
}

/// Reads relocation section `index` into the section that it applies to.
fn relocations(
    file: &ElfFile<'_>,
    index: usize,
    table: Option<usize>,
    object: &mut Object<'_>,
) -> Result<()> {
    let header = &file.sections[index];
    let is_rela = header.sh_type == SHT_RELA;
    let machine = file.machine;
    if is_rela != machine.is_rela() {
        let (found, expected) = if is_rela { ("RELA", "REL") } else { ("REL", "RELA") };
        let problem = format!("{found} relocations; expected {expected} on {machine}");
        return Err(file.damaged(file.describe(index), problem));
    }
    if table != Some(header.sh_link as usize) {
        let problem = format!("names section {} as its symbol table, which is not one", header.sh_link);
        return Err(file.damaged(file.describe(index), problem));
    }
    let target = header.sh_info as usize;
    if target == 0 || target >= object.sections.len() {
        let problem = format!("relocates section {target}, which does not exist");
        return Err(file.damaged(file.describe(index), problem));
    }
    let entry_size = goblin::elf::Reloc::size(is_rela, file.ctx);
    let (bytes, count) = file.table(index, entry_size)?;
    let section = &mut object.sections[target];
    section.relocs.reserve(count);
    let mut at = 0;
    for _ in 0..count {
        let raw: goblin::elf::Reloc = bytes
            .gread_with(&mut at, (is_rela, file.ctx))
            .map_err(|_| file.damaged(file.describe(index), "ends within a relocation"))?;
        let place = || format!("{}, offset {:#x}", file.describe(target), raw.r_offset);
        let (class, width) = describe(machine, raw.r_type).ok_or_else(|| Error::Unsupported {
            file: file.name.clone(),
            place: place(),
            problem: format!(
                "relocation {} is not supported in an object for {machine}",
                reloc::name(machine, raw.r_type)
            ),
        })?;
        if raw.r_sym >= object.symbols.len() {
            let count = object.symbols.len();
            let problem = format!("a relocation names symbol {}; there are {count}", raw.r_sym);
            return Err(file.damaged(place(), problem));
        }
        let field = range(&section.data, raw.r_offset, u64::from(width)).ok_or_else(|| {
            let size = section.data.len();
            let problem = format!("a relocation of {width} bytes reaches beyond the {size} bytes");
            file.damaged(place(), problem)
        })?;
        let addend = raw.r_addend.unwrap_or_else(|| addend::get(machine, raw.r_type, field));
        if addend.unsigned_abs() > MAX_ADDEND {
            let problem =
                format!("a relocation has the addend {addend:#x}; expected at most {MAX_ADDEND:#x}");
            return Err(file.damaged(place(), problem));
        }
        section.relocs.push(Reloc {
            offset: raw.r_offset,
            r_type: raw.r_type,
            class,
            width,
            symbol: SymbolIndex::from(raw.r_sym),
            addend,
        });
    }
    // gas writes them in order. Use a stable sort, because the order of relocations at one offset is significant.
    section.relocs.sort_by_key(|reloc| reloc.offset);
    Ok(())
}

fn group(file: &ElfFile<'_>, index: usize, table: Option<usize>, object: &Object<'_>) -> Result<Group> {
    let header = &file.sections[index];
    let signature = header.sh_info as usize;
    if table != Some(header.sh_link as usize) || signature >= object.symbols.len() {
        let problem = format!("its signature is symbol {signature}, which does not exist");
        return Err(file.damaged(file.describe(index), problem));
    }
    let (bytes, count) = file.table(index, 4)?;
    let mut words = bytes
        .chunks_exact(4)
        .map(|word| word.iter().rev().fold(0u32, |number, &byte| number << 8 | u32::from(byte)));
    let Some(flags) = words.next() else {
        return Err(file.damaged(file.describe(index), "an empty section group"));
    };
    let mut members = Vec::with_capacity(count - 1);
    for member in words {
        let kind = file.sections.get(member as usize).map(|header| header.sh_type);
        match kind {
            None | Some(SHT_NULL | SHT_GROUP | SHT_SYMTAB) => {
                let problem = format!("holds section {member}, which cannot be in a group");
                return Err(file.damaged(file.describe(index), problem));
            }
            Some(SHT_REL | SHT_RELA) => {}
            Some(_) => members.push(SectionIndex(member)),
        }
    }
    Ok(Group { flags, signature: SymbolIndex::from(signature), members })
}
