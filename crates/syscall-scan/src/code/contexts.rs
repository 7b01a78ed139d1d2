//! Computed jumps to a saved context (`longjmp`), which never return to the caller, and functions that return twice.
//!
//! Such a jump ends a function that loads the preserved registers and the stack pointer from memory at an argument.
//! Control continues after a call of `setjmp`, and the code that can run from there is found there. A tail call, in
//! contrast, leaves registers as its function found them; it loads registers only from the stack.
//!
//! A function that also saves a context to resume it later (`swapcontext`) returns to its caller when other code jumps
//! to that context. To be safe, a function that writes to memory at all is not treated as one that only restores.

use kisa::{Address, BinaryOp, Convention, Effect, Reg, Value};

use super::reachable::Code;
use super::run::ExitKind;
use crate::abi;
use crate::image::Addr;

/// Minimum number of loaded registers, without the stack pointer: all that i386 preserves except the frame pointer,
/// which glibc mangles and loads in several steps.
const LEAST_LOADED: usize = 3;

/// Maximum size of such a function, in bytes. Those of the C libraries have less than 100.
const MAX_SIZE: u64 = 256;

/// Maximum number of instructions searched for a read of the return address.
const MAX_PROLOGUE: usize = 40;

impl Code<'_> {
    /// Returns whether the function of a computed jump only restores a context.
    pub(super) fn restores_context(&self, jump: Addr) -> bool {
        let convention = self.isa.convention();
        let Some(extent) = self.image.extent_around(jump) else { return false };
        if extent.end.0 - extent.start.0 > MAX_SIZE {
            return false;
        }
        let stack_pointer = convention.stack_pointer;
        let mut loaded: Vec<Reg> = Vec::new();
        let mut moves_stack = false;
        let mut effects = Vec::new();
        for at in self.sweep(extent.start, extent.end).into_iter().take_while(|&at| at < jump) {
            effects.clear();
            self.effects(at, &mut effects);
            for effect in &effects {
                if effect.memory_written().is_some() && !matches!(effect, Effect::SystemCall { .. }) {
                    return false;
                }
                match *effect {
                    Effect::Set { dst, value: Value::Reg { reg, .. }, .. } if dst == stack_pointer => {
                        moves_stack = convention.clobbers(reg);
                    }
                    Effect::Set { dst, value: Value::Load { from, .. }, .. } => {
                        let Address { base: Some(base), index: None, segment: None, .. } = from else {
                            continue;
                        };
                        let preserved = dst != stack_pointer && !convention.clobbers(dst);
                        if preserved && convention.is_input(base) && !loaded.contains(&dst) {
                            loaded.push(dst);
                        }
                    }
                    _ => {}
                }
            }
        }
        moves_stack && loaded.len() >= LEAST_LOADED
    }

    /// Returns whether a function reads its own return address, like `setjmp` and `vfork`. At its second return, the
    /// frame is in its state after the first.
    pub fn returns_twice(&self, callee: Addr) -> bool {
        self.reads_return_address(callee).unwrap_or(false)
    }

    fn reads_return_address(&self, callee: Addr) -> Option<bool> {
        let &Convention { stack_pointer, link_register: link, .. } = self.isa.convention();
        let is_link =
            |value: Value| link.is_some_and(|link| matches!(value, Value::Reg { reg, .. } if reg == link));
        let (mut at, mut depth) = (callee, 0i64);
        let mut effects = Vec::new();
        for _ in 0..MAX_PROLOGUE {
            effects.clear();
            self.effects(at, &mut effects);
            for effect in &effects {
                match *effect {
                    // Functions that call others store it on the stack.
                    Effect::Store { to, value, .. } if is_link(value) && to.base != Some(stack_pointer) => {
                        return Some(true);
                    }
                    Effect::Set { value, .. } | Effect::Binary { left: value, .. } if is_link(value) => {
                        return Some(true);
                    }
                    // The system call itself returns twice, and the function has nothing on the stack.
                    Effect::Set { dst, value: Value::Const(number), .. }
                        if link.is_some() && self.is_vfork(dst, number) =>
                    {
                        return Some(true);
                    }
                    Effect::Set { value: Value::Load { from, .. }, .. }
                        if link.is_none()
                            && from.base == Some(stack_pointer)
                            && from.index.is_none()
                            && from.displacement == depth =>
                    {
                        return Some(true);
                    }
                    Effect::Binary { op, dst, right: Value::Const(bytes), .. } if dst == stack_pointer => {
                        let bytes = i64::try_from(bytes).ok()?;
                        depth += if op == BinaryOp::Sub { bytes } else { -bytes };
                    }
                    Effect::Set { dst, .. } | Effect::Clobber(dst) if dst == stack_pointer => return None,
                    _ => {}
                }
            }
            at = match self.exit_at(at).map(|exit| self.exit(exit)) {
                Some(exit) if exit.kind == ExitKind::Jump && exit.successors.len() == 1 => exit.successors[0],
                Some(_) => return None,
                None => at.plus(self.length(at)?),
            };
        }
        None
    }

    /// Returns whether loading a number into a register prepares for `vfork`, or for `clone`, which can do the same.
    fn is_vfork(&self, dst: Reg, number: u64) -> bool {
        let abi = abi::abi(self.image.machine, false);
        let name = u32::try_from(number).ok().and_then(|number| abi::name(abi, number));
        dst == abi::registers(abi).number && matches!(name, Some("vfork" | "clone" | "clone3"))
    }
}
