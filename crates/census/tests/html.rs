//! `census html`: the page in a browser, compared with the document.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use census::document::{Document, Kind, Owner, SCHEMA, Sums};
use kshrink_tests::Visit;
use tempfile::TempDir;

/// A script that reads the figures of the page, and clicks to owners in the map, the table and the search.
const VISITOR: &str = r##"
const seen = document.body.dataset;
const text = (selector) => document.querySelector(selector)?.textContent ?? "nothing";
const figure = (name) => text(`#panel [data-figure=${name}] dd`).trim();
const click = (label) => [...document.querySelectorAll(".cell")].find((made) => made.ariaLabel.startsWith(label)).click();
const rows = () => [...document.querySelectorAll(".sorted tbody tr")];
const names = () => rows().map((row) => row.dataset.owner).join(",");
const filter = (value) => document.querySelector(`[data-filter=${value}]`).click();
const lit = () => [...document.querySelectorAll(".treemap.dim .cell.lit:not(.group)")].map((made) => made.ariaLabel.split(":")[0]).join(",");
seen.figures = ["used", "explained", "slab", "free"].map((name) => document.querySelector(`#figures [data-figure=${name}]`).dataset.bytes).join(" ");
seen.sum = figure("bytes");
seen.legend = text("#legend");
seen.title = document.title;
seen.rows = rows().map((row) => `${row.dataset.kind} ${row.dataset.bytes}`).join(",");
click("slab/names_cache:");
seen.cache = [text("#selected"), ...["bytes", "pages", "objects", "size", "unused"].map(figure)].join("; ");
seen.variables = text("#variables");
seen.marked = document.querySelector(".cell[aria-current=true]").ariaLabel;
seen.row = text("tr[aria-current=true] td");
const query = document.getElementById("query");
query.value = "<" + "/SCRIPT>";
query.dispatchEvent(new InputEvent("input"));
seen.found = text("#found");
rows().find((row) => row.dataset.kind === "free").click();
seen.free = [text("#selected"), figure("bytes"), document.getElementById("free").checked, text("#legend [data-part=free]")].join("; ");
document.querySelector("th[data-column=owner] button").click();
seen.sorted = names();
filter("slab");
seen.slab = `${names()}; ${lit()}`;
filter("all");
seen.all = [rows().length, document.querySelectorAll(".treemap.dim").length].join(" ");
"##;

fn owner(kind: Kind, name: &str, bytes: u64) -> Owner {
    Owner::new(kind, name, bytes)
}

/// A census with names that have a meaning in HTML.
fn document() -> Document {
    let cache = Owner {
        objects: Some(40),
        used: Some(30),
        active: Some(30),
        object_size: Some(100),
        merged: Some(2),
        variables: vec!["names_cachep".into(), "\"</script><b>".into()],
        ..owner(Kind::Slab, "names_cache", 8192)
    };
    let owners = vec![
        cache,
        owner(Kind::Slab, "large kmalloc", 4096),
        owner(Kind::PageTables, "page tables", 20480),
        owner(Kind::Files, "</script><script>document.body.dataset.bad = 1</script>", 40960),
        owner(Kind::Unknown, "single pages", 4096),
        owner(Kind::Free, "free pages", 409_600),
        owner(Kind::Reserved, "kernel image", 65536),
    ];
    Document {
        schema: SCHEMA.into(),
        kernel: "Linux version 6.12 <b>".into(),
        build_id: None,
        core: "</title>.core".into(),
        page_size: 4096,
        memory: Sums { total: 487_424, free: 409_600, slab: 12288, explained: 73728 },
        owners,
    }
}

fn census(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_census"));
    command.args(arguments).current_dir(dir).stdin(Stdio::null()).output().unwrap()
}

