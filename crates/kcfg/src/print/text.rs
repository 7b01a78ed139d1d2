//! Instructions as text.
//!
//! The bytes of a node do not contain the targets of its references: a relocation leaves zeros or an addend in the
//! field. The text therefore replaces the operand by the name of the target of a direct branch, or of the nearby place
//! that an instruction reads or computes, and adds the names in other references as a comment: `movl $0,%eax  #
//! jiffies`.

use std::ops::Range;

use super::Printer;
use crate::graph::{Dest, NodeKind, Ref, Terminator};
use crate::index::NodeId;
use crate::instructions::decode;
use crate::mapping::{Content, Mapping};
use kelf::RelocClass;
use kisa::{At, Branch, Encoding, Flow};

/// The size in bytes of unidentified data among instructions.
const WORD: usize = 4;

impl Printer<'_> {
    /// Returns the instructions of a node, including the final branch of a block, and the data among the instructions
    /// of opaque code. Empty for other data. Opaque code may contain bytes that are not an instruction. If their
    /// encoding gives the length, they are printed as a directive; otherwise the content of that encoding ends with
    /// `(bad)`.
    pub(super) fn instructions(&self, id: NodeId) -> Vec<String> {
        let mut lines = Vec::new();
        match &self.graph.node(id).kind {
            NodeKind::Block(_) => {
                let all = 0..self.graph.bytes_of(id).len();
                self.code(id, all, self.graph.encoding(id), &mut lines);
                lines.extend(self.last_branch(id));
            }
            NodeKind::Chunk(chunk) if chunk.code => {
                let mut unit = WORD;
                for (range, content) in self.mapping(id).pieces(0..self.graph.bytes_of(id).len() as u32) {
                    let range = range.start as usize..range.end as usize;
                    match content {
                        Content::Code(encoding) => unit = self.code(id, range, encoding, &mut lines),
                        Content::Data => self.data(id, range, unit, &mut lines),
                    }
                }
            }
            NodeKind::Chunk(_) => {}
        }
        lines
    }

    /// Returns the kinds of content in opaque code.
    fn mapping(&self, id: NodeId) -> Mapping {
        let from = self.contents.partition_point(|&(node, ..)| node < id);
        let own = self.contents[from..].iter().take_while(|&&(node, ..)| node == id);
        Mapping::new(own.map(|&(_, offset, content)| (offset, content)))
    }

    /// Adds the instructions in a range of a node's bytes. Returns the size in bytes of the items of the data after
    /// them, as far as the instructions tell: slots of a table, instructions written as data if control falls through
    /// into it, or words.
    fn code(&self, id: NodeId, range: Range<usize>, encoding: Encoding, lines: &mut Vec<String>) -> usize {
        let isa = self.graph.isa();
        let bytes = &self.graph.bytes_of(id)[..range.end];
        let origin = u64::from(self.place_of(id).offset);
        let mut unit = WORD;
        let mut at = range.start;
        while at < range.end {
            let from = at;
            for inst in decode(isa, &bytes[from..], encoding).map_while(|step| step) {
                at = from + inst.at.address as usize;
                let own = at..at + inst.bytes.len();
                lines.push(self.instruction(id, own.clone(), inst.at.moved_to(origin + at as u64)));
                if isa.padding_len(inst.bytes, encoding).is_none() {
                    unit = match isa.distance_table(&inst) {
                        Some(width) => usize::from(width),
                        None if inst.insn.flow == Flow::Next => isa.unit(encoding),
                        None => WORD,
                    };
                }
                at = own.end;
            }
            if at < range.end {
                let Some(length) = isa.length(&bytes[at..], encoding) else {
                    lines.push("(bad)".to_owned());
                    break;
                };
                lines.push(self.instruction(id, at..at + length, encoding.at(origin + at as u64)));
                at += length;
            }
        }
        unit
    }

    /// Returns the text of the instruction in a range of a node's bytes, at its place in its section.
    fn instruction(&self, id: NodeId, range: Range<usize>, at: At) -> String {
        let isa = self.graph.isa();
        let bytes = &self.graph.bytes_of(id)[range.clone()];
        let inst = isa.decode(bytes, at);
        let by_table = inst
            .is_some_and(|inst| isa.distance_table(&inst).is_some() || isa.address_table(&inst).is_some());
        let place = inst.and_then(|inst| match inst.insn.flow {
            Flow::Direct { target, .. } => Some(self.graph.machine.first_byte(target)),
            _ if by_table => None,
            _ => isa.literal(&inst).map(|literal| literal.target),
        });
        let refs = self.refs_in(id, range);
        let mut names = refs.iter().map(|reference| self.name_of_target(reference.target, reference.addend));
        // Code that a pass has made is not at the distances that its bytes encode.
        let near = refs.first().is_some_and(|first| first.class == RelocClass::Literal) && !by_table;
        let name = match place {
            Some(place) => names.next().or_else(|| self.name_in_opaque(id, place)),
            None if near => names.next(),
            None => None,
        };
        let mut line = isa.format(bytes, at);
        if let Some(name) = name {
            line = format!("{} {name}", before_place(&line));
        }
        for (i, name) in names.enumerate() {
            line.push_str(if i == 0 { "  # " } else { ", " });
            line.push_str(&name);
        }
        line
    }

    /// Returns the name of a place in opaque code, given as an address in its section.
    fn name_in_opaque(&self, id: NodeId, address: u64) -> Option<String> {
        self.graph.chunk(id)?;
        let offset = address.checked_sub(self.place_of(id).offset.into())?;
        let inside = offset <= u64::from(self.graph.node(id).size);
        inside.then(|| self.name_of_place(id, offset as i64))
    }

    /// Adds the data in a range of a node's bytes: relocated fields in their width, and the rest in items of `unit`
    /// bytes, or of fewer bytes for alignment or before other content.
    fn data(&self, id: NodeId, range: Range<usize>, unit: usize, lines: &mut Vec<String>) {
        let bytes = self.graph.bytes_of(id);
        let origin = self.place_of(id).offset as usize;
        let starts = self.refs_in(id, range.clone()).iter().map(|reference| reference.offset);
        let starts = starts.chain(self.symbols_in(id).map(|(offset, _)| offset));
        let mut starts: Vec<usize> = starts.map(|start| start as usize).collect();
        starts.sort_unstable();
        let mut at = range.start;
        while at < range.end {
            let field = self.refs_in(id, at..at + 1).iter().find(|reference| reference.width > 0);
            let next = starts.get(starts.partition_point(|&start| start <= at));
            let end = next.map_or(range.end, |&next| next.min(range.end));
            let fits = |&size: &usize| size <= unit && (origin + at) % size == 0 && at + size <= end;
            let size = match field {
                Some(field) => usize::from(field.width),
                None => [4, 2].into_iter().find(fits).unwrap_or(1),
            };
            let directive = match size {
                1 => ".byte",
                2 => ".hword",
                _ => ".word",
            };
            let value = match field {
                Some(field) => self.name_of_target(field.target, field.addend),
                None => {
                    let value = bytes[at..at + size]
                        .iter()
                        .rev()
                        .fold(0u32, |value, &byte| value << 8 | u32::from(byte));
                    format!("{value:#x}")
                }
            };
            lines.push(format!("{directive} {value}"));
            at += size;
        }
    }

    /// Returns the references in a range of a node's bytes.
    fn refs_in(&self, id: NodeId, range: Range<usize>) -> &[Ref] {
        let refs = self.graph.refs_of(id);
        let before = |end: usize| refs.partition_point(|reference| (reference.offset as usize) < end);
        &refs[before(range.start)..before(range.end)]
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
            let (least, greatest) = form.reach;
            isa.encode_branch(branch, *form, 0.clamp(least, greatest), &mut bytes);
        }
        format!("{} {name}", before_place(&isa.format(&bytes, encoding.at(0))))
    }
}

/// Returns the text of an instruction without its last operand, which is a place: up to the last space, to keep
/// prefixes.
fn before_place(text: &str) -> &str {
    // ARM prints nearby places relative to the program counter: `[pc, #8]`.
    let end = text.find("[pc, ").or_else(|| text.rfind(' '));
    text[..end.unwrap_or(text.len())].trim_end()
}
