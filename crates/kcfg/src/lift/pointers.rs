/*!
Pointers into the middle of functions.

A table of labels, a jump table that is not resolved, and a pointer to a function with a tag in its low bits (`f + 1`)
look alike: data that names a place behind the entry of a function. Code that adds distances, which the assembler
computed, to the address of a label also reaches places that nothing names. All of this is right as long as the function
stays as it is, so that it is carried whole, unless a resolved jump table says what the pointer is for. Where it is code
that makes the address, even the function is not certain: for the `jmp` of a trampoline, GCC loads `f + 10`, which lies
in another function if `f` is short. Nor is it where data names a place in a function without a computed jump, which has
no use for a table of labels. Then the section stays as it is. (The entry of another function is in `tags`.)
*/

use fixedbitset::FixedBitSet;
use kelf::RelocClass;
use rustc_hash::FxHashSet;

use crate::graph::{Dest, Graph, Life, NodeKind, Target, Terminator};
use crate::index::{FunctionId, NodeId, SectionId, TableId};
use crate::special::is_retpoline;

/// Why such code is carried whole.
pub(super) const REASON: &str = "a pointer into the middle of a function";

/// What has to be carried whole because something points into the middle of it.
#[derive(PartialEq, Eq, Hash)]
pub(super) enum Pointed {
    /// The function that begins with this block.
    Function(NodeId),
    /// All code of a section.
    Section(SectionId),
}

/// The functions, and the sections of functions, into whose middle something points that is no part of them.
pub(super) fn into_functions(graph: &Graph) -> FxHashSet<Pointed> {
    let mut found = FxHashSet::default();
    let mut slots = FixedBitSet::with_capacity(graph.refs.len());
    for table in 0..graph.tables.len() {
        slots.insert_range(graph.slot_indices(TableId::from(table)));
    }
    for node in graph.node_ids() {
        let (code, function) = match &graph.node(node).kind {
            NodeKind::Block(block) => (true, Some(block.function)),
            // What a weak table names is a place that the kernel goes to.
            NodeKind::Chunk(chunk) if matches!(chunk.life, Life::Site(_)) => continue,
            NodeKind::Chunk(chunk) => (chunk.code, None),
        };
        for (index, reference) in graph.node(node).refs.clone().zip(graph.refs_of(node)) {
            // A branch says all that it means by its target, and a symbol which function it is.
            let branch = code && matches!(reference.class, RelocClass::Relative | RelocClass::Branch);
            let Target::Node(to) = reference.target else { continue };
            let Some(block) = graph.block(to).filter(|_| !branch && !slots.contains(index as usize)) else {
                continue;
            };
            let entry = graph.function(block.function).entry();
            if Some(block.function) != function && (to != entry || reference.addend != 0) {
                let table = !code && has_computed_jump(graph, block.function);
                let section = Pointed::Section(graph.node(to).section);
                found.insert(if table { Pointed::Function(entry) } else { section });
            }
        }
    }
    found
}

/// Whether a function has a jump of which it is not known where it goes.
fn has_computed_jump(graph: &Graph, function: FunctionId) -> bool {
    let blocks = graph.function(function).blocks.iter();
    let computed = |end: &Terminator| match *end {
        Terminator::IndirectJump => true,
        Terminator::Jump(Dest { target: Target::Symbol(symbol), .. }) => {
            is_retpoline(&graph.symbols[symbol.get()].name)
        }
        _ => false,
    };
    blocks.filter_map(|&node| graph.block(node)).any(|block| computed(&block.end))
}
