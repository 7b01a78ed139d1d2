//! Links the kernel in miniature of `fixtures/order/`, and runs `reorder` on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kelf::Functions;
use kshrink_tests::process::{finish, run};
use serde_json::json;

/// The functions that ran, in order: name, file, and whether they have a section of their own.
pub const HOT: [(&str, Option<&str>, bool); 8] = [
    ("_start", None, true),
    ("scheduled", None, false),
    ("setup", None, false),
    ("hot_two", None, true),
    ("hot_one", None, true),
    ("local", Some("first.c"), true),
    ("second", None, true),
    ("local", Some("second.c"), true),
];

/// A directory for one test, removed at its end.
pub struct Dir(tempfile::TempDir);

impl Dir {
    /// Creates a directory with the objects of the kernel.
    pub fn new() -> Dir {
        let dir = Dir(tempfile::tempdir().unwrap());
        for name in ["first", "second"] {
            let mut gcc = Command::new("gcc");
            gcc.args(["-Os", "-ffreestanding", "-fno-pic", "-mcmodel=large", "-ffunction-sections"]);
            gcc.args(["-fno-asynchronous-unwind-tables", "-fcf-protection=none", "-c"]);
            run(gcc.arg(fixture(&format!("{name}.c"))).arg("-o").arg(dir.path(&format!("{name}.o"))));
        }
        dir
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// Links the objects with `linker` and these arguments.
    pub fn link(&self, linker: &str, arguments: &[&str], output: &str) -> PathBuf {
        let mut command = Command::new(linker);
        command.current_dir(self.0.path()).args(arguments);
        run(command.args(["first.o", "second.o", "-o", output]));
        self.path(output)
    }

    /// Links the kernel with its script, with these input section descriptions first in `.text`.
    pub fn kernel(&self, order: &str, output: &str) -> PathBuf {
        self.write("order.lds", order);
        let script = fixture("kernel.lds").display().to_string();
        self.link("ld", &["--no-warn-rwx-segments", "-z", "noexecstack", "-T", &script], output)
    }

    /// Writes a plan with the coverage of the kernel; of `hot_two`, only the first two bytes and the fifth ran.
    pub fn plan(&self, vmlinux: &Path) -> PathBuf {
        let functions = Functions::read(vmlinux).unwrap();
        let covered = HOT.iter().enumerate().map(|(first, &(name, file, _))| {
            let (index, _) = functions.find(name, file, 0).unwrap_or_else(|| panic!("{name} is not there"));
            let function = functions.function(index);
            let whole = json!([{"offset": 0, "size": function.size, "first": first}]);
            let part =
                json!([{"offset": 0, "size": 2, "first": first}, {"offset": 4, "size": 1, "first": first}]);
            let ran = if name == "hot_two" { part } else { whole };
            let section = &functions.section_of(function).name;
            let mut covered =
                json!({"name": name, "section": section, "size": function.size, "first": first, "ran": ran});
            if let Some(file) = file {
                covered["file"] = json!(file);
            }
            covered
        });
        let run = json!({"source": "qemu", "trace": "trace.log", "kernel": "vmlinux", "unknown": 0});
        let coverage = json!({"runs": [run], "functions": covered.collect::<Vec<_>>()});
        let plan = json!({"schema": "kshrink/1", "coverage": coverage, "limits": {"memory": "16M"}});
        self.write("plan.json", &plan.to_string())
    }
}

/// A file of `fixtures/order/`.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/order").join(name)
}

/// The command, without standard input.
pub fn reorder() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reorder"));
    command.stdin(Stdio::null());
    command
}

/// Runs a command, which has to succeed.
#[track_caller]
pub fn succeeds(command: &mut Command) -> String {
    let (status, output, messages) = finish(command);
    assert_eq!(status, 0, "{messages}");
    output
}
