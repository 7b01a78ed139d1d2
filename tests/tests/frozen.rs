//! The output of `frozen-pack plan` for a real kernel: frozen code, pinned code with reasons, and refusals.

use std::path::Path;
use std::time::Duration;

use kshrink_tests::elf::{build_id, globals};
use kshrink_tests::{KernelTest, Outcome, Run};
use serde_json::{Value, json};

/// It takes seconds, and longer next to other tests.
const PLAN_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Returns a plan with a coverage in which one function ran, given its name and size.
fn coverage(name: &str, size: u64) -> String {
    let run = json!({"source": "qemu", "trace": "t", "kernel": "vmlinux", "unknown": 0});
    let function = json!({"name": name, "section": ".text", "size": size, "first": 0});
    json!({"schema": "kshrink/1", "coverage": {"runs": [run], "functions": [function]}}).to_string()
}

/// Runs `frozen-pack plan` with arguments, and a plan on standard input.
fn plan(test: &mut KernelTest<'_>, vmlinux: &Path, arguments: &[&str], input: &str) -> Outcome {
    let run = Run::kshrink("frozen-pack").arg("plan").arg(vmlinux).args(arguments);
    test.chain.attempt(run.stdin(input).limit(PLAN_LIMIT))
}

/// The size in bytes of a function.
fn size_of(vmlinux: &Path, function: &str) -> u64 {
    let graph = Run::kshrink("kcfg").arg(vmlinux).args(["--function", function]).limit(PLAN_LIMIT).succeed();
    let graph: Value = serde_json::from_slice(&graph.stdout).expect("JSON");
    graph["functions"][0]["size"].as_u64().expect("a size")
}

/// Returns the number in a row of the table, and the percentage after it, for code.
fn row(table: &str, label: &str) -> (u64, f64) {
    let line = table.lines().find(|line| line.starts_with(&format!("{label}  ")));
    let line = line.unwrap_or_else(|| panic!("no {label} in\n{table}"));
    let words: Vec<&str> = line[label.len()..].split_whitespace().collect();
    (words[0].replace(',', "").parse().expect("bytes"), words[1].parse().expect("percent"))
}

#[test]
fn what_ran_and_what_is_pinned_stays() {
    KernelTest::check("what_ran_and_what_is_pinned_stays", |test| {
        let vmlinux = test.kernel("web-i386").vmlinux;
        let input = coverage("kfree", size_of(&vmlinux, "kfree"));
        let outcome = plan(test, &vmlinux, &[], &input);
        assert_eq!(outcome.status, Some(0), "{outcome}");
        let (_, pinned) = row(&outcome.stderr, "pinned");
        assert!(pinned < 8.0, "{}", outcome.stderr);
        let (frozen, share) = row(&outcome.stderr, "frozen");
        assert!(frozen > 1_500_000 && share > 80.0, "{}", outcome.stderr);
        let made: Value = serde_json::from_slice(&outcome.stdout).expect("a plan");
        assert!(made["coverage"].is_object() && made["frozen"]["mechanism"] == "page");
        let code = made["frozen"]["code"].as_array().expect("code");
        let is_frozen = |name: &str| code.iter().any(|function| function["name"] == name);
        assert!(is_frozen("do_mount") || is_frozen("path_mount"));
        for stays in ["kfree", "get_page_from_freelist", "exc_page_fault"] {
            assert!(!is_frozen(stays), "{stays}");
        }
        let data = made["frozen"]["data"].as_array().expect("data");
        assert!(data.iter().any(|data| data["object"] == "fs/open.o" || data["object"] == "fs/namespace.o"));
    });
}

#[test]
fn wishes_and_questions() {
    KernelTest::check("wishes_and_questions", |test| {
        let vmlinux = test.kernel("web-i386").vmlinux;
        let input = coverage("path_mount", size_of(&vmlinux, "path_mount"));
        let mut says = |arguments: &[&str]| {
            let outcome = plan(test, &vmlinux, arguments, &input);
            assert_eq!(outcome.status, Some(0), "{outcome}");
            outcome.text()
        };
        let ran = says(&["--why", "path_mount"]);
        assert!(ran.contains("they ran"), "{ran}");
        let assumed = says(&["--assume-cold", "path_mount", "--why", "path_mount"]);
        assert!(assumed.contains("bytes freeze"), "{assumed}");
        let pinned = says(&["--why", "get_page_from_freelist"]);
        assert!(pinned.contains("are pinned: the page allocator"), "{pinned}");
        let before = says(&["--why", "e820__range_add"]);
        assert!(before.contains("they are in .init.text"), "{before}");
        let wish = says(&["--pin", "vfs_read", "--why", "vfs_read"]);
        assert!(wish.contains("are pinned by --pin"), "{wish}");
        let list = says(&["--pinned"]);
        let line = list.lines().find(|line| line.contains("\tget_page_from_freelist\t"));
        assert!(line.is_some_and(|line| line.split('\t').count() == 4), "{line:?}");
    });
}

