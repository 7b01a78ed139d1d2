/*!
Freezing by page: code and read-only data that lie compressed in the kernel, have addresses but no memory, and are decoded
by a page fault when something touches them (Chanet et al. 2007, section 4, with pages in place of stubs).

The pass `freeze` has moved them to sections of their own. From there:

- [`supported`]: kernels in which this is not safe are refused;
- [`runtime`]: the fault handler and the decoder are compiled with the flags of the kernel's build, and linked like any
  other object, so that passes see what they call;
- [`layout`]: the frozen sections get their addresses, which depend on nothing but their sizes;
- [`split`]: the lowered object without them, in which their symbols are absolute, with room for the packed bytes;
- [`image`]: the frozen sections as they are when they run, given where the link has put the rest of the kernel;
- [`kallsyms`]: frozen code gets into the kernel's own table of symbols;
- [`fixpoint`]: links, packs and links again until the packed bytes fit their room.
*/

mod fixpoint;
mod image;
mod kallsyms;
mod layout;
pub mod runtime;
mod split;
pub mod supported;
mod system_map;

pub use fixpoint::{Counts, link};
