//! The states of all blocks of a function ([`kflow::solve`]): the effect of a block on a state.

use std::collections::BTreeSet;
use std::rc::Rc;

use kflow::values::Element;
use kflow::{Analysis, BlockIndex, Cfg, Head};
use kisa::{Effect, Reg, Value};

use super::Flows;
use super::decoded::Decoded;
use super::state::State;
use crate::code::{Code, ExitKind, Function, Reader};
use crate::image::Addr;
use crate::values::ValueSet;

/// The states before the blocks, and whether the stack pointer was at the return address at every return.
type Solution = (Vec<Option<Rc<State>>>, bool);

/// A function as a graph.
struct Blocks<'f, 'c> {
    code: &'f Code<'c>,
    function: &'f Function,
}

impl Cfg for Blocks<'_, '_> {
    fn blocks(&self) -> usize {
        self.function.blocks.len()
    }

    fn successors(&self, block: BlockIndex) -> &[BlockIndex] {
        &self.function.blocks[block.get()].successors
    }

    /// Excludes conditional jumps, which reach the next instruction in another state.
    fn has_plain_jump(&self, block: BlockIndex) -> bool {
        let exit = self.function.blocks[block.get()].exit.map(|id| self.code.exit(id));
        exit.is_some_and(|exit| exit.kind == ExitKind::IndirectJump && !exit.conditional)
    }
}

/// The analysis of one function.
struct Solving<'s, 'c> {
    flows: &'s mut Flows<'c>,
    function: &'s Function,
    decoded: Decoded,
    reader: Reader<'c>,
    trust_frame: bool,
    /// The register that holds the block's address, by block.
    held: Vec<Option<Reg>>,
    /// The blocks that return with the stack pointer elsewhere than at the return address.
    unbalanced: BTreeSet<BlockIndex>,
}

impl Analysis for Solving<'_, '_> {
    type State = State;

    fn restart(&mut self) {
        self.unbalanced.clear();
    }

    fn join(&mut self, state: &mut State, other: &State, widen: Option<Head>) {
        let at = widen.map(|head| match head {
            Head::Block(block) => self.function.blocks[block.get()].start,
            Head::Jumps(block) => {
                let block = &self.function.blocks[block.get()];
                block.exit.map_or(block.start, |exit| self.flows.code.exit(exit).at)
            }
        });
        state.join(other, at, &mut self.flows.domain);
    }

    fn block(&mut self, block: BlockIndex, mut state: State, behind: &mut [Option<Rc<State>>]) {
        let start = self.function.blocks[block.get()].start;
        if let Some(register) = self.held[block.get()] {
            note_target(&mut state, register, start);
        }
        self.decoded.decode(self.flows.code, &mut self.reader, block, &self.function.blocks[block.get()]);
        let instructions = self.decoded.instructions(block);
        if self.flows.block(self.function, block, instructions, state, self.trust_frame, behind) {
            self.unbalanced.remove(&block);
        } else {
            self.unbalanced.insert(block);
        }
    }

    fn unreached(&mut self, block: BlockIndex) {
        self.unbalanced.remove(&block);
    }
}

