//! The decoder in C has its documented size, and needs no library.

use std::path::{Path, PathBuf};
use std::process::Command;

use frozen_pack::codec::code::InstructionSet;
use kshrink_tests::process::run;

use crate::common::runtime;

/// A machine with a decoder of its own: the compiler, its arguments, and its names of division functions.
struct Machine {
    set: InstructionSet,
    gcc: &'static str,
    flags: &'static [&'static str],
    binutils: &'static str,
    divisions: [&'static str; 2],
}

const MACHINES: [Machine; 3] = [
    Machine {
        set: InstructionSet::I386,
        gcc: "i686-linux-gnu-gcc",
        flags: &["-march=i686", "-mgeneral-regs-only", "-DFROZEN_I386=1"],
        binutils: "i686-linux-gnu-",
        divisions: ["\tdiv", "\tidiv"],
    },
    Machine {
        set: InstructionSet::X86_64,
        gcc: "x86_64-linux-gnu-gcc",
        flags: &["-mcmodel=kernel", "-mno-red-zone", "-mgeneral-regs-only", "-DFROZEN_X86_64=1"],
        binutils: "x86_64-linux-gnu-",
        divisions: ["\tdiv", "\tidiv"],
    },
    Machine {
        set: InstructionSet::Thumb,
        gcc: "arm-linux-gnueabihf-gcc",
        flags: &["-mthumb", "-march=armv7-a+fp", "-DFROZEN_ARM=1"],
        binutils: "arm-linux-gnueabihf-",
        divisions: ["\tudiv", "\tsdiv"],
    },
];

impl Machine {
    /// Compiles a file as a kernel for the machine would.
    fn compile(&self, name: &str, level: &str, directory: &Path) -> PathBuf {
        let object = directory.join(format!("{name}{level}.o"));
        let mut gcc = Command::new(self.gcc);
        gcc.args(["-std=c11", "-ffreestanding", "-Wall", "-Wextra", "-Werror", "-fno-pic", level]);
        gcc.args(["-fno-asynchronous-unwind-tables", "-fno-stack-protector", "-c"]).args(self.flags);
        run(gcc.arg(runtime(name)).arg("-o").arg(&object));
        object
    }

    fn tool(&self, name: &str) -> Command {
        Command::new(format!("{}{name}", self.binutils))
    }
}

#[test]
fn it_has_the_size_that_is_counted() {
    for machine in MACHINES {
        let dir = tempfile::tempdir().unwrap();
        let objects =
            [machine.compile("decode.c", "-O2", dir.path()), machine.compile("open.c", "-Os", dir.path())];
        let table = run(machine.tool("size").args(objects));
        let figure = |text: &str| text.parse::<usize>().unwrap();
        let sizes = table.lines().skip(1).map(|line| line.split_whitespace().take(3).map(figure).sum());
        let sizes: Vec<usize> = sizes.collect();
        let (size, most) = (sizes.iter().sum::<usize>(), machine.set.decoder_size());
        println!("{:?}: {sizes:?} bytes, {size} in all", machine.set);
        assert!(size <= most && most <= size + size / 20, "{:?}: {size} bytes", machine.set);
    }
}

#[test]
fn it_needs_nothing_and_writes_to_no_variable() {
    for machine in MACHINES {
        let dir = tempfile::tempdir().unwrap();
        for level in ["-Os", "-O2"] {
            let objects = ["decode.c", "open.c"].map(|name| machine.compile(name, level, dir.path()));
            let symbols = run(machine.tool("nm").args(&objects));
            let undefined: Vec<&str> =
                symbols.lines().filter_map(|line| line.trim().strip_prefix("U ")).collect();
            // The one table that both files share, and functions that the kernel has as well.
            let allowed = ["frozen_frequency", "memset"];
            assert!(undefined.iter().all(|name| allowed.contains(name)), "{level}: {undefined:?}");
            assert!(
                !symbols
                    .lines()
                    .any(|line| matches!(line.split_whitespace().nth(1), Some("d" | "D" | "b" | "B" | "C")))
            );
            let code = run(machine.tool("objdump").arg("-d").args(&objects));
            assert!(!machine.divisions.iter().any(|division| code.contains(division)), "{level}");
        }
    }
}
