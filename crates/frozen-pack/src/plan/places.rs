//! Where the linker put the input sections of a kernel.
//!
//! The linked kernel does not say so, but its symbols do, global ones, and local ones by their source file. What is at an
//! address names others: a relocation of a section whose address is known was filled in with the address of what it refers
//! to. So places are found from code to the data that it refers to, and on from there. That also tells where the linker put
//! a string or constant that it merged with others (`SHF_MERGE`), as far as something refers to its beginning.

use std::collections::hash_map::Entry;

use goblin::elf::Elf;
use goblin::elf::section_header::{SHF_ALLOC, SHF_MERGE, SHF_STRINGS, SHT_NOBITS};
use goblin::elf::sym::{STB_LOCAL, STT_FILE, STT_SECTION};
use kelf::{Definition, ObjectIndex, Place, Program, Reloc, RelocClass, Section, SectionIndex};
use rustc_hash::FxHashMap;

/// Tables that the kernel's build sorts after the link, so that an entry is not where its relocations were (scripts/sorttable.c).
const SORTED: [&str; 3] = ["__ex_table", "__mcount_loc", ".orc_unwind"];

/// An input section.
type Input = (ObjectIndex, SectionIndex);

/// Where the input sections are.
pub struct Places<'p> {
    program: &'p Program<'p>,
    /// The addresses of sections that the linker moves as a whole.
    sections: FxHashMap<Input, u64>,
    /// Of the others, by offset: the addresses of strings and constants.
    merged: FxHashMap<(Input, u64), u64>,
    /// Sections whose relocations are still to be read.
    pending: Vec<Input>,
}

/// A linked kernel.
struct Linked<'b> {
    bytes: &'b [u8],
    elf: Elf<'b>,
}

/// Local symbols with what is to be known of them, by their source file and name, given with their types (`STT_*`) in the
/// order of a table of symbols. `None` for several that are called the same.
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
    /// The word of 32 bits at an address.
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
    /// Finds the places of a program's sections in what was linked from it, given its bytes; none if it is no ELF file.
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

    /// Takes down that what is at an offset of a section is at an address. What is known stays.
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

    /// Finds what a section refers to.
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
            // The linker takes symbol and addend together for the string that is meant.
            true if reloc.class == RelocClass::Absolute && reloc.addend >= 0 => {
                self.found(input, reloc.addend as u64, word);
            }
            true => {}
            false => self.found(input, symbol.value, of_symbol),
        }
    }

    /// The address of the `size` bytes at an offset of a section.
    pub fn address(&self, input: Input, offset: u64, size: u64) -> Option<u64> {
        let section = self.section(input);
        if section.flags & u64::from(SHF_MERGE) == 0 {
            return Some(self.sections.get(&input)?.wrapping_add(offset));
        }
        // Where several strings or constants are one node, they may have gone to several places.
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
