//! The frozen parts of a linked kernel, found by the symbols that `kshrink-spec` defines around them.

use goblin::elf::Sym;
use kelf::{ElfFile, Result};
use serde::{Deserialize, Serialize};

/// Names of the symbols of a kernel with frozen parts. Each except the last has a size in bytes.
pub const FROZEN_SYMBOLS: [&str; 4] =
    ["kshrink_frozen_text", "kshrink_frozen_data", "kshrink_packed", "kshrink_frozen_end"];

/// Sizes in bytes of the frozen parts, which have addresses but no memory, and of their packed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenSizes {
    /// Frozen code.
    pub text: u64,
    /// Frozen read-only data.
    pub data: u64,
    /// Both in packed form, with all tables for decoding but without the decoder; part of the kernel's data.
    pub packed: u64,
}

impl FrozenSizes {
    /// Reads the sizes of a kernel from its symbols; `None` if no part of it is frozen.
    ///
    /// # Errors
    /// [`Error::Damaged`](kelf::Error::Damaged) if its symbols do not make sense.
    pub(crate) fn of(file: &ElfFile<'_>, symbols: &[(Sym, &str)]) -> Result<Option<FrozenSizes>> {
        let found = FROZEN_SYMBOLS
            .map(|name| symbols.iter().find(|(_, found)| *found == name).map(|(symbol, _)| symbol));
        let [Some(text), Some(data), Some(packed), Some(end)] = found else { return Ok(None) };
        let (start, end) = (text.st_value, end.st_value);
        if start >= end
            || !(start..=end).contains(&data.st_value)
            || text.st_size + data.st_size > end - start
        {
            let problem = format!(
                "frozen code at {start:#x}, data at {:#x} and their end at {end:#x} are not in order",
                data.st_value
            );
            return Err(file.damaged("symbols", problem));
        }
        Ok(Some(FrozenSizes { text: text.st_size, data: data.st_size, packed: packed.st_size }))
    }
}
