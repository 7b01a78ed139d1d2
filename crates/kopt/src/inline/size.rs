//! The size of a sequence of blocks, by the lengths of the encodings that lowering would choose.

use kcfg::graph::{Dest, Graph, Target, Terminator};
use kcfg::index::NodeId;
use kisa::{Branch, BranchForm};
use rustc_hash::FxHashMap;

/// A block in a sequence.
#[derive(Clone)]
pub struct Piece {
    /// The block.
    pub node: NodeId,
    /// Size in bytes, without the branch that ends it.
    pub size: u32,
    /// Its end.
    pub end: Terminator,
}

impl Piece {
    /// Returns a block as it is.
    pub fn new(graph: &Graph, node: NodeId) -> Option<Piece> {
        let end = graph.block(node)?.end.clone();
        Some(Piece { node, size: graph.node(node).size, end })
    }
}

/// A branch of a sequence.
struct Placed {
    /// Offset in bytes of its end.
    end: i64,
    branch: Branch,
    form: BranchForm,
    /// The piece that it leads to; `None` for code outside of the sequence.
    to: Option<usize>,
}

/// Returns the size in bytes of a sequence of blocks that is placed without padding. Branches to other code have their
/// longest form.
pub fn size(graph: &Graph, pieces: &[Piece]) -> i64 {
    let isa = graph.isa();
    let numbers: FxHashMap<NodeId, usize> =
        pieces.iter().enumerate().map(|(i, piece)| (piece.node, i)).collect();
    let mut branches: Vec<Vec<Placed>> = Vec::with_capacity(pieces.len());
    for (i, piece) in pieces.iter().enumerate() {
        let behind = pieces.get(i + 1).map(|piece| piece.node);
        let place = |(branch, to): (Branch, Option<NodeId>)| {
            let to = to.and_then(|to| numbers.get(&to).copied());
            let form = if to.is_some() { isa.branch_forms(branch)[0] } else { isa.longest_form(branch) };
            Placed { end: 0, branch, form, to }
        };
        branches.push(ends(graph, piece, behind).into_iter().map(place).collect());
    }
    loop {
        let (mut at, mut starts) = (0, Vec::with_capacity(pieces.len()));
        for (piece, branches) in pieces.iter().zip(&mut branches) {
            starts.push(at);
            at += i64::from(piece.size);
            for branch in branches {
                at += i64::from(branch.form.len);
                branch.end = at;
            }
        }
        let mut grown = false;
        for placed in branches.iter_mut().flatten() {
            let reaches = placed.to.is_none_or(|to| placed.form.reaches(starts[to] - placed.end));
            let longer = isa.branch_forms(placed.branch).iter().find(|form| form.len > placed.form.len);
            if let Some(longer) = longer.filter(|_| !reaches) {
                placed.form = *longer;
                grown = true;
            }
        }
        if !grown {
            return at;
        }
    }
}

/// The branches that end a block, given the next one, with their targets.
fn ends(graph: &Graph, piece: &Piece, behind: Option<NodeId>) -> Vec<(Branch, Option<NodeId>)> {
    let jump = graph.isa().jump(graph.encoding(piece.node));
    let target = |dest: &Dest| graph.resolve_node(dest.target).filter(|_| dest.offset == 0);
    let run_on = |next: NodeId| (Some(next) != behind).then_some((jump, Some(next)));
    match &piece.end {
        Terminator::Jump(dest) => match target(dest) {
            to @ Some(next) if matches!(dest.target, Target::Node(_)) && Some(next) == behind => {
                let is_kept = graph.are_neighbours_in_input(piece.node, next);
                is_kept.then_some((jump, to)).into_iter().collect()
            }
            to => vec![(jump, to)],
        },
        Terminator::Branch { branch, taken, next } => {
            std::iter::once((*branch, target(taken))).chain(run_on(*next)).collect()
        }
        end => end.next().and_then(run_on).into_iter().collect(),
    }
}
