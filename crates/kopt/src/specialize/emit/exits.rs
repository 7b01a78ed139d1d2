//! The code of exits: it puts in place what the original code would have left.

use kcfg::graph::Contents;
use kisa::Reg;
use kisa::specializing::Simple;

use super::super::demand::{Content, Exit};
use super::super::explore::Why;
use super::super::guard;
use super::super::op::{Maker, bit};
use super::super::state::{REGISTERS, WORD};
use super::super::value::Value;
use super::shared::{self, Store};
use super::{CALL, EXIT, Finish, Layout, append};

impl Layout<'_, '_> {
    /// Adds the exits that blocks of the path lead to, and the code that they share.
    ///
    /// # Errors
    /// If a store has no encoding.
    pub fn add_exits(&mut self, exits: &[Exit]) -> Result<(), Why> {
        let ends = self.path.blocks.iter().flat_map(|block| match block.end {
            Finish::Go(to) | Finish::Call(_, to) => vec![to],
            Finish::Branch(_, taken, next) => vec![taken, next],
            _ => Vec::new(),
        });
        let mut used: Vec<usize> = Vec::new();
        for number in ends.filter(|&to| to >= EXIT).map(|to| to - EXIT) {
            if self.exits.contains_key(&number) {
                continue;
            }
            let same = used.iter().position(|&other| is_same(&exits[other], &exits[number]));
            self.exits.insert(number, same.unwrap_or(used.len()));
            if same.is_none() {
                used.push(number);
            }
        }
        let words: Vec<&[Store]> = used.iter().map(|&number| exits[number].words.as_slice()).collect();
        let shared = shared::divide(&words, |stores| Ok(self.shared(stores)?.bytes.len()))?;
        for code in &shared {
            let mut contents = self.shared(&code.stores)?;
            if code.next.is_none() {
                self.maker.explorer.original.isa.encode_return(guard::ENCODING, &mut contents.bytes);
            }
            self.path.size += contents.bytes.len() as u64;
            self.path.exit_size += contents.bytes.len() as u64;
            self.path.shared_words += code.stores.len() as u64;
            self.path.shared.push((contents, code.next));
        }
        let mut starts = Vec::with_capacity(used.len());
        for (number, exit) in used.iter().map(|&number| &exits[number]).enumerate() {
            starts.push(self.path.blocks.len());
            for code in shared::calls(&shared, number) {
                let next = self.path.blocks.len() + 1;
                self.push(Contents::default(), Finish::Shared(code, next));
                self.path.exit_size += CALL as u64;
                self.path.size += CALL as u64;
            }
            let is_shared = |store: &&Store| {
                shared.iter().any(|code| code.exits.contains(&number) && code.stores.contains(store))
            };
            let own: Vec<Store> = exit.words.iter().filter(|store| !is_shared(store)).copied().collect();
            let contents = self.exit(exit, &own)?;
            self.path.exits += 1;
            self.path.exit_size += contents.bytes.len() as u64;
            self.push(contents, Finish::Jump(exit.dest));
        }
        self.exits.values_mut().for_each(|start| *start = starts[*start]);
        Ok(())
    }

    /// Returns the code of stores that exits share.
    ///
    /// # Errors
    /// If a store has no encoding.
    fn shared(&self, stores: &[Store]) -> Result<Contents, Why> {
        let mut code = Contents::default();
        // The call pushes a word.
        self.stores(&mut code, stores, None, self.maker.lowest - WORD)?;
        Ok(code)
    }

    /// Returns the code of an exit: it puts in place what the original code would have left, except for words that shared code
    /// stores.
    ///
    /// # Errors
    /// If a store has no encoding.
    fn exit(&self, exit: &Exit, own: &[Store]) -> Result<Contents, Why> {
        let maker = &self.maker;
        let mut code = Contents::default();
        let stack_pointer = maker.explorer.original.isa.convention().stack_pointer;
        let free = (0..REGISTERS as u8)
            .map(Reg)
            .find(|&reg| reg != stack_pointer && exit.demand.registers & bit(reg) == 0);
        self.stores(&mut code, own, free, maker.lowest)?;
        for &(reg, value) in &exit.registers {
            append(&mut code, maker.set(reg, value)?);
        }
        self.move_stack(&mut code, exit.stack - maker.lowest)?;
        Ok(code)
    }

    /// Appends stores. Addresses of the stack go through a register; without a free one, another one is saved
    /// meanwhile. The stack pointer is at `lowest`, in bytes from the one at the entry of the path.
    ///
    /// # Errors
    /// If a store has no encoding.
    fn stores(
        &self,
        code: &mut Contents,
        words: &[Store],
        free: Option<Reg>,
        lowest: i32,
    ) -> Result<(), Why> {
        let explorer = self.maker.explorer;
        let maker = Maker { explorer, lowest };
        let mut addresses = Vec::new();
        for &(word, content) in words {
            match content {
                Content::Register(reg) => {
                    append(code, maker.simple(Simple::Store(maker.slot(word), reg, WORD as u8))?);
                }
                Content::Known(value @ Value::Stack(_)) => addresses.push((word, value)),
                Content::Known(value) => append(code, maker.store(word, value)?),
            }
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

/// Whether two exits have the same code.
fn is_same(one: &Exit, other: &Exit) -> bool {
    let parts = |exit: &Exit| (exit.dest, exit.stack, exit.demand.registers);
    parts(one) == parts(other) && one.words == other.words && one.registers == other.registers
}
