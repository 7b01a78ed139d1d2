//! Retpolines: compilers' replacements of computed branches and returns that prevent training of branch prediction
//! (`-mindirect-branch`, `-mfunction-return`, `-mretpoline`).
//!
//! The branch becomes a branch to a *thunk*. The thunk calls past a loop that only speculation enters; it then replaces
//! the return address by a register, or drops it, and returns:
//!
//! ```text
//! thunk:  call 2f
//! 1:      pause; lfence; jmp 1b
//! 2:      mov %rax,(%rsp)          or: lea 8(%rsp),%rsp
//!         ret
//! ```
//!
//! Taken literally, such a thunk is a function that never returns. A branch to a thunk with a register is treated as a
//! branch to the register's value, and a jump to the other kind as a return. The call at its beginning is treated in
//! the same way, because compilers also emit thunks inline.

use kisa::{Branch, BranchKind, Effect, Encoding, Flow, Isa, Reg, Value};
use memchr::memmem;
use rustc_hash::FxHashMap;

use crate::image::{Addr, Image};

/// `pause; lfence; jmp` back to the `pause`.
const TRAP: [u8; 7] = [0xf3, 0x90, 0x0f, 0xae, 0xe8, 0xeb, 0xf9];
/// Size of the preceding call in bytes.
const CALL: u64 = 5;

/// The effect of a thunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Thunk {
    /// A jump to the address in a register.
    Jump(Reg),
    /// A return, by the instruction at this address.
    Return(Addr),
}

/// The thunks of a program by their addresses.
pub(super) type Thunks = FxHashMap<Addr, Thunk>;

/// Finds the thunks of a program.
pub(super) fn find(image: &Image, isa: &dyn Isa) -> Thunks {
    let mut thunks = Thunks::default();
    // Thunks replace a return address on the stack.
    if isa.convention().link_register.is_some() {
        return thunks;
    }
    for range in image.code() {
        for offset in memmem::find_iter(image.bytes_in(range), &TRAP) {
            let Some(start) = (range.start + offset as u64).checked_sub(CALL).map(Addr) else { continue };
            if let Some(thunk) = thunk(image, isa, start) {
                thunks.insert(start, thunk);
            }
        }
    }
    thunks
}

/// Returns the effect of the thunk at an address; `None` if there is none.
fn thunk(image: &Image, isa: &dyn Isa, start: Addr) -> Option<Thunk> {
    let inst = |at: Addr| isa.decode(image.code_bytes(at), Encoding::Main.at(at.0));
    let call = image.is_code(start).then(|| inst(start)).flatten()?.insn;
    let Flow::Direct { branch: Branch { kind: BranchKind::Call, .. }, target, .. } = call.flow else {
        return None;
    };
    let swap = Addr(image.wrap(target));
    let changes = image.is_code(swap).then(|| inst(swap)).flatten()?;
    let end = swap.plus(changes.insn.len.into());
    if u64::from(call.len) != CALL || inst(end)?.insn.flow != Flow::Return {
        return None;
    }
    let mut effects = Vec::new();
    isa.effects(&changes, &mut effects);
    let (stack, word) = (isa.convention().stack_pointer, image.machine.word_size());
    effects.iter().find_map(|effect| match *effect {
        Effect::Store { to, value: Value::Reg { reg, width }, .. }
            if to.base == Some(stack) && to.index.is_none() && to.displacement == 0 && width == word =>
        {
            Some(Thunk::Jump(reg))
        }
        Effect::Set { dst, value: Value::Address(sum), .. }
            if dst == stack && sum.base == Some(stack) && sum.displacement == i64::from(word) =>
        {
            Some(Thunk::Return(end))
        }
        Effect::Binary { dst, right: Value::Const(bytes), .. }
            if dst == stack && bytes == u64::from(word) =>
        {
            Some(Thunk::Return(end))
        }
        _ => None,
    })
}
