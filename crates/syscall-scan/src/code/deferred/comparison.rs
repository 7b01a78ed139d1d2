//! Comparisons with the interpreter's entry.

use kisa::{Address, Effect, Reg, Value};

use crate::image::Addr;

/// The comparisons in a straight-line piece of code.
#[derive(Default)]
pub(in crate::code) struct EntryComparison {
    /// The register with the interpreter's entry, and the instruction that loads it.
    entry: Option<(Reg, Addr)>,
    /// The instruction that loads the entry, if the flags compare a value with the entry.
    pub(super) compared: Option<Addr>,
}

impl EntryComparison {
    /// Applies an instruction of the straight-line piece. `entry` is the interpreter's.
    pub(in crate::code) fn follow(&mut self, at: Addr, effects: &[Effect], entry: Option<Addr>) {
        for effect in effects {
            match *effect {
                Effect::Set {
                    dst,
                    value: Value::Address(Address { base: None, index: None, displacement, .. }),
                    ..
                } if entry == Some(Addr(displacement as u64)) => self.entry = Some((dst, at)),
                Effect::Set { dst, .. } => self.entry = self.entry.filter(|&(register, _)| register != dst),
                Effect::Store { .. } | Effect::BranchIf(_) => {}
                Effect::Compare { left, right, width } => {
                    let is_entry =
                        |reg| (left == Value::Reg { reg, width }) != (right == Value::Reg { reg, width });
                    let compared = self.entry.filter(|&(register, _)| width == 8 && is_entry(register));
                    self.compared = compared.map(|(_, from)| from);
                }
                _ => *self = EntryComparison::default(),
            }
        }
    }
}
