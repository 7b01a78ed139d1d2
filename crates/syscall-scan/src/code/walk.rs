//! The transfer function of [`super::constants`]: what the instructions of a run do to the facts in front of it.

use kisa::{Address, BinaryOp, Condition, Effect, Reg, TEMPORARY, Value, low_mask, sign_extend};
use smallvec::SmallVec;

use super::known::{BranchFact, Constant, Facts, NumberSet};
use crate::abi;
use crate::image::{Addr, Image};

/// What the flags compare.
#[derive(Clone, Debug)]
struct ComparedSets {
    left: NumberSet,
    right: NumberSet,
    width: u8,
    /// Whether the flags tell no more than whether the two are equal.
    equality: bool,
    /// The register that is compared and still the same, if one is.
    register: Option<Reg>,
}

impl ComparedSets {
    /// Whether the condition may hold.
    fn may(&self, condition: Condition) -> bool {
        let is_equality = matches!(condition, Condition::Equal | Condition::NotEqual);
        let mut pairs = self.left.iter().flat_map(|left| self.right.iter().map(move |right| (left, right)));
        self.equality && !is_equality
            || pairs.any(|(left, right)| condition.holds(left, right, self.width) != Some(false))
    }
}

/// The facts at one point of a run, while its instructions are applied one by one.
#[derive(Clone)]
pub(super) struct RunWalk {
    pub(super) known: Facts,
    stack_pointer: Reg,
    compared: Option<ComparedSets>,
}

impl RunWalk {
    pub(super) fn new(known: Facts, stack_pointer: Reg) -> RunWalk {
        RunWalk { known, stack_pointer, compared: None }
    }

    /// Whether a conditional branch may fall through, and whether it may be taken.
    pub(super) fn ways(&self, image: &Image, effects: &[Effect]) -> [bool; 2] {
        let branch = effects.iter().find_map(|effect| match *effect {
            Effect::BranchIf(condition) => Some((self.compared.clone()?, condition)),
            Effect::BranchIfCompared { left, right, width, condition } => {
                Some((self.compare(image, left, right, width, false)?, condition))
            }
            _ => None,
        });
        branch.map_or([true; 2], |(compared, condition)| {
            [compared.may(condition.inverse()), compared.may(condition)]
        })
    }

    /// What a conditional branch tells about a register.
    pub(super) fn learnt(&self, effects: &[Effect]) -> Option<BranchFact> {
        let ComparedSets { right, width, register, equality, .. } = self.compared.as_ref()?;
        let condition = effects.iter().find_map(|effect| match *effect {
            Effect::BranchIf(condition) => Some(condition),
            _ => None,
        })?;
        let tells = !equality || matches!(condition, Condition::Equal | Condition::NotEqual);
        let learnt = BranchFact { register: (*register)?, right: right.single()?, width: *width, condition };
        tells.then_some(learnt)
    }

    /// The number of a system call, if it is one number that does not depend on how the function was called.
    pub(super) fn call_number(&self, image: &Image) -> Option<u64> {
        let register = abi::number_register(abi::abi(image.machine, false));
        match self.known.register(register)? {
            Constant::Numbers(numbers) => numbers.single().filter(|_| !numbers.from_caller),
            Constant::Frame(_) => None,
        }
    }

    /// Where a computed branch goes, if that is known.
    pub(super) fn targets(&self, image: &Image, effects: &[Effect]) -> Option<Vec<Addr>> {
        let target = effects.iter().find_map(|effect| match *effect {
            Effect::Transfer(value) => Some(value),
            _ => None,
        });
        let targets = self.numbers(image, target?)?;
        Some(targets.iter().map(Addr).collect())
    }

    /// Applies the effects of an instruction.
    pub(super) fn apply(&mut self, image: &Image, effects: &[Effect]) {
        let mut maybe = false;
        for effect in effects {
            match *effect {
                Effect::OnlyIf(_) => maybe = true,
                _ if maybe => self.forget_written(effect),
                _ => self.effect(image, effect),
            }
        }
        self.known.put(TEMPORARY, None);
    }

    /// An effect happens on a condition: what it writes to is unknown behind it.
    fn forget_written(&mut self, effect: &Effect) {
        let written = effect.registers_written();
        for register in (0..64).filter(|register| written >> register & 1 != 0) {
            self.set(Reg(register), None);
        }
        if let Effect::Store { .. } | Effect::ClobberRange(_) | Effect::SystemCall { .. } = effect {
            self.known.forget_frame();
        }
        self.compared = None;
    }