impl Flows<'_> {
    /// Computes the state before each block, given the state `begin` before the first; `None` if a block is never
    /// reached. Also returns whether the stack pointer was at the return address at every return, so that values read
    /// from the frame can be trusted.
    pub(super) fn solve(&mut self, function: &Function, begin: &Rc<State>, trust_frame: bool) -> Solution {
        let count = function.blocks.len();
        let mut decoded = std::mem::take(&mut self.decoded);
        decoded.begin(count);
        let blocks = Blocks { code: self.code, function };
        let unbalanced = BTreeSet::new();
        let held = registers_with_targets(self.code, function);
        let mut solving = Solving {
            reader: self.code.reader(function.entry),
            flows: self,
            function,
            decoded,
            trust_frame,
            held,
            unbalanced,
        };
        let states = kflow::solve(&mut solving, &blocks, begin);
        let Solving { decoded, unbalanced, held, .. } = solving;
        self.decoded = decoded;
        match states {
            Some(mut states) => {
                for (index, state) in states.iter_mut().enumerate() {
                    if let (Some(register), Some(state)) = (held[index], state) {
                        note_target(Rc::make_mut(state), register, function.blocks[index].start);
                    }
                }
                (states, unbalanced.is_empty())
            }
            None => (vec![Some(Rc::new(State::nothing_known(self.domain.registers))); count], false),
        }
    }

    /// Applies a block and stores the states after it in `behind`, one for each possible successor, or one for all
    /// successors of a hub. Returns whether the stack pointer is correct, if the block returns.
    fn block<'d>(
        &mut self,
        function: &Function,
        index: BlockIndex,
        instructions: impl Iterator<Item = (Addr, &'d [Effect])>,
        mut state: State,
        trust_frame: bool,
        behind: &mut [Option<Rc<State>>],
    ) -> bool {
        let block = &function.blocks[index.get()];
        let exit = block.exit.map(|id| self.code.exit(id));
        let (mut branch, mut balanced) = (None, true);
        // The state on a conditional exit that is not taken, and whether the exit is direct.
        let (mut skipped, mut direct) = (None, false);
        for (at, effects) in instructions {
            let kind = exit.filter(|exit| exit.at == at).map(|exit| exit.kind);
            match kind {
                Some(ExitKind::Return) => {
                    if self.convention.link_register.is_some() {
                        self.apply(&mut state, at, effects, trust_frame);
                    }
                    balanced = self.is_at_return(&state);
                    match state.skipped() {
                        Some(skipped) => state = skipped,
                        None => return balanced,
                    }
                }
                Some(ExitKind::Call(callee)) => {
                    self.call(&mut state, (at, effects), Some(callee), trust_frame);
                }
                Some(ExitKind::IndirectCall) => {
                    self.call(&mut state, (at, effects), None, trust_frame);
                }
                Some(ExitKind::Stop) => return true,
                _ => {
                    let outcome = self.apply(&mut state, at, effects, trust_frame);
                    if outcome.ends {
                        return true;
                    }
                    branch = outcome.branch;
                    direct = matches!(effects.first(), Some(Effect::BranchIf(_)));
                    if kind == Some(ExitKind::IndirectJump) || direct {
                        skipped = state.skipped();
                    }
                }
            }
        }
        let taken = exit.and_then(|exit| {
            // The next instruction is the first successor of a conditional jump, see exploration.
            (exit.successors.len() == 2 && exit.successors[0] != exit.successors[1])
                .then(|| exit.successors[1])
        });
        state.settle(&mut self.domain);
        if let (Some(skipped), true, None) = (&skipped, direct, taken) {
            state.join(skipped, None, &mut self.domain);
        }
        let state = Rc::new(state);
        for (&successor, behind) in block.successors.iter().zip(behind) {
            let start = function.blocks[successor.get()].start;
            let mut state = match &skipped {
                Some(skipped) if direct && taken.is_some_and(|taken| taken != start) => {
                    Rc::new(skipped.clone())
                }
                _ => Rc::clone(&state),
            };
            if let (Some((compared, condition)), Some(taken)) = (&branch, taken) {
                let condition = if start == taken { *condition } else { condition.inverse() };
                let ranges = &mut Rc::make_mut(&mut state).ranges;
                if !ranges.assume(compared, condition, &self.domain) {
                    continue;
                }
            }
            if let (Some(skipped), Some(exit), false) = (&skipped, exit, direct) {
                // The jump may lead there as well.
                if start == exit.next {
                    Rc::make_mut(&mut state).join(skipped, None, &mut self.domain);
                }
            }
            *behind = Some(state);
        }
        balanced
    }
}

/// Notes that a register holds the address of this block. If other values are known for it, the block is never reached.
fn note_target(state: &mut State, register: Reg, start: Addr) {
    let known = state.register(register);
    let is_possible =
        !known.is_numbers() || known.elements().iter().any(|atom| atom.as_number() == Some(start.0));
    if is_possible {
        state.set_register(register, ValueSet::number(start.0));
    }
}

/// Returns for each block the register that holds its address at its start: every path to it is a computed jump through
/// that register (`jmp *%ebx`).
fn registers_with_targets(code: &Code, function: &Function) -> Vec<Option<Reg>> {
    let mut held = vec![None; function.blocks.len()];
    // The register of a jump may also hold the instruction-set bit.
    if code.image.machine.target().has_encoding_bit {
        return held;
    }
    let word = code.image.machine.word_size();
    let mut ways: Vec<Option<Option<Reg>>> = vec![None; function.blocks.len()];
    // The caller enters the first block.
    ways[0] = Some(None);
    for block in &function.blocks {
        let exit = block.exit.map(|exit| code.exit(exit));
        let jump = exit.filter(|exit| exit.kind == ExitKind::IndirectJump && !exit.conditional);
        let through = jump.and_then(|jump| match code.effects_at(jump.at)[..] {
            [Effect::Transfer(Value::Reg { reg, width })] if width == word => Some(reg),
            _ => None,
        });
        for &successor in &block.successors {
            let way = ways[successor.get()].get_or_insert(through);
            if *way != through {
                *way = None;
            }
        }
    }
    held.iter_mut().zip(ways).for_each(|(held, way)| *held = way.flatten());
    held
}
