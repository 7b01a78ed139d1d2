//! The machines that programs are compiled for, and how their programs run here.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::Run;

/// A machine that programs are compiled for, with an encoding of its instructions. Names are those of
/// `fixtures/programs/build.sh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// i386, whose programs run directly.
    I386,
    /// x86-64, whose programs run directly.
    X86_64,
    /// 32-bit ARM, ARM code.
    Arm,
    /// 32-bit ARM, Thumb code.
    Thumb,
}

impl Machine {
    /// Both encodings of 32-bit ARM.
    pub const ARM: [Machine; 2] = [Machine::Arm, Machine::Thumb];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Machine::I386 => "i386",
            Machine::X86_64 => "x86_64",
            Machine::Arm => "arm",
            Machine::Thumb => "thumb",
        }
    }

    /// The cross compiler: of Debian's package gcc-i686-linux-gnu, gcc-arm-linux-gnueabihf, or
    /// the native one.
    pub fn gcc(self) -> Run {
        let (gcc, mode) = match self {
            Machine::I386 => ("i686-linux-gnu-gcc", "-m32"),
            Machine::X86_64 => ("x86_64-linux-gnu-gcc", "-m64"),
            Machine::Arm => ("arm-linux-gnueabihf-gcc", "-marm"),
            Machine::Thumb => ("arm-linux-gnueabihf-gcc", "-mthumb"),
        };
        Run::new(gcc).arg(mode)
    }

    /// The emulator of its programs, if this machine cannot run them.
    pub fn emulator(self) -> Option<&'static str> {
        match self {
            Machine::I386 | Machine::X86_64 => None,
            Machine::Arm | Machine::Thumb => Some("qemu-arm"),
        }
    }

    /// Runs a program.
    pub fn run(self, program: &str) -> Run {
        match self.emulator() {
            None => Run::new(program),
            Some(emulator) => Run::new(emulator).arg(program),
        }
    }

    /// Lets scripts run a program by its path. For a foreign machine, the program becomes `PATH.program`, and `PATH` a
    /// script that emulates it under the name by which the script is called.
    pub fn make_runnable(self, program: &Path) {
        let Some(emulator) = self.emulator() else { return };
        let whole = PathBuf::from(format!("{}.program", program.display()));
        let script = format!("#!/bin/sh\nexec {emulator} -0 \"$0\" '{}' \"$@\"\n", whole.display());
        fs::rename(program, &whole)
            .and_then(|()| fs::write(program, script))
            .and_then(|()| fs::set_permissions(program, Permissions::from_mode(0o755)))
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    }
}
