//! Folding of one block.

use kcfg::flow::GraphProgram;
use kcfg::graph::{Contents, Dest, Graph, Ref, Target, Terminator};
use kcfg::index::{NodeId, NodeSet};
use kflow::constants::Constant;
use kflow::{BlockIndex, FLAGS, Liveness, Program, Reached, Summaries, bit};
use kisa::{BranchKind, Encoding, Inst, Reg};

use super::stores::stored_to;
use super::{calls, jumps};
use crate::report::PassReport;

/// The class of code that the kernel frees.
const INIT: &str = ".init.text";

/// A change to a block.
pub(super) struct Change {
    pub(super) node: NodeId,
    /// Its bytes and references, with the places that move, unless they are kept.
    pub(super) contents: Option<(Contents, Vec<(u32, u32)>)>,
    /// Its terminator, unless that is kept.
    pub(super) end: Option<Terminator>,
}

/// Folds blocks, one at a time.
pub(super) struct Folder<'g> {
    pub(super) graph: &'g Graph,
    pub(super) program: &'g GraphProgram<'g>,
    pub(super) summaries: &'g Summaries,
    pub(super) liveness: &'g Liveness,
    /// Variables that are never read.
    pub(super) unread: &'g NodeSet,
    /// Nodes that must not change.
    pub(super) fixed: &'g NodeSet,
}

/// The part of an instruction that matters to the instructions before it.
struct Use {
    reads: u64,
    writes: u64,
    overwrites: u64,
    /// Whether it loads from memory.
    loads: bool,
    /// Whether it loads from memory other than the frame or memory that is never written.
    loads_elsewhere: bool,
    /// Whether it writes to a variable that is never read.
    stores_in_vain: bool,
}

impl Use {
    /// Whether its only live result is this register, which it overwrites as a whole.
    fn leaves_only(&self, reg: Reg, live: u64) -> bool {
        self.writes & !FLAGS == bit(reg) && self.writes & FLAGS & live == 0 && self.overwrites & bit(reg) != 0
    }
}

/// The new form of an instruction.
#[derive(Clone, PartialEq)]
enum Fate {
    Stays,
    Goes,
    Becomes(Vec<u8>),
    /// It becomes a direct call.
    Calls(NodeId),
}

