//! The owners of the memory of a running Linux kernel, from an image of that memory.
//!
//! 1. [`kernel`] reads the linked kernel, [`locate`] finds it in the image and checks that it is the same;
//! 2. [`machine`] has what differs between machines, [`layout`] reads the layouts of its structures from debugging information;
//! 3. [`memory`] reads the image by virtual address, and [`running`] structures and variables in it;
//! 4. [`slab`], [`tasks`], [`paging`], [`memblock`], [`reserved`] and [`references`] find owners, and [`pages`] counts every page once;
//! 5. [`take`] makes a [`document`] of the counts, [`report`] and [`diff`] print documents, [`html`] shows one in a browser;
//! 6. [`trace`] finds the code that allocated the memory, from a recording of the allocators' calls.

pub mod diff;
pub mod document;
pub mod error;
pub mod html;
pub mod kernel;
pub mod layout;
pub mod locate;
pub mod machine;
pub mod memblock;
pub mod memory;
pub mod pages;
pub mod paging;
pub mod references;
pub mod report;
pub mod reserved;
pub mod running;
pub mod slab;
pub mod take;
pub mod tasks;
pub mod trace;
