//! Passes on x86-64 code, like `filetests` on i386 code: what differs from it.

#[path = "../filetests/case.rs"]
mod case;
#[path = "../filetests/check.rs"]
mod check;
#[path = "../filetests/run.rs"]
mod run;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    libtest_mimic::run(&Arguments::from_args(), check::trials("tests/filetests_x86_64")).exit_code()
}