    fn effect(&mut self, image: &Image, effect: &Effect) {
        match *effect {
            Effect::Set { dst, value, width } => {
                let content = self.value(image, value).filter(|_| is_whole(dst, width));
                let content = match content {
                    Some(Constant::Numbers(numbers)) => narrow(image, numbers, width).map(Constant::Numbers),
                    frame if width == 8 => frame,
                    frame => self.lose(frame),
                };
                self.set(dst, content);
            }
            Effect::MaybeSet { dst, value, width } => {
                let new = match self.value(image, value) {
                    Some(Constant::Numbers(new)) => narrow(image, new, width),
                    frame => self.lose(frame).and(None),
                };
                let joined = match (self.known.register(dst), new) {
                    (Some(Constant::Numbers(old)), Some(new)) if width >= 4 => {
                        narrow(image, old.clone(), width).and_then(|old| old.union(&new))
                    }
                    _ => None,
                };
                self.set(dst, joined.map(Constant::Numbers));
            }
            Effect::SetSigned { dst, value, from, width } => {
                let numbers = self.numbers(image, value).filter(|_| width >= 4);
                let numbers = numbers.and_then(|numbers| narrow(image, numbers, from));
                let extend = |number| sign_extend(number, from) & low_mask(width);
                self.set(dst, numbers.map(|numbers| Constant::Numbers(numbers.each(extend))));
            }
            Effect::Binary { op, dst, left, right, width } => {
                let content = self.binary(image, op, left, right, width).filter(|_| is_whole(dst, width));
                self.set(dst, content);
            }
            Effect::Store { to, value, width } => {
                let content = self.value(image, value);
                if let Some(Constant::Frame(offset)) = content {
                    self.known.expose(offset);
                }
                let numbers = match content {
                    Some(Constant::Numbers(numbers)) if width >= 4 => narrow(image, numbers, width),
                    _ => None,
                };
                match self.address(image, &to) {
                    Some(Constant::Frame(offset)) => self.known.store(offset, width, numbers),
                    Some(Constant::Numbers(_)) => {}
                    None => self.expose_parts(&to),
                }
            }
            Effect::Compare { left, right, width } => {
                self.compared = self.compare(image, left, right, width, false);
            }
            Effect::CompareZero { value, width } => {
                self.compared = self.compare(image, value, Value::Const(0), width, true);
            }
            Effect::ClobberFlags => self.compared = None,
            Effect::Clobber(register) => self.set(register, None),
            Effect::ClobberRange(from) => match self.address(image, &from) {
                Some(Constant::Frame(offset)) => self.known.expose(offset),
                Some(Constant::Numbers(_)) => {}
                None => self.expose_parts(&from),
            },
            Effect::Swap(a, b) => {
                let (left, right) = (self.known.register(a).cloned(), self.known.register(b).cloned());
                self.set(a, right);
                self.set(b, left);
            }
            // Another process or thread may go on with another stack.
            Effect::SystemCall { .. } => self.known.forget_frame(),
            Effect::ClobberMemory
            | Effect::Transfer(_)
            | Effect::BranchIf(_)
            | Effect::BranchIfCompared { .. }
            | Effect::OnlyIf(_) => {}
        }
    }

    /// An address in the frame that is not the stack pointer may be given away. What is written through it may lie
    /// in front of it, in the structure that it is a part of (`container_of`, a base class that is not the first
    /// one) or in a buffer that is filled from its end. No structure begins below the stack pointer; that is also
    /// what a frame pointer is made of, which tells nothing about the structures below it.
    fn set(&mut self, register: Reg, content: Option<Constant>) {
        if let (Some(Constant::Frame(offset)), true) = (&content, register != self.stack_pointer) {
            let is_top = self.known.register(self.stack_pointer) == content.as_ref();
            self.known.expose(if is_top { *offset } else { i64::MIN });
        }
        if let Some(compared) = self.compared.as_mut().filter(|compared| compared.register == Some(register))
        {
            compared.register = None;
        }
        self.known.put(register, content);
    }

    /// An address is made of an address in the frame and something unknown.
    fn expose_parts(&mut self, address: &Address) {
        let parts = [address.base, address.index.map(|(index, _)| index)];
        for part in parts.into_iter().flatten() {
            if let Some(&Constant::Frame(offset)) = self.known.register(part) {
                self.known.expose(offset.saturating_add(address.displacement.min(0)));
            }
        }
    }

    fn numbers(&self, image: &Image, value: Value) -> Option<NumberSet> {
        match self.content(image, value)? {
            Constant::Numbers(numbers) => Some(numbers),
            Constant::Frame(_) => None,
        }
    }

    /// What an operand is. An address in the frame that becomes something unknown is given away.
    fn value(&mut self, image: &Image, value: Value) -> Option<Constant> {
        let content = self.content(image, value);
        match (&content, value) {
            (None, Value::Address(address)) => self.expose_parts(&address),
            (None, Value::Reg { reg, .. }) => {
                self.expose_parts(&Address { base: Some(reg), ..Address::default() });
            }
            _ => {}
        }
        content
    }

    fn content(&self, image: &Image, value: Value) -> Option<Constant> {
        match value {
            Value::Const(number) => Some(Constant::Numbers(NumberSet::one(image.wrap(number)))),
            Value::Reg { reg, width } => match self.known.register(reg)? {
                Constant::Numbers(numbers) => narrow(image, numbers.clone(), width).map(Constant::Numbers),
                &Constant::Frame(offset) => (width == 8).then_some(Constant::Frame(offset)),
            },
            Value::Load { from, width } => match self.address(image, &from)? {
                Constant::Frame(offset) => self.known.load(offset, width).map(Constant::Numbers),
                Constant::Numbers(places) => {
                    let loaded = places.iter().map(|place| image.constant(Addr(place), width));
                    let list = loaded.collect::<Option<SmallVec<[u64; 2]>>>()?;
                    NumberSet::of(list, places.from_caller).map(Constant::Numbers)
                }
            },
            Value::Address(address) => self.address(image, &address),
            Value::Symbol { .. } | Value::Unknown => None,
        }
    }

