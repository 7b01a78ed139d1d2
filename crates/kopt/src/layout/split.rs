//! Splitting hot functions into hot and cold blocks.
//!
//! A branch to a block that is out of line needs its long form. A run of cold blocks is kept in line if it is no larger
//! than the growth of these branches.

use std::ops::Range;

use kcfg::graph::{Dest, Graph, Life, NodeKind, Ref, Terminator};
use kcfg::index::{FunctionId, NodeId, NodeSet};
use kcfg::special::TableKind;
use kisa::Rewritable;
use kplan::Granularity;

use super::chain::chain;
use super::hot::Hot;

/// The reason why code that directly follows other code is not split.
const GLUED: &str = "glued to neighbouring code";

/// Splits functions.
pub struct Splitter {
    granularity: Granularity,
    isa: &'static dyn Rewritable,
    /// Sites of static keys whose `nop` or `jmp` has the short form, which reaches near targets only.
    short_keys: NodeSet,
}

/// A hot function in two parts.
pub struct Split {
    pub hot: Vec<NodeId>,
    pub cold: Vec<NodeId>,
    /// The function and size of `cold`, if it is not empty.
    pub part: Option<ColdPart>,
    /// Size in bytes of cold blocks that are kept in line, in `hot`.
    pub inline_bytes: u64,
}

/// The part of a hot function that is moved out of line.
pub struct ColdPart {
    /// The function.
    pub function: FunctionId,
    /// Its first node.
    pub first: NodeId,
    /// Size in bytes in the input.
    pub bytes: u64,
}

impl Splitter {
    /// Finds the static keys of the short form.
    pub fn new(graph: &Graph, granularity: Granularity) -> Splitter {
        let mut short_keys = NodeSet::with_capacity(graph.nodes().len());
        for id in graph.node_ids() {
            let is_key = |chunk: &kcfg::graph::Chunk| chunk.life == Life::Site(TableKind::StaticKey);
            if !graph.chunk(id).is_some_and(is_key) {
                continue;
            }
            let site = graph.site(id).and_then(|site| graph.resolve_node(site.target));
            let isa = graph.isa();
            let longest = |site| isa.longest_form(isa.jump(graph.encoding(site))).len;
            if let Some(site) = site.filter(|&site| graph.node(site).size < longest(site).into()) {
                let is_fixed = graph.block(site).is_some_and(|block| block.is_fixed());
                short_keys.set(site, is_fixed);
            }
        }
        Splitter { granularity, isa: graph.isa(), short_keys }
    }

