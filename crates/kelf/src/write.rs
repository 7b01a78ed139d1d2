//! Writes a relocatable object: [`Object`] in, bytes out.
//!
//! The inverse of [`crate::read`]. The low-level `Writer` of the crate `object` does the encoding. It accepts any
//! number of sections with equal names, which layout by section order requires, and moves section numbers beyond 65,279
//! out of their 16-bit fields. Three things are decided here:
//!
//! - The file's own tables are generated anew. Sections keep their order but not their numbers: groups come first,
//!   because they must precede their members, and the relocation tables come last.
//! - ELF requires local symbols before global ones. Symbols are therefore reordered, each kind in the given order (a
//!   `STT_FILE` symbol precedes its locals), and every reference is renumbered.
//! - On REL machines the addend is written into the section's bytes. The section is copied only if this changes it.

use std::borrow::Cow;

use goblin::elf::section_header::{SHT_NOBITS, SHT_NULL};

use crate::addend;
use crate::error::Result;
use crate::object::{Object, Section};
use crate::reloc;

mod file;
mod order;

use order::SymbolOrder;

impl Object<'_> {
    /// Writes the object as an ELF file.
    ///
    /// # Errors
    /// [`crate::Error::Unwritable`] if something refers to a section or symbol that does not exist, is outside its section,
    /// or does not fit its field. The error names section, symbol or offset.
    pub fn write(&self) -> Result<Vec<u8>> {
        if self.sections.first().is_none_or(|null| null.kind != SHT_NULL) {
            return Err(self.unwritable("section 0", "is not the null section"));
        }
        let order = SymbolOrder::of(self)?;
        let contents = self.contents()?;
        let names: Vec<String> = self
            .sections
            .iter()
            .map(|section| format!("{}{}", file::reloc_prefix(self.machine), section.name))
            .collect();
        file::write(self, &order, &contents, &names)
    }

    /// Returns the bytes of each section: its data, with addends in place on REL machines.
    fn contents(&self) -> Result<Vec<Cow<'_, [u8]>>> {
        let sections = self.sections.iter().enumerate();
        sections.map(|(index, section)| self.content(index, section)).collect()
    }

    fn content<'s>(&'s self, index: usize, section: &'s Section<'_>) -> Result<Cow<'s, [u8]>> {
        let mut data = Cow::Borrowed(&section.data[..]);
        let place = || format!("section {index} ({})", section.name);
        if section.kind != SHT_NOBITS && section.size != data.len() as u64 {
            let problem = format!("its size is {}, but it has {} bytes", section.size, data.len());
            return Err(self.unwritable(place(), problem));
        }
        if !section.align.is_power_of_two() {
            let problem = format!("its alignment {} is not a power of two", section.align);
            return Err(self.unwritable(place(), problem));
        }
        if !self.machine.is_64() && section.size > u64::from(u32::MAX) {
            let problem = format!("{} bytes in a 32-bit object", section.size);
            return Err(self.unwritable(place(), problem));
        }
        if let Some(target) = section.link_order {
            let target_section = self.sections.get(target.get());
            if target_section.is_none_or(Section::is_table) {
                let problem = format!("is ordered by section {}, which does not exist", target.get());
                return Err(self.unwritable(place(), problem));
            }
        }
        for reloc in &section.relocs {
            let fail = |problem: String| {
                let name = reloc::name(self.machine, reloc.r_type);
                self.unwritable(format!("{}, {name} at {:#x}", place(), reloc.offset), problem)
            };
            if reloc.symbol.get() >= self.symbols.len() {
                let count = self.symbols.len();
                return Err(fail(format!("names symbol {} of {count}", reloc.symbol.get())));
            }
            if reloc::describe(self.machine, reloc.r_type).map(|(_, width)| width) != Some(reloc.width) {
                let problem = format!("no relocation of {} bytes on {}", reloc.width, self.machine);
                return Err(fail(problem));
            }
            let start = usize::try_from(reloc.offset).unwrap_or(usize::MAX);
            let range = start..start.saturating_add(usize::from(reloc.width));
            let size = data.len();
            let field = data
                .get(range.clone())
                .ok_or_else(|| fail(format!("reaches beyond the {size} bytes of the section")))?;
            if !self.machine.is_rela() && addend::get(self.machine, reloc.r_type, field) != reloc.addend {
                let field = &mut data.to_mut()[range];
                addend::put(self.machine, reloc.r_type, field, reloc.addend).map_err(fail)?;
            }
        }
        Ok(data)
    }
}
