//! The uses of a structure's members that the compiler sees.

use serde::{Deserialize, Serialize};

/// The form in which an expression uses a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// It reads the value.
    Read,
    /// It needs the type alone: `sizeof`, `typeof`.
    Type,
    /// It assigns a value.
    Store,
    /// It assigns with an operator, `+=`.
    Compound,
    /// It increments or decrements.
    Step,
    /// It takes the address.
    Address,
    /// It takes the place in the structure: `offsetof`, `container_of`.
    Offset,
    /// It is an operand of inline assembly that needs an address.
    Assembly,
    /// It names the member in an initializer, `.member = value`.
    Initializer,
    /// It uses a part of the member: an array's element, a structure's member.
    Part,
}

/// A use of a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Use {
    /// The structure.
    #[serde(rename = "type")]
    pub of: String,
    /// The member.
    pub member: String,
    /// The file with the member's name, in the source tree.
    pub file: String,
    /// Offset of the member's name in the file. If `is_hidden`, offset of the macro that was expanded.
    pub offset: usize,
    /// Offset of the expression's first byte. Equal to `offset` in the body of a macro.
    pub start: usize,
    /// The form of the use.
    pub form: Form,
    /// Whether the name is in the body of a macro.
    pub in_macro: bool,
    /// Whether the place of the name in the source is not known, because macros made it.
    pub is_hidden: bool,
}

/// A use of a whole structure that does not name its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WholeForm {
    /// An assignment copies it.
    Copy,
    /// A function copies or compares bytes of it.
    Bytes,
    /// It is a variable of a function.
    Local,
    /// It is initialized without the names of its members.
    Positional,
    /// A pointer to it becomes a pointer to another type that is not `void`.
    Cast,
    /// The distance of another pointer from it is computed, which depends on its order.
    Distance,
}

/// A use of a whole structure.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Whole {
    /// The structure.
    #[serde(rename = "type")]
    pub of: String,
    /// The file, in the source tree.
    pub file: String,
    /// The line.
    pub line: usize,
    /// The form.
    pub form: WholeForm,
    /// The function that is called, or the type.
    pub by: String,
}

/// A member as it is declared.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Member {
    /// The structure.
    #[serde(rename = "type")]
    pub of: String,
    /// The name.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// The kind of its values.
    pub kind: MemberKind,
    /// Whether it is within an unnamed union.
    pub in_union: bool,
    /// Whether it is declared `volatile`.
    pub is_volatile: bool,
    /// The file of the declaration, in the source tree.
    pub file: String,
    /// Offset of the name in it.
    pub offset: usize,
}

/// The kind of a member's values.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberKind {
    /// A number without a sign, an enumeration or a truth value.
    Unsigned,
    /// A number with a sign.
    Signed,
    /// A pointer to an object.
    Pointer,
    /// A structure whose only member is a number without a sign, such as `kuid_t`; the name of that member.
    Wrapper(String),
    /// Something that cannot be stored in another form: the reason.
    Other(String),
}

/// The uses in a file and the headers that it includes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// The uses of members.
    pub uses: Vec<Use>,
    /// The uses of whole structures.
    pub wholes: Vec<Whole>,
    /// The members of the structures.
    pub members: Vec<Member>,
    /// The files that clang could not parse completely, and its first message.
    pub failed: Vec<(String, String)>,
    /// Size of a pointer in bytes.
    #[serde(default)]
    pub word: u64,
    /// Number of files that were parsed.
    pub files: usize,
}
