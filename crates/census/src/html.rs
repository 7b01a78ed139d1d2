//! A census as one page for a browser.
//!
//! The page shows the document unchanged; its script computes the sums, so that it cannot contradict the document.

use khtml::Explorer;
use serde_json::json;

use crate::document::{Document, Kind};

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = concat!(include_str!("html/model.js"), include_str!("html/page.js"));

/// All kinds, in the order of the document.
const KINDS: [Kind; 11] = [
    Kind::Slab,
    Kind::PageTables,
    Kind::Stacks,
    Kind::Vmalloc,
    Kind::Files,
    Kind::Anonymous,
    Kind::ProcessorLists,
    Kind::Referenced,
    Kind::Unknown,
    Kind::Free,
    Kind::Reserved,
];

/// Returns the page of a census.
///
/// # Errors
/// If the document cannot be written as JSON.
pub fn page(document: &Document) -> Result<String, serde_json::Error> {
    let kinds = KINDS.iter().map(|kind| json!([kind, meaning(*kind), kind.is_explained()]));
    let kinds = kinds.collect::<serde_json::Value>().to_string();
    let census = serde_json::to_string(document)?;
    let page = Explorer {
        title: "Who holds memory",
        map: "Treemap of the memory, by kind and owner",
        search: "Find an owner or a variable",
        style: STYLE,
        data: &[("census", &census), ("kinds", &kinds)],
        script: SCRIPT,
    };
    Ok(page.to_string())
}

/// Returns the meaning of a kind, for people.
fn meaning(kind: Kind) -> &'static str {
    match kind {
        Kind::Slab => {
            "Objects of the slab allocator, one owner for each cache, and kmalloc of more than a slab holds."
        }
        Kind::PageTables => "Page tables of programs and of the kernel.",
        Kind::Stacks => "Stacks of tasks in the kernel.",
        Kind::Vmalloc => "Memory that is mapped above the linear mapping and has no type.",
        Kind::Files => "The page cache and files in memory, one owner for each type of file system.",
        Kind::Anonymous => "Memory of programs without a file.",
        Kind::ProcessorLists => "Free pages that a processor keeps; MemFree does not count them.",
        Kind::Referenced => {
            "Other pages, by the variable of the kernel or the slab cache whose pointers lead to them. A pointer is \
             evidence, not proof."
        }
        Kind::Unknown => "Pages in use whose owner is not known.",
        Kind::Free => "Free pages.",
        Kind::Reserved => {
            "Pages that the page allocator never had: the kernel image, the array of struct page, early allocations. \
             They are outside of MemTotal."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_listed_in_order() {
        assert!(KINDS.is_sorted());
        assert_eq!(KINDS.len(), Kind::Reserved as usize + 1);
    }
}
