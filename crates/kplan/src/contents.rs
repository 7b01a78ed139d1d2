//! The contents of a rewritten kernel: every function and variable of its objects with its size before and after, the
//! passes that removed bytes from it, and the chain of references that keeps it.
//!
//! The rewriter writes it next to a kernel (`contents.json`), and the HTML report is made from it. Like the block map,
//! it belongs to one run and is not a section of a plan.
//!
//! ```
//! let contents = kplan::Contents::parse(include_str!("../examples/contents.json"), "contents.json")?;
//! let main = contents.items.iter().find(|item| item.names == ["main"]).unwrap();
//! assert_eq!((main.before, main.removed.as_slice()), (40, &[(0, 10)][..]));
//! # Ok::<(), kplan::Error>(())
//! ```

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::document::{Document, Error};

const DOCUMENT: Document = Document { what: "a list of contents", schema: "kshrink-contents/1" };

/// The contents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedContents")]
pub struct Contents {
    /// The steps that changed sizes: passes, and `relink`, which encodes branches.
    pub steps: Vec<String>,
    /// The objects, as paths in the build directory or `archive(member)`. A name in parentheses is not an object.
    pub objects: Vec<String>,
    /// The names of the input sections.
    pub sections: Vec<String>,
    /// Texts that items and links refer to: verbs of references, reasons, and kinds of tables.
    pub phrases: Vec<String>,
    /// The items.
    pub items: Vec<Item>,
    /// The links of all chains. A link comes after its predecessor.
    pub links: Vec<ChainLink>,
}

/// The kind of an item. In JSON a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
#[repr(u8)]
pub enum ItemKind {
    /// A function of basic blocks.
    Function = 0,
    /// Opaque code.
    Code = 1,
    /// Data: a variable, or a section that is not split.
    Data = 2,
    /// An entry of a table that describes code.
    TableEntry = 3,
    /// All unnamed bytes of one section of an object.
    Unnamed = 4,
}

/// The class of memory that holds an item. In JSON a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
#[repr(u8)]
pub enum MemoryClass {
    /// Code that stays in memory after boot.
    Text = 0,
    /// Data that stays in memory after boot.
    Data = 1,
    /// Code that is freed after boot.
    InitText = 2,
    /// Data that is freed after boot.
    InitData = 3,
    /// Frozen code, which occupies only its packed size.
    FrozenText = 4,
    /// Frozen data.
    FrozenData = 5,
}

/// A function, a variable, or all unnamed parts of a section. In JSON an array in the order of the fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ItemRow", into = "ItemRow")]
pub struct Item {
    /// Its kind.
    pub kind: ItemKind,
    /// The function's name, or all symbols in the item.
    pub names: Vec<String>,
    /// The object, as an index into [`Contents::objects`].
    pub object: usize,
    /// The input section, as an index into [`Contents::sections`].
    pub section: usize,
    /// Its memory class in the original kernel.
    pub class_before: MemoryClass,
    /// Its size in the original kernel, in bytes.
    pub before: u64,
    /// Its size now, in bytes per memory class; empty if it was removed.
    pub after: Vec<(MemoryClass, u64)>,
    /// Bytes removed by each step (an index into [`Contents::steps`]); negative for added bytes.
    pub removed: Vec<(usize, i64)>,
    /// The last link of its chain, as an index into [`Contents::links`].
    pub link: Option<usize>,
    /// Bytes that would be unreachable without it: in total, of these code, and of these freed after boot.
    pub retained: [u64; 3],
    /// The reason that opaque code is opaque, or the kind of a table entry's table, as an index into
    /// [`Contents::phrases`].
    pub phrase: Option<usize>,
}

/// A link of a chain. In JSON an array of three numbers; the third is `from` plus 1, or 0 at the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(usize, usize, usize)", into = "(usize, usize, usize)")]
pub struct ChainLink {
    /// The item that is kept, as an index into [`Contents::items`].
    pub item: usize,
    /// The previous link's reference to it, or the reason that it is a root, as an index into [`Contents::phrases`].
    pub phrase: usize,
    /// The previous link; `None` for a root.
    pub from: Option<usize>,
}

type ItemRow = (
    ItemKind,
    Vec<String>,
    usize,
    usize,
    MemoryClass,
    u64,
    Vec<(MemoryClass, u64)>,
    Vec<(usize, i64)>,
    Option<usize>,
    [u64; 3],
    Option<usize>,
);

impl From<ItemRow> for Item {
    fn from(row: ItemRow) -> Item {
        let (kind, names, object, section, class_before, before, after, removed, link, retained, phrase) =
            row;
        Item { kind, names, object, section, class_before, before, after, removed, link, retained, phrase }
    }
}

