//! Smaller data structures for a Linux kernel: the members of the structures that it allocates, packed by the values
//! that they held in memory dumps.
//!
//! The method is that of He, Debray and Andrews, *Compressing Dynamic Data Structures in Operating System Kernels*
//! (2007), below *the paper*.
//!
//! 1. [`sources`] finds the structure of the objects of each slab cache, [`ktypes`] reads it from debugging information;
//! 2. [`profile`](mod@profile) reads the values of members from memory dumps, with the names of [`symbols`];
//! 3. [`allocator`] is the arithmetic of the slab allocator;
//! 4. [`plan`](mod@plan) chooses how each member is stored, [`show`] prints tables;
//! 5. [`scan`] finds the uses of members in the kernel's source, [`patch`](mod@patch) makes the patch for a plan;
//! 6. [`check`](mod@check) builds the patched source, without the members that do not compile;
//! 7. [`document`] has the documents `kshrink-field-profile/1` and `kshrink-fields/1`.

pub mod allocator;
pub mod check;
pub mod document;
pub mod error;
pub mod patch;
pub mod plan;
pub mod profile;
pub mod scan;
pub mod show;
pub mod sources;
pub mod symbols;
