//! The ELF header, section headers, names and symbols of any ELF file, checked.
//!
//! Relocatable objects ([`crate::read`]) and linked kernels share this part. goblin parses each
//! entry, but the loops are ours: goblin's own constructors salvage what they can of a damaged file, while a rewriter
//! must refuse it and report the location of the damage. Every offset is compared with the file's length before any
//! allocation for it.

use std::path::Path;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::header::{
    EI_CLASS, EI_DATA, ELFCLASS32, ELFCLASS64, ELFDATA2LSB, ELFDATA2MSB, ELFMAG, ET_CORE, ET_DYN, ET_EXEC,
    ET_REL, Header, SIZEOF_IDENT,
};
use goblin::elf::section_header::{SHN_XINDEX, SHT_NOBITS, SHT_NOTE, SHT_NULL, SHT_SYMTAB, SectionHeader};
use goblin::elf::sym::Sym;
use object::LittleEndian;
use object::elf::{ELF_NOTE_GNU, FileHeader32, NT_GNU_BUILD_ID};
use object::read::elf::NoteIterator;
use scroll::Pread;

use crate::archive::is_archive;
use crate::error::{Error, Result};
use crate::head::read_file_if;
use crate::machine::Machine;

/// The types (`e_type`) of relocatable objects.
const OBJECT: &[u16] = &[ET_REL];
/// The types of linked files.
const LINKED: &[u16] = &[ET_EXEC, ET_DYN];
/// The magic numbers of LLVM bitcode: plain, and with the wrapper of other systems (LLVM's `Magic.cpp`).
const BITCODE: [&[u8]; 2] = [b"BC\xc0\xde", b"\xde\xc0\x17\x0b"];

/// An ELF file with a valid header and valid section headers.
pub struct ElfFile<'a> {
    /// The machine of its code.
    pub machine: Machine,
    /// The section headers.
    pub sections: Vec<SectionHeader>,
    pub(crate) name: String,
    pub(crate) bytes: &'a [u8],
    pub(crate) ctx: Ctx,
    pub(crate) header: Header,
    names: &'a [u8],
}

/// Returns the machine of a linked file. `expected` names the expected kind of file, for messages.
///
/// # Errors
/// If `bytes` are not a linked ELF file, or its headers are damaged.
pub fn linked_machine(name: &str, bytes: &[u8], expected: &str) -> Result<Machine> {
    Ok(ElfFile::parse_linked(name, bytes, expected)?.machine)
}

impl<'a> ElfFile<'a> {
    /// Reads the headers of `bytes`, a relocatable object.
    pub(crate) fn parse_object(name: &str, bytes: &'a [u8]) -> Result<Self> {
        let expected = "a little-endian relocatable object (.o), as the compiler makes it before linking";
        ElfFile::parse(name, bytes, expected, OBJECT)
    }

    /// Reads the headers of `bytes`, a linked file. `name` and `expected`, the expected kind of file, are for messages.
    ///
    /// # Errors
    /// [`Error::WrongKind`] if `bytes` are not a linked ELF file, [`Error::Damaged`] if its headers are damaged.
    pub fn parse_linked(name: &str, bytes: &'a [u8], expected: &str) -> Result<Self> {
        ElfFile::parse(name, bytes, expected, LINKED)
    }

    fn parse(name: &str, bytes: &'a [u8], expected: &str, types: &[u16]) -> Result<Self> {
        let (header, ctx, machine) = identify(name, bytes, expected, types)?;
        let sections = section_headers(bytes, &header, ctx).map_err(|problem| Error::Damaged {
            file: name.into(),
            place: "section headers".into(),
            problem,
        })?;
        let name = name.to_string();
        let mut file = ElfFile { name, bytes, ctx, machine, header, sections, names: &[] };
        if let Some(names) = file.name_table() {
            file.names = file.content(names)?;
        }
        Ok(file)
    }

