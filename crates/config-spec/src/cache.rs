//! Results that take long, kept in `${KSHRINK_CACHE:-$HOME/.cache/kshrink}`.

use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io::Write as _;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The version of the files.
const SCHEMA: &str = "kshrink-config-spec/1";

/// A file of the cache.
pub struct Cache(PathBuf);

/// The content of a file.
#[derive(Serialize, Deserialize)]
struct Cached<T> {
    schema: String,
    content: T,
}

impl Cache {
    /// Returns the file for results of one kind that follow from `parts` alone; `None` if there is no directory for
    /// caches.
    pub fn file(kind: &str, parts: &[&[u8]]) -> Option<Cache> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let directory = set("KSHRINK_CACHE").or_else(|| Some(set("HOME")?.join(".cache/kshrink")))?;
        let half = |number: u8| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(number);
            for part in parts {
                hasher.write_usize(part.len());
                hasher.write(part);
            }
            hasher.finish()
        };
        Some(Cache(directory.join(kind).join(format!("{:016x}{:016x}.json", half(0), half(1)))))
    }

    /// Reads the file; `None` if it is absent or damaged.
    pub fn load<T: DeserializeOwned>(&self) -> Option<T> {
        let cached: Cached<T> = serde_json::from_slice(&fs::read(&self.0).ok()?).ok()?;
        (cached.schema == SCHEMA).then_some(cached.content)
    }

    /// Writes the file. A file that cannot be written is no error: the results are only computed again.
    pub fn save<T: Serialize>(&self, content: &T) {
        let write = || -> Option<()> {
            let directory = self.0.parent()?;
            fs::create_dir_all(directory).ok()?;
            let mut file = tempfile::NamedTempFile::new_in(directory).ok()?;
            let cached = Cached { schema: SCHEMA.to_owned(), content };
            file.write_all(&serde_json::to_vec(&cached).ok()?).ok()?;
            file.persist(&self.0).ok()?;
            Some(())
        };
        let _ = write();
    }
}
