/*!
Pointers into the middle of functions.

Three things look alike: a table of labels, an unresolved jump table, and a pointer to a function with a tag in its low
bits (`f + 1`). Each is data that refers to a place after the entry of a function. Code may also add distances that the
assembler computed to the address of a label, and so reach places without any reference. All of this remains correct if
the function does not change. The function is therefore opaque, unless the pointer is a slot of a resolved jump table.

In two cases even the function is uncertain, and all code of the section is opaque. Code may compute the address: for
the `jmp` of a trampoline, GCC loads `f + 10`, which is in another function if `f` is short. Data may refer to a place
in a function without a computed jump, which cannot have a table of labels. (`tags` handles references to the entry of
the wrong function.)
*/

use fixedbitset::FixedBitSet;
use kelf::RelocClass;
use kisa::Flow;
use rustc_hash::FxHashSet;

use crate::graph::{Dest, Graph, Life, NodeKind, Ref, Target, Terminator};
use crate::index::{FunctionId, NodeId, SectionId};
use crate::special::is_retpoline;

/// The reason why such code is opaque.
pub(super) const REASON: &str = "a pointer into the middle of a function";

/// Code that is opaque because of a pointer into the middle of a function.
#[derive(PartialEq, Eq, Hash)]
pub(super) enum Pointed {
    /// The function that begins with this block.
    Function(NodeId),
    /// All code of a section.
    Section(SectionId),
}

/// Returns the functions, and the sections, that are opaque because of pointers from outside the function.
pub(super) fn into_functions(graph: &Graph) -> FxHashSet<Pointed> {
    let mut found = FxHashSet::default();
    let mut slots = FixedBitSet::with_capacity(graph.refs.len());
    for table in graph.tables.keys() {
        slots.insert_range(graph.slot_indices(table));
    }
    for node in graph.node_ids() {
        let (code, function) = match &graph.node(node).kind {
            NodeKind::Block(block) => (true, Some(block.function)),
            // Weak tables refer to places where the kernel continues or resumes.
            NodeKind::Chunk(chunk) if matches!(chunk.life, Life::Site(_)) => continue,
            // Code computes the addresses among its literals.
            NodeKind::Chunk(chunk) => (chunk.code || chunk.function.is_some(), chunk.function),
        };
        for (index, reference) in graph.node(node).refs.clone().zip(graph.refs_of(node)) {
            // A branch can only be to the place itself, and the function of a reference by symbol is certain.
            let literal = function.is_some() && graph.block(node).is_none();
            let branches = match reference.class {
                RelocClass::Branch => true,
                RelocClass::Relative => !graph.machine.target().has_relative_addresses,
                _ => false,
            };
            let branch = code && !literal && branches;
            let Target::Node(to) = reference.target else { continue };
            let Some(block) = graph.block(to).filter(|_| !branch && !slots.contains(index as usize)) else {
                continue;
            };
            let entry = graph.function(block.function).entry();
            if Some(block.function) != function
                && (to != entry || reference.addend != 0)
                && !(code && is_branch(graph, node, reference))
            {
                let table = !code && has_computed_jump(graph, block.function);
                let section = Pointed::Section(graph.node(to).section);
                found.insert(if table { Pointed::Function(entry) } else { section });
            }
        }
    }
    found
}

/// Whether a reference of a node of instructions is the field of a direct branch.
fn is_branch(graph: &Graph, node: NodeId, reference: &Ref) -> bool {
    graph.decode(node).map_while(|inst| inst).any(|inst| match inst.insn.flow {
        Flow::Direct { field_offset, .. } => {
            inst.at.address + u64::from(field_offset) == u64::from(reference.offset)
        }
        _ => false,
    })
}

/// Whether a function has a computed jump without a resolved jump table.
fn has_computed_jump(graph: &Graph, function: FunctionId) -> bool {
    let blocks = graph.function(function).blocks.iter();
    let computed = |end: &Terminator| match *end {
        Terminator::IndirectJump => true,
        Terminator::Jump(Dest { target: Target::Symbol(symbol), .. }) => {
            is_retpoline(&graph.symbols[symbol].name)
        }
        _ => false,
    };
    blocks.filter_map(|&node| graph.block(node)).any(|block| computed(&block.end))
}
