/*!
What a kernel really executes.

Traces of many kinds come in; one section of a plan comes out, with each function that ran, which of its bytes
did, and in which order.

- [`Recorder`]: records which bytes ran, and makes the section of it;
- [`qemu`], [`ftrace`], [`dump`]: the kinds of trace, each a reader that feeds a recorder, and [`uncounted`] for
  the blocks of which a dump says nothing;
- [`summary`], [`html`]: the section as tables, and as a page for a browser.

The key decision is that an address is turned into a function and an offset as soon as it is read, by the one
kernel that it is an address of ([`ktext::KernelText`]), and is never stored. Code that was traced in one link then has the same name in
every other.

What cannot be understood of a trace is counted and reported, and a trace of another kernel is refused.
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
