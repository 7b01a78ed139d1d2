//! The padding between nodes.

use goblin::elf::section_header::SHF_EXECINSTR;
use kisa::Encoding;

use super::{Emitter, PlacedNode};
use crate::index::NodeId;

impl<'g> Emitter<'g> {
    /// Returns the padding of the input before a node, if it has this length in bytes.
    fn padding_of(&self, node: NodeId, len: usize) -> Option<&'g [u8]> {
        let padding = &self.graph.node(node).padding;
        let graph = self.graph;
        (padding.len() == len).then(|| &graph.bytes[padding.start as usize..padding.end as usize])
    }

    /// Whether the input's padding before a node is kept, given the length in bytes, and is not all zeros.
    pub(super) fn keeps_nops(&self, node: NodeId, len: u32) -> bool {
        self.padding_of(node, len as usize).is_some_and(|bytes| bytes.iter().any(|&byte| byte != 0))
    }

    /// Writes the padding between two nodes, which execution may pass: the padding of the input, if it has the right
    /// length and encoding. Room that the program may write over stays before its node.
    pub(super) fn pad(&self, flags: u64, placed: &PlacedNode, before: Option<NodeId>, data: &mut Vec<u8>) {
        let to = placed.offset as usize;
        let runs_on = before.filter(|&before| self.graph.block(before).is_some());
        let encoding = self.graph.encoding(runs_on.unwrap_or(placed.node));
        let padding = self.padding_of(placed.node, to - data.len());
        if let Some(padding) = padding.filter(|padding| runs_on.is_none() || self.suits(encoding, padding)) {
            data.extend_from_slice(padding);
        } else if flags & u64::from(SHF_EXECINSTR) != 0 {
            let room = self.graph.room_before(placed.node);
            let len = to - data.len();
            self.isa.encode_nops(encoding, len.saturating_sub(room.len()), data);
            data.extend_from_slice(&room[..room.len().min(len)]);
        } else {
            data.resize(to, 0);
        }
    }

    /// Whether code of an encoding may execute the padding: it is not padding of the other encoding.
    fn suits(&self, encoding: Encoding, padding: &[u8]) -> bool {
        let other = match encoding {
            Encoding::Main => Encoding::Thumb,
            Encoding::Thumb => Encoding::Main,
        };
        self.is_padding(encoding, padding) || !self.is_padding(other, padding)
    }

    fn is_padding(&self, encoding: Encoding, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let len = self.isa.padding_len(bytes, encoding);
            let Some(rest) = len.and_then(|len| bytes.get(len..)) else { return false };
            bytes = rest;
        }
        true
    }
}
