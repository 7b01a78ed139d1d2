/*!
Finds the system calls that a program can make, from its machine code.

[`loader`] finds the files of a process: an executable, its interpreter, its libraries and the libraries that it may
load by name. [`scan`] processes these files, stripped or not, in four phases:

1. [`image`]: links all files in one address space, like the dynamic linker;
2. [`reach`](mod@reach): decodes the reachable code from the entry points ([`code`]), finds the targets of computed
   jumps by constant propagation ([`flow`]), and adds the libraries and functions that code requests by name
   ([`by_name`]);
3. [`resolve`]: finds the possible numbers in the register of each instruction that enters the kernel, in the callers if
   a wrapper passes the number on; [`calls`] adds the arguments of each number;
4. [`report`]: converts the result to a section of a plan, or to text for people.

Other modules use plans: [`assume`] resolves remaining places, [`filter`] makes filters such as seccomp profiles, and
[`diff`] compares two plans.

The key decision is that soundness comes first. A number is never guessed: a site either has the set of all its numbers,
or it is listed as unresolved with the reason, and the result is marked incomplete.

Only the files count. Libraries that the environment names (`LD_PRELOAD`, `LD_AUDIT`, `LD_LIBRARY_PATH`) are ignored,
and the programs that a program starts have to be scanned separately.
*/

pub mod abi;
mod address;
pub mod arguments;
pub mod assume;
pub mod by_name;
pub mod calls;
pub mod children;
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
