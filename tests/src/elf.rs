//! Functions, tables and code of an object, counted from its symbols and relocations without the tools under test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use goblin::elf::header::{EM_386, EM_ARM, EM_X86_64};
use goblin::elf::note::NT_GNU_BUILD_ID;
use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_REL, SHT_RELA};
use goblin::elf::sym::{STB_LOCAL, STT_FUNC};
use goblin::elf::{Elf, Reloc, Sym};

/// Counts over an object or program for i386, x86-64 or 32-bit ARM.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Names of functions, each once for every definition.
    pub functions: Vec<String>,
    /// Tables in data of places within functions: of `switch` statements (except on ARM, where they are in code), and
    /// of labels whose address is taken. Tables of distances are not counted.
    pub jump_tables: usize,
    /// Bytes of executable sections.
    pub code_bytes: u64,
}

impl Contents {
    /// Counts.
    pub fn of(path: &Path) -> Contents {
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let elf = Elf::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let known = [EM_386, EM_ARM, EM_X86_64].contains(&elf.header.e_machine);
        assert!(known, "{}: neither for i386 nor x86-64 nor 32-bit ARM", path.display());
        let defined = elf.syms.iter().filter(|symbol| symbol.st_type() == STT_FUNC && symbol.st_shndx != 0);
        let name = |symbol: Sym| elf.strtab.get_at(symbol.st_name).unwrap_or_default().to_owned();
        let code = elf.section_headers.iter().filter(|section| is_code(section.sh_flags));
        Contents {
            functions: defined.map(name).collect(),
            jump_tables: jump_tables(&elf, &bytes),
            code_bytes: code.map(|section| section.sh_size).sum(),
        }
    }
}

/// Bytes of executable sections of an object or program of any machine.
pub fn code_bytes(path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let elf = Elf::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let code = elf.section_headers.iter().filter(|section| is_code(section.sh_flags));
    code.map(|section| section.sh_size).sum()
}

/// The build id of a linked file, in lower-case hexadecimal digits.
pub fn build_id(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let elf = Elf::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut notes = elf.iter_note_headers(&bytes).into_iter().flatten().filter_map(Result::ok);
    let id = notes.find(|note| note.n_type == NT_GNU_BUILD_ID && note.name == "GNU").map(|note| note.desc);
    let id = id.unwrap_or_else(|| panic!("{}: no build id", path.display()));
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The addresses and sizes in bytes of these global symbols of a file, in the order of their names.
pub fn globals<const N: usize>(path: &Path, names: [&str; N]) -> [(u64, u64); N] {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let elf = Elf::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    names.map(|name| {
        let is_it =
            |symbol: &Sym| symbol.st_bind() != STB_LOCAL && elf.strtab.get_at(symbol.st_name) == Some(name);
        let symbol = elf.syms.iter().find(is_it);
        let symbol = symbol.unwrap_or_else(|| panic!("{}: no symbol {name}", path.display()));
        (symbol.st_value, symbol.st_size)
    })
}

fn is_code(flags: u64) -> bool {
    let wanted = u64::from(SHF_ALLOC | SHF_EXECINSTR);
    flags & wanted == wanted
}

/// Places in data that code names, with a reference to code that is not a function.
fn jump_tables(elf: &Elf<'_>, bytes: &[u8]) -> usize {
    let functions: BTreeSet<(usize, u64)> = elf
        .syms
        .iter()
        .filter(|symbol| symbol.st_type() == STT_FUNC)
        .map(|symbol| (symbol.st_shndx, symbol.st_value))
        .collect();
    let (mut named, mut labels) = (BTreeSet::new(), BTreeSet::new());
    for (index, relocs) in &elf.shdr_relocs {
        let header = &elf.section_headers[*index];
        let section = header.sh_info as usize;
        let from_code = is_code(elf.section_headers[section].sh_flags);
        for reloc in relocs.iter().filter(|_| matches!(header.sh_type, SHT_REL | SHT_RELA)) {
            let Some(target) = target(elf, bytes, section, &reloc) else { continue };
            let to_code = is_code(elf.section_headers[target.0].sh_flags);
            if from_code && !to_code {
                named.insert(target);
            } else if !from_code && to_code && !functions.contains(&target) {
                labels.insert((section, reloc.r_offset));
            }
        }
    }
    named.intersection(&labels).count()
}

/// The section and the offset of a relocation that names a section or label. The addend is in the relocation or in place.
fn target(elf: &Elf<'_>, bytes: &[u8], section: usize, reloc: &Reloc) -> Option<(usize, u64)> {
    let symbol = elf.syms.get(reloc.r_sym)?;
    let is_defined = (1..elf.section_headers.len()).contains(&symbol.st_shndx);
    if symbol.st_type() == STT_FUNC || !is_defined {
        return None;
    }
    let field = (elf.section_headers[section].sh_offset + reloc.r_offset) as usize;
    let in_place = || Some(u32::from_le_bytes(bytes.get(field..field + 4)?.try_into().ok()?).into());
    let addend = reloc.r_addend.or_else(in_place)?;
    Some((symbol.st_shndx, symbol.st_value.wrapping_add_signed(addend)))
}

/// Returns the functions of a linked file by address; of several at one address, the first one.
pub fn functions(path: &Path) -> BTreeMap<u64, String> {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let elf = Elf::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut functions = BTreeMap::new();
    for symbol in elf.syms.iter().filter(|symbol| symbol.st_type() == STT_FUNC && !symbol.is_import()) {
        let name = elf.strtab.get_at(symbol.st_name).unwrap_or_default();
        functions.entry(symbol.st_value).or_insert_with(|| name.to_owned());
    }
    functions
}