    /// Returns the number of the section that holds the section names, if there is one.
    pub(crate) fn name_table(&self) -> Option<usize> {
        let index = match u32::from(self.header.e_shstrndx) {
            // With 65,280 sections or more the number moves into the null section's link.
            SHN_XINDEX => self.sections.first()?.sh_link as usize,
            index => index as usize,
        };
        (index != 0).then_some(index)
    }

    /// Creates an [`Error::Damaged`] about this file.
    pub fn damaged(&self, place: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Damaged { file: self.name.clone(), place: place.into(), problem: problem.into() }
    }

    /// Describes a section for messages, by its index and name.
    pub fn describe(&self, section: usize) -> String {
        match self.section_name(section) {
            Ok(name) => format!("section {section} ({name})"),
            Err(_) => format!("section {section}"),
        }
    }

    /// Returns the name of a section, by its index.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it lies outside the table of names, [`Error::Unsupported`] if it is not UTF-8.
    pub fn section_name(&self, section: usize) -> Result<&'a str> {
        let offset = self.sections[section].sh_name;
        if self.names.is_empty() && offset == 0 {
            return Ok("");
        }
        self.name_at(self.names, offset, || format!("section {section}"))
    }

    /// Returns the bytes of a section, by its index; none for `SHT_NOBITS`.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there is no such section, or its bytes lie outside the file.
    pub fn content(&self, section: usize) -> Result<&'a [u8]> {
        let Some(header) = self.sections.get(section) else {
            let problem = format!("it does not exist: there are {} sections", self.sections.len());
            return Err(self.damaged(format!("section {section}"), problem));
        };
        if matches!(header.sh_type, SHT_NOBITS | SHT_NULL) {
            return Ok(&[]);
        }
        range(self.bytes, header.sh_offset, header.sh_size).ok_or_else(|| {
            let problem = format!(
                "its {} bytes at offset {} lie outside the file of {} bytes",
                header.sh_size,
                header.sh_offset,
                self.bytes.len()
            );
            self.damaged(self.describe(section), problem)
        })
    }

    /// Returns the bytes of a table section, and the number of its entries of `entry_size` bytes.
    pub(crate) fn table(&self, section: usize, entry_size: usize) -> Result<(&'a [u8], usize)> {
        let bytes = self.content(section)?;
        let declared = self.sections[section].sh_entsize;
        if declared != entry_size as u64 || bytes.len() % entry_size != 0 {
            let problem = format!(
                "{} bytes in entries of {declared}; expected entries of {entry_size} bytes",
                bytes.len()
            );
            return Err(self.damaged(self.describe(section), problem));
        }
        Ok((bytes, bytes.len() / entry_size))
    }

    /// Returns the number of the symbol table section, if there is one.
    pub(crate) fn symbol_table(&self) -> Result<Option<usize>> {
        let mut tables = (0..self.sections.len()).filter(|&s| self.sections[s].sh_type == SHT_SYMTAB);
        let table = tables.next();
        match tables.next() {
            Some(second) => Err(self
                .damaged(self.describe(second), "a second symbol table; expected at most one".to_string())),
            None => Ok(table),
        }
    }

    /// Returns the symbols with their names, in the order of the symbol table; none if the file is stripped.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the table is damaged or there are two, [`Error::Unsupported`] for a name that is not UTF-8.
    pub fn symbols(&self) -> Result<Vec<(Sym, &'a str)>> {
        self.symbol_table()?.map_or(Ok(Vec::new()), |table| self.symbols_in(table))
    }

    /// Returns the symbols of the table in section `table` with their names.
    pub(crate) fn symbols_in(&self, table: usize) -> Result<Vec<(Sym, &'a str)>> {
        let (bytes, count) = self.table(table, Sym::size(self.ctx.container))?;
        let strings = self.content(self.sections[table].sh_link as usize)?;
        let mut symbols = Vec::with_capacity(count);
        let mut offset = 0;
        for index in 0..count {
            let symbol: Sym = bytes
                .gread_with(&mut offset, self.ctx)
                .map_err(|_| self.damaged(self.describe(table), "ends within a symbol"))?;
            let name = match symbol.st_name {
                0 => "",
                at => self.name_at(strings, at, || format!("symbol {index}"))?,
            };
            symbols.push((symbol, name));
        }
        Ok(symbols)
    }

    /// Returns the name of `place`, at `offset` of a string table.
    fn name_at(&self, table: &'a [u8], offset: usize, place: impl FnOnce() -> String) -> Result<&'a str> {
        let rest = table.get(offset..).unwrap_or_default();
        let Some(end) = rest.iter().position(|&byte| byte == 0) else {
            let problem = format!("its name is at {offset} of a table of {} bytes", table.len());
            return Err(self.damaged(place(), problem));
        };
        std::str::from_utf8(&rest[..end]).map_err(|_| Error::not_utf8(&self.name, place(), &rest[..end]))
    }

    /// Returns the build ID in hexadecimal digits.
    pub(crate) fn build_id(&self) -> Result<Option<String>> {
        for index in (0..self.sections.len()).filter(|&index| self.sections[index].sh_type == SHT_NOTE) {
            if let Some(id) = find_note(self.content(index)?, ELF_NOTE_GNU, NT_GNU_BUILD_ID) {
                return Ok(Some(id.iter().map(|byte| format!("{byte:02x}")).collect()));
            }
        }
        Ok(None)
    }
}

