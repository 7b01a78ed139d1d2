//! Operations of instructions that do not use the stack pointer.

use kcfg::graph::{Contents, Graph, Target};
use kcfg::instructions::Instruction;
use kisa::specializing::{Place, Simple};
use kisa::{Effect, Inst, Reg, Rewritable, Value as Operand};

use super::super::context::target;
use super::super::explore::Why;
use super::super::state::{REGISTERS, State, WORD};
use super::super::value::{Base, Value};
use super::{Code, ENCODING, Maker, Op, bit, reference};

impl<'g> Maker<'_, 'g> {
    /// Makes an operation of an instruction.
    ///
    /// # Errors
    /// The reason why it cannot be copied.
    pub fn general(&self, before: &State, instruction: &Instruction<'g>, after: &State) -> Result<Op, Why> {
        let explorer = self.explorer;
        let isa = explorer.original.isa;
        let mut changed =
            Changed { bytes: instruction.inst.bytes.to_vec(), number: None, displacement: None };
        for field in &instruction.fields {
            let address = explorer.original.graph.target_of(field.symbol).ok_or("an address is not one")?;
            let address = (address, field.addend);
            let operand = isa.memory_operand(&instruction.inst);
            match operand.and_then(|operand| operand.displacement_offset) == Some(field.offset) {
                true => changed.displacement = Some(address),
                false => changed.number = Some(address),
            }
        }
        self.with_known_operand(before, instruction, &mut changed);
        let width = isa.memory_operand(&instruction.inst).map_or(0, |operand| operand.width);
        if let Some((place, _)) = explorer.operand_place(before, instruction).filter(|_| width > 0) {
            let new = match place {
                (Base::Stack, offset) => Some((self.slot(offset), None)),
                (Base::Symbol(symbol), offset) => {
                    explorer.original.graph.target_of(symbol).map(|target| {
                        (Place { base: None, displacement: 0 }, Some((target, i64::from(offset))))
                    })
                }
                _ => None,
            };
            let inst = decode(isa, &changed.bytes)?;
            // A number may have taken the place of the operand.
            let has_operand = isa.memory_operand(&inst).is_some();
            if let Some((place, address)) = new.filter(|_| has_operand) {
                if let Some(bytes) = explorer.original.specialize.with_operand(&inst, place) {
                    (changed.bytes, changed.displacement) = (bytes, address);
                } else if place.base.is_some() {
                    return Err("an access to the stack cannot be encoded");
                }
            }
        }
        let named = isa.memory_operand(&decode(isa, &changed.bytes)?).map(|operand| operand.address);
        let is_rebased = explorer.operand_place(before, instruction).is_some() && width > 0;
        let uses_stack = named.is_some_and(|address| {
            [address.base, address.index.map(|(index, _)| index)].contains(&Some(self.stack_pointer()))
        });
        let is_lea = width == 0 && written_one(instruction).is_some_and(|reg| after.register(reg).is_known());
        if uses_stack && !is_rebased && !is_lea {
            return Err("it uses its frame by an index");
        }
        let contents = changed.contents(explorer.original.graph)?;
        let bytes = contents.bytes.clone();
        let inst = decode(isa, &bytes)?;
        let mut op = self.effects(before, instruction, &inst, Code::Plain(contents));
        if isa.memory_operand(&inst).is_none() && isa.string_registers(&inst) == 0 {
            op.loads.clear();
        }
        let in_frame = op.stores.len() + op.changes.len() > 0;
        op.removable = isa.only_computes(&instruction.inst) || in_frame && isa.only_stores(&instruction.inst);
        let written = op.writes;
        let mut single = (0..REGISTERS as u8).map(Reg).filter(|reg| written & bit(*reg) != 0);
        if let (Some(reg), None, true) = (single.next(), single.next(), isa.only_computes(&instruction.inst))
        {
            let loads = !op.loads.is_empty() && op.kills == bit(reg);
            self.shorten(before, after, reg, loads, &mut op)?;
        }
        Ok(op)
    }

    /// Gives an operation that writes one register a shorter form if its result is known.
    ///
    /// # Errors
    /// If the value has no encoding.
    pub fn shorten(
        &self,
        before: &State,
        after: &State,
        reg: Reg,
        loads: bool,
        op: &mut Op,
    ) -> Result<(), Why> {
        let value = after.register(reg);
        if value.is_known() {
            op.short = Some(Box::new(self.set_op(reg, value)?));
        } else if before.register(reg) == value && matches!(value, Value::Name(..)) {
            op.short = Some(Box::new(Op::new(Code::Plain(Contents::default()))));
        } else if loads && matches!(value, Value::Name(..)) {
            let preserved = !self.explorer.original.isa.convention().call_clobbered;
            let mut others = (0..REGISTERS as u8).map(Reg).filter(|&other| before.register(other) == value);
            if let Some(other) = others.find(|other| preserved & bit(*other) != 0) {
                let code = Code::Plain(self.simple(Simple::Copy(reg, other))?);
                let copy = Op { reads: bit(other), writes: bit(reg), kills: bit(reg), ..Op::new(code) };
                op.short = Some(Box::new(copy));
            }
        }
        Ok(())
    }

    /// Puts a known number in place of the last operand of an instruction.
    fn with_known_operand(&self, before: &State, instruction: &Instruction<'g>, changed: &mut Changed) {
        if changed.number.is_some() {
            return;
        }
        let operand = instruction.effects.iter().find_map(|effect| match *effect {
            Effect::Compare { right, width, .. } | Effect::Binary { right, width, .. } => {
                Some((right, width))
            }
            Effect::Store { value, width, .. } => Some((value, width)),
            _ => None,
        });
        let Some((operand @ (Operand::Reg { .. } | Operand::Load { .. }), width)) = operand else { return };
        let value = self.explorer.operand(before, operand).0;
        let address = target(self.explorer.original.graph, value).filter(|_| i32::from(width) == WORD);
        let number = value.bits().low(width.min(4)).get();
        if let Some(number) = number.or(address.map(|_| 0x1000_0000))
            && let Some(bytes) = self.explorer.original.specialize.with_number(&instruction.inst, number)
        {
            changed.bytes = bytes;
            changed.number = address;
        }
    }
}

