//! The decoder in C is as small and as free of a library as it says.

use std::process::Command;

use frozen_pack::DECODER_SIZE;
use kshrink_tests::process::run;

use crate::common::runtime;

/// Compiles a file as a kernel for i386 would.
fn compile(name: &str, level: &str, directory: &std::path::Path) -> std::path::PathBuf {
    let object = directory.join(format!("{name}{level}.o"));
    let mut gcc = Command::new("i686-linux-gnu-gcc");
    gcc.args(["-std=c11", "-ffreestanding", "-Wall", "-Wextra", "-Werror", "-march=i686", "-fno-pic", level]);
    gcc.args(["-mgeneral-regs-only", "-fno-asynchronous-unwind-tables", "-fno-stack-protector", "-c"]);
    run(gcc.arg(runtime(name)).arg("-o").arg(&object));
    object
}

#[test]
fn it_has_the_size_that_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let objects = [compile("decode.c", "-O2", dir.path()), compile("open.c", "-Os", dir.path())];
    let table = run(Command::new("size").args(objects));
    let sizes: Vec<usize> = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().take(3).map(|figure| figure.parse::<usize>().unwrap()).sum())
        .collect();
    let size: usize = sizes.iter().sum();
    println!("{sizes:?} bytes, {size} in all");
    assert!(size <= DECODER_SIZE && DECODER_SIZE <= size + size / 20, "{size} bytes");
}

#[test]
fn it_needs_nothing_and_writes_to_no_variable() {
    let dir = tempfile::tempdir().unwrap();
    for level in ["-Os", "-O2"] {
        let objects = [compile("decode.c", level, dir.path()), compile("open.c", level, dir.path())];
        let symbols = run(Command::new("nm").args(&objects));
        let undefined: Vec<&str> =
            symbols.lines().filter_map(|line| line.trim().strip_prefix("U ")).collect();
        // The one table that both files use.
        assert_eq!(undefined, ["frozen_frequency"], "{level}");
        assert!(
            !symbols
                .lines()
                .any(|line| matches!(line.split_whitespace().nth(1), Some("d" | "D" | "b" | "B" | "C")))
        );
        let code = run(Command::new("objdump").arg("-d").args(&objects));
        assert!(!code.lines().any(|line| line.contains("\tdiv") || line.contains("\tidiv")), "{level}");
    }
}
