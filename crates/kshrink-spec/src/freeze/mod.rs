/*!
Freezing: code and read-only data that are compressed in the kernel, have addresses but no memory, and are decoded at
their first use (Chanet et al. 2007, section 4). A page fault decodes them at their addresses. A stub decodes its
region of code into a copy elsewhere.

Pass `freeze` has moved them to sections of their own. The steps from there:

- [`runtime`]: the fault handler and the decoder are compiled with the flags of the kernel's build, and linked like any
  other object, so that passes see their callees;
- [`layout`]: the frozen sections get their addresses, which depend only on their sizes;
- [`split`]: the lowered object without the frozen sections, whose symbols become absolute, and with room for the
  packed bytes;
- [`unwind`]: on ARM, unwind tables of frozen code;
- [`stubs`]: with mechanism `stub`, the stubs become calls of the runtime;
- [`uses`]: with mechanism `stub`, a check that nothing else uses frozen code;
- [`image`]: the frozen sections in their run-time form, given the addresses of the rest of the kernel;
- [`kallsyms`]: the kernel's own symbol table gets the symbols of frozen code;
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
mod uses;

use kplan::Mechanism;

use runtime::FrozenPlace;

pub use fixpoint::{Counts, link};

/// The way in which parts of a kernel freeze.
#[derive(Clone, Debug)]
pub struct Freezing {
    /// The mechanism that thaws them.
    pub mechanism: Mechanism,
    /// The place of frozen code and data.
    pub place: FrozenPlace,
}
