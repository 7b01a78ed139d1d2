//! `config-spec --html`: the page of the kernel in miniature (fixtures/config) in a browser, compared with `--json`,
//! `--explain` and `--advise`.

use std::fs;
use std::path::PathBuf;

use kshrink_tests::{Outcome, Run, Visit, fixture};
use serde_json::Value;
use tempfile::TempDir;

/// A script that reads the figures of the page, and clicks to an option, its objects, and the filters.
const VISITOR: &str = r##"
const seen = document.body.dataset;
const text = (selector) => document.querySelector(selector)?.textContent ?? "nothing";
const figure = (name) => text(`#panel [data-figure=${name}] dd`).trim();
const row = (name) => document.querySelector(`[data-option="${name}"]`);
const rows = () => [...document.querySelectorAll("[data-option]")].map((row) => row.dataset.option);
const cells = (name) => [...(row(name)?.children ?? [])].map((cell) => cell.textContent).join("|");
const facts = () => [...document.querySelectorAll("#panel .facts dd")].map((fact) => `${fact.dataset.fact} ${fact.textContent}`).join("; ");
const list = (name) => {
  const details = document.querySelector(`#panel [data-list="${name}"]`);
  if (!details) return "none";
  if (!details.open) details.open = true;
  details.dispatchEvent(new Event("toggle"));
  return [...details.querySelectorAll("li")].map((entry) => entry.textContent).join("; ");
};
const cell = (label) => [...document.querySelectorAll(".cell")].find((made) => made.ariaLabel.startsWith(label));
// A cell stands for all objects of a small directory.
const cellsLit = () => document.querySelectorAll(".treemap.dim .cell.lit:not(.group)").length;
const lit = () => (cellsLit() ? (explorer.map.lit ?? []).map(fullName).sort().join(",") : "");
const filter = (value) => document.querySelector(`[data-filter=${value}]`)?.click();
const badges = () => [...document.querySelectorAll("[data-option] .badge")].map((badge) => badge.closest("tr").dataset.option).join(",");
seen.objects = figure("objects");
seen.known = Object.entries(document.querySelector("#figures [data-figure=known]").dataset).map(([name, bytes]) => `${name} ${bytes}`).join(", ");
seen.legend = text("#legend");
seen.rows = JSON.stringify(Object.fromEntries(rows().map((name) => [name, cells(name)])));
seen.proposed = badges();
seen.summary = text("#summary");
row("NET")?.click();
seen.chosen = [text("#selected"), figure("text"), figure("data"), figure("init")].join("; ");
seen.facts = facts();
seen.with = list("goes with it");
seen.own = list("objects");
seen.lit = lit();
seen.marked = text("tr[aria-current=true] a");
document.querySelector("#panel [data-list=objects] a")?.click();
location.hash = new URL(document.querySelector("#panel [data-list=objects] a")?.href ?? location.href).hash;
dispatchEvent(new HashChangeEvent("hashchange"));
seen.object = [text("#selected"), text("#panel [data-fact='linked if']"), text("#options")].join("; ");
row("LEGACY")?.click();
seen.parts = [list("parts"), lit()].join("; ");
seen.ran = list("ran");
filter("proposed");
seen.filtered = [rows().join(","), lit()].join("; ");
filter("nothing");
seen.nothing = rows().join(",");
filter("all");
document.querySelector("[data-mode=memory]").click();
seen.memory = text("#legend");
document.querySelector("th[data-column=option] button").click();
seen.sorted = rows()[0];
row("TABLE_ORDER")?.click();
seen.number = [text("#selected"), figure("built"), figure("smaller"), text("#panel [data-fact=variable]")].join("; ");
const query = document.getElementById("query");
query.value = "watchdog";
query.dispatchEvent(new InputEvent("input"));
seen.found = text("#found");
"##;

/// The kernel in miniature, in a directory with a cache.
struct Kernel(TempDir);

