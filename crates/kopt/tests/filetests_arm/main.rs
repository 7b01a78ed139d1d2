//! Passes on 32-bit ARM code, like `filetests` on i386 code. They are a separate target because they need an assembler
//! for ARM.

#[path = "../filetests/case.rs"]
mod case;
#[path = "../filetests/check.rs"]
mod check;
#[path = "../filetests/run.rs"]
mod run;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    libtest_mimic::run(&Arguments::from_args(), check::trials("tests/filetests_arm")).exit_code()
}