/// Returns the content of a note, by its owner and type, from a section or segment of notes that are padded to 4 bytes.
/// `None` if there is no such note before the end or the first damage.
pub fn find_note<'a>(notes: &'a [u8], owner: &[u8], kind: u32) -> Option<&'a [u8]> {
    // Notes of class 64 have the same form.
    let notes = NoteIterator::<FileHeader32<LittleEndian>>::new(LittleEndian, 4, notes).ok()?;
    let mut notes = notes.map_while(Result::ok);
    let found = notes.find(|note| note.name() == owner && note.n_type(LittleEndian) == kind);
    found.map(|note| note.desc())
}

/// Returns `length` bytes at `offset`, if the file has them.
pub(crate) fn range(bytes: &[u8], offset: u64, length: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(length).ok()?)?;
    bytes.get(start..end)
}

/// Whether a file that begins with `head` is LLVM bitcode.
pub fn is_bitcode(head: &[u8]) -> bool {
    BITCODE.iter().any(|magic| head.starts_with(magic))
}

/// Whether a file that begins with `head` is a relocatable object, according to its header.
pub fn is_object(head: &[u8]) -> bool {
    identify("", head, "", OBJECT).is_ok()
}

/// Reads the relocatable object at `path`; only the head of any other file, which [`crate::Object::read`] then refuses.
pub(crate) fn read_object(path: &Path) -> Result<Vec<u8>> {
    read_if(path, is_object)
}

/// Reads the linked file at `path`; only the head of any other file, which the readers of linked files then refuse.
///
/// # Errors
/// [`Error::Read`] if it cannot be read.
pub fn read_linked(path: &Path) -> Result<Vec<u8>> {
    read_if(path, |head| identify("", head, "", LINKED).is_ok())
}

/// Reads the file at `path`: the whole content if `is_wanted` accepts its head, else only the head.
pub(crate) fn read_if(path: &Path, is_wanted: impl FnOnce(&[u8]) -> bool) -> Result<Vec<u8>> {
    read_file_if(path, is_wanted).map_err(|source| Error::Read { path: path.into(), source })
}

