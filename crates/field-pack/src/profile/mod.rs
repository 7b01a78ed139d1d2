//! Profiles the members of allocated structures (section 3.1 of the paper): their values from memory dumps, their loads
//! and stores from logs.
//!
//! The paper counts every value that is stored. A dump has only the values that live objects hold when it is made, so a
//! value that lived in between is missing. Compression stays correct without it, because a value that does not fit has
//! another place.

pub mod accesses;
pub mod objects;
pub mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kcli::{Failure, Progress};
use ktypes::{Kind, Structure, Structures};
use rustc_hash::FxHashMap;
use tracing::debug;

use crate::document::{CacheProfile, CoreTotals, PROFILE_SCHEMA, Profile, TypeProfile};
use crate::error::Error;
use crate::sources::Sources;
use crate::symbols::Symbols;

use accesses::Accesses;
use objects::{Core, CoreCache, LiveObject};
use values::{Values, value_of};

/// The share of live objects, in percent, that a log must have stores to if it is of the same run as the core.
const MIN_STORED: usize = 90;

/// Maximum depth of structures within structures.
const MAX_DEPTH: usize = 16;

/// The structure of the objects in a cache, as an argument says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The structures to profile; empty for all.
    only: Vec<String>,
    /// The structure and, if given, the object that has it, by name of the cache.
    given: FxHashMap<String, (String, Option<String>)>,
}

impl Selection {
    /// Parses the arguments `TYPE`, `CACHE=TYPE` and `CACHE=TYPE@OBJECT`.
    pub fn parse(arguments: &[String]) -> Selection {
        let mut selection = Selection::default();
        for argument in arguments {
            match argument.split_once('=') {
                None => selection.only.push(argument.clone()),
                Some((cache, of)) => {
                    let (of, object) = match of.split_once('@') {
                        Some((of, object)) => (of, Some(object.to_owned())),
                        None => (of, None),
                    };
                    selection.given.insert(cache.to_owned(), (of.to_owned(), object));
                }
            }
        }
        selection
    }

    /// Returns the object of the build that has the structure of a cache's objects, if it may be known.
    fn object_of(&self, cache: &CoreCache, sources: &Sources) -> Option<String> {
        match self.given.get(&cache.profile.name) {
            Some((_, Some(object))) => Some(object.clone()),
            None if cache.merged > 0 => None,
            _ => sources.creation(&cache.profile.name).map(|creation| creation.object.clone()),
        }
    }

    fn is_wanted(&self, structure: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == structure)
    }
}

/// Profiles the kernel `vmlinux` from memory dumps, and the logs of their accesses in the same order.
///
/// # Errors
/// If a file cannot be read, a core or a log is damaged or of another kernel, a file of the kernel does not compile, or the
/// selection names something unknown.
pub fn profile(
    vmlinux: &Path,
    cores: &[PathBuf],
    logs: &[PathBuf],
    selection: &Selection,
    progress: &Progress,
) -> Result<Profile, Failure> {
    if logs.len() > cores.len() {
        return Err(Failure::bad_input(
            "more --accesses than cores; give at most one log for each core, in their order",
        ));
    }
    let name = vmlinux.display().to_string();
    let symbols = Symbols::read(vmlinux)?;
    progress.message("searching the kernel's source");
    let mut profiler =
        Profiler { sources: Sources::find(vmlinux)?, selection, symbols, types: BTreeMap::new() };
    let mut caches: BTreeMap<String, CacheProfile> = BTreeMap::new();
    let mut profile = Profile {
        schema: PROFILE_SCHEMA.into(),
        kernel: String::new(),
        build_id: None,
        cores: Vec::new(),
        accesses: !logs.is_empty(),
        allocator: None,
        caches: Vec::new(),
        types: Vec::new(),
    };
    for (number, path) in cores.iter().enumerate() {
        progress.message("reading the core");
        let core = objects::read(vmlinux, path, progress)?;
        let log = logs.get(number).map(|log| Accesses::read(log)).transpose()?;
        progress.message("compiling the sources of structures");
        let objects = core.caches.iter().filter_map(|cache| selection.object_of(cache, &profiler.sources));
        let objects: Vec<String> = objects.collect();
        profiler.sources.compile(objects)?;
        progress.message("reading members");
        for cache in &core.caches {
            let typed = profiler.add(cache, &core, log.as_ref())?;
            let known = caches.entry(typed.name.clone()).or_insert_with(|| typed.clone());
            if typed.bytes > known.bytes {
                *known = typed;
            }
        }
        if let Some(log) = &log {
            check_run(&core, log, &path.display().to_string()).map_err(Failure::of)?;
        }
        profile.cores.push(CoreTotals { core: path.display().to_string(), slab: core.slab });
        (profile.kernel, profile.build_id, profile.allocator) =
            (core.kernel, core.build_id, Some(core.allocator));
    }
    let all: Vec<&String> = selection.given.keys().filter(|cache| !caches.contains_key(*cache)).collect();
    if let Some(cache) = all.first() {
        return Err(Failure::of(Error::Unknown {
            name,
            problem: format!("no core has a slab cache {cache} with objects"),
            advice: "give CACHE=TYPE with the name of a cache, as `census core` prints it".into(),
        }));
    }
    profile.caches = caches.into_values().collect();
    profile.caches.sort_by(|one, other| (other.bytes, &one.name).cmp(&(one.bytes, &other.name)));
    let (types, symbols) = (profiler.types, profiler.symbols);
    if let Some(missing) = selection.only.iter().find(|name| !types.contains_key(*name)) {
        return Err(Failure::of(Error::Unknown {
            name,
            problem: format!("no live object in the cores has a structure {missing}"),
            advice:
                "boot with slab_nomerge, so that each cache has objects of one structure, or give CACHE=TYPE"
                    .into(),
        }));
    }
    profile.types = types.into_iter().map(|(name, one)| one.profile(name, &symbols)).collect();
    Ok(profile)
}

