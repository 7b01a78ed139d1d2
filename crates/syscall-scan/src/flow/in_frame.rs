//! Whether the content of a register may be an address in the frame.

use kflow::BlockIndex;
use kisa::Reg;
use rustc_hash::FxHashSet;

use super::{Flows, FunctionStates};
use crate::code::{Block, ExitKind};
use crate::image::Addr;
use crate::values::ValueSet;

impl Flows<'_> {
    /// Returns whether a register may hold an address in the frame before an instruction. If a join has made its
    /// content unknown, the states after the predecessors decide.
    pub fn is_in_frame(&mut self, flow: &FunctionStates, at: Addr, register: Reg) -> bool {
        let Some(block) = flow.function.block_at(at) else { return true };
        let Some(state) = self.before(flow, at) else { return false };
        let mut pending = vec![(block, at, state.register(register).clone())];
        let mut seen = FxHashSet::default();
        while let Some((block, end, value)) = pending.pop() {
            if value.elements().iter().any(|&atom| self.domain.place(atom).is_some()) {
                return true;
            }
            if value != ValueSet::Any || !seen.insert(block) {
                continue;
            }
            let start = flow.function.blocks[block.get()].start;
            if block == BlockIndex(0) || self.instructions(start, end).any(|at| self.writes(at, register)) {
                return true;
            }
            for &index in flow.predecessors(block) {
                let before = &flow.function.blocks[index.get()];
                let Some(value) = self.behind(flow, before, register) else { return true };
                pending.push((index, before.end, value));
            }
        }
        false
    }

    /// Returns the content of a register after a block; `None` if it is unknown.
    fn behind(&mut self, flow: &FunctionStates, block: &Block, register: Reg) -> Option<ValueSet> {
        let last = self.instructions(block.start, block.end).last()?;
        let kind = block.exit.map(|exit| self.code.exit(exit).kind);
        let is_call = matches!(kind, Some(ExitKind::Call(_) | ExitKind::IndirectCall));
        if is_call && self.convention.clobbers(register) {
            return None;
        }
        let mut state = self.before(flow, last)?;
        if !is_call {
            self.instruction(&mut state, last, flow.trust_frame)?;
            state.settle(&mut self.domain);
        }
        Some(state.register(register).clone())
    }

    /// Returns the instructions between two addresses.
    fn instructions(&self, start: Addr, end: Addr) -> impl Iterator<Item = Addr> + use<'_> {
        self.code.instructions_from(start).take_while(move |&at| at < end)
    }

    fn writes(&self, at: Addr, register: Reg) -> bool {
        let effects = self.code.effects_at(at);
        effects.iter().any(|effect| effect.registers_written() >> register.0 & 1 != 0)
    }
}