    /// Splits a function, given by its nodes.
    ///
    /// # Errors
    /// The reason if the function has cold blocks and cannot be split; `None` if there is nothing to split.
    pub fn split(
        &self,
        graph: &Graph,
        nodes: &[NodeId],
        hot: &Hot<'_>,
    ) -> Result<Split, Option<&'static str>> {
        // Literals move with the blocks that read them.
        let (literals, blocks): (Vec<NodeId>, Vec<NodeId>) =
            nodes.iter().partition(|&&node| is_literal(graph, node));
        if self.granularity == Granularity::Function || blocks.iter().all(|&node| hot.rank(node).is_some()) {
            return Err(None);
        }
        let function = self.check(graph, nodes).map_err(Some)?;
        let mut stays: Vec<bool> = blocks.iter().map(|&node| hot.rank(node).is_some()).collect();
        stays[0] = true;
        let mut inline_bytes = 0;
        for run in cold_runs(&stays) {
            let bytes: u64 = blocks[run.clone()].iter().map(|&node| u64::from(graph.input_size(node))).sum();
            if bytes <= cost(graph, &blocks, &stays, &run) {
                inline_bytes += bytes;
                stays[run].fill(true);
            }
        }
        let part = |stay: bool| {
            blocks
                .iter()
                .zip(&stays)
                .filter(move |&(_, &stays)| stays == stay)
                .map(|(&node, _)| node)
                .collect()
        };
        let (hot, mut cold): (Vec<_>, Vec<_>) = (part(true), part(false));
        let read = |node: NodeId| hot.iter().any(|&block| refers_to(graph, block, node));
        let (stay, leave): (Vec<NodeId>, Vec<NodeId>) = literals.into_iter().partition(|&node| read(node));
        let mut hot = chain(graph, &hot);
        match cold.is_empty() {
            true => hot.extend(nodes.iter().filter(|&&node| is_literal(graph, node))),
            false => {
                hot.extend(stay);
                cold.extend(leave);
            }
        }
        let bytes = cold.iter().map(|&node: &NodeId| u64::from(graph.input_size(node))).sum();
        let part = cold.first().map(|&first| ColdPart { function, first, bytes });
        Ok(Split { hot, cold, part, inline_bytes })
    }

    /// Returns the function of these nodes, if its blocks can be moved apart.
    ///
    /// # Errors
    /// The reason why they cannot.
    pub fn check(&self, graph: &Graph, nodes: &[NodeId]) -> Result<FunctionId, &'static str> {
        let blocks: Vec<NodeId> = nodes.iter().copied().filter(|&node| !is_literal(graph, node)).collect();
        let function = self.check_blocks(graph, &blocks)?;
        match blocks.iter().any(|&node| graph.node(node).glued_to.is_some()) {
            true => Err(GLUED),
            false => Ok(function),
        }
    }

    /// Like [`Splitter::check`], for blocks of a function that may be glued to others.
    ///
    /// # Errors
    /// The reason why they cannot.
    pub fn check_blocks(&self, graph: &Graph, nodes: &[NodeId]) -> Result<FunctionId, &'static str> {
        let Some(NodeKind::Block(first)) = nodes.first().map(|&node| &graph.node(node).kind) else {
            return Err("hand-written or opaque: cannot be split");
        };
        for &node in nodes {
            let block = graph.block(node).filter(|block| block.function == first.function);
            let Some(block) = block else { return Err(GLUED) };
            if let Terminator::Branch { branch, .. } = block.end
                && !self.isa.reaches_everywhere(branch)
            {
                return Err("has a branch with no long form");
            }
            if graph.knows_own_address(node) {
                return Err("computes with its own address");
            }
            if self.short_keys.contains(node) {
                return Err("has a static key of the short form");
            }
            if graph.refs_of(node).iter().any(Ref::is_short) {
                return Err("has a patch site with a short branch");
            }
        }
        Ok(first.function)
    }
}

/// Whether a node is data that instructions of its function read by its distance, and that need not follow one of them.
fn is_literal(graph: &Graph, node: NodeId) -> bool {
    graph.is_among_code(node) && graph.node(node).glued_to.is_none()
}

/// Whether code refers to a node.
pub(crate) fn refers_to(graph: &Graph, from: NodeId, to: NodeId) -> bool {
    graph.node(from).live
        && graph.refs_of(from).iter().any(|reference| graph.resolve_node(reference.target) == Some(to))
}

/// The maximal runs of blocks that are moved out of line.
pub(crate) fn cold_runs(stays: &[bool]) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut at = 0;
    for run in stays.chunk_by(|one, other| one == other) {
        if !run[0] {
            runs.push(at..at + run.len());
        }
        at += run.len();
    }
    runs
}

/// Bytes by which the blocks in line would grow if a run of blocks were moved out of line.
pub(crate) fn cost(graph: &Graph, nodes: &[NodeId], stays: &[bool], run: &Range<usize>) -> u64 {
    let stay = nodes.iter().zip(stays).filter(|&(_, &stays)| stays).map(|(&node, _)| node);
    stay.map(|node| growth(graph, node, |to| nodes[run.clone()].contains(&to))).sum()
}

/// The growth of a block in bytes if the successors that satisfy `leaves` are moved away from it.
pub(crate) fn growth(graph: &Graph, node: NodeId, leaves: impl Fn(NodeId) -> bool) -> u64 {
    let isa = graph.isa();
    let goes = |dest: &Dest| graph.resolve_node(dest.target).is_some_and(&leaves);
    let jump = isa.jump(graph.encoding(node));
    let longer = |branch| {
        let short = isa.branch_forms(branch)[0].len;
        let is_short = graph.branch_len(node) == u32::from(short);
        if is_short { u64::from(isa.longest_form(branch).len - short) } else { 0 }
    };
    let far_jump = u64::from(isa.longest_form(jump).len);
    match &graph.block(node).expect("a function of blocks").end {
        Terminator::Jump(dest) if goes(dest) => longer(jump),
        Terminator::Branch { branch, taken, next } if goes(taken) || leaves(*next) => longer(*branch),
        end if end.next().is_some_and(leaves) => far_jump,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::cold_runs;

    #[test]
    fn runs() {
        assert_eq!(cold_runs(&[true, false, false, true, false]), [1..3, 4..5]);
        assert!(cold_runs(&[true]).is_empty());
    }
}
