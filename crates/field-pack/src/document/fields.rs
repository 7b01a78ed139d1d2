//! The document `kshrink-fields/1`: how each member of each structure is stored.

use serde::{Deserialize, Serialize};

use super::profile::Value;

/// The name of the document's format.
pub const FIELDS_SCHEMA: &str = "kshrink-fields/1";

/// A plan: how each member of each structure is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fields {
    /// [`FIELDS_SCHEMA`].
    pub schema: String,
    /// The release of the kernel, `6.12.117`.
    pub kernel: String,
    /// The build ID of the kernel's vmlinux in hexadecimal digits, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// The paper's threshold `r`, from 0 to 1: the share of loads and stores whose members stay as they are.
    pub threshold: f64,
    /// Whether each scheme is too narrow for some of the profiled values, to test the side table.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starve: bool,
    /// The size of all slab caches in KiB, before and after.
    #[serde(default)]
    pub slab: [u64; 2],
    /// The structures that change.
    pub types: Vec<TypePlan>,
    /// The slab caches that change.
    pub caches: Vec<CachePlan>,
}

/// The plan for a structure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TypePlan {
    /// The name of the structure, without `struct`.
    #[serde(rename = "type")]
    pub name: String,
    /// Its size in bytes, before and after.
    pub size: [u64; 2],
    /// All members in their new order, absent ones too; empty if the order stays. An unnamed structure or union, and a
    /// run of bit-fields, has the name of its first member with a name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<String>,
    /// The members that are stored otherwise than before.
    pub members: Vec<MemberPlan>,
    /// The members that stay as they are, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<Excluded>,
}

/// The plan for a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberPlan {
    /// Its name.
    pub name: String,
    /// Its offset in bytes in the structure as it was.
    pub offset: u64,
    /// Its size in bytes as it was.
    pub bytes: u64,
    /// For a number in a structure of its own, such as `kuid_t`: the name of the number there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrapped: Option<String>,
    /// The other members of the union that it is in, which have the same bytes and so the same code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// How it is stored.
    #[serde(flatten)]
    pub scheme: Scheme,
    /// For an absent member: how it is stored instead if code may store another value. The plan's sizes count with it. It is
    /// missing if the source proves that no code does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<Box<Scheme>>,
    /// The first unused code: it and all greater ones mean the side table. A plan with limits tests the side table. For a
    /// signed number, the limit of its magnitude; for a table, the number of the first unused entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Number of loads in the profile.
    pub loads: u64,
    /// Number of stores in the profile.
    pub stores: u64,
}

/// How a member is stored: as a code of `width` bytes. In every scheme except [`Absent`](Scheme::Absent),
///
/// - the code 0 is the value 0, or NULL;
/// - the code of all ones means that the side table has the value;
/// - a value without a code goes into the side table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scheme", rename_all = "kebab-case")]
pub enum Scheme {
    /// It is not stored, and always has this value.
    Absent {
        /// The value.
        value: Value,
    },
    /// The paper's NW: the lowest bytes of the value.
    Narrow {
        /// Size of the code in bytes: 1 or 2, or 4 for a member of 8 bytes.
        width: u64,
        /// Whether the value is the code with its sign extended. The code of all ones, -1, still means the side table.
        signed: bool,
    },
    /// A pointer to a place near the object: the code 1 is the address of `place`. All
    /// other pointers go into the side table. The paper does not have this scheme.
    Own {
        /// Size of the code in bytes: 1.
        width: u64,
        /// The place to which it refers.
        #[serde(flatten)]
        place: Place,
    },
    /// The paper's CP, for pointers and for numbers of 8 bytes: the value is `base + (code << shift)`.
    Prefix {
        /// Size of the code in bytes: 1 or 2, or 4 for a member of 8 bytes.
        width: u64,
        /// The value that the code counts from. No profiled value is equal to it.
        base: u64,
        /// Number of low bits that are 0 in all values.
        shift: u32,
    },
    /// The paper's CT: the code is the number of the value in a table, counted from 1.
    Table {
        /// Size of the code in bytes: 1.
        width: u64,
        /// The values that are known when the kernel is built, from the code 1 on. Addresses are symbols.
        values: Vec<Value>,
        /// Number of entries after `values` that the kernel fills with new values as they are stored, such as pointers
        /// to allocated memory. An entry never changes again.
        #[serde(default)]
        slots: u64,
    },
    /// The paper's CT+CP, for pointers: the code is `number << bits | (value & 4095) >> shift`. The kernel keeps a table of
    /// pages (`value & ~4095`), and fills it as pages appear; `number` is the number of the entry, from 1 on. An entry
    /// never changes again.
    PageTable {
        /// Size of the code in bytes: 2, or 4 for a member of 8 bytes.
        width: u64,
        /// Number of bits for the place within the page: `12 - shift`.
        bits: u32,
        /// Number of low bits that are 0 in all values.
        shift: u32,
        /// Number of entries of the table.
        slots: u64,
    },
}

/// A place near an object that does not depend on the layout of structures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// The address of a member of the same object, `&object->member`.
    Member(String),
    /// The address of the structure in which the object is embedded: `container_of(object, struct container, member)`.
    Container {
        /// That structure.
        container: String,
        /// The member of it that the object is.
        member: String,
    },
}

impl Scheme {
    /// Returns the name of the scheme, as in the document.
    pub fn name(&self) -> &'static str {
        match self {
            Scheme::Absent { .. } => "absent",
            Scheme::Narrow { .. } => "narrow",
            Scheme::Own { .. } => "own",
            Scheme::Prefix { .. } => "prefix",
            Scheme::Table { .. } => "table",
            Scheme::PageTable { .. } => "page-table",
        }
    }

    /// Returns the size of the code in bytes; 0 for a member that is not stored.
    pub fn width(&self) -> u64 {
        match *self {
            Scheme::Absent { .. } => 0,
            Scheme::Narrow { width, .. }
            | Scheme::Own { width, .. }
            | Scheme::Prefix { width, .. }
            | Scheme::Table { width, .. }
            | Scheme::PageTable { width, .. } => width,
        }
    }
}

/// A member that stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excluded {
    /// Its name; empty for the order of all members.
    pub name: String,
    /// The reason, with file and line if code is the reason.
    pub why: String,
    /// The only scheme that this excludes, by name; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// Whether the values and the plan are the reason, and not the code.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub planned: bool,
}

/// The effect of the plan on a slab cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CachePlan {
    /// The name of the cache.
    pub name: String,
    /// The structure of its objects.
    #[serde(rename = "type")]
    pub of: String,
    /// Size of an object in bytes with padding, before and after.
    pub size: [u64; 2],
    /// Number of objects of a slab, before and after.
    pub per_slab: [u64; 2],
    /// Size of a slab in bytes, before and after.
    pub slab_bytes: [u64; 2],
    /// Number of objects, used and free.
    pub objects: u64,
    /// Size of its slabs in KiB, before and after.
    pub kib: [u64; 2],
    /// The shares of the members, also of embedded structures.
    pub members: Vec<MemberCost>,
}

/// The part of a cache's saving that a member brings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberCost {
    /// The names of structure and member, `inode.i_op`; `inode` alone for its order.
    pub name: String,
    /// Its share in KiB.
    pub kib: f64,
}
