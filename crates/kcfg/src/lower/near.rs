/*!
Keeps literals and tables of distances within the reach of ARM instructions.

A load reaches a literal up to 1020 or 4095 bytes away, and the slots of a table of distances span 510 or 131070 bytes.
Passes move code apart, share it, and insert more. Before such a program is lowered, [`bring_near`] gives each load
that does not reach its literal a copy within reach. The copy is placed after a block of the same part of the function:
a block without a fall-through, or else one that then jumps over the copy. A block is split for that if its end is too
far away. Tables get slots of two bytes if one byte is not enough. This is repeated until all loads reach, because
every copy moves the code after it. Unread literals are removed.
*/

use kelf::RelocClass;
use kisa::Rewritable;
use typed_index_collections::ti_vec;

use super::relax::{self, PlacedNode, Relax};
use crate::graph::{Editor, Graph, Ref, SymbolPlace, Target, Terminator};
use crate::index::{NodeId, NodeMap, NodeSet, SectionId, TableId};

/// Maximum number of times that all code is placed. Lowering reports everything still out of reach as an error.
const MAX_ROUNDS: usize = 64;

/// Number of bytes by which a copy should be nearer than the reach of the load, because further copies may be inserted.
const MARGIN: u32 = 64;

/// The provenance of nodes that are created here.
const STEP: &str = "literals";

/// Brings literals and tables within the reach of instructions, and removes unread literals.
pub fn bring_near(graph: &mut Graph) {
    if !graph.machine.target().has_literals {
        return;
    }
    for _ in 0..MAX_ROUNDS {
        // Remove these first: this moves the code after them, and the reach of `sub r1, pc, #N` has gaps.
        remove_unread(graph);
        let mut found = Found::default();
        let mut offsets = ti_vec![0; graph.nodes.len()];
        for section in graph.sections.keys() {
            found.look_at(graph, section, &mut offsets);
        }
        if found.is_empty() {
            break;
        }
        found.apply(graph);
    }
}

/// Removes the literals that no live instruction reads.
fn remove_unread(graph: &mut Graph) {
    let mut read = NodeSet::with_capacity(graph.nodes.len());
    for node in graph.node_ids().filter(|&node| graph.node(node).live) {
        let targets = graph.refs_of(node).iter().filter_map(|reference| graph.resolve_node(reference.target));
        read.extend(targets);
    }
    read.extend(graph.roots.iter().map(|root| root.node));
    read.extend(graph.symbols.iter().filter_map(|symbol| match symbol.place {
        SymbolPlace::Node(node, _) => Some(node),
        _ => None,
    }));
    for node in graph.node_ids() {
        if is_literal(graph, node) && !read.contains(node) {
            graph.remove(node);
        }
    }
}

/// Whether a node is a literal rather than a table of distances.
fn is_literal(graph: &Graph, node: NodeId) -> bool {
    graph.is_among_code(node) && graph.node(node).live && graph.node(node).glued_to.is_none()
}

/// Whether a copy of a node can be read instead of it. This holds for all data among code except tables of distances,
/// which are relative to themselves. A literal may be part of the same node as a table of addresses that must not
/// move.
fn can_be_copied(graph: &Graph, node: NodeId) -> bool {
    let is_distance = |reference: &Ref| reference.class == RelocClass::Literal;
    graph.is_among_code(node) && graph.node(node).live && !graph.refs_of(node).iter().any(is_distance)
}

/// References out of reach, and their repairs.
#[derive(Default)]
struct Found {
    /// Copies to make: of this literal, directly after this node.
    copies: Vec<(NodeId, NodeId)>,
    /// References by their numbers among those of a block, with their new targets.
    loads: Vec<(NodeId, usize, Literal)>,
    /// Jumps through tables whose slots are too narrow.
    tables: Vec<(NodeId, TableId)>,
    /// Blocks to split, and the offsets, to insert a copy in between.
    splits: Vec<(NodeId, u32)>,
}

/// A literal to read instead.
#[derive(Clone, Copy)]
enum Literal {
    There(NodeId),
    /// The copy with this number.
    Copy(usize),
}

impl Found {
    fn is_empty(&self) -> bool {
        self.loads.is_empty() && self.tables.is_empty() && self.splits.is_empty()
    }

