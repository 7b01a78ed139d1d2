//! The options that change when one option is set to `n`.
//!
//! The kernel's own `scripts/kconfig/conf --olddefconfig` decides, because only Kconfig knows what depends on what. It
//! runs on a copy of `.config` in a temporary directory with the environment that make gave it
//! (`include/config/auto.conf.cmd`), so that the build directory is only read. The results are kept in a cache, because
//! each takes a second or two.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use kcli::{Failure, Progress};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::config::{Config, without};
use crate::tree::Tree;

/// Variables of the caller's environment that programs need to start.
const INHERITED: [&str; 3] = ["PATH", "HOME", "TMPDIR"];

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

/// Returns the closures of `options`, from the cache or by running `conf`. `kconfig` is the text of all Kconfig files.
///
/// # Errors
/// Bad input if there is no `conf`, if it rejects the Kconfig files, or if it changes the configuration as it is.
pub fn find(tree: &Tree, kconfig: &str, options: &[&str]) -> Result<Closures, Failure> {
    let conf = Conf::new(tree)?;
    let cache = cache_file(&conf, kconfig);
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

/// The program `conf` of a build.
struct Conf<'a> {
    tree: &'a Tree,
    path: PathBuf,
    program: Vec<u8>,
}

impl<'a> Conf<'a> {
    fn new(tree: &'a Tree) -> Result<Conf<'a>, Failure> {
        let path = tree.build.join("scripts/kconfig/conf");
        let program = fs::read(&path).map_err(|error| {
            Failure::bad_input(format!(
                "{}: cannot read it: {error}; expected the program of Kconfig that the build made; run `make \
                 olddefconfig` in the build directory as for the build, or give --quick to list options without what \
                 goes with them",
                path.display()
            ))
        })?;
        Ok(Conf { tree, path, program })
    }

    /// Checks that `conf` changes nothing if no option is changed.
    fn check(&self) -> Result<(), Failure> {
        let changes = self.tree.config.changes(&self.run(&self.tree.text)?);
        if changes.is_empty() {
            return Ok(());
        }
        let mut some: Vec<String> = Vec::new();
        for (name, new) in changes.iter().take(3) {
            let old = self.tree.config.value(name);
            let value = |value: &str| if value.is_empty() { "not set".to_owned() } else { value.to_owned() };
            some.push(format!("CONFIG_{name} from {} to {}", value(old), value(new)));
        }
        Err(Failure::bad_input(format!(
            "{}: `conf --olddefconfig` changes {} options of the configuration as it is ({}), so the effect of one \
             option cannot be told; use the compiler and tools of the build, or run `make olddefconfig` and build again",
            self.tree.build.join(".config").display(),
            changes.len(),
            some.join(", ")
        )))
    }

    /// Returns the changes when an option is set to `n`; `None` if it stays.
    fn closure(&self, option: &str) -> Result<Option<Closure>, Failure> {
        let config = self.run(&without(&self.tree.text, option))?;
        let is_off = config.value(option).is_empty();
        Ok(is_off.then(|| self.tree.config.changes(&config)))
    }

    /// Returns the configuration that `conf --olddefconfig` makes of a `.config`.
    fn run(&self, text: &str) -> Result<Config, Failure> {
        let directory = tempfile::Builder::new().prefix("config-spec-").tempdir()?;
        let file = directory.path().join(".config");
        fs::write(&file, text)?;
        let mut command = Command::new(&self.path);
        command.args(["--olddefconfig", "Kconfig"]).current_dir(directory.path()).env_clear();
        command.envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.envs(&self.tree.environment).env("LC_ALL", "C");
        command
            .env("srctree", &self.tree.source)
            .env("SRCARCH", &self.tree.arch)
            .env("KCONFIG_CONFIG", &file);
        let output = command.stdin(Stdio::null()).output().map_err(|error| {
            Failure::bad_input(format!(
                "{}: cannot run it: {error}; expected the program of Kconfig; run `make olddefconfig` in the build \
                 directory to build it again",
                self.path.display()
            ))
        })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).take(3).collect();
            return Err(Failure::bad_input(format!(
                "{}: conf does not accept the Kconfig files ({}): {}; expected the source tree that the kernel was \
                 built from; put it back, or give --quick",
                self.tree.source.join("Kconfig").display(),
                output.status,
                said.join("; ")
            )));
        }
        Ok(Config::parse(&String::from_utf8_lossy(&fs::read(&file)?)))
    }
}

/// Returns the file of the cache for a configuration; `None` if there is no directory for caches.
fn cache_file(conf: &Conf<'_>, kconfig: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("KSHRINK_CACHE").or_else(|| Some(set("HOME")?.join(".cache/kshrink")))?;
    let mut key = String::new();
    for half in 0..2u8 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(half);
        for part in [conf.tree.text.as_bytes(), &conf.program, kconfig.as_bytes()] {
            hasher.write_usize(part.len());
            hasher.write(part);
        }
        for (name, value) in &conf.tree.environment {
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
