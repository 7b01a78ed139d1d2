//! The operations of a path: what is left of each instruction, and what it needs.

mod call;
mod general;
mod stack;

use std::collections::BTreeSet;

use kcfg::graph::{Contents, Graph, Ref, Role, Target};
use kcfg::instructions::Instruction;
use kelf::RelocClass;
use kisa::specializing::{Bits, Place, Simple};
use kisa::{Effect, Encoding, Inst, Reg, Value as Operand};

use super::context::target;
use super::explore::{Explorer, Why};
use super::state::{REGISTERS, State, WORD, words};
use super::value::{Base, Value};

/// The encoding of the copied code.
const ENCODING: Encoding = Encoding::Main;

/// The code of an operation.
#[derive(Clone, Debug)]
pub enum Code {
    /// Instructions.
    Plain(Contents),
    /// An instruction of the original that uses its stack pointer, with that before and after it, in bytes from the one at
    /// the entry of the path.
    Native(Contents, i32, i32),
    /// A load of a word from a place and a store to the stack, which need a register; and the original otherwise.
    Move(Place, i32, Box<Code>),
    /// A store of an address of the stack, given by its offset, to a word, which needs a register; and the original
    /// otherwise.
    Address(i32, i32, Box<Code>),
    /// A call; with arguments on the stack, the original's stack pointer before it.
    Call(Contents, Option<i32>),
}

/// An operation.
#[derive(Clone, Debug)]
pub struct Op {
    /// Its code.
    pub code: Code,
    /// The registers that it reads, as a set of bits.
    pub reads: u64,
    /// The registers that it may change.
    pub writes: u64,
    /// The registers that it overwrites completely.
    pub kills: u64,
    /// Whether it reads flags.
    pub reads_flags: bool,
    /// Whether it may change flags, and whether it gives them all new values.
    pub writes_flags: bool,
    pub kills_flags: bool,
    /// The words of the stack that it may read.
    pub loads: BTreeSet<i32>,
    /// The words of the stack that it overwrites completely, and others that it may change.
    pub stores: Vec<i32>,
    pub changes: Vec<i32>,
    /// Whether it can go if nothing needs its results.
    pub removable: bool,
    /// A shorter form that sets no flags.
    pub short: Option<Box<Op>>,
}

impl Op {
    /// Creates an operation without effects.
    pub fn new(code: Code) -> Op {
        Op {
            code,
            reads: 0,
            writes: 0,
            kills: 0,
            reads_flags: false,
            writes_flags: false,
            kills_flags: false,
            loads: BTreeSet::new(),
            stores: Vec::new(),
            changes: Vec::new(),
            removable: true,
            short: None,
        }
    }
}

/// Returns a register as a set of bits.
pub fn bit(reg: Reg) -> u64 {
    1 << reg.0
}

/// Returns a reference to an address in 4 bytes of code.
pub fn reference(graph: &Graph, offset: u32, (target, addend): (Target, i64)) -> Ref {
    let r_type = goblin::elf::reloc::R_386_32;
    let class =
        kelf::reloc::describe(graph.machine(), r_type).map_or(RelocClass::Absolute, |(class, _)| class);
    Ref { offset, r_type, class, width: 4, bias: 0, target, addend, role: Role::Address }
}

/// Makes operations of instructions.
pub struct Maker<'e, 'g> {
    pub explorer: &'e Explorer<'g>,
    /// The stack pointer of the path, in bytes from the one at its entry.
    pub lowest: i32,
}

impl<'g> Explorer<'g> {
    /// Returns the maker of its operations.
    pub fn maker(&self) -> Maker<'_, 'g> {
        Maker { explorer: self, lowest: self.lowest }
    }
}

