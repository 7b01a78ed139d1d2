//! The ABIs of system calls.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A system-call ABI: the numbering and the way into the kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Abi {
    /// 32-bit x86: `int $0x80`, `sysenter`; on an x86-64 kernel, the compatibility entries.
    I386,
    /// 64-bit x86: `syscall`.
    #[serde(rename = "x86_64")]
    X86_64,
    /// 64-bit x86 with 32-bit pointers: `syscall` with bit 30 of the number set. Plans omit that bit.
    X32,
    /// 32-bit ARM (EABI).
    Arm,
    /// 64-bit ARM.
    Aarch64,
}

impl Abi {
    /// The native ABIs of machines. x86-64 code can use x32 as well.
    pub const ALL: [Abi; 4] = [Abi::I386, Abi::X86_64, Abi::Arm, Abi::Aarch64];
}

impl fmt::Display for Abi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Abi::I386 => "i386",
            Abi::X86_64 => "x86_64",
            Abi::X32 => "x32",
            Abi::Arm => "arm",
            Abi::Aarch64 => "aarch64",
        })
    }
}
