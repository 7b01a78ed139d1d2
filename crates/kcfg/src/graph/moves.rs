//! The record of how the edits of a pass move places in nodes.

use rustc_hash::FxHashMap;

use crate::index::NodeId;

/// One edit of a node, as a move of places.
pub(super) enum Move {
    /// The bytes from the first offset of a pair, up to the first offset of the next, are now at the second. Offsets in
    /// bytes.
    Within(Vec<(u32, u32)>),
    /// The bytes from this offset on are now in another node.
    Split(u32, NodeId),
    /// Uses of the first byte now refer to this other node, except for uses by the other node itself.
    Start(NodeId),
    /// Uses of any place now refer to the same place in this other node, except for uses of the instruction there.
    Merged(NodeId),
}

/// A use of a place: the user and the kind of use.
#[derive(Clone, Copy, Default)]
pub(super) struct Use {
    pub from: Option<NodeId>,
    /// It refers to the instruction there, even if new code has been inserted before it.
    pub instruction: bool,
}

/// The edits of all nodes.
#[derive(Default)]
pub(super) struct Moves {
    /// For each node, the edits that move its places, each with its number.
    by_node: FxHashMap<NodeId, Vec<(u32, Move)>>,
    /// The number of edits.
    edits: u32,
    /// For the second part of each split block, the first part.
    split_off: FxHashMap<NodeId, NodeId>,
}

impl Moves {
    /// Whether there are no edits.
    pub fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }

    /// Appends an edit of a node.
    pub fn note(&mut self, node: NodeId, change: Move) {
        if let Move::Split(_, rest) = change {
            self.split_off.insert(rest, node);
        }
        self.edits += 1;
        self.by_node.entry(node).or_default().push((self.edits, change));
    }

    /// Returns the new position of a place within a node.
    pub fn place_of(&self, node: NodeId, offset: i64, by: Use) -> (NodeId, i64) {
        let (mut node, mut offset) = (node, offset);
        let mut moves = self.after(node, 0);
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
                Move::Merged(into) if !by.instruction => *into,
                Move::Split(..) | Move::Start(_) | Move::Merged(_) => continue,
            };
            node = to;
            moves = self.after(node, *number);
        }
        (node, offset)
    }

    /// Returns the edits of a node after the edit with this number.
    fn after(&self, node: NodeId, edit: u32) -> &[(u32, Move)] {
        let moves = self.by_node.get(&node).map_or(&[][..], Vec::as_slice);
        &moves[moves.partition_point(|&(number, _)| number <= edit)..]
    }

    /// Whether a node is the other one, or was split off it.
    fn is_part(&self, node: Option<NodeId>, of: NodeId) -> bool {
        std::iter::successors(node, |part| self.split_off.get(part).copied()).any(|part| part == of)
    }

    /// Returns the last part of a node that may have been split.
    pub fn last_part(&self, node: NodeId) -> NodeId {
        // The second part of a split has the end of the node, so the first split of a node leads to it.
        let rest = |&part: &NodeId| {
            self.by_node.get(&part)?.iter().find_map(|(_, change)| match change {
                Move::Split(_, rest) => Some(*rest),
                _ => None,
            })
        };
        std::iter::successors(Some(node), rest).last().unwrap_or(node)
    }
}
