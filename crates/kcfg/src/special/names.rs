//! Patterns for names of sections, and the machines that a rule is for.

use kelf::Machine;

/// Every machine.
pub(super) const ALL: &[Machine] = &[Machine::I386, Machine::X86_64, Machine::Arm, Machine::Aarch64];

/// Both x86.
pub(super) const X86: &[Machine] = &[Machine::I386, Machine::X86_64];

/// 32-bit ARM.
pub(super) const ARM: &[Machine] = &[Machine::Arm];

/// A pattern for names of sections.
#[derive(Clone, Copy, Debug)]
pub(super) enum Name {
    /// Only this name.
    Is(&'static str),
    /// This name, and names that extend it with a dot or a plus sign: `.data` matches `.data.once`. A name that ends
    /// with `_` or a dot matches every name with that prefix.
    Family(&'static str),
}

impl Name {
    /// Whether a section's name matches.
    pub(super) fn matches(self, name: &str) -> bool {
        match self {
            Name::Is(one) => one == name,
            Name::Family(first) => name.strip_prefix(first).is_some_and(|rest| {
                rest.is_empty() || rest.starts_with(['.', '+']) || first.ends_with(['_', '.'])
            }),
        }
    }
}
