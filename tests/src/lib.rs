/*!
What tests share, the end-to-end tests above all. They drive the real commands, as a user does, and know nothing of
what is inside them.

- [`Run`]: runs a command with a time limit and looks at what it did;
- [`command`], [`fixture`], [`cache_dir`], [`recipe`]: where the commands, recipes and caches are;
- [`Chain`]: runs commands, keeps what they left behind if they fail; compiles, rewrites and links programs;
- [`Machine`]: which machine those are for, i386 unless it is said, and how they run here;
- [`KernelTest`]: builds, rewrites and boots kernels;
- [`DEDUPLICATED`], [`PROPAGATED`], [`SHUFFLED`], [`INSTRUMENTED`], [`EXERCISED`], [`FROZEN`]: passes under which every program is tried; [`order`]: the plans for that, with [`Random`]
  numbers; [`random_programs`]: how many random programs are tried; [`minutes`]: how long readers of bad input are;
- [`Damage`]: damages a file, as a seed says;
- [`elf`]: what is in an object, read without the tools under test;
- [`Visit`]: a page, opened in a browser;
- [`process`]: runs tools, and commands that are expected to fail;
- [`strace`]: which program made the calls in a log;
- [`parallel`]: a thread for each core; [`parallel_on`]: a number of threads.

The commands are those of the release profile, whatever the profile of the tests: a kernel takes seconds with
one and minutes with the other. Cargo does not build the binaries of other packages for a test, so
`cargo build --release` goes first, which `make test` does.
*/

mod browser;
mod chain;
mod damage;
pub mod elf;
mod kernel;
mod machine;
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
pub use kernel::{Kernel, KernelTest, RewrittenKernel, Scenario};
pub use machine::Machine;
pub use parallel::{parallel, parallel_on};
pub use places::{cache_dir, command, fixture, recipe};
pub use random::{Random, minutes, random_programs};
pub use run::{Outcome, Run, shell_quoted};
