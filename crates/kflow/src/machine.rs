//! The machine that runs a program, as far as it matters for calls.

use std::sync::Arc;

use kisa::Reg;

use crate::constants::ConstantMemory;
use crate::program::bit;
use crate::values::Names;

/// The properties of the machine that matter for calls.
#[derive(Clone, Copy, Hash, Debug)]
pub struct Machine {
    /// Bytes of a word.
    pub word: u8,
    /// The number of registers.
    pub registers: usize,
    /// The stack pointer.
    pub stack_pointer: Reg,
    /// The register that a call leaves the return address in; `None` if it pushes it.
    pub link: Option<Reg>,
    /// The convention of functions without other facts; `None` if there is none.
    pub convention: Option<Convention>,
}

/// A calling convention.
#[derive(Clone, Copy, Hash, Debug)]
pub struct Convention {
    /// The registers that a function may change, as bits, including the registers of arguments. It restores the others,
    /// and does not write to the words in which its callers saved theirs.
    pub changed: u64,
    /// The registers of a result that takes up to two, the low half first.
    pub results: [Reg; 2],
    /// All registers that may hold a result, as bits.
    pub returned: u64,
}

impl Machine {
    /// Creates the names for the analysis of one function.
    pub(crate) fn names(&self, memory: &Arc<ConstantMemory>) -> Names {
        let mut names = Names::new(self.word, self.registers, self.stack_pointer);
        names.share_memory(Arc::clone(memory));
        let link = self.link.map_or(0, bit);
        if let Some(convention) = self.convention {
            names.keep_saved(!convention.changed | link);
        }
        if let Some(link) = self.link {
            names.return_by(link);
        }
        names
    }

    /// Returns the offset of a stack argument from the stack pointer on entry to the function, in bytes, by its number
    /// from 0.
    pub(crate) fn passed_word(&self, number: usize) -> u64 {
        let pushed = usize::from(self.link.is_none());
        (number + pushed) as u64 * u64::from(self.word)
    }
}
