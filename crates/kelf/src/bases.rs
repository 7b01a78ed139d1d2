//! The addresses that a link gave the sections of an object.
//!
//! The linked file does not record them, but its symbols reveal them. A name that occurs equally often in the object
//! and in the linked file, global or local in both, gives the addresses of its sections, because the linker keeps the
//! order of an object's local symbols. The linker moves a section as a whole, so one symbol gives its address. All
//! other symbols of the section must agree, or the file was not linked from this object.

use std::hash::Hash;
use std::path::Path;

use goblin::elf::section_header::{SHF_MERGE, SHN_ABS};
use goblin::elf::sym::{STB_LOCAL, STT_FILE, STT_SECTION};
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::error::{Error, Result};
use crate::headers::{ElfFile, read_linked};
use crate::index::SectionIndex;
use crate::object::{Object, Place};

/// Returns the address of each section of `object` in the file that was linked from it. Returns `None` for a section
/// without a symbol, and for a section whose pieces the linker merges with others (`SHF_MERGE`).
///
/// # Errors
/// [`Error::Read`] if the linked file cannot be read, [`Error::WrongKind`] if it is not a linked file,
/// [`Error::Damaged`] if it is incomplete, [`Error::Build`] if the distance of two symbols of a section differs from
/// the object.
pub fn section_bases(object: &Object<'_>, linked: &Path) -> Result<Vec<Option<u64>>> {
    let bytes = read_linked(linked)?;
    let file = ElfFile::parse_linked(&linked.display().to_string(), &bytes, "a linked kernel (vmlinux)")?;
    let symbols = file.symbols()?;
    let is_place = |kind| !matches!(kind, STT_FILE | STT_SECTION);
    let linked_symbols = symbols.iter().filter(|(symbol, name)| {
        let defined = symbol.st_shndx != 0 && symbol.st_shndx != SHN_ABS as usize;
        defined && is_place(symbol.st_type()) && !name.is_empty()
    });
    let addresses = by_name(
        linked_symbols.map(|(symbol, name)| ((*name, symbol.st_bind() == STB_LOCAL), symbol.st_value)),
    );
    let own_symbols = by_name(object.symbols.iter().filter_map(|symbol| match symbol.place {
        // The linker places their strings and constants individually.
        Place::Section(section) if object.section(section).flags & u64::from(SHF_MERGE) != 0 => None,
        Place::Section(section) if is_place(symbol.kind) => {
            let value = symbol.value | u64::from(symbol.thumb);
            Some(((symbol.name, symbol.binding == STB_LOCAL), (section, value)))
        }
        _ => None,
    }));
    let mut bases = vec![None; object.sections.len()];
    // Names that occur once come first.
    for is_once in [true, false] {
        for (name, places) in own_symbols.iter().filter(|(_, places)| (places.len() == 1) == is_once) {
            let Some(addresses) = addresses.get(name).filter(|found| found.len() == places.len()) else {
                continue;
            };
            for (&(section, value), address) in places.iter().zip(addresses) {
                let base: &mut Option<u64> = &mut bases[SectionIndex::get(section)];
                let found = address.wrapping_sub(value);
                if *base.get_or_insert(found) != found {
                    return Err(Error::Build {
                        path: linked.into(),
                        problem: format!("the symbol {} is not where {} has it", name.0, object.name),
                        advice: "the kernel was linked from other objects; build it again".into(),
                    });
                }
            }
        }
    }
    Ok(bases)
}

/// Groups the items of each name, in order.
fn by_name<N: Eq + Hash, T>(named: impl Iterator<Item = (N, T)>) -> IndexMap<N, Vec<T>, FxBuildHasher> {
    let mut all: IndexMap<N, Vec<T>, FxBuildHasher> = IndexMap::default();
    for (name, value) in named {
        all.entry(name).or_default().push(value);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::by_name;

    #[test]
    fn names_keep_all_their_meanings_in_order() {
        let all = by_name([("a", 1), ("b", 2), ("a", 3)].into_iter());
        assert_eq!((all["a"].as_slice(), all["b"].as_slice()), (&[1, 3][..], &[2][..]));
    }
}
