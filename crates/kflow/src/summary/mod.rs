/*!
Summaries of functions: the effect of a call on the caller's registers, derived from the function's code.

A calling convention is no proof that a function preserves a register. Values are therefore followed from the
function's entry to each of its returns ([`crate::values`]): there the register must hold its value on entry, untouched
or restored from the frame. The summary is unknown if the function returns to a place other than its return address,
pops the wrong number of stack arguments, or contains unsupported code. Callees come first; a cycle of functions that
call one another is summarised together: each is assumed to touch nothing until its code shows otherwise, and its
callers are then analysed again.

With a [`crate::Convention`], some functions are assumed to follow it: those called by address, and compiled but
unsupported ones. Compiled callers assume the same.
*/

mod call;
mod find;
mod function;
mod known;
mod levels;
mod touched;
mod uses;

pub use call::Summary;
pub(crate) use known::Found;
pub use known::Summaries;
pub(crate) use levels::{callees_first, calls};
