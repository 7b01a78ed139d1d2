//! `coverage ftrace`, with text in the format of the tracers, about functions of a kernel in miniature.

mod common;

use common::{Traced, plan, refused, text};
use kplan::{CallEdge, Coverage};

fn coverage(traced: &Traced, trace: &str) -> (Coverage, String) {
    traced.write("trace.txt", trace);
    let output = traced.coverage(&["ftrace", "vmlinux", "trace.txt"]);
    (plan(&output).coverage.unwrap(), text(&output.stderr).to_owned())
}

/// Returns the functions with their counts, in order.
fn counts(coverage: &Coverage) -> Vec<(String, Option<u64>)> {
    coverage.functions.iter().map(|function| (function.function.to_string(), function.count)).collect()
}

fn count(name: &str, count: impl Into<Option<u64>>) -> (String, Option<u64>) {
    (name.into(), count.into())
}

const HEAD: &str = "\
# tracer: function
#
# entries-in-buffer/entries-written: 4/4   #P:1
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
";

#[test]
fn functions_and_callers_ran() {
    let traced = Traced::new();
    let trace = format!(
        "{HEAD}          <idle>-0       [000] d..1.     0.000000: half <-start_kernel\n          \
         <idle>-0       [000] d..1.     0.000000: generated <-start_kernel\n          \
         <idle>-0       [000] d..1.     0.000001: half <-start_kernel\n            \
         init-1       [000] .....     0.000002: helper_of_other <-0xc0100000\n"
    );
    let (coverage, warnings) = coverage(&traced, &trace);
    assert_eq!(warnings, "");
    let expected = [
        count("start_kernel", None),
        count("half", 2),
        count("kernel.c:generated", 1),
        count("helper_of_other", 1),
    ];
    assert_eq!(counts(&coverage), expected);
    let calls = [CallEdge { from: 0, to: 1, count: 2 }, CallEdge { from: 0, to: 2, count: 1 }];
    assert_eq!(coverage.calls, calls);
    assert!(coverage.functions.iter().all(|function| function.ran.is_none()));
    assert_eq!((&coverage.functions[1].section[..], coverage.functions[1].size), (".text", 11));
    assert_eq!((&coverage.runs[0].source[..], coverage.runs[0].unknown), ("ftrace", 0));
}

#[test]
fn names_of_several_functions_are_told_apart_by_address_alone() {
    let traced = Traced::new();
    let (found, warnings) = coverage(&traced, " init-1 [000] d..1. 0.5: helper <-start_kernel\n");
    let expected = [count("start_kernel", None), count("kernel.c:helper", 1), count("other.c:helper", 1)];
    let mut both = counts(&found);
    both.sort_by_key(|(name, _)| name != "start_kernel");
    assert_eq!(both, expected);
    assert_eq!(found.calls, []);
    assert!(
        warnings.contains("1 names belong to several functions, such as helper; all of these"),
        "{warnings}"
    );
    // The function of kernel.c is before start_kernel, the one of other.c after it.
    let (found, warnings) =
        coverage(&traced, " init-1 [000] d..1. 0.5: helper <c010003f> <-start_kernel <c0100050>\n");
    assert_eq!(counts(&found), [count("start_kernel", None), count("kernel.c:helper", 1)]);
    assert_eq!((found.calls.len(), &warnings[..]), (1, ""));
}

#[test]
fn what_trace_cmd_reports() {
    let traced = Traced::new();
    let trace = "CPU 0 is empty\ncpus=1\n     swapper-1     [000]     0.100000: function:             half <-- start_kernel\n\
                 CPU:0 [7 EVENTS DROPPED]\n     swapper-1     [000]     0.200000: sched_switch: swapper:1 ==> init:2\n";
    let (coverage, warnings) = coverage(&traced, trace);
    assert_eq!(counts(&coverage), [count("start_kernel", None), count("half", 1)]);
    assert!(warnings.contains("7 events were lost"), "{warnings}");
}

#[test]
fn graphs_have_callers_by_nesting() {
    let traced = Traced::new();
    let trace = "# tracer: function_graph\n#\n 0)               |  start_kernel() {\n 1)   0.100 us    |  never();\n\
                 \x200)   0.541 us    |    half();\n 0)               |    helper_of_other() {\n 0)   0.123 us    |      half();\n\
                 \x200)   1.021 us    |    }\n 0)   0.300 us    |    generated();\n 0)   2.000 us    |  } /* start_kernel */\n\
                 \x20------------------------------------------\n 0)   swapper-1    =>   init-2\n\
                 \x20------------------------------------------\n\n 0)   0.300 us    |  never();\n";
    let (coverage, warnings) = coverage(&traced, trace);
    assert_eq!(warnings, "");
    let expected = [
        count("start_kernel", 1),
        count("never", 2),
        count("half", 2),
        count("helper_of_other", 1),
        count("kernel.c:generated", 1),
    ];
    assert_eq!(counts(&coverage), expected);
    let calls: Vec<_> = coverage.calls.iter().map(|call| (call.from, call.to, call.count)).collect();
    assert_eq!(calls, [(0, 2, 1), (0, 3, 1), (0, 4, 1), (3, 2, 1)]);
}

#[test]
fn what_does_not_match_is_said() {
    let traced = Traced::new();
    let trace = " a-1 [000] d..1. 0.5: half <-start_kernel\n a-1 [000] d..1. 0.5: vfs_open <-half\n\
                 \x20a-1 [000] d..1. 0.5: vfs_open <-half\n a-1 [000] d..1. 0.5: half [ext2] <-vfs_open\n\
                 CPU:0 [LOST 12 EVENTS]\n a-1 [000] d..1. 0.5: nev";
    let (coverage, warnings) = coverage(&traced, trace);
    assert_eq!(counts(&coverage), [count("start_kernel", None), count("half", 1)]);
    assert_eq!(coverage.runs[0].unknown, 3);
    let lines: Vec<&str> = warnings.lines().collect();
    assert!(
        lines[0].contains("3 of 4 events are of 2 functions that the kernel does not have, such as vfs_open")
    );
    assert!(lines[1].contains("12 events were lost"), "{warnings}");
    assert!(lines[2].contains("the last line is truncated"), "{warnings}");
    assert_eq!(lines.len(), 3);
}

#[test]
fn what_is_no_trace_of_the_kernel_is_refused() {
    let traced = Traced::new();
    traced.write("other", " a-1 [000] d..1. 0.5: vfs_open <-do_open\n");
    traced.write("text", "hello\n");
    refused(
        &traced.coverage(&["ftrace", "vmlinux", "other"]),
        2,
        "other: of another kernel than vmlinux: it has none of",
    );
    refused(
        &traced.coverage(&["ftrace", "vmlinux", "text"]),
        2,
        "text: no line of it names a function; expected the text",
    );
    refused(&traced.coverage(&["ftrace", "vmlinux", "trace"]), 2, "trace: no line of it names a function");
}
