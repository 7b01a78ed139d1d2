//! The runtime: fault handler or what stubs call, and decoder, compiled as the kernel's own build compiles.

use std::fs;

use kcli::Failure;
use kelf::{InputFiles, KernelBuild, Object, Place};
use kplan::Mechanism;

use crate::compiler::KernelCompiler;

/// A source file: name and text.
type Source = (&'static str, &'static str);

macro_rules! source {
    ($name:literal, $path:literal) => {
        ($name, include_str!(concat!("../../../../kdecomp-rt/", $path)))
    };
}

const HEADERS: [Source; 4] = [
    source!("decode.h", "decode.h"),
    source!("runtime.h", "kernel/runtime.h"),
    source!("symbols.h", "symbols.h"),
    source!("tables.h", "tables.h"),
];

/// A source file, and flags besides those of the kernel: decoding is worth the bytes that speed takes.
type Unit = (Source, &'static [&'static str]);

/// What is compiled.
const UNITS: [Unit; 5] = [
    (source!("decode.c", "decode.c"), &["-O2"]),
    (source!("open.c", "open.c"), &[]),
    (source!("runtime.c", "kernel/runtime.c"), &[]),
    (source!("names.c", "kernel/names.c"), &[]),
    (source!("proc.c", "kernel/proc.c"), &[]),
];

/// What a mechanism has besides.
struct Own {
    units: &'static [Unit],
    wrapped: &'static [&'static str],
}

fn own(mechanism: Mechanism) -> Own {
    match mechanism {
        Mechanism::Page => Own {
            units: &[
                (source!("page.c", "kernel/page.c"), &[]),
                (source!("refreeze.c", "kernel/refreeze.c"), &[]),
            ],
            wrapped: &["e820__reallocate_tables", "early_fixup_exception", "exc_page_fault"],
        },
        Mechanism::Stub => Own {
            units: &[(source!("stub.c", "kernel/stub.c"), &[])],
            wrapped: &["search_exception_tables", "report_bug"],
        },
    }
}

/// The kernel's functions that the runtime wraps, as `ld --wrap` does. What a kernel does not have, nothing
/// in it refers to.
const WRAPPED: [&str; 15] = [
    "start_kernel",
    "vmalloc_init",
    "kernel_text_address",
    "__kernel_text_address",
    "func_ptr_is_kernel_text",
    "kfree_const",
    "kstrdup_const",
    "sprint_symbol",
    "sprint_symbol_build_id",
    "sprint_symbol_no_offset",
    "sprint_backtrace",
    "sprint_backtrace_build_id",
    "kallsyms_lookup_size_offset",
    "kallsyms_lookup",
    "lookup_symbol_name",
];

/// The variable of the runtime that holds the end of the addresses that can be frozen.
const LIMIT: &str = "kshrink_range_limit";

/// The compiled runtime.
pub struct Runtime {
    objects: Vec<(String, Vec<u8>)>,
    wrapped: &'static [&'static str],
    /// The address at which the frozen range has to end.
    pub limit: u32,
}

impl Runtime {
    /// Compiles it for a kernel. The build directory is only read.
    ///
    /// # Errors
    /// If the build does not say how it compiles, or its headers do not fit.
    pub fn compile(build: &KernelBuild, mechanism: Mechanism) -> Result<Runtime, Failure> {
        let compiler = KernelCompiler::of(build)?;
        let dir = tempfile::tempdir()?;
        let Own { units, wrapped } = own(mechanism);
        let units: Vec<Unit> = UNITS.iter().chain(units).copied().collect();
        for (name, text) in HEADERS.iter().chain(units.iter().map(|(source, _)| source)) {
            fs::write(dir.path().join(name), text)?;
        }
        let mut objects = Vec::new();
        for ((source, _), flags) in units {
            let name = source.trim_end_matches(".c");
            objects.push((format!("kshrink/{name}.o"), compiler.compile(dir.path(), name, flags)?));
        }
        let limit = limit(&objects)?;
        Ok(Runtime { objects, wrapped, limit })
    }

    /// Adds the runtime to a kernel's objects.
    pub fn join(self, files: InputFiles) -> InputFiles {
        files.with_objects(self.objects).wrapping(&WRAPPED).wrapping(self.wrapped)
    }
}

/// The value of [`LIMIT`].
fn limit(objects: &[(String, Vec<u8>)]) -> Result<u32, Failure> {
    for (name, bytes) in objects {
        let object = Object::read(name, bytes).map_err(Failure::of)?;
        let Some(symbol) = object.symbols.iter().find(|symbol| symbol.name == LIMIT) else { continue };
        if let Place::Section(section) = symbol.place
            && let Some(value) = object.section(section).data.get(symbol.value as usize..)
            && let Some(value) = value.first_chunk()
        {
            return Ok(u32::from_le_bytes(*value));
        }
    }
    Err(Failure::job(format!("the compiled runtime has no variable {LIMIT} with a value")))
}
