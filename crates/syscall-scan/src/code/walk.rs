//! The transfer function of [`super::constants`]: the effects of a run's instructions on the facts before it.

use kflow::values::Comparison;
use kflow::{Transfer, apply};
use kisa::{Address, BinaryOp, Condition, Effect, Reg, TEMPORARY, Value, low_mask, sign_extend};

use super::known::{BranchFact, Constant, Facts, NumberSet};
use crate::image::{Addr, Image};
use crate::values::Atom;

/// The facts at one point of a run, while its instructions are applied one by one.
#[derive(Clone)]
pub(crate) struct RunWalk<'a> {
    image: &'a Image,
    pub(crate) known: Facts,
    stack_pointer: Reg,
    /// The comparison that the flags represent.
    compared: Option<Comparison<Atom>>,
    /// The register that was its left operand, if it is still unchanged.
    compared_register: Option<Reg>,
    /// Whether the rest of the instruction may be skipped.
    maybe: bool,
}

impl<'a> RunWalk<'a> {
    pub(crate) fn new(image: &'a Image, known: Facts, stack_pointer: Reg) -> RunWalk<'a> {
        RunWalk { image, known, stack_pointer, compared: None, compared_register: None, maybe: false }
    }

    /// Returns whether a conditional branch may fall through, and whether it may be taken.
    pub(super) fn ways(&self, effects: &[Effect]) -> [bool; 2] {
        let branch = effects.iter().find_map(|effect| match *effect {
            Effect::BranchIf(condition) => Some((self.compared.clone()?, condition)),
            Effect::BranchIfCompared { left, right, width, condition } => {
                Some((self.comparison(left, right, width, false)?, condition))
            }
            _ => None,
        });
        branch.map_or([true; 2], |(compared, condition)| {
            [condition.inverse(), condition].map(|condition| compared.may_hold(condition, |_, _| true))
        })
    }

    /// Returns the fact that a conditional branch implies about a register.
    pub(super) fn learnt(&self, effects: &[Effect]) -> Option<BranchFact> {
        let compared = self.compared.as_ref()?;
        let condition = effects.iter().find_map(|effect| match *effect {
            Effect::BranchIf(condition) => Some(condition),
            _ => None,
        })?;
        let (register, right) = (self.compared_register?, compared.right.as_number()?);
        compared.tells(condition).then_some(BranchFact { register, right, width: compared.width, condition })
    }

    /// Returns the number of a system call, if it is a single number that does not depend on the caller.
    pub(super) fn call_number(&self) -> Option<u64> {
        let register = kisa::isa(self.image.machine).convention().system_call.number;
        self.known.numbers_in(register).filter(|numbers| !numbers.from_caller)?.single()
    }

    /// Returns the target of a computed branch, if known.
    pub(super) fn targets(&self, effects: &[Effect]) -> Option<Vec<Addr>> {
        Some(self.numbers(Effect::target(effects)?)?.iter().map(Addr).collect())
    }

    /// Applies the effects of an instruction.
    pub(crate) fn apply(&mut self, effects: &[Effect]) {
        self.maybe = false;
        effects.iter().for_each(|effect| apply(self, effect));
        self.known.put(TEMPORARY, None);
    }

    /// Sets a register. A frame address other than the stack pointer may escape. Writes through it may be to bytes
    /// before it, in the structure around it (`container_of`, a base class that is not the first one) or in a buffer
    /// that is filled from its end. No structure begins below the stack pointer. A frame pointer is set from the stack
    /// pointer as well, and reveals nothing about the structures below it.
    fn put(&mut self, register: Reg, content: Option<Constant>) {
        let content = content.filter(|_| !self.maybe);
        if let (Some(Constant::Frame(offset)), true) = (&content, register != self.stack_pointer) {
            let is_top = self.known.register(self.stack_pointer) == content.as_ref();
            self.known.expose(if is_top { *offset } else { i64::MIN });
        }
        self.compared_register = self.compared_register.filter(|&compared| compared != register);
        self.known.put(register, content);
    }

    /// Exposes the frame addresses in an address with an unknown part.
    fn expose_parts(&mut self, address: &Address) {
        let parts = [address.base, address.index.map(|(index, _)| index)];
        for part in parts.into_iter().flatten() {
            if let Some(&Constant::Frame(offset)) = self.known.register(part) {
                self.known.expose(offset.saturating_add(address.displacement.min(0)));
            }
        }
    }

    /// Records that a value becomes part of an unknown one.
    fn lose(&mut self, content: Option<Constant>) -> Option<Constant> {
        if let Some(Constant::Frame(offset)) = content {
            self.known.expose(offset);
        }
        None
    }

    fn numbers(&self, operand: Value) -> Option<NumberSet> {
        match self.content(operand)? {
            Constant::Numbers(numbers) => Some(numbers),
            Constant::Frame(_) => None,
        }
    }

    fn content(&self, operand: Value) -> Option<Constant> {
        match operand {
            Value::Const(number) => Some(Constant::Numbers(NumberSet::one(self.image.wrap(number)))),
            Value::Reg { reg, width } => match self.known.register(reg)? {
                Constant::Numbers(numbers) => self.narrow(numbers.clone(), width).map(Constant::Numbers),
                &Constant::Frame(offset) => (width == 8).then_some(Constant::Frame(offset)),
            },
            Value::Load { from, width } => match self.address(&from)? {
                Constant::Frame(offset) => self.known.load(offset, width).map(Constant::Numbers),
                Constant::Numbers(places) => {
                    let loaded = places.each(|place| self.image.constant(Addr(place), width));
                    loaded.map(Constant::Numbers)
                }
            },
            Value::Address(address) => self.address(&address),
            Value::Symbol { .. } | Value::Unknown => None,
        }
    }

    fn address(&self, address: &Address) -> Option<Constant> {
        if address.segment.is_some() {
            return None;
        }
        let displacement = NumberSet::one(self.image.wrap(address.displacement as u64));
        let displacement = Constant::Numbers(displacement);
        let base = match address.base {
            Some(base) => self.sum(self.known.register(base)?, &displacement)?,
            None => displacement,
        };
        let Some((index, stride)) = address.index else { return Some(base) };
        let times = |number: u64| Some(self.image.wrap(number.wrapping_mul(stride.into())));
        self.sum(&base, &Constant::Numbers(self.known.numbers_in(index)?.each(times)?))
    }

    fn sum(&self, left: &Constant, right: &Constant) -> Option<Constant> {
        match (left, right) {
            (Constant::Numbers(a), Constant::Numbers(b)) => {
                a.pairs(b, |a, b| Some(self.image.wrap(a.wrapping_add(b)))).map(Constant::Numbers)
            }
            (&Constant::Frame(offset), Constant::Numbers(number))
            | (Constant::Numbers(number), &Constant::Frame(offset)) => {
                Some(Constant::Frame(offset.wrapping_add(number.single()? as i64)))
            }
            (Constant::Frame(_), Constant::Frame(_)) => None,
        }
    }

    /// Returns whether one of the numbers is an address in a position-independent object.
    fn is_moved(&self, numbers: &NumberSet) -> bool {
        numbers.iter().any(|number| self.image.may_be_moved(number))
    }

    /// Returns the low bytes of numbers. The low bytes of an address depend on where it is loaded.
    fn narrow(&self, numbers: NumberSet, width: u8) -> Option<NumberSet> {
        if width >= self.image.machine.word_size() {
            return Some(numbers);
        }
        numbers.each(|number| (!self.image.may_be_moved(number)).then_some(number & low_mask(width)))
    }

    /// Returns a comparison, if its outcome does not depend on load addresses.
    fn comparison(&self, left: Value, right: Value, width: u8, equality: bool) -> Option<Comparison<Atom>> {
        let (left, right) = (self.numbers(left)?, self.numbers(right)?);
        let (left, right) = (self.narrow(left, width)?, self.narrow(right, width)?);
        // No address is 0.
        let is_zero = |numbers: &NumberSet| numbers.single() == Some(0);
        let equality = match (self.is_moved(&left), self.is_moved(&right)) {
            (false, false) => equality,
            (true, false) if is_zero(&right) => true,
            (false, true) if is_zero(&left) => true,
            _ => return None,
        };
        Some(Comparison { left: left.values(), right: right.values(), width, equality })
    }

    /// Returns the result of an operation on two known values.
    fn computed(&self, op: BinaryOp, left: &Constant, right: &Constant, width: u8) -> Option<Constant> {
        match (op, left, right) {
            (BinaryOp::Add, a, b) if width == self.image.machine.word_size() => self.sum(a, b),
            (BinaryOp::Sub, Constant::Frame(offset), Constant::Numbers(number)) => {
                Some(Constant::Frame(offset.wrapping_sub(number.single()? as i64)))
            }
            (_, Constant::Numbers(a), Constant::Numbers(b)) => {
                let (a, b) = (self.narrow(a.clone(), width)?, self.narrow(b.clone(), width)?);
                // Processors reduce shift counts that exceed the width.
                let shifts = matches!(op, BinaryOp::Shl | BinaryOp::Shr);
                let bits = 8 * u64::from(width);
                let compute = |a, b| if shifts && b >= bits { None } else { op.compute(a, b, width) };
                let is_plain = !self.is_moved(&a) && !self.is_moved(&b);
                if is_plain { a.pairs(&b, compute).map(Constant::Numbers) } else { None }
            }
            _ => None,
        }
    }
}

/// Returns whether a write of `width` bytes replaces the whole content of a register.
fn is_whole(register: Reg, width: u8) -> bool {
    width >= 4 || register == TEMPORARY
}

impl Transfer for RunWalk<'_> {
    type Known = Option<Constant>;

