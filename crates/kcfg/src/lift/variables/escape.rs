/*!
The uses of an address in a register.

From the instruction that loads it, the address is followed forward along every path, through copies. A path is
complete when the address is overwritten, passed to a function, returned, or used to access memory at a fixed distance:
the accessed memory belongs to the intended variable, whatever happens to the address later. Until then, the address
may be stored outside of the frame and compared with null. Anything else ends the search without a proof: arithmetic, a
comparison, an index, or a store in the frame, where a later load would lose it.
*/

use std::ops::Range;

use rustc_hash::FxHashSet;

use crate::graph::{Dest, Graph, Target, Terminator};
use crate::index::NodeId;
use crate::instructions::Instruction;
use kflow::{Transfer, apply};
use kisa::{Address, BinaryOp, Condition, Effect, Reg, Rewritable, Value};

/// Maximum number of blocks to follow an address through.
const MAX_BLOCKS: usize = 100;

/// Returns the bytes, relative to the address, that are accessed through it; `None` if the address cannot be followed.
/// `number` is the instruction of the block that loads it into `reg`.
pub(super) fn accesses(graph: &Graph, node: NodeId, number: usize, reg: Reg) -> Option<Vec<Range<i64>>> {
    let mut search = Search { graph, isa: graph.isa(), seen: FxHashSet::default(), accesses: Vec::new() };
    let mut pending = vec![(node, number + 1, 1u64 << reg.0)];
    while let Some((node, from, held)) = pending.pop() {
        if from == 0 && !search.seen.insert((node, held)) {
            continue;
        }
        if search.seen.len() > MAX_BLOCKS {
            return None;
        }
        let held = search.block(node, from, held)?;
        if held != 0 {
            search.successors(node, held, &mut pending)?;
        }
    }
    Some(search.accesses)
}

/// Whether a store of the block makes its value accessible to other functions: anywhere but in the frame, or on the
/// stack as an argument (`push`).
pub(super) fn leaves_frame(graph: &Graph, node: NodeId, to: &Address, effects: &[Effect]) -> bool {
    let stack = graph.isa().convention().stack_pointer;
    let pushes = effects.iter().any(|effect| match effect {
        Effect::Binary { dst, .. } | Effect::Set { dst, .. } => *dst == stack,
        _ => false,
    });
    let in_frame = |reg: Reg| reg == stack || is_frame_pointer(graph, node, reg);
    pushes || !to.base.is_some_and(in_frame) && !to.index.is_some_and(|(reg, _)| in_frame(reg))
}

/// Whether the function of the block ever copies its stack pointer to the register.
fn is_frame_pointer(graph: &Graph, node: NodeId, reg: Reg) -> bool {
    let Some(block) = graph.block(node) else { return true };
    let stack = graph.isa().convention().stack_pointer;
    let copies = |effect: &Effect| match *effect {
        Effect::Set { dst, value: Value::Reg { reg: from, .. }, .. } => dst == reg && from == stack,
        _ => false,
    };
    let function = &graph.functions[block.function];
    // A cold part shares the frame of its function.
    if function.name.contains(".cold") {
        return true;
    }
    function.blocks.iter().any(|&block| graph.effects(block).iter().flatten().any(copies))
}

struct Search<'g> {
    graph: &'g Graph,
    isa: &'static dyn Rewritable,
    seen: FxHashSet<(NodeId, u64)>,
    accesses: Vec<Range<i64>>,
}

