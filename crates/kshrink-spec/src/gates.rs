//! Gates: functions in front of which a running kernel can load paths, and the runtime that does so.

use std::path::Path;

use kbuild::{KernelCompiler, Source, Unit};
use kcli::{Failure, Key, read_key};
use kelf::{InputFiles, KernelBuild, Machine};

use crate::runtime_source::source;

const HEADERS: [Source<'static>; 2] = [
    source!(in "kcustom-rt", "kcustom.h", "user/kcustom.h"),
    source!(in "kcustom-rt", "custom.h", "kernel/custom.h"),
];

const PATHS: Source<'static> = source!(in "kcustom-rt", "paths.c", "kernel/paths.c");
const DEVICE: Source<'static> = source!(in "kcustom-rt", "device.c", "kernel/device.c");

/// The gates that the user requests.
#[derive(Clone, Debug)]
pub struct Gates {
    functions: Vec<String>,
    key: Key,
}

impl Gates {
    /// Reads the key in the file `key`.
    ///
    /// # Errors
    /// If it cannot be read. Bad input if it has another size, or a function's name is none.
    pub fn read(functions: &[String], key: &Path) -> Result<Gates, Failure> {
        let key = read_key(key)?;
        let is_name = |name: &String| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        match functions.iter().find(|name| !is_name(name)) {
            Some(name) => Err(Failure::bad_input(format!(
                "--gate {name:?}: expected the name of a function, such as inet_sendmsg"
            ))),
            None => Ok(Gates { functions: functions.to_vec(), key }),
        }
    }

    /// Adds the runtime to a kernel's objects, and the gates, through which all calls of the functions go.
    ///
    /// # Errors
    /// If the machine is not supported, or the runtime cannot be compiled.
    pub fn join(&self, files: InputFiles, build: &KernelBuild) -> Result<InputFiles, Failure> {
        if build.machine != Machine::I386 {
            return Err(Failure::bad_input(format!(
                "--gate does not support {} yet, only i386; omit it",
                build.machine
            )));
        }
        let gates = self.source();
        let units: [Unit<'_>; 3] = [(PATHS, &[]), (DEVICE, &[]), (("gates.c", &gates), &[])];
        let objects = KernelCompiler::of(build)?.compile_all(&HEADERS, &units, &[])?;
        let names: Vec<&str> = self.functions.iter().map(String::as_str).collect();
        Ok(files.with_objects(objects).wrapping_everywhere(&names))
    }

    /// The source of the gates (custom.h).
    fn source(&self) -> String {
        let each = |form: &str| -> String {
            self.functions.iter().map(|name| format!("{}\n", form.replace("NAME", name))).collect()
        };
        let key: Vec<String> = self.key.iter().map(u8::to_string).collect();
        format!(
            "#include \"custom.h\"\n{}const struct kcustom_gate kcustom_gates[] = {{\n{}}};\n\
             const u32 kcustom_gate_count = {};\nconst u8 kcustom_key[] = {{ {} }};\n",
            each("KCUSTOM_GATE(NAME)"),
            each("\tKCUSTOM_ROW(NAME)"),
            self.functions.len(),
            key.join(", "),
        )
    }
}
