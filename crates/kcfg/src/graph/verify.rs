/*!
The invariants of a graph, which hold before and after every pass.

[`Graph::verify`] checks all of them, with a function for each kind. The error names the node that breaks one, the
problem, and the node's origin.
*/

mod ids;

use std::fmt;

use kisa::Flow;
use typed_index_collections::ti_vec;

use super::{
    Block, Counters, Graph, Life, Node, NodeKind, Ref, Role, SymbolPlace, Terminator, for_each_successor,
};
use crate::index::NodeId;

/// A broken invariant, which is a defect of kshrink.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} (node {node}): {problem}", node = node.0)]
pub struct Broken {
    /// The node.
    pub node: NodeId,
    /// Its human-readable name.
    pub name: String,
    /// The broken invariant.
    pub problem: String,
}

impl Graph {
    /// Checks the invariants.
    ///
    /// # Errors
    /// The first node that breaks one.
    pub fn verify(&self) -> Result<(), Broken> {
        let verifier = Verifier { graph: self };
        // Check this before following any id.
        verifier.ids()?;
        verifier.order()?;
        verifier.symbols()?;
        verifier.tables()?;
        for id in self.node_ids() {
            verifier.contents(id)?;
            verifier.references(id)?;
            match &self.node(id).kind {
                NodeKind::Block(block) => verifier.block(id, block)?,
                NodeKind::Chunk(chunk) if matches!(chunk.life, Life::Site(_)) => verifier.entry(id)?,
                NodeKind::Chunk(_) => {}
            }
        }
        verifier.roots()?;
        verifier.counters()
    }
}

struct Verifier<'g> {
    graph: &'g Graph,
}

type Verdict = Result<(), Broken>;

