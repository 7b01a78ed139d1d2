//! Sizes of linked kernels and programs.
//!
//! [`SizeTable`] measures a file, [`KernelMemory`] the pages that a booted kernel keeps, and [`FrozenSizes`] the frozen
//! parts, by the symbols that `kshrink-spec` defines around them ([`FROZEN_SYMBOLS`]). The command `kelf` prints the
//! table (`kelf size`), and translates addresses of a rewritten kernel (`kelf where`, `kelf symbolize`).

mod frozen;
mod memory;
mod table;

pub use frozen::{FROZEN_SYMBOLS, FrozenSizes};
pub use memory::{KernelMemory, is_given_back};
pub use table::SizeTable;
