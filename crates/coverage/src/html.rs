//! A page that shows the address space of a kernel's code: every memory page, how much of its code ran, and its
//! functions.
//!
//! It is one file without references to others: numbers and maps are in the document itself, and a small script shows
//! the functions of the page under the pointer.

use std::cmp::Reverse;
use std::fmt::{self, Write as _};

use kcli::human;
use khtml::{Escaped, Page as HtmlPage};
use kplan::Coverage;
use ktext::{FunctionPart, KernelText, PAGE_SIZE, Page, PageMap, SectionPages};
use serde_json::json;

use crate::summary::share;

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// Pages in a row of a map: 128 KiB with pages of 4 KiB.
const COLUMNS: usize = 32;

/// Number of the emptiest touched pages to list.
const EMPTIEST: usize = 20;

/// Number of functions to name for each of these.
const NAMED: usize = 3;

/// A kernel and its code that ran.
struct View<'a> {
    kernel: &'a KernelText,
    coverage: &'a Coverage,
    map: PageMap,
}

/// Returns the page for some kernels, next to each other.
pub fn page(shown: &[(Coverage, KernelText)]) -> String {
    let views = shown.iter().map(|(coverage, kernel)| {
        let map = kernel.pages(&kernel.ran(coverage).addresses, PAGE_SIZE);
        View { kernel, coverage, map }
    });
    let views: Vec<View<'_>> = views.collect();
    let mut body = String::new();
    // Writing to a string does not fail.
    let _ = write_body(&mut body, &views);
    let data = json!(views.iter().map(data).collect::<Vec<_>>()).to_string();
    let data = [("data", data.as_str())];
    HtmlPage { title: "Kernel pages", style: STYLE, body: &body, data: &data, script: SCRIPT }.to_string()
}

