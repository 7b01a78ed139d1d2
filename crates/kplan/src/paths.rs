//! Paths through a kernel that are copied for known inputs: a separate document, and a section of the plan while
//! `kshrink-spec` runs.
//!
//! ```
//! let paths = kplan::Paths::parse(include_str!("../examples/paths.json"), "paths.json")?;
//! let path = &paths.paths[0];
//! assert_eq!((path.entry.as_str(), path.facts.len()), ("inet_sendmsg", 3));
//! # Ok::<(), kplan::Error>(())
//! ```

use std::collections::BTreeSet;
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

use crate::document::{Document, Error};

const DOCUMENT: Document = Document { what: "a list of paths", schema: "kshrink-paths/1" };

/// Maximum number of arguments in registers.
const REGISTERS: u8 = 3;

/// Paths to copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedPaths")]
pub struct Paths {
    /// The paths, each with another entry.
    pub paths: Vec<Path>,
}

/// A path: the code that runs from a function on, for certain arguments and certain contents of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Path {
    /// The function where it begins.
    pub entry: String,
    /// Functions that the path calls as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<String>,
    /// The functions that computed calls of it are expected to call. Other functions are called as well, but not quickly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<PathTarget>,
    /// The objects that its facts are about. An object comes after the one that points to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<PathObject>,
    /// The facts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<PathFact>,
}

/// The expected target of computed calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathTarget {
    /// The function that calls.
    pub caller: String,
    /// The function that it is expected to call.
    pub callee: String,
}

/// An object that the path uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathObject {
    /// The name that facts use.
    pub name: String,
    /// The place of the pointer to it.
    pub from: PointerPlace,
    /// The reason why the pointer stays the same while the path runs; without one, it may change with any store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable: Option<String>,
    /// The reason why the pointer is never null; without one, the path compares it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exists: Option<String>,
}

/// The place of a pointer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PointerPlace {
    /// The register of this argument, from 0.
    Argument(u8),
    /// A word of another object.
    Member {
        /// The other object.
        object: String,
        /// Offset in bytes.
        offset: u32,
    },
    /// A variable itself.
    Variable(String),
}

/// A fact: the content of some bytes of an object, or of an argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathFact {
    /// The object.
    pub object: String,
    /// Offset in bytes.
    pub offset: u32,
    /// Width in bytes.
    #[serde(default = "word")]
    pub width: u8,
    /// The value of the bits in `mask`.
    #[serde(default)]
    pub value: u32,
    /// The known bits; absent if all are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<u32>,
    /// The function or variable to which the word points, instead of a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    /// The member of the structure, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// The reason why it stays true while the path runs; without one, it holds until a store that may change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable: Option<String>,
}

fn word() -> u8 {
    4
}

impl PathFact {
    /// Returns the known bits of its bytes, as a number.
    pub fn known(&self) -> u32 {
        self.mask.unwrap_or(self.all())
    }

    /// Returns all bits of its bytes, as a number.
    fn all(&self) -> u32 {
        u32::MAX >> (32 - 8 * u32::from(self.width))
    }
}

impl Paths {
    /// Reads a document to the end of `reader`. Messages call it `name`.
    ///
    /// # Errors
    /// One of [`Error`], each with the name and, where one exists, line and column.
    pub fn read(reader: impl Read, name: &str) -> Result<Paths, Error> {
        DOCUMENT.read(reader, name)
    }

    /// Parses a document.
    ///
    /// # Errors
    /// As for [`Paths::read`].
    pub fn parse(text: &str, name: &str) -> Result<Paths, Error> {
        DOCUMENT.parse(text, name)
    }

    /// Writes the document as indented JSON with a newline at the end.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        DOCUMENT.write(self, out)
    }
}

/// The document as read, before validation.
#[derive(Deserialize)]
struct UncheckedPaths {
    paths: Vec<Path>,
}

impl TryFrom<UncheckedPaths> for Paths {
    type Error = String;