#[test]
fn data_that_was_not_read_freezes() {
    KernelTest::check("data_that_was_not_read_freezes", |test| {
        let vmlinux = test.kernel("web-i386").vmlinux;
        // This function names three constants. The trace has seen reads of two bytes of one of them, and of none of the
        // other two.
        let names = ["__start_rodata", "__end_rodata", "ext2_file_inode_operations"];
        let [(start, _), (end, _), (read, _)] = globals(&vmlinux, names);
        let reads = |build_id: &str| {
            let ranges = json!([{"offset": read + 12 - start, "size": 2}]);
            json!({"source": "qemu", "trace": "boot.log", "kernel": "vmlinux", "unknown": 0, "build_id": build_id,
                   "reads": {"address": start, "size": end - start, "ranges": ranges}})
        };
        let without = json!({"source": "ftrace", "trace": "other.log", "kernel": "vmlinux", "unknown": 0});
        let size = size_of(&vmlinux, "ext2_set_file_ops");
        let covered = |runs: &[&Value]| {
            let mut input: Value = serde_json::from_str(&coverage("ext2_set_file_ops", size)).expect("JSON");
            input["coverage"]["runs"] = json!(runs);
            input.to_string()
        };
        let mut why = |input: &str, symbol: &str| {
            let outcome = plan(test, &vmlinux, &["--why", symbol], input);
            assert_eq!(outcome.status, Some(0), "{outcome}");
            (outcome.text(), outcome.stderr)
        };
        let told = reads(&build_id(&vmlinux));
        let (text, warnings) = why(&covered(&[&told]), "ext2_file_inode_operations");
        assert!(text.contains("bytes do not freeze: they were read"), "{text}");
        assert_eq!(warnings, "");
        let (text, _) = why(&covered(&[&told]), "ext2_aops");
        assert!(text.contains("bytes freeze"), "{text}");
        // Pinned data does not freeze, whether it was read or not.
        let (text, _) = why(&covered(&[&told]), "zone_names");
        assert!(text.contains("bytes are pinned"), "{text}");

        // A trace that does not record reads, or is of another link, could have missed reads of any data that executed
        // code names.
        let other = reads("0123456789abcdef");
        let silent = "the trace other.log does not say what data was read";
        let moved = "the trace boot.log is of another link of the kernel";
        let cases = [([&told, &without], silent), ([&told, &other], moved)];
        for (runs, warning) in cases {
            let (text, warnings) = why(&covered(&runs), "ext2_aops");
            assert!(text.contains("bytes do not freeze: code or data that is not cold names them"), "{text}");
            assert!(warnings.contains(warning), "{warnings}");
        }
    });
}

#[test]
fn what_cannot_be_planned_is_refused() {
    KernelTest::check("what_cannot_be_planned_is_refused", |test| {
        let vmlinux = test.kernel("web-i386").vmlinux;
        let size = size_of(&vmlinux, "kfree");
        let good = coverage("kfree", size);
        let cases = [
            (&[][..], String::new(), "no section `coverage`"),
            (&[], r#"{"schema": "kshrink/1"}"#.to_owned(), "no section `coverage`"),
            (&[], coverage("kfree", size + 4), "trace this kernel"),
            (&[], coverage("not_there", 4), "not_there; trace this kernel"),
            (&[], good.replace("runs", "rnus"), "standard input: not a valid plan: missing field `runs`"),
            (&[], good[..good.len() - 1].to_owned(), "standard input: not JSON"),
            (&["--pin", "no_such_symbol"], good.clone(), "no symbol `no_such_symbol`"),
            (&["--why", "no_such_symbol"], good.clone(), "no symbol `no_such_symbol`"),
        ];
        for (arguments, input, expected) in cases {
            let outcome = plan(test, &vmlinux, arguments, &input);
            assert_eq!(outcome.status, Some(2), "{outcome}");
            assert!(outcome.stderr.contains(expected) && outcome.stdout.is_empty(), "{outcome}");
        }
    });
}
