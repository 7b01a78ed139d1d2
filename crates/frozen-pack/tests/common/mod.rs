//! Things to pack.

use std::path::{Path, PathBuf};
use std::process::Command;

use kshrink_tests::process::run;

/// A file of `kdecomp-rt/`.
pub fn runtime(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kdecomp-rt").join(name)
}

/// Machine code of i386 and its data: a program made by the compiler.
pub fn program(directory: &Path) -> PathBuf {
    let program = directory.join("program");
    let mut gcc = Command::new("i686-linux-gnu-gcc");
    gcc.args(["-std=c11", "-Os", "-fno-pic", "-no-pie", "-static"]);
    run(gcc.args(["decode.c", "open.c", "test/pages.c"].map(runtime)).arg("-o").arg(&program));
    program
}