/// Returns the page of a census.
fn page(document: &Document) -> String {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("census.json"), serde_json::to_string(document).unwrap()).unwrap();
    let output = census(dir.path(), &["html", "census.json"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn browser_shows_the_figures_of_the_document() {
    let document = document();
    let visit = Visit::new(&page(&document), VISITOR);
    let noted = |name: &str| visit.noted(name);
    let Sums { free, slab, explained, .. } = document.memory;
    assert_eq!(noted("figures"), format!("{} {explained} {slab} {free}", document.memory.used()));
    let shown: u64 =
        document.owners.iter().filter(|owner| owner.kind != Kind::Free).map(|owner| owner.bytes).sum();
    assert_eq!(noted("sum").replace(',', ""), shown.to_string());
    assert_eq!(
        noted("legend"),
        "slab 7,096page-tables 20,480files 40,960unknown 4,096reserved 65,536unused in slabs 5,192"
    );
    assert_eq!(noted("title"), "Who holds memory: </title>.core");
    let mut owners = document.owners.clone();
    owners.sort_by_key(|owner| std::cmp::Reverse(owner.bytes));
    let rows: Vec<String> = owners.iter().map(|owner| format!("{} {}", owner.kind, owner.bytes)).collect();
    assert_eq!(noted("rows"), rows.join(","));
    assert_eq!(
        noted("cache"),
        "names_cache; 8,192 10.5\u{a0}% of the memory in use; 2; 30 of room for 40; 100 bytes; 5,192 bytes"
    );
    assert_eq!(noted("variables"), "names_cachep\"</script><b>");
    assert!(noted("marked").starts_with("slab/names_cache: 8,192 bytes"), "{}", noted("marked"));
    assert_eq!(noted("row"), "names_cache");
    assert_eq!(
        noted("found"),
        "</script><script>document.body.dataset.bad = 1</script>40,960\"</script><b>8,192"
    );
    assert_eq!(noted("free"), "free pages; 409,600; true; free 409,600");
    assert!(noted("sorted").starts_with("</script>"), "{}", noted("sorted"));
    assert_eq!(noted("slab"), "large kmalloc,names_cache; slab/names_cache,slab/large kmalloc");
    assert_eq!(noted("all"), "7 0");
}

#[test]
fn empty_and_large_censuses_are_shown() {
    let script = r##"
const seen = document.body.dataset;
seen.rows = document.querySelectorAll(".sorted tbody tr").length;
document.querySelector(".cell")?.click();
seen.cells = document.querySelectorAll(".cell").length > 1000;
const more = document.querySelector(".show-all");
seen.more = more.hidden ? "" : more.textContent;
more.click();
seen.after = document.querySelectorAll(".sorted tbody tr").length;
"##;
    let mut document = Document { owners: Vec::new(), memory: Sums::default(), page_size: 0, ..document() };
    let noted = |document: &Document| {
        let visit = Visit::new(&page(document), script);
        ["rows", "cells", "more", "after"].map(|name| visit.noted(name)).join("; ")
    };
    assert_eq!(noted(&document), "0; false; ; 0");
    document.owners = (0..5000).map(|number| owner(Kind::Slab, &number.to_string(), 4096 * number)).collect();
    assert_eq!(noted(&document), "250; true; Show all 5,000; 5000");
}

#[test]
fn bad_documents_leave_no_page() {
    let dir: TempDir = tempfile::tempdir().unwrap();
    let refused = |content: &str, expected: &str| {
        fs::write(dir.path().join("census.json"), content).unwrap();
        let output = census(dir.path(), &["html", "census.json", "-o", "page.html"]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
        assert!(errors.starts_with("census: error: census.json: ") && errors.contains(expected), "{errors}");
        assert!(!dir.path().join("page.html").exists());
    };
    refused("", "not a JSON object");
    refused("{\"schema\": \"kshrink/1\"}", "kshrink-census/1");
    refused("{\"schema\": \"kshrink-census/1\"}", "missing field");
    let output = census(dir.path(), &["html", "none.json"]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("none.json"));
}
