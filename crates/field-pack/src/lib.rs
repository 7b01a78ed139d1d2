//! Smaller data structures for a Linux kernel: the members of the structures that it allocates, packed by the values
//! that they held in memory dumps.
//!
//! The method is that of He, Debray and Andrews, *Compressing Dynamic Data Structures in Operating System Kernels*
//! (2007).
//!
//! - [`document`]: the documents `kshrink-field-profile/1` and `kshrink-fields/1`.

pub mod document;
pub mod error;
