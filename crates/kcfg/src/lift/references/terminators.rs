//! Sets the terminator of each block.

use kisa::{BranchKind, Flow};

use super::Connector;
use crate::error::Error;
use crate::graph::{Dest, NodeKind, Role, Target, Terminator};
use crate::index::NodeId;
use crate::lift::nodes::BlockEnd;
use crate::lift::placed::reloc_at;

impl Connector<'_, '_> {
    /// Sets the terminator of every block.
    pub(super) fn terminators(&mut self) -> Result<(), Error> {
        for (node, end) in std::mem::take(&mut self.lifted.ends) {
            let terminator = self.terminator(node, &end)?;
            if let Terminator::Call { .. } = terminator {
                // The call is the last instruction, and its field the last of the block.
                let last = self.lifted.graph.node(node).refs.end as usize - 1;
                self.lifted.graph.refs[last].role = Role::Callee;
            }
            if let NodeKind::Block(block) = &mut self.lifted.graph.nodes[node].kind {
                block.end = terminator;
            }
        }
        Ok(())
    }

    fn terminator(&mut self, node: NodeId, end: &BlockEnd) -> Result<Terminator, Error> {
        let next = end.next;
        if end.patched {
            return Ok(Terminator::Patched { next });
        }
        if end.last.insn.conditional {
            return Ok(Terminator::Conditional { next });
        }
        if let Some(&table) = self.switches.get(&node) {
            return Ok(Terminator::Switch(table));
        }
        Ok(match end.last.insn.flow {
            Flow::Next => next.map_or(Terminator::Unreachable, Terminator::FallThrough),
            Flow::Direct { branch, .. } => match (branch.kind, next) {
                (BranchKind::Call, next) => Terminator::Call { next },
                (BranchKind::Conditional, Some(next)) => {
                    Terminator::Branch { branch, taken: self.destination(node, end)?, next }
                }
                (BranchKind::Jump, Some(next)) if self.is_static_jump(node, end) => {
                    Terminator::Branch { branch, taken: self.destination(node, end)?, next }
                }
                (BranchKind::Conditional, None) => return Err(self.runs_off(node, end)),
                (BranchKind::Jump, _) => Terminator::Jump(self.destination(node, end)?),
            },
            Flow::IndirectJump => Terminator::IndirectJump,
            Flow::IndirectCall => Terminator::IndirectCall { next },
            Flow::Return => Terminator::Return,
            Flow::Trap => Terminator::Trap { next: next.filter(|_| !end.fatal) },
        })
    }

    /// Whether the `jmp` that ends the block is a static key, which the kernel patches to a `nop` and back.
    fn is_static_jump(&self, node: NodeId, end: &BlockEnd) -> bool {
        self.lifted.static_jumps.contains(&(self.lifted.graph.node(node).section, end.last.offset))
    }

    fn destination(&mut self, node: NodeId, end: &BlockEnd) -> Result<Dest, Error> {
        let id = self.lifted.graph.node(node).section;
        let (Flow::Direct { field_offset, field_width, .. }, Some(target)) =
            (end.last.insn.flow, end.last.target())
        else {
            unreachable!("only direct branches have a destination");
        };
        let field = end.last.offset + u32::from(field_offset);
        let (target, offset) = match reloc_at(self.relocs(id), field) {
            Some(reloc) => {
                let own = kelf::reloc::branch_bias(self.program.machine, reloc.r_type);
                let bias = own.unwrap_or((end.last.end() - field) as u8);
                if reloc.width != field_width {
                    return Err(self.straddling(id, reloc));
                }
                self.target(id, reloc, bias)?
            }
            None => {
                let (target, offset) =
                    self.lifted.locate(id, i64::from(target)).expect("planning included every target");
                (Target::Node(target), offset)
            }
        };
        Ok(Dest { target, offset })
    }

    fn runs_off(&self, node: NodeId, end: &BlockEnd) -> Error {
        let (object, section) = self.place(self.lifted.graph.node(node).section);
        Error::RunsOff { object, section, offset: end.last.offset }
    }
}