impl Search<'_> {
    /// Follows the address through a block, from instruction `from` on; returns the registers that hold it at the end.
    fn block(&mut self, node: NodeId, from: usize, mut held: u64) -> Option<u64> {
        for instruction in self.graph.instructions(node)?.iter().skip(from) {
            if held == 0 {
                break;
            }
            held = self.instruction(node, instruction, held)?;
        }
        Some(held)
    }

    fn instruction(&mut self, node: NodeId, instruction: &Instruction, held: u64) -> Option<u64> {
        let Instruction { inst, effects, fields, .. } = instruction;
        // A string instruction accesses memory there, unless its count is 0.
        if self.isa.string_registers(inst) & held != 0 {
            return Some(0);
        }
        let read = self.isa.registers_read(inst) & held;
        if let Some(operand) = self.isa.memory_operand(inst)
            && operand.address.base.is_some_and(|base| held >> base.0 & 1 != 0)
        {
            let is_relocated = fields.iter().any(|field| Some(field.offset) == operand.displacement_offset);
            if operand.address.index.is_some() || operand.width == 0 || is_relocated {
                return None;
            }
            let start = operand.address.displacement;
            self.accesses.push(start..start + i64::from(operand.width));
            return Some(0);
        }
        let mut holders = Holders {
            before: held,
            after: held,
            followed: 0,
            word: self.graph.machine.word_size(),
            keeps_frame: |to: &Address| !leaves_frame(self.graph, node, to, effects),
            is_lost: false,
        };
        effects.iter().for_each(|effect| apply(&mut holders, effect));
        // An unsupported use.
        let lost = holders.is_lost || read & !holders.followed != 0;
        (!lost).then_some(holders.after)
    }

    /// Continues after a block that ends with the address in the registers `held`.
    fn successors(&self, node: NodeId, held: u64, pending: &mut Vec<(NodeId, usize, u64)>) -> Option<()> {
        let graph = self.graph;
        let kept = held & !self.isa.convention().call_clobbered;
        let mut go = |to: NodeId, held: u64| pending.push((to, 0, held));
        let end = &graph.block(node)?.end;
        match end {
            Terminator::FallThrough(next) => go(*next, held),
            Terminator::Jump(dest) => self.jump(node, dest, held, &mut go)?,
            Terminator::Branch { taken, next, .. } => {
                self.jump(node, taken, held, &mut go)?;
                go(*next, held);
            }
            // Outlined code is part of the function, and not followed.
            Terminator::Call { .. } if graph.calls_outlined(node) => return None,
            // A compiler that knows the callee may keep values in registers that the callee could change but does not
            // (`-fipa-ra`).
            Terminator::Call { next } | Terminator::IndirectCall { next } => {
                next.iter().for_each(|&next| go(next, held));
            }
            Terminator::Switch(table) => {
                for slot in graph.slots(*table) {
                    go(graph.resolve_node(slot.target)?, held);
                }
            }
            Terminator::Trap { next } => next.iter().for_each(|&next| go(next, held)),
            // A tail call, if everything that belongs to the caller has been restored; else a computed `goto`, or an
            // unresolved `switch`.
            Terminator::IndirectJump if kept != 0 || graph.table_index(node).is_some() => return None,
            Terminator::IndirectJump | Terminator::Return | Terminator::Unreachable => {}
            // Patched code may do anything.
            Terminator::Patched { .. } | Terminator::Conditional { .. } => return None,
        }
        Some(())
    }

    /// Follows a jump within the function; a jump to another function passes the address. The cold part of a function
    /// is not another function.
    fn jump(&self, node: NodeId, dest: &Dest, held: u64, go: &mut impl FnMut(NodeId, u64)) -> Option<()> {
        let graph = self.graph;
        let leaves = held & !self.isa.convention().call_clobbered == 0;
        let block = graph.resolve_node(dest.target).and_then(|to| Some((to, graph.block(to)?)));
        let Some((to, block)) = block else {
            // To hand-written code by name, or to an opaque part of the function.
            return (leaves && matches!(dest.target, Target::Symbol(_))).then_some(());
        };
        let function = &graph.functions[block.function];
        let same = graph.block(node).is_some_and(|from| from.function == block.function);
        let entry = function.entry() == to;
        if same || !entry || function.name.contains(".cold") {
            go(to, held);
            return Some(());
        }
        // A tail call has restored everything that belongs to the caller.
        leaves.then_some(())
    }
}

/// The registers that hold the address, while an instruction is applied. The knowledge about a value is the register
/// from which it copies the whole address, if any.
struct Holders<F> {
    /// Before the instruction, as bits.
    before: u64,
    /// After the instruction.
    after: u64,
    /// The registers that it reads in supported ways.
    followed: u64,
    word: u8,
    /// Whether a store at a place stays in the frame.
    keeps_frame: F,
    /// The address is used in an unsupported way.
    is_lost: bool,
}

fn bit(reg: Reg) -> u64 {
    1 << reg.0
}

impl<F: Fn(&Address) -> bool> Transfer for Holders<F> {
    type Known = Option<Reg>;

    fn operand(&mut self, operand: Value) -> Option<Reg> {
        match operand {
            Value::Reg { reg, width } => Some(reg).filter(|&reg| self.before & bit(reg) != 0 && width >= 4),
            Value::Const(_)
            | Value::Symbol { .. }
            | Value::Load { .. }
            | Value::Address(_)
            | Value::Unknown => None,
        }
    }

    fn sign_extended(&mut self, _value: Option<Reg>, _from: u8, _width: u8) -> Option<Reg> {
        None
    }

    fn write(&mut self, dst: Reg, value: Option<Reg>, width: u8) {
        match value.filter(|_| width >= 4) {
            Some(from) => {
                self.followed |= bit(from);
                self.after |= bit(dst);
            }
            None => self.after &= !bit(dst),
        }
    }

    fn write_maybe(&mut self, dst: Reg, value: Option<Reg>, width: u8) {
        if let Some(from) = value.filter(|_| width >= 4) {
            self.followed |= bit(from);
            self.after |= bit(dst);
        }
        // A conditional move over it may keep it.
        self.followed |= bit(dst);
    }

    fn binary(&mut self, _op: BinaryOp, dst: Reg, _operands: (Value, Value), width: u8) {
        self.write(dst, None, width);
    }

    fn clobber(&mut self, reg: Reg) {
        self.after &= !bit(reg);
    }

    fn swap(&mut self, a: Reg, b: Reg) {
        self.is_lost |= self.before & (bit(a) | bit(b)) != 0;
    }

    fn store(&mut self, to: &Address, value: Option<Reg>, width: u8) {
        if let Some(from) = value.filter(|_| width == self.word) {
            self.is_lost |= (self.keeps_frame)(to);
            self.followed |= bit(from);
        }
    }

    fn compare(&mut self, left: Value, right: Value, _width: u8, _equality: bool) {
        if let (Some(from), Value::Const(0)) = (self.operand(left), right) {
            self.followed |= bit(from);
        }
    }

    // None of these reads a register in a supported way.

    fn escape(&mut self, _value: Value) {}

    fn clobber_memory(&mut self, _from: Option<&Address>) {}

    fn clobber_flags(&mut self) {}

    fn system_call(&mut self, _compat: bool, _number: Option<u32>) {}

    fn transfer(&mut self, _target: Value) {}

    fn branch(&mut self, _condition: Condition) {}

    fn branch_compared(&mut self, _left: Value, _right: Value, _width: u8, _condition: Condition) {}

    fn only_if(&mut self, _condition: Condition) {
        self.is_lost = true;
    }
}
