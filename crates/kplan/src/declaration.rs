//! Declarations of paths: a separate document, from which `customize` makes a list of paths with the values that a running
//! kernel had.
//!
//! ```
//! let text = include_str!("../examples/declaration.json");
//! let declaration = kplan::Declaration::parse(text, "declaration.json")?;
//! assert_eq!((declaration.entry.as_str(), declaration.objects.len()), ("inet_sendmsg", 3));
//! # Ok::<(), kplan::Error>(())
//! ```

use std::collections::BTreeSet;
use std::io::{Read, Write};

use serde::{Deserialize, Serialize};

use crate::document::{Document, Error};
use crate::paths::PathTarget;

const DOCUMENT: Document = Document { what: "a declaration of a path", schema: "kshrink-declaration/1" };

/// A path whose facts are to be observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedDeclaration")]
pub struct Declaration {
    /// The function where it begins.
    pub entry: String,
    /// The object of the kernel's build whose source has the structures, such as `net/ipv4/udp.o`.
    pub types: String,
    /// Functions that the path calls as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<String>,
    /// The functions that computed calls of it are expected to call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<PathTarget>,
    /// The objects. An object comes after the one that points to it.
    pub objects: Vec<DeclaredObject>,
}

/// An object that the path uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredObject {
    /// The name that facts use.
    pub name: String,
    /// Its structure, without `struct`.
    #[serde(rename = "type")]
    pub of: String,
    /// The place of the pointer to it.
    pub from: DeclaredPlace,
    /// The reason why the pointer stays the same while the path runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable: Option<String>,
    /// The reason why the pointer is never null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exists: Option<String>,
    /// The members whose values become facts if they never change; absent if all are candidates. A member that is a
    /// structure stands for all members of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<Vec<String>>,
    /// The members whose facts stay true while the path runs. A fact about another one holds until a store or call may change
    /// it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stable_facts: Vec<StableFacts>,
}

/// Members whose facts stay true while the path runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StableFacts {
    /// Their names. A member that is a structure stands for all members of it.
    pub members: Vec<String>,
    /// The reason.
    pub reason: String,
}

/// The place of a pointer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeclaredPlace {
    /// The register of this argument, from 0.
    Argument(u8),
    /// A member of another object, as `OBJECT.MEMBER`.
    Member(String),
    /// A variable itself.
    Variable(String),
}

impl Declaration {
    /// Reads a document to the end of `reader`. Messages call it `name`.
    ///
    /// # Errors
    /// One of [`Error`], each with the name and, where one exists, line and column.
    pub fn read(reader: impl Read, name: &str) -> Result<Declaration, Error> {
        DOCUMENT.read(reader, name)
    }

    /// Parses a document.
    ///
    /// # Errors
    /// As for [`Declaration::read`].
    pub fn parse(text: &str, name: &str) -> Result<Declaration, Error> {
        DOCUMENT.parse(text, name)
    }

    /// Writes the document as indented JSON with a newline at the end.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn write(&self, out: impl Write) -> std::io::Result<()> {
        DOCUMENT.write(self, out)
    }
}

/// The document as read, before validation.
#[derive(Deserialize)]
struct UncheckedDeclaration {
    entry: String,
    types: String,
    #[serde(default)]
    calls: Vec<String>,
    #[serde(default)]
    targets: Vec<PathTarget>,
    objects: Vec<DeclaredObject>,
}

impl TryFrom<UncheckedDeclaration> for Declaration {
    type Error = String;

    fn try_from(read: UncheckedDeclaration) -> Result<Declaration, String> {
        let UncheckedDeclaration { entry, types, calls, targets, objects } = read;
        let mut names = BTreeSet::new();
        for DeclaredObject { name, from, .. } in &objects {
            if let DeclaredPlace::Member(place) = from {
                let outer = place.split_once('.').map(|(outer, _)| outer);
                let outer = outer.ok_or_else(|| {
                    format!("object {name}: the member {place:?}; expected OBJECT.MEMBER, such as sock.sk")
                })?;
                if !names.contains(outer) {
                    return Err(format!("object {name}: no object {outer} before it"));
                }
            }
            if !is_word(name) {
                return Err(format!("object {name:?}: expected a name of letters, digits and _"));
            }
            if !names.insert(name.as_str()) {
                return Err(format!("two objects are called {name}"));
            }
        }
        Ok(Declaration { entry, types, calls, targets, objects })
    }
}

fn is_word(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        let cases = [
            (r#"{"name": "a.b", "type": "t", "from": {"argument": 0}}"#, "object \"a.b\": expected a name"),
            (r#"{"name": "a", "type": "t", "from": {"member": "b"}}"#, "expected OBJECT.MEMBER"),
            (r#"{"name": "a", "type": "t", "from": {"member": "b.c"}}"#, "object a: no object b before it"),
            (r#"{"name": "a", "from": {"argument": 0}}"#, "missing field `type`"),
        ];
        for (object, expected) in cases {
            let text = format!(
                r#"{{"schema": "kshrink-declaration/1", "entry": "f", "types": "a.o", "objects": [{object}]}}"#
            );
            let message = Declaration::parse(&text, "d.json").unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn the_example_is_what_would_be_written() {
        let example = include_str!("../examples/declaration.json");
        let mut out = Vec::new();
        Declaration::parse(example, "declaration.json").unwrap().write(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), example);
    }
}
