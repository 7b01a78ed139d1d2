//! What all pages of code share besides the distributions, for any instruction set.

use super::{arm, x86};
use crate::codec::error::Damaged;
use crate::codec::symbols::{Field, Fields, Source};

/// The data besides the distributions that all pages of code share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Model {
    /// i386 or x86-64 code.
    X86(x86::CodeModel),
    /// Code of 32-bit ARM, Thumb-2 or ARM.
    Arm(arm::ArmModel),
}

impl Model {
    /// Returns the fields of its symbols.
    pub fn fields(&self) -> Fields {
        match self {
            Model::X86(_) => x86::field::ALL,
            Model::Arm(_) => arm::field::ALL,
        }
    }

    /// Returns the fields whose contexts are places, each treated as a field of its own.
    pub fn fields_by_place(&self) -> &'static [Field] {
        match self {
            Model::X86(_) => &[x86::field::IMM16, x86::field::BYTES],
            Model::Arm(_) => &[arm::field::BYTES],
        }
    }

    /// Returns the upper byte of nearby addresses, if it is not each page's own.
    pub fn high(&self) -> Option<u32> {
        match self {
            Model::X86(model) => model.high,
            Model::Arm(model) => model.high,
        }
    }

    /// Decodes a page with the address `address` that runs at `runs_at`.
    ///
    /// # Errors
    /// If the page is damaged.
    pub fn decode<S: Source>(
        &self,
        source: &mut S,
        address: u32,
        runs_at: u32,
        out: &mut [u8],
    ) -> Result<(), Damaged> {
        match self {
            Model::X86(model) => model.decode(source, address, runs_at, out),
            Model::Arm(model) => model.decode(source, address, runs_at, out),
        }
    }
}
