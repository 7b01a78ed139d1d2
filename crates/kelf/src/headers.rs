//! The ELF header, section headers, names and symbols of any ELF file, checked.
//!
//! Relocatable objects ([`crate::read`]) and linked kernels ([`crate::size`]) share this part.
//! goblin parses each entry; the loops are ours, because goblin's own constructors take what they
//! can get of a damaged file, while a rewriter must refuse one, and say where it is broken. Every
//! offset is compared with the file's length before anything is allocated for it.

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::header::{
    EI_CLASS, EI_DATA, ELFCLASS32, ELFCLASS64, ELFDATA2LSB, ELFDATA2MSB, ELFMAG, ET_CORE, ET_DYN, ET_EXEC,
    ET_REL, Header,
};
use goblin::elf::section_header::{SHN_XINDEX, SHT_NOBITS, SHT_NOTE, SHT_NULL, SHT_SYMTAB, SectionHeader};
use goblin::elf::sym::Sym;
use scroll::Pread;

use crate::error::{Error, Result};
use crate::machine::Machine;

/// Size in bytes of `e_ident`.
const IDENT_SIZE: usize = 16;

/// An ELF file whose header and section headers are in order.
pub(crate) struct ElfFile<'a> {
    pub name: String,
    pub bytes: &'a [u8],
    pub ctx: Ctx,
    pub machine: Machine,
    pub header: Header,
    pub sections: Vec<SectionHeader>,
    names: &'a [u8],
}

impl<'a> ElfFile<'a> {
    /// Reads the headers of `bytes`. `expected` says what kind of file is wanted, for messages.
    pub fn parse(name: &str, bytes: &'a [u8], expected: &str) -> Result<Self> {
        let (container, machine_free) = identify(name, bytes, expected)?;
        let damaged =
            |place: &str, problem: String| Error::Damaged { file: name.into(), place: place.into(), problem };
        let header: Header = bytes
            .pread(0)
            .map_err(|_| damaged("ELF header", format!("the file ends after {} bytes", bytes.len())))?;
        let machine = Machine::from_elf(header.e_machine)
            .filter(|machine| machine.is_64() == machine_free)
            .ok_or_else(|| Error::WrongKind {
            file: name.into(),
            found: format!(
                "for machine number {} of class {}",
                header.e_machine,
                if machine_free { 64 } else { 32 }
            ),
            expected: format!("{expected} for i386, x86_64, arm or aarch64"),
        })?;
        let ctx = Ctx::new(container, Endian::Little);
        let sections =
            section_headers(bytes, &header, ctx).map_err(|problem| damaged("section headers", problem))?;
        let name = name.to_string();
        let mut file = ElfFile { name, bytes, ctx, machine, header, sections, names: &[] };
        if let Some(names) = file.name_table() {
            file.names = file.content(names)?;
        }
        Ok(file)
    }

    /// Reads the headers of `bytes`, a file that has been linked.
    pub fn parse_linked(name: &str, bytes: &'a [u8], expected: &str) -> Result<Self> {
        let file = ElfFile::parse(name, bytes, expected)?;
        if !matches!(file.header.e_type, ET_EXEC | ET_DYN) {
            let found = type_name(file.header.e_type);
            return Err(Error::WrongKind { file: file.name, found, expected: expected.into() });
        }
        Ok(file)
    }

    /// The number of the section that holds the section names, if there is one.
    pub fn name_table(&self) -> Option<usize> {
        let index = match u32::from(self.header.e_shstrndx) {
            // With 65,280 sections or more the number moves into the null section's link.
            SHN_XINDEX => self.sections.first()?.sh_link as usize,
            index => index as usize,
        };
        (index != 0).then_some(index)
    }

    /// A [`Error::Damaged`] about this file.
    pub fn damaged(&self, place: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Damaged { file: self.name.clone(), place: place.into(), problem: problem.into() }
    }

    /// The section as it is called in messages.
    pub fn describe(&self, section: usize) -> String {
        match self.section_name(section) {
            Ok(name) => format!("section {section} ({name})"),
            Err(_) => format!("section {section}"),
        }
    }

