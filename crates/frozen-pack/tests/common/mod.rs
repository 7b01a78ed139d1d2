//! Inputs for packing.

use std::path::{Path, PathBuf};
use std::process::Command;

use kshrink_tests::process::run;

/// Returns the path of a file in `kdecomp-rt/`.
pub fn runtime(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kdecomp-rt").join(name)
}

/// Returns machine code of i386 and its data: a program made by the compiler.
pub fn program(directory: &Path) -> PathBuf {
    let program = directory.join("program");
    let mut gcc = Command::new("i686-linux-gnu-gcc");
    gcc.args(["-std=c11", "-Os", "-fno-pic", "-no-pie", "-static"]);
    run(gcc.args(["decode.c", "open.c", "test/pages.c"].map(runtime)).arg("-o").arg(&program));
    program
}

/// Returns machine code of x86-64 and its data, which is not run.
#[allow(dead_code, reason = "tests of the command need none")]
pub fn program_of_x86_64(directory: &Path) -> PathBuf {
    let program = directory.join("program-x86-64");
    let mut gcc = Command::new("x86_64-linux-gnu-gcc");
    gcc.args(["-std=c11", "-Os", "-fno-pic", "-no-pie", "-static"]);
    run(gcc.args(["decode.c", "open.c", "test/pages.c"].map(runtime)).arg("-o").arg(&program));
    program
}

/// Returns machine code of 32-bit ARM and its data, compiled with `-mthumb` or `-marm`, which is not run.
#[allow(dead_code, reason = "tests of the command need none")]
pub fn arm_program(directory: &Path, set: &str) -> PathBuf {
    let program = directory.join(format!("program{set}"));
    let mut gcc = Command::new("arm-linux-gnueabihf-gcc");
    gcc.args(["-std=c11", "-Os", "-fno-pic", "-no-pie", "-static", "-nostdlib", set]);
    gcc.args(["-Wl,--unresolved-symbols=ignore-all", "-Wl,-e,0"]);
    run(gcc.args(["decode.c", "open.c"].map(runtime)).arg("-o").arg(&program));
    program
}
