//! The command `reorder`, run as a process: its output, and its effect in linkers.

mod common;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Dir, HOT, fixture, reorder, succeeds};
use kelf::Functions;
use kshrink_tests::process::{fails, finish, parse, run};
use serde_json::json;

const ALGORITHMS: [&str; 4] = ["first-use", "call-chain", "balanced", "packed"];

/// Returns the address of a function.
fn address(functions: &Functions, name: &str, file: Option<&str>) -> u64 {
    let (index, _) = functions.find(name, file, 0).unwrap_or_else(|| panic!("{name} is not there"));
    functions.function(index).address
}

/// Returns the hot functions of the ordinary code, in address order. Checks that nothing cold is between them.
fn hot_order(vmlinux: &Path) -> Vec<(&'static str, Option<&'static str>)> {
    let functions = Functions::read(vmlinux).unwrap();
    let mut hot: Vec<_> = HOT.iter().filter(|hot| hot.2).map(|hot| (hot.0, hot.1)).collect();
    hot.sort_by_key(|(name, file)| address(&functions, name, *file));
    let last = hot.last().map(|(name, file)| address(&functions, name, *file)).unwrap();
    for cold in ["cold_one", "cold_two", "cold_three"] {
        assert!(address(&functions, cold, None) > last, "{cold} lies among the hot functions");
    }
    hot
}

#[test]
fn a_plan_gets_the_section_and_keeps_the_others() {
    let dir = Dir::new();
    let vmlinux = dir.kernel("", "vmlinux");
    let plan = dir.plan(&vmlinux);
    let output = succeeds(reorder().arg(&plan).arg("--vmlinux").arg(&vmlinux).args(["-a", "first-use"]));
    let (before, after) = (parse(&fs::read_to_string(&plan).unwrap()), parse(&output));
    assert_eq!(after["coverage"], before["coverage"]);
    assert_eq!(after["limits"], before["limits"]);
    let order = &after["order"];
    assert_eq!(
        (order["granularity"].as_str(), order["algorithm"].as_str()),
        (Some("function"), Some("first-use"))
    );
    let names: Vec<&str> =
        order["functions"].as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
    // Region by region: the ordinary code, .sched.text, init text.
    assert_eq!(names, ["_start", "hot_two", "hot_one", "local", "second", "local", "scheduled", "setup"]);
    assert!(order["functions"].as_array().unwrap().iter().all(|function| function.get("ranges").is_none()));
}

