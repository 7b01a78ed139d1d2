//! Guards: code before handlers that refuses unused operations.
//!
//! A guard reads the argument from the same place as the handler, and compares it with one value after the other:
//!
//! ```text
//!     mov 4(%eax),%edx               cmp r1, #1
//!     cmp $1,%edx                    beq handler
//!     je handler                     cmp r1, #5
//!     cmp $5,%edx                    bne sys_ni_syscall
//!     jne sys_ni_syscall         handler:
//! handler:
//! ```

use kcfg::graph::{Contents, Dest, Editor, Graph, Provenance, Target, Terminator};
use kcfg::index::{NodeId, SymbolId};
use kisa::{Encoding, Rewritable};

use super::convention::{Convention, Place};

/// The name of the pass, which marks its guards.
pub(super) const PASS: &str = "sysargs";

/// A condition on an argument.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Check {
    /// Its index from 0.
    pub argument: u8,
    /// The permitted values; at least one.
    pub values: Vec<u32>,
}

/// The instructions of a check: for each value, a comparison of the argument with it.
pub(super) type Comparisons = Vec<Vec<u8>>;

/// A handler to be guarded, by its first block.
pub(super) struct Guarded {
    pub entry: NodeId,
    pub checks: Vec<Comparisons>,
}

/// Returns the instructions of a check before a handler in this encoding; `None` if they cannot be encoded.
pub(super) fn comparisons(
    isa: &dyn Rewritable,
    convention: &Convention,
    encoding: Encoding,
    check: &Check,
) -> Option<Comparisons> {
    let free = convention.scratch(isa)?;
    let mut load = Vec::new();
    let (reg, scratch) = match convention.place(isa, check.argument)? {
        Place::Register(reg) => (reg, Some(free)),
        Place::Word { base, displacement } => {
            isa.encode_load_word(encoding, free, base, displacement, &mut load).then_some((free, None))?
        }
    };
    let compared = |&value: &u32| {
        // Only the first comparison needs the load.
        let mut bytes = std::mem::take(&mut load);
        isa.encode_compare(encoding, reg, value, scratch, &mut bytes).then_some(bytes)
    };
    check.values.iter().map(compared).collect()
}

/// Inserts guards before handlers. The function `refuse` answers the refused operations.
pub(super) fn insert(graph: &mut Graph, handlers: &[Guarded], refuse: SymbolId) {
    // First without instructions, so that references to the handler are redirected, but not the guard's own branches.
    let mut editor = Editor::new(graph, PASS);
    let mut first_blocks = Vec::new();
    for handler in handlers {
        let first =
            editor.add_block(handler.entry, Contents::default(), Terminator::FallThrough(handler.entry));
        editor.replace_uses(handler.entry, first);
        first_blocks.push(first);
    }
    editor.finish();
    let mut editor = Editor::new(graph, PASS);
    for (handler, first) in handlers.iter().zip(first_blocks) {
        fill(&mut editor, handler, first, refuse);
    }
    editor.finish();
}

/// Fills in the code of a guard, given its first block.
fn fill(editor: &mut Editor<'_>, handler: &Guarded, first: NodeId, refuse: SymbolId) {
    let (graph, entry) = (editor.graph(), handler.entry);
    let (isa, encoding) = (graph.isa(), graph.encoding(entry));
    let Some(if_equal) = isa.branch_if_equal(encoding) else { return };
    let Some(if_different) = isa.inverse(if_equal) else { return };
    let count: usize = handler.checks.iter().map(Vec::len).sum();
    let added =
        (1..count).map(|_| editor.add_block(entry, Contents::default(), Terminator::FallThrough(entry)));
    let blocks: Vec<NodeId> = std::iter::once(first).chain(added.collect::<Vec<_>>()).collect();
    let mut number = 0;
    for comparisons in &handler.checks {
        let passed = blocks.get(number + comparisons.len()).copied().unwrap_or(entry);
        for (place, bytes) in comparisons.iter().enumerate() {
            let end = if place + 1 == comparisons.len() {
                let taken = Dest { target: Target::Symbol(refuse), offset: 0 };
                Terminator::Branch { branch: if_different, taken, next: passed }
            } else {
                let taken = Dest { target: Target::Node(passed), offset: 0 };
                Terminator::Branch { branch: if_equal, taken, next: blocks[number + 1] }
            };
            editor.edit_block(blocks[number], Contents { bytes: bytes.clone(), refs: Vec::new() }, &[]);
            editor.end_block(blocks[number], end);
            number += 1;
        }
    }
}

/// Whether a block belongs to a guard.
pub(super) fn is_guard(graph: &Graph, node: NodeId) -> bool {
    graph.node(node).provenance == Provenance::Made(PASS)
}
