//! The reachable code: decoded recursively from the program's entry.
//!
//! Exploration works with *runs*: straight-line code from a branch target to the next instruction that does not fall
//! through, its *exit*. A decoded run never changes, even if later branches lead into its middle, so that nothing has
//! to be split or redone. Basic blocks and functions are views of runs, which [`Function`] builds on demand.
//!
//! Two rules exclude unreachable code:
//!
//! - The instruction after a call is reached once the callee is known to return. Code after `call abort` is therefore
//!   not reached.
//! - Address-taken code is reached once reachable code loads the address, or data that such code can read contains it.
//!
//! Two more cases are deferred: the successor of a branch that constants rule out, until it becomes feasible
//! (`constants`), and some code of the C library that runs only if other code does (`deferred`).

mod changes;
mod constants;
mod contexts;
mod deferred;
mod distances;
mod entry;
mod explore;
mod fingerprint;
mod function;
mod held;
mod instructions;
mod known;
mod live;
mod marks;
mod pointers;
mod reachable;
mod references;
mod rules;
mod run;
mod services;
mod taken;
mod thunks;
mod uses;
mod walk;
mod work;

pub use changes::ChangedFunctions;
pub use entry::{Entry, Taken};
pub use function::{Block, Function, StraightInstructions};
pub use instructions::Reader;
pub(crate) use known::{Constant, Facts, NumberSet};
pub use reachable::Code;
pub use references::References;
pub use references::recorder::Reference;
pub use run::{Exit, ExitId, ExitKind};
pub(crate) use walk::RunWalk;
