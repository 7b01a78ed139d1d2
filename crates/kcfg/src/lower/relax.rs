//! Places the nodes of one section: chooses the branches that the layout needs, and their shortest encodings.

use goblin::elf::sym::{STB_WEAK, STT_FUNC, STT_GNU_IFUNC};

use crate::graph::{Dest, Graph, NodeKind, SymbolPlace, Target, Terminator};
use crate::index::{NodeId, NodeMap, SectionId};
use kisa::{Branch, BranchForm, Encoding, Rewritable};

/// Whether branches to global symbols in the same section are encoded like any other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relax {
    /// No: they have a relocation and their longest form, as emitted by the assembler.
    AsAssembled,
    /// Yes: in their shortest form, without a relocation. Only correct for a program that is linked as a whole.
    Shortest,
}

/// Live nodes with their places: an output section.
pub(super) struct Placed {
    /// The section of the nodes.
    pub section: SectionId,
    pub nodes: Vec<PlacedNode>,
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// For each node of an index of unwind tables, the place of its code: a section, and the offset in bytes there.
    pub about: Vec<(SectionId, u32)>,
}

/// A node with its place in the output section.
pub(super) struct PlacedNode {
    pub node: NodeId,
    /// Offset in bytes.
    pub offset: u32,
    /// The branches that end it, in order.
    pub branches: Vec<PlacedBranch>,
}

/// A branch at the end of a block.
pub(super) struct PlacedBranch {
    pub branch: Branch,
    pub dest: Dest,
    pub form: BranchForm,
    /// With a relocation.
    pub symbolic: bool,
}

/// A branch whose distance exceeds its longest form.
#[derive(Debug)]
pub(super) struct TooFar {
    pub node: NodeId,
    pub displacement: i64,
}

/// Places the live nodes of a section in their order, as one output section, and adds it to `out`. `offsets` receives
/// the offset of each node.
pub(super) fn place(
    isa: &dyn Rewritable,
    graph: &Graph,
    section: SectionId,
    live: &[NodeId],
    relax: Relax,
    offsets: &mut NodeMap<u32>,
    out: &mut Vec<Placed>,
) -> Result<(), TooFar> {
    let mut nodes: Vec<PlacedNode> = Vec::with_capacity(live.len());
    let maker = BranchMaker { isa, graph, relax };
    for (i, &node) in live.iter().enumerate() {
        let branches = maker.branches(node, live.get(i + 1).copied());
        nodes.push(PlacedNode { node, offset: 0, branches });
    }
    let mut size = assign_offsets(graph, &mut nodes, relax, offsets);
    while grow(isa, graph, &mut nodes, offsets)? {
        size = assign_offsets(graph, &mut nodes, relax, offsets);
    }
    if !nodes.is_empty() {
        let align = match relax {
            Relax::AsAssembled => graph.sections[section].align.max(1),
            // The node that needed a larger alignment may have been removed.
            Relax::Shortest => widest(graph, live),
        };
        out.push(Placed { section, nodes, size, align, about: Vec::new() });
    }
    Ok(())
}

/// Places every node of a section of plain data, with the nodes glued to it, as a separate output section.
pub(super) fn place_apart(
    graph: &Graph,
    section: SectionId,
    live: &[NodeId],
    offsets: &mut NodeMap<u32>,
    out: &mut Vec<Placed>,
) {
    for run in live.chunk_by(|&before, &after| graph.node(after).glued_to == Some(before)) {
        let place = |&node: &NodeId| PlacedNode { node, offset: 0, branches: Vec::new() };
        let mut nodes: Vec<PlacedNode> = run.iter().map(place).collect();
        let size = assign_offsets(graph, &mut nodes, Relax::Shortest, offsets);
        out.push(Placed { section, nodes, size, align: widest(graph, run), about: Vec::new() });
    }
}

/// Returns the alignment in bytes that nodes need: the largest of their own, and that of instructions.
pub(super) fn widest(graph: &Graph, nodes: &[NodeId]) -> u32 {
    nodes.iter().map(|&node| alignment(graph, node)).max().unwrap_or(1)
}

/// Returns the alignment in bytes that a node needs: its own, and that of instructions.
fn alignment(graph: &Graph, node: NodeId) -> u32 {
    let unit = graph.block(node).map_or(1, |_| graph.isa().unit(graph.encoding(node)));
    graph.node(node).align.max(unit as u32)
}

/// Assigns an offset to each node; returns the size of the section. As assembled, nodes keep the padding of the input
/// between them; else only the padding for their alignment, and room that the program may write over.
fn assign_offsets(graph: &Graph, nodes: &mut [PlacedNode], relax: Relax, offsets: &mut NodeMap<u32>) -> u32 {
    let mut at = 0u32;
    for i in 0..nodes.len() {
        let node = graph.node(nodes[i].node);
        if relax == Relax::AsAssembled {
            at += node.padding.len() as u32;
        }
        if i == 0 || !is_glued(graph, &nodes[i - 1], &nodes[i]) {
            if relax == Relax::Shortest {
                at += graph.room_before(nodes[i].node).len() as u32;
            }
            // Nodes that are glued to it move with it, by a multiple of the largest alignment.
            let behind = nodes[i..].windows(2).take_while(|pair| is_glued(graph, &pair[0], &pair[1]));
            let align = behind
                .map(|pair| alignment(graph, pair[1].node))
                .fold(alignment(graph, nodes[i].node), u32::max);
            let residue = node.origin().map_or(0, |origin| origin.offset % align);
            at = (at + align - 1 - residue) / align * align + residue;
        }
        nodes[i].offset = at;
        offsets[nodes[i].node] = at;
        at += node.size + nodes[i].branches.iter().map(|branch| u32::from(branch.form.len)).sum::<u32>();
    }
    at
}

