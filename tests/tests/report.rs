//! Reports about a rewritten program: the assumptions, and the graph after a step.

use kshrink_tests::{Chain, Run, fixture};

/// Returns the names after `assumptions:` in the report of a program rewritten with these passes.
fn rests_on(chain: &mut Chain, passes: &str) -> Vec<String> {
    let run = Run::kshrink("kshrink-spec").args(["--objects", "arrays.o", "--entry", "main"]);
    let report = chain.succeed(run.args(["--passes", passes, "--emit-object", "small.o"])).stderr;
    let names = report.lines().filter_map(|line| line.strip_prefix("assumptions: "));
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
        // These assumptions are for kernels only.
        for name in ["bugs-are-fatal", "entries-serve-their-sites", "plan-is-complete"] {
            assert!(!names.iter().any(|found| found == name), "{name} in {names:?}");
        }
        assert!(rests_on(chain, "none").is_empty());
    });
}

#[test]
fn dump_after_prints_each_run_of_the_pass() {
    Chain::check("dump_after_prints_each_run_of_the_pass", |chain| {
        let source = fixture("programs/features/arrays/main.c");
        chain.compile(&source, "arrays.o", &["-Os", "-fno-pie"]).expect("an object");
        let mut dumped = |step: &str, passes: &str| {
            let run = Run::kshrink("kshrink-spec").args(["--objects", "arrays.o", "--entry", "main"]);
            let run = run.args(["--passes", passes, "--dump-after", step, "--emit-object", "small.o"]);
            chain.succeed(run).stderr
        };
        let main = dumped("reach:main", "reach,fold");
        assert!(main.starts_with("=== after reach, run 1\n") && main.contains("=== after reach, run 2\n"));
        let labels: Vec<&str> = main.lines().filter(|line| line.starts_with("main:")).collect();
        assert_eq!(labels.len(), main.matches("=== after reach").count(), "{main}");
        let graph = dumped("graph", "none");
        assert!(graph.contains("=== after graph, run 1\n") && graph.contains("\nmain:"), "{graph}");
        assert!(graph.lines().count() > main.lines().count() / labels.len(), "{graph}");
    });
}