impl Verifier<'_> {
    /// Every node is listed once, by its own section, and every block once, by its own function. A glued node is
    /// directly after the node that it is glued to.
    fn order(&self) -> Verdict {
        let graph = self.graph;
        let mut listed = ti_vec![false; graph.nodes.len()];
        for (own, section) in graph.sections.iter_enumerated() {
            let mut before = None;
            for &id in &section.nodes {
                let node = graph.node(id);
                self.check(id, node.section == own, || format!("{} lists it", section.name))?;
                self.check(id, !std::mem::replace(&mut listed[id], true), || "listed twice")?;
                let glued = node.glued_to.filter(|&other| node.live && graph.node(other).live);
                self.check(
                    id,
                    glued.is_none() || glued == before,
                    || "glued to a node that is not directly before it",
                )?;
                before = if node.live { Some(id) } else { before };
            }
        }
        let unlisted = listed.position(|listed| !listed);
        unlisted.map_or(Ok(()), |id| self.check(id, false, || "no section lists it"))?;
        let mut listed = ti_vec![false; graph.nodes.len()];
        for (own, function) in graph.functions.iter_enumerated() {
            for &id in &function.blocks {
                let own = graph.function_of(id) == Some(own);
                self.check(id, own, || format!("function {} lists it", function.name))?;
                self.check(id, !std::mem::replace(&mut listed[id], true), || "listed twice")?;
            }
        }
        let is_missing = |&id: &NodeId| graph.block(id).is_some() && !listed[id];
        graph
            .node_ids()
            .find(is_missing)
            .map_or(Ok(()), |id| self.check(id, false, || "no function lists it"))
    }

    /// Slots of jump tables are within their chunks and fill their ranges.
    fn tables(&self) -> Verdict {
        for (id, table) in self.graph.tables.iter_enumerated() {
            let slots = self.graph.slots(id);
            let size: u32 = slots.iter().map(|slot| u32::from(slot.width)).sum();
            let whole = size == table.range.len() as u32 && !slots.is_empty();
            self.check(table.chunk, whole && table.range.end <= self.graph.node(table.chunk).size, || {
                format!("jump table {} at {:?} is not made of slots", id.0, table.range)
            })?;
        }
        Ok(())
    }

    /// Bytes and references fit the size.
    fn contents(&self, id: NodeId) -> Verdict {
        let node = self.graph.node(id);
        let bytes = node.bytes.len() as u32;
        self.check(id, bytes == node.size || bytes == 0 && self.is_zero_initialized(node), || {
            format!("{bytes} bytes for a size of {}", node.size)
        })?;
        self.check(id, node.align.is_power_of_two() || node.align == 0, || {
            format!("alignment {}", node.align)
        })?;
        let refs = self.graph.refs_of(id);
        let end = |reference: &Ref| reference.offset + u32::from(reference.width);
        self.check(
            id,
            refs.iter().all(|reference| end(reference) <= node.size),
            || "a reference after its end",
        )?;
        self.check(id, refs.is_sorted_by_key(|reference| reference.offset), || "references out of order")
    }

    fn is_zero_initialized(&self, node: &Node) -> bool {
        let section = &self.graph.sections[node.section];
        section.kind == goblin::elf::section_header::SHT_NOBITS
    }

    /// Live nodes refer only to live nodes, except by slots of jump tables, which remain when their jump is removed.
    fn references(&self, id: NodeId) -> Verdict {
        let graph = self.graph;
        for reference in graph.refs_of(id) {
            if let Role::Slot(table) = reference.role {
                let own = graph
                    .tables
                    .get(table)
                    .is_some_and(|table| table.chunk == id && table.range.contains(&reference.offset));
                self.check(id, own, || {
                    format!("the reference at {} is not a slot of its table", reference.offset)
                })?;
                continue;
            }
            let Some(to) = graph.resolve_node(reference.target) else { continue };
            self.check(id, !graph.node(id).live || graph.node(to).live, || {
                format!("refers to {}, which was removed", graph.name_of(to))
            })?;
        }
        Ok(())
    }

    /// Successors are alive, and the last instruction of the block fits its terminator. A fixed block comes from the
    /// input, and is not longer than there.
    fn block(&self, id: NodeId, block: &Block) -> Verdict {
        let graph = self.graph;
        if !graph.node(id).live {
            return Ok(());
        }
        let mut dead = None;
        for_each_successor(graph, &block.end, |to| dead = dead.or((!graph.node(to).live).then_some(to)));
        self.check(id, dead.is_none(), || {
            format!("leads to {}, which was removed", dead.map_or_else(String::new, |to| graph.name_of(to)))
        })?;
        let calls = graph.refs_of(id).iter().filter(|reference| reference.role == Role::Callee).count();
        let expected = usize::from(matches!(block.end, Terminator::Call { .. }));
        self.check(id, calls == expected, || format!("{calls} callees, ends with {:?}", block.end))?;
        if block.is_fixed() {
            let Some(origin) = graph.node(id).origin() else {
                return self.check(id, false, || "fixed, but made by a pass");
            };
            let fits = graph.size_with_branch(id) <= origin.size;
            return self.check(id, fits, || "fixed, but longer than in the input");
        }
        let starts = instruction_starts(graph, id);
        let last = starts.as_ref().map(|(_, last)| *last);
        self.check(id, starts.is_some(), || "its bytes are not instructions")?;
        let fits = match &block.end {
            Terminator::Call { .. } => matches!(last, Some(Some(Flow::Direct { .. }))),
            Terminator::IndirectCall { .. } => last == Some(Some(Flow::IndirectCall)),
            Terminator::Switch(_) | Terminator::IndirectJump => last == Some(Some(Flow::IndirectJump)),
            Terminator::Return => last == Some(Some(Flow::Return)),
            Terminator::Trap { .. } => last == Some(Some(Flow::Trap)),
            Terminator::FallThrough(_)
            | Terminator::Jump(_)
            | Terminator::Branch { .. }
            | Terminator::Unreachable => matches!(last, Some(None | Some(Flow::Next))),
            Terminator::Conditional { .. } => !matches!(last, None | Some(None | Some(Flow::Next))),
            Terminator::Patched { .. } => true,
        };
        self.check(id, fits, || format!("ends with {last:?}, which is not {:?}", block.end))
    }

    /// An entry of a weak table is alive only with its site, which is an instruction.
    fn entry(&self, id: NodeId) -> Verdict {
        let graph = self.graph;
        let Some(site) = graph.site(id).filter(|_| graph.node(id).live) else { return Ok(()) };
        let Some((to, inside)) = graph.resolve(site.target) else { return Ok(()) };
        let offset = i64::from(inside) + site.addend;
        let Some(block) = graph.block(to).filter(|block| !block.is_fixed()) else { return Ok(()) };
        let mut starts = instruction_starts(graph, to).map(|(starts, _)| starts).unwrap_or_default();
        // The branch of these terminators is not among the bytes.
        if matches!(block.end, Terminator::Jump(_) | Terminator::Branch { .. }) {
            starts.push(graph.node(to).size);
        }
        let is_start = u32::try_from(offset).is_ok_and(|at| starts.contains(&at) || at == 0);
        self.check(id, is_start, || {
            format!("is about byte {offset} of {}, where no instruction begins", graph.name_of(to))
        })
    }

    /// Symbols are within their nodes, or at their ends.
    fn symbols(&self) -> Verdict {
        for symbol in &self.graph.symbols {
            if let SymbolPlace::Node(id, offset) = symbol.place {
                let node = self.graph.node(id);
                let end = node.origin().map_or(node.size, |origin| node.size.max(origin.size));
                self.check(id, offset <= end, || {
                    format!("symbol {} lies {offset} bytes into it", symbol.name)
                })?;
            }
        }
        Ok(())
    }

    /// Roots are alive.
    fn roots(&self) -> Verdict {
        for root in &self.graph.roots {
            let live = self.graph.node(root.node).live;
            self.check(root.node, live, || format!("removed, although it is a root ({:?})", root.reason))?;
        }
        Ok(())
    }

    /// Every live instrumented block has its counter: the array is alive, and long enough.
    fn counters(&self) -> Verdict {
        let Some(Counters { symbol, blocks }) = &self.graph.counters else { return Ok(()) };
        let array = match self.graph.symbols[*symbol].place {
            SymbolPlace::Node(node, offset) => Some(self.graph.node(node)).map(|node| (node, offset)),
            _ => None,
        };
        for (number, &block) in blocks.iter().enumerate().filter(|&(_, &block)| self.graph.node(block).live) {
            let counted =
                array.is_some_and(|(node, start)| node.live && start as usize + number < node.size as usize);
            self.check(block, counted, || format!("its counter, number {number}, was removed"))?;
        }
        Ok(())
    }

    fn check<P: fmt::Display>(&self, node: NodeId, holds: bool, problem: impl FnOnce() -> P) -> Verdict {
        if holds {
            return Ok(());
        }
        Err(Broken { node, name: self.graph.name_of(node), problem: problem().to_string() })
    }
}

/// Returns the offsets in bytes of the instructions of a block, and the control flow of the last; `None` if they cannot
/// be decoded.
fn instruction_starts(graph: &Graph, id: NodeId) -> Option<(Vec<u32>, Option<Flow>)> {
    let (mut starts, mut last) = (Vec::new(), None);
    for step in graph.decode(id) {
        let inst = step?;
        starts.push(inst.at.address as u32);
        last = Some(inst.insn.flow);
    }
    Some((starts, last))
}