    /// Adds the references out of reach in a section of code; none if its branches are out of reach as well.
    fn look_at(&mut self, graph: &Graph, section: SectionId, offsets: &mut NodeMap<u32>) {
        let nodes = graph.sections[section].nodes.iter().copied();
        let live: Vec<NodeId> = nodes.filter(|&node| graph.node(node).live).collect();
        if !live.iter().any(|&node| graph.block(node).is_some()) {
            return;
        }
        let mut placed = Vec::new();
        let isa = graph.isa();
        if relax::place(isa, graph, section, &live, Relax::Shortest, offsets, &mut placed).is_err() {
            return;
        }
        for placed in &placed {
            let parts = placed.nodes.chunk_by(|one, other| graph.owner(one.node) == graph.owner(other.node));
            for nodes in parts.filter(|part| graph.owner(part[0].node).is_some()) {
                Part { graph, isa, section, nodes, offsets }.look(self);
            }
        }
    }

    fn apply(self, graph: &mut Graph) {
        let mut editor = Editor::new(graph, STEP);
        if !self.splits.is_empty() {
            // The split changes the numbers of references. The next round makes the copies.
            self.splits.iter().for_each(|&(block, at)| _ = editor.split_block(block, at));
            editor.finish();
            return;
        }
        let copies: Vec<NodeId> =
            self.copies.iter().map(|&(literal, behind)| editor.copy_behind(literal, behind)).collect();
        for (jump, table) in self.tables {
            editor.widen_table(jump, table);
        }
        for (node, number, literal) in self.loads {
            let to = match literal {
                Literal::There(node) => node,
                Literal::Copy(number) => copies[number],
            };
            let addend = editor.graph().refs_of(node)[number].addend;
            editor.redirect(node, number, Target::Node(to), addend);
        }
        editor.finish();
    }
}

/// Neighbouring nodes of one function.
struct Part<'p> {
    graph: &'p Graph,
    isa: &'static dyn Rewritable,
    section: SectionId,
    nodes: &'p [PlacedNode],
    offsets: &'p NodeMap<u32>,
}