    fn address(&self, image: &Image, address: &Address) -> Option<Constant> {
        if address.segment.is_some() {
            return None;
        }
        let displacement = Constant::Numbers(NumberSet::one(image.wrap(address.displacement as u64)));
        let base = match address.base {
            Some(base) => sum(image, self.known.register(base)?, &displacement)?,
            None => displacement,
        };
        let Some((index, stride)) = address.index else { return Some(base) };
        let Constant::Numbers(index) = self.known.register(index)? else { return None };
        let scaled = index.each(|number| image.wrap(number.wrapping_mul(stride.into())));
        sum(image, &base, &Constant::Numbers(scaled))
    }

    fn binary(
        &mut self,
        image: &Image,
        op: BinaryOp,
        left: Value,
        right: Value,
        width: u8,
    ) -> Option<Constant> {
        let (a, b) = (self.value(image, left), self.value(image, right));
        let result = match (op, &a, &b) {
            (BinaryOp::Add, Some(a), Some(b)) if is_word(image, width) => sum(image, a, b),
            (BinaryOp::Sub, Some(Constant::Frame(offset)), Some(Constant::Numbers(number))) => {
                let Some(number) = number.single() else { return self.lose(a) };
                Some(Constant::Frame(offset.wrapping_sub(number as i64)))
            }
            (_, Some(Constant::Numbers(a)), Some(Constant::Numbers(b))) => {
                let (a, b) = (narrow(image, a.clone(), width), narrow(image, b.clone(), width));
                let plain = |numbers: &NumberSet| numbers.iter().all(|number| !image.may_be_moved(number));
                // Processors take a count of bits beyond the width for another one.
                let shifts = matches!(op, BinaryOp::Shl | BinaryOp::Shr);
                let bits = 8 * u64::from(width);
                let compute = |a, b| if shifts && b >= bits { None } else { op.compute(a, b, width) };
                match (a.filter(plain), b.filter(plain)) {
                    (Some(a), Some(b)) => a.pairs(&b, compute).map(Constant::Numbers),
                    _ => None,
                }
            }
            _ => None,
        };
        if result.is_none() {
            self.lose(a);
            self.lose(b);
        }
        result
    }

    /// A value becomes part of something unknown.
    fn lose(&mut self, content: Option<Constant>) -> Option<Constant> {
        if let Some(Constant::Frame(offset)) = content {
            self.known.expose(offset);
        }
        None
    }

    /// A comparison, if its outcome does not depend on where something is loaded.
    fn compare(
        &self,
        image: &Image,
        left: Value,
        right: Value,
        width: u8,
        equality: bool,
    ) -> Option<ComparedSets> {
        let register = match left {
            Value::Reg { reg, .. } => Some(reg),
            _ => None,
        };
        let (left, right) = (self.numbers(image, left)?, self.numbers(image, right)?);
        let (left, right) = (narrow(image, left, width)?, narrow(image, right, width)?);
        let moved = |numbers: &NumberSet| numbers.iter().any(|number| image.may_be_moved(number));
        // No address is 0.
        let zero = |numbers: &NumberSet| numbers.single() == Some(0);
        match (moved(&left), moved(&right)) {
            (false, false) => Some(ComparedSets { left, right, width, equality, register }),
            (true, false) if zero(&right) => {
                Some(ComparedSets { left, right, width, equality: true, register })
            }
            (false, true) if zero(&left) => {
                Some(ComparedSets { left, right, width, equality: true, register })
            }
            _ => None,
        }
    }
}

/// Whether a write of so many bytes leaves nothing of what a register held before.
fn is_whole(register: Reg, width: u8) -> bool {
    width >= 4 || register == TEMPORARY
}

fn is_word(image: &Image, width: u8) -> bool {
    width == image.machine.word_size()
}

/// The low bytes of numbers. Those of an address depend on where it is loaded.
fn narrow(image: &Image, numbers: NumberSet, width: u8) -> Option<NumberSet> {
    if is_word(image, width) || width >= 8 {
        return Some(numbers);
    }
    let plain = numbers.iter().all(|number| !image.may_be_moved(number));
    plain.then(|| numbers.each(|number| number & low_mask(width)))
}

fn sum(image: &Image, left: &Constant, right: &Constant) -> Option<Constant> {
    match (left, right) {
        (Constant::Numbers(a), Constant::Numbers(b)) => {
            a.pairs(b, |a, b| Some(image.wrap(a.wrapping_add(b)))).map(Constant::Numbers)
        }
        (&Constant::Frame(offset), Constant::Numbers(number))
        | (Constant::Numbers(number), &Constant::Frame(offset)) => {
            let number = number.single()?;
            Some(Constant::Frame(offset.wrapping_add(number as i64)))
        }
        (Constant::Frame(_), Constant::Frame(_)) => None,
    }
}
