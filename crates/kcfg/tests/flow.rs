//! Liveness in compiled functions, and summaries of their calls, with `fixtures/cfg/live.c`.

mod common;

use common::{Dir, View, lift};
use kcfg::flow::{DataUses, GraphProgram};
use kcfg::graph::Graph;
use kflow::{Callee, FLAGS, Liveness, Summaries, Summary, bit};
use kisa::Reg;
use kisa::x86::registers::{EAX, EBX, ECX, EDI, EDX, ESI};

/// Returns the summary of a function, with registers as bits.
fn summary(graph: &Graph, function: &str) -> Summary {
    let program = GraphProgram::of(graph);
    let summaries = Summaries::of(&program, program.machine(), DataUses::of(graph).constant_memory(graph));
    let entry = View::of(graph).blocks(function)[0];
    summaries.get(Callee::Function(program.function_of(program.block(entry).unwrap())))
}

fn live_at(graph: &Graph, function: &str) -> u64 {
    let program = GraphProgram::of(graph);
    let summaries = Summaries::of(&program, program.machine(), DataUses::of(graph).constant_memory(graph));
    let entry = View::of(graph).blocks(function)[0];
    Liveness::of(&program, &summaries).before(program.block(entry).unwrap())
}

fn set(registers: &[Reg]) -> u64 {
    registers.iter().fold(0, |set, &reg| set | bit(reg))
}

const GENERAL: &[Reg] = &[EAX, ECX, EDX, EBX, ESI, EDI];

#[test]
fn calls_are_known_by_the_code_of_the_callee() {
    let dir = Dir::new();
    let graph = lift(&[dir.compile("live.c", &["-O2", "-fomit-frame-pointer"])]);
    // Its argument is in %eax, and it uses no other register.
    let leaf = summary(&graph, "leaf");
    assert_eq!((leaf.reads & set(GENERAL), leaf.writes_frame), (set(&[EAX]), false));
    assert_eq!(leaf.changes & set(&[EBX, ESI, EDI]), 0);
    // It saves the others that it changes, across calls of `leaf`.
    let saves = summary(&graph, "saves");
    assert_ne!(saves, Summary::UNKNOWN);
    assert_eq!(saves.changes & set(&[EBX, ESI, EDI]), 0);
    assert_eq!(saves.reads & set(&[EBX, ESI, EDI]), 0);
    assert_eq!(saves.reads & set(&[EAX, EDX]), set(&[EAX, EDX]));
    // Only the calling convention is known about a computed call. The same holds for a function that calls code
    // outside of the program, as for any other compiled function.
    for function in ["computed", "outside"] {
        let summary = summary(&graph, function);
        assert_eq!(summary.changes & set(GENERAL), set(&[EAX, ECX, EDX]), "{function}");
    }
}

#[test]
fn arguments_matter_and_the_rest_by_its_callers() {
    let dir = Dir::new();
    let graph = lift(&[dir.compile("live.c", &["-O2", "-fomit-frame-pointer"])]);
    // It has no other callers, and its only caller overwrites the flags after the call.
    assert_eq!(live_at(&graph, "leaf") & (set(&[EAX]) | FLAGS), set(&[EAX]));
    // It may be called from anywhere: the registers that it preserves are live.
    assert_eq!(live_at(&graph, "saves") & set(&[EBX, ESI, EDI]), set(&[EBX, ESI, EDI]));
}
