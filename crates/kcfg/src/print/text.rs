//! Instructions as text.
//!
//! The bytes of a node do not say where its references lead: a relocation leaves zeros or an addend in the
//! field. The text therefore names the target of a direct branch, and the literal that an instruction reads, in place of
//! the operand, and adds what other references name as a comment: `movl $0,%eax  # jiffies`.

use std::ops::Range;

use super::Printer;
use crate::graph::{Dest, NodeKind, Terminator};
use crate::index::NodeId;
use crate::instructions::decode;
use crate::lift::mapping::{Content, Mapping};
use kisa::{Branch, Encoding, Flow};

impl Printer<'_> {
    /// The instructions of a node, the branch that ends a block included, and the data among those of opaque code. Empty for
    /// other data. Bytes that are no instruction end what is of one encoding with `(bad)`, which only opaque code can have.
    pub(super) fn instructions(&self, id: NodeId) -> Vec<String> {
        let mut lines = Vec::new();
        match &self.graph.node(id).kind {
            NodeKind::Block(_) => {
                let all = 0..self.graph.bytes_of(id).len();
                self.code(id, all, self.graph.encoding(id), &mut lines);
                lines.extend(self.last_branch(id));
            }
            NodeKind::Chunk(chunk) if chunk.code => {
                for (range, content) in self.mapping(id).pieces(0..self.graph.bytes_of(id).len() as u32) {
                    let range = range.start as usize..range.end as usize;
                    match content {
                        Content::Code(encoding) => self.code(id, range, encoding, &mut lines),
                        Content::Data => self.data(id, range, &mut lines),
                    }
                }
            }
            NodeKind::Chunk(_) => {}
        }
        lines
    }

    /// What opaque code holds where.
    fn mapping(&self, id: NodeId) -> Mapping {
        let from = self.contents.partition_point(|&(node, ..)| node < id);
        let own = self.contents[from..].iter().take_while(|&&(node, ..)| node == id);
        Mapping::new(own.map(|&(_, offset, content)| (offset, content)))
    }

    /// Adds the instructions in a range of a node's bytes.
    fn code(&self, id: NodeId, range: Range<usize>, encoding: Encoding, lines: &mut Vec<String>) {
        let isa = self.graph.isa();
        let bytes = &self.graph.bytes_of(id)[range.clone()];
        for step in decode(isa, bytes, encoding) {
            let Some((start, address, insn)) = step else {
                lines.push("(bad)".to_owned());
                break;
            };
            let at = range.start + start as usize;
            let placed = address.wrapping_add(range.start as u64 + u64::from(self.place_of(id).offset));
            let (bytes, length) = (&bytes[start as usize..], usize::from(insn.len));
            let mut line = isa.format(bytes, placed);
            let mut names = self.names_in(id, at..at + length);
            let by_table =
                isa.distance_table(bytes, address).is_some() || isa.address_table(bytes, address).is_some();
            let is_place = matches!(insn.flow, Flow::Direct { .. })
                || !by_table && isa.literal(bytes, address).is_some();
            if is_place && let Some(name) = names.next() {
                line = format!("{} {name}", before_place(&line));
            }
            for (i, name) in names.enumerate() {
                line.push_str(if i == 0 { "  # " } else { ", " });
                line.push_str(&name);
            }
            lines.push(line);
        }
    }

    /// Adds the words in a range of a node's bytes.
    fn data(&self, id: NodeId, range: Range<usize>, lines: &mut Vec<String>) {
        let bytes = self.graph.bytes_of(id);
        for at in range.clone().step_by(4) {
            let word = at..range.end.min(at + 4);
            let name = self.names_in(id, word.clone()).next();
            lines.extend(match (bytes[word.clone()].first_chunk(), name) {
                (_, Some(name)) => vec![format!(".word {name}")],
                (Some(&word), None) => vec![format!(".word {:#x}", u32::from_le_bytes(word))],
                (None, None) => bytes[word].iter().map(|byte| format!(".byte {byte:#x}")).collect(),
            });
        }
    }

    /// The names of the targets of the references in a range of a node's bytes.
    fn names_in(&self, id: NodeId, range: Range<usize>) -> impl Iterator<Item = String> {
        let refs = self.graph.refs_of(id);
        let before = |end: usize| refs.partition_point(|reference| (reference.offset as usize) < end);
        refs[before(range.start)..before(range.end)]
            .iter()
            .map(|reference| self.name_of_target(reference.target, reference.addend))
    }

    fn last_branch(&self, id: NodeId) -> Option<String> {
        let encoding = self.graph.encoding(id);
        match &self.graph.block(id)?.end {
            Terminator::Jump(dest) => Some(self.branch(self.graph.isa().jump(encoding), dest, encoding)),
            Terminator::Branch { branch, taken, .. } => Some(self.branch(*branch, taken, encoding)),
            _ => None,
        }
    }

    fn branch(&self, branch: Branch, dest: &Dest, encoding: Encoding) -> String {
        let isa = self.graph.isa();
        let name = self.name_of_target(dest.target, dest.offset);
        let mut bytes = Vec::new();
        if let Some(form) = isa.branch_forms(branch).first() {
            isa.encode_branch(branch, *form, 0, &mut bytes);
        }
        format!("{} {name}", before_place(&isa.format(&bytes, encoding.address(0))))
    }
}

/// The text of an instruction without its last operand, which is a place: up to the last space, so that prefixes stay.
fn before_place(text: &str) -> &str {
    // ARM counts from the program counter what lies near by: `[pc, #8]`.
    let end = text.find("[pc, ").or_else(|| text.rfind(' '));
    text[..end.unwrap_or(text.len())].trim_end()
}
