//! `kshrink-spec --html`: the page in a browser, compared with the documents and the corresponding commands.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kshrink_tests::Visit;
use kshrink_tests::process::run;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A script that reads the figures of the page, and clicks through the map to a chain.
const VISITOR: &str = r##"
const seen = document.body.dataset;
const text = (selector) => document.querySelector(selector)?.textContent ?? "nothing";
const figure = (name) => text(`#panel [data-figure=${name}] dd`);
const chain = () => [...document.querySelectorAll("#chain li")].map((item) => item.textContent);
const click = (label) => [...document.querySelectorAll(".cell")].find((made) => made.ariaLabel.startsWith(label)).click();
const tile = document.querySelector("#figures [data-figure=footprint]").dataset;
seen.footprint = [tile.before, tile.after].join(" ");
seen.kernel = [figure("before"), figure("after"), figure("frozen")].join(", ");
seen.legend = text("#legend");
seen.size = text("#tables [data-size='frozen.packed']");
seen.pass = text("#tables [data-pass=reach]");
seen.input = text("#input");
click("init:");
seen.directory = text("#selected");
click("init/main.o:");
click("init/main.o/state:");
seen.item = [text("#selected"), figure("before"), figure("after"), figure("retained")].join(", ");
seen.chain = chain().join("; ");
location.hash = new URL(document.querySelector("#chain a").href).hash;
dispatchEvent(new HashChangeEvent("hashchange"));
seen.before = [text("#selected"), figure("retained")].join(", ");
const query = document.getElementById("query");
query.value = "col";
query.dispatchEvent(new InputEvent("input"));
seen.found = text("#found");
document.getElementById("init").click();
seen.init = text("#legend");
document.querySelector("[data-pass=reach] button").click();
zoom(root);
seen.reach = text("#legend");
document.querySelector("[data-mode=opaque]").click();
seen.opaque = text("#legend");
document.querySelector("details[data-opaque]").open = true;
seen.reason = text("details[data-opaque] > summary");
seen.removed = (select(contents.items[2]), text("#panel"));
"##;

fn kshrink_spec(arguments: &[&str], dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kshrink-spec"));
    command.args(arguments).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Returns an output directory of `kshrink-spec -o`.
fn finished() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["report.json", "contents.json"] {
        fs::copy(fixture(name), dir.path().join(name)).unwrap();
    }
    dir
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/html").join(name)
}

fn document(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(fixture(name)).unwrap()).unwrap()
}

#[test]
fn browser_shows_figures_and_chains() {
    let dir = finished();
    let output = kshrink_spec(&["--from", ".", "--html", "page.html"], dir.path());
    assert!(output.status.success() && output.stdout.is_empty(), "{}", text(&output.stderr));
    let page = fs::read_to_string(dir.path().join("page.html")).unwrap();
    let visit = Visit::new(&page, VISITOR);
    let sizes = &document("report.json")["sizes"];
    let of = |when: &str, column: &str| sizes[when][column].as_u64().unwrap();
    // The sum of the map equals the sizes of the linked kernels.
    let (before, after) = (of("before", "footprint"), of("after", "footprint"));
    assert_eq!(visit.noted("footprint"), format!("{before} {after}"));
    let frozen = sizes["after"]["frozen"]["text"].as_u64().unwrap();
    assert_eq!(
        visit.noted("kernel"),
        format!("{before} bytes, {after} −27.3\u{a0}%, {frozen} bytes"),
        "the contents and what the link adds"
    );
    assert_eq!(visit.noted("legend"), "text 40data 40frozen 24removed 36");
    assert_eq!(visit.noted("size"), "packed30");
    assert_eq!(visit.noted("pass"), "reach1330show");
    assert_eq!(visit.noted("input"), "/build/<linux>/vmlinux");
    assert_eq!(visit.noted("directory"), "init");
    assert_eq!(visit.noted("item"), "state, 4 bytes, 4 0.0\u{a0}%, 4 bytes");
    let root = "main, named by the linker script";
    assert_eq!(visit.noted("chain"), format!("{root}; refers to init/main.o:.data, which holds state"));
    assert_eq!(visit.noted("before"), "main, 58 bytes, of it 54 code");
    assert_eq!(visit.noted("found"), "cold24");
    assert_eq!(visit.noted("init"), "text 30data 4init 13removed 10");
    assert_eq!(visit.noted("reach"), "removed 30");
    assert_eq!(visit.noted("opaque"), "text 8");
    assert_eq!(visit.noted("reason"), "hand-written: 1, 8 bytes");
    let removed = visit.noted("removed");
    assert!(removed.contains("</script><script>drivers/net/<b>.o:.text"), "{removed}");
    assert!(removed.contains("reach removed 20 bytes.Nothing that is kept refers to it."), "{removed}");
}

