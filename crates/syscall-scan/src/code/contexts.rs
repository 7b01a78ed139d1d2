//! Computed jumps that go to a saved context (`longjmp`), and never back to the caller.
//!
//! Such a jump ends a function that loads the registers which functions preserve, and the stack pointer, from
//! where an argument points to. Control goes on behind a call of `setjmp`, and code that can run from there on
//! is found there. A jump to another function (a tail call) leaves behind what its function found; it loads
//! registers from the stack, if at all.
//!
//! A function that also saves a context, to come back to it later (`swapcontext`), comes back to its caller when
//! somebody else jumps to that. To be on the safe side, a function that writes to memory at all is not taken
//! for one that only restores.

use kcfg::isa::{Address, Effect, Reg, Value};

use super::Code;
use crate::abi::Convention;
use crate::image::Addr;

/// How many registers at least are loaded, the stack pointer left out: all that i386 has, but for the frame
/// pointer, which glibc keeps in disguise and loads in several steps.
const LEAST_LOADED: usize = 3;

/// The longest function of this kind, in bytes. Those of the C libraries have less than 100.
const MAX_SIZE: u64 = 256;

impl Code<'_> {
    /// Whether the function of a computed jump does nothing but restore a context.
    pub(super) fn restores_context(&self, jump: Addr) -> bool {
        let Some(convention) = Convention::of(self.image.machine) else { return false };
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
                match *effect {
                    Effect::Store { .. } | Effect::ClobberRange(_) | Effect::ClobberMemory => return false,
                    Effect::Set { dst, value: Value::Reg { reg, .. }, .. } if dst == stack_pointer => {
                        moves_stack = convention.scratch.contains(&reg);
                    }
                    Effect::Set { dst, value: Value::Load { from, .. }, .. } => {
                        let Address { base: Some(base), index: None, segment: false, .. } = from else {
                            continue;
                        };
                        let preserved = dst != stack_pointer && !convention.scratch.contains(&dst);
                        if preserved && convention.arguments.contains(&base) && !loaded.contains(&dst) {
                            loaded.push(dst);
                        }
                    }
                    _ => {}
                }
            }
        }
        moves_stack && loaded.len() >= LEAST_LOADED
    }
}
