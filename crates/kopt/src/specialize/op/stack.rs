//! Operations of instructions that use the stack pointer.

use kcfg::instructions::Instruction;
use kisa::specializing::{Place, Simple};
use kisa::{Effect, Reg, Value as Operand};

use super::super::explore::Why;
use super::super::state::{REGISTERS, State, WORD};
use super::super::value::{Base, Value};
use super::{Code, Maker, Op, bit, plain};

impl<'g> Maker<'_, 'g> {
    /// Makes operations of an instruction.
    ///
    /// # Errors
    /// The reason why it cannot be copied.
    pub fn on_stack(
        &self,
        before: &State,
        instruction: &Instruction<'g>,
        after: &State,
    ) -> Result<Vec<Op>, Why> {
        let (from, to) = (self.explorer.stack(before)?, self.explorer.stack(after)?);
        let native = |maker: &Self| -> Result<Vec<Op>, Why> {
            let contents = plain(maker.explorer.original.graph, instruction)?;
            let mut op =
                maker.effects(before, instruction, &instruction.inst, Code::Native(contents, from, to));
            op.removable = false;
            // It may also use words around the stack pointer.
            op.loads.extend((from.min(to)..from.max(to)).step_by(WORD as usize));
            op.changes.append(&mut op.stores);
            op.changes.extend((to..from).step_by(WORD as usize));
            Ok(vec![op])
        };
        let stores: Vec<Operand> = instruction.effects.iter().filter_map(stored).collect();
        let registers = instruction.effects.iter().fold(0, |set, effect| set | effect.registers_written());
        let registers = registers & ((1 << REGISTERS) - 1) & !bit(self.stack_pointer());
        let flags = instruction.effects.iter().any(|effect| effect.flags() != kisa::Flags::Kept);
        match stores[..] {
            // A push.
            [value] if to == from - WORD && registers == 0 && !flags => {
                let known = self.explorer.operand(before, value).0;
                if known.is_known() && !matches!(known, Value::Stack(_)) {
                    return Ok(vec![self.store_op(to, self.store(to, known)?, 0)]);
                }
                match value {
                    Operand::Reg { reg, width: 4 } if reg != self.stack_pointer() => {
                        let code = self.simple(Simple::Store(self.slot(to), reg, WORD as u8))?;
                        Ok(vec![self.store_op(to, code, bit(reg))])
                    }
                    Operand::Load { from: address, width: 4 } => {
                        let contents = plain(self.explorer.original.graph, instruction)?;
                        let otherwise = Code::Native(contents, from, to);
                        let place = match self.explorer.place(before, &address) {
                            Some((Base::Stack, word)) => Some(self.slot(word)),
                            _ if address.symbol.is_none() && address.index.is_none() => {
                                Some(Place { base: address.base, displacement: address.displacement as i32 })
                            }
                            _ => None,
                        };
                        let Some(place) = place.filter(|_| address.segment.is_none()) else {
                            return native(self);
                        };
                        let mut op = self.effects(before, instruction, &instruction.inst, otherwise.clone());
                        if place.base != Some(self.stack_pointer()) {
                            op.reads |= place.base.map_or(0, bit);
                        } else {
                            op.reads = 0;
                        }
                        op.code = Code::Move(place, to, Box::new(otherwise));
                        (op.stores, op.changes) = (vec![to], Vec::new());
                        op.removable = true;
                        Ok(vec![op])
                    }
                    _ => native(self),
                }
            }
            [] if self.explorer.original.isa.reads(&instruction.inst).memory
                || instruction.effects.iter().any(loads_stack(self.stack_pointer())) =>
            {
                self.pop(before, instruction, after, registers).map_or_else(|| native(self), Ok)
            }
            // The stack pointer moves, or is copied.
            [] => {
                let mut ops = Vec::new();
                for reg in (0..REGISTERS as u8).map(Reg).filter(|reg| registers & bit(*reg) != 0) {
                    match after.register(reg) {
                        value if value.is_known() => ops.push(self.set_op(reg, value)?),
                        _ => return native(self),
                    }
                }
                if flags {
                    // Nothing computes the flags.
                    let mut op =
                        Op::new(Code::Native(plain(self.explorer.original.graph, instruction)?, from, to));
                    (op.writes_flags, op.kills_flags) = (true, true);
                    op.reads = self.explorer.original.isa.reads(&instruction.inst).registers
                        & ((1 << REGISTERS) - 1)
                        & !bit(self.stack_pointer());
                    ops.insert(0, op);
                }
                Ok(ops)
            }
            // A store that copies the stack pointer.
            [_] if to == from && registers == 0 && !flags => {
                let mut ops = native(self)?;
                let inst = &instruction.inst;
                let own = self.effects(before, instruction, inst, ops[0].code.clone());
                if own.stores.len() == 1 && own.loads.is_empty() {
                    let word = own.stores[0];
                    ops = vec![Op { code: Code::Address(from, word, Box::new(own.code.clone())), ..own }];
                }
                Ok(ops)
            }
            _ => native(self),
        }
    }

    /// Makes operations of an instruction that pops a register.
    fn pop(
        &self,
        before: &State,
        instruction: &Instruction<'g>,
        after: &State,
        registers: u64,
    ) -> Option<Vec<Op>> {
        let to = self.explorer.stack(after).ok()?;
        let word = to - WORD;
        let mut single = (0..REGISTERS as u8).map(Reg).filter(|reg| registers & bit(*reg) != 0);
        let (reg, None) = (single.next()?, single.next()) else { return None };
        let loads: Vec<Operand> = instruction
            .effects
            .iter()
            .flat_map(|effect| effect.operands().collect::<Vec<_>>())
            .filter(|operand| matches!(operand, Operand::Load { .. }))
            .collect();
        let flags = instruction.effects.iter().any(|effect| effect.flags() != kisa::Flags::Kept);
        if loads.len() != 1 || flags {
            return None;
        }
        let code = self.simple(Simple::Load(reg, self.slot(word))).ok()?;
        let mut op = Op { writes: bit(reg), kills: bit(reg), ..Op::new(Code::Plain(code)) };
        op.loads.insert(word);
        self.shorten(before, after, reg, true, &mut op).ok()?;
        Some(vec![op])
    }
}

/// Returns the value that an effect stores.
fn stored(effect: &Effect) -> Option<Operand> {
    match *effect {
        Effect::Store { value, .. } => Some(value),
        _ => None,
    }
}

/// Whether an effect loads through the stack pointer.
fn loads_stack(stack_pointer: Reg) -> impl Fn(&Effect) -> bool {
    move |effect| effect.memory_read().any(|(address, _)| address.base == Some(stack_pointer))
}
