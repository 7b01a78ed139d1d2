//! The input to pack: sections of an ELF file, or a range of any file.

use std::ops::Range;

use goblin::elf::Elf;
use goblin::elf::header::{EI_CLASS, ELFCLASS32, ELFMAG, EM_386, EM_ARM, EM_X86_64, ET_DYN, ET_EXEC, ET_REL};
use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS, SectionHeader};
use thiserror::Error;

use crate::codec::code::InstructionSet;
use crate::codec::pack::Piece;

/// The default sections of a kernel.
pub const SECTIONS: [&str; 2] = [".text", ".rodata"];

/// The reason why nothing can be packed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The file is not a linked ELF file of 32 bits or for x86-64.
    #[error("is {0}; expected a linked ELF file of 32 bits or for x86-64, such as a vmlinux")]
    Kind(&'static str),
    /// The file is a damaged ELF file.
    #[error("is a damaged ELF file: {0}")]
    Damaged(String),
    /// A section is missing.
    #[error("has no section {name} with contents; it has {}", there.join(", "))]
    NoSection {
        /// The section.
        name: String,
        /// The sections that could be named.
        there: Vec<String>,
    },
    /// A range is not within the file.
    #[error("has {size} bytes; the range {:#x}-{:#x} is not within", range.start, range.end)]
    Range {
        /// The size of the file.
        size: usize,
        /// The range.
        range: Range<usize>,
    },
}

/// Checks that a file with this beginning is a linked ELF file of 32 bits or for x86-64.
///
/// # Errors
/// If it is another kind of file, or ends within its header.
pub fn check_header(head: &[u8]) -> Result<(), Error> {
    if !head.starts_with(ELFMAG) {
        return Err(Error::Kind("no ELF file"));
    }
    let header = Elf::parse_header(head).map_err(|error| Error::Damaged(error.to_string()))?;
    if header.e_ident[EI_CLASS] != ELFCLASS32 && header.e_machine != EM_X86_64 {
        return Err(Error::Kind("an ELF file of 64 bits for another machine"));
    }
    match header.e_type {
        ET_EXEC | ET_DYN => Ok(()),
        ET_REL => Err(Error::Kind("an object that is not linked")),
        _ => Err(Error::Kind("an ELF file that is not linked")),
    }
}

/// Returns the sections with these names, in this order.
///
/// # Errors
/// If it is not such a file, or lacks a section.
pub fn sections<S: AsRef<str>>(file: &[u8], names: &[S]) -> Result<Vec<Piece>, Error> {
    check_header(file)?;
    let elf = Elf::parse(file).map_err(|error| Error::Damaged(error.to_string()))?;
    let loaded: Vec<(&str, &SectionHeader)> = elf
        .section_headers
        .iter()
        .filter(|header| header.sh_flags & u64::from(SHF_ALLOC) != 0)
        .filter(|header| header.sh_type != SHT_NOBITS && header.sh_size > 0)
        .filter_map(|header| Some((elf.shdr_strtab.get_at(header.sh_name)?, header)))
        .collect();
    let piece = |name: &S| {
        let name = name.as_ref();
        let Some((_, header)) = loaded.iter().find(|(section, _)| *section == name) else {
            let there = loaded.iter().map(|(section, _)| (*section).to_owned()).collect();
            return Err(Error::NoSection { name: name.to_owned(), there });
        };
        let bytes = header.file_range().and_then(|range| file.get(range));
        let bytes =
            bytes.ok_or_else(|| Error::Damaged(format!("section {name} lies outside of the file")))?;
        let outside = || Error::Damaged(format!("section {name} lies beyond 32 bits of address"));
        // The addresses of a kernel for x86-64 share their upper half.
        let is_high = elf.header.e_machine == EM_X86_64 && header.sh_addr >> 32 == 0xFFFF_FFFF;
        let address = if is_high { header.sh_addr & 0xFFFF_FFFF } else { header.sh_addr };
        let address = u32::try_from(address).map_err(|_| outside())?;
        u64::from(address)
            .checked_add(bytes.len() as u64)
            .filter(|end| *end <= 1 << 32)
            .ok_or_else(outside)?;
        let executable = header.sh_flags & u64::from(SHF_EXECINSTR) != 0;
        let code = match elf.header.e_machine {
            EM_386 if executable => Some(InstructionSet::I386),
            EM_X86_64 if executable => Some(InstructionSet::X86_64),
            EM_ARM if executable => Some(InstructionSet::of_arm(bytes)),
            _ => None,
        };
        Ok(Piece { name: name.to_owned(), address, bytes: bytes.to_vec(), code, leaving: None })
    };
    names.iter().map(piece).collect()
}

/// Returns a range of any file, which runs or is read at `address`.
///
/// # Errors
/// If the file has no such range.
pub fn range(
    file: &[u8],
    range: Range<usize>,
    address: u32,
    code: Option<InstructionSet>,
) -> Result<Piece, Error> {
    let name = format!("{:#x}-{:#x}", range.start, range.end);
    let bytes = file.get(range.clone()).ok_or(Error::Range { size: file.len(), range })?;
    Ok(Piece { name, address, bytes: bytes.to_vec(), code, leaving: None })
}
