//! Instructions as text.
//!
//! The bytes of a node do not say where its references lead: a relocation leaves zeros or an addend in the
//! field. The text therefore names the target of a direct branch in place of its operand, and adds what
//! other references name as a comment: `movl $0,%eax  # jiffies`.

use super::Printer;
use crate::graph::{Dest, NodeKind, Terminator};
use crate::index::NodeId;
use kisa::{Branch, Flow};

impl Printer<'_> {
    /// The instructions of a node, the branch that ends a block included. Empty for data. Bytes that are
    /// no instruction end the list with `(bad)`, which only opaque code can have.
    pub(super) fn instructions(&self, id: NodeId) -> Vec<String> {
        let node = self.graph.node(id);
        if matches!(&node.kind, NodeKind::Chunk(chunk) if !chunk.code) {
            return Vec::new();
        }
        let (isa, bytes) = (self.graph.isa(), self.graph.bytes_of(id));
        let mut refs = self.graph.refs_of(id);
        let mut lines = Vec::new();
        for step in self.graph.decode(id) {
            let Some((start, address, insn)) = step else {
                lines.push("(bad)".to_owned());
                break;
            };
            let address = address.wrapping_add(self.place_of(id).offset.into());
            let mut line = isa.format(&bytes[start as usize..], address);
            let at = start as usize + usize::from(insn.len);
            let inside = refs.partition_point(|reference| (reference.offset as usize) < at);
            let (own, others) = refs.split_at(inside);
            refs = others;
            let mut names = own.iter().map(|own| self.name_of_target(own.target, own.addend));
            if matches!(insn.flow, Flow::Direct { .. })
                && let Some(name) = names.next()
            {
                line = format!("{} {name}", mnemonic(&line));
            }
            for (i, name) in names.enumerate() {
                line.push_str(if i == 0 { "  # " } else { ", " });
                line.push_str(&name);
            }
            lines.push(line);
        }
        lines.extend(self.last_branch(id));
        lines
    }

    fn last_branch(&self, id: NodeId) -> Option<String> {
        match &self.graph.block(id)?.end {
            Terminator::Jump(dest) => Some(self.branch(self.graph.isa().jump(self.graph.encoding(id)), dest)),
            Terminator::Branch { branch, taken, .. } => Some(self.branch(*branch, taken)),
            _ => None,
        }
    }

    fn branch(&self, branch: Branch, dest: &Dest) -> String {
        let isa = self.graph.isa();
        let name = self.name_of_target(dest.target, dest.offset);
        let mut bytes = Vec::new();
        if let Some(form) = isa.branch_forms(branch).first() {
            isa.encode_branch(branch, *form, 0, &mut bytes);
        }
        format!("{} {name}", mnemonic(&isa.format(&bytes, 0)))
    }
}

/// The text of an instruction without its operands: up to the last space, so that prefixes stay.
fn mnemonic(text: &str) -> &str {
    text.rsplit_once(' ').map_or(text, |(mnemonic, _)| mnemonic.trim_end())
}
