//! The document `kshrink-allocations/1`: the code that allocated a kernel's memory.

use serde::{Deserialize, Serialize};

use super::allocators::Allocator;

/// The name of the document's format.
pub const SCHEMA: &str = "kshrink-allocations/1";

/// The memory of a kernel by the code that allocated it.
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
    /// The name of the recording.
    pub trace: String,
    /// The memory in use by kind of allocator.
    pub memory: Vec<Sum>,
    /// The code that allocated it, by descending number of unread bytes.
    pub sites: Vec<Site>,
}

/// The memory in use of one kind of allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// The kind.
    pub kind: Allocator,
    /// Number of its objects: slab objects, blocks of pages, or calls.
    pub objects: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Number of the objects whose call is known.
    pub known_objects: u64,
    /// Their size in bytes.
    pub known_bytes: u64,
}

/// Code that called an allocator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The kind of allocator.
    pub kind: Allocator,
    /// The function that called the allocator, or the first function of [`through`](Site::through).
    pub function: String,
    /// The return address of the call, as an offset in the function in bytes.
    pub offset: u64,
    /// The return address of the call.
    pub address: u64,
    /// The source lines of the call, as `FILE:LINE`, if the kernel has debugging information: first the line of the call
    /// itself, then those that it is inlined into.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// The functions between it and the allocator, the outermost first, such as `kstrdup`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<String>,
    /// The callers of the function that all objects have in common, the innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<String>,
    /// The slab caches, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<String>,
    /// Number of its objects in use.
    pub objects: u64,
    /// Their size in bytes, with padding.
    pub bytes: u64,
    /// Their share of the pages of slabs, in bytes, rounded down; equal to `bytes` for other kinds.
    pub held: u64,
    /// Number of the objects of which nothing touched any byte after the allocation.
    pub unused_objects: u64,
    /// Number of bytes of all objects that nothing touched after the allocation.
    pub untouched: u64,
    /// Number of bytes of all objects that nothing read after the allocation; includes `untouched`.
    pub unread: u64,
}
