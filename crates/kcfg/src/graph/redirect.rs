//! The end of the edits of a pass: new nodes enter the lists, and uses of moved places are redirected.

use kisa::Encoding;
use rustc_hash::FxHashMap;

use super::edit::Editor;
use super::moves::Use;
use super::{Function, JumpTable, Life, NodeKind, Ref, Role, Root, SymbolPlace, Target, Terminator};
use crate::index::{FunctionId, NodeId, SectionId};
use crate::special::{About, TableKind};

impl Editor<'_> {
    /// Completes the edits: inserts the new nodes into the lists of sections and functions, and redirects all uses of
    /// places that moved.
    pub fn finish(mut self) {
        self.insert();
        if !self.moves.is_empty() {
            self.redirect_uses();
        }
    }

    /// Puts the new blocks into the lists of their sections and functions.
    pub(super) fn insert(&mut self) {
        let (in_front, behind) = (std::mem::take(&mut self.in_front), std::mem::take(&mut self.behind));
        let new = in_front.values().chain(behind.values()).flatten();
        let (mut sections, mut functions): (Vec<SectionId>, Vec<Option<FunctionId>>) =
            new.map(|&id| (self.graph.node(id).section, self.graph.function_of(id))).unzip();
        sections.sort_unstable();
        sections.dedup();
        functions.sort_unstable();
        functions.dedup();
        let around = Around { in_front, behind };
        for section in sections {
            let nodes = &mut self.graph.sections[section].nodes;
            *nodes = around.insert(nodes);
        }
        for function in functions.into_iter().flatten() {
            let Function { blocks, .. } = &mut self.graph.functions[function];
            *blocks = around.insert(blocks);
        }
    }

    fn redirect_uses(&mut self) {
        for id in self.graph.node_ids() {
            self.redirect_terminator(id);
            if let Some(before) = self.graph.node(id).glued_to {
                self.graph.nodes[id].glued_to = Some(self.moves.last_part(before));
            }
            let instruction = self.graph.chunk(id).is_some_and(|chunk| is_about_instruction(chunk.life));
            for at in self.graph.node(id).refs.clone() {
                let reference = self.graph.refs[at as usize];
                if is_end(self.graph.chunk(id).map(|chunk| chunk.life), &reference) {
                    continue;
                }
                let instruction = instruction && reference.role == Role::Site;
                let by = Use { from: Some(id), instruction };
                let (target, addend) = self.target(reference.target, reference.addend, by);
                let reference = &mut self.graph.refs[at as usize];
                (reference.target, reference.addend) = (target, addend);
            }
        }
        for symbol in &mut self.graph.symbols {
            if let SymbolPlace::Node(node, offset) = symbol.place {
                let (node, offset) = self.moves.place_of(node, offset.into(), Use::default());
                symbol.place = SymbolPlace::Node(node, offset as u32);
            }
        }
        let roots = std::mem::take(&mut self.graph.roots);
        self.graph.roots = roots.iter().flat_map(|root| self.redirected_root(root)).collect();
        if let Some(counters) = &mut self.graph.counters {
            let by = Use { from: None, instruction: true };
            counters.blocks.iter_mut().for_each(|block| *block = self.moves.place_of(*block, 0, by).0);
        }
        for table in &mut self.graph.tables {
            let (size, start) = (table.range.len() as u32, table.range.start.into());
            let (chunk, start) = self.moves.place_of(table.chunk, start, Use::default());
            *table = JumpTable { chunk, range: start as u32..start as u32 + size };
        }
    }

    /// Returns the roots for the parts of a root's node, if the node was split.
    fn redirected_root(&self, root: &Root) -> Vec<Root> {
        let mut parts = Vec::new();
        let mut at = root.range.start;
        while parts.is_empty() || at < root.range.end {
            let (node, start) = self.moves.place_of(root.node, at.into(), Use::default());
            let (start, left) = (start as u32, root.range.end.saturating_sub(at));
            let size = self.graph.node(node).size.saturating_sub(start).min(left).max(1);
            parts.push(Root { node, range: start..start + size, reason: root.reason });
            at += size;
        }
        parts
    }

    /// Redirects the successors of a block.
    fn redirect_terminator(&mut self, id: NodeId) {
        let Some(mut end) = self.graph.block(id).map(|block| block.end.clone()) else { return };
        let by = Use { from: Some(id), instruction: false };
        if let Terminator::Jump(dest) | Terminator::Branch { taken: dest, .. } = &mut end {
            (dest.target, dest.offset) = self.target(dest.target, dest.offset, by);
        }
        if let Some(next) = end.next_mut() {
            *next = self.moves.place_of(*next, 0, by).0;
        }
        if let NodeKind::Block(block) = &mut self.graph.nodes[id].kind {
            block.end = end;
        }
    }

    /// Returns the new place of a target and an offset in bytes from it. Symbols are redirected separately. An offset
    /// from a symbol is a place only for a table entry about an instruction. Otherwise it is a number added to the
    /// address, because lifting refers to places in code by their blocks: `table - 8`, for an array whose first index
    /// is 2, or `f + 1`, a pointer with a tag.
    fn target(&self, target: Target, addend: i64, by: Use) -> (Target, i64) {
        match target {
            Target::Node(node) => {
                // The address of a label in Thumb code has bit 0 set.
                let thumb = self.graph.encoding(node) == Encoding::Thumb;
                let bit = if thumb { addend & 1 } else { 0 };
                let (node, offset) = self.moves.place_of(node, addend - bit, by);
                (Target::Node(node), offset + bit)
            }
            Target::Symbol(symbol) => {
                let SymbolPlace::Node(node, inside) = self.graph.symbols[symbol].place else {
                    return (target, addend);
                };
                if self.graph.block(node).is_none() || !by.instruction {
                    return (target, addend);
                }
                let start = self.moves.place_of(node, inside.into(), Use::default());
                let point = self.moves.place_of(node, i64::from(inside) + addend, by);
                if start.0 == point.0 {
                    (target, point.1 - start.1)
                } else {
                    (Target::Node(point.0), point.1)
                }
            }
        }
    }
}

/// Whether a reference means the end of the instruction before a block, which stays there whatever is put in front of
/// the block. The two blocks are glued together.
fn is_end(life: Option<Life>, reference: &Ref) -> bool {
    life == Some(Life::Site(TableKind::DeadEnd)) && reference.role == Role::Site && reference.addend == 0
}

/// New nodes, by the node that they are inserted before or after.
struct Around {
    in_front: FxHashMap<NodeId, Vec<NodeId>>,
    behind: FxHashMap<NodeId, Vec<NodeId>>,
}

impl Around {
    /// Returns the list with the new nodes inserted.
    fn insert(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        let mut all = Vec::with_capacity(nodes.len());
        nodes.iter().for_each(|&node| self.add(node, &mut all));
        all
    }

    fn add(&self, node: NodeId, all: &mut Vec<NodeId>) {
        self.in_front.get(&node).into_iter().flatten().for_each(|&new| self.add(new, all));
        all.push(node);
        self.behind.get(&node).into_iter().flatten().rev().for_each(|&new| self.add(new, all));
    }
}

/// Whether the entries of a table are about one instruction rather than a function.
fn is_about_instruction(life: Life) -> bool {
    matches!(life, Life::Site(kind) if kind.about() != About::Function)
}
