/*!
Liveness: the registers, and the flags, whose contents may be read before they are overwritten, at each point of a
program. The stack pointer is always live, because interrupts and signals use the stack.

Calls are followed into the called functions and back to the known callers. The callee's code determines what a call
reads, overwrites and preserves ([`crate::Summaries`]). Registers are live at a return if they are live after a call of
the function. For unknown callers, the registers of the calling convention are live. For opaque compiled callers all
registers are live, because a compiler that knows a function's code may rely on more than the convention.
*/

use crate::BlockIndex;
use crate::program::{Callee, EVERYTHING, FunctionIndex, Program, Then};
use crate::summary::Summaries;

/// The live registers before each block of a program.
pub struct Liveness {
    /// By block.
    before: Vec<u64>,
    /// By function, at its returns.
    at_return: Vec<u64>,
    /// Everywhere.
    always: u64,
}

impl Liveness {
    /// Computes the live registers of a program.
    pub fn of(program: &impl Program, summaries: &Summaries) -> Liveness {
        Solver::new(program, summaries).solve()
    }

    /// Returns the registers that are live before a block, as bits by [`kisa::Reg`], with [`crate::FLAGS`].
    pub fn before(&self, block: BlockIndex) -> u64 {
        self.before[block.get()] | self.always
    }

    /// Returns the registers that are live after each instruction of a block, in order.
    pub fn within(
        &self,
        program: &impl Program,
        summaries: &Summaries,
        function: FunctionIndex,
        block: BlockIndex,
    ) -> Vec<u64> {
        let mut instructions = Vec::new();
        program.for_each_instruction(block, &mut |instruction| {
            instructions.push((instruction.reads, instruction.overwrites()));
        });
        if program.may_leave_early(block) {
            return vec![EVERYTHING; instructions.len()];
        }
        let mut live = self.at_end(program, summaries, function, block);
        let behind = instructions.iter().rev().map(|(reads, overwrites)| {
            let behind = live | self.always;
            live = live & !overwrites | reads;
            behind
        });
        let mut behind: Vec<u64> = behind.collect();
        behind.reverse();
        behind
    }

    /// Returns the registers that are live on the edges out of a block. This excludes the registers that the choice of
    /// the edge reads.
    pub fn behind(
        &self,
        program: &impl Program,
        summaries: &Summaries,
        function: FunctionIndex,
        block: BlockIndex,
    ) -> u64 {
        match program.may_leave_early(block) {
            true => EVERYTHING,
            false => self.at_exit(program, summaries, function, block) | self.always,
        }
    }

    /// Returns the registers that are live after the last instruction of a block, including its exit.
    fn at_end(
        &self,
        program: &impl Program,
        summaries: &Summaries,
        function: FunctionIndex,
        block: BlockIndex,
    ) -> u64 {
        program.read_by_exit(block) | self.at_exit(program, summaries, function, block)
    }

    fn at_exit(
        &self,
        program: &impl Program,
        summaries: &Summaries,
        function: FunctionIndex,
        block: BlockIndex,
    ) -> u64 {
        let ways = program.ways(block);
        let live = ways.iter().map(|way| {
            let behind = match way.then {
                Then::Block(to) => self.before[to.get()],
                Then::Caller => self.at_return[function.get()],
                Then::Nowhere => 0,
                Then::Anywhere => EVERYTHING,
            };
            summaries.live_before(way, behind)
        });
        live.fold(0, |all, live| all | live)
    }
}

struct Solver<'p, P> {
    program: &'p P,
    summaries: &'p Summaries,
    liveness: Liveness,
    /// The function of each block.
    functions: Vec<FunctionIndex>,
    /// The predecessors of each block.
    from: Vec<Vec<BlockIndex>>,
    /// The blocks that return from each function, to its caller or by a tail call.
    returns: Vec<Vec<BlockIndex>>,
    pending: Vec<BlockIndex>,
    is_pending: Vec<bool>,
}

impl<'p, P: Program> Solver<'p, P> {
    fn new(program: &'p P, summaries: &'p Summaries) -> Solver<'p, P> {
        let blocks = (0..program.blocks()).map(BlockIndex::from);
        let mut functions = vec![FunctionIndex(0); program.blocks()];
        let mut returns = vec![Vec::new(); program.functions()];
        let mut from = vec![Vec::new(); program.blocks()];
        let mut at_return = vec![0; program.functions()];
        for function in (0..program.functions()).map(FunctionIndex::from) {
            if program.has_opaque_callers(function)
                || program.has_other_entries(function)
                || summaries.returns_elsewhere(function)
            {
                at_return[function.get()] = EVERYTHING;
            } else if program.has_unknown_callers(function) {
                at_return[function.get()] = summaries.live_at_return();
            }
            for &block in program.blocks_of(function) {
                functions[block.get()] = function;
                for way in program.ways(block) {
                    match way.then {
                        Then::Block(to) => from[to.get()].push(block),
                        Then::Caller => returns[function.get()].push(block),
                        Then::Nowhere | Then::Anywhere => {}
                    }
                }
            }
        }
        let liveness =
            Liveness { before: vec![0; program.blocks()], at_return, always: summaries.always_live };
        let (pending, is_pending) = (blocks.collect(), vec![true; program.blocks()]);
        Solver { program, summaries, liveness, functions, from, returns, pending, is_pending }
    }

    fn solve(mut self) -> Liveness {
        while let Some(block) = self.pending.pop() {
            self.is_pending[block.get()] = false;
            self.visit(block);
        }
        self.liveness
    }

    fn visit(&mut self, block: BlockIndex) {
        let function = self.functions[block.get()];
        let live = self.liveness.at_end(self.program, self.summaries, function, block);
        let before = self.summaries.touched[block.get()].live_before(live);
        for way in self.program.ways(block) {
            let Some(Callee::Function(callee)) = way.callee else { continue };
            let behind = match way.then {
                Then::Block(to) => self.liveness.before[to.get()],
                Then::Caller => self.liveness.at_return[function.get()],
                Then::Nowhere => 0,
                Then::Anywhere => EVERYTHING,
            };
            let known = &mut self.liveness.at_return[callee.get()];
            if *known | behind != *known {
                *known |= behind;
                let returns = std::mem::take(&mut self.returns[callee.get()]);
                returns.iter().for_each(|&block| self.add(block));
                self.returns[callee.get()] = returns;
            }
        }
        if before != self.liveness.before[block.get()] {
            self.liveness.before[block.get()] = before;
            let from = std::mem::take(&mut self.from[block.get()]);
            from.iter().for_each(|&block| self.add(block));
            self.from[block.get()] = from;
        }
    }

    fn add(&mut self, block: BlockIndex) {
        if !std::mem::replace(&mut self.is_pending[block.get()], true) {
            self.pending.push(block);
        }
    }
}
