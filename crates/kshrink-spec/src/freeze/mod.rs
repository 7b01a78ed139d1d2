/*!
Freezing: code and read-only data that are compressed in the kernel, have addresses but no memory, and are decoded at
their first use (Chanet et al. 2007, section 4). A page fault decodes them at their addresses; a stub decodes its
region of code into a copy elsewhere.

The pass `freeze` has moved them to sections of their own. From there:

- [`runtime`]: the fault handler and the decoder are compiled with the flags of the kernel's build, and linked like any
  other object, so that passes see what they call;
- [`layout`]: the frozen sections get their addresses, which depend on nothing but their sizes;
- [`split`]: the lowered object without them, in which their symbols are absolute, with room for the packed bytes;
- [`unwind`]: on ARM, unwind tables of frozen code;
- [`stubs`]: by stub, the stubs become calls of the runtime;
- [`image`]: the frozen sections as they are when they run, given where the link has put the rest of the kernel;
- [`kallsyms`]: frozen code gets into the kernel's own table of symbols;
- [`fixpoint`]: links, packs and links again until the packed bytes fit their room.
*/

mod fixpoint;
#[cfg(test)]
pub mod handmade;
mod image;
mod kallsyms;
mod layout;
pub mod runtime;
mod split;
mod stubs;
mod system_map;
mod unwind;

use std::ops::Range;

use kplan::Mechanism;

pub use fixpoint::{Counts, link};

/// How parts of a kernel freeze.
#[derive(Clone, Debug)]
pub struct Freezing {
    /// How they come back.
    pub mechanism: Mechanism,
    /// The addresses for theirs, which end where the range ends.
    pub range: Range<u32>,
}
