//! The effect of one instruction on what is known.

use kcfg::instructions::Instruction;
use kisa::specializing::{Bits, Equality, Fill, Inputs, Written};
use kisa::{Address, Effect, Flags, Reg, Value as Operand, sign_extend};

use super::explore::{Explorer, Key, Why};
use super::state::{State, WORD};
use super::value::{Base, Value};

/// Maximum number of bytes that a repeated store fills.
const MAX_FILL: u32 = 512;

/// The number of known bits from which on the bits are worth more than the name of the value.
const WORTH: u32 = 8;

impl<'g> Explorer<'g> {
    /// Returns the place of an address.
    pub fn place(&self, state: &State, address: &Address) -> Option<(Base, i32)> {
        if address.segment.is_some() {
            return None;
        }
        let mut sum = Value::number(address.displacement as u32);
        if let Some(symbol) = address.symbol {
            sum = Value::Symbol(symbol, address.displacement);
        }
        let base = address.base.map(|base| state.register(base));
        let index = match address.index {
            Some((index, 1)) => Some(state.register(index)),
            Some((index, scale)) => {
                let number = state.register(index).get()?;
                Some(Value::number(number.wrapping_mul(scale.into())))
            }
            None => None,
        };
        for part in [base, index].into_iter().flatten() {
            sum = match (sum.get(), part.get()) {
                (Some(number), _) => part.plus(number as i32),
                (_, Some(number)) => sum.plus(number as i32),
                _ => return None,
            };
        }
        sum.place()
    }

    /// Returns the place of the memory operand of an instruction, and its width in bytes.
    pub fn operand_place(&self, state: &State, instruction: &Instruction<'_>) -> Option<((Base, i32), u8)> {
        let operand = self.original.isa.memory_operand(&instruction.inst)?;
        let field = instruction.fields.iter().find(|field| Some(field.offset) == operand.displacement_offset);
        let address = match field {
            Some(field) => {
                Address { symbol: Some(field.symbol), displacement: field.addend, ..operand.address }
            }
            None => operand.address,
        };
        Some((self.place(state, &address)?, operand.width))
    }

    /// Returns the content of memory, zero-extended, and the number of the fact that says it.
    fn content(&self, state: &State, place: (Base, i32), width: u8) -> (Value, Option<usize>) {
        if let (Base::Symbol(symbol), 1 | 2 | 4) = (place.0, width)
            && let Some(constant) = self.original.memory.read(symbol, place.1.into(), width)
        {
            let value = match constant.symbol {
                Some(symbol) => Value::Symbol(symbol, constant.number as i64),
                None => Value::number(constant.number as u32),
            };
            return (value, None);
        }
        state.load(place, width)
    }

    /// Returns the value of an operand, zero-extended, and the number of the fact that says it.
    pub fn operand(&self, state: &State, operand: Operand) -> (Value, Option<usize>) {
        let value = match operand {
            Operand::Const(number) => Value::number(number as u32),
            Operand::Symbol { symbol, addend } => Value::Symbol(symbol, addend),
            Operand::Reg { reg, width } if i32::from(width) >= WORD => state.register(reg),
            Operand::Reg { reg, width } => Value::Bits(state.register(reg).bits().low(width)),
            Operand::Load { from, width } => match self.place(state, &from) {
                Some(place) => return self.content(state, place, width),
                None => Value::Any,
            },
            Operand::Address(address) => self.place(state, &address).map_or(Value::Any, Value::at),
            Operand::Unknown => Value::Any,
        };
        (value, None)
    }

    /// Returns the value of an operand, zero-extended, and records the use of the fact that says it.
    pub fn read(&mut self, state: &State, operand: Operand) -> Value {
        let (value, fact) = self.operand(state, operand);
        self.used.extend(fact);
        value
    }