    /// Name of a section.
    pub fn section_name(&self, section: usize) -> Result<&'a str> {
        let offset = self.sections[section].sh_name;
        if self.names.is_empty() && offset == 0 {
            return Ok("");
        }
        string(self.names, offset).ok_or_else(|| {
            let size = self.names.len();
            self.damaged(
                format!("section {section}"),
                format!("its name is at {offset} of a table of {size} bytes, or not UTF-8"),
            )
        })
    }

    /// Bytes of a section; none for `SHT_NOBITS`.
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

    /// Bytes of a table section, and the number of its entries of `entry_size` bytes.
    pub fn table(&self, section: usize, entry_size: usize) -> Result<(&'a [u8], usize)> {
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

    /// The number of the symbol table section, if there is one.
    pub fn symbol_table(&self) -> Result<Option<usize>> {
        let mut tables = (0..self.sections.len()).filter(|&s| self.sections[s].sh_type == SHT_SYMTAB);
        let table = tables.next();
        match tables.next() {
            Some(second) => Err(self
                .damaged(self.describe(second), "a second symbol table; expected at most one".to_string())),
            None => Ok(table),
        }
    }

    /// The symbols of table `table` with their names.
    pub fn symbols(&self, table: usize) -> Result<Vec<(Sym, &'a str)>> {
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
                at => string(strings, at).ok_or_else(|| {
                    let size = strings.len();
                    let problem = format!("its name is at {at} of a table of {size} bytes, or not UTF-8");
                    self.damaged(format!("symbol {index}"), problem)
                })?,
            };
            symbols.push((symbol, name));
        }
        Ok(symbols)
    }

    /// The build ID in hexadecimal digits, from a note of type `NT_GNU_BUILD_ID` (3) of the owner `GNU`.
    pub fn build_id(&self) -> Result<Option<String>> {
        for (index, header) in self.sections.iter().enumerate() {
            if header.sh_type != SHT_NOTE {
                continue;
            }
            let mut notes = self.content(index)?;
            // Name size, content size, type; then name and content, each padded to 4 bytes.
            while let Some((head, rest)) = notes.split_at_checked(12) {
                let word = |at: usize| {
                    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize
                };
                let (name_size, content_size) = (word(0), word(4));
                let content_at = name_size.next_multiple_of(4);
                let content = rest.get(content_at..content_at.saturating_add(content_size));
                let Some(content) = content else { break };
                if word(8) == 3 && rest.starts_with(b"GNU\0") && name_size == 4 {
                    return Ok(Some(content.iter().map(|byte| format!("{byte:02x}")).collect()));
                }
                let Some(next) = rest.get(content_at + content_size.next_multiple_of(4)..) else { break };
                notes = next;
            }
        }
        Ok(None)
    }
}

/// `length` bytes at `offset`, if the file has them.
pub(crate) fn range(bytes: &[u8], offset: u64, length: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(length).ok()?)?;
    bytes.get(start..end)
}

/// The string at `offset` of a string table.
fn string(table: &[u8], offset: usize) -> Option<&str> {
    let rest = table.get(offset..)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

/// Class of an ELF file, as goblin's container and as whether it is of class 64.
fn identify(name: &str, bytes: &[u8], expected: &str) -> Result<(Container, bool)> {
    let wrong =
        |found: &str| Error::WrongKind { file: name.into(), found: found.into(), expected: expected.into() };
    if bytes.is_empty() {
        return Err(wrong("an empty file"));
    }
    if bytes.starts_with(b"!<arch>\n") || bytes.starts_with(b"!<thin>\n") {
        return Err(wrong("an archive"));
    }
    if bytes.starts_with(b"BC\xc0\xde") {
        return Err(wrong("LLVM bitcode (a build with LTO)"));
    }
    if !bytes.starts_with(ELFMAG) {
        return Err(wrong("not an ELF file"));
    }
    if bytes.len() < IDENT_SIZE {
        return Err(Error::Damaged {
            file: name.into(),
            place: "ELF header".into(),
            problem: format!("the file ends after {} bytes", bytes.len()),
        });
    }
    match bytes[EI_DATA] {
        ELFDATA2LSB => {}
        ELFDATA2MSB => return Err(wrong("big-endian")),
        _ => return Err(wrong("an ELF file of unknown byte order")),
    }
    match bytes[EI_CLASS] {
        ELFCLASS32 => Ok((Container::Little, false)),
        ELFCLASS64 => Ok((Container::Big, true)),
        _ => Err(wrong("an ELF file of unknown class")),
    }
}

/// What `e_type` means, for messages.
pub(crate) fn type_name(e_type: u16) -> String {
    match e_type {
        ET_REL => "a relocatable object".into(),
        ET_EXEC => "a linked executable".into(),
        ET_DYN => "a shared object or position-independent executable".into(),
        ET_CORE => "a core dump".into(),
        other => format!("an ELF file of type {other}"),
    }
}

/// Reads the section headers, or says what is wrong with them.
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
