/*!
The structures of a kernel, from the debugging information of one of its objects: members in their order, with place,
alignment and kind.

```no_run
let bytes = std::fs::read("fs/inode.o")?;
let structures = ktypes::read("fs/inode.o", &bytes)?;
let inode = &structures["inode"];
assert_eq!(inode.members[0].name, "i_mode");
# Ok::<(), Box<dyn std::error::Error>>(())
```
*/

mod reader;
mod sections;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

pub use reader::read;
pub use sections::sections;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Debugging information that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{origin}: its debugging information cannot be read ({problem}); build the kernel again")]
pub struct Error {
    /// The file with the debugging information.
    pub origin: String,
    /// The reason.
    pub problem: String,
}

/// A structure or union.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Structure {
    /// Its size in bytes.
    pub size: u64,
    /// Its alignment in bytes.
    pub align: u64,
    /// Its members in their order, with those of unnamed structures and unions.
    pub members: Vec<Member>,
}

/// A member of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its offset in bytes; of a bit-field, that of its word.
    pub offset: u64,
    /// Its size in bytes; of a bit-field, that of its word.
    pub bytes: u64,
    /// Its alignment in bytes.
    pub align: u64,
    /// Its kind.
    pub kind: Kind,
    /// Its type, as in C.
    pub of: String,
    /// The first member with a name of the unnamed structure or union, or of the run of bit-fields, that it is part of.
    pub group: Option<String>,
    /// The alignment in bytes of that unnamed structure or union.
    pub group_align: u64,
    /// Whether it shares its bytes with other members of a union.
    pub union: bool,
    /// The structure that it is, if that has a name.
    pub structure: Option<String>,
    /// For a bit-field: the lowest bit in its word, and number of bits.
    pub bits: Option<(u64, u64)>,
    /// For a number in a structure of its own, such as `kuid_t`: the name of the number there.
    pub wrapped: Option<String>,
}

/// The structures of one object, by name.
pub type Structures = FxHashMap<String, Structure>;

/// The kind of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A number without a sign, also an enumeration or a Boolean.
    Unsigned,
    /// A number with a sign.
    Signed,
    /// A pointer.
    Pointer,
    /// A pointer to code.
    Function,
    /// A structure or union with a name of its own.
    Structure,
    /// An array.
    Array,
    /// A bit-field.
    Bits,
}

#[cfg(test)]
mod tests;
