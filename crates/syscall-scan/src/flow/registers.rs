//! Constant propagation through registers only: it finds the addresses of most jump tables.
//!
//! Compilers load the address of a table outside of the loop that uses it, and on i386 they keep the address of the
//! global offset table in a register. Both are found without tracking the frame, which is most of the work of
//! [`super`].

use std::collections::BTreeSet;

use kisa::{Address, Convention, Effect, Reg, Value};

use crate::code::{Block, Code, Constant, ExitKind, Facts, Function, NumberSet, Reader, RunWalk};
use crate::image::Addr;

/// Registers and their numbers.
pub type RegisterNumbers = Vec<(Reg, u64)>;

/// Returns the numbers that registers hold before each block of a function; `None` if the block is never reached.
pub(super) fn numbers(code: &Code, convention: &Convention, function: &Function) -> Vec<Option<Facts>> {
    let mut front: Vec<Option<Facts>> = vec![None; function.blocks.len()];
    front[0] = Some(Facts::nothing());
    let mut reader = code.reader(function.entry);
    let mut pending = BTreeSet::from([0]);
    while let Some(index) = pending.pop_first() {
        let block = &function.blocks[index];
        let Some(facts) = front[index].clone() else { continue };
        let facts = behind(code, &mut reader, convention, block, facts);
        for next in block.successors.iter().map(|next| next.get()) {
            match &mut front[next] {
                Some(known) if known.covers(&facts) => continue,
                Some(known) => known.join(&facts, true),
                None => front[next] = Some(facts.clone()),
            }
            pending.insert(next);
        }
    }
    front
}

/// Returns the facts after a block.
fn behind<'c>(
    code: &Code<'c>,
    reader: &mut Reader<'c>,
    convention: &Convention,
    block: &Block,
    facts: Facts,
) -> Facts {
    let mut walk = RunWalk::new(code.image, facts, convention.stack_pointer);
    let mut effects = Vec::new();
    for at in code.instructions_from(block.start).take_while(|&at| at < block.end) {
        effects.clear();
        code.read_effects(reader, at, &mut effects);
        walk.apply(&effects);
    }
    let mut known = walk.known;
    let exit = block.exit.map(|exit| code.exit(exit));
    let kind = exit.map(|exit| exit.kind);
    if matches!(kind, Some(ExitKind::Call(_) | ExitKind::IndirectCall)) {
        known.forget(convention.call_clobbered);
    }
    if let (Some(ExitKind::Call(callee)), Some(exit)) = (kind, exit) {
        known.forget(code.written_by_leaf(callee));
        if let Some(reg) = program_counter(code, convention, callee) {
            known.put(reg, Some(Constant::Numbers(NumberSet::one(exit.next.0))));
        }
    }
    known
}

/// Returns the register in which a function leaves its return address: position-independent i386 code reads the program
/// counter in this way (`mov (%esp),%ebx; ret`).
fn program_counter(code: &Code, convention: &Convention, function: Addr) -> Option<Reg> {
    if !code.image.machine.target().has_got_register {
        return None;
    }
    let instructions = code.straight_instructions(function).filter(|instructions| instructions.len() == 2)?;
    match instructions[0].1[..] {
        [Effect::Set { dst, value: Value::Load { from, width: 4 }, width: 4 }] => {
            let top = Address { base: Some(convention.stack_pointer), ..Address::default() };
            (from == top).then_some(dst)
        }
        _ => None,
    }
}
