//! The stack pointer in a function, and the places of the stack that its instructions name.
//!
//! A call pushes the return address. In place of the call, the stack pointer is one word higher throughout the body:
//! the frame and the saved registers are one word higher as well, but the arguments are where they were. An operand
//! that counts from the stack pointer to an argument must therefore count one word less.

use kcfg::instructions::Instruction;
use kflow::{Transfer, apply, bit};
use kisa::{Address, BinaryOp, Condition, MemoryOperand, Reg, Value, sign_extend};

/// The reason why a function is kept.
pub type Why = &'static str;

/// Number of registers, including the temporary of the model.
const REGISTERS: usize = 64;

/// The registers that hold an address in the stack, by the distance in bytes from the stack pointer on entry.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    places: [Option<i64>; REGISTERS],
    word: u8,
    stack_pointer: Reg,
}

/// The use that an instruction makes of the stack.
#[derive(Clone, Copy, Default)]
pub struct Uses {
    /// The instruction names an argument, so that its operand is to be shifted.
    pub argument: bool,
    /// It uses an index from a place of the frame.
    pub indexes: bool,
}

impl Frame {
    /// Returns the state on entry.
    pub fn on_entry(word: u8, stack_pointer: Reg) -> Frame {
        let mut frame = Frame { places: [None; REGISTERS], word, stack_pointer };
        frame.places[usize::from(stack_pointer.0)] = Some(0);
        frame
    }

    /// Returns the stack pointer, as a distance in bytes from that on entry.
    pub fn height(&self) -> Option<i64> {
        self.place(self.stack_pointer)
    }

    /// Keeps what holds in another state as well. Returns whether this changed the state.
    pub fn join(&mut self, other: &Frame) -> bool {
        let mut changed = false;
        for (own, other) in self.places.iter_mut().zip(other.places) {
            if own.is_some() && *own != other {
                *own = None;
                changed = true;
            }
        }
        changed
    }

    /// Continues after a call that changes these registers, a set of bits, and has returned.
    pub fn return_from_call(&mut self, changed: u64) {
        let height = self.height().map(|height| height + i64::from(self.word));
        for (number, place) in (0u8..).zip(&mut self.places) {
            if changed & bit(Reg(number)) != 0 {
                *place = None;
            }
        }
        self.places[usize::from(self.stack_pointer.0)] = height;
    }

    /// Follows an instruction, whose explicit operand in memory is given.
    ///
    /// # Errors
    /// The reason why the instruction would do something else in place of the call.
    pub fn step(
        &mut self,
        instruction: &Instruction<'_>,
        operand: Option<&MemoryOperand>,
    ) -> Result<Uses, Why> {
        let before = self.height();
        let uses = operand.map_or(Ok(Uses::default()), |operand| self.uses(operand, instruction))?;
        for effect in &instruction.effects {
            apply(self, effect);
        }
        let height = self.height().ok_or("changes the stack pointer in an unknown way")?;
        let pops = before.is_some_and(|before| height > before);
        if pops && operand.is_some_and(|operand| operand.address.base == Some(self.stack_pointer)) {
            return Err("pops into a place of the stack");
        }
        for number in (0..REGISTERS as u8).filter(|&number| Reg(number) != self.stack_pointer) {
            let place = &mut self.places[usize::from(number)];
            if place.is_some_and(|place| place >= 0) {
                // The address of an argument, which the shifted instruction still computes.
                let computes = uses.argument && operand.is_some_and(|operand| operand.width == 0);
                *place = None;
                if !computes {
                    return Err("computes the address of its arguments");
                }
            }
        }
        Ok(uses)
    }

    /// Returns the use of an operand.
    fn uses(&self, operand: &MemoryOperand, instruction: &Instruction<'_>) -> Result<Uses, Why> {
        let Address { base, index, displacement, segment, .. } = operand.address;
        if index.is_some_and(|(index, _)| self.place(index).is_some()) {
            return Err("indexes the stack by an address in it");
        }
        let Some(base) = base.and_then(|base| self.place(base)) else { return Ok(Uses::default()) };
        let first = operand.displacement_offset;
        if segment.is_some() || instruction.fields.iter().any(|field| Some(field.offset) == first) {
            return Err("adds a symbol to an address in the stack");
        }
        let place = base + displacement;
        let (indexes, word) = (index.is_some(), i64::from(self.word));
        if place + i64::from(operand.width) <= 0 && place < 0 {
            return Ok(Uses { argument: false, indexes });
        }
        if indexes || place < word {
            return Err("looks at its return address");
        }
        Ok(Uses { argument: true, indexes })
    }

    fn place(&self, reg: Reg) -> Option<i64> {
        self.places[usize::from(reg.0)]
    }
}

impl Transfer for Frame {
    type Known = Option<i64>;

    fn operand(&mut self, operand: Value) -> Option<i64> {
        match operand {
            Value::Reg { reg, width } if width == self.word => self.place(reg),
            Value::Address(Address { base, index: None, symbol: None, displacement, segment: None }) => {
                self.place(base?).map(|base| base + displacement)
            }
            _ => None,
        }
    }

    fn sign_extended(&mut self, _: Option<i64>, _: u8, _: u8) -> Option<i64> {
        None
    }

    fn write(&mut self, dst: Reg, value: Option<i64>, width: u8) {
        self.places[usize::from(dst.0)] = value.filter(|_| width == self.word);
    }

    fn write_maybe(&mut self, dst: Reg, value: Option<i64>, width: u8) {
        let own = self.place(dst);
        self.write(dst, value.filter(|_| value == own), width);
    }

    fn binary(&mut self, op: BinaryOp, dst: Reg, (left, right): (Value, Value), width: u8) {
        let left = self.operand(left);
        let value = match (op, left, right) {
            (BinaryOp::Add, Some(left), Value::Const(right)) => Some(left + sign_extend(right, width) as i64),
            (BinaryOp::Sub, Some(left), Value::Const(right)) => Some(left - sign_extend(right, width) as i64),
            _ => None,
        };
        self.write(dst, value, width);
    }

    fn clobber(&mut self, reg: Reg) {
        self.places[usize::from(reg.0)] = None;
    }

    fn swap(&mut self, a: Reg, b: Reg) {
        self.places.swap(a.0.into(), b.0.into());
    }

    fn only_if(&mut self, _: Condition) {
        self.places = [None; REGISTERS];
    }

    fn escape(&mut self, _: Value) {}

    fn store(&mut self, _: &Address, _: Option<i64>, _: u8) {}

    fn clobber_memory(&mut self, _: Option<&Address>) {}

    fn compare(&mut self, _: Value, _: Value, _: u8, _: bool) {}

    fn clobber_flags(&mut self) {}

    fn system_call(&mut self, _: bool, _: Option<u32>) {}

    fn transfer(&mut self, _: Value) {}

    fn branch(&mut self, _: Condition) {}

    fn branch_compared(&mut self, _: Value, _: Value, _: u8, _: Condition) {}
}
