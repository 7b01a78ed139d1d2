//! The supported machines.

use std::fmt;

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use crate::target::Target;

/// Instruction set and word size of an ELF file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Machine {
    /// 32-bit x86 (`EM_386`, REL).
    I386,
    /// 64-bit x86 (`EM_X86_64`, RELA).
    #[serde(rename = "x86_64")]
    X86_64,
    /// 32-bit ARM (`EM_ARM`, REL).
    Arm,
    /// 64-bit ARM (`EM_AARCH64`, RELA).
    Aarch64,
}

impl Machine {
    /// Returns the machine with this `e_machine`, if kshrink supports it.
    pub fn from_elf(e_machine: u16) -> Option<Machine> {
        Machine::ALL.into_iter().find(|machine| machine.to_elf() == e_machine)
    }

    /// Returns its `e_machine`.
    pub fn to_elf(self) -> u16 {
        self.target().e_machine
    }

    /// Whether its ELF files are of class 64.
    pub fn is_64(self) -> bool {
        self.target().is_64
    }

    /// Returns the size of an address in bytes.
    pub fn word_size(self) -> u8 {
        if self.is_64() { 8 } else { 4 }
    }

    /// Whether relocation sections carry their addends (RELA) or leave them in place (REL).
    pub fn is_rela(self) -> bool {
        self.target().is_rela
    }

    /// Whether a symbol only gives the kind of the bytes after it ([`Target::mapping_symbols`]).
    pub fn is_mapping_symbol(self, name: &str) -> bool {
        let kind = name.split('.').next().unwrap_or(name);
        self.target().mapping_symbols.contains(&kind)
    }

    /// Whether an instruction may have this address, judging by its alignment.
    pub fn is_aligned_code(self, address: u64) -> bool {
        let target = self.target();
        target.has_encoding_bit && address & 1 != 0 || address & u64::from(target.code_alignment - 1) == 0
    }

    /// Returns an address of a kernel's image, given its lower 32 bits. Images of 64 bits are in the highest 2 GiB.
    pub fn kernel_address(self, low: u32) -> u64 {
        if self.is_64() { low as i32 as u64 } else { low.into() }
    }

    /// Returns the address of the first byte of code whose address, as a value, has the given number
    /// ([`Target::has_encoding_bit`]).
    pub fn first_byte(self, address: u64) -> u64 {
        address & !u64::from(self.target().has_encoding_bit)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.target().name)
    }
}
