//! The options that change when one option is set to `n`.
//!
//! The results of Kconfig are kept in a cache.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use kcli::{Failure, Progress};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::conf::Conf;

/// Number of results after which the cache is written.
const SAVE_EVERY: usize = 16;

/// The options that change, by name, each with its new value (empty if it is not set).
pub type Closure = BTreeMap<String, String>;

/// The closures of options, by name. `None`: the option cannot be set to `n`.
pub type Closures = BTreeMap<String, Option<Closure>>;

/// The cached closures of one configuration.
#[derive(Default, Serialize, Deserialize)]
struct Cached {
    schema: String,
    closures: Closures,
}

/// The version of the cache's files.
const SCHEMA: &str = "kshrink-closures/1";

/// Returns the closures of `options`, from the cache or from Kconfig. `kconfig` is the text of all Kconfig files.
///
/// # Errors
/// Bad input if Kconfig rejects its files, or if it changes the configuration as it is.
pub fn find(conf: &Conf<'_>, kconfig: &str, options: &[&str]) -> Result<Closures, Failure> {
    let cache = cache_file(conf, kconfig);
    let mut known = cache.as_deref().and_then(load).unwrap_or_default();
    let missing: Vec<&str> = options.iter().copied().filter(|option| !known.contains_key(*option)).collect();
    if !missing.is_empty() {
        let progress = Progress::bar(missing.len() as u64, "asking Kconfig what goes with each option");
        conf.check()?;
        let shared = Mutex::new((std::mem::take(&mut known), 0));
        missing.par_iter().try_for_each(|option| {
            let closure = conf.closure(option)?;
            progress.advance(1);
            if let Ok(mut shared) = shared.lock() {
                let (known, count) = &mut *shared;
                known.insert((*option).to_owned(), closure);
                *count += 1;
                if *count % SAVE_EVERY == 0 || *count == missing.len() {
                    cache.iter().for_each(|cache| save(cache, known));
                }
            }
            Ok::<_, Failure>(())
        })?;
        known = shared.into_inner().map_err(|_| Failure::job("a thread that ran conf failed"))?.0;
    }
    known.retain(|option, _| options.contains(&option.as_str()));
    Ok(known)
}

/// Returns the file of the cache for a configuration; `None` if there is no directory for caches.
fn cache_file(conf: &Conf<'_>, kconfig: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("KSHRINK_CACHE").or_else(|| Some(set("HOME")?.join(".cache/kshrink")))?;
    let mut key = String::new();
    for half in 0..2u8 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(half);
        for part in [conf.text().as_bytes(), conf.program(), kconfig.as_bytes()] {
            hasher.write_usize(part.len());
            hasher.write(part);
        }
        for (name, value) in conf.environment() {
            hasher.write(format!("{name}={value}\n").as_bytes());
        }
        key.push_str(&format!("{:016x}", hasher.finish()));
    }
    Some(cache.join("closures").join(format!("{key}.json")))
}

/// Reads a file of the cache; `None` if it is absent or damaged.
fn load(path: &Path) -> Option<Closures> {
    let cached: Cached = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    (cached.schema == SCHEMA).then_some(cached.closures)
}

/// Writes a file of the cache. A cache that cannot be written is no error: the results are only computed again.
fn save(path: &Path, closures: &Closures) {
    let write = || -> Option<()> {
        let directory = path.parent()?;
        fs::create_dir_all(directory).ok()?;
        let mut file = tempfile::NamedTempFile::new_in(directory).ok()?;
        let cached = Cached { schema: SCHEMA.to_owned(), closures: closures.clone() };
        file.write_all(&serde_json::to_vec(&cached).ok()?).ok()?;
        file.persist(path).ok()?;
        Some(())
    };
    let _ = write();
}
