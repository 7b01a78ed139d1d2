//! The exit of a run: its kind, and the code that it leads to.

use kisa::{Address, BinaryOp, BranchKind, Effect, Flow, Insn, Reg, Value};

use crate::code::deferred::comparison::EntryComparison;
use crate::code::reachable::Code;
use crate::code::run::{ExitId, ExitKind, Returns};
use crate::code::walk::RunWalk;
use crate::code::work::Work;
use crate::image::Addr;

impl Code<'_> {
    /// Returns whether an instruction writes to the final top of the stack, so that a following return jumps to the
    /// written address.
    pub(super) fn replaces_return_address(&self, effects: &[Effect]) -> bool {
        if self.isa.convention().link_register.is_some() {
            return false;
        }
        let stack = self.isa.convention().stack_pointer;
        let moved = effects.iter().find_map(|effect| match *effect {
            Effect::Binary { op: BinaryOp::Sub, dst, right: Value::Const(bytes), .. } if dst == stack => {
                Some(bytes as i64)
            }
            _ => None,
        });
        effects.iter().any(|effect| match *effect {
            Effect::Store { to, .. } => {
                to.base == Some(stack) && to.index.is_none() && to.displacement == -moved.unwrap_or(0)
            }
            _ => false,
        })
    }

    /// Adds an exit for the instruction, unless control falls through.
    pub(super) fn leave(
        &mut self,
        at: Addr,
        next: Addr,
        insn: Insn,
        effects: &[Effect],
        comparison: &EntryComparison,
        walk: Option<&RunWalk>,
    ) -> Option<ExitId> {
        let exit = match insn.flow {
            Flow::Next => return None,
            Flow::Direct { branch, target, .. } => {
                let target = Addr(self.image.wrap(target));
                match branch.kind {
                    BranchKind::Jump => {
                        let exit = self.add_exit(at, next, ExitKind::Jump, Returns::No);
                        self.go(exit, target);
                        exit
                    }
                    BranchKind::Conditional => {
                        let exit = self.add_exit(at, next, ExitKind::Jump, Returns::No);
                        let open = walk.map_or([true; 2], |walk| walk.ways(effects));
                        self.branch(exit, [(next, open[0]), (target, open[1])], effects, comparison);
                        exit
                    }
                    // `call 1f; 1: pop %ebx` reads the program counter.
                    BranchKind::Call if target == next => return None,
                    BranchKind::Call => {
                        let exit = self.add_exit(at, next, ExitKind::Call(target), Returns::No);
                        self.work.push(Work::Call(exit, target));
                        exit
                    }
                }
            }
            Flow::IndirectCall => {
                let linked = self.linked(at, effects);
                let kind = linked.map_or(ExitKind::IndirectCall, ExitKind::Call);
                let exit = self.add_exit(at, next, kind, Returns::No);
                match linked {
                    Some(target) => self.work.push(Work::Call(exit, target)),
                    None => self.come_back(exit),
                }
                exit
            }
            Flow::IndirectJump => match self.linked(at, effects) {
                Some(target) => {
                    let exit = self.add_exit(at, next, ExitKind::Jump, Returns::No);
                    self.link(exit, target);
                    exit
                }
                None => self.leave_computed(at, next, effects, walk),
            },
            Flow::Return => {
                let returns = Returns::Popping(self.popped_by_return(effects));
                self.add_exit(at, next, ExitKind::Return, returns)
            }
            Flow::Trap => self.add_exit(at, next, ExitKind::Stop, Returns::No),
        };
        if insn.conditional {
            self.exits[exit.0 as usize].conditional = true;
            if !self.exit(exit).successors.contains(&next) {
                self.go(exit, next);
            }
        }
        Some(exit)
    }

    /// Adds an exit for a computed jump.
    fn leave_computed(&mut self, at: Addr, next: Addr, effects: &[Effect], walk: Option<&RunWalk>) -> ExitId {
        let targets = self.linked_to_several(at, effects);
        if !targets.is_empty() {
            let exit = self.add_exit(at, next, ExitKind::Jump, Returns::No);
            targets.into_iter().for_each(|target| self.link(exit, target));
            return exit;
        }
        if let Some(targets) = walk.and_then(|walk| self.constant_targets(walk, effects)) {
            let exit = self.add_exit(at, next, ExitKind::IndirectJump, Returns::No);
            self.decide(exit);
            self.add_targets(exit, &targets);
            return exit;
        }
        let returns = if self.restores_context(at) { Returns::No } else { Returns::Somehow };
        self.add_exit(at, next, ExitKind::IndirectJump, returns)
    }

    /// Returns the targets of an entry of the interpreter's procedure linkage table: first its own functions, and
    /// functions of the libraries once they are loaded.
    fn linked_to_several(&self, at: Addr, effects: &[Effect]) -> Vec<Addr> {
        let word = loaded_target(effects).and_then(|(from, _)| match from {
            Address { base: None, index: None, displacement, segment: None, .. } => {
                Some(Addr(self.image.wrap(displacement as u64)))
            }
            _ => None,
        });
        let interpreter = self.image.interpreter().filter(|loaded| loaded.is_linkage(at));
        let slots = word.zip(interpreter).map_or(&[][..], |(word, loaded)| loaded.slots_at(word));
        if slots.len() > 1 { slots.iter().map(|&(_, target)| target).collect() } else { Vec::new() }
    }

    /// Returns the target of a branch through a constant word of memory: the procedure linkage table, or the global
    /// offset table directly.
    pub(in crate::code) fn linked(&self, at: Addr, effects: &[Effect]) -> Option<Addr> {
        let (from, width) = loaded_target(effects)?;
        if from.segment.is_some() || from.index.is_some() {
            return None;
        }
        let table = match from.base {
            None => 0,
            // By the i386 ABI, a register holds the address of the global offset table there.
            Some(_) => {
                let linkage = self.image.object_at(at)?.is_linkage(at);
                self.global_offset_table(at).filter(|_| linkage)?.0
            }
        };
        let word = Addr(self.image.wrap(table.wrapping_add_signed(from.displacement)));
        let target = Addr(self.image.constant(word, width)?);
        self.image.is_code(target).then_some(target)
    }

    /// Returns the number of bytes that a return pops in addition to the return address.
    fn popped_by_return(&self, effects: &[Effect]) -> u32 {
        let word = u64::from(self.image.machine.word_size());
        if self.isa.convention().link_register.is_some() {
            return 0;
        }
        let moved = effects.iter().find_map(|effect| match *effect {
            Effect::Binary { dst: Reg(_), right: Value::Const(bytes), .. } => Some(bytes),
            _ => None,
        });
        moved.unwrap_or(word).saturating_sub(word) as u32
    }
}

/// Returns the address and size of a computed branch target, if it is read from memory.
fn loaded_target(effects: &[Effect]) -> Option<(Address, u8)> {
    match Effect::target(effects)? {
        Value::Load { from, width } => Some((from, width)),
        _ => None,
    }
}