    /// Reads an operand. A frame address that becomes unknown escapes.
    fn operand(&mut self, operand: Value) -> Option<Constant> {
        let content = self.content(operand);
        match (&content, operand) {
            (None, Value::Address(address)) => self.expose_parts(&address),
            (None, Value::Reg { reg, .. }) => {
                self.expose_parts(&Address { base: Some(reg), ..Address::default() });
            }
            _ => {}
        }
        content
    }

    fn sign_extended(&mut self, value: Option<Constant>, from: u8, width: u8) -> Option<Constant> {
        let Some(Constant::Numbers(numbers)) = value else { return None };
        let extend = |number| Some(sign_extend(number, from) & low_mask(width));
        self.narrow(numbers, from)?.each(extend).map(Constant::Numbers)
    }

    fn write(&mut self, dst: Reg, value: Option<Constant>, width: u8) {
        let content = match value.filter(|_| is_whole(dst, width)) {
            Some(Constant::Numbers(numbers)) => self.narrow(numbers, width).map(Constant::Numbers),
            frame if width == 8 => frame,
            frame => self.lose(frame),
        };
        self.put(dst, content);
    }

    fn write_maybe(&mut self, dst: Reg, value: Option<Constant>, width: u8) {
        let new = match value {
            Some(Constant::Numbers(new)) => self.narrow(new, width),
            frame => self.lose(frame).and(None),
        };
        let old = self.known.numbers_in(dst).cloned().filter(|_| width >= 4);
        let old = old.and_then(|old| self.narrow(old, width));
        let joined = old.zip(new).and_then(|(old, new)| old.union(&new));
        self.put(dst, joined.map(Constant::Numbers));
    }