/// Reads the ELF header of a file of one of these types (`e_type`). Ignores everything after the header.
fn identify(name: &str, bytes: &[u8], expected: &str, types: &[u16]) -> Result<(Header, Ctx, Machine)> {
    let wrong = |found: String, expected: String| Error::WrongKind { file: name.into(), found, expected };
    let too_short = || Error::Damaged {
        file: name.into(),
        place: "ELF header".into(),
        problem: format!("the file ends after {} bytes", bytes.len()),
    };
    if is_bitcode(bytes) {
        let found = "LLVM bitcode, which clang -flto makes in place of machine code";
        return Err(wrong(found.into(), format!("{expected}; compile it without -flto")));
    }
    let (container, is_64) = match bytes.first_chunk() {
        Some(ident) if ident.starts_with(ELFMAG) => {
            class(ident).map_err(|found| wrong(found.into(), expected.into()))?
        }
        None if bytes.starts_with(ELFMAG) => return Err(too_short()),
        _ if bytes.is_empty() => return Err(wrong("an empty file".into(), expected.into())),
        _ if is_archive(bytes) => return Err(wrong("an archive".into(), expected.into())),
        _ => return Err(wrong("not an ELF file".into(), expected.into())),
    };
    let header: Header = bytes.pread(0).map_err(|_| too_short())?;
    let machine = Machine::from_elf(header.e_machine).filter(|machine| machine.is_64() == is_64);
    let machine = machine.ok_or_else(|| {
        let class = if is_64 { 64 } else { 32 };
        wrong(
            format!("for machine number {} of class {class}", header.e_machine),
            format!("{expected} for i386, x86_64, arm or aarch64"),
        )
    })?;
    if !types.contains(&header.e_type) {
        return Err(wrong(type_name(header.e_type), expected.into()));
    }
    Ok((header, Ctx::new(container, Endian::Little), machine))
}

/// Returns the class of an ELF file, as goblin's container and as whether it is class 64, or the problem of its
/// `e_ident`.
fn class(ident: &[u8; SIZEOF_IDENT]) -> Result<(Container, bool), &'static str> {
    match ident[EI_DATA] {
        ELFDATA2LSB => {}
        ELFDATA2MSB => return Err("big-endian"),
        _ => return Err("an ELF file of unknown byte order"),
    }
    match ident[EI_CLASS] {
        ELFCLASS32 => Ok((Container::Little, false)),
        ELFCLASS64 => Ok((Container::Big, true)),
        _ => Err("an ELF file of unknown class"),
    }
}

/// Describes an `e_type`, for messages.
fn type_name(e_type: u16) -> String {
    match e_type {
        ET_REL => "a relocatable object".into(),
        ET_EXEC => "a linked executable".into(),
        ET_DYN => "a shared object or position-independent executable".into(),
        ET_CORE => "a core dump".into(),
        other => format!("an ELF file of type {other}"),
    }
}

/// Reads the section headers, or returns their problem.
fn section_headers(bytes: &[u8], header: &Header, ctx: Ctx) -> Result<Vec<SectionHeader>, String> {
    if header.e_shoff == 0 {
        return Ok(Vec::new());
    }
    let size = SectionHeader::size(ctx);
    if usize::from(header.e_shentsize) != size {
        return Err(format!("entries of {} bytes; expected {size}", header.e_shentsize));
    }
    let outside = |count: u64| {
        let (offset, length) = (header.e_shoff, bytes.len());
        format!("{count} entries at offset {offset} lie outside the file of {length} bytes")
    };
    let first = range(bytes, header.e_shoff, size as u64).ok_or_else(|| outside(1))?;
    let first: SectionHeader = first.pread_with(0, ctx).map_err(|_| outside(1))?;
    // With 65,280 sections or more the count moves into the null section's size.
    let count = match header.e_shnum {
        0 => first.sh_size,
        count => u64::from(count),
    };
    let length = count.checked_mul(size as u64).ok_or_else(|| outside(count))?;
    let table = range(bytes, header.e_shoff, length).ok_or_else(|| outside(count))?;
    let mut sections = Vec::with_capacity(table.len() / size);
    let mut offset = 0;
    while offset < table.len() {
        sections.push(table.gread_with(&mut offset, ctx).map_err(|_| outside(count))?);
    }
    Ok(sections)
}
