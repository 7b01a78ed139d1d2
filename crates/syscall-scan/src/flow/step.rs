//! The transfer function of one instruction: its effects applied to a state.

mod effects;

use kflow::Transfer;
use kflow::values::{Comparison, Element, Span};
use kisa::{Address, BinaryOp, Condition, Reg, Value, low_mask};

use super::domain::Domain;
use super::state::State;
use crate::image::{Addr, Image};
use crate::values::{Atom, Origin, ValueSet};

/// The first slot of registers that an instruction reads. An instruction gives value ids, made of its address and a
/// slot, to the values that it writes and reads; a written register has its own number as slot.
const SLOT_READ: u8 = 64;
/// The first slot of loads.
const SLOT_LOADED: u8 = 128;
/// The first slot of indices without a value id.
pub(super) const SLOT_INDEX: u8 = 192;
/// The first slot of scaled indices.
pub(super) const SLOT_SCALED: u8 = 200;

/// Maximum number of results for which an address computation is enumerated.
pub(super) const MAX_FEW: u64 = 15;

/// An instruction being applied to a state.
pub(super) struct Step<'a> {
    pub(super) image: &'a Image,
    pub(super) domain: &'a mut Domain,
    pub(super) state: &'a mut State,
    /// The instruction.
    pub(super) at: Addr,
    /// Whether values loaded from the frame are trusted.
    pub(super) trust_frame: bool,
    /// The target of a computed branch.
    pub(super) target: Option<ValueSet>,
    /// The condition of a conditional branch.
    pub(super) branch: Option<(Comparison<Atom>, Condition)>,
    /// The stack pointer.
    pub(super) stack_pointer: Reg,
    /// Number of operands loaded so far.
    pub(super) loads: u8,
}

