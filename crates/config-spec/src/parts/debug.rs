//! The source lines of an object's code and variables, from its debugging information.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use addr2line::Context;
use gimli::{
    AttributeValue, DebuggingInformationEntry, Dwarf, EndianSlice, LittleEndian, Operation, Relocate,
    RelocateReader, SectionId, Unit, constants,
};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// Bytes of an object, and the lines that made them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceLines {
    /// The names of the files.
    pub files: Vec<String>,
    /// The names of the sections that are in memory.
    pub sections: Vec<String>,
    /// Code and variables.
    pub spans: Vec<Span>,
}

/// Bytes of a section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The number of the section in [`SourceLines::sections`].
    pub section: usize,
    /// Offsets in bytes in it. The end of a variable is one behind its start.
    pub bytes: Range<u32>,
    /// The lines: for code the line of the instruction, and the lines of the calls that it was inlined for; for a
    /// variable the line of its definition. Each with the number of its file.
    pub places: Vec<(usize, u32)>,
}

type Reader<'a> = RelocateReader<EndianSlice<'a, LittleEndian>, &'a Relocations>;

/// The values that relocations of a section add, by the offset of the field. `None`: the field is not relocated by a
/// section in memory.
#[derive(Debug, Default)]
struct Relocations(FxHashMap<usize, Value>);

/// What a relocation makes of a field.
#[derive(Clone, Copy, Debug)]
struct Value {
    added: u64,
    is_implicit: bool,
}

impl Relocations {
    fn apply(&self, offset: usize, value: u64) -> u64 {
        match self.0.get(&offset) {
            Some(Value { added, is_implicit: true }) => value.wrapping_add(*added) & u64::from(u32::MAX),
            Some(Value { added, .. }) => *added,
            None => value,
        }
    }
}

impl Relocate for &Relocations {
    fn relocate_address(&self, offset: usize, value: u64) -> gimli::Result<u64> {
        Ok(self.apply(offset, value))
    }

    fn relocate_offset(&self, offset: usize, value: usize) -> gimli::Result<usize> {
        usize::try_from(self.apply(offset, value as u64)).map_err(|_| gimli::Error::UnsupportedOffset)
    }
}

/// The sections of an object in memory, at addresses that do not overlap.
struct Placed {
    /// Number in the object's table, address, size, and whether it holds code.
    sections: Vec<(usize, u64, u64, bool)>,
}

impl Placed {
    fn of(file: &object::File<'_>) -> Placed {
        let mut next = 0x1000u64;
        let placed = |section: object::Section<'_, '_>| {
            let (address, size) = (next, section.size());
            next += size.next_multiple_of(0x1000) + 0x1000;
            let is_code = section.kind() == object::SectionKind::Text;
            (section.index().0, address, size, is_code)
        };
        Placed { sections: file.sections().filter(is_in_memory).map(placed).collect() }
    }

    fn address(&self, section: usize) -> u64 {
        self.sections.iter().find(|(index, ..)| *index == section).map_or(0, |(_, address, ..)| *address)
    }

    /// Returns the number of the section of an address, and the offset in it.
    fn find(&self, address: u64) -> Option<(usize, u32)> {
        let number =
            self.sections.iter().position(|(_, start, size, _)| (*start..start + size).contains(&address))?;
        Some((number, u32::try_from(address - self.sections[number].1).ok()?))
    }
}

/// Whether a section is in memory (`SHF_ALLOC`).
pub fn is_in_memory(section: &object::Section<'_, '_>) -> bool {
    let object::SectionFlags::Elf { sh_flags } = section.flags() else { return false };
    sh_flags & u64::from(object::elf::SHF_ALLOC) != 0
}

impl SourceLines {
    /// Whether every number in it is one of its files or sections, as in a file that is not damaged.
    pub fn is_whole(&self) -> bool {
        let is_whole = |span: &Span| {
            span.section < self.sections.len() && span.places.iter().all(|(file, _)| *file < self.files.len())
        };
        self.spans.iter().all(is_whole)
    }

    /// Reads the lines of an object that is not linked.
    ///
    /// # Errors
    /// If its debugging information cannot be read.
    pub fn read(object: &[u8]) -> Result<SourceLines, String> {
        let file = object::File::parse(object).map_err(|error| error.to_string())?;
        let placed = Placed::of(&file);
        let mut contents: BTreeMap<&str, (Cow<'_, [u8]>, Relocations)> = BTreeMap::new();
        for section in file.sections().filter(|section| !is_in_memory(section)) {
            let Ok(
                name @ (".debug_abbrev" | ".debug_addr" | ".debug_info" | ".debug_line" | ".debug_line_str"
                | ".debug_ranges" | ".debug_rnglists" | ".debug_str" | ".debug_str_offsets"),
            ) = section.name()
            else {
                continue;
            };
            let data = section.uncompressed_data().map_err(|error| error.to_string())?;
            contents.insert(name, (data, relocations(&file, &section, &placed)));
        }
        let none = Relocations::default();
        let load = |id: SectionId| -> gimli::Result<Reader<'_>> {
            let (data, relocations) =
                contents.get(id.name()).map_or((&[][..], &none), |(data, own)| (&**data, own));
            Ok(RelocateReader::new(EndianSlice::new(data, LittleEndian), relocations))
        };
        let dwarf = Dwarf::load(load).map_err(|error| error.to_string())?;
        let mut lines = Collector::default();
        lines.variables(&dwarf, &placed).map_err(|error| error.to_string())?;
        lines.code(dwarf, &placed).map_err(|error| error.to_string())?;
        let section = |section: object::Section<'_, '_>| section.name().unwrap_or_default().to_owned();
        let sections = file.sections().filter(is_in_memory).map(section).collect();
        Ok(SourceLines { files: lines.files, sections, spans: lines.spans })
    }
}

