/*!
What a kernel really executes.

Traces of many kinds come in; one section of a plan comes out, with each function that ran, which of its bytes
did, and in which order.

- [`Recorder`]: takes note of what ran, and makes the section of it;
- [`qemu`], [`ftrace`], [`dump`]: the kinds of trace, each a reader that feeds a recorder, and [`neighbours`] for what
  a dump leaves open;
- [`summary`], [`html`]: the section for people.

The key decision is that an address is turned into a function and an offset as soon as it is read, by the one
kernel that it is an address of ([`ktext::KernelText`]), and is never stored. Code that was traced in one link then has the same name in
every other.

A trace is evidence: what it says is used, what cannot be understood of it is counted and said, and a trace that is
of another kernel altogether is refused.
*/

pub mod dump;
mod error;
pub mod ftrace;
pub mod html;
pub mod lines;
pub mod neighbours;
pub mod qemu;
pub mod recorder;
pub mod summary;

pub use error::{Error, Result};
pub use recorder::Recorder;
