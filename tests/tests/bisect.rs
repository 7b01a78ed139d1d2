//! `kshrink-spec --bisect` on programs with a known cause of the test's failure.
//!
//! The command checks whether certain functions are unchanged, so it is known which ones must be kept for it to pass;
//! any other answer is wrong.

use kshrink_tests::{Chain, Outcome, Run, recipe};

/// Number of functions that have nothing to do with the failure.
const OTHERS: usize = 60;

/// `half` calls a function that does not return; nothing calls `caller`, `planted`, `second` and `both`.
const PLANTED: &str = "
    void stop(void); int helper(int); extern int sink;
    static const int table[] = { 7, 11, 13 };
    int half(int x) { if (x) { stop(); sink = 0x1234567; } return x; }
    int planted(int x) { return helper(x) + table[x & 1]; }
    int second(int x) { return helper(x + 5); }
    int caller(int x) { return planted(x) * 3; }
    int both(int x) { return second(x) - planted(x) + caller(x); }
    int live(int x) { while (x & 3) x = helper(x); return x + half(x); }
";
const HELPERS: &str = "
    int sink;
    void stop(void) { for (;;) sink++; }
    int helper(int x) { return x / 3 + sink; }
    int live(int);
    int main(void) { return live(helper(0)) != 0; }
";

/// Searches for the cause of a command's failure.
fn bisect(chain: &mut Chain, passes: &str, command: &str) -> Outcome {
    recipe("install.sh", &["programs"]);
    let function = |i: usize| {
        let called = if i > 0 { format!("other_{}(x) + ", i / 2) } else { String::new() };
        format!("int other_{i}(int x) {{ if (x > {i}) return {called}helper(x - {i}); return x; }}\n")
    };
    let others: String = (0..OTHERS).map(function).collect();
    chain.write("others.c", format!("int helper(int);\n{others}"));
    chain.write("planted.c", PLANTED);
    chain.write("helpers.c", HELPERS);
    let names = ["helpers", "others", "planted"];
    for name in names {
        let flags = ["-O1", "-fno-inline", "-fno-pic", "-fno-toplevel-reorder"];
        chain.compile(format!("{name}.c"), &format!("{name}.o"), &flags).expect("it compiles");
    }
    let objects = names.map(|name| format!("{name}.o"));
    let run = Run::kshrink("kshrink-spec").arg("--objects").args(objects).args(["--entry", "main"]);
    chain.attempt(run.args(["--passes", passes, "--bisect", command]))
}

/// Returns the functions that it names, by line; panics if it found nothing.
fn found(outcome: &Outcome) -> Vec<String> {
    assert_eq!(outcome.status, Some(0), "{outcome}");
    assert_eq!(outcome.stderr, "", "progress is for terminals");
    let lines = outcome.text();
    let lines = lines.lines().skip(1).filter_map(|line| line.trim_start().split(" (").next());
    lines.map(str::to_owned).collect()
}

#[test]
fn a_removed_function_is_found_and_not_its_callers() {
    Chain::check("bisect-function", |chain| {
        let outcome = bisect(chain, "reach", r#"nm "$1" | grep -q ' planted$'"#);
        assert_eq!(found(&outcome), ["planted"], "{outcome}");
        let text = outcome.text();
        for part in ["planted.o:.text+0x", "removed as unreachable", "trials"] {
            assert!(text.contains(part), "no {part} in {text}");
        }
    });
}

#[test]
fn a_removed_block_is_found_by_its_function_and_offset() {
    Chain::check("bisect-block", |chain| {
        let outcome = bisect(chain, "reach", r#"LC_ALL=C grep -aqP '\x67\x45\x23\x01' "$1""#);
        assert_eq!(found(&outcome), ["half"], "{outcome}");
        assert!(outcome.text().contains("blocks removed: +0x"), "{outcome}");
    });
}

#[test]
fn two_functions_are_found_where_both_must_go() {
    Chain::check("bisect-two", |chain| {
        let outcome = bisect(chain, "reach", r#"nm "$1" | grep -qE ' (planted|second)$'"#);
        let mut names = found(&outcome);
        names.sort_unstable();
        assert_eq!(names, ["planted", "second"], "{outcome}");
        assert!(outcome.text().contains("all of them together"), "{outcome}");
    });
}

#[test]
fn removed_data_is_found() {
    Chain::check("bisect-data", |chain| {
        let outcome = bisect(chain, "reach", r#"nm "$1" | grep -q ' table$'"#);
        assert_eq!(found(&outcome), ["table"], "{outcome}");
        assert!(outcome.text().contains("12 bytes removed"), "{outcome}");
    });
}

/// Nothing is removed, or the removal is not the cause of the failure.
#[test]
fn a_function_is_found_that_was_changed_and_not_cut() {
    Chain::check("bisect-changed", |chain| {
        let size = r#"nm -S "$1" | grep ' live$' | cut -d' ' -f2"#;
        let unchanged = format!(r#"o() {{ {size}; }}; n=$(o "$1"); o=$(o planted.o); [ "$n" = "$o" ]"#);
        for passes in ["instrument", "reach,instrument"] {
            let outcome = bisect(chain, passes, &unchanged);
            assert_eq!(found(&outcome), ["live"], "{passes}: {outcome}");
            assert!(outcome.text().contains("split and emitted"), "{passes}: {outcome}");
        }
    });
}

#[test]
fn what_cannot_be_tested_is_said() {
    Chain::check("bisect-untestable", |chain| {
        // It cannot be tested if `planted` is removed and `other_1` is not.
        let command = r#"nm "$1" >names; grep -q ' planted$' names && exit 0; grep -q ' other_1$' names && exit 125; false"#;
        let outcome = bisect(chain, "reach", command);
        let names = found(&outcome);
        assert!(names.iter().any(|name| name == "planted"), "{outcome}");
        assert!(names.len() == 1 || outcome.text().contains("exit status 125"), "{outcome}");
    });
}

#[test]
fn a_test_that_does_not_depend_on_the_rewrite_is_an_error() {
    Chain::check("bisect-errors", |chain| {
        let cases: [(&str, i32, &[&str]); 4] = [
            ("true", 2, &["passes on the rewritten program", "expected"]),
            ("exit 125", 2, &["125", "cannot run"]),
            ("echo the reason; false", 1, &["even if all functions and data are unchanged", "the reason"]),
            ("no-such-command", 2, &["cannot run", "no-such-command"]),
        ];
        for (command, status, parts) in cases {
            let outcome = bisect(chain, "reach", command);
            assert_eq!((outcome.status, outcome.text().as_str()), (Some(status), ""), "{outcome}");
            assert!(parts.iter().all(|part| outcome.stderr.contains(part)), "{outcome}");
        }
    });
}