/// An instruction that is being changed.
struct Changed {
    bytes: Vec<u8>,
    /// The address that its number is.
    number: Option<(Target, i64)>,
    /// The address that its displacement is.
    displacement: Option<(Target, i64)>,
}

impl Changed {
    fn contents(self, graph: &Graph) -> Result<Contents, Why> {
        let inst = decode(graph.isa(), &self.bytes)?;
        let mut refs = Vec::new();
        if let Some(address) = self.displacement {
            let operand = graph.isa().memory_operand(&inst).and_then(|operand| operand.displacement_offset);
            let at = operand.ok_or("an operand has no field for an address")?;
            refs.push(reference(graph, at.into(), address));
        }
        if let Some(address) = self.number {
            let at =
                (self.bytes.len() as u32).checked_sub(4).ok_or("a number has no field for an address")?;
            refs.push(reference(graph, at, address));
        }
        Ok(Contents { bytes: self.bytes, refs })
    }
}

fn decode<'b>(isa: &'b dyn Rewritable, bytes: &'b [u8]) -> Result<Inst<'b>, Why> {
    isa.decode(bytes, ENCODING.at(0)).ok_or("an instruction cannot be read again")
}

/// Returns the register that an instruction writes, if it is one.
fn written_one(instruction: &Instruction<'_>) -> Option<Reg> {
    let written = instruction.effects.iter().fold(0, |set, effect| set | effect.registers_written());
    (written.count_ones() == 1).then(|| Reg(written.trailing_zeros() as u8))
}
