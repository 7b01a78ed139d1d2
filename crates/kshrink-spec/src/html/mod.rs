//! `--html`: the report as one page for a browser.
//!
//! The page shows two documents, both unchanged from the output directory: report.json, and contents.json, which
//! [`contents`](mod@contents) derives from the graph. The page's script computes the sums, so that the page cannot
//! contradict the documents.

mod contents;

use std::fs;
use std::io::Write;
use std::path::Path;

use frozen_pack::show::{Shown, show};
use kcli::{Failure, Output};
use khtml::Explorer;
use kplan::Contents;
use serde_json::{Value, json};

pub use contents::contents;

use crate::report;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = concat!(
    include_str!("model.js"),
    include_str!("panel.js"),
    include_str!("tables.js"),
    include_str!("page.js")
);

/// Writes the page of a report and contents, if one is wanted. `out` is the directory with the kernel.
pub fn write(
    report: &[u8],
    contents: &Contents,
    out: Option<&Path>,
    page: Option<Output>,
) -> Result<(), Failure> {
    let Some(mut page) = page else { return Ok(()) };
    let report: Value = serde_json::from_slice(report)?;
    let frozen = out.map(|out| frozen(&out.join("vmlinux"), &report)).transpose()?.flatten();
    page.write_all(document(&report, contents, frozen.as_ref())?.as_bytes())?;
    Ok(page.commit()?)
}

/// Writes the page for the output directory of an earlier run.
pub fn write_finished(dir: &Path, page: Option<Output>) -> Result<(), Failure> {
    let path = dir.join("report.json");
    let report = fs::read(&path).map_err(|error| {
        Failure::bad_input(format!(
            "{}: {error}; expected a directory that kshrink-spec -o has made",
            path.display()
        ))
    })?;
    report::check_schema(&report, &path)?;
    let path = dir.join("contents.json");
    if !path.exists() {
        return Err(Failure::bad_input(format!(
            "{}: no such file; an earlier version made this directory, so run kshrink-spec -o again",
            path.display()
        )));
    }
    write(&report, &Contents::open(&path).map_err(Failure::of)?, Some(dir), page)
}

/// The frozen pages of a kernel, if it has any.
fn frozen(vmlinux: &Path, report: &Value) -> Result<Option<Shown>, Failure> {
    if report.get("frozen").is_none() {
        return Ok(None);
    }
    let bytes =
        fs::read(vmlinux).map_err(|error| Failure::bad_input(format!("{}: {error}", vmlinux.display())))?;
    let shown = show(&bytes);
    let shown = shown.map_err(|error| Failure::bad_input(format!("{} {error}", vmlinux.display())))?;
    Ok(Some(shown))
}

/// The page.
fn document(report: &Value, contents: &Contents, frozen: Option<&Shown>) -> Result<String, Failure> {
    let report = serde_json::to_string(report)?;
    let contents = serde_json::to_string(contents)?;
    let frozen = frozen.map_or(Value::Null, frozen_pages).to_string();
    let data = [("report", &*report), ("contents", &*contents), ("frozen", &*frozen)];
    let page = Explorer {
        title: "Kernel report",
        map: "Treemap of the kernel, by directory and object",
        search: "Find a function or variable",
        style: STYLE,
        data: &data,
        script: SCRIPT,
    };
    Ok(page.to_string())
}

/// Returns the frozen pages, each with address, layout, size and packed size, and the functions and variables on them,
/// each with name, size, and first and last page.
fn frozen_pages(shown: &Shown) -> Value {
    let pages = shown.pages.iter().map(|page| json!([page.address, page.layout, page.size, page.packed]));
    let symbols = shown.symbols.iter().map(|symbol| {
        let [first, last] = symbol.pages;
        json!([symbol.name, symbol.size, first, last])
    });
    json!({
        "size": shown.size,
        "packed": shown.packed,
        "pages": pages.collect::<Vec<_>>(),
        "symbols": symbols.collect::<Vec<_>>(),
    })
}
