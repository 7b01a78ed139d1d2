//! Addresses that a link decides. The object has a section of words with these addresses, which the linked file keeps, and
//! no boot image contains.

use std::path::Path;

use goblin::elf::Elf;
use goblin::elf::section_header::SHT_PROGBITS;
use kcli::Failure;
use kelf::{Machine, Object, Reloc, RelocClass, Section, SymbolIndex, reloc};

/// Makes a section a root of `ld --gc-sections`, so that the targets are kept (<https://sourceware.org/gnu-gabi/>).
const SHF_GNU_RETAIN: u64 = 1 << 21;

/// A section of addresses. Every linker script of the kernel keeps its name (`STABS_DEBUG` of
/// include/asm-generic/vmlinux.lds.h), which compilers no longer use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// What frozen code and data refer to.
    Frozen,
    /// What tables for unwinding are about.
    Unwinding,
}

impl Purpose {
    /// The name of the section.
    pub fn section(self) -> &'static str {
        match self {
            Purpose::Frozen => ".stab.index",
            Purpose::Unwinding => ".stab.excl",
        }
    }
}

/// Returns the relocation of the word with this number, for a symbol and an addend.
pub fn word(machine: Machine, number: usize, symbol: SymbolIndex, addend: i64) -> Reloc {
    Reloc {
        offset: 4 * number as u64,
        r_type: reloc::absolute_32(machine),
        class: RelocClass::Absolute,
        width: 4,
        symbol,
        addend,
    }
}

/// Adds a section with these words to an object.
pub fn add(object: &mut Object<'_>, purpose: Purpose, words: Vec<Reloc>) {
    let size = 4 * words.len();
    object.sections.push(Section {
        name: purpose.section(),
        kind: SHT_PROGBITS,
        flags: SHF_GNU_RETAIN,
        align: 4,
        size: size as u64,
        data: vec![0; size].into(),
        relocs: words,
        ..Section::null()
    });
}

/// Reads the addresses from a linked kernel, which must be this many.
///
/// # Errors
/// If the kernel was not linked from such an object.
pub fn read(vmlinux: &Path, purpose: Purpose, count: usize) -> Result<Vec<u32>, Failure> {
    let bytes = std::fs::read(vmlinux)?;
    let bad = |problem: &str| Failure::job(format!("{}: {problem}", vmlinux.display()));
    let elf = Elf::parse(&bytes).map_err(|error| bad(&error.to_string()))?;
    let name = purpose.section();
    let is_it = |at: usize| elf.shdr_strtab.get_at(at) == Some(name);
    let header = elf.section_headers.iter().find(|header| is_it(header.sh_name));
    let content = header.and_then(|header| header.file_range()).and_then(|range| bytes.get(range));
    let words = content.map_or(&[][..], |content| content).chunks_exact(4);
    let words: Vec<u32> =
        words.map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
    if words.len() != count {
        return Err(bad(&format!("has {} words in {name}; expected {count}", words.len())));
    }
    Ok(words)
}