/// Returns the effects of a section's relocations.
fn relocations(file: &object::File<'_>, section: &object::Section<'_, '_>, placed: &Placed) -> Relocations {
    let effect = |(offset, relocation): (u64, object::Relocation)| {
        let target = match relocation.target() {
            RelocationTarget::Symbol(index) => {
                let symbol = file.symbol_by_index(index).ok()?;
                let start = symbol.section_index().map_or(0, |section| placed.address(section.0));
                start.wrapping_add(symbol.address())
            }
            RelocationTarget::Section(index) => placed.address(index.0),
            _ => return None,
        };
        let added = target.wrapping_add(relocation.addend() as u64);
        Some((offset as usize, Value { added, is_implicit: relocation.has_implicit_addend() }))
    };
    Relocations(section.relocations().filter_map(effect).collect())
}

/// The lines that were read so far.
#[derive(Default)]
struct Collector {
    files: Vec<String>,
    numbers: FxHashMap<String, usize>,
    spans: Vec<Span>,
}

impl Collector {
    fn file(&mut self, name: &str) -> usize {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        self.files.push(name.to_owned());
        self.numbers.insert(name.to_owned(), self.files.len() - 1);
        self.files.len() - 1
    }

    fn code(&mut self, dwarf: Dwarf<Reader<'_>>, placed: &Placed) -> gimli::Result<()> {
        let context = Context::from_dwarf(dwarf)?;
        for (number, &(_, start, size, _)) in
            placed.sections.iter().enumerate().filter(|(_, section)| section.3)
        {
            for (address, length, _) in context.find_location_range(start, start + size)? {
                let mut frames = context.find_frames(address).skip_all_loads()?;
                let mut places = Vec::new();
                while let Some(frame) = frames.next()? {
                    if let Some(location) = frame.location
                        && let (Some(file), Some(line)) = (location.file, location.line)
                    {
                        places.push((self.file(file), line));
                    }
                }
                let first = address.max(start) - start;
                let end = (first + length).min(size);
                self.spans.push(Span { section: number, bytes: first as u32..end as u32, places });
            }
        }
        Ok(())
    }

    fn variables(&mut self, dwarf: &Dwarf<Reader<'_>>, placed: &Placed) -> gimli::Result<()> {
        let mut headers = dwarf.units();
        while let Some(header) = headers.next()? {
            let unit = dwarf.unit(header)?;
            // The rest of split debugging information is in another file.
            if unit.dwo_name()?.is_some() {
                return Err(gimli::Error::MissingUnitDie);
            }
            let mut entries = unit.entries();
            while let Some(entry) = entries.next_dfs()? {
                if entry.tag() != constants::DW_TAG_variable {
                    continue;
                }
                let Some((section, offset)) = address(entry, &unit)?.and_then(|address| placed.find(address))
                else {
                    continue;
                };
                let (Some(AttributeValue::FileIndex(file)), Some(line)) = (
                    entry.attr_value(constants::DW_AT_decl_file),
                    entry.attr_value(constants::DW_AT_decl_line),
                ) else {
                    continue;
                };
                let (Some(name), Some(line)) = (file_name(dwarf, &unit, file)?, line.udata_value()) else {
                    continue;
                };
                let places = vec![(self.file(&name), line as u32)];
                self.spans.push(Span { section, bytes: offset..offset + 1, places });
            }
        }
        Ok(())
    }
}

/// Returns the address of a variable, if it has one.
fn address(
    entry: &DebuggingInformationEntry<Reader<'_>>,
    unit: &Unit<Reader<'_>>,
) -> gimli::Result<Option<u64>> {
    let Some(AttributeValue::Exprloc(expression)) = entry.attr_value(constants::DW_AT_location) else {
        return Ok(None);
    };
    let operation = expression.operations(unit.encoding()).next()?;
    Ok(match operation {
        Some(Operation::Address { address }) => Some(address),
        _ => None,
    })
}

/// Returns the path of a file of a unit.
fn file_name(dwarf: &Dwarf<Reader<'_>>, unit: &Unit<Reader<'_>>, file: u64) -> gimli::Result<Option<String>> {
    let Some(program) = &unit.line_program else { return Ok(None) };
    let Some(entry) = program.header().file(file) else { return Ok(None) };
    let text = |value| -> gimli::Result<String> {
        Ok(gimli::Reader::to_string_lossy(&dwarf.attr_string(unit, value)?)?.into_owned())
    };
    let name = text(entry.path_name())?;
    let directory = entry.directory(program.header()).map(text).transpose()?;
    Ok(Some(match directory.filter(|_| !name.starts_with('/')) {
        Some(directory) => format!("{directory}/{name}"),
        None => name,
    }))
}
