/*!
Finds the system calls that a program can make, from its machine code.

[`loader`] finds the files of a process: an executable, its interpreter, the libraries that it needs and those
that it may load by name. [`scan`] takes them, stripped or not, through these phases:

1. [`image`]: all files in one address space, relocated as the dynamic linker does it;
2. [`reach`](mod@reach): the code that can run, decoded from the entry points ([`code`]), with the targets of
   computed jumps found by constant propagation ([`flow`]), and what code asks for by name ([`by_name`]);
3. [`resolve`]: at each instruction that enters the kernel, the numbers that its register can hold, asked
   of callers where a wrapper passes them on; and [`calls`]: the arguments that go with each;
4. [`report`]: the result as a section of a plan, or for people.

Plans are then worked on: [`assume`] settles what was not resolved, [`filter`] makes seccomp profiles and the
like of them, [`diff`] compares two.

The key decision is to be sound first. A number is never guessed: a site either has the set of all its
numbers, or it is listed as unresolved with the reason, and then the result says that it is incomplete.

What is not part of the files does not count: libraries that the environment names (`LD_PRELOAD`, `LD_AUDIT`,
`LD_LIBRARY_PATH`), and the programs that a program starts, which are scanned by themselves.
*/

pub mod abi;
pub mod arguments;
pub mod assume;
pub mod by_name;
pub mod calls;
pub mod code;
pub mod constants;
pub mod diff;
mod error;
mod executable;
pub mod filter;
pub mod flow;
pub mod follow;
pub mod image;
mod jumps;
pub mod loader;
mod parallel;
pub mod programs;
pub mod reach;
pub mod report;
pub mod resolve;
mod scan;
mod search;
mod switches;
pub mod sysroot;
pub mod values;
mod why;

pub use error::Error;
pub use scan::{Scan, Site, scan, why};
