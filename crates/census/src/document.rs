//! The document `kshrink-census/1`: who holds the memory of a kernel.

use std::fmt;
use std::path::Path;

use kcli::{Failure, other_document, read_document};
use serde::{Deserialize, Serialize};

/// The name of the document's format.
pub const SCHEMA: &str = "kshrink-census/1";

/// A census of the memory of a running kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of the kernel, `Linux version …`.
    pub kernel: String,
    /// The build ID of the kernel's vmlinux in hexadecimal digits, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// The name of the core.
    pub core: String,
    /// The size of a page in bytes.
    pub page_size: u64,
    /// The sums.
    pub memory: Sums,
    /// The owners, by kind in the order of [`Kind`], then by descending size.
    pub owners: Vec<Owner>,
}

/// Sums of a census, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// `MemTotal` of `/proc/meminfo`.
    pub total: u64,
    /// `MemFree` of `/proc/meminfo`.
    pub free: u64,
    /// `Slab` of `/proc/meminfo`.
    pub slab: u64,
    /// The memory in use whose owner is known: all owners except the kinds `unknown`, `free` and `reserved`.
    pub explained: u64,
}

impl Sums {
    /// Returns the memory in use, `MemTotal - MemFree`, in bytes.
    pub fn used(&self) -> u64 {
        self.total.saturating_sub(self.free)
    }
}

/// A kind of owner. `reserved` is outside of `MemTotal`, all others are part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Objects of the slab allocator, one owner for each cache, and `kmalloc` of more than a slab holds.
    Slab,
    /// Page tables.
    PageTables,
    /// Stacks of tasks in the kernel.
    Stacks,
    /// Memory that is mapped outside of the linear mapping.
    Vmalloc,
    /// The page cache, one owner for each type of file system.
    Files,
    /// Anonymous memory of programs.
    Anonymous,
    /// Free pages that a processor keeps; `MemFree` does not count them.
    ProcessorLists,
    /// Pages without a type to which a variable of the kernel, or objects of one slab cache, point.
    Referenced,
    /// Pages in use whose owner is not known.
    Unknown,
    /// Free pages.
    Free,
    /// Pages that the page allocator never had.
    Reserved,
}

impl fmt::Display for Kind {
    /// Writes the name, as in the document.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(formatter)
    }
}

impl Kind {
    /// Whether pages of this kind are in use by the kernel for data of its own.
    pub fn is_kernel_data(self) -> bool {
        matches!(self, Kind::Slab | Kind::Stacks | Kind::Vmalloc | Kind::Referenced | Kind::Unknown)
    }

    /// Whether pages of this kind are in use and their owner is known.
    pub fn is_explained(self) -> bool {
        !matches!(self, Kind::Unknown | Kind::Free | Kind::Reserved)
    }
}

/// An owner of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its kind.
    pub kind: Kind,
    /// Its name. Slab caches of modules may have the same name.
    pub name: String,
    /// The size of its pages in bytes.
    pub bytes: u64,
    /// For a slab cache, number of its objects, used and free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// For a slab cache, number of its allocated objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// For a slab cache, number of objects that `/proc/slabinfo` counts as active: also the free ones in slabs of
    /// processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<u64>,
    /// For a slab cache, the size of an object in bytes, with padding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_size: Option<u64>,
    /// For a slab cache, number of other caches that were merged into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<u64>,
    /// For a slab cache, the variables that point to it, which also identify merged caches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
}

impl Owner {
    /// Creates an owner without objects.
    pub fn new(kind: Kind, name: impl Into<String>, bytes: u64) -> Owner {
        Owner {
            kind,
            name: name.into(),
            bytes,
            objects: None,
            used: None,
            active: None,
            object_size: None,
            merged: None,
            variables: Vec::new(),
        }
    }
}

impl Document {
    /// Reads a census from a file, or from standard input for `-`.
    ///
    /// # Errors
    /// If it cannot be read, or is not a census.
    pub fn read(path: &Path) -> Result<Document, Failure> {
        const EXPECTED: &str = "a census, as `census core --json` prints it";
        let value = read_document(path, &[SCHEMA], EXPECTED)?;
        serde_json::from_value(value).map_err(|error| other_document(path, &error.to_string(), EXPECTED))
    }
}