impl Kernel {
    fn new() -> Kernel {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Run::new(fixture("config/build.sh")).arg(dir.path()).succeed();
        Kernel(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a file")
    }

    fn command(&self, line: &str) -> Run {
        let run = Run::new(env!("CARGO_BIN_EXE_config-spec")).dir(self.0.path());
        run.env("KSHRINK_CACHE", self.path("cache")).args(line.split_whitespace())
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.command(line).succeed().text()).expect("JSON")
    }

    fn page(&self, line: &str) -> String {
        self.command(&format!("build/vmlinux {line} --html page.html")).succeed();
        self.read("page.html")
    }
}

/// Returns a number with separators.
fn human(number: u64) -> String {
    kcli::human(number)
}

fn bytes(option: &Value, field: &str, kinds: &[&str]) -> u64 {
    kinds.iter().map(|kind| option[field][kind].as_u64().expect("bytes")).sum()
}

#[test]
fn browser_shows_options_with_objects_and_reasons() {
    let kernel = Kernel::new();
    let evidence = "-p plan.json --census census.json";
    let visit = Visit::new(&kernel.page(evidence), VISITOR);
    let document = kernel.json("build/vmlinux -p plan.json --json");
    let options = document["options"].as_array().expect("options");
    let rows: Value = serde_json::from_str(&visit.noted("rows")).expect("rows");
    let mut shown = 0;
    for option in options {
        let name = option["name"].as_str().expect("a name");
        let Some(row) = rows[name].as_str() else { continue };
        shown += 1;
        let cells: Vec<&str> = row.split('|').collect();
        let after =
            option["after"]["text"].as_u64().map(|_| bytes(option, "after", &["text", "data", "bss"]));
        let count = |field: &str| option[field].as_array().map_or(0, Vec::len) as u64;
        let expected = [
            option["class"].as_str().unwrap_or("-").to_owned(),
            human(bytes(option, "keeps", &["text"])),
            human(bytes(option, "keeps", &["data", "bss"])),
            human(bytes(option, "keeps", &["init"])),
            human(after.expect("bytes after shrinking")),
            human(count("with")),
            human(count("objects")),
            human(option["rebuilds"].as_u64().expect("a number")),
            option["prompt"].as_str().expect("a prompt").to_owned(),
        ];
        assert_eq!(cells[1..], expected, "{name}");
    }
    let table = kernel.command("build/vmlinux -p plan.json").succeed().text();
    assert_eq!(shown, table.lines().count() - 1, "{table}");

    let plan = kernel.json(&format!("build/vmlinux {evidence} --advise"));
    let proposed = plan["config"]["options"].as_array().expect("options");
    let mut names: Vec<&str> =
        proposed.iter().map(|option| option["name"].as_str().expect("a name")).collect();
    names.sort_unstable();
    let noted = visit.noted("proposed");
    let mut marked: Vec<&str> = noted.split(',').collect();
    marked.sort_unstable();
    assert_eq!(marked, names);
    assert!(
        visit.noted("summary").starts_with("Proposed: 6 options together keep "),
        "{}",
        visit.noted("summary")
    );

    let net = options.iter().find(|option| option["name"] == "NET").expect("NET");
    let [text, data, init] =
        [&["text"][..], &["data", "bss"], &["init"]].map(|kinds| human(bytes(net, "keeps", kinds)));
    assert_eq!(visit.noted("chosen"), format!("NET; {text}; {data}; {init}"));
    let explained = kernel.command("build/vmlinux -p plan.json --explain NET").succeed().text();
    for fact in visit.noted("facts").split("; ") {
        let (key, value) = fact.split_once(' ').expect("a fact");
        let line = format!("  {key:<9} {value}");
        assert!(explained.lines().any(|explained| explained == line), "{line} in {explained}");
    }
    let objects: Vec<&str> = net["objects"]
        .as_array()
        .expect("objects")
        .iter()
        .map(|object| object["object"].as_str().expect("a name"))
        .collect();
    let own = visit.noted("own");
    assert!(objects.iter().all(|object| own.contains(object)), "{own}");
    assert_eq!(visit.noted("lit"), objects.join(","));
    assert_eq!(visit.noted("marked"), "NET");
    assert!(visit.noted("object").contains("NET"), "{}", visit.noted("object"));
    assert!(
        visit.noted("parts").starts_with("drivers/tty.o ")
            && visit.noted("parts").ends_with("; drivers/tty.o")
    );
    assert_eq!(visit.noted("ran"), "legacy_init: while the kernel started");
    assert!(visit.noted("filtered").starts_with("NET,") || visit.noted("filtered").contains("AIO"));
    let nothing = visit.noted("nothing");
    assert!(nothing.split(',').all(|name| name != "NET" && name != "AIO"), "{nothing}");
    assert!(visit.noted("memory").starts_with("text "));
    assert_eq!(visit.noted("sorted"), "AIO");
    assert_eq!(
        visit.noted("number"),
        "TABLE_ORDER; 16 262,144 bytes; 8; name_table, 262,144 bytes, allocated"
    );
    assert!(visit.noted("found").contains("WATCHDOG") && visit.noted("found").contains("drivers/watchdog.o"));
}

