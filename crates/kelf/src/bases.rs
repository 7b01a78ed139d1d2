//! Where a link put the sections of an object.
//!
//! The linked file does not say so. Its symbols do: a name that occurs once in the object and once in the linked
//! file, global or local in both, gives the address of its section. The linker makes no difference between the symbols of one
//! section, so that one is enough; all others have to agree, or the file is not linked from this object.

use std::collections::hash_map::Entry;
use std::fs;
use std::hash::Hash;
use std::path::Path;

use goblin::elf::section_header::SHN_ABS;
use goblin::elf::sym::{STB_LOCAL, STT_FILE, STT_SECTION};
use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::headers::ElfFile;
use crate::index::SectionIndex;
use crate::object::{Object, Place};

/// The address of each section of `object` in the file that was linked from it; `None` for a section that has no
/// symbol of a unique name.
///
/// # Errors
/// [`Error::Read`] if the linked file cannot be read, [`Error::Damaged`] if it is not whole, [`Error::Build`] if
/// two symbols of one section are not as far apart as in the object.
pub fn section_bases(object: &Object<'_>, linked: &Path) -> Result<Vec<Option<u64>>> {
    let bytes = fs::read(linked).map_err(|source| Error::Read { path: linked.into(), source })?;
    let file = ElfFile::parse(&linked.display().to_string(), &bytes, "a linked kernel (vmlinux)")?;
    let symbols = match file.symbol_table()? {
        Some(table) => file.symbols(table)?,
        None => Vec::new(),
    };
    let is_place = |kind| !matches!(kind, STT_FILE | STT_SECTION);
    let linked_symbols = symbols.iter().filter(|(symbol, name)| {
        let defined = symbol.st_shndx != 0 && symbol.st_shndx != SHN_ABS as usize;
        defined && is_place(symbol.st_type()) && !name.is_empty()
    });
    let addresses = unique(
        linked_symbols.map(|(symbol, name)| ((*name, symbol.st_bind() == STB_LOCAL), symbol.st_value)),
    );
    let own_symbols = object.symbols.iter().filter_map(|symbol| match symbol.place {
        Place::Section(section) if is_place(symbol.kind) => {
            Some(((symbol.name, symbol.binding == STB_LOCAL), (section, symbol.value)))
        }
        _ => None,
    });
    let mut bases = vec![None; object.sections.len()];
    for (name, place) in unique(own_symbols) {
        let (Some((section, value)), Some(&Some(address))) = (place, addresses.get(&name)) else { continue };
        let base: &mut Option<u64> = &mut bases[SectionIndex::get(section)];
        let found = address.wrapping_sub(value);
        if *base.get_or_insert(found) != found {
            return Err(Error::Build {
                path: linked.into(),
                problem: format!("the symbol {} is not where {} has it", name.0, object.name),
                advice: "the link was made from other objects; build the kernel anew".into(),
            });
        }
    }
    Ok(bases)
}

/// What each name means, if it means one thing.
fn unique<N: Eq + Hash, T>(named: impl Iterator<Item = (N, T)>) -> FxHashMap<N, Option<T>> {
    let mut all = FxHashMap::default();
    for (name, value) in named {
        match all.entry(name) {
            Entry::Vacant(entry) => drop(entry.insert(Some(value))),
            Entry::Occupied(mut entry) => drop(entry.insert(None)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::unique;

    #[test]
    fn names_that_occur_twice_say_nothing() {
        let all = unique([("a", 1), ("b", 2), ("a", 3), ("a", 4)].into_iter());
        assert_eq!((all["a"], all["b"]), (None, Some(2)));
    }
}
