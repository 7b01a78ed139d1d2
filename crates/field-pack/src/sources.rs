//! The structure of the objects of each slab cache, from the kernel's source: the calls of `kmem_cache_create` and
//! `KMEM_CACHE` name it. The file with the call is compiled again with debugging information, by the command that the
//! kernel's build recorded.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use kcli::Failure;
use ktypes::Structures;
use rayon::prelude::*;
use regex::Regex;
use rustc_hash::FxHashMap;

use crate::error::Error;

/// A call that creates a slab cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Creation {
    /// The name of the cache.
    pub cache: String,
    /// The structure whose size the call gives, without `struct`; `None` if it gives another size.
    pub structure: Option<String>,
    /// The object of the build that has the call, such as `fs/inode.o`.
    pub object: String,
    /// The source file.
    pub source: PathBuf,
}

/// The sources of a kernel's build.
pub struct Sources {
    /// The directory of the build.
    build: PathBuf,
    /// The calls by name of the cache.
    creations: FxHashMap<String, Creation>,
    /// The structures of the objects that were compiled.
    compiled: FxHashMap<String, Structures>,
}

impl Sources {
    /// Finds all calls that create slab caches in the sources of a kernel's build.
    ///
    /// # Errors
    /// If the directory is not that of a build.
    pub fn find(vmlinux: &Path) -> Result<Sources, Failure> {
        // A symbolic link to a vmlinux elsewhere means the build there.
        let file = fs::canonicalize(vmlinux)?;
        let build = file.parent().unwrap_or(Path::new("/")).to_path_buf();
        let mut creations = FxHashMap::default();
        let all = sources(&build);
        if all.is_empty() {
            return Err(Failure::of(Error::Unknown {
                name: vmlinux.display().to_string(),
                problem: "its directory has no records of how the kernel was compiled".into(),
                advice: "give vmlinux in the directory where it was built with `make vmlinux`".into(),
            }));
        }
        for (object, source) in all {
            // A source may be missing if it was generated.
            let Ok(text) = fs::read_to_string(&source) else { continue };
            for (cache, structure) in creations_in(&text) {
                let creation = Creation { cache, structure, object: object.clone(), source: source.clone() };
                creations.entry(creation.cache.clone()).or_insert(creation);
            }
        }
        Ok(Sources { build, creations, compiled: FxHashMap::default() })
    }

    /// Returns the call that creates a cache.
    pub fn creation(&self, cache: &str) -> Option<&Creation> {
        self.creations.get(cache)
    }

    /// Compiles the sources of objects of the build, such as `fs/inode.o`, and reads their structures.
    ///
    /// # Errors
    /// If the compiler fails, or its debugging information is damaged.
    pub fn compile(&mut self, objects: impl IntoIterator<Item = String>) -> Result<(), Failure> {
        let new: BTreeSet<String> =
            objects.into_iter().filter(|object| !self.compiled.contains_key(object)).collect();
        let compile = |object: String| -> Result<(String, Structures), Failure> {
            let bytes = kbuild::compile_again(&self.build, &object, kbuild::WITH_TYPES)?;
            let structures =
                ktypes::read(&object, &bytes).map_err(|error| Failure::of(Error::from(error)))?;
            Ok((object, structures))
        };
        let compiled: Vec<_> = new.into_par_iter().map(compile).collect::<Result<_, _>>()?;
        self.compiled.extend(compiled);
        Ok(())
    }

    /// Returns the structures that the source of an object defines or includes.
    ///
    /// # Errors
    /// As for [`compile`](Sources::compile).
    pub fn structures(&mut self, object: &str) -> Result<&Structures, Failure> {
        self.compile([object.to_owned()])?;
        Ok(&self.compiled[object])
    }
}

/// Returns the objects of a build that were compiled from C, with their sources.
fn sources(build: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for (object, record) in kbuild::records(build).flatten() {
        let Ok(record) = fs::read_to_string(record) else { continue };
        let source = record.lines().find(|line| line.starts_with("source_") && line.ends_with(".c"));
        let Some((_, source)) = source.and_then(|line| line.split_once(":= ")) else { continue };
        found.push((object, build.join(source)));
    }
    found.sort_unstable();
    found
}

/// Returns the caches that a source file creates: name, and structure.
fn creations_in(text: &str) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    if !text.contains("KMEM_CACHE") && !text.contains("kmem_cache_create") {
        return found;
    }
    let by_structure =
        Regex::new(r"(?-u)\bKMEM_CACHE(?:_USERCOPY)?\(\s*(\w+)\s*,").expect("a valid expression");
    for call in by_structure.captures_iter(text) {
        found.push((call[1].to_owned(), Some(call[1].to_owned())));
    }
    let by_name = Regex::new(
        r#"(?-u)\bkmem_cache_create(?:_usercopy)?\(\s*"([\x20-!#-~]+)"\s*,\s*(?:sizeof\s*\(\s*struct\s+(\w+)\s*\)\s*,)?"#,
    );
    for call in by_name.expect("a valid expression").captures_iter(text) {
        found.push((call[1].to_owned(), call.get(2).map(|name| name.as_str().to_owned())));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_name_the_structure() {
        let text = r#"
            filp_cachep = kmem_cache_create("filp", sizeof(struct file), &args, SLAB_PANIC);
            a = kmem_cache_create_usercopy("task_struct",
                        arch_task_struct_size, align, 0, 0, 0, NULL);
            dentry_cache = KMEM_CACHE_USERCOPY(dentry,
                SLAB_PANIC, d_iname);
            c = kmem_cache_create("bip", sizeof(struct bip) + 4, 0, 0, NULL);
            prot->slab = kmem_cache_create(prot->name, prot->obj_size, 0, 0, NULL);
        "#;
        let some = |name: &str| Some(name.to_owned());
        let expected = [
            ("dentry".to_owned(), some("dentry")),
            ("filp".to_owned(), some("file")),
            ("task_struct".to_owned(), None),
            ("bip".to_owned(), None),
        ];
        assert_eq!(creations_in(text), expected);
    }
}
