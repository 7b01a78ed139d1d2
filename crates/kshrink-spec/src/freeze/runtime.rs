//! The runtime: fault handler or entry of stubs, and decoder, compiled with the flags of the kernel's build.

use std::ops::Range;

use kcli::Failure;
use kelf::{InputFiles, KernelBuild, Machine, Object, Place};
use kplan::Mechanism;

use crate::runtime_source::source;
use kbuild::{ASSEMBLY, KernelCompiler, Source, Unit};

const HEADERS: [Source<'static>; 10] = [
    source!("arm.h", "arm.h"),
    source!("arm32.h", "kernel/arm32.h"),
    source!("decode.h", "decode.h"),
    source!("runtime.h", "kernel/runtime.h"),
    source!("segments.h", "kernel/segments.h"),
    source!("symbols.h", "symbols.h"),
    source!("tables.h", "tables.h"),
    source!("values.h", "values.h"),
    source!("x86.h", "kernel/x86.h"),
    source!("x86_code.h", "x86_code.h"),
];

/// The source files for every kernel. Fast decoding is worth larger code.
const UNITS: [Unit<'static>; 5] = [
    (source!("decode.c", "decode.c"), &["-O2"]),
    (source!("open.c", "open.c"), &[]),
    (source!("runtime.c", "kernel/runtime.c"), &[]),
    (source!("names.c", "kernel/names.c"), &[]),
    (source!("proc.c", "kernel/proc.c"), &[]),
];

/// The additional parts for a mechanism or a machine.
struct Own {
    units: &'static [Unit<'static>],
    wrapped: &'static [&'static str],
    /// Functions that are wrapped even in the object that defines them.
    everywhere: &'static [&'static str],
}

const BY_PAGE: Own = Own {
    units: &[(source!("page.c", "kernel/page.c"), &[]), (source!("refreeze.c", "kernel/refreeze.c"), &[])],
    wrapped: &["free_initmem"],
    everywhere: &[],
};

const BY_STUB: Own = Own {
    units: &[(source!("stub.c", "kernel/stub.c"), &[])],
    wrapped: &["search_exception_tables", "report_bug"],
    everywhere: &[],
};

const X86: Own = Own { units: &[(source!("x86.c", "kernel/x86.c"), &[])], wrapped: &[], everywhere: &[] };

const X86_BY_PAGE: Own = Own {
    units: &[(source!("x86_page.c", "kernel/x86_page.c"), &[])],
    wrapped: &["early_fixup_exception", "exc_page_fault"],
    everywhere: &[],
};

/// Copies of regions in a window of addresses.
const WINDOW: Own =
    Own { units: &[(source!("window.c", "kernel/window.c"), &[])], wrapped: &[], everywhere: &[] };

const X86_BY_STUB: Own =
    Own { units: &[(source!("x86_stub.c", "kernel/x86_stub.c"), &[])], wrapped: &[], everywhere: &[] };

const ARM: Own = Own {
    units: &[(source!("arm.c", "kernel/arm.c"), &[])],
    wrapped: &["memblock_free_all", "paging_init"],
    everywhere: &[],
};

const ARM_BY_PAGE: Own = Own {
    units: &[
        (source!("arm_page.c", "kernel/arm_page.c"), &[]),
        (source!("vectors.S", "kernel/vectors.S"), ASSEMBLY),
    ],
    wrapped: &["do_DataAbort", "do_PrefetchAbort", "early_trap_init"],
    everywhere: &[],
};

const ARM_BY_STUB: Own = Own {
    units: &[
        (source!("arm_stub.c", "kernel/arm_stub.c"), &[]),
        (source!("stub_entry.S", "kernel/stub_entry.S"), ASSEMBLY),
    ],
    wrapped: &[],
    everywhere: &["unwind_frame"],
};

/// Returns the additional parts for a mechanism in a kernel; `frozen_pack::plan::supported` has checked that it is
/// supported.
fn own(build: &KernelBuild, mechanism: Mechanism) -> &'static [Own] {
    match (build.machine, mechanism) {
        (Machine::Arm, Mechanism::Page) => &[BY_PAGE, ARM, ARM_BY_PAGE],
        (Machine::Arm, Mechanism::Stub) => &[BY_STUB, ARM, ARM_BY_STUB, WINDOW],
        (_, Mechanism::Page) => &[BY_PAGE, X86, X86_BY_PAGE],
        (_, Mechanism::Stub) if build.is_enabled("CONFIG_X86_PAE") => &[BY_STUB, X86, X86_BY_STUB, WINDOW],
        (_, Mechanism::Stub) => &[BY_STUB, X86, X86_BY_STUB],
    }
}

/// The kernel's functions that the runtime wraps, as `ld --wrap` does. A kernel without one of them has no references
/// to it.
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

/// The runtime's variable with the fields of a [`FrozenPlace`].
const PLACE: &str = "kshrink_place";

/// The place of frozen code and data in a kernel. Addresses of 64 bits are given by their low halves: all are in the
/// highest 2 GiB ([`Machine::kernel_address`]).
#[derive(Clone, Debug)]
pub struct FrozenPlace {
    /// The addresses that they may have. They take the last ones.
    pub range: Range<u32>,
    /// Number of bytes that a page of page tables maps.
    pub by_table: u32,
    /// Whether copies of regions lie in a window of addresses.
    pub has_window: bool,
}

/// The compiled runtime.
pub struct Runtime {
    objects: Vec<(String, Vec<u8>)>,
    own: &'static [Own],
    /// The place of frozen code and data.
    pub place: FrozenPlace,
}

impl Runtime {
    /// Compiles the runtime for a kernel, with further flags. The build directory is only read.
    ///
    /// # Errors
    /// If the build does not record its compiler command, or its headers do not fit.
    pub fn compile(build: &KernelBuild, mechanism: Mechanism, flags: &[&str]) -> Result<Runtime, Failure> {
        let own = own(build, mechanism);
        let units: Vec<Unit<'_>> =
            UNITS.iter().chain(own.iter().flat_map(|own| own.units)).copied().collect();
        let objects = KernelCompiler::of(build)?.compile_all(&HEADERS, &units, flags)?;
        let place = place(&objects)?;
        Ok(Runtime { objects, own, place })
    }

    /// Adds the runtime to a kernel's objects.
    pub fn join(self, files: InputFiles) -> InputFiles {
        let files = files.with_objects(self.objects).wrapping(&WRAPPED);
        let wrap =
            |files: InputFiles, own: &Own| files.wrapping(own.wrapped).wrapping_everywhere(own.everywhere);
        self.own.iter().fold(files, wrap)
    }
}

/// Returns the value of [`PLACE`].
fn place(objects: &[(String, Vec<u8>)]) -> Result<FrozenPlace, Failure> {
    for (name, bytes) in objects {
        let object = Object::read(name, bytes).map_err(Failure::of)?;
        let Some(symbol) = object.symbols.iter().find(|symbol| symbol.name == PLACE) else { continue };
        if let Place::Section(section) = symbol.place
            && let Some(value) = object.section(section).data.get(symbol.value as usize..)
        {
            let size = object.machine.word_size() as usize;
            let low = |word: &[u8]| word.first_chunk().map(|low| u32::from_le_bytes(*low));
            let words: Option<Vec<u32>> = value.chunks_exact(size).take(4).map(low).collect();
            if let Some(&[start, end, by_table, has_window]) = words.as_deref() {
                return Ok(FrozenPlace { range: start..end, by_table, has_window: has_window != 0 });
            }
        }
    }
    Err(Failure::job(format!("the compiled runtime has no variable {PLACE} with four values")))
}
