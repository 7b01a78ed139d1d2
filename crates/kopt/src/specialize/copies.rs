//! Blocks that a path may copy.

use kcfg::graph::{Role, SymbolPlace, Terminator};
use kcfg::index::NodeId;
use kcfg::instructions::Instruction;
use kisa::{BranchKind, Flow};

use super::explore::{Original, Why};
use crate::identical::entries;

/// Maximum size in bytes of opaque functions that are copied.
const LEAF: u32 = 32;

impl Original<'_> {
    /// Whether a block may be copied.
    ///
    /// # Errors
    /// The reason why not.
    pub fn copies(&self, node: NodeId) -> Result<(), Why> {
        let graph = self.graph;
        let leaf = Terminator::Return;
        let end = match graph.block(node) {
            Some(block) => &block.end,
            None if self.is_leaf(node) => &leaf,
            None => return Err("it is opaque"),
        };
        let supported = graph.node(node).live
            && match end {
                Terminator::Branch { branch, .. } => {
                    branch.kind == BranchKind::Conditional && branch.condition < 16
                }
                Terminator::FallThrough(_)
                | Terminator::Jump(_)
                | Terminator::Return
                | Terminator::Call { next: Some(_) }
                | Terminator::IndirectCall { next: Some(_) } => true,
                _ => false,
            };
        if !supported {
            return Err("it ends in a way that is not supported");
        }
        if graph.node(node).glued_to.is_some() || graph.knows_own_address(node) {
            return Err("its place matters");
        }
        if !entries(self.edges, node).is_empty() {
            return Err("a table is about one of its instructions");
        }
        if graph.calls_outlined(node) {
            return Err("it calls outlined code");
        }
        let Some(instructions) = graph.instructions(node) else {
            return Err("it is not made of instructions");
        };
        let movable = instructions.iter().all(|instruction| {
            self.isa.can_move(&instruction.inst)
                && !self.isa.holds_interrupts(&instruction.inst)
                && instruction.fields.iter().all(|field| graph.target_of(field.symbol).is_some())
                || matches!(instruction.inst.insn.flow, Flow::Direct { .. })
        });
        let plain = graph.refs_of(node).iter().all(|r| matches!(r.role, Role::Address | Role::Callee));
        if movable && plain { Ok(()) } else { Err("it has instructions that cannot move") }
    }

    /// Whether opaque code is a function without branches and calls. Short functions are opaque, because a pointer to one
    /// with a tag may point past its end.
    fn is_leaf(&self, node: NodeId) -> bool {
        let graph = self.graph;
        if !graph.is_code(node) || graph.node(node).size > LEAF {
            return false;
        }
        let Some(instructions) = graph.instructions(node) else { return false };
        let plain = graph.refs_of(node).iter().all(|r| r.role == Role::Address);
        let inner = graph.symbols().iter().any(|symbol| {
            matches!(symbol.place, SymbolPlace::Node(at, inside) if at == node && inside != 0 && inside < graph.node(node).size)
        });
        let Some(last) = returns(&instructions) else { return false };
        let padding = instructions[last + 1..]
            .iter()
            .all(|instruction| self.isa.padding_len(instruction.inst.bytes, graph.encoding(node)).is_some());
        plain && padding && !inner
    }
}

/// Returns the number of the return at which instructions without branches and calls end.
pub fn returns(instructions: &[Instruction<'_>]) -> Option<usize> {
    let end = instructions.iter().position(|instruction| instruction.inst.insn.flow != Flow::Next)?;
    (instructions[end].inst.insn.flow == Flow::Return).then_some(end)
}
