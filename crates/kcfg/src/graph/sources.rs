//! The input of a node's code, as far as the node's own origin does not give it.

use rustc_hash::FxHashMap;
use typed_index_collections::TiVec;

use super::{Graph, Origin, SymbolPlace};
use crate::index::{FunctionId, InputId, NodeId, SymbolId};

/// Input code that a node represents because a pass merged the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergedCode {
    /// The function that had the code.
    pub function: FunctionId,
    /// The place of the code in the input.
    pub origin: Origin,
}

/// The input of symbols, and of merged and edited blocks.
#[derive(Clone, Default)]
pub struct Sources {
    /// The place of each symbol of the input: a section and an offset in bytes.
    symbols: TiVec<SymbolId, Option<(InputId, u32)>>,
    /// The code that was merged into a node, by node.
    merged: FxHashMap<NodeId, Vec<MergedCode>>,
    /// The instructions of edited blocks, by block: pairs of an offset in the block and one in the input section, by
    /// ascending offset. An instruction between two pairs is as far from the first as in the input.
    moved: FxHashMap<NodeId, Vec<(u32, u32)>>,
    /// The functions of the input that had the blocks which are now part of other functions, by block.
    homes: FxHashMap<NodeId, FunctionId>,
}

impl Sources {
    /// Returns the place of a symbol in the input, as an offset in bytes in a section; `None` if it had none there.
    pub fn place_of(&self, symbol: SymbolId) -> Option<(InputId, u32)> {
        self.symbols.get(symbol).copied().flatten()
    }

    /// Returns the code that was merged into a node.
    pub fn merged(&self, node: NodeId) -> &[MergedCode] {
        self.merged.get(&node).map_or(&[], Vec::as_slice)
    }

    /// Returns the instructions of a block that are not where the block's origin puts them: pairs of an offset in the
    /// block and one in the input section, in bytes, by ascending offset.
    pub fn moved(&self, block: NodeId) -> &[(u32, u32)] {
        self.moved.get(&block).map_or(&[], Vec::as_slice)
    }

    /// Returns the function that had a block in the input, if the block is now part of another one.
    pub(super) fn home(&self, block: NodeId) -> Option<FunctionId> {
        self.homes.get(&block).copied()
    }

    /// Records that a node takes the place of a block of the function `home`, and so becomes part of another function.
    pub(super) fn hand_over(&mut self, block: NodeId, home: FunctionId, to: NodeId) {
        let merged = self.merged.remove(&block);
        self.merged.extend(merged.map(|merged| (to, merged)));
        let moved = self.moved.remove(&block);
        self.moved.extend(moved.map(|moved| (to, moved)));
        self.homes.insert(to, home);
    }

    /// Records that a node represents another one, and everything that the other one represented. `own` is the code of
    /// the other one itself, if it is from the input.
    pub(super) fn merge(&mut self, of: NodeId, own: Option<MergedCode>, into: NodeId) {
        let earlier = self.merged.get(&of).cloned().unwrap_or_default();
        self.merged.entry(into).or_default().extend(own.into_iter().chain(earlier));
    }

    /// Records that the instructions of a block moved, as for [`super::Editor::edit_block`].
    pub(super) fn edit(&mut self, block: NodeId, origin: Option<&Origin>, moved: &[(u32, u32)]) {
        let Some(origin) = origin else { return };
        let before = self.moved.remove(&block).unwrap_or_else(|| vec![(0, origin.offset)]);
        let mut starts: Vec<u32> = before.iter().chain(moved).map(|&(old, _)| old).collect();
        starts.push(0);
        starts.sort_unstable();
        starts.dedup();
        let mut after: Vec<(u32, u32)> = Vec::with_capacity(starts.len());
        for old in starts {
            let input = at(&before, old);
            let new = if moved.is_empty() { old } else { at_or_same(moved, old) };
            // Earlier instructions that are now at or after the new offset have no bytes left.
            after.retain(|&(offset, _)| offset < new);
            after.push((new, input));
        }
        after.dedup_by(|next, last| next.0 - last.0 == next.1.wrapping_sub(last.1));
        if after != [(0, origin.offset)] {
            self.moved.insert(block, after);
        }
    }