fn write_body(out: &mut String, views: &[View<'_>]) -> fmt::Result {
    write!(
        out,
        "<h1>What runs of a kernel, page by page</h1>\n\
         <p class=\"faint\">Each square is a page of {PAGE_SIZE} bytes of the kernel's code. Point at one, or go there \
         with Tab and the arrow keys, to see its functions; a click or Enter keeps it, Escape lets go.</p>\n\
         <div class=\"legend\"><span><i></i>untouched</span>\
         <span>touched: few bytes ran<i class=\"scale\"></i>all ran</span></div>\n\
         <main class=\"views\">\n"
    )?;
    for (number, view) in views.iter().enumerate() {
        write_view(out, number, view)?;
    }
    writeln!(
        out,
        "</main>\n<aside class=\"detail\" id=\"detail\" aria-live=\"polite\" aria-label=\"Functions of a page\"></aside>"
    )
}

fn write_view(out: &mut String, number: usize, view: &View<'_>) -> fmt::Result {
    writeln!(out, "<section class=\"view\">\n<h2>{}</h2>", Escaped(&view.kernel.path))?;
    let runs = view.coverage.runs.iter().map(|run| format!("{} ({})", run.trace, run.source));
    let runs = runs.collect::<Vec<_>>().join(", ");
    writeln!(out, "<p class=\"faint\">Traces: {}</p>", Escaped(&runs))?;
    for (index, section) in shown(&view.map) {
        write_section(out, number, index, section)?;
    }
    write_emptiest(out, number, view)?;
    writeln!(out, "</section>")
}

/// Iterates over the sections with code that ran, with their numbers.
fn shown(map: &PageMap) -> impl Iterator<Item = (usize, &SectionPages)> {
    map.sections.iter().enumerate().filter(|(_, section)| section.ran > 0)
}

fn write_section(out: &mut String, view: usize, index: usize, section: &SectionPages) -> fmt::Result {
    let name = Escaped(&section.name);
    let pages = |bytes: u64| human(bytes.div_ceil(PAGE_SIZE));
    write!(
        out,
        "<h3>{name}</h3>\n<dl class=\"figures\">\n\
         <div><dt>pages touched</dt><dd>{} <small>of {}</small></dd></div>\n\
         <div><dt>bytes ran</dt><dd>{} <small>of {}, {}</small></dd></div>\n\
         <div><dt>functions ran</dt><dd>{} <small>of {}</small></dd></div>\n\
         <div><dt>at least</dt><dd>{} <small>pages by function,</small> {} <small>by byte</small></dd></div>\n</dl>\n\
         <div class=\"map\" role=\"grid\" aria-label=\"Pages of {name}\" data-columns=\"{COLUMNS}\" \
         data-section=\"{name}\" data-pages=\"{}\" data-touched=\"{}\" data-ran=\"{}\">\n",
        human(section.touched() as u64),
        human(section.pages.len() as u64),
        human(section.ran),
        human(section.size),
        share(section.ran, section.size),
        human(section.functions_run as u64),
        human(section.functions as u64),
        pages(section.function_bytes),
        pages(section.ran),
        section.pages.len(),
        section.touched(),
        section.ran,
    )?;
    for (row, pages) in section.pages.chunks(COLUMNS).enumerate() {
        write!(
            out,
            "<div class=\"row\" role=\"row\"><span class=\"address\" role=\"rowheader\">{:x}</span>",
            pages[0].address
        )?;
        for (column, page) in pages.iter().enumerate() {
            let number = row * COLUMNS + column;
            let tab = if number == 0 { 0 } else { -1 };
            let label = format!("{:x}: {} of {} bytes ran", page.address, human(page.ran), human(page.size));
            let look = match page.ran {
                0 => "class=\"page\"".to_owned(),
                ran => format!(
                    "class=\"page touched\" style=\"--full:{:.3}\"",
                    ran as f64 / page.size.max(1) as f64
                ),
            };
            write!(
                out,
                "<span {look} role=\"gridcell\" tabindex=\"{tab}\" aria-label=\"{label}\" \
                 data-page=\"{view}.{index}.{number}\"></span>"
            )?;
        }
        writeln!(out, "</div>")?;
    }
    writeln!(out, "</div>")
}

/// Writes the touched pages with the fewest executed bytes.
fn write_emptiest(out: &mut String, number: usize, view: &View<'_>) -> fmt::Result {
    let mut touched: Vec<(usize, usize, &Page)> = shown(&view.map)
        .flat_map(|(index, section)| {
            section.pages.iter().enumerate().map(move |(at, page)| (index, at, page))
        })
        .filter(|(_, _, page)| page.ran > 0)
        .collect();
    touched.sort_by_key(|(_, _, page)| page.ran);
    write!(
        out,
        "<table>\n<caption>The emptiest touched pages</caption>\n<thead><tr><th scope=\"col\">page</th>\
         <th scope=\"col\">bytes ran</th><th scope=\"col\">functions ran</th><th scope=\"col\">because of</th></tr></thead>\n\
         <tbody>\n"
    )?;
    for (index, at, page) in touched.into_iter().take(EMPTIEST) {
        let mut ran: Vec<_> = page.functions.iter().filter(|part| part.ran > 0).collect();
        ran.sort_by_key(|part| Reverse(part.ran));
        let names = ran.iter().take(NAMED).map(|part| &*view.kernel.linked.functions[part.function].name);
        let names = names.collect::<Vec<_>>().join(", ");
        writeln!(
            out,
            "<tr data-emptiest=\"{number}.{index}.{at}\"><td>{:x}</td><td>{}</td><td>{}</td><td>{}{}</td></tr>",
            page.address,
            human(page.ran),
            human(ran.len() as u64),
            Escaped(&names),
            if ran.len() > NAMED { ", …" } else { "" },
        )?;
    }
    writeln!(out, "</tbody>\n</table>")
}

/// Returns the script's data: the pages of each section, and for each page its address, size, executed bytes, and
/// functions.
fn data(view: &View<'_>) -> serde_json::Value {
    let function = |part: &FunctionPart| {
        let name = &view.kernel.linked.functions[part.function].name;
        json!([name, part.size, part.ran])
    };
    let page = |page: &Page| {
        let functions: Vec<_> = page.functions.iter().map(function).collect();
        json!([format!("{:x}", page.address), page.size, page.ran, functions])
    };
    let sections = view.map.sections.iter().map(|section| {
        // A hidden section needs no pages.
        let pages: Vec<_> = section.pages.iter().filter(|_| section.ran > 0).map(page).collect();
        json!({ "name": section.name, "pages": pages })
    });
    sections.collect()
}
