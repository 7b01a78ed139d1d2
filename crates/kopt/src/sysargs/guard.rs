//! Guards: code in front of handlers that turns away what nobody asks for.
//!
//! A guard loads the argument from where the handler finds it too, and compares it with one value after the other:
//!
//! ```text
//!     mov 4(%eax),%edx
//!     cmp $1,%edx
//!     je handler
//!     cmp $5,%edx
//!     jne sys_ni_syscall
//! handler:
//! ```

use kcfg::graph::{Contents, Dest, Editor, Graph, Target, Terminator};
use kcfg::index::{NodeId, SymbolId};
use kisa::{Branch, Reg, Rewritable};

use super::PASS;

/// Bytes of a register in `struct pt_regs`.
const WORD: u8 = 4;

/// What an argument has to be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Check {
    /// Its index from 0. The registers that arguments come in are the first words of `struct pt_regs`, in this order
    /// (arch/x86/include/asm/ptrace.h: bx, cx, dx, si, di, bp).
    pub argument: u8,
    /// One of these; at least one.
    pub values: Vec<u32>,
}

/// A handler that is to be guarded, by the block that it begins with.
pub(super) struct Guarded {
    pub entry: NodeId,
    pub checks: Vec<Check>,
}

/// Whether guards can be made of this machine's instructions.
pub(super) fn can_be_made(isa: &dyn Rewritable) -> bool {
    Instructions::of(isa).is_some_and(|instructions| {
        let mut bytes = Vec::new();
        instructions.load(0, &mut bytes) && instructions.compare(0, &mut bytes)
    })
}

/// Puts guards in front of handlers. What they turn away is answered by the function with this symbol.
pub(super) fn insert(graph: &mut Graph, handlers: &[Guarded], refuse: SymbolId) {
    let Some(instructions) = Instructions::of(graph.isa()) else { return };
    // At first without instructions, so that only what leads to the handler is redirected, and not the guard's own way.
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
        fill(&mut editor, handler, first, &instructions, refuse);
    }
    editor.finish();
}

/// Gives a guard its code, given its first block.
fn fill(
    editor: &mut Editor<'_>,
    handler: &Guarded,
    first: NodeId,
    instructions: &Instructions<'_>,
    refuse: SymbolId,
) {
    let entry = handler.entry;
    let count: usize = handler.checks.iter().map(|check| check.values.len()).sum();
    let added =
        (1..count).map(|_| editor.add_block(entry, Contents::default(), Terminator::FallThrough(entry)));
    let blocks: Vec<NodeId> = std::iter::once(first).chain(added.collect::<Vec<_>>()).collect();
    let mut number = 0;
    for check in &handler.checks {
        let passed = blocks.get(number + check.values.len()).copied().unwrap_or(entry);
        for (place, &value) in check.values.iter().enumerate() {
            let mut bytes = Vec::new();
            let _is_known = (place > 0 || instructions.load(check.argument * WORD, &mut bytes))
                && instructions.compare(value, &mut bytes);
            debug_assert!(_is_known, "it is known how to make guards");
            let end = if place + 1 == check.values.len() {
                let taken = Dest { target: Target::Symbol(refuse), offset: 0 };
                Terminator::Branch { branch: instructions.if_different, taken, next: passed }
            } else {
                let taken = Dest { target: Target::Node(passed), offset: 0 };
                Terminator::Branch { branch: instructions.if_equal, taken, next: blocks[number + 1] }
            };
            editor.edit_block(blocks[number], Contents { bytes, refs: Vec::new() }, &[]);
            editor.end_block(blocks[number], end);
            number += 1;
        }
    }
}

/// The instructions of guards.
struct Instructions<'i> {
    isa: &'i dyn Rewritable,
    /// The register that points to the registers of the program, and one that a handler finds nothing in.
    registers: Reg,
    scratch: Reg,
    if_equal: Branch,
    if_different: Branch,
}

impl Instructions<'_> {
    fn of(isa: &dyn Rewritable) -> Option<Instructions<'_>> {
        let if_equal = isa.branch_if_equal()?;
        let (registers, scratch) = (isa.argument(0)?, isa.argument(1)?);
        Some(Instructions { isa, registers, scratch, if_equal, if_different: isa.inverse(if_equal)? })
    }

    fn load(&self, displacement: u8, out: &mut Vec<u8>) -> bool {
        self.isa.encode_load_word(self.scratch, self.registers, displacement, out)
    }

    fn compare(&self, value: u32, out: &mut Vec<u8>) -> bool {
        self.isa.encode_compare(self.scratch, value, out)
    }
}
