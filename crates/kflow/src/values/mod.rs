/*!
Knowledge about numbers: one of a few terms, and the range of an unknown.

A [`Term`] is a number, or an unknown plus a number. Unknowns are the address of a symbol, the initial content of a
register, and the result of an instruction. Each unknown has a *name*. Two copies of one unknown are therefore known to
be equal, and a branch on one copy also constrains the others. An instruction that runs again makes new unknowns under
its old names; all values with the old names are forgotten first ([`State::apply`]).
*/

mod calls;
mod conversions;
mod frame;
mod memory;
mod names;
mod ranges;
mod set;
mod state;
mod step;

pub use frame::FrameRange;
pub use names::{NameId, Names, Site, Term, TermSet};
pub use ranges::{Comparison, Ranges, Span, Unknowns};
pub use set::{Element, ValueSet};
pub use state::{Partial, State};

#[cfg(test)]
mod tests;