/// Chains and figures of all functions and variables, as the page shows them.
const CHAINS: &str = r##"
const shownOf = (item) => {
  select(item);
  const lines = [...document.querySelectorAll("#chain li")].map((line) => line.textContent);
  const figure = (name) => document.querySelector(`#panel [data-figure=${name}] dd`)?.textContent;
  return { name: item[NAMES][0], chain: lines, retained: figure("retained"), after: figure("after") };
};
document.body.dataset.items = JSON.stringify(contents.items.filter((item) => item[NAMES].length).map(shownOf));
"##;

const PROGRAM: &str = "
int table[4] = { 1, 2, 3, 4 };
static int (*const handlers[])(int);
__attribute__((noinline)) int helper(int i) { return table[i & 3]; }
__attribute__((noinline)) int indirect(int i) { return helper(i) + 1; }
__attribute__((noinline)) int unused(int i) { return helper(i) + 2; }
static int (*const handlers[])(int) = { indirect };
int main(int count) { return handlers[count & 0](count) + helper(count); }
";

#[test]
fn page_agrees_with_explain_and_retained() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("small.c"), PROGRAM).unwrap();
    run(Command::new("gcc")
        .args([
            "-m32",
            "-O1",
            "-ffreestanding",
            "-fno-pic",
            "-fno-ipa-sra",
            "-fdata-sections",
            "-c",
            "small.c",
        ])
        .current_dir(dir.path()));
    let program = ["--objects", "small.o", "--entry", "main", "--passes", "reach"];
    let kshrink_spec = |more: &[&str]| {
        let output = kshrink_spec(&[&program, more].concat(), dir.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    kshrink_spec(&["--emit-object", "rewritten.o", "--html", "page.html"]);
    let page = fs::read_to_string(dir.path().join("page.html")).unwrap();
    let items: Vec<Value> = serde_json::from_str(&Visit::new(&page, CHAINS).noted("items")).unwrap();
    let named =
        |name: &str| items.iter().find(|item| item["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    for name in ["main", "helper", "table"] {
        let item = named(name);
        let explained = kshrink_spec(&["--explain", name]);
        let chain: Vec<&str> = explained.lines().skip(1).map(str::trim).collect();
        assert_eq!(item["chain"], json!(chain), "{name}");
        let retained = kshrink_spec(&["--retained", name]);
        let bytes = retained.lines().last().unwrap().split_whitespace().nth(1).unwrap();
        let shown = item["retained"].as_str().unwrap();
        assert!(shown.starts_with(&format!("{bytes} bytes")), "{name}: {shown}, {bytes}");
    }
    let unused = named("unused");
    assert_eq!((&unused["chain"], unused["after"].as_str()), (&json!([]), Some("0 removed")));
}

#[test]
fn directories_without_documents_are_refused() {
    let refused = |change: &dyn Fn(&Path), arguments: &[&str], expected: &str| {
        let dir = finished();
        change(dir.path());
        let output = kshrink_spec(arguments, dir.path());
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
        assert!(!dir.path().join("page.html").exists());
    };
    let page = ["--from", ".", "--html", "page.html"];
    let remove = |name: &'static str| move |dir: &Path| fs::remove_file(dir.join(name)).unwrap();
    let write =
        |name: &'static str, text: &'static str| move |dir: &Path| fs::write(dir.join(name), text).unwrap();
    refused(&remove("report.json"), &page, "expected a directory that kshrink-spec -o has made");
    refused(&remove("contents.json"), &page, "contents.json: no such file; an earlier version");
    refused(
        &write("report.json", "{\"schema\": \"x/1\"}"),
        &page,
        "expected schema kshrink-report/1, found x/1",
    );
    refused(
        &write("contents.json", "{\"schema\": \"x/1\"}"),
        &page,
        "expected schema kshrink-contents/1, found x/1",
    );
    let explain = ["--objects", "a.o", "--entry", "main", "--explain", "main", "--html", "page.html"];
    refused(&|_| (), &explain, "cannot be used with");
    refused(&|_| (), &["--from", "."], "--html");
}
