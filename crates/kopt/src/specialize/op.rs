//! The operations of a path: what is left of each instruction, and what it needs.

use std::collections::BTreeSet;

use kcfg::graph::{Contents, Graph, Ref, Role, Target};
use kcfg::index::NodeId;
use kcfg::instructions::Instruction;
use kelf::RelocClass;
use kisa::specializing::{Bits, Place, Simple};
use kisa::{Effect, Encoding, Inst, Reg, Value as Operand};

use super::context::target;
use super::explore::{Call, Explorer, Why};
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

impl<'g> Maker<'_, 'g> {
    fn stack_pointer(&self) -> Reg {
        self.explorer.isa.convention().stack_pointer
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
        let encoded = self.explorer.specialize.encode(simple, false).ok_or("an operation has no encoding")?;
        Ok(Contents { bytes: encoded.bytes, refs: Vec::new() })
    }

    /// Returns the code of a simple operation whose number is an address.
    fn with_address(&self, simple: Simple, address: (Target, i64)) -> Result<Contents, Why> {
        let encoded = self.explorer.specialize.encode(simple, false).ok_or("an operation has no encoding")?;
        let at = encoded.number.ok_or("an operation has no field for an address")?;
        Ok(Contents { bytes: encoded.bytes, refs: vec![reference(self.explorer.graph, at.into(), address)] })
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
                let address = target(self.explorer.graph, value).ok_or("a value is unknown")?;
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
                let address = target(self.explorer.graph, value).ok_or("a value is unknown")?;
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
            None if self.explorer.specialize.uses_stack_pointer(&instruction.inst) => {
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
            let mut op = Op::new(Code::Plain(plain(self.explorer.graph, instruction)?));
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

    /// Makes operations of an instruction that uses the stack pointer.
    fn on_stack(&self, before: &State, instruction: &Instruction<'g>, after: &State) -> Result<Vec<Op>, Why> {
        let (from, to) = (self.explorer.stack(before)?, self.explorer.stack(after)?);
        let native = |maker: &Self| -> Result<Vec<Op>, Why> {
            let contents = plain(maker.explorer.graph, instruction)?;
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
                        let contents = plain(self.explorer.graph, instruction)?;
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
            [] if self.explorer.isa.reads(&instruction.inst).memory
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
                    let mut op = Op::new(Code::Native(plain(self.explorer.graph, instruction)?, from, to));
                    (op.writes_flags, op.kills_flags) = (true, true);
                    op.reads = self.explorer.isa.reads(&instruction.inst).registers
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

    /// Makes an operation of any other instruction.
    fn general(&self, before: &State, instruction: &Instruction<'g>, after: &State) -> Result<Op, Why> {
        let explorer = self.explorer;
        let isa = explorer.isa;
        let mut changed =
            Changed { bytes: instruction.inst.bytes.to_vec(), number: None, displacement: None };
        for field in &instruction.fields {
            let address = explorer.graph.target_of(field.symbol).ok_or("an address is not one")?;
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
                (Base::Symbol(symbol), offset) => explorer
                    .graph
                    .target_of(symbol)
                    .map(|target| (Place { base: None, displacement: 0 }, Some((target, i64::from(offset))))),
                _ => None,
            };
            let inst = decode(isa, &changed.bytes)?;
            // A number may have taken the place of the operand.
            let has_operand = isa.memory_operand(&inst).is_some();
            if let Some((place, address)) = new.filter(|_| has_operand) {
                if let Some(bytes) = explorer.specialize.with_operand(&inst, place) {
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
        let contents = changed.contents(explorer.graph)?;
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
    fn shorten(&self, before: &State, after: &State, reg: Reg, loads: bool, op: &mut Op) -> Result<(), Why> {
        let value = after.register(reg);
        if value.is_known() {
            op.short = Some(Box::new(self.set_op(reg, value)?));
        } else if before.register(reg) == value && matches!(value, Value::Name(..)) {
            op.short = Some(Box::new(Op::new(Code::Plain(Contents::default()))));
        } else if loads && matches!(value, Value::Name(..)) {
            let preserved = !self.explorer.isa.convention().call_clobbered;
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
        let address = target(self.explorer.graph, value).filter(|_| i32::from(width) == WORD);
        let number = value.bits().low(width.min(4)).get();
        if let Some(number) = number.or(address.map(|_| 0x1000_0000))
            && let Some(bytes) = self.explorer.specialize.with_number(&instruction.inst, number)
        {
            changed.bytes = bytes;
            changed.number = address;
        }
    }

    /// Returns an operation with the effects of an instruction, whose code reads the registers of `inst`.
    fn effects(&self, before: &State, instruction: &Instruction<'g>, inst: &Inst<'_>, code: Code) -> Op {
        let explorer = self.explorer;
        let all = ((1 << REGISTERS) - 1) & !bit(self.stack_pointer());
        let mut op = Op::new(code);
        let reads = explorer.isa.reads(inst);
        (op.reads, op.reads_flags) = (reads.registers & all, reads.flags);
        for effect in &instruction.effects {
            op.writes |= effect.registers_written() & all;
            op.kills |= effect.registers_overwritten() & all;
            op.writes_flags |= effect.flags() != kisa::Flags::Kept;
        }
        op.kills_flags = op.writes_flags && explorer.specialize.overwrites_flags(inst);
        op.writes_flags |= explorer.specialize.overwrites_flags(inst);
        let loaded = instruction.effects.iter().flat_map(|effect| effect.memory_read().collect::<Vec<_>>());
        for (address, width) in loaded {
            self.note_load(before, explorer.place(before, &address), width, &mut op);
        }
        // A read that the effects do not show.
        if explorer.isa.reads(inst).memory {
            match explorer.operand_place(before, instruction) {
                Some((place, width)) => self.note_load(before, Some(place), width, &mut op),
                None => self.note_load(before, None, 0, &mut op),
            }
            if explorer.isa.string_registers(inst) != 0 {
                self.note_load(before, None, 0, &mut op);
            }
        }
        for effect in &instruction.effects {
            let Effect::Store { to, width, .. } = effect else { continue };
            let Some((Base::Stack, offset)) = explorer.place(before, to) else { continue };
            let only = explorer.isa.only_stores(&instruction.inst);
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

    /// Returns the operation of a call of original code.
    ///
    /// # Errors
    /// The reason why it cannot be copied.
    pub fn call(
        &self,
        before: &State,
        last: &Instruction<'g>,
        call: &Call,
        callee: Option<Ref>,
    ) -> Result<Op, Why> {
        let graph = self.explorer.graph;
        let all = ((1 << REGISTERS) - 1) & !bit(self.stack_pointer());
        let direct = call.target.or(callee.map(|callee| callee.target));
        let (contents, reads) = match direct {
            Some(target) => (Contents::call(graph, ENCODING, target), 0),
            None => {
                let op = self.general_call(before, last)?;
                (op.0, op.1)
            }
        };
        let on_stack = call.summary.reads_stack != 0 || call.summary.writes_frame;
        let mut op = Op::new(Code::Call(contents, on_stack.then_some(call.stack)));
        op.reads = (call.summary.reads | reads) & all;
        op.writes = call.summary.changes & all;
        op.kills = call.summary.overwrites & all;
        (op.reads_flags, op.writes_flags) = (call.summary.reads & kflow::FLAGS != 0, true);
        op.kills_flags = true;
        op.loads = call.reads.clone();
        op.removable = false;
        Ok(op)
    }

    /// Returns the comparison of the target of a computed call with a function.
    ///
    /// # Errors
    /// If there is no encoding for it.
    pub fn compare_target(&self, before: &State, last: &Instruction<'g>, callee: NodeId) -> Result<Op, Why> {
        let (simple, reads) = match Effect::target(&last.effects) {
            Some(Operand::Reg { reg, width: 4 }) => (Simple::CompareRegister(reg, 0), bit(reg)),
            Some(Operand::Load { from, width: 4 })
                if from.symbol.is_none() && from.index.is_none() && from.segment.is_none() =>
            {
                if matches!(self.explorer.place(before, &from), Some((Base::Stack, _))) {
                    return Err("it calls through a pointer on the stack");
                }
                let place = Place { base: from.base, displacement: from.displacement as i32 };
                (Simple::Compare(place, 0, WORD as u8), from.base.map_or(0, bit))
            }
            _ => return Err("it calls through a pointer that cannot be compared"),
        };
        let encoded = self.explorer.specialize.encode(simple, true).ok_or("an operation has no encoding")?;
        let at = encoded.number.ok_or("an operation has no field for an address")?;
        let address = (Target::Node(callee), 0);
        let refs = vec![reference(self.explorer.graph, at.into(), address)];
        let code = Code::Plain(Contents { bytes: encoded.bytes, refs });
        Ok(Op { reads, writes_flags: true, kills_flags: true, ..Op::new(code) })
    }

    /// Returns the code of a computed call, and the registers that it reads.
    fn general_call(&self, before: &State, last: &Instruction<'g>) -> Result<(Contents, u64), Why> {
        if let Some(((Base::Stack, _), _)) = self.explorer.operand_place(before, last) {
            return Err("it calls through a pointer on the stack");
        }
        let reads = self.explorer.isa.reads(&last.inst).registers;
        Ok((plain(self.explorer.graph, last)?, reads & ((1 << REGISTERS) - 1) & !bit(self.stack_pointer())))
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

fn decode<'b>(isa: &'b dyn kisa::Rewritable, bytes: &'b [u8]) -> Result<Inst<'b>, Why> {
    isa.decode(bytes, ENCODING.at(0)).ok_or("an instruction cannot be read again")
}

/// Returns an instruction as it is.
fn plain(graph: &Graph, instruction: &Instruction<'_>) -> Result<Contents, Why> {
    let fields = instruction.fields.iter().map(|field| {
        let target = graph.target_of(field.symbol).ok_or("an address is not one")?;
        Ok(reference(graph, field.offset.into(), (target, field.addend)))
    });
    Ok(Contents { bytes: instruction.inst.bytes.to_vec(), refs: fields.collect::<Result<_, Why>>()? })
}

/// Returns the register that an instruction writes, if it is one.
fn written_one(instruction: &Instruction<'_>) -> Option<Reg> {
    let written = instruction.effects.iter().fold(0, |set, effect| set | effect.registers_written());
    (written.count_ones() == 1).then(|| Reg(written.trailing_zeros() as u8))
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