/// Whether a node is glued to another.
fn is_glued(graph: &Graph, before: &PlacedNode, after: &PlacedNode) -> bool {
    graph.node(after.node).glued_to == Some(before.node)
}

/// Lengthens the branches that do not reach; returns whether there were any. Branches only grow, so repeating this
/// terminates (the algorithm of GNU as, with the same result).
fn grow(
    isa: &dyn Rewritable,
    graph: &Graph,
    nodes: &mut [PlacedNode],
    offsets: &NodeMap<u32>,
) -> Result<bool, TooFar> {
    let mut grown = false;
    for placed in nodes {
        let mut at = placed.offset + graph.node(placed.node).size;
        for branch in &mut placed.branches {
            at += u32::from(branch.form.len);
            if branch.symbolic {
                continue;
            }
            let displacement = destination(graph, &branch.dest, offsets) - i64::from(at);
            if branch.form.reaches(displacement) {
                continue;
            }
            let longer = isa.branch_forms(branch.branch).iter().find(|form| form.len > branch.form.len);
            branch.form = *longer.ok_or(TooFar { node: placed.node, displacement })?;
            grown = true;
        }
    }
    Ok(grown)
}

/// Returns the offset in the output section of a destination in the same section.
pub(super) fn destination(graph: &Graph, dest: &Dest, offsets: &NodeMap<u32>) -> i64 {
    let (node, inside) = graph.resolve(dest.target).expect("a local destination");
    i64::from(offsets[node]) + i64::from(inside) + dest.offset
}

/// Chooses the final branches of blocks.
struct BranchMaker<'a> {
    isa: &'a dyn Rewritable,
    graph: &'a Graph,
    relax: Relax,
}

impl BranchMaker<'_> {
    /// Returns the final branches of a block, given the next node.
    fn branches(&self, node: NodeId, behind: Option<NodeId>) -> Vec<PlacedBranch> {
        let graph = self.graph;
        let NodeKind::Block(block) = &graph.node(node).kind else { return Vec::new() };
        let jump = self.isa.jump(graph.encoding(node));
        let run_on = |next: NodeId| {
            let dest = Dest { target: Target::Node(next), offset: 0 };
            (Some(next) != behind && graph.node(next).live).then(|| self.branch(node, jump, dest))
        };
        match &block.end {
            Terminator::Jump(dest) => {
                let begins = |&(_, inside): &(NodeId, u32)| inside == 0 && dest.offset == 0;
                let to = graph.resolve(dest.target).filter(begins).map(|(to, _)| to);
                // A jump to the next instruction that was already in the input has an effect on the processor (Chanet
                // et al. 2007, section 5.4); other such jumps are redundant.
                let redundant = to.is_some_and(|to| {
                    Some(to) == behind
                        && self.relax == Relax::Shortest
                        && self.is_local(node, dest)
                        && !graph.are_neighbours_in_input(node, to)
                        && !self.must_end(node, to)
                });
                if redundant { Vec::new() } else { vec![self.branch(node, jump, *dest)] }
            }
            Terminator::Branch { branch, taken, next } => {
                let mut branches = vec![self.branch(node, *branch, *taken)];
                branches.extend(run_on(*next));
                branches
            }
            end => end.next().and_then(run_on).into_iter().collect(),
        }
    }

    /// Whether a block must not run on into another: objtool refuses functions that run on into the next one.
    fn must_end(&self, node: NodeId, to: NodeId) -> bool {
        self.graph.world.is_checked_by_objtool() && self.graph.function_of(node) != self.graph.function_of(to)
    }

    /// Returns a branch in its initial form. As assembled, that is its form in the input: GNU as never shortens a
    /// branch again, even if the growth of other branches has reduced the padding in between.
    fn branch(&self, from: NodeId, branch: Branch, dest: Dest) -> PlacedBranch {
        let symbolic = !self.is_local(from, &dest);
        let forms = self.isa.branch_forms(branch);
        let len = self.graph.branch_len(from);
        let assembled =
            forms.iter().find(|form| self.relax == Relax::AsAssembled && u32::from(form.len) == len);
        let form = match (assembled, symbolic) {
            (Some(form), true) if form.reaches_everywhere() => *form,
            (_, true) => self.isa.longest_form(branch),
            (assembled, false) => *assembled.unwrap_or(&forms[0]),
        };
        PlacedBranch { branch, dest, form, symbolic }
    }

    /// Whether the destination is in the same section and the linker cannot change it.
    fn is_local(&self, from: NodeId, dest: &Dest) -> bool {
        let Some(to) = self.graph.resolve_node(dest.target) else { return false };
        if self.graph.node(from).section != self.graph.node(to).section {
            return false;
        }
        match dest.target {
            Target::Node(_) => true,
            // Another object of the link may still override a weak definition; the address of an indirect function is
            // the result of calling it.
            Target::Symbol(symbol) => {
                let symbol = &self.graph.symbols[symbol];
                // A jump cannot change the encoding; the linker handles that.
                let thumb = self.graph.encoding(from) == Encoding::Thumb;
                self.relax == Relax::Shortest
                    && (symbol.thumb == thumb || symbol.kind != STT_FUNC)
                    && symbol.binding != STB_WEAK
                    && symbol.kind != STT_GNU_IFUNC
                    && matches!(symbol.place, SymbolPlace::Node(..))
            }
        }
    }
}