impl<'a> Step<'a> {
    pub(super) fn new(
        image: &'a Image,
        domain: &'a mut Domain,
        state: &'a mut State,
        at: Addr,
        stack_pointer: Reg,
        trust_frame: bool,
    ) -> Step<'a> {
        domain.at = at;
        Step { image, domain, state, at, trust_frame, target: None, branch: None, stack_pointer, loads: 0 }
    }

    /// Reads a whole register. A register of unknown content gets a value id, so that its copies are known to be equal.
    pub(super) fn read(&mut self, reg: Reg) -> ValueSet {
        match self.state.register(reg) {
            ValueSet::Any => {
                let value = self.make(SLOT_READ + reg.0);
                self.state.set_register(reg, value.clone());
                value
            }
            value => value.clone(),
        }
    }

    /// Gives a register that holds one of several unknowns its own value id, so that a range can be learnt for it.
    pub(super) fn unite(&mut self, reg: Reg) {
        let value = self.state.register(reg).clone();
        if !self.is_mixed(&value) {
            return;
        }
        let width = self.state.ranges.of(&value, self.domain).width();
        self.state.frame.expose_value(&value, self.domain);
        let named = self.make(SLOT_READ + reg.0);
        let named = self.low(named, width);
        let named = self.domain.blend(named, [&value]);
        self.state.set_register(reg, named);
    }

    /// Returns whether a value is one of several unknowns, and not only a choice of numbers or places.
    pub(super) fn is_mixed(&self, value: &ValueSet) -> bool {
        let places = value.elements().iter().all(|&atom| self.domain.place(atom).is_some());
        matches!(value, ValueSet::Many(_)) && !value.is_numbers() && !places
    }

    /// Creates an unknown at this instruction.
    pub(super) fn make(&mut self, slot: u8) -> ValueSet {
        self.name(Origin::Made { at: self.at, slot })
    }

    /// Creates an unknown that is one of these numbers.
    pub(super) fn make_within(&mut self, slot: u8, span: Span) -> ValueSet {
        let made = self.make(slot);
        if let Some(atom) = made.single() {
            self.state.ranges.limit(atom, span, self.domain);
        }
        made
    }

    /// Creates a value of this origin. Value ids are reused each time an instruction runs: the previous value of the id
    /// is forgotten.
    pub(super) fn name(&mut self, origin: Origin) -> ValueSet {
        let Some((id, new)) = self.domain.origins.add(origin) else { return ValueSet::Any };
        if !new && self.domain.origins.root(id) == id {
            self.state.forget_origins(&[id], self.domain);
        }
        ValueSet::One(Atom::of(id))
    }

    /// Creates an unknown for a value that this instruction loads.
    pub(super) fn make_loaded(&mut self, width: u8) -> ValueSet {
        let value = self.make(SLOT_LOADED | self.loads);
        self.low(value, width)
    }

    /// Returns the low bytes of a value, zero-extended.
    pub(super) fn low(&mut self, value: ValueSet, width: u8) -> ValueSet {
        if low_mask(width) >= self.domain.mask {
            return value;
        }
        value.map(|atom| {
            let range = self.state.ranges.get(atom, self.domain);
            self.domain.low(atom, width, range)
        })
    }

    fn set_flags(&mut self, compared: Option<Comparison<Atom>>) {
        self.state.compared = compared;
        self.state.end_split();
    }

    /// Returns a comparison with a number. The compared value gets a value id.
    fn comparison(
        &mut self,
        left: Value,
        right: Value,
        width: u8,
        equality: bool,
    ) -> Option<Comparison<Atom>> {
        let right = self.operand(right);
        match (left, right.as_number()) {
            (Value::Reg { reg, .. }, Some(_)) => self.unite(reg),
            (Value::Load { from, width }, Some(_)) => self.unite_cell(&from, width),
            _ => {}
        }
        let left = self.operand(left);
        let is_followed = left.single().is_some() && right.as_number().is_some();
        is_followed.then_some(Comparison { left, right, width, equality })
    }

    /// Gives the index that is added to a table's address a value id, see [`Step::unite`].
    fn unite_index(&mut self, index: Value, table: Value) {
        let Value::Reg { reg, .. } = index else { return };
        let table = self.operand(table).as_number();
        if table.is_some_and(|table| self.image.constant(Addr(table), 1).is_some()) {
            self.unite(reg);
        }
    }

    /// Sets bit 0 of an even number, as for an address of Thumb code. The number is a table entry (address tables have
    /// only even or only odd numbers), or the sum of an address and a multiple of an even number.
    fn make_odd(&self, value: &ValueSet) -> ValueSet {
        let Some(atom) = value.single().filter(|atom| atom.offset & 1 == 0) else { return ValueSet::Any };
        let is_even = match self.domain.origins.get(atom.origin) {
            Origin::Element { table, width, .. } => {
                self.image.constant(table, width).is_some_and(|first| first & 1 == 0)
            }
            _ => {
                let span = self.state.ranges.get(Atom::of(atom.origin), self.domain);
                (span.low | span.step) & 1 == 0
            }
        };
        if is_even { ValueSet::One(self.domain.plus(atom, 1)) } else { ValueSet::Any }
    }

    /// Returns the possible numbers of a value shifted by `bits` bits.
    fn shifted(&self, op: BinaryOp, value: &ValueSet, bits: u64, width: u8) -> Option<Span> {
        let Span { low, high, step } = match value.single() {
            Some(atom) => self.state.ranges.get(atom, self.domain),
            None => Span::new(0, low_mask(width)),
        };
        match op {
            BinaryOp::Shl if high > low_mask(width) >> bits => {
                let step = 1u64.checked_shl(u32::try_from(bits).ok()?)?;
                Some(Span { low: 0, high: low_mask(width) & step.wrapping_neg(), step })
            }
            BinaryOp::Shl => Some(Span { low: low << bits, high: high << bits, step: step << bits }),
            _ => {
                let high = high.min(low_mask(width));
                Some(Span { low: low >> bits, high: high >> bits, step: (step >> bits).max(1) })
            }
        }
    }

    /// Moves the stack pointer by an unknown distance: to align it, or to make room for an array.
    fn align(&mut self, stack_pointer: &ValueSet) -> ValueSet {
        if stack_pointer.single().is_none_or(|atom| self.domain.place(atom).is_none()) {
            return ValueSet::Any;
        }
        self.name(Origin::Frame { at: self.at })
    }

    fn difference(&mut self, left: &ValueSet, right: &ValueSet) -> ValueSet {
        // `52 - %eax` is one of a few numbers if `%eax` is known to be small.
        if let (true, Some(atom)) = (left.is_numbers(), right.single()) {
            let span = self.state.ranges.get(atom, self.domain);
            if span.steps() <= MAX_FEW {
                let numbers = ValueSet::of(span.iter().map(Atom::number).collect());
                return left.difference(&numbers, self.domain);
            }
        }
        left.difference(right, self.domain)
    }
}

/// Returns the constant address of an operand.
pub(crate) fn constant_address(operand: Value) -> Option<u64> {
    match operand {
        Value::Const(number) => Some(number),
        Value::Address(Address { base: None, index: None, displacement, .. }) => Some(displacement as u64),
        _ => None,
    }
}
