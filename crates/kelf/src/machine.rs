//! The supported machines.

use std::fmt;

use goblin::elf::header::{EM_386, EM_AARCH64, EM_ARM, EM_X86_64};
use serde::{Deserialize, Serialize};

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
        match e_machine {
            EM_386 => Some(Machine::I386),
            EM_X86_64 => Some(Machine::X86_64),
            EM_ARM => Some(Machine::Arm),
            EM_AARCH64 => Some(Machine::Aarch64),
            _ => None,
        }
    }

    /// Returns its `e_machine`.
    pub fn to_elf(self) -> u16 {
        match self {
            Machine::I386 => EM_386,
            Machine::X86_64 => EM_X86_64,
            Machine::Arm => EM_ARM,
            Machine::Aarch64 => EM_AARCH64,
        }
    }

    /// Whether its ELF files are of class 64.
    pub fn is_64(self) -> bool {
        matches!(self, Machine::X86_64 | Machine::Aarch64)
    }

    /// Returns the size of an address in bytes.
    pub fn word_size(self) -> u8 {
        if self.is_64() { 8 } else { 4 }
    }

    /// Whether relocation sections carry their addends (RELA) or leave them in place (REL).
    pub fn is_rela(self) -> bool {
        self.is_64()
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Machine::I386 => "i386",
            Machine::X86_64 => "x86_64",
            Machine::Arm => "arm",
            Machine::Aarch64 => "aarch64",
        })
    }
}
