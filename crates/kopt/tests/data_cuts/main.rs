//! Data that is cut at its variables, compared with a build of the same kernel that has a section for each variable.
//!
//! With `-fdata-sections`, a relocation names the variable's section, which identifies the variable. Without it, a
//! relocation gives an offset into a shared section, and `kcfg::lift` cuts the section if it can prove which variable
//! the offset means. The two builds have the same instructions, so their relocations correspond one by one, and the
//! proofs can be compared with the compiler's meaning.

mod compare;
mod twins;

use std::io::Write;

use compare::{Comparison, origin};
use kcfg::graph::{Editor, Graph, Target};
use kcfg::index::NodeId;
use kcfg::lift::Lifter;
use kelf::{InputFiles, KernelBuild, Program};
use kopt::reach::Reach;
use kopt::syscalls::Syscalls;
use kopt::{Options, PassRef};
use kplan::Plan;
use kshrink_tests::{KernelTest, Run, recipe};
use twins::Twins;

/// The plan that `syscall-scan` makes for BusyBox.
fn busybox_plan() -> Plan {
    let busybox = recipe("package.sh", &["busybox-static", "i386"]).join("bin/busybox");
    let plan = Run::kshrink("syscall-scan").arg(busybox).succeed().text();
    Plan::read(plan.as_bytes(), "busybox").expect("a plan")
}

#[test]
fn references_mean_the_variables_that_the_compiler_meant() {
    KernelTest::check("references_mean_the_variables_that_the_compiler_meant", |test| {
        compare(test, "web-i386-data-objects", 90);
    });
}

#[test]
#[ignore = "builds one more kernel"]
fn references_of_a_whole_kernel_mean_the_variables_that_the_compiler_meant() {
    KernelTest::check("references_of_a_whole_kernel_mean_the_variables_that_the_compiler_meant", |test| {
        compare(test, "web-i386-data", 250);
    });
}

/// Compares the web kernel with a build that has a section for each variable, in some or all of its objects. At least
/// `sections` sections of the first build are cut.
fn compare(test: &mut KernelTest<'_>, apart: &str, sections: usize) {
    let mut build = |name| KernelBuild::find(&test.kernel(name).vmlinux).expect("a build");
    let (build, apart) = (build("web-i386"), build(apart));
    let files = [&build, &apart].map(|build| InputFiles::of_kernel(build).expect("its files"));
    let [program, apart] = files.each_ref().map(|files| Program::link(files).expect("a program"));
    let twins = Twins::of(&program, &apart);
    print(&format!("{:?}", twins.counts));
    let counts = &twins.counts;
    assert!(counts.other_functions * 100 < counts.same_functions, "other code: {counts:?}");
    assert!(counts.lone_variables * 100 < counts.variables, "other data: {counts:?}");

    for (passes, plan) in [(&[] as &[PassRef], Plan::default()), (&[&Syscalls, &Reach], busybox_plan())] {
        let lifter = Lifter::of_kernel(&build, &program).expect("a kernel that is understood");
        let mut graph = match passes {
            [] => lifter.fine_graph().expect("a graph"),
            _ => {
                kopt::rounds::run(
                    lifter,
                    &plan,
                    passes,
                    Options { verify: true, ..Options::default() },
                    |_| (),
                )
                .expect("a graph")
                .0
            }
        };
        let outcome = Comparison::of(&graph, &program, &twins).run();
        print(&format!("{passes:?}: {outcome}"));
        assert!(outcome.wrong.is_empty(), "{} are wrong:\n{}", outcome.wrong.len(), outcome.wrong.join("\n"));
        assert!(outcome.sections >= sections, "{outcome}");
        assert!(outcome.unpaired * 100 < outcome.same, "{outcome}");

        // The comparison detects a reference that leads to another variable.
        let found = outcome.found.iter().step_by(outcome.found.len() / 100);
        let moved = found.filter(|(node, number)| move_to_neighbour(&mut graph, *node, *number)).count();
        let damaged = Comparison::of(&graph, &program, &twins).run();
        assert!(moved >= 50 && damaged.wrong.len() == moved, "{moved} moved: {damaged}");
    }
}

/// Moves a reference to the piece after its target, with the same address. Returns whether there is one.
fn move_to_neighbour(graph: &mut Graph, node: NodeId, number: usize) -> bool {
    let reference = graph.refs_of(node)[number];
    let (to, inside) = graph.resolve(reference.target).expect("it was found");
    let mut behind = graph.section_of(to).nodes.iter().skip_while(|&&piece| piece != to);
    let Some(&behind) = behind.nth(1) else { return false };
    let distance = i64::from(origin(graph, behind).offset) - i64::from(origin(graph, to).offset);
    let addend = reference.addend + i64::from(inside) - distance;
    let mut editor = Editor::new(graph, "test");
    editor.redirect(node, number, Target::Node(behind), addend);
    editor.finish();
    true
}

/// Prints past the test harness, which shows only the output of failures.
fn print(line: &str) {
    writeln!(std::io::stderr(), "data_cuts: {line}").expect("standard error");
}
