//! What the report of a rewritten program says that its removals rest on.

use kshrink_tests::{Chain, Run, fixture};

/// The names behind `rests on:` in the report of a program rewritten with these passes.
fn rests_on(chain: &mut Chain, passes: &str) -> Vec<String> {
    let run = Run::kshrink("kshrink-spec").args(["--objects", "arrays.o", "--entry", "main"]);
    let report = chain.succeed(run.args(["--passes", passes, "--emit-object", "small.o"])).stderr;
    let names = report.lines().filter_map(|line| line.strip_prefix("rests on: "));
    names.flat_map(|names| names.split(", ")).map(str::to_owned).collect()
}

#[test]
fn removals_rest_on_what_applies_to_the_program() {
    Chain::check("removals_rest_on_what_applies_to_the_program", |chain| {
        let source = fixture("programs/features/arrays/main.c");
        chain.compile(&source, "arrays.o", &["-Os", "-fno-pie"]).expect("an object");
        let names = rests_on(chain, "reach");
        for name in ["addresses-are-held", "compilers-type-their-functions"] {
            assert!(names.iter().any(|found| found == name), "no {name} in {names:?}");
        }
        // Those are of kernels.
        for name in ["bugs-are-fatal", "entries-serve-their-sites", "plan-is-complete"] {
            assert!(!names.iter().any(|found| found == name), "{name} in {names:?}");
        }
        assert!(rests_on(chain, "none").is_empty());
    });
}
