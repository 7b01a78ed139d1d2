/*!
Recording of the code that a kernel executes.

The input is traces of several kinds. The output is one section of a plan: the functions that ran, their executed
bytes, and their order.

- [`Recorder`]: records the executed bytes, and makes the section;
- [`qemu`], [`ftrace`], [`dump`]: the kinds of trace, each a reader that feeds a recorder, and [`uncounted`] for the
  blocks without information in a dump;
- [`summary`], [`html`]: the section as tables, and as a page for a browser.

The key decision is that an address is translated to a function and an offset as soon as it is read, with the kernel
that it belongs to ([`ktext::KernelText`]), and is never stored. So code that was traced in one link has the same name
in every other.

Parts of a trace that are not understood are counted and reported, and a trace of another kernel is refused.
*/

pub mod dump;
mod error;
pub mod ftrace;
pub mod html;
pub mod lines;
pub mod qemu;
pub mod recorder;
pub mod summary;
pub mod uncounted;

pub use error::{Error, Result};
pub use recorder::Recorder;
