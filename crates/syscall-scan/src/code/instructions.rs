//! Instructions, decoded at an address.

use std::ops::Range;

use kisa::{At, Branch, BranchKind, Effect, Flow, Insn, Inst, MemoryOperand, Value};

use super::reachable::Code;
use super::thunks::Thunk;
use crate::image::Addr;

/// A reader of instructions at any address; within one piece of code, it reuses its decoder.
pub struct Reader<'a> {
    /// The addresses of the piece: from an instruction to the end of its segment.
    piece: Range<u64>,
    reader: Box<dyn kisa::Reader<'a> + 'a>,
}

impl<'a> Code<'a> {
    /// Returns the instruction at an address; `None` if there is none.
    pub fn decode(&self, at: Addr) -> Option<Insn> {
        let is_code = self.image.is_code(at);
        let mut insn = is_code.then(|| self.inst(at)).flatten()?.insn;
        if !self.thunks.is_empty() {
            insn.flow = self.flow_through_thunk(at, insn.flow).unwrap_or(insn.flow);
        }
        if self.is_halt(at) {
            insn.flow = Flow::Trap;
        }
        Some(insn)
    }

    /// Creates a reader, which is fast from an instruction on.
    pub fn reader(&self, start: Addr) -> Reader<'a> {
        let bytes = self.image.code_bytes(start);
        let first = self.image.first_byte(start).0;
        Reader { piece: first..first.saturating_add(bytes.len() as u64), reader: self.isa.reader(bytes) }
    }

    /// Seeks to an instruction. Returns its offset in the current piece.
    fn seek(&self, reader: &mut Reader<'a>, at: Addr) -> usize {
        let first = self.image.first_byte(at).0;
        if !reader.piece.contains(&first) {
            *reader = self.reader(at);
        }
        (first - reader.piece.start) as usize
    }

    /// Returns the instruction, and appends its effects to `out`.
    pub(super) fn explain(
        &self,
        reader: &mut Reader<'a>,
        at: Addr,
        out: &mut Vec<Effect>,
    ) -> Option<Inst<'a>> {
        let is_code = self.image.is_code(at);
        let offset = self.seek(reader, at);
        let mut inst = is_code.then(|| reader.reader.decode(offset, self.place(at))).flatten()?;
        match self.flow_through_thunk(at, inst.insn.flow) {
            Some(flow) => {
                inst.insn.flow = flow;
                self.effects_through_thunk(at, out);
            }
            None => self.isa.effects(&inst, out),
        }
        if self.is_halt(at) {
            inst.insn.flow = Flow::Trap;
        }
        Some(inst)
    }

    /// Returns the instruction at an address as its bytes say.
    fn inst(&self, at: Addr) -> Option<Inst<'a>> {
        self.isa.decode(self.image.code_bytes(at), self.place(at))
    }

    /// Returns whether an instruction is `hlt`, which only the kernel may execute. C libraries use it to stop a program
    /// (musl's `a_crash`).
    fn is_halt(&self, at: Addr) -> bool {
        self.isa.is_halt(self.image.code_bytes(at))
    }

    /// Appends the effects of the instruction at an address to `out`.
    pub fn effects(&self, at: Addr, out: &mut Vec<Effect>) {
        if self.thunks.is_empty() || !self.effects_through_thunk(at, out) {
            self.inst(at).inspect(|inst| self.isa.effects(inst, out));
        }
    }

    /// Returns the effects of the instruction at an address.
    pub fn effects_at(&self, at: Addr) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.effects(at, &mut effects);
        effects
    }

    /// Appends the effects of the instruction at an address to `out`, with a reader.
    pub fn read_effects(&self, reader: &mut Reader<'a>, at: Addr, out: &mut Vec<Effect>) {
        if self.thunks.is_empty() || !self.effects_through_thunk(at, out) {
            let offset = self.seek(reader, at);
            reader.reader.decode(offset, self.place(at)).inspect(|inst| self.isa.effects(inst, out));
        }
    }

    /// Returns the place of an instruction, with the condition of a preceding instruction on it.
    fn place(&self, at: Addr) -> At {
        At::of_pointer(self.image.machine, at.0).on(self.predicates.get(&at).copied())
    }

    /// Returns the memory operand of the instruction at an address, if it has an explicit one.
    pub fn memory_operand(&self, at: Addr) -> Option<MemoryOperand> {
        self.isa.memory_operand(&self.inst(at)?)
    }

    /// Returns the registers that the instruction at an address reads, as bits.
    pub fn registers_read(&self, at: Addr) -> u64 {
        self.inst(at).map_or(u64::MAX, |inst| self.isa.registers_read(&inst))
    }
}

impl Code<'_> {
    /// Returns the flow after an instruction with a direct branch, if that leads through a thunk.
    fn flow_through_thunk(&self, at: Addr, flow: Flow) -> Option<Flow> {
        let (thunk, kind) = self.thunk_behind(at, flow)?;
        match (thunk, kind) {
            (Thunk::Jump(_), BranchKind::Call) => Some(Flow::IndirectCall),
            (Thunk::Jump(_), _) => Some(Flow::IndirectJump),
            (Thunk::Return(_), _) => Some(Flow::Return),
        }
    }

    /// Appends the effects of an instruction whose branch leads through a thunk to `out`. Returns whether it does.
    fn effects_through_thunk(&self, at: Addr, out: &mut Vec<Effect>) -> bool {
        let Some(inst) = self.inst(at) else { return false };
        let Some((thunk, kind)) = self.thunk_behind(at, inst.insn.flow) else { return false };
        match thunk {
            Thunk::Jump(reg) => {
                let width = self.image.machine.word_size();
                out.push(Effect::Transfer(Value::Reg { reg, width }));
                if kind == BranchKind::Call {
                    self.isa.effects(&inst, out);
                }
            }
            Thunk::Return(ret) => {
                self.inst(ret).inspect(|inst| self.isa.effects(inst, out));
            }
        }
        true
    }

    /// Returns the thunk that a branch leads through, and the kind of the branch.
    fn thunk_behind(&self, at: Addr, flow: Flow) -> Option<(Thunk, BranchKind)> {
        if let Some(&thunk) = self.thunks.get(&at) {
            return Some((thunk, BranchKind::Jump));
        }
        let Flow::Direct { branch: Branch { kind, .. }, target, .. } = flow else { return None };
        let &thunk = self.thunks.get(&Addr(self.image.wrap(target)))?;
        match (thunk, kind) {
            // The thunk's own call is decoded when control reaches it.
            (_, BranchKind::Conditional) | (Thunk::Return(_), BranchKind::Call) => None,
            _ => Some((thunk, kind)),
        }
    }
}