/// Checks that nearly all live objects were written in the run that a log records.
fn check_run(core: &Core, log: &Accesses, name: &str) -> crate::error::Result<()> {
    let (mut all, mut stored) = (0usize, 0usize);
    for cache in &core.caches {
        let is_stored = |object: &&LiveObject| log.of(object.place, cache.profile.object_size)[1] > 0;
        let of_cache = cache.live.iter().filter(is_stored).count();
        debug!("{}: {} objects, {of_cache} with stores", cache.profile.name, cache.live.len());
        all += cache.live.len();
        stored += of_cache;
    }
    if stored * 100 >= all * MIN_STORED {
        return Ok(());
    }
    let problem = format!("it has stores to {stored} of {all} live slab objects");
    Err(Error::OtherRun { name: log.name.clone(), core: name.into(), problem })
}

/// A structure, and the values of its members.
struct TypeValues {
    file: String,
    structure: Structure,
    objects: u64,
    values: Vec<Values>,
    accesses: Vec<[u64; 2]>,
}

impl TypeValues {
    fn new(object: &str, structure: &Structure) -> TypeValues {
        let count = structure.members.len();
        TypeValues {
            file: object.strip_suffix(".o").map_or(object.to_owned(), |stem| format!("{stem}.c")),
            structure: structure.clone(),
            objects: 0,
            values: vec![Values::default(); count],
            accesses: vec![[0, 0]; count],
        }
    }

    fn profile(self, name: String, symbols: &Symbols) -> TypeProfile {
        let members = self.structure.members.iter().zip(&self.values).zip(&self.accesses);
        TypeProfile {
            name,
            size: self.structure.size,
            align: self.structure.align,
            file: self.file,
            objects: self.objects,
            members: members.map(|((member, values), &sums)| values.profile(member, sums, symbols)).collect(),
        }
    }
}

struct Profiler<'a> {
    sources: Sources,
    selection: &'a Selection,
    symbols: Symbols,
    types: BTreeMap<String, TypeValues>,
}

