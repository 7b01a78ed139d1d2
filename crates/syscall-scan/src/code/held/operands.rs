//! The possible numbers of operands, and the results of operations on them.

use kisa::{Address, BinaryOp, Value, arm};

use super::tracker::{Held, MAX_NUMBERS, keep_across_runs, numbers};
use super::{FRAME, Made};
use crate::code::reachable::Code;
use crate::image::Addr;

impl Code<'_> {
    /// Returns the kind of number that an operand reads.
    pub(super) fn made_by(&self, value: Value) -> Made {
        match value {
            Value::Address(_) => Made::Address,
            // A number from a literal pool may be a distance; its use decides.
            _ if self.uses_literals() => Made::Part,
            _ => Made::Number,
        }
    }

    /// Returns whether an operation may complete an address: `movt` of ARM, the addition of the program counter, and
    /// any operation on a page address.
    pub(super) fn made_from(&self, at: Addr, op: BinaryOp, left: Value, right: Value) -> Made {
        let is_counter = |value| self.is_counter(at, value);
        match (op, right) {
            _ if !self.uses_literals() => Made::Address,
            (BinaryOp::Or, Value::Const(number)) if number & 0xffff == 0 => Made::Number,
            (BinaryOp::Add, _) if is_counter(left) || is_counter(right) => Made::Address,
            _ => Made::Part,
        }
    }

    /// Returns whether a number is the program counter as the instruction reads it.
    fn is_counter(&self, at: Addr, value: Value) -> bool {
        self.uses_literals() && value == Value::Const(arm::program_counter(at.0 as u32).into())
    }

    /// Returns the possible numbers of an operand, as far as is known.
    pub(super) fn evaluate(&mut self, at: Addr, value: Value, holding: &[Held], fresh: bool) -> Vec<u64> {
        match value {
            Value::Const(number) if fresh => vec![number],
            Value::Reg { reg, width } if width == self.image.machine.word_size() => {
                let frame = self.is_stack_pointer(reg).then_some(FRAME);
                numbers(holding, reg).chain(frame).collect()
            }
            Value::Address(address) if self.is_frame(&address, holding) => vec![FRAME],
            Value::Address(address) if address.index.is_none() => self.addresses(&address, holding, fresh),
            Value::Address(address) => {
                // The beginning of an array.
                for number in self.addresses(&address, holding, fresh) {
                    self.references.add(at, number, true);
                }
                Vec::new()
            }
            Value::Load { from, width } => {
                self.reach(at, &from, holding, fresh);
                let whole = width == self.image.machine.word_size() && from.index.is_none();
                let from = if whole { self.addresses(&from, holding, fresh) } else { Vec::new() };
                from.iter().for_each(|&slot| self.read_slot(at, slot));
                let loaded = from.into_iter().filter_map(|from| self.image.constant(Addr(from), width));
                let mut loaded: Vec<u64> = loaded.collect();
                if self.uses_literals() {
                    loaded.iter_mut().for_each(keep_across_runs);
                }
                loaded
            }
            _ => Vec::new(),
        }
    }

    /// Returns the possible results of an operation on two operands.
    pub(super) fn combine(
        &mut self,
        at: Addr,
        (op, left, right): (BinaryOp, Value, Value),
        holding: &[Held],
        fresh: bool,
    ) -> Vec<u64> {
        let own = |code: &mut Self, value| match value {
            Value::Const(number) => vec![number],
            value => code.evaluate(at, value, holding, fresh),
        };
        let known = |value: &Value| matches!(value, Value::Const(_));
        let (lefts, rights) = (own(self, left), own(self, right));
        let counts = self.is_counter(at, left) || self.is_counter(at, right);
        if lefts.is_empty() || rights.is_empty() || (known(&left) && known(&right) && !counts) {
            // A number added to an unknown is the beginning of an array.
            for number in lefts.into_iter().chain(rights) {
                self.references.add(at, number, true);
            }
            return Vec::new();
        }
        let result = |left: u64, right: u64| {
            if left == FRAME || right == FRAME {
                return Some(FRAME);
            }
            Some(self.image.wrap(match op {
                BinaryOp::Add => left.wrapping_add(right),
                BinaryOp::Sub => left.wrapping_sub(right),
                BinaryOp::And => left & right,
                BinaryOp::Or => left | right,
                _ => return None,
            }))
        };
        let pairs = lefts.iter().flat_map(|&left| rights.iter().map(move |&right| (left, right)));
        pairs.take(MAX_NUMBERS).filter_map(|(left, right)| result(left, right)).collect()
    }

    /// Records a read or write at an address.
    pub(super) fn reach(&mut self, at: Addr, address: &Address, holding: &[Held], fresh: bool) {
        let as_pointer = address.index.is_some();
        for number in self.addresses(address, holding, fresh) {
            self.references.add(at, number, as_pointer);
        }
    }

    /// Returns the possible addresses of an expression, without its index.
    pub(super) fn addresses(&self, address: &Address, holding: &[Held], fresh: bool) -> Vec<u64> {
        let plus = |number: u64| match number {
            FRAME => FRAME,
            number => self.image.wrap(number.wrapping_add_signed(address.displacement)),
        };
        match (address.base, address.index) {
            _ if address.segment.is_some() => Vec::new(),
            (Some(base), None) => numbers(holding, base).map(plus).collect(),
            (Some(base), Some((index, _))) => {
                numbers(holding, base).chain(numbers(holding, index)).map(plus).collect()
            }
            (None, _) if fresh => vec![plus(0)],
            (None, _) => Vec::new(),
        }
    }
}