impl From<Item> for ItemRow {
    fn from(item: Item) -> ItemRow {
        (
            item.kind,
            item.names,
            item.object,
            item.section,
            item.class_before,
            item.before,
            item.after,
            item.removed,
            item.link,
            item.retained,
            item.phrase,
        )
    }
}

impl From<(usize, usize, usize)> for ChainLink {
    fn from((item, phrase, from): (usize, usize, usize)) -> ChainLink {
        ChainLink { item, phrase, from: from.checked_sub(1) }
    }
}

impl From<ChainLink> for (usize, usize, usize) {
    fn from(link: ChainLink) -> (usize, usize, usize) {
        (link.item, link.phrase, link.from.map_or(0, |from| from + 1))
    }
}

impl From<ItemKind> for u8 {
    fn from(kind: ItemKind) -> u8 {
        kind as u8
    }
}

impl TryFrom<u8> for ItemKind {
    type Error = String;

    fn try_from(number: u8) -> Result<ItemKind, String> {
        use ItemKind::{Code, Data, Function, TableEntry, Unnamed};
        let kinds = [Function, Code, Data, TableEntry, Unnamed];
        kinds.get(usize::from(number)).copied().ok_or_else(|| format!("unknown kind of item {number}"))
    }
}

impl From<MemoryClass> for u8 {
    fn from(class: MemoryClass) -> u8 {
        class as u8
    }
}

impl TryFrom<u8> for MemoryClass {
    type Error = String;

    fn try_from(number: u8) -> Result<MemoryClass, String> {
        use MemoryClass::{Data, FrozenData, FrozenText, InitData, InitText, Text};
        let classes = [Text, Data, InitText, InitData, FrozenText, FrozenData];
        classes.get(usize::from(number)).copied().ok_or_else(|| format!("unknown class of memory {number}"))
    }
}

impl Contents {
    /// Reads the contents in the file at `path`.
    ///
    /// # Errors
    /// One of [`Error`], each with the path and, where one exists, line and column.
    pub fn open(path: &Path) -> Result<Contents, Error> {
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => DOCUMENT.read(file, &name),
            Err(error) => Err(Error::Read { name, error }),
        }
    }

    /// Parses contents. Messages call them `name`.
    ///
    /// # Errors
    /// As for [`Contents::open`].
    pub fn parse(text: &str, name: &str) -> Result<Contents, Error> {
        DOCUMENT.parse(text, name)
    }

    /// Writes the contents as JSON, one line for each item and link.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        DOCUMENT.write(self, out)
    }
}

/// Contents as read, before all indices are checked.
#[derive(Deserialize)]
struct UncheckedContents {
    steps: Vec<String>,
    objects: Vec<String>,
    sections: Vec<String>,
    phrases: Vec<String>,
    items: Vec<Item>,
    links: Vec<ChainLink>,
}

impl TryFrom<UncheckedContents> for Contents {
    type Error = String;

    fn try_from(
        UncheckedContents { steps, objects, sections, phrases, items, links }: UncheckedContents,
    ) -> Result<Contents, String> {
        for (number, item) in items.iter().enumerate() {
            let is_valid = item.object < objects.len()
                && item.section < sections.len()
                && item.link.is_none_or(|link| link < links.len())
                && item.phrase.is_none_or(|phrase| phrase < phrases.len())
                && item.removed.iter().all(|&(step, _)| step < steps.len());
            if !is_valid {
                return Err(format!(
                    "item {number} refers to an object, section, step, link or phrase that does not exist"
                ));
            }
        }
        for (number, link) in links.iter().enumerate() {
            let is_valid = link.item < items.len()
                && link.phrase < phrases.len()
                && link.from.is_none_or(|from| from < number);
            if !is_valid {
                return Err(format!(
                    "link {number} refers to an item or phrase that does not exist, or to a later link"
                ));
            }
        }
        Ok(Contents { steps, objects, sections, phrases, items, links })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../examples/contents.json");

    #[test]
    fn example_round_trip() {
        let mut out = Vec::new();
        Contents::parse(EXAMPLE, "c.json").unwrap().write(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), EXAMPLE);
    }

    #[test]
    fn dangling_indices_are_refused() {
        let refused = |from: &str, to: &str, expected: &str| {
            assert!(EXAMPLE.contains(from), "{from}");
            let message = Contents::parse(&EXAMPLE.replace(from, to), "c.json").unwrap_err().to_string();
            assert!(message.starts_with("c.json: not a valid list of contents: "), "{message}");
            assert!(message.contains(expected), "{message}");
        };
        refused("[0, [\"main\"], 0,", "[0, [\"main\"], 9,", "item 0 refers to an object");
        refused("[0, [\"main\"],", "[7, [\"main\"],", "unknown kind of item 7");
        refused("[1, 1, 1]", "[1, 1, 2]", "link 1 refers to an item or phrase");
    }
}
