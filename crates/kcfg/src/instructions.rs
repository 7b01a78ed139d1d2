/*!
The instructions of a node, and what they compute.

The value of a relocated field is not a number but a [`Symbol`] plus the addend of the reference. Two references have
the same symbol if their targets are at a known distance from one another.
*/

use std::num::NonZeroU32;

use kelf::RelocClass;
use kisa::{Effect, Reg, RelocatedField, Symbol, Value};
use smallvec::SmallVec;

use crate::graph::{Graph, Ref, Target};
use crate::index::NodeId;

/// One instruction of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction<'g> {
    /// Where it begins, in bytes from the start of the node.
    pub offset: u32,
    /// Its bytes. Those of relocated fields are not defined.
    pub bytes: &'g [u8],
    /// Its relocated fields.
    pub fields: SmallVec<[RelocatedField; 2]>,
    /// What it computes.
    pub effects: Vec<Effect>,
}

impl Graph {
    /// The instructions of a node; `None` if it holds something else as well.
    pub fn instructions(&self, id: NodeId) -> Option<Vec<Instruction<'_>>> {
        let (isa, bytes) = (self.isa(), self.bytes_of(id));
        let first = self.node(id).refs.start as usize;
        let mut refs = self.refs_of(id).iter().enumerate().peekable();
        let mut all = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let len = usize::from(isa.decode(&bytes[at..], at as u64)?.len);
            let mut fields = SmallVec::new();
            while let Some((number, reference)) =
                refs.next_if(|(_, reference)| (reference.offset as usize) < at + len)
            {
                let (symbol, addend) = self.symbol_of(reference, first + number);
                // A field across two instructions: neither is known.
                let offset = (reference.offset as usize).checked_sub(at)? as u8;
                fields.push(RelocatedField { offset, width: reference.width, symbol, addend });
            }
            let mut effects = Vec::new();
            isa.relocated_effects(&bytes[at..], &fields, &mut effects);
            all.push(Instruction { offset: at as u32, bytes: &bytes[at..at + len], fields, effects });
            at += len;
        }
        Some(all)
    }

    /// The symbol and the addend of a reference, which is the `number`th of all.
    fn symbol_of(&self, reference: &Ref, number: usize) -> (Symbol, i64) {
        let is_address = match reference.class {
            RelocClass::Absolute => true,
            RelocClass::Relative => reference.bias != 0,
            _ => false,
        };
        // The two low bits are the kind, so that symbols of different kinds differ.
        let (kind, index, addend) = match (is_address, self.resolve(reference.target), reference.target) {
            (true, Some((node, offset)), _) => (1, node.get(), reference.addend.wrapping_add(offset.into())),
            (true, None, Target::Symbol(symbol)) => (2, symbol.get(), reference.addend),
            _ => (3, number, 0),
        };
        let number = NonZeroU32::new((index as u32) << 2 | kind).expect("the kind is not 0");
        (Symbol(number), addend)
    }

    /// What each instruction of a node computes; empty if the node holds something else than instructions.
    pub fn effects(&self, id: NodeId) -> Vec<Vec<Effect>> {
        let instructions = self.instructions(id).unwrap_or_default();
        instructions.into_iter().map(|instruction| instruction.effects).collect()
    }

    /// The register that indexes the table, if the block ends with a jump through a table of addresses
    /// (`jmp *table(, index, word size)`).
    pub fn table_index(&self, id: NodeId) -> Option<Reg> {
        let last = self.effects(id).pop()?;
        let address = last.iter().find_map(|effect| match effect {
            Effect::Transfer(Value::Load { from, .. }) => Some(*from),
            _ => None,
        })?;
        let (index, scale) = address.index?;
        let plain = address.base.is_none() && address.segment.is_none() && scale == self.machine.word_size();
        plain.then_some(index)
    }
}
