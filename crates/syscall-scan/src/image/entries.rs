//! The entries of a dynamic section, by tag.

use goblin::elf::dynamic::Dyn;

/// The entries of a dynamic section, in order.
#[derive(Debug, Default)]
pub(super) struct Entries(pub(super) Vec<Dyn>);

impl Entries {
    /// Returns the value of an entry; `None` if it is absent or null.
    pub(super) fn value(&self, tag: u64) -> Option<u64> {
        let entry = self.0.iter().find(|entry| entry.d_tag == tag)?;
        Some(entry.d_val).filter(|&value| value != 0)
    }
}