    fn binary(&mut self, op: BinaryOp, dst: Reg, (left, right): (Value, Value), width: u8) {
        let (left, right) = (self.operand(left), self.operand(right));
        let both = left.as_ref().zip(right.as_ref());
        let result = both.and_then(|(left, right)| self.computed(op, left, right, width));
        if result.is_none() {
            self.lose(left);
            self.lose(right);
        }
        self.put(dst, result.filter(|_| is_whole(dst, width)));
    }

    fn clobber(&mut self, reg: Reg) {
        self.put(reg, None);
    }

    fn swap(&mut self, a: Reg, b: Reg) {
        let (left, right) = (self.known.register(a).cloned(), self.known.register(b).cloned());
        self.put(a, right);
        self.put(b, left);
    }

    fn escape(&mut self, value: Value) {
        let content = self.content(value);
        self.lose(content);
    }

    fn store(&mut self, to: &Address, value: Option<Constant>, width: u8) {
        let numbers = match value {
            Some(Constant::Numbers(numbers)) if width >= 4 && !self.maybe => self.narrow(numbers, width),
            other => self.lose(other).and(None),
        };
        match self.address(to) {
            Some(Constant::Frame(offset)) => self.known.store(offset, width, numbers),
            Some(Constant::Numbers(_)) => {}
            None => self.expose_parts(to),
        }
    }

    fn clobber_memory(&mut self, from: Option<&Address>) {
        match from.map(|from| (from, self.address(from))) {
            Some((_, Some(Constant::Frame(offset)))) => self.known.expose(offset),
            Some((from, None)) => self.expose_parts(from),
            Some((_, Some(Constant::Numbers(_)))) | None => {}
        }
    }

    /// Forgets the frame: another process or thread may continue with another stack.
    fn system_call(&mut self, _compat: bool, _number: Option<u32>) {
        self.known.forget_frame();
    }

    fn compare(&mut self, left: Value, right: Value, width: u8, equality: bool) {
        self.compared = self.comparison(left, right, width, equality).filter(|_| !self.maybe);
        self.compared_register = match left {
            Value::Reg { reg, .. } => Some(reg),
            _ => None,
        };
    }

    fn clobber_flags(&mut self) {
        self.compared = None;
    }

    fn only_if(&mut self, _condition: Condition) {
        self.maybe = true;
    }

    // None of these changes a register, the frame or the flags.

    fn transfer(&mut self, _target: Value) {}

    fn branch(&mut self, _condition: Condition) {}

    fn branch_compared(&mut self, _left: Value, _right: Value, _width: u8, _condition: Condition) {}
}