    /// Records that the second part of a node is a separate node.
    pub(super) fn split(&mut self, node: NodeId, at_offset: u32, rest: NodeId) {
        let home = self.home(node);
        self.homes.extend(home.map(|home| (rest, home)));
        if let Some(merged) = self.merged.get_mut(&node) {
            let second = merged.iter_mut().filter(|code| at_offset < code.origin.size).map(|code| {
                let first = Origin { size: at_offset, branch_len: 0, ..code.origin };
                let origin = Origin {
                    offset: code.origin.offset + at_offset,
                    size: code.origin.size - at_offset,
                    ..code.origin
                };
                code.origin = first;
                MergedCode { origin, ..*code }
            });
            let second: Vec<MergedCode> = second.collect();
            self.merged.insert(rest, second);
        }
        if let Some(mut moved) = self.moved.remove(&node) {
            let input = at(&moved, at_offset);
            let count = moved.partition_point(|&(offset, _)| offset < at_offset);
            let later = moved.split_off(count).into_iter().filter(|&(offset, _)| offset > at_offset);
            let second = later.map(|(offset, input)| (offset - at_offset, input));
            let second: Vec<(u32, u32)> = std::iter::once((0, input)).chain(second).collect();
            self.moved.insert(rest, second);
            // The first part may be code that a pass inserted.
            if !moved.is_empty() {
                self.moved.insert(node, moved);
            }
        }
    }
}

impl Graph {
    /// Records the current places of all symbols as their places in the input.
    pub(crate) fn record_symbol_places(&mut self) {
        let place = |place| match place {
            SymbolPlace::Node(node, offset) => {
                self.node(node).origin().map(|origin| (origin.section, origin.offset + offset))
            }
            _ => None,
        };
        self.sources.symbols = self.symbols.iter().map(|symbol| place(symbol.place)).collect();
    }
}

/// Returns the input offset of the instruction at an offset.
fn at(pairs: &[(u32, u32)], offset: u32) -> u32 {
    let before = pairs.partition_point(|&(start, _)| start <= offset);
    let (start, input) = pairs[before.saturating_sub(1)];
    input.wrapping_add(offset).wrapping_sub(start)
}

/// Returns the same; offsets before the first pair do not move.
fn at_or_same(pairs: &[(u32, u32)], offset: u32) -> u32 {
    if pairs[0].0 <= offset { at(pairs, offset) } else { offset }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::InputId;

    fn origin(offset: u32, size: u32) -> Origin {
        Origin { section: InputId::from(0), offset, size, branch_len: 0 }
    }

    #[test]
    fn edits_of_edits_lead_to_the_input() {
        let mut sources = Sources::default();
        let block = NodeId::from(1);
        // Instructions of 2, 3, 2 and 4 bytes; the second one is removed, the third one becomes shorter.
        sources.edit(block, Some(&origin(100, 11)), &[(0, 0), (2, 2), (5, 2), (7, 3), (11, 7)]);
        assert_eq!(sources.moved(block), [(0, 100), (2, 105), (3, 107)]);
        // Five bytes are inserted at the start.
        sources.edit(block, Some(&origin(100, 11)), &[(0, 5)]);
        assert_eq!(sources.moved(block), [(5, 100), (7, 105), (8, 107)]);
        let rest = NodeId::from(2);
        sources.split(block, 7, rest);
        assert_eq!(sources.moved(block), [(5, 100)]);
        assert_eq!(sources.moved(rest), [(0, 105), (1, 107)]);
    }

    #[test]
    fn edits_without_a_move_are_not_kept() {
        let mut sources = Sources::default();
        sources.edit(NodeId::from(1), Some(&origin(8, 4)), &[(0, 0), (4, 4)]);
        assert_eq!(sources.moved(NodeId::from(1)), []);
    }

    #[test]
    fn merged_code_goes_along_and_is_split() {
        let mut sources = Sources::default();
        let nodes: Vec<NodeId> = (0..4).map(NodeId::from).collect();
        let code = |offset, size| MergedCode { function: FunctionId::from(0), origin: origin(offset, size) };
        sources.merge(nodes[0], Some(code(10, 6)), nodes[1]);
        sources.merge(nodes[1], Some(code(20, 6)), nodes[2]);
        assert_eq!(sources.merged(nodes[2]), [code(20, 6), code(10, 6)]);
        sources.split(nodes[2], 4, nodes[3]);
        assert_eq!(sources.merged(nodes[2]), [code(20, 4), code(10, 4)]);
        assert_eq!(sources.merged(nodes[3]), [code(24, 2), code(14, 2)]);
    }
}