    /// Applies an instruction that does not transfer control.
    ///
    /// # Errors
    /// The reason why the path cannot be followed.
    pub fn apply(&mut self, key: Key, instruction: &Instruction<'g>, state: &mut State) -> Result<(), Why> {
        let before = state.clone();
        if self.fill(instruction, &before, state).is_some() {
            return Ok(());
        }
        let memory = match self.operand_place(&before, instruction) {
            Some((place, width @ (1 | 2 | 4))) => {
                let (value, fact) = self.content(&before, place, width);
                // A plain store does not read the memory.
                if !matches!(
                    instruction.effects[..],
                    [Effect::Store {
                        value: Operand::Reg { .. } | Operand::Const(_) | Operand::Symbol { .. },
                        ..
                    }]
                ) {
                    self.used.extend(fact);
                }
                value.bits()
            }
            _ => Bits::UNKNOWN,
        };
        self.name_operand(key, instruction, &before, state);
        let register = |reg| before.register(reg).bits();
        let operand = self.original.isa.memory_operand(&instruction.inst);
        let in_operand = operand.and_then(|operand| operand.displacement_offset);
        let relocated_immediate = instruction.fields.iter().any(|field| Some(field.offset) != in_operand);
        let inputs = Inputs { register: &register, memory, flags: before.flags, relocated_immediate };
        let outcome = self.original.specialize.evaluate(&instruction.inst, &inputs);
        state.temporary = Value::Any;
        for effect in &instruction.effects {
            self.effect(key, effect, outcome.condition, state)?;
        }
        state.flags = outcome.flags;
        if instruction.effects.iter().any(|effect| effect.flags() != Flags::Kept) {
            state.compared = None;
        }
        if let [Effect::Compare { left, right, width: 4 }] = instruction.effects[..] {
            let before = state.clone();
            if let Some(equality) = self.equality(&before, left, right) {
                state.flags = self.original.specialize.flags_of(equality, outcome.flags);
                for operand in [left, right] {
                    if let Value::Name(name, 0) = self.operand(&before, operand).0
                        && !before.nonzero.contains(&name)
                    {
                        self.used_addresses.insert(name);
                    }
                }
            }
            let (left, right) = (self.operand(&before, left).0, self.operand(&before, right).0);
            if let (Value::Name(name, offset), Some(number)) = (left, right.get()) {
                state.compared = Some((name, offset, number));
            }
        }
        self.refine(key, instruction, outcome.result, &before, state);
        let (from, to) = (self.stack(&before)?, self.stack(state)?);
        let is_push = self.original.specialize.uses_stack_pointer(&instruction.inst) && to == from - WORD;
        if is_push && instruction.effects.iter().any(|effect| matches!(effect, Effect::Store { .. })) {
            state.pushed.insert(to);
        }
        Ok(())
    }

    fn equality(&self, state: &State, left: Operand, right: Operand) -> Option<Equality> {
        let (left, right) = (self.operand(state, left).0, self.operand(state, right).0);
        left.compare(right, |value| self.is_address(state, value))
    }

    /// Whether a value is the address of something, and so not 0.
    fn is_address(&self, state: &State, value: Value) -> bool {
        match value {
            Value::Stack(_) => true,
            Value::Name(name, 0) => state.nonzero.contains(&name) || self.context.exists.contains(&name),
            // A weak symbol that is undefined is 0.
            Value::Symbol(symbol, 0) => self.original.graph.node_of(symbol).is_some(),
            _ => false,
        }
    }

