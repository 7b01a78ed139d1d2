//! The runtime that looks up packed states, compiled with the flags of the kernel's build.

use kbuild::{KernelCompiler, Source, Unit};
use kcli::Failure;
use kelf::{InputFiles, KernelBuild, Machine};

use crate::runtime_source::source;

const HEADERS: [Source; 3] = [
    source!("decode.h", "decode.h"),
    source!("runtime.h", "kernel/runtime.h"),
    source!("unwind.h", "unwind.h"),
];

const UNITS: [Unit; 2] = [(source!("orc.c", "kernel/orc.c"), &[]), (source!("unwind.c", "unwind.c"), &[])];

/// The function of the kernel that is wrapped.
const WRAPPED: [&str; 1] = ["unwind_next_frame"];

/// Whether a kernel has tables that can be packed.
pub fn has_tables(build: &KernelBuild) -> bool {
    build.machine == Machine::X86_64 && build.is_enabled("CONFIG_UNWINDER_ORC")
}

/// Adds the runtime to a kernel's objects. `flags` are for the compiler.
///
/// # Errors
/// Those of [`KernelCompiler`].
pub fn join(files: InputFiles, build: &KernelBuild, flags: &[&str]) -> Result<InputFiles, Failure> {
    let objects = KernelCompiler::of(build)?.compile_all(&HEADERS, &UNITS, flags)?;
    Ok(files.with_objects(objects).wrapping_everywhere(&WRAPPED))
}