impl Profiler<'_> {
    /// Adds the objects of a cache. Returns its figures with its structure.
    fn add(
        &mut self,
        cache: &CoreCache,
        core: &Core,
        log: Option<&Accesses>,
    ) -> Result<CacheProfile, Failure> {
        let mut figures = cache.profile.clone();
        let (object, of) = match self.structure_of(cache)? {
            Ok(found) => found,
            Err(reason) => {
                figures.untyped = Some(reason);
                return Ok(figures);
            }
        };
        figures.of = Some(of.clone());
        let structures = self.sources.structures(&object)?.clone();
        let mut parts = Vec::new();
        embedded(&structures, &of, 0, 0, &mut parts);
        for (part, start) in parts {
            if !self.selection.is_wanted(&part) {
                continue;
            }
            let structure = &structures[&part];
            let known = self.types.entry(part).or_insert_with(|| TypeValues::new(&object, structure));
            // Another file may have another structure of this name.
            if known.structure != *structure {
                continue;
            }
            for live in &cache.live {
                let bytes =
                    live.bytes.get(start as usize..(start + structure.size) as usize).unwrap_or_default();
                known.objects += 1;
                for (member, values) in structure.members.iter().zip(&mut known.values) {
                    if let Some(value) = value_of(member, bytes) {
                        values.add(member, value, live.address + start, core.slide, &self.symbols);
                    }
                }
            }
            let Some(log) = log else { continue };
            for place in &cache.places {
                let base = log.least(*place, cache.profile.object_size);
                for (member, sums) in structure.members.iter().zip(&mut known.accesses) {
                    let [loads, stores] = log.beyond(place + start + member.offset, member.bytes, base);
                    *sums = [sums[0] + loads, sums[1] + stores];
                }
            }
        }
        Ok(figures)
    }

    /// Returns the object of the build that has the structure of a cache's objects, and the structure; or the reason why it
    /// is not known.
    fn structure_of(&mut self, cache: &CoreCache) -> Result<Result<(String, String), String>, Failure> {
        let (name, object_size) = (&cache.profile.name, cache.profile.object_size);
        let creation = self.sources.creation(name).cloned();
        let given = self.selection.given.get(name).cloned();
        if cache.merged > 0 && given.is_none() {
            return Ok(Err(format!(
                "{} other caches were merged into it; boot with slab_nomerge",
                cache.merged
            )));
        }
        let (wanted, object) = match (&given, &creation) {
            (Some((of, Some(object))), _) => (vec![of.clone()], object.clone()),
            (Some((of, None)), Some(creation)) => (vec![of.clone()], creation.object.clone()),
            (Some((of, None)), None) => {
                return Err(Failure::of(Error::Unknown {
                    name: format!("--types {name}={of}"),
                    problem: "no source file creates this cache by name".into(),
                    advice: format!(
                        "give {name}={of}@OBJECT with an object of the build, such as fs/inode.o"
                    ),
                }));
            }
            (None, Some(creation)) => {
                let stem = name.strip_suffix("_cache").unwrap_or(name);
                let named =
                    creation.structure.clone().map_or(vec![name.clone(), stem.to_owned()], |of| vec![of]);
                (named, creation.object.clone())
            }
            (None, None) => return Ok(Err("no source file creates it by name".into())),
        };
        let structures = self.sources.structures(&object)?;
        let found =
            wanted.iter().find_map(|of| structures.get(of).map(|structure| (of.clone(), structure.size)));
        let is_exact = given.is_none() && creation.is_some_and(|creation| creation.structure.is_some());
        Ok(match found {
            None => Err(format!("{object} has no structure {}", wanted.join(" or "))),
            Some((of, size)) if size > object_size || size == 0 || (is_exact && size != object_size) => {
                Err(format!("its objects have {object_size} bytes, but struct {of} has {size}"))
            }
            Some((of, _)) => Ok((object, of)),
        })
    }
}

/// Adds a structure at an offset, and the structures that are embedded in it, but not in a union.
fn embedded(structures: &Structures, of: &str, start: u64, depth: usize, parts: &mut Vec<(String, u64)>) {
    let Some(structure) = structures.get(of).filter(|_| depth < MAX_DEPTH) else { return };
    parts.push((of.to_owned(), start));
    for member in structure.members.iter().filter(|member| member.kind == Kind::Structure && !member.union) {
        if let Some(inner) = &member.structure {
            embedded(structures, inner, start + member.offset, depth + 1, parts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_select_types_and_name_those_of_caches() {
        let arguments =
            ["inode", "task_struct=task_struct", "TCP=tcp_sock@net/ipv4/tcp.o"].map(str::to_owned);
        let selection = Selection::parse(&arguments);
        assert!(selection.is_wanted("inode") && !selection.is_wanted("dentry"));
        assert_eq!(selection.given["task_struct"], ("task_struct".into(), None));
        assert_eq!(selection.given["TCP"], ("tcp_sock".into(), Some("net/ipv4/tcp.o".into())));
        assert!(Selection::parse(&arguments[1..]).is_wanted("dentry"));
    }
}
