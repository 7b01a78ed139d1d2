//! The addresses of a kernel's input sections.
//!
//! The linked kernel does not record them, but has symbols: global ones, and local ones by their source file. The bytes
//! at a known address lead to further ones: the relocations of a section are filled in with the addresses of their
//! targets. So the search proceeds from code to the data that it refers to, and on from there. It also finds the
//! addresses of strings and constants that the linker merged (`SHF_MERGE`), if something refers to their start.

use std::collections::hash_map::Entry;

use goblin::elf::Elf;
use goblin::elf::section_header::{SHF_ALLOC, SHF_MERGE, SHF_STRINGS, SHT_NOBITS};
use goblin::elf::sym::{STB_LOCAL, STT_FILE, STT_SECTION};
use kelf::{Definition, ObjectIndex, Place, Program, Reloc, RelocClass, Section, SectionIndex};
use rustc_hash::FxHashMap;

/// Tables that the kernel's build sorts after the link, so that entries are no longer at their relocations
/// (scripts/sorttable.c).
const SORTED: [&str; 3] = ["__ex_table", "__mcount_loc", ".orc_unwind"];

/// An input section.
type Input = (ObjectIndex, SectionIndex);

/// The addresses of input sections.
pub struct Places<'p> {
    program: &'p Program<'p>,
    /// The addresses of sections that are placed as a whole.
    sections: FxHashMap<Input, u64>,
    /// The addresses of merged strings and constants, by section and offset.
    merged: FxHashMap<(Input, u64), u64>,
    /// Sections whose relocations have not been read yet.
    pending: Vec<Input>,
}

/// A linked kernel.
struct Linked<'b> {
    bytes: &'b [u8],
    elf: Elf<'b>,
}

/// Maps local symbols, by their source file and name, to their data. The symbols are given with their types (`STT_*`)
/// in the order of a symbol table. `None` for several with the same name.
fn locals<'s, T>(
    symbols: impl Iterator<Item = (&'s str, u8, T)>,
) -> FxHashMap<(&'s str, &'s str), Option<T>> {
    let mut file = "";
    let mut found = FxHashMap::default();
    for (name, kind, symbol) in symbols {
        match kind {
            STT_FILE => file = name,
            STT_SECTION => {}
            _ if name.is_empty() => {}
            _ => match found.entry((file, name)) {
                Entry::Vacant(entry) => drop(entry.insert(Some(symbol))),
                Entry::Occupied(mut entry) => drop(entry.insert(None)),
            },
        }
    }
    found
}

impl Linked<'_> {
    /// Returns the 32-bit word at an address.
    fn word(&self, address: u64) -> Option<u32> {
        let has = |address: u64| {
            self.elf.section_headers.iter().find(|header| {
                header.sh_flags & u64::from(SHF_ALLOC) != 0
                    && header.sh_type != SHT_NOBITS
                    && (header.sh_addr..header.sh_addr + header.sh_size).contains(&address)
            })
        };
        let header = has(address)?;
        let at = usize::try_from(header.sh_offset + (address - header.sh_addr)).ok()?;
        self.bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
    }
}

