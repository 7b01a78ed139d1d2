//! Constant propagation through registers alone: it finds the addresses of most jump tables.
//!
//! Compilers make the address of a table outside of the loop that uses it, and on i386 they keep that of the global
//! offset table in a register. Both are found without looking at the frame, which is most of the work of [`super`].

use std::collections::BTreeSet;

use kelf::Machine;
use kisa::{Address, Effect, Reg, Value};

use crate::abi::Convention;
use crate::code::{Block, Code, Constant, ExitKind, Facts, Function, NumberSet, Reader, RunWalk};
use crate::image::Addr;

/// Registers with the numbers that they hold.
pub type RegisterNumbers = Vec<(Reg, u64)>;

/// The numbers that registers hold in front of each block of a function; `None` where control does not get.
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

/// What is known behind a block.
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
        known.forget(convention.scratch.iter().fold(0, |scratch, reg| scratch | 1 << reg.0));
    }
    if let (Some(ExitKind::Call(callee)), Some(exit)) = (kind, exit) {
        known.forget(code.written_by_leaf(callee));
        if let Some(reg) = program_counter(code, convention, callee) {
            known.put(reg, Some(Constant::Numbers(NumberSet::one(exit.next.0))));
        }
    }
    known
}

/// The register in which a function leaves the address that it returns to: how position-independent code of i386 reads
/// the program counter (`mov (%esp),%ebx; ret`).
fn program_counter(code: &Code, convention: &Convention, function: Addr) -> Option<Reg> {
    if code.image.machine != Machine::I386 {
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
