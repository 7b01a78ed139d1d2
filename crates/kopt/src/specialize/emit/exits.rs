//! The code of exits: it puts in place what the original code would have left.

use std::collections::BTreeMap;

use kcfg::graph::Contents;
use kisa::Reg;
use kisa::specializing::Simple;

use super::super::demand::Exit;
use super::super::explore::Why;
use super::super::guard;
use super::super::op::{Maker, bit};
use super::super::state::{REGISTERS, WORD};
use super::super::value::Value;
use super::{Layout, append};

/// Minimum number of words that exits store in shared code.
const LEAST_SHARED: usize = 2;

impl Layout<'_, '_> {
    /// Returns the known words that an exit stores, by the function in whose frame they are.
    fn by_frame(&self, exit: &Exit) -> Vec<Vec<(i32, Value)>> {
        let mut groups = Vec::new();
        let mut add = |words: Vec<(i32, Value)>| {
            let (addresses, others) = words.into_iter().partition(|(_, value)| is_address(value));
            groups.extend(runs(others));
            groups.push(addresses);
        };
        let mut left = exit.words.clone();
        let mut at = Some(exit.instance);
        while let Some(instance) = at {
            let frame = &self.maker.explorer.instances[instance.0 as usize];
            let (own, others) = left.into_iter().partition(|&(word, _)| word <= frame.base);
            add(own);
            left = others;
            at = frame.back.map(|(outer, _)| outer);
        }
        add(left);
        groups
    }

    /// Makes code of the stores that several exits have in common.
    ///
    /// # Errors
    /// If one has no encoding.
    pub fn share(&mut self, exits: &[Exit]) -> Result<(), Why> {
        let mut counts: BTreeMap<Vec<(i32, Value)>, usize> = BTreeMap::new();
        for group in exits.iter().flat_map(|exit| self.by_frame(exit)) {
            *counts.entry(group).or_default() += 1;
        }
        for (group, count) in counts {
            if count < 2 || group.len() < LEAST_SHARED {
                continue;
            }
            let mut code = Contents::default();
            // The call pushes a word.
            self.stores(&mut code, &group, None, self.maker.lowest - WORD)?;
            self.maker.explorer.original.isa.encode_return(guard::ENCODING, &mut code.bytes);
            self.path.size += code.bytes.len() as u64;
            self.path.exit_size += code.bytes.len() as u64;
            self.shared.insert(group, self.path.shared.len());
            self.path.shared.push(code);
        }
        Ok(())
    }

    /// Returns the code of an exit: it puts in place what the original code would have left. Shared code, given by its
    /// numbers, runs before it.
    ///
    /// # Errors
    /// If a store has no encoding.
    pub fn exit(&self, exit: &Exit) -> Result<(Contents, Vec<usize>), Why> {
        let maker = &self.maker;
        let mut code = Contents::default();
        let (mut shared, mut own) = (Vec::new(), Vec::new());
        for group in self.by_frame(exit) {
            match self.shared.get(&group) {
                Some(&number) => shared.push(number),
                None => own.extend(group),
            }
        }
        for &(word, reg) in &exit.copies {
            append(&mut code, maker.simple(Simple::Store(maker.slot(word), reg, WORD as u8))?);
        }
        let stack_pointer = maker.explorer.original.isa.convention().stack_pointer;
        let free = (0..REGISTERS as u8)
            .map(Reg)
            .find(|&reg| reg != stack_pointer && exit.demand.registers & bit(reg) == 0);
        self.stores(&mut code, &own, free, maker.lowest)?;
        for &(reg, value) in &exit.registers {
            append(&mut code, maker.set(reg, value)?);
        }
        self.move_stack(&mut code, exit.stack - maker.lowest)?;
        Ok((code, shared))
    }

    /// Appends stores of known words. Addresses of the stack go through a register; without a free one, another one is saved
    /// meanwhile. The stack pointer is at `lowest`, in bytes from the one at the entry of the path.
    ///
    /// # Errors
    /// If a store has no encoding.
    fn stores(
        &self,
        code: &mut Contents,
        words: &[(i32, Value)],
        free: Option<Reg>,
        lowest: i32,
    ) -> Result<(), Why> {
        let explorer = self.maker.explorer;
        let maker = Maker { explorer, lowest };
        let (mut addresses, others): (Vec<_>, Vec<_>) =
            words.iter().partition(|(_, value)| is_address(value));
        for (word, value) in others {
            append(code, maker.store(word, value)?);
        }
        if addresses.is_empty() {
            return Ok(());
        }
        let (reg, pushed) = match free {
            Some(reg) => (reg, 0),
            None => (explorer.original.isa.convention().results[0], WORD),
        };
        let below = Maker { explorer, lowest: lowest - pushed };
        if pushed > 0 {
            append(code, maker.simple(Simple::Push(reg))?);
        }
        addresses.sort_unstable_by_key(|&(word, value)| (value, word));
        let mut held = None;
        for (word, value) in addresses {
            if held != Some(value) {
                append(code, below.set(reg, value)?);
                held = Some(value);
            }
            append(code, below.simple(Simple::Store(below.slot(word), reg, WORD as u8))?);
        }
        if pushed > 0 {
            append(code, maker.simple(Simple::Pop(reg))?);
        }
        Ok(())
    }
}

/// Whether a value is an address of the stack.
fn is_address(value: &Value) -> bool {
    matches!(value, Value::Stack(_))
}

/// Minimum number of neighbouring words with one value that are a group of their own.
const RUN: usize = 4;

/// Divides known words of a frame into groups that several exits may have in common: neighbours with one value, such as
/// variables that were filled, and all others.
fn runs(words: Vec<(i32, Value)>) -> Vec<Vec<(i32, Value)>> {
    let follows = |one: &(i32, Value), next: &(i32, Value)| one.0 + WORD == next.0 && one.1 == next.1;
    let (mut groups, mut others) = (Vec::new(), Vec::new());
    for run in words.chunk_by(follows) {
        match run.len() >= RUN {
            true => groups.push(run.to_vec()),
            false => others.extend_from_slice(run),
        }
    }
    groups.push(others);
    groups
}