impl<'p> Places<'p> {
    /// Finds the addresses of a program's sections in the linked file, given its bytes; none if it is not an ELF file.
    pub fn of(program: &'p Program<'p>, linked: &[u8]) -> Places<'p> {
        let (sections, merged, pending) = Default::default();
        let mut places = Places { program, sections, merged, pending };
        let Ok(elf) = Elf::parse(linked) else { return places };
        let linked = Linked { bytes: linked, elf };
        let globals = linked.elf.syms.iter().filter(|symbol| symbol.st_bind() != STB_LOCAL);
        let globals = globals.filter_map(|symbol| Some((linked.elf.strtab.get_at(symbol.st_name)?, symbol)));
        let globals: FxHashMap<&str, u64> = globals.map(|(name, symbol)| (name, symbol.st_value)).collect();
        for (_, name, global) in program.globals() {
            if let (Definition::In(object, symbol), Some(&address)) = (global.definition, globals.get(name)) {
                let symbol = program.symbol(object, symbol);
                if let Place::Section(section) = symbol.place {
                    places.found((object, section), symbol.value, address);
                }
            }
        }
        let symbols = linked.elf.syms.iter().filter(|symbol| symbol.st_bind() == STB_LOCAL);
        let symbols = symbols.filter_map(|symbol| {
            let name = linked.elf.strtab.get_at(symbol.st_name)?;
            Some((name, symbol.st_type(), symbol.st_value))
        });
        let linked_locals = locals(symbols);
        let symbols = program.objects.iter().zip(0u32..).flat_map(|(input, object)| {
            let local = input.object.symbols.iter().filter(|symbol| symbol.is_local());
            local.map(move |symbol| (symbol.name, symbol.kind, (ObjectIndex(object), symbol)))
        });
        for (name, local) in locals(symbols) {
            if let (Some((object, symbol)), Some(&Some(address))) = (local, linked_locals.get(&name))
                && let Place::Section(section) = symbol.place
            {
                places.found((object, section), symbol.value, address);
            }
        }
        while let Some(input) = places.pending.pop() {
            places.follow(input, &linked);
        }
        places
    }

    fn section(&self, (object, section): Input) -> &'p Section<'p> {
        self.program.object(object).section(section)
    }

    /// Records the address of an offset in a section, unless it is known already.
    fn found(&mut self, input: Input, offset: u64, address: u64) {
        if self.section(input).flags & u64::from(SHF_MERGE) != 0 {
            self.merged.entry((input, offset)).or_insert(address);
            return;
        }
        let pending = &mut self.pending;
        self.sections.entry(input).or_insert_with(|| {
            pending.push(input);
            address.wrapping_sub(offset)
        });
    }

    /// Finds the targets of a section's relocations.
    fn follow(&mut self, input: Input, linked: &Linked<'_>) {
        let section = self.section(input);
        if SORTED.iter().any(|name| section.name.starts_with(name)) {
            return;
        }
        let start = self.sections[&input];
        for reloc in section.relocs.iter().filter(|reloc| reloc.width == 4) {
            let at = start.wrapping_add(reloc.offset);
            if let Some(word) = linked.word(at) {
                self.follow_reloc(input.0, reloc, at, u64::from(word));
            }
        }
    }

    fn follow_reloc(&mut self, object: ObjectIndex, reloc: &Reloc, at: u64, word: u64) {
        let Some((object, symbol)) = self.program.definition(self.program.resolve(object, reloc.symbol))
        else {
            return;
        };
        let symbol = self.program.symbol(object, symbol);
        let Place::Section(section) = symbol.place else { return };
        let input = (object, section);
        let of_symbol = match reloc.class {
            RelocClass::Absolute => word,
            RelocClass::Relative | RelocClass::Branch => word.wrapping_add(at),
            _ => return,
        };
        let of_symbol = of_symbol.wrapping_sub(reloc.addend as u64) & u64::from(u32::MAX);
        let is_merged = self.section(input).flags & u64::from(SHF_MERGE) != 0;
        match is_merged && symbol.kind == STT_SECTION {
            // The linker interprets symbol and addend together as the address of a string.
            true if reloc.class == RelocClass::Absolute && reloc.addend >= 0 => {
                self.found(input, reloc.addend as u64, word);
            }
            true => {}
            false => self.found(input, symbol.value, of_symbol),
        }
    }

    /// Returns the address of the `size` bytes at an offset of a section.
    pub fn address(&self, input: Input, offset: u64, size: u64) -> Option<u64> {
        let section = self.section(input);
        if section.flags & u64::from(SHF_MERGE) == 0 {
            return Some(self.sections.get(&input)?.wrapping_add(offset));
        }
        // If several strings or constants are one node, the linker may have separated them.
        let is_one = match section.flags & u64::from(SHF_STRINGS) != 0 {
            true => {
                let bytes =
                    section.data.get(usize::try_from(offset).ok()?..)?.get(..usize::try_from(size).ok()?)?;
                section.entsize == 1 && bytes.iter().position(|&byte| byte == 0) == bytes.len().checked_sub(1)
            }
            false => size == section.entsize,
        };
        self.merged.get(&(input, offset)).copied().filter(|_| is_one)
    }
}