#[test]
fn page_needs_neither_classes_nor_closures() {
    let kernel = Kernel::new();
    let visit = Visit::new(&kernel.page("--quick"), VISITOR);
    assert_eq!((visit.noted("proposed").as_str(), visit.noted("summary").as_str()), ("", "nothing"));
    assert!(visit.noted("legend").starts_with("an option "), "{}", visit.noted("legend"));
    let rows: Value = serde_json::from_str(&visit.noted("rows")).expect("rows");
    let net: Vec<&str> = rows["NET"].as_str().expect("a row").split('|').collect();
    assert_eq!(net[4], "?", "{net:?}");
}

#[test]
fn names_are_escaped() {
    let kernel = Kernel::new();
    let kconfig = kernel.read("source/Kconfig");
    let hostile = "</script><b> & 'quoted'";
    let prompt = kconfig.lines().find(|line| line.trim_start().starts_with("bool \"")).expect("a prompt");
    let name = prompt.split('"').nth(1).expect("a prompt");
    fs::write(
        kernel.path("source/Kconfig"),
        kconfig.replace(&format!("\"{name}\""), &format!("\"{hostile}\"")),
    )
    .expect("a file");
    let page = kernel.page("--quick");
    assert_eq!(page.matches("</script>").count(), 3);
    let script = r##"
const prompts = [...document.querySelectorAll("[data-option] td:last-child")].map((cell) => cell.textContent);
document.body.dataset.prompts = [...prompts, ...survey.options.map(({ prompt }) => prompt)].join("; ");
"##;
    assert!(Visit::new(&page, script).noted("prompts").contains(hostile));
}

#[test]
fn outputs_are_complete_or_absent() {
    let kernel = Kernel::new();
    let refused = |line: &str, words: &[&str]| {
        let Outcome { status, stdout, stderr, .. } = kernel.command(line).outcome();
        assert!(status != Some(0) && stdout.is_empty(), "{line}: {stderr}");
        words.iter().for_each(|word| assert!(stderr.contains(word), "{line}: {word} in {stderr}"));
    };
    refused("build/vmlinux --quick --json --html -", &["standard output: ", "--output"]);
    refused("build/vmlinux --quick -o x.html --html x.html", &["x.html: "]);
    refused("build/vmlinux --quick --html none/x.html", &["none/x.html"]);
    refused("build/vmlinux --explain NET --html x.html", &["--explain", "--html"]);
    refused("build/vmlinux --quick --html /dev/full", &["/dev/full"]);
    fs::write(kernel.path("bad.json"), "{").expect("a file");
    refused("build/vmlinux -p bad.json --json -o x.json --html x.html", &["bad.json"]);
    assert!(!kernel.path("x.html").exists() && !kernel.path("x.json").exists());
    // The page comes in place of the table, or beside another output.
    let page = kernel.page("--quick");
    assert_eq!(kernel.command("build/vmlinux --quick --html -").succeed().text(), page);
    kernel.command("build/vmlinux -p plan.json --advise -o advice.json --html page.html").succeed();
    assert_eq!(
        kernel.read("advice.json"),
        kernel.command("build/vmlinux -p plan.json --advise").succeed().text()
    );
}
