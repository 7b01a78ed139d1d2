//! The stack pointer in a function, and the places of the stack that its instructions name.
//!
//! A call pushes the return address. In place of the call, the stack pointer is one word higher throughout the body:
//! the frame and the saved registers are one word higher as well, but the arguments are where they were. An operand
//! that counts from the stack pointer to an argument must therefore count one word less.

use std::collections::BTreeMap;

use kcfg::instructions::Instruction;
use kflow::{Transfer, apply, bit};
use kisa::{Address, BinaryOp, Condition, MemoryOperand, Reg, Value, sign_extend};

/// The reason why a function is kept.
pub type Why = &'static str;

/// Number of registers, including the temporary of the model.
const REGISTERS: usize = 64;

/// An address in the stack, as a distance in bytes from the stack pointer on entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// This address.
    At(i64),
    /// This address, a lower one, or anything else.
    Perhaps(i64),
}

impl Place {
    fn distance(self) -> i64 {
        let (Place::At(distance) | Place::Perhaps(distance)) = self;
        distance
    }

    fn plus(self, number: i64) -> Place {
        match self {
            Place::At(distance) => Place::At(distance + number),
            Place::Perhaps(distance) => Place::Perhaps(distance + number),
        }
    }
}

/// Returns what holds where two ways join.
fn join(one: Option<Place>, other: Option<Place>) -> Option<Place> {
    match (one, other) {
        _ if one == other => one,
        (Some(Place::Perhaps(distance)), place) | (place, Some(Place::Perhaps(distance))) => {
            Some(Place::Perhaps(place.map_or(distance, |place| place.distance().max(distance))))
        }
        // A register with different addresses, or with an address on one way only, is no frame pointer.
        _ => None,
    }
}

/// The registers that hold an address in the stack.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    places: [Option<Place>; REGISTERS],
    /// The addresses in the stack that the function saved in its frame, by their places. Where several may be saved, the
    /// highest.
    saved: BTreeMap<i64, i64>,
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
        let mut frame = Frame { places: [None; REGISTERS], saved: BTreeMap::new(), word, stack_pointer };
        frame.places[usize::from(stack_pointer.0)] = Some(Place::At(0));
        frame
    }

    /// Returns the stack pointer, as a distance in bytes from that on entry.
    pub fn height(&self) -> Option<i64> {
        match self.place(self.stack_pointer) {
            Some(Place::At(height)) => Some(height),
            _ => None,
        }
    }

    /// Keeps what holds in another state as well. Returns whether this changed the state.
    pub fn join(&mut self, other: &Frame) -> bool {
        let mut changed = false;
        for (own, other) in self.places.iter_mut().zip(other.places) {
            let joined = join(*own, other);
            changed |= *own != joined;
            *own = joined;
        }
        for (&place, &distance) in &other.saved {
            let own = self.saved.entry(place).or_insert(i64::MIN);
            changed |= *own < distance;
            *own = distance.max(*own);
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
        self.places[usize::from(self.stack_pointer.0)] = height.map(Place::At);
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
            if place.is_some_and(|place| place.distance() >= 0) {
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
        let place = base.distance() + displacement;
        let (indexes, word) = (index.is_some(), i64::from(self.word));
        if place + i64::from(operand.width) <= 0 && place < 0 {
            return Ok(Uses { argument: false, indexes });
        }
        if matches!(base, Place::Perhaps(_)) {
            return Err("may name an argument by an address that it saved");
        }
        if indexes || place < word {
            return Err("looks at its return address");
        }
        Ok(Uses { argument: true, indexes })
    }

    fn place(&self, reg: Reg) -> Option<Place> {
        self.places[usize::from(reg.0)]
    }

    /// Returns the address in the stack that an address without an index is.
    fn address(&self, address: &Address) -> Option<Place> {
        match *address {
            Address { base: Some(base), index: None, symbol: None, displacement, segment: None } => {
                Some(self.place(base)?.plus(displacement))
            }
            _ => None,
        }
    }
}

impl Transfer for Frame {
    type Known = Option<Place>;

    fn operand(&mut self, operand: Value) -> Option<Place> {
        match operand {
            Value::Reg { reg, width } if width == self.word => self.place(reg),
            Value::Address(address) => self.address(&address),
            Value::Load { from, width } if width == self.word => {
                let place = self.address(&from)?.distance();
                self.saved.get(&place).map(|&saved| Place::Perhaps(saved))
            }
            _ => None,
        }
    }

    fn sign_extended(&mut self, _: Option<Place>, _: u8, _: u8) -> Option<Place> {
        None
    }

    fn write(&mut self, dst: Reg, value: Option<Place>, width: u8) {
        self.places[usize::from(dst.0)] = value.filter(|_| width == self.word);
    }

    fn write_maybe(&mut self, dst: Reg, value: Option<Place>, width: u8) {
        let own = self.place(dst);
        self.write(dst, join(own, value), width);
    }

    fn binary(&mut self, op: BinaryOp, dst: Reg, (left, right): (Value, Value), width: u8) {
        let left = self.operand(left);
        let value = match (op, left, right) {
            (BinaryOp::Add, Some(left), Value::Const(right)) => {
                Some(left.plus(sign_extend(right, width) as i64))
            }
            (BinaryOp::Sub, Some(left), Value::Const(right)) => {
                Some(left.plus(-(sign_extend(right, width) as i64)))
            }
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

    fn store(&mut self, to: &Address, value: Option<Place>, width: u8) {
        let Some(Place::At(to)) = self.address(to) else { return };
        match value.filter(|_| width == self.word) {
            Some(value) => drop(self.saved.insert(to, value.distance())),
            None if width == self.word => drop(self.saved.remove(&to)),
            None => {}
        }
    }

    fn clobber_memory(&mut self, _: Option<&Address>) {}

    fn compare(&mut self, _: Value, _: Value, _: u8, _: bool) {}

    fn clobber_flags(&mut self) {}

    fn system_call(&mut self, _: bool, _: Option<u32>) {}

    fn transfer(&mut self, _: Value) {}

    fn branch(&mut self, _: Condition) {}

    fn branch_compared(&mut self, _: Value, _: Value, _: u8, _: Condition) {}
}