    /// Puts known results, and names of unknown ones, into the registers that an instruction writes.
    fn refine(
        &mut self,
        key: Key,
        instruction: &Instruction<'g>,
        result: Option<(Written, Bits)>,
        before: &State,
        state: &mut State,
    ) {
        match result {
            Some((Written::Register { reg, width, shift }, bits)) => {
                let old = before.register(reg).bits();
                let bits = old.with(bits, width, shift);
                let known = state.register(reg);
                let is_more = bits.known.count_ones() > known.bits().known.count_ones();
                let is_named = !matches!(known, Value::Any | Value::Bits(_));
                if is_more && !is_named && bits.known.count_ones() >= WORTH {
                    state.set_register(reg, Value::Bits(bits));
                }
            }
            Some((Written::Memory { width }, bits)) if bits.low(width).get().is_some() => {
                if let Some((place, own)) = self.operand_place(before, instruction)
                    && own == width
                {
                    let outside = |name| self.context.outside.contains(&name);
                    state.store(place, width, Value::Bits(bits), outside);
                }
            }
            _ => {}
        }
        let written = instruction.effects.iter().fold(0, |set, effect| set | effect.registers_written());
        for reg in (0..super::state::REGISTERS as u8).map(Reg).filter(|reg| written >> reg.0 & 1 != 0) {
            if matches!(state.register(reg), Value::Any | Value::Bits(Bits { known: 0, .. })) {
                let name = self.result_name(key, instruction.offset, reg);
                state.forget_name(name);
                state.set_register(reg, Value::Name(name, 0));
            }
        }
        self.note_load(instruction, before, state);
    }

    /// Gives a name to the unknown word of the stack that a comparison reads, so that a branch may learn its value.
    fn name_operand(&mut self, key: Key, instruction: &Instruction<'g>, before: &State, state: &mut State) {
        let [Effect::Compare { width: 4, .. }] = instruction.effects[..] else { return };
        if let Some(((Base::Stack, word), 4)) = self.operand_place(before, instruction)
            && word % WORD == 0
            && !before.stack.contains_key(&word)
        {
            let name = self.result_name(key, instruction.offset, Reg(u8::MAX));
            state.forget_name(name);
            state.set_stack(word, Value::Name(name, 0));
        }
    }

    /// Records that a word of the stack holds what an instruction loads from it.
    fn note_load(&self, instruction: &Instruction<'g>, before: &State, state: &mut State) {
        let [Effect::Set { dst, value: Operand::Load { from, width }, .. }] = instruction.effects[..] else {
            return;
        };
        if let Some((Base::Stack, offset)) = self.place(before, &from).filter(|_| i32::from(width) == WORD)
            && offset % WORD == 0
            && !state.stack.contains_key(&offset)
        {
            state.set_stack(offset, state.register(dst));
        }
    }

    /// Applies a repeated store to the stack, if its place and number are known.
    fn fill(&mut self, instruction: &Instruction<'g>, before: &State, state: &mut State) -> Option<()> {
        let (fill, to, value, count) = self.filled(instruction, before)?;
        let outside = |name| self.context.outside.contains(&name);
        for number in 0..count {
            let place = (Base::Stack, to + (number * u32::from(fill.width)) as i32);
            state.store(place, fill.width, value.map_or(Value::Any, Value::number), outside);
        }
        state.set_register(fill.to, Value::Stack(to + (count * u32::from(fill.width)) as i32));
        state.set_register(fill.count, Value::number(0));
        Some(())
    }

    /// Returns the first place on the stack, the value, if known, and the number of the stores of a
    /// repeated store.
    pub fn filled(
        &self,
        instruction: &Instruction<'g>,
        before: &State,
    ) -> Option<(Fill, i32, Option<u32>, u32)> {
        let fill = self.original.specialize.fill(&instruction.inst)?;
        let Value::Stack(to) = before.register(fill.to) else { return None };
        let count = before.register(fill.count).get()?;
        let value = before.register(fill.value).bits().low(fill.width).get();
        let aligned = to % i32::from(fill.width) == 0;
        (aligned && count.checked_mul(fill.width.into())? <= MAX_FILL).then_some((fill, to, value, count))
    }