impl<'g> Maker<'_, 'g> {
    fn stack_pointer(&self) -> Reg {
        self.explorer.original.isa.convention().stack_pointer
    }

    /// Returns the place of a word of the stack.
    pub fn slot(&self, word: i32) -> Place {
        Place { base: Some(self.stack_pointer()), displacement: word - self.lowest }
    }

    /// Returns the code of simple operations.
    ///
    /// # Errors
    /// If one has no encoding.
    pub fn simple(&self, simple: Simple) -> Result<Contents, Why> {
        let encoded =
            self.explorer.original.specialize.encode(simple, false).ok_or("an operation has no encoding")?;
        Ok(Contents { bytes: encoded.bytes, refs: Vec::new() })
    }

    /// Returns the code of a simple operation whose number is an address.
    fn with_address(&self, simple: Simple, address: (Target, i64)) -> Result<Contents, Why> {
        let encoded =
            self.explorer.original.specialize.encode(simple, false).ok_or("an operation has no encoding")?;
        let at = encoded.number.ok_or("an operation has no field for an address")?;
        Ok(Contents {
            bytes: encoded.bytes,
            refs: vec![reference(self.explorer.original.graph, at.into(), address)],
        })
    }

    /// Returns the code that puts a known value into a register.
    ///
    /// # Errors
    /// If the value is not known.
    pub fn set(&self, reg: Reg, value: Value) -> Result<Contents, Why> {
        match value {
            Value::Bits(Bits { known: u32::MAX, value }) => self.simple(Simple::Number(reg, value)),
            Value::Stack(offset) => self.simple(Simple::Address(reg, self.slot(offset))),
            _ => {
                let address = target(self.explorer.original.graph, value).ok_or("a value is unknown")?;
                self.with_address(Simple::Number(reg, 0), address)
            }
        }
    }

    /// Returns the code that stores a known number or address of a symbol to the stack.
    ///
    /// # Errors
    /// If the value is not known, or is an address of the stack.
    pub fn store(&self, word: i32, value: Value) -> Result<Contents, Why> {
        match value.get() {
            Some(number) => self.simple(Simple::StoreNumber(self.slot(word), number, WORD as u8)),
            None => {
                let address = target(self.explorer.original.graph, value).ok_or("a value is unknown")?;
                self.with_address(Simple::StoreNumber(self.slot(word), 0, WORD as u8), address)
            }
        }
    }

    /// Returns the operation that sets a register to a known value.
    fn set_op(&self, reg: Reg, value: Value) -> Result<Op, Why> {
        let code = Code::Plain(self.set(reg, value)?);
        Ok(Op { writes: bit(reg), kills: bit(reg), ..Op::new(code) })
    }

    /// Returns the operation that stores to a word of the stack.
    fn store_op(&self, word: i32, contents: Contents, reads: u64) -> Op {
        Op { reads, stores: vec![word], ..Op::new(Code::Plain(contents)) }
    }

    /// Returns the operation that stores a return address.
    ///
    /// # Errors
    /// If it has no encoding.
    pub fn store_return(&self, word: i32, value: Value) -> Result<Op, Why> {
        Ok(self.store_op(word, self.store(word, value)?, 0))
    }

    /// Returns the operations of an instruction, given the states before and after it.
    ///
    /// # Errors
    /// The reason why it cannot be copied.
    pub fn make(&self, before: &State, instruction: &Instruction<'g>, after: &State) -> Result<Vec<Op>, Why> {
        let mut ops = match self.fill(before, instruction)? {
            Some(ops) => ops,
            None if self.explorer.original.specialize.uses_stack_pointer(&instruction.inst) => {
                self.on_stack(before, instruction, after)?
            }
            None => vec![self.general(before, instruction, after)?],
        };
        // Interrupts and other tasks may read what has an address elsewhere, at any time.
        for op in &mut ops {
            let is_seen = |word: &i32| before.exposed.contains(word) || *word >= 0;
            op.removable &= !op.stores.iter().chain(&op.changes).any(is_seen);
        }
        if let Some(last) = ops.last_mut().filter(|_| after.exposed != before.exposed) {
            last.loads.extend(&after.exposed);
            (last.removable, last.short) = (false, None);
        }
        Ok(ops)
    }

    fn fill(&self, before: &State, instruction: &Instruction<'g>) -> Result<Option<Vec<Op>>, Why> {
        let Some((fill, to, value, count)) = self.explorer.filled(instruction, before) else {
            return Ok(None);
        };
        let end = to + (count * u32::from(fill.width)) as i32;
        let Some(value) = value else {
            let mut op = Op::new(Code::Plain(plain(self.explorer.original.graph, instruction)?));
            op.reads = bit(fill.to) | bit(fill.count) | bit(fill.value);
            (op.writes, op.kills) = (bit(fill.to) | bit(fill.count), bit(fill.to) | bit(fill.count));
            let all = (to..end).step_by(WORD as usize);
            match to % WORD == 0 && end % WORD == 0 {
                true => op.stores.extend(all),
                false => op.changes.extend(words(to, 1).chain(all)),
            }
            return Ok(Some(vec![op]));
        };
        let value = match fill.width {
            1 => value * 0x0101_0101,
            2 => value * 0x0001_0001,
            _ => value,
        };
        let (mut ops, mut at) = (Vec::new(), to);
        while at < end {
            let width = [4, 2, 1].into_iter().find(|width| at % width == 0 && at + width <= end).unwrap_or(1);
            let number = value & u32::MAX >> (32 - 8 * width);
            let code = self.simple(Simple::StoreNumber(self.slot(at), number, width as u8))?;
            let mut op = Op::new(Code::Plain(code));
            match width == WORD {
                true => op.stores.push(at),
                false => op.changes.extend(words(at, width as u8)),
            }
            ops.push(op);
            at += width;
        }
        ops.push(self.set_op(fill.to, Value::Stack(end))?);
        ops.push(self.set_op(fill.count, Value::number(0))?);
        Ok(Some(ops))
    }

    /// Returns an operation with the effects of an instruction, whose code reads the registers of `inst`.
    fn effects(&self, before: &State, instruction: &Instruction<'g>, inst: &Inst<'_>, code: Code) -> Op {
        let explorer = self.explorer;
        let all = ((1 << REGISTERS) - 1) & !bit(self.stack_pointer());
        let mut op = Op::new(code);
        let reads = explorer.original.isa.reads(inst);
        (op.reads, op.reads_flags) = (reads.registers & all, reads.flags);
        for effect in &instruction.effects {
            op.writes |= effect.registers_written() & all;
            op.kills |= effect.registers_overwritten() & all;
            op.writes_flags |= effect.flags() != kisa::Flags::Kept;
        }
        op.kills_flags = op.writes_flags && explorer.original.specialize.overwrites_flags(inst);
        op.writes_flags |= explorer.original.specialize.overwrites_flags(inst);
        let loaded = instruction.effects.iter().flat_map(|effect| effect.memory_read().collect::<Vec<_>>());
        for (address, width) in loaded {
            self.note_load(before, explorer.place(before, &address), width, &mut op);
        }
        // A read that the effects do not show.
        if explorer.original.isa.reads(inst).memory {
            match explorer.operand_place(before, instruction) {
                Some((place, width)) => self.note_load(before, Some(place), width, &mut op),
                None => self.note_load(before, None, 0, &mut op),
            }
            if explorer.original.isa.string_registers(inst) != 0 {
                self.note_load(before, None, 0, &mut op);
            }
        }
        for effect in &instruction.effects {
            let Effect::Store { to, width, .. } = effect else { continue };
            let Some((Base::Stack, offset)) = explorer.place(before, to) else { continue };
            let only = explorer.original.isa.only_stores(&instruction.inst);
            match i32::from(*width) == WORD && offset % WORD == 0 && only {
                true => op.stores.push(offset),
                false => op.changes.extend(words(offset, *width)),
            }
        }
        // A plain store reads nothing there, but iced lists the operand as an access.
        let plain = matches!(
            instruction.effects[..],
            [Effect::Store { value: Operand::Reg { .. } | Operand::Const(_) | Operand::Symbol { .. }, .. }]
        );
        if plain {
            op.loads.clear();
        }
        op
    }

    fn note_load(&self, before: &State, place: Option<(Base, i32)>, width: u8, op: &mut Op) {
        match place {
            Some((Base::Stack, offset)) => op.loads.extend(words(offset, width.max(1))),
            Some((Base::Symbol(_), _)) => {}
            Some((Base::Name(name), _)) if self.explorer.context.outside.contains(&name) => {}
            Some(_) => op.loads.extend(&before.exposed),
            None => {
                op.loads.extend(&before.exposed);
                if before.registers.iter().enumerate().any(|(number, value)| {
                    Reg(number as u8) != self.stack_pointer() && matches!(value, Value::Stack(_))
                }) {
                    op.loads.extend((self.lowest..0).step_by(WORD as usize));
                }
            }
        }
    }
}

/// Returns an instruction as it is.
fn plain(graph: &Graph, instruction: &Instruction<'_>) -> Result<Contents, Why> {
    let fields = instruction.fields.iter().map(|field| {
        let target = graph.target_of(field.symbol).ok_or("an address is not one")?;
        Ok(reference(graph, field.offset.into(), (target, field.addend)))
    });
    Ok(Contents { bytes: instruction.inst.bytes.to_vec(), refs: fields.collect::<Result<_, Why>>()? })
}