#[test]
fn blocks_come_with_their_ranges() {
    let dir = Dir::new();
    let vmlinux = dir.kernel("", "vmlinux");
    let plan = dir.plan(&vmlinux);
    let output = succeeds(reorder().arg(&plan).arg("--vmlinux").arg(&vmlinux).args(["-g", "block"]));
    let order = &parse(&output)["order"];
    assert_eq!(order["granularity"], "block");
    for function in order["functions"].as_array().unwrap() {
        match function["name"].as_str().unwrap() {
            "hot_two" => {
                assert_eq!(function["ranges"].to_string(), r#"[{"offset":0,"size":2},{"offset":4,"size":1}]"#)
            }
            // A function that ran completely is hot completely.
            _ => assert!(function.get("ranges").is_none(), "{function}"),
        }
    }
}

#[test]
fn every_format_lists_each_hot_function_once() {
    let dir = Dir::new();
    let vmlinux = dir.kernel("", "vmlinux");
    let plan = dir.plan(&vmlinux);
    for algorithm in ALGORITHMS {
        for granularity in ["function", "block"] {
            let print = |format: &str| {
                let mut command = reorder();
                command.arg(&plan).arg("--vmlinux").arg(&vmlinux).args(["-f", format, "-a", algorithm]);
                succeeds(command.args(["-g", granularity]))
            };
            let sorted = |mut lines: Vec<String>| {
                lines.sort();
                lines
            };
            let lines = |text: &str| sorted(text.lines().map(|line| line.trim().to_owned()).collect());

            let listed = parse(&print("plan"))["order"]["functions"].as_array().unwrap().clone();
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let identities = listed.iter().map(|f| format!("{} {}", text(&f["file"]), text(&f["name"])));
            let expected = HOT.iter().map(|hot| format!("{} {}", hot.1.unwrap_or_default(), hot.0));
            assert_eq!(sorted(identities.collect()), sorted(expected.collect()), "{algorithm}");

            let names = |hot: &[(&str, Option<&str>, bool)]| {
                let mut names = sorted(hot.iter().map(|hot| hot.0.to_owned()).collect());
                names.dedup();
                names
            };
            assert_eq!(lines(&print("lld")), names(&HOT), "{algorithm}");

            let own: Vec<_> = HOT.iter().copied().filter(|hot| hot.2).collect();
            let sections = names(&own).iter().map(|name| format!(".text.{name}")).collect::<Vec<_>>();
            assert_eq!(lines(&print("gold")), sorted(sections), "{algorithm}");

            let description = |hot: &(&str, Option<&str>, bool)| {
                let object = hot.1.map(|file| file.replace(".c", ".o")).unwrap_or_default();
                format!("*{object}(.text.{})", hot.0)
            };
            let descriptions = sorted(own.iter().map(description).collect());
            assert_eq!(lines(&print("lds")), descriptions, "{algorithm}");
            let script = print("gnu-ld");
            let inner = script.strip_prefix(".text : {\n").unwrap().strip_suffix("}\n").unwrap();
            assert_eq!(lines(inner), descriptions, "{algorithm}");
        }
    }
}

/// The order of the ordinary code by first use.
const FIRST_USE: [(&str, Option<&str>); 6] = [
    ("_start", None),
    ("hot_two", None),
    ("hot_one", None),
    ("local", Some("first.c")),
    ("second", None),
    ("local", Some("second.c")),
];

#[test]
fn gnu_ld_takes_the_fragment_of_a_script() {
    let dir = Dir::new();
    let vmlinux = dir.kernel("", "vmlinux");
    let plan = dir.plan(&vmlinux);
    let mut command = reorder();
    command.arg(&plan).arg("--vmlinux").arg(&vmlinux).args(["-f", "lds", "-a", "first-use"]);
    let (status, order, messages) = finish(&mut command);
    assert_eq!(status, 0, "{messages}");
    assert!(messages.contains("2 functions that ran have no section of their own"), "{messages}");
    assert_eq!(hot_order(&dir.kernel(&order, "ordered")), FIRST_USE);
}

#[test]
fn gold_takes_the_list_of_sections() {
    let dir = Dir::new();
    let vmlinux = dir.kernel("", "vmlinux");
    let plan = dir.plan(&vmlinux);
    let mut command = reorder();
    command.arg(&plan).arg("--vmlinux").arg(&vmlinux).args(["-f", "gold", "-a", "first-use"]);
    command.arg("-o").arg(dir.path("order.txt"));
    succeeds(&mut command);
    // By default gold places ordered sections after all others; it sees only names.
    let ordered = dir.link("ld.gold", &["--section-ordering-file", "order.txt"], "ordered");
    let functions = Functions::read(&ordered).unwrap();
    let addresses: Vec<u64> = [("_start", None), ("hot_two", None), ("hot_one", None), ("second", None)]
        .map(|(name, file)| address(&functions, name, file))
        .into();
    assert!(addresses.is_sorted(), "{addresses:x?}");
}

#[test]
fn lld_takes_the_list_of_symbols() {
    let dir = Dir::new();
    let vmlinux = dir.kernel("", "vmlinux");
    let plan = dir.plan(&vmlinux);
    let mut command = reorder();
    command.arg(&plan).arg("--vmlinux").arg(&vmlinux).args(["-f", "lld", "-a", "first-use"]);
    command.arg("-o").arg(dir.path("order.txt"));
    succeeds(&mut command);
    let ordered = dir.link("ld.lld-19", &["--symbol-ordering-file", "order.txt"], "ordered");
    // It cannot distinguish the two functions `local`.
    let order: Vec<_> = hot_order(&ordered).into_iter().map(|(name, _)| name).collect();
    assert_eq!(order, ["_start", "hot_two", "hot_one", "local", "local", "second"]);
}

#[test]
fn lld_takes_a_script_that_its_map_makes_exact() {
    let dir = Dir::new();
    let script = fixture("kernel.lds").display().to_string();
    dir.write("order.lds", "");
    let vmlinux = dir.link("ld.lld-19", &["-Map=vmlinux.map", "-T", &script], "vmlinux");
    let plan = dir.plan(&vmlinux);
    let mut command = reorder();
    command.arg(&plan).arg("--vmlinux").arg(&vmlinux).arg("--map").arg(dir.path("vmlinux.map"));
    let (status, order, messages) = finish(command.args(["-f", "lds", "-a", "first-use"]));
    assert_eq!(status, 0, "{messages}");
    assert!(messages.contains("2 functions that ran have no section of their own"), "{messages}");
    assert!(
        order.contains("\nfirst.o(.text.local)\n") && order.contains("\nsecond.o(.text.local)\n"),
        "{order}"
    );

    dir.write("hot.lds", &format!("SECTIONS {{ .text.order : {{\n{order}}} }} INSERT AFTER .text;"));
    let ordered = dir.link("ld.lld-19", &["-T", "hot.lds", "-T", &script], "ordered");
    let functions = Functions::read(&ordered).unwrap();
    let cold =
        ["cold_one", "cold_two", "cold_three", "scheduled"].map(|name| address(&functions, name, None));
    let hot = FIRST_USE.map(|(name, file)| address(&functions, name, file));
    assert!(hot.is_sorted() && cold.iter().all(|cold| *cold < hot[0]), "{cold:x?} {hot:x?}");

    let mut command = reorder();
    command.arg(&plan).arg("--vmlinux").arg(&vmlinux).args(["-f", "lds", "--map"]).arg(&plan);
    fails(&mut command, 2, "plan.json:1: expected the columns `VMA LMA Size Align Out In Symbol`");
}

#[test]
fn pages_are_counted_by_area() {
    let dir = Dir::new();
    let vmlinux = dir.kernel("", "vmlinux");
    let plan = dir.plan(&vmlinux);
    let mut command = reorder();
    command.arg("pages").arg(&vmlinux).arg(&plan).args(["--json", "--page-size", "64"]);
    let pages = parse(&succeeds(&mut command));
    let functions = Functions::read(&vmlinux).unwrap();
    let size = |name: &str, file| functions.function(functions.find(name, file, 0).unwrap().0).size;
    let text: u64 = HOT.iter().filter(|hot| hot.0 != "setup").map(|hot| size(hot.0, hot.1)).sum();
    assert_eq!(pages["text"]["function_bytes"], text);
    assert_eq!(pages["text"]["minimum_by_function"], text.div_ceil(64));
    assert_eq!(pages["text"]["bytes_run"], text - size("hot_two", None) + 3);
    assert_eq!(pages["init_text"]["bytes_run"], size("setup", None));
    assert_eq!(pages["init_text"]["pages"], size("setup", None).div_ceil(64));
    let listed = pages["text"]["touched_pages"].as_array().unwrap().len() as u64;
    assert_eq!(pages["text"]["touched"], listed);

    let table = succeeds(reorder().arg("pages").arg(&vmlinux).arg(&plan));
    assert!(
        table.contains("minimum by function") && table.contains("border to .sched.text; ran: "),
        "{table}"
    );
}

#[test]
fn plans_come_through_pipes() {
    let dir = Dir::new();
    let vmlinux = dir.kernel("", "vmlinux");
    let plan = fs::read(dir.plan(&vmlinux)).unwrap();
    for dash in [None, Some("-")] {
        let mut command = reorder();
        command.args(dash).arg("--vmlinux").arg(&vmlinux).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(&plan).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        assert_eq!(parse(std::str::from_utf8(&output.stdout).unwrap())["order"]["algorithm"], "packed");
    }
}

#[test]
fn several_plans_are_several_traces() {
    let dir = Dir::new();
    let vmlinux = dir.kernel("", "vmlinux");
    let plan = dir.plan(&vmlinux);
    let more = fs::read_to_string(&plan).unwrap().replace("hot_one", "cold_one");
    let more = dir.write("more.json", &more);
    let mut command = reorder();
    command.arg(&plan).arg(&more).arg("--vmlinux").arg(&vmlinux).args(["-a", "balanced", "-f", "lld"]);
    let listed = succeeds(&mut command);
    assert!(listed.contains("hot_one\n") && listed.contains("cold_one\n"), "{listed}");
}

#[test]
fn a_coverage_of_another_kernel_is_used_as_far_as_it_goes() {
    let dir = Dir::new();
    let vmlinux = dir.kernel("", "vmlinux");
    let plan = fs::read_to_string(dir.plan(&vmlinux)).unwrap();
    let other = dir.write("other.json", &plan.replace("\"hot_one\"", "\"vfs_read\""));
    let (status, _, messages) = finish(reorder().arg(&other).arg("--vmlinux").arg(&vmlinux));
    assert_eq!(status, 0);
    assert!(messages.contains("1 of the 8 functions of the coverage are not in"), "{messages}");

    let nothing = HOT.iter().fold(plan, |plan, hot| plan.replace(&format!("\"{}\"", hot.0), "\"vfs_read\""));
    let nothing = dir.write("nothing.json", &nothing);
    fails(
        reorder().arg(&nothing).arg("--vmlinux").arg(&vmlinux),
        2,
        "none of the 8 functions of the coverage",
    );
}

#[test]
fn bad_input_is_named() {
    let dir = Dir::new();
    let vmlinux = dir.kernel("", "vmlinux");
    let plan = dir.plan(&vmlinux);
    let empty = dir.write("empty.json", "");
    let bare = dir.write("bare.json", "{\"schema\": \"kshrink/1\"}");
    fails(reorder().arg("--vmlinux").arg(&vmlinux), 2, "no plan: name a file");
    fails(reorder().arg(&empty).arg("--vmlinux").arg(&vmlinux), 2, "empty.json: empty, expected a plan");
    fails(reorder().arg(&bare).arg("--vmlinux").arg(&vmlinux), 2, "bare.json: it has no section `coverage`");
    fails(reorder().arg(&plan).arg("--vmlinux").arg(&plan), 2, "this is not an ELF file");
    fails(reorder().arg(&plan).args(["--vmlinux", "/nonexistent"]), 1, "/nonexistent");
    fails(reorder().arg("pages").arg(&vmlinux).arg(&bare), 2, "no section `coverage`");
    let output = dir.path("absent/order.json");
    fails(reorder().arg(&plan).arg("--vmlinux").arg(&vmlinux).arg("-o").arg(&output), 1, "absent");
    let (status, _, messages) = finish(reorder().arg("pages").arg(&vmlinux).args(["--page-size", "1000"]));
    assert_eq!(status, 2);
    assert!(messages.contains("expected a power of two"), "{messages}");
}

/// A kernel in miniature for ARM: `thumb` is Thumb code and calls `called`, and `arm` is ARM code and calls
/// `called_by_arm`.
const ARM_KERNEL: &str = "\
    .syntax unified
    .arch armv7-a
    .macro function name
    .globl \\name
    .type \\name, %function
\\name:
    .endm
    .text
    .thumb
    function thumb
    movs r0, #1
    bl called
    bx lr
    .size thumb, .-thumb
    .arm
    function arm
    blx called_by_arm
    bx lr
    .size arm, .-arm
    .thumb
    function alone
    movs r0, #2
    bx lr
    .size alone, .-alone
    function called
    bx lr
    .size called, .-called
    function called_by_arm
    bx lr
    .size called_by_arm, .-called_by_arm
";

#[test]
fn calls_are_read_from_thumb_code_and_arm_code() {
    let dir = Dir::new();
    dir.write("kernel.s", ARM_KERNEL);
    let tool = |name: &str, arguments: &str| {
        let mut command = Command::new(format!("arm-linux-gnueabihf-{name}"));
        run(command.args(arguments.split(' ')).current_dir(dir.path("")))
    };
    tool("as", "kernel.s -o kernel.o");
    tool("ld", "-Ttext=0xc0008000 -e thumb kernel.o -o vmlinux");
    let vmlinux = dir.path("vmlinux");
    let functions = Functions::read(&vmlinux).unwrap();
    let names = ["thumb", "arm", "alone", "called", "called_by_arm"];
    let covered = names.iter().enumerate().map(|(first, name)| {
        let size = functions.function(functions.find(name, None, 0).unwrap().0).size;
        let ran = json!([{"offset": 0, "size": size, "first": first}]);
        json!({"name": name, "section": ".text", "size": size, "first": first, "ran": ran})
    });
    let traced = json!({"source": "qemu", "trace": "trace.log", "kernel": "vmlinux", "unknown": 0});
    let coverage = json!({"runs": [traced], "functions": covered.collect::<Vec<_>>()});
    let plan = dir.write("plan.json", &json!({"schema": "kshrink/1", "coverage": coverage}).to_string());
    let mut command = reorder();
    let listed = succeeds(command.arg(&plan).arg("--vmlinux").arg(&vmlinux).args(["-a", "call-chain"]));
    let order = parse(&listed)["order"]["functions"].clone();
    let order: Vec<&str> =
        order.as_array().unwrap().iter().map(|hot| hot["name"].as_str().unwrap()).collect();
    // Callees after their callers, densest first. Without calls, the callees would come before all others.
    assert_eq!(order, ["alone", "thumb", "called", "arm", "called_by_arm"]);
}