    fn effect(
        &mut self,
        key: Key,
        effect: &Effect,
        condition: Option<bool>,
        state: &mut State,
    ) -> Result<(), Why> {
        match *effect {
            Effect::Set { dst, value, width } => {
                let value = self.read(state, value);
                state.set_part(dst, value, width);
            }
            Effect::MaybeSet { dst, value, width } => {
                let value = self.read(state, value);
                match condition {
                    Some(true) => state.set_part(dst, value, width),
                    Some(false) => {}
                    None if i32::from(width) == WORD && state.register(dst) == value => {}
                    None => {
                        let both = state.register(dst).bits().join(value.bits());
                        let both = if i32::from(width) == WORD { both } else { Bits::UNKNOWN };
                        state.set_register(dst, Value::Bits(both));
                    }
                }
            }
            Effect::SetSigned { dst, value, from, width } => {
                let value = self.read(state, value).bits().low(from).get();
                let value =
                    value.map_or(Value::Any, |value| Value::number(sign_extend(value.into(), from) as u32));
                state.set_part(dst, value, width);
            }
            Effect::Binary { op, dst, left, right, width } => {
                let (left, right) = (self.read(state, left), self.read(state, right));
                let value =
                    if i32::from(width) == WORD { Value::binary(op, left, right) } else { Value::Any };
                state.set_part(dst, value, width);
            }
            Effect::Store { to, value, width } => {
                let value = if i32::from(width) == WORD {
                    self.read(state, value)
                } else {
                    Value::Bits(self.read(state, value).bits().low(width.min(4)))
                };
                self.store(key, &to, width, value, state)?;
            }
            Effect::Compare { left, right, .. } => {
                self.read(state, left);
                self.read(state, right);
            }
            Effect::CompareZero { value, .. } => drop(self.read(state, value)),
            Effect::ClobberFlags => {}
            Effect::Clobber(reg) => state.set_register(reg, Value::Any),
            Effect::ClobberMemory => self.store_anywhere(state),
            Effect::ClobberRange(to) => match self.place(state, &to) {
                Some((Base::Stack, _)) => return Err("it fills a part of its frame that is not known"),
                Some((base @ Base::Name(_), _)) => {
                    self.store_anywhere(state);
                    state.words.retain(|&(other, _), _| other != base);
                }
                _ => self.store_anywhere(state),
            },
            Effect::Swap(one, other) => {
                let (first, second) = (state.register(one), state.register(other));
                state.set_register(one, second);
                state.set_register(other, first);
            }
            Effect::Escape(operand) => {
                let value = self.read(state, operand);
                let stack = self.stack(state)?;
                self.expose(key.0, stack, value, state);
            }
            Effect::SystemCall { .. } => return Err("it makes a system call"),
            Effect::Transfer(_)
            | Effect::BranchIf(_)
            | Effect::BranchIfCompared { .. }
            | Effect::OnlyIf(_) => {
                return Err("it transfers control in a way that is not supported");
            }
        }
        Ok(())
    }

    fn store(
        &mut self,
        key: Key,
        to: &Address,
        width: u8,
        value: Value,
        state: &mut State,
    ) -> Result<(), Why> {
        let Some(place) = self.place(state, to) else {
            let registers = [to.base, to.index.map(|(index, _)| index)];
            let framed = |reg: &Reg| matches!(state.register(*reg), Value::Stack(_));
            if registers.iter().flatten().any(framed) {
                return Err("it stores in its frame by an index");
            }
            let stack = self.stack(state)?;
            self.expose(key.0, stack, value, state);
            self.store_anywhere(state);
            return Ok(());
        };
        let is_seen = |word| state.exposed.contains(&word);
        if place.0 != Base::Stack || super::state::words(place.1, width).any(is_seen) {
            let stack = self.stack(state)?;
            self.expose(key.0, stack, value, state);
        }
        let outside = |name| self.context.outside.contains(&name);
        state.store(place, width, value, outside);
        Ok(())
    }

    fn store_anywhere(&self, state: &mut State) {
        state.forget_words(None);
        state.forget_exposed();
    }
}
