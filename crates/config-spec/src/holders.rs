//! The variables of a kernel that hold much memory, from a census of its memory and from its symbols.

use std::collections::BTreeMap;
use std::path::Path;

use census::document::{Document, Kind};
use goblin::elf::sym::STT_OBJECT;
use kcli::{Failure, input_name};
use kelf::{Place as SymbolPlace, Program};

use crate::costs::is_init;
use crate::source::Place;

/// The size of a page in bytes: the unit in which memory is allocated, and the least that counts as much.
pub const PAGE: u64 = 4096;

/// A variable that holds a page of memory or more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its name.
    pub variable: String,
    /// The bytes that it holds.
    pub bytes: u64,
    /// Their place.
    pub place: Place,
    /// The path of the source of its object.
    pub source: String,
}

/// Reads a census, and checks that it is of the kernel `vmlinux` with this release and build ID.
///
/// # Errors
/// Bad input if it is no census, or a census of another kernel.
pub fn read_census(
    path: &Path,
    vmlinux: &Path,
    release: &str,
    build_id: Option<&str>,
) -> Result<Document, Failure> {
    let census = Document::read(path)?;
    let (found, expected) = match (census.build_id.as_deref(), build_id) {
        (Some(found), Some(expected)) => (format!("build ID {found}"), format!("build ID {expected}")),
        _ => {
            let version = census.kernel.strip_prefix("Linux version ").unwrap_or(&census.kernel);
            let version = version.split_whitespace().next().unwrap_or("none");
            (format!("Linux {}", version.escape_default()), format!("Linux {release}"))
        }
    };
    if found == expected {
        return Ok(census);
    }
    Err(Failure::bad_input(format!(
        "{}: a census of another kernel: {found}; expected {expected}, of {vmlinux}; take it again with `census core \
         {vmlinux} CORE --json`, from the memory of this kernel",
        input_name(path),
        vmlinux = vmlinux.display()
    )))
}

/// Returns the variables that hold a page or more, and whose object and source are known, those that hold most first. A
/// name that several objects define has no known object.
pub fn find(census: &Document, program: &Program<'_>) -> Vec<Holder> {
    let mut sources: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    let mut held: Vec<(&str, u64, Place)> = Vec::new();
    for input in &program.objects {
        let variables = input.object.symbols.iter().filter(|symbol| symbol.kind == STT_OBJECT);
        for symbol in variables {
            let section = match symbol.place {
                SymbolPlace::Section(index) if !input.is_discarded(index) => {
                    Some(input.object.section(index))
                }
                SymbolPlace::Common => None,
                _ => continue,
            };
            let source = input.source.as_deref().filter(|source| source.ends_with(".c"));
            sources.entry(symbol.name).and_modify(|source| *source = None).or_insert(source);
            let is_freed = section.is_some_and(|section| is_init(section.name));
            if symbol.size >= PAGE && !is_freed {
                held.push((symbol.name, symbol.size, Place::Image));
            }
        }
    }
    let referenced = census.owners.iter().filter(|owner| owner.kind == Kind::Referenced);
    held.extend(referenced.map(|owner| (owner.name.as_str(), owner.bytes, Place::Allocated)));
    let holder = |(variable, bytes, place): (&str, u64, Place)| {
        let source = (*sources.get(variable)?)?;
        Some(Holder { variable: variable.to_owned(), bytes, place, source: source.to_owned() })
    };
    let mut holders: Vec<Holder> = held.into_iter().filter_map(holder).collect();
    holders.sort_by(|one, other| (other.bytes, &one.variable).cmp(&(one.bytes, &other.variable)));
    holders
}
