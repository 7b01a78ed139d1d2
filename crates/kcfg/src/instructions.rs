/*!
The instructions of a node, and their effects.

The value of a relocated field is not a number but a [`Symbol`] plus the addend of the reference. Two references have
the same symbol if their targets are at a known distance from one another.
*/

use std::collections::VecDeque;
use std::hash::Hash;
use std::num::NonZeroU32;

use kelf::RelocClass;
use kflow::Fingerprint;
use kisa::{Effect, Encoding, Inst, Reg, RelocatedField, Rewritable, Symbol, Value};
use smallvec::SmallVec;

use crate::graph::{Graph, Ref, Target};
use crate::index::{NodeId, SymbolId};

/// Returns the symbol that stands for the address of a node in instructions.
pub(crate) fn symbol_of_node(node: NodeId) -> Symbol {
    // The two low bits are the kind, so symbols of different kinds differ.
    Symbol(NonZeroU32::MIN.saturating_add(node.0 << 2))
}

/// One instruction of a node.
#[derive(Clone)]
pub struct Instruction<'g> {
    /// Its offset in bytes from the start of the node.
    pub offset: u32,
    /// The instruction at that offset. The bytes of relocated fields are undefined.
    pub inst: Inst<'g>,
    /// Its relocated fields.
    pub fields: SmallVec<[RelocatedField; 2]>,
    /// Its effects.
    pub effects: Vec<Effect>,
}

/// Decodes the instructions in `bytes` one by one, like [`Graph::decode`].
pub(crate) fn decode<'b>(
    isa: &'b dyn Rewritable,
    bytes: &'b [u8],
    encoding: Encoding,
) -> impl Iterator<Item = Option<Inst<'b>>> + use<'b> {
    let mut conditions: VecDeque<u8> = VecDeque::new();
    let mut reader = isa.reader(bytes);
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= bytes.len() {
            return None;
        }
        let Some(inst) = reader.decode(at, encoding.at(at as u64).on(conditions.pop_front())) else {
            at = bytes.len();
            return Some(None);
        };
        conditions.extend(inst.insn.predicates.conditions());
        at += inst.bytes.len();
        Some(Some(inst))
    })
}

impl Graph {
    /// Returns the instructions of a node; `None` if it contains anything else.
    pub fn instructions(&self, id: NodeId) -> Option<Vec<Instruction<'_>>> {
        let mut all = Vec::new();
        let mut effects = Vec::new();
        self.for_each_instruction(id, &mut effects, |instruction, effects| {
            all.push(Instruction { effects: std::mem::take(effects), ..instruction });
        })?;
        Some(all)
    }

    /// Appends the effects of each instruction of a node to `effects`, and then calls `f` with the instruction, which
    /// contains no effects, and with `effects`. If the node contains anything else, returns `None` after the
    /// instructions before that.
    pub(crate) fn for_each_instruction<'g>(
        &'g self,
        id: NodeId,
        effects: &mut Vec<Effect>,
        mut f: impl FnMut(Instruction<'g>, &mut Vec<Effect>),
    ) -> Option<()> {
        let isa = self.isa();
        let first = self.node(id).refs.start as usize;
        let mut refs = self.refs_of(id).iter().enumerate().peekable();
        for step in self.decode(id) {
            let inst = step?;
            let (at, len) = (inst.at.address as usize, inst.bytes.len());
            let mut fields = SmallVec::new();
            while let Some((number, reference)) =
                refs.next_if(|(_, reference)| (reference.offset as usize) < at + len)
            {
                let (symbol, addend) = self.symbol_of(reference, first + number);
                // A field across two instructions: both are unknown.
                let offset = (reference.offset as usize).checked_sub(at)? as u8;
                fields.push(RelocatedField { offset, width: reference.width, symbol, addend });
            }
            isa.relocated_effects(&inst, &fields, effects);
            f(Instruction { offset: at as u32, inst, fields, effects: Vec::new() }, effects);
        }
        Some(())
    }

    /// Returns a number that identifies the instructions of a node, as [`Graph::instructions`] shows them.
    pub(crate) fn fingerprint(&self, id: NodeId) -> Fingerprint {
        let first = self.node(id).refs.start as usize;
        kflow::fingerprint(|hasher| {
            (self.bytes_of(id), self.node(id).size, self.encoding(id)).hash(hasher);
            for (number, reference) in self.refs_of(id).iter().enumerate() {
                (reference.offset, reference.width, self.symbol_of(reference, first + number)).hash(hasher);
            }
        })
    }

    /// Iterates over the instructions of a node; their addresses are offsets in the node. An item `None` stands for an
    /// undecodable instruction and is the last.
    pub fn decode(&self, id: NodeId) -> impl Iterator<Item = Option<Inst<'_>>> + use<'_> {
        decode(self.isa(), self.bytes_of(id), self.encoding(id))
    }

    /// Returns the symbol and the addend of a reference, whose index among all is `number`.
    fn symbol_of(&self, reference: &Ref, number: usize) -> (Symbol, i64) {
        let is_address = match reference.class {
            RelocClass::Absolute | RelocClass::Literal => true,
            RelocClass::Relative => reference.bias != 0,
            _ => false,
        };
        let node = self.resolve(reference.target).filter(|_| !self.may_be_replaced(reference.target));
        // The two low bits are the kind, so symbols of different kinds differ.
        let (kind, index, addend) = match (is_address, node, reference.target) {
            (true, Some((node, offset)), _) => (1, node.get(), reference.addend.wrapping_add(offset.into())),
            (true, None, Target::Symbol(symbol)) => (2, symbol.get(), reference.addend),
            _ => (3, number, 0),
        };
        let number = NonZeroU32::new((index as u32) << 2 | kind).expect("the kind is not 0");
        (Symbol(number), addend)
    }

    /// Returns the node whose address a symbol of an instruction is; `None` if it is something else.
    pub fn node_of(&self, symbol: Symbol) -> Option<NodeId> {
        let number = symbol.0.get();
        (number & 3 == 1).then_some(NodeId(number >> 2))
    }

    /// Returns the symbol that stands for the address of a node in instructions.
    pub fn symbol_for(&self, node: NodeId) -> Symbol {
        symbol_of_node(node)
    }

    /// Returns the target of a reference to the address that a symbol of an instruction is; `None` if it is no address.
    pub fn target_of(&self, symbol: Symbol) -> Option<Target> {
        let number = symbol.0.get();
        match number & 3 {
            1 => Some(Target::Node(NodeId(number >> 2))),
            2 => Some(Target::Symbol(SymbolId(number >> 2))),
            _ => None,
        }
    }

    /// Returns the effects of each instruction of a node; nothing if the node contains anything but instructions.
    pub fn effects(&self, id: NodeId) -> Vec<Vec<Effect>> {
        let instructions = self.instructions(id).unwrap_or_default();
        instructions.into_iter().map(|instruction| instruction.effects).collect()
    }

    /// Returns the index register, if the block ends with a jump through a table of addresses (`jmp *table(, index,
    /// word size)`).
    pub fn table_index(&self, id: NodeId) -> Option<Reg> {
        let last = self.effects(id).pop()?;
        let Some(Value::Load { from: address, .. }) = Effect::target(&last) else { return None };
        let (index, scale) = address.index?;
        let plain = address.base.is_none() && address.segment.is_none() && scale == self.machine.word_size();
        plain.then_some(index)
    }

    /// Returns the index register, if the block ends with a jump through a table of distances (`tbb [pc, index]`).
    pub(crate) fn distance_index(&self, id: NodeId) -> Option<Reg> {
        self.isa().distance_index(&self.decode(id).last()??)
    }
}