impl Folder<'_> {
    /// Returns the change to a block, given the known values at its start.
    pub(super) fn fold(
        &self,
        node: NodeId,
        block: BlockIndex,
        reached: Option<&Reached>,
        report: &mut PassReport,
    ) -> Option<Change> {
        if self.program.may_leave_early(block) {
            return None;
        }
        let end = reached
            .and_then(|reached| self.decided(node, reached))
            .or_else(|| jumps::with_one_end(self.graph, self.fixed, node));
        let mut fates = self.fates(node, block, reached, end.as_ref(), report)?;
        let mut new_end = end;
        if new_end.is_some() {
            report.count("branches decided", 1);
        }
        if let (Some(callee), Some(last)) = (self.known_callee(node, reached), fates.last_mut()) {
            if let Some(Terminator::IndirectCall { next }) = self.graph.block(node).map(|block| &block.end) {
                *last = Fate::Calls(callee);
                new_end = Some(Terminator::Call { next: *next });
                report.count("calls made direct", 1);
            }
        }
        if let (None, Some(last)) = (&new_end, fates.last_mut())
            && let Some((body, next)) = calls::inlined(self.graph, self.program, self.fixed, node)
        {
            *last = if body.is_empty() { Fate::Goes } else { Fate::Becomes(body) };
            new_end = Some(self.going_to(node, Dest { target: Target::Node(next), offset: 0 }));
            report.count("calls replaced by what they call", 1);
        }
        let old_end = &self.graph.block(node)?.end;
        if let Some(shortened) =
            jumps::shortened(self.graph, self.fixed, node, new_end.as_ref().unwrap_or(old_end))
        {
            new_end = Some(shortened);
            report.count("jumps past empty blocks", 1);
        }
        let stays = fates.iter().all(|fate| *fate == Fate::Stays);
        if stays && new_end.is_none() {
            return None;
        }
        let contents = if stays { None } else { Some(self.contents(node, &fates)?) };
        Some(Change { node, contents, end: new_end })
    }

    /// Returns the new terminator of a block with a single feasible successor.
    fn decided(&self, node: NodeId, reached: &Reached) -> Option<Terminator> {
        let taken = |place: usize| reached.taken.get(place).copied().unwrap_or(true);
        match &self.graph.block(node)?.end {
            Terminator::Branch { branch, taken: dest, next } if branch.kind == BranchKind::Conditional => {
                match (taken(0), taken(1)) {
                    (true, false) => Some(self.going_to(node, *dest)),
                    (false, true) => Some(Terminator::FallThrough(*next)),
                    _ => None,
                }
            }
            Terminator::Switch(table) => {
                let mut ways = reached.taken.iter().enumerate().filter(|(_, taken)| **taken);
                let (Some((place, _)), None) = (ways.next(), ways.next()) else { return None };
                let target = self.graph.slots(*table).get(place)?.target;
                Some(self.going_to(node, Dest { target, offset: 0 }))
            }
            _ => None,
        }
    }

    /// Returns a terminator that continues at a place: a fall-through where possible, otherwise a jump.
    fn going_to(&self, from: NodeId, dest: Dest) -> Terminator {
        match self.graph.resolve(dest.target) {
            Some((to, 0))
                if dest.offset == 0 && self.graph.function_of(to) == self.graph.function_of(from) =>
            {
                Terminator::FallThrough(to)
            }
            _ => Terminator::Jump(dest),
        }
    }

    /// Returns the known target of the computed call at the end of a block.
    fn known_callee(&self, node: NodeId, reached: Option<&Reached>) -> Option<NodeId> {
        let Constant { symbol: Some(symbol), number: 0 } = reached?.target? else { return None };
        let to = self.graph.node_of(symbol)?;
        let function = self.graph.function_of(to)?;
        let is_call = matches!(self.graph.block(node)?.end, Terminator::IndirectCall { .. })
            && self.graph.encoding(to) == self.graph.encoding(node)
            && (!self.is_in_init_code(to) || self.is_in_init_code(node));
        (is_call && self.graph.function(function).entry() == to && self.graph.node(to).live).then_some(to)
    }

    /// Whether a block is in memory that the kernel frees. Kbuild refuses direct calls of it by other code
    /// (scripts/mod/modpost.c).
    fn is_in_init_code(&self, node: NodeId) -> bool {
        self.graph.world().class(&self.graph.section_of(node).name) == INIT
    }

    /// Returns the new form of the instructions of a block, which will end like `end` or as now. `None` if the
    /// instructions are not known.
    fn fates(
        &self,
        node: NodeId,
        block: BlockIndex,
        reached: Option<&Reached>,
        end: Option<&Terminator>,
        report: &mut PassReport,
    ) -> Option<Vec<Fate>> {
        let graph = self.graph;
        let mut uses = Vec::new();
        self.program.for_each_instruction(block, &mut |instruction| {
            let own = |from: &kisa::Address, width: u8| {
                let is_in_frame =
                    from.base == Some(graph.isa().convention().stack_pointer) && from.segment.is_none();
                is_in_frame || self.summaries.is_constant(from, width)
            };
            let reads = || instruction.effects.iter().flat_map(kisa::Effect::memory_read);
            let loads_elsewhere = instruction.reads_unseen || reads().any(|(from, width)| !own(&from, width));
            uses.push(Use {
                reads: instruction.reads,
                writes: instruction.writes(),
                overwrites: instruction.overwrites(),
                loads: reads().next().is_some(),
                loads_elsewhere,
                stores_in_vain: stored_to(graph, &instruction).is_some_and(|to| self.unread.contains(to)),
            });
        });
        let function = self.program.function_of(block);
        let mut live = self.liveness.behind(self.program, self.summaries, function, block);
        let mut fates = vec![Fate::Stays; uses.len()];
        let mut count = uses.len();
        match (end, &graph.block(node)?.end) {
            // The jump through the table is the last instruction.
            (Some(_), Terminator::Switch(_)) => {
                count -= 1;
                fates[count] = Fate::Goes;
            }
            (Some(_), _) => {}
            (None, _) => live |= self.program.read_by_exit(block),
        }
        // Interrupts and signals use the stack at any time.
        let always = bit(graph.isa().convention().stack_pointer);
        // objtool expects that functions restore these registers, even if their callers do not need them.
        let restored = match graph.world().is_checked_by_objtool() {
            true => !graph.isa().convention().call_clobbered & !FLAGS,
            false => 0,
        };
        let mut instructions: Option<Vec<Inst<'_>>> = None;
        for at in (0..count).rev() {
            let one = &uses[at];
            let number = reached.and_then(|reached| reached.number(at));
            let loads_elsewhere =
                one.loads_elsewhere && !reached.is_some_and(|reached| reached.loads_own(at));
            let number = number.filter(|&(reg, _)| one.leaves_only(reg, live));
            let dead = one.writes != 0 && one.writes & live == 0;
            let mut reads = one.reads;
            let restores = one.loads && one.writes & restored != 0;
            let in_vain = one.stores_in_vain && one.writes & live == 0;
            if in_vain || (dead || number.is_some()) && !loads_elsewhere && !restores {
                let all = match &mut instructions {
                    Some(all) => all,
                    none => none.insert(graph.decode(node).collect::<Option<_>>()?),
                };
                let inst = all.get(at).filter(|_| all.len() == uses.len())?;
                if in_vain && graph.isa().only_stores(inst) {
                    fates[at] = Fate::Goes;
                    report.count("stores removed", 1);
                    continue;
                }
                if !loads_elsewhere && !restores && graph.isa().only_computes(inst) {
                    if dead {
                        fates[at] = Fate::Goes;
                        report.count("instructions removed", 1);
                        continue;
                    }
                    if let Some(shorter) = number.and_then(|known| {
                        self.shorter(one, known, live, inst.bytes.len(), graph.encoding(node))
                    }) {
                        fates[at] = Fate::Becomes(shorter);
                        reads = 0;
                        report.count("instructions made shorter", 1);
                    }
                }
            }
            live = live & !one.overwrites | reads | always;
        }
        Some(fates)
    }

    /// Returns an instruction of less than `len` bytes that puts a number into a register, or one of `len` bytes if
    /// that saves a load or a register read.
    fn shorter(
        &self,
        one: &Use,
        (reg, number): (Reg, u64),
        live: u64,
        len: usize,
        encoding: Encoding,
    ) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let number = u32::try_from(number).ok()?;
        let flags_may_change = live & FLAGS == 0;
        if !self.graph.isa().encode_number(encoding, reg, number, flags_may_change, &mut bytes) {
            return None;
        }
        let limit = len + usize::from(one.reads != 0 || one.loads);
        (bytes.len() < limit).then_some(bytes)
    }

    /// Returns the new contents of a block and the places that move. `None` if the instructions are not known.
    fn contents(&self, node: NodeId, fates: &[Fate]) -> Option<(Contents, Vec<(u32, u32)>)> {
        let graph = self.graph;
        let instructions = graph.instructions(node)?;
        let (mut contents, mut moved) = (Contents::default(), Vec::new());
        for (instruction, fate) in instructions.iter().zip(fates) {
            let (start, end) = (instruction.offset, instruction.offset + instruction.inst.bytes.len() as u32);
            let now = contents.bytes.len() as u32;
            moved.push((start, now));
            match fate {
                Fate::Goes => {}
                Fate::Becomes(bytes) => contents.bytes.extend(bytes),
                Fate::Calls(callee) => {
                    let call = Contents::call(graph, graph.encoding(node), Target::Node(*callee));
                    contents.bytes.extend(call.bytes);
                    contents.refs.extend(call.refs.iter().map(|r| Ref { offset: r.offset + now, ..*r }));
                }
                Fate::Stays => {
                    contents.bytes.extend(instruction.inst.bytes);
                    let own = graph.refs_of(node).iter().filter(|r| (start..end).contains(&r.offset));
                    contents.refs.extend(own.map(|r| Ref { offset: r.offset - start + now, ..*r }));
                }
            }
        }
        moved.push((graph.node(node).size, contents.bytes.len() as u32));
        Some((contents, moved))
    }
}
