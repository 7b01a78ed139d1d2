//! The HTML report of a rewritten kernel, compared with the corresponding commands.

use std::fs;

use kshrink_tests::{Kernel, KernelTest, RewrittenKernel, Run, Visit};
use serde_json::{Value, json};

/// Maximum number of bytes in one class of memory that the link adds to the objects: padding, and tables of the build.
const MOST_OF_LINK: u64 = 16 << 10;

/// A script that reads the sums of the map, and searches for a function.
const VISITOR: &str = r##"
const seen = document.body.dataset;
const figure = (name) => document.querySelector(`#panel [data-figure=${name}] dd`)?.firstChild.textContent.replaceAll(",", "");
seen.footprint = [figure("before"), figure("after")].join(" ");
document.getElementById("init").click();
seen.init = [figure("before"), figure("after")].join(" ");
const link = [...root.children.get("(the link)").children.values()];
seen.link = Math.max(...link.map(({ item }) => Math.abs(item[BEFORE])));
seen.frozen = document.querySelectorAll(".square").length;
const query = document.getElementById("query");
query.value = "FUNCTION";
query.dispatchEvent(new InputEvent("input"));
location.hash = new URL(document.querySelector("#found a").href).hash;
dispatchEvent(new HashChangeEvent("hashchange"));
seen.function = document.querySelector("#selected").textContent;
seen.chain = JSON.stringify([...document.querySelectorAll("#chain li")].map((item) => item.textContent));
seen.retained = figure("retained");
"##;

/// Checks that the page of a finished directory has the sizes of `kelf size` and, for a function, the chain of
/// `--explain` and the bytes of `--retained`. The kernel was rewritten with these arguments.
pub fn agrees(
    test: &mut KernelTest<'_>,
    kernel: &Kernel,
    rewritten: &RewrittenKernel,
    arguments: &[&str],
    function: &str,
) {
    let page = test.chain.dir().join("page.html");
    let run = Run::kshrink("kshrink-spec").arg("--from").arg(&rewritten.dir).arg("--html").arg(&page);
    test.chain.succeed(run);
    let page = fs::read_to_string(page).expect("the page");
    let visit = Visit::new(&page, &VISITOR.replace("FUNCTION", function));
    let sizes =
        Run::kshrink("kelf").args(["size", "--json"]).arg(&kernel.vmlinux).arg(&rewritten.kernel.vmlinux);
    let sizes: Value = serde_json::from_str(&test.chain.succeed(sizes).text()).expect("JSON");
    for (note, column) in [("footprint", "footprint"), ("init", "init_footprint")] {
        assert_eq!(visit.noted(note), format!("{} {}", sizes[0][column], sizes[1][column]), "{column}");
    }
    // The objects account for nearly all of the original.
    let link: u64 = visit.noted("link").parse().expect("a number");
    assert!(link < MOST_OF_LINK, "{link} bytes are of no object");
    let pages = rewritten.report["frozen"]["pages"].as_u64().unwrap_or(0);
    assert_eq!(visit.noted("frozen"), pages.to_string());
    let run = |option: &str| {
        let run = Run::kshrink("kshrink-spec").arg(&kernel.vmlinux).args(arguments).args([option, function]);
        run.args(["--plan", &format!("{}.json", rewritten.kernel.name)])
    };
    let explained = test.chain.succeed(run("--explain")).text();
    let chain: Vec<&str> = explained.lines().skip(1).map(str::trim).collect();
    assert_eq!(visit.noted("function"), function);
    assert_eq!(visit.noted("chain"), json!(chain).to_string());
    let retained = test.chain.succeed(run("--retained")).text();
    let bytes = retained
        .lines()
        .last()
        .and_then(|line| line.split_whitespace().nth(1))
        .map(|bytes| bytes.replace(',', ""));
    assert_eq!(Some(visit.noted("retained")), bytes);
}
