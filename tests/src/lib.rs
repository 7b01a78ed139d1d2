/*!
Common parts of the tests, especially the end-to-end tests. They run the real commands like a user, and do not depend
on their internals.

- [`Run`]: runs a command with a time limit, and provides its outcome;
- [`command`], [`fixture`], [`cache_dir`], [`recipe`]: the paths of commands, recipes and caches;
- [`Chain`]: runs commands, and keeps their files if they fail; compiles, rewrites and links programs;
- [`Machine`]: the machine of these programs, i386 by default, and how they run here;
- [`KernelTest`]: builds, rewrites and boots kernels;
- [`DEDUPLICATED`], [`PROPAGATED`], [`SHUFFLED`], [`INSTRUMENTED`], [`EXERCISED`], [`FROZEN`]: passes for every
  program; [`order`]: the plans for them, with [`Random`] numbers; [`random_programs`]: the number of random programs;
  [`minutes`]: the duration of tests of bad input;
- [`Damage`]: damages a file, determined by a seed;
- [`core()`]: an image of memory;
- [`elf`], [`unwind_states`]: the contents of an object or a kernel, read without the tools under test;
- [`Visit`]: a page, opened in a browser;
- [`process`]: runs tools, and commands that are expected to fail;
- [`strace`]: the programs that made the calls in a log;
- [`parallel`]: a thread for each core; [`parallel_on`]: a number of threads.

The commands are those of the release profile, whatever the profile of the tests: a kernel takes seconds with one and
minutes with the other. Cargo does not build the binaries of other packages for a test, so run `cargo build --release`
first, as `make test` does.
*/

mod browser;
mod chain;
mod damage;
mod dump;
pub mod elf;
mod kernel;
mod machine;
mod orc;
pub mod order;
mod parallel;
mod places;
pub mod process;
mod random;
mod run;
pub mod strace;

pub use browser::Visit;
pub use chain::{
    Chain, DEDUPLICATED, EXERCISED, FROZEN, INSTRUMENTED, PROPAGATED, Rewritten, SHUFFLED, same_bytes,
};
pub use damage::Damage;
pub use dump::{CORE_MEMORY, core};
pub use kernel::{Kernel, KernelTest, RewrittenKernel, Scenario};
pub use machine::Machine;
pub use orc::unwind_states;
pub use parallel::{parallel, parallel_on};
pub use places::{cache_dir, command, fixture, recipe};
pub use random::{Random, minutes, random_programs};
pub use run::{Outcome, Run, shell_quoted};
