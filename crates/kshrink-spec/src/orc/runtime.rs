//! The runtime that looks up packed states, compiled with the flags of the kernel's build.

use kbuild::{KernelCompiler, Source, Unit};
use kcli::Failure;
use kelf::{InputFiles, KernelBuild, Machine};

use crate::runtime_source::source;

const HEADERS: [Source<'static>; 3] = [
    source!("decode.h", "decode.h"),
    source!("runtime.h", "kernel/runtime.h"),
    source!("unwind.h", "unwind.h"),
];

const UNITS: [Unit<'static>; 2] =
    [(source!("orc.c", "kernel/orc.c"), &[]), (source!("unwind.c", "unwind.c"), &[])];

/// The function of the kernel that is wrapped.
const WRAPPED: [&str; 1] = ["unwind_next_frame"];

/// Returns the reason why the tables of a kernel cannot be packed, if there is one. `freezes` is whether code freezes.
pub fn obstacle(build: &KernelBuild, freezes: bool) -> Option<&'static str> {
    if build.machine != Machine::X86_64 || !build.is_enabled("CONFIG_UNWINDER_ORC") {
        return Some("the kernel has no ORC tables (CONFIG_UNWINDER_ORC of x86-64)");
    }
    (freezes && build.delays_objtool())
        .then_some("code freezes, and the tables are made in the link, which has no frozen code")
}

/// Adds the runtime to a kernel's objects. `flags` are for the compiler.
///
/// # Errors
/// Those of [`KernelCompiler`].
pub fn join(files: InputFiles, build: &KernelBuild, flags: &[&str]) -> Result<InputFiles, Failure> {
    let objects = KernelCompiler::of(build)?.compile_all(&HEADERS, &UNITS, flags)?;
    Ok(files.with_objects(objects).wrapping_everywhere(&WRAPPED))
}