    fn try_from(UncheckedPaths { paths }: UncheckedPaths) -> Result<Paths, String> {
        let mut entries = BTreeSet::new();
        for path in &paths {
            if !entries.insert(&path.entry) {
                return Err(format!("two paths begin at {}; expected one for each entry", path.entry));
            }
            check(path).map_err(|problem| format!("path {}: {problem}", path.entry))?;
        }
        Ok(Paths { paths })
    }
}

/// Checks the names, places and values of a path.
fn check(path: &Path) -> Result<(), String> {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for PathObject { name, from, .. } in &path.objects {
        match from {
            PointerPlace::Argument(number) if *number >= REGISTERS => {
                return Err(format!(
                    "object {name}: argument {number} is not in a register; expected 0 to 2"
                ));
            }
            PointerPlace::Member { object, .. } if !names.contains(object.as_str()) => {
                return Err(format!("object {name}: no object {object} before it"));
            }
            PointerPlace::Member { offset, .. } if offset % 4 != 0 => {
                return Err(format!("object {name}: the pointer at offset {offset} is not aligned to 4"));
            }
            _ => {}
        }
        if !names.insert(name) {
            return Err(format!("two objects are called {name}"));
        }
    }
    let mut callers = BTreeSet::new();
    if let Some(twice) = path.targets.iter().find(|target| !callers.insert(&target.caller)) {
        return Err(format!("two targets for the calls of {}; expected one", twice.caller));
    }
    for fact in &path.facts {
        let PathFact { object, offset, width, value, symbol, .. } = fact;
        let place = format!("fact {object}+{offset}");
        if !names.contains(object.as_str()) {
            return Err(format!("{place}: no object {object}"));
        }
        if !matches!(width, 1 | 2 | 4) || offset % u32::from(*width) != 0 {
            return Err(format!("{place}: {width} bytes; expected 1, 2 or 4, at a multiple of them"));
        }
        let (most, mask) = (fact.all(), fact.known());
        if mask > most || value & !mask != 0 {
            return Err(format!("{place}: value {value} has bits outside of its mask or width"));
        }
        if symbol.is_some() && (*width != 4 || mask != most || *value != 0) {
            return Err(format!("{place}: a symbol has 4 bytes, and neither value nor mask"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(path: &str) -> String {
        let text = format!(r#"{{"schema": "kshrink-paths/1", "paths": [{path}]}}"#);
        Paths::parse(&text, "p.json").unwrap_err().to_string()
    }

    #[test]
    fn mistakes_are_named() {
        let sock = r#"{"name": "sock", "from": {"argument": 0}}"#;
        let cases = [
            (r#"{"entry": "f", "fact": []}"#.to_owned(), "unknown field `fact`"),
            (
                r#"{"entry": "f", "objects": [{"name": "o", "from": {"argument": 3}}]}"#.to_owned(),
                "path f: object o: argument 3 is not in a register",
            ),
            (
                r#"{"entry": "f", "objects": [{"name": "o", "from": {"member": {"object": "p", "offset": 4}}}]}"#
                    .to_owned(),
                "path f: object o: no object p before it",
            ),
            (
                format!(r#"{{"entry": "f", "objects": [{sock}], "facts": [{{"object": "sk", "offset": 0}}]}}"#),
                "path f: fact sk+0: no object sk",
            ),
            (
                format!(
                    r#"{{"entry": "f", "objects": [{sock}], "facts": [{{"object": "sock", "offset": 2}}]}}"#
                ),
                "path f: fact sock+2: 4 bytes; expected 1, 2 or 4",
            ),
            (
                format!(
                    r#"{{"entry": "f", "objects": [{sock}],
                        "facts": [{{"object": "sock", "offset": 2, "width": 1, "value": 256}}]}}"#
                ),
                "path f: fact sock+2: value 256 has bits outside of its mask or width",
            ),
        ];
        for (path, expected) in cases {
            let message = message(&path);
            assert!(message.contains(expected), "{message}");
        }
        assert!(message(r#"{"entry": "f"}, {"entry": "f"}"#).contains("two paths begin at f"));
    }

    #[test]
    fn the_example_is_what_would_be_written() {
        let example = include_str!("../examples/paths.json");
        let mut out = Vec::new();
        Paths::parse(example, "paths.json").unwrap().write(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), example);
    }
}
