/*!
The debugging information of a rewritten kernel.

[`debug_file`] converts the DWARF of the original kernel. The block map tells where each instruction of the original is
now ([`Places`]). With it, the conversion changes everything that contains an address:

- line tables: each kept piece of a line gets its own row (DWARF 5, section 6.2);
- the address ranges of functions, inlined functions and scopes, which may be in many pieces now;
- the places of variables and arguments, per piece of code (section 2.6.2);
- the tables by which a debugger finds the callers (`.debug_frame`, section 6.4).

Functions and variables that the rewriter removed are left out unless other entries refer to them, and so are types that
only these use. The result describes where the *compiler* put each value. It does not know that a pass may have removed an
instruction which sets an unused argument, so a debugger may show the old content of the register as the value of such
an argument.
*/

mod error;
mod file;
mod frames;
mod lines;
mod places;
mod units;

pub use error::{Error, Result};
pub use file::{check, debug_file};
pub use places::Places;
