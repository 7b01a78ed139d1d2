//! How places in nodes move by the edits of a pass.

use rustc_hash::FxHashMap;

use crate::index::NodeId;

/// How places in a node move.
pub(super) enum Move {
    /// What began at the first offset in bytes begins at the second, with all up to the next pair.
    Within(Vec<(u32, u32)>),
    /// What begins at this offset in bytes, or behind it, is in another node now.
    Split(u32, NodeId),
    /// Who means the first byte means another node now, but for that node itself.
    Start(NodeId),
}

/// Who names a place.
#[derive(Clone, Copy, Default)]
pub(super) struct Use {
    pub from: Option<NodeId>,
    /// It means the instruction there, and not whatever control that comes there has to go through first.
    pub instruction: bool,
}

/// How places in all nodes move.
#[derive(Default)]
pub(super) struct Moves {
    /// For each node, the edits that move its places, each with its number.
    by_node: FxHashMap<NodeId, Vec<(u32, Move)>>,
    /// How many edits there are.
    edits: u32,
    /// For each second part of a block that was split, that block.
    split_off: FxHashMap<NodeId, NodeId>,
}

impl Moves {
    /// Whether nothing moves.
    pub fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }

    /// Notes an edit of a node, behind all others.
    pub fn note(&mut self, node: NodeId, change: Move) {
        if let Move::Split(_, rest) = change {
            self.split_off.insert(rest, node);
        }
        self.edits += 1;
        self.by_node.entry(node).or_default().push((self.edits, change));
    }

    /// Where a place within a node is now.
    pub fn place_of(&self, node: NodeId, offset: i64, by: Use) -> (NodeId, i64) {
        let (mut node, mut offset) = (node, offset);
        let mut moves = self.behind(node, 0);
        while let Some(((number, first), rest)) = moves.split_first() {
            moves = rest;
            let to = match first {
                Move::Within(pairs) => {
                    let before = pairs.partition_point(|&(old, _)| i64::from(old) <= offset);
                    if (offset > 0 || by.instruction) && before > 0 {
                        let (old, new) = pairs[before - 1];
                        offset += i64::from(new) - i64::from(old);
                    }
                    continue;
                }
                Move::Split(at, rest) if offset >= i64::from(*at) => {
                    offset -= i64::from(*at);
                    *rest
                }
                Move::Start(to) if offset == 0 && !by.instruction && !self.is_part(by.from, *to) => *to,
                Move::Split(..) | Move::Start(_) => continue,
            };
            node = to;
            moves = self.behind(node, *number);
        }
        (node, offset)
    }

    /// How places in a node move by what comes behind an edit, given by its number.
    fn behind(&self, node: NodeId, edit: u32) -> &[(u32, Move)] {
        let moves = self.by_node.get(&node).map_or(&[][..], Vec::as_slice);
        &moves[moves.partition_point(|&(number, _)| number <= edit)..]
    }

    /// Whether a node is the other one, or was split off it.
    fn is_part(&self, node: Option<NodeId>, of: NodeId) -> bool {
        std::iter::successors(node, |part| self.split_off.get(part).copied()).any(|part| part == of)
    }

    /// The part of a node that has its end now.
    pub fn last_part(&self, node: NodeId) -> NodeId {
        // Each split leaves the end to its second part, so that the first split of a node has it.
        let rest = |&part: &NodeId| {
            self.by_node.get(&part)?.iter().find_map(|(_, change)| match change {
                Move::Split(_, rest) => Some(*rest),
                _ => None,
            })
        };
        std::iter::successors(Some(node), rest).last().unwrap_or(node)
    }
}
