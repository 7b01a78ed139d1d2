//! `coverage html`, loaded in a browser.

mod common;

use std::fs;

use common::{Traced, refused, text};
use kplan::Plan;
use kshrink_tests::Visit;
use ktext::{KernelText, PAGE_SIZE, PageMap, SectionPages};

/// A script that uses the page like a person, and stores the displayed text in attributes of the body.
const VISITOR: &str = r##"
const seen = document.body.dataset;
const heading = () => document.querySelector("#detail h2").textContent;
// A window in the background has no focus, and sends no event for it.
const visit = (cell) => { cell.focus(); cell.dispatchEvent(new FocusEvent("focus")); };
const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
seen.maps = [...document.querySelectorAll(".map")].map((map) =>
  [map.dataset.section, map.querySelectorAll(".page").length, map.querySelectorAll(".touched").length].join(" ")).join(", ");
seen.first = heading();
const text = document.querySelectorAll(".map")[1];
visit(text.querySelector("[tabindex='0']"));
seen.focused = heading();
seen.functions = [...document.querySelectorAll("#detail li")].map((item) => item.textContent).join(", ");
press("ArrowRight");
press("Enter");
seen.kept = document.querySelectorAll("[aria-selected=true]").length;
visit(document.querySelector(".map .page"));
seen.stays = heading();
press("Escape");
visit(document.querySelector(".map .page"));
seen.released = heading();
seen.stops = text.querySelectorAll("[tabindex='0']").length;
"##;

/// Returns the page for `vmlinux` and, with `after`, also for `relinked`.
fn page(traced: &Traced, after: bool) -> String {
    traced.write("plan.json", traced.coverage(&["qemu", "vmlinux", "trace"]).stdout);
    let mut arguments = vec!["html", "plan.json", "vmlinux"];
    if after {
        arguments.extend(["--after", "plan.json", "relinked"]);
    }
    let output = traced.coverage(&arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

fn map(traced: &Traced, kernel: &str) -> PageMap {
    let plan = fs::read_to_string(traced.path("plan.json")).unwrap();
    let plan = Plan::parse(&plan, "plan.json").unwrap();
    let kernel = KernelText::read(&traced.path(kernel), None).unwrap();
    kernel.pages(&kernel.ran(&plan.coverage.unwrap()).addresses, PAGE_SIZE)
}

#[test]
fn a_browser_shows_the_figures_of_the_plan() {
    let traced = Traced::new();
    let visit = Visit::new(&page(&traced, true), VISITOR);
    let noted = |name: &str| visit.noted(name);
    let (before, after) = (map(&traced, "vmlinux"), map(&traced, "relinked"));
    let shown = |map: &PageMap| {
        let section = |section: &SectionPages| {
            format!("{} {} {}", section.name, section.pages.len(), section.touched())
        };
        map.sections.iter().filter(|section| section.ran > 0).map(section).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(noted("maps"), format!("{}, {}", shown(&before), shown(&after)));
    // The emptiest page is that of the head: 51 of 63 bytes ran.
    assert_eq!(noted("first"), ".head.text page 0xc0100000: 51 of 63 bytes ran");
    let text = before.sections.iter().find(|section| section.name == ".text").unwrap();
    assert_eq!(noted("focused"), format!(".text page 0xc0100000: {} of {} bytes ran", text.ran, text.size));
    assert!(
        noted("functions").starts_with("start_kernel55 of 57, generated13 of 13, half5 of 11"),
        "{}",
        noted("functions")
    );
    assert_eq!((noted("kept").as_str(), noted("stops").as_str()), ("1", "1"));
    assert_eq!(noted("stays"), noted("focused"));
    assert_eq!(noted("released"), noted("first"));
}

#[test]
fn names_are_escaped() {
    let traced = Traced::new();
    page(&traced, false);
    // A name cannot end the element that it is in.
    let plan = fs::read_to_string(traced.path("plan.json")).unwrap();
    traced.write("plan.json", plan.replace("\"trace\": \"trace\"", "\"trace\": \"</h2><script>\""));
    let output = traced.coverage(&["html", "plan.json", "vmlinux"]);
    assert!(text(&output.stdout).contains("&lt;/h2&gt;&lt;script&gt;"));
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let traced = Traced::new();
    traced.write("empty.json", "{\"schema\": \"kshrink/1\"}");
    refused(&traced.coverage(&["html", "empty.json", "vmlinux"]), 2, "empty.json: it has no coverage");
    assert_eq!(
        traced.coverage(&["html", "plan.json", "vmlinux", "--after", "plan.json"]).status.code(),
        Some(2)
    );
}