impl Part<'_> {
    fn look(&self, found: &mut Found) {
        // The index of the node before each copy, with the number of the copy.
        let mut planned: Vec<(usize, usize)> = Vec::new();
        for (i, placed) in self.nodes.iter().enumerate() {
            let graph = self.graph;
            let Some(block) = graph.block(placed.node) else { continue };
            if let Terminator::Switch(table) = block.end
                && self.is_narrow(table)
            {
                found.tables.push((placed.node, table));
            }
            for (number, reference) in graph.refs_of(placed.node).iter().enumerate() {
                let Some((literal, inside)) = graph.resolve(reference.target) else { continue };
                let inside = i64::from(inside) + reference.addend;
                if reference.class != RelocClass::Literal || !can_be_copied(graph, literal) {
                    continue;
                }
                let load =
                    Load { node: placed.node, offset: reference.offset, width: reference.width, inside };
                let here = graph.node(literal).section == self.section;
                if here && self.reaches(&load, self.offsets[literal]) {
                    continue;
                }
                if let Some(literal) = self.other(i, &load, literal, &planned, found) {
                    found.loads.push((placed.node, number, literal));
                    if let Literal::Copy(copy) = literal
                        && planned.iter().all(|&(_, planned)| planned != copy)
                    {
                        let behind = found.copies[copy].1;
                        let index = self.nodes.iter().position(|placed| placed.node == behind);
                        planned.push((index.unwrap_or(i), copy));
                    }
                } else if let Some(at) = self.place_to_split(i, &load, literal)
                    && found.splits.last().is_none_or(|&(split, _)| split != placed.node)
                {
                    found.splits.push((placed.node, at));
                }
            }
        }
    }

    /// Whether the slots of a table of distances are too narrow.
    fn is_narrow(&self, table: TableId) -> bool {
        let chunk = self.graph.tables[table].chunk;
        let start = i64::from(self.offsets[chunk]);
        self.graph.slots(table).iter().filter(|slot| slot.class == RelocClass::Literal).any(|slot| {
            let to = self.graph.resolve(slot.target).filter(|&(to, _)| self.graph.node(to).live);
            to.is_some_and(|(to, inside)| {
                let target = i64::from(self.offsets[to]) + i64::from(inside) + slot.addend;
                slot.width == 1 && (target - start) / 2 > 0xff
            })
        })
    }

    /// Whether a load reaches a literal that begins at an offset of the section.
    fn reaches(&self, load: &Load, literal: u32) -> bool {
        self.reaches_if_moved(load, 0, literal)
    }

    /// Whether the load would still reach after moving by this number of bytes.
    fn reaches_if_moved(&self, load: &Load, by: u32, literal: u32) -> bool {
        let graph = self.graph;
        let start = load.offset as usize;
        let mut bytes = graph.bytes_of(load.node)[start..start + usize::from(load.width)].to_vec();
        let place = u64::from(self.offsets[load.node] + load.offset + by);
        let target = i64::from(literal) + load.inside;
        target >= 0 && self.isa.set_literal(&mut bytes, graph.encoding(load.node).at(place), target as u64)
    }

    /// Finds or schedules an equal literal within reach of node `i`.
    fn other(
        &self,
        i: usize,
        load: &Load,
        literal: NodeId,
        planned: &[(usize, usize)],
        found: &mut Found,
    ) -> Option<Literal> {
        let graph = self.graph;
        let same = |other: NodeId| {
            graph.bytes_of(other) == graph.bytes_of(literal)
                && graph.refs_of(other) == graph.refs_of(literal)
                && graph.node(other).align >= graph.node(literal).align
        };
        let there = self.nodes.iter().map(|placed| placed.node).find(|&other| {
            can_be_copied(graph, other) && same(other) && self.reaches(load, self.offsets[other])
        });
        if let Some(there) = there {
            return Some(Literal::There(there));
        }
        let align = graph.node(literal).align.max(1);
        let reaches_with = |margin: u32, index: usize| {
            let at = self.end(index).next_multiple_of(align);
            if index < i {
                // The copy moves the load.
                let moved = (graph.node(literal).size + margin).next_multiple_of(align);
                return self.reaches_if_moved(load, moved, at);
            }
            self.reaches(load, at) && self.reaches(load, (at + margin).next_multiple_of(align))
        };
        let reaches = |index: usize| reaches_with(MARGIN, index);
        let copy = planned.iter().find(|&&(index, copy)| same(found.copies[copy].0) && reaches(index));
        if let Some(&(_, copy)) = copy {
            return Some(Literal::Copy(copy));
        }
        let gaps = |index: &usize| self.is_gap(*index);
        let reachable: Vec<usize> = (i..self.nodes.len()).take_while(|&index| reaches(index)).collect();
        let free =
            |&&index: &&usize| self.runs_out(index) || planned.iter().any(|&(planned, _)| planned == index);
        let index = reachable.iter().filter(|index| gaps(index)).find(free).copied();
        let before = || (0..i).rev().take_while(|&index| reaches(index)).filter(gaps);
        let index = index.or_else(|| before().find(|index| free(&index)));
        let index = index.or_else(|| reachable.iter().rev().copied().find(gaps));
        let index = index.or_else(|| before().next());
        // A barely reachable place is better than none.
        let index = index.or_else(|| (i..self.nodes.len()).find(|at| gaps(at) && reaches_with(0, *at)))?;
        found.copies.push((literal, self.nodes[index].node));
        Some(Literal::Copy(found.copies.len() - 1))
    }

    /// Returns the last place after a load where its block can be split, in bytes from the start of the block, such
    /// that the load reaches a copy of a literal there.
    fn place_to_split(&self, i: usize, load: &Load, literal: NodeId) -> Option<u32> {
        let graph = self.graph;
        let node = self.nodes[i].node;
        graph.block(node).filter(|block| !block.is_fixed())?;
        let align = graph.node(literal).align.max(1);
        let isa = graph.isa();
        let jump = u32::from(isa.longest_form(isa.jump(graph.encoding(node))).len);
        let instructions: Vec<_> = graph.decode(node).flatten().collect();
        let places = instructions.iter().skip(1).filter(|inst| inst.at.condition.is_none());
        let mut places = places.map(|inst| inst.at.address as u32).filter(|&at| at > load.offset);
        let reaches = |&at: &u32| {
            let copy = self.nodes[i].offset + at + jump + MARGIN;
            self.reaches(load, copy.next_multiple_of(align))
        };
        let first = places.next().filter(reaches)?;
        Some(places.take_while(reaches).last().unwrap_or(first))
    }

    /// Returns the end of a node, including its branches.
    fn end(&self, index: usize) -> u32 {
        let placed = &self.nodes[index];
        let branches: u32 = placed.branches.iter().map(|branch| u32::from(branch.form.len)).sum();
        placed.offset + self.graph.node(placed.node).size + branches
    }

    /// Whether something may be inserted after a node.
    fn is_gap(&self, index: usize) -> bool {
        let node = self.nodes[index].node;
        self.nodes.get(index + 1).is_none_or(|behind| self.graph.node(behind.node).glued_to != Some(node))
    }

    /// Whether execution never continues directly after a node.
    fn runs_out(&self, index: usize) -> bool {
        let Some(block) = self.graph.block(self.nodes[index].node) else { return true };
        let next = block.end.next();
        // A node with a jump to its successor counts as well.
        next.is_none() || self.nodes.get(index + 1).is_some_and(|behind| next != Some(behind.node))
    }
}

/// An instruction that reads a literal.
struct Load {
    node: NodeId,
    /// Its offset in bytes in the node, and its length.
    offset: u32,
    width: u8,
    /// Number of bytes from the start of the literal to the bytes that it reads.
    inside: i64,
}
