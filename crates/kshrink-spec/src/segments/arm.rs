//! Packed segments: text, read-only data, init and data of a 32-bit ARM kernel, each from the next page on.
//!
//! The kernel's linker script begins each segment in a section of 1 MiB, because the kernel protects whole sections. The
//! memory between them is never used. Here, the linker script of the relink aligns to pages, and a runtime
//! (`kdecomp-rt/kernel/arm_segments.c`) maps the sections in which the protection changes by pages.

use kcli::Failure;
use kelf::{InputFiles, KernelBuild};

use super::Packing;
use crate::runtime_source::source;
use kbuild::{ASSEMBLY, KernelCompiler, Source, Unit};

const HEADERS: [Source<'static>; 1] = [source!("segments.h", "kernel/segments.h")];

const UNITS: [Unit<'static>; 2] = [
    (source!("arm_segments.c", "kernel/arm_segments.c"), &[]),
    (source!("replace_entries.S", "kernel/replace_entries.S"), ASSEMBLY),
];

/// The functions of the kernel whose place the runtime's functions take.
const REPLACED: [&str; 2] = ["free_initmem", "mark_rodata_ro"];

/// The functions of the kernel that the runtime wraps.
const WRAPPED: [&str; 1] = ["bootmem_init"];

/// The alignment of a segment in that script.
const SECTION: &str = ". = ALIGN(1<<20);";
/// The alignment of a segment here.
const PAGE: &str = ". = ALIGN(4096);";

/// The option that aligns segments to sections.
const ALIGNING: &str = "CONFIG_STRICT_KERNEL_RWX";

/// The options that the runtime does not support.
const OBSTACLES: [(&str, &str); 9] = [
    ("CONFIG_ARM_LPAE", "page tables with large physical addresses are not supported yet"),
    ("CONFIG_CPU_V6", "page-table entries are made in the format of ARMv7"),
    ("CONFIG_CPU_V6K", "page-table entries are made in the format of ARMv7"),
    ("CONFIG_XIP_KERNEL", "its text is not in memory"),
    ("CONFIG_CPU_BIG_ENDIAN", "big-endian page tables were never tested"),
    ("CONFIG_CFI_CLANG", "control-flow integrity was never tested with its runtime"),
    ("CONFIG_CFI", "control-flow integrity was never tested with its runtime"),
    ("CONFIG_HIBERNATION", "the kernel that resumes writes to text through page tables of its own"),
    ("CONFIG_KASAN", "the shadow of packed segments was never tested"),
];

/// Returns the effect of packing.
///
/// # Errors
/// Bad input that names the option that prevents packing.
pub(super) fn packing(build: &KernelBuild) -> Result<Packing, Failure> {
    if !build.is_enabled(ALIGNING) {
        return Ok(Packing::nothing(format!(
            "without {ALIGNING}, the linker script aligns segments to pages"
        )));
    }
    let needed = ["CONFIG_MMU", "CONFIG_CPU_V7"];
    if let Some(option) = needed.iter().find(|option| !build.is_enabled(option)) {
        return Err(refusal(
            build,
            &format!("without {option}"),
            "only the page tables of ARMv7-A are supported",
        ));
    }
    match OBSTACLES.iter().find(|(option, _)| build.is_enabled(option)) {
        Some((option, why)) => Err(refusal(build, &format!("with {option}"), why)),
        None => Ok(Packing { changes: true, has_runtime: true, kept: Vec::new() }),
    }
}

fn refusal(build: &KernelBuild, condition: &str, why: &str) -> Failure {
    Failure::bad_input(format!(
        "{}: cannot pack the segments of a kernel {condition}: {why}; change the option, or omit --pack-segments",
        build.vmlinux.display()
    ))
}

/// Adds the runtime to a kernel's objects. `flags` are for the compiler.
///
/// # Errors
/// Those of [`KernelCompiler`].
pub(super) fn join(files: InputFiles, build: &KernelBuild, flags: &[&str]) -> Result<InputFiles, Failure> {
    let objects = KernelCompiler::of(build)?.compile_all(&HEADERS, &UNITS, flags)?;
    Ok(files.with_objects(objects).wrapping(&WRAPPED).overriding(&REPLACED))
}

/// Returns the script with segments that begin on the next page.
pub(super) fn packed(script: &str) -> Result<String, String> {
    // The data begins with the stack of the first task, whose alignment may be larger than a page.
    let data = script.split_once(" .data : ").map(|(_, data)| data);
    let align =
        data.and_then(|data| data.split_once(". = ALIGN(")).and_then(|(_, align)| align.split_once(';'));
    let stack = align.ok_or("does not align .data")?.0;
    let stack = format!(". = ALIGN({stack};");
    let mut lines: Vec<&str> = script.lines().collect();
    for (symbol, align, optional) in [
        // Without CONFIG_DEBUG_ALIGN_RODATA, read-only data follows text in the original as well.
        ("_etext", PAGE, true),
        ("__init_begin", PAGE, false),
        ("__init_end", &stack, false),
    ] {
        let defines =
            |line: &&str| line.trim_start().strip_prefix(symbol).is_some_and(|rest| rest.starts_with(" = ."));
        let at = lines.iter().position(defines).ok_or(format!("does not define {symbol}"))?;
        match at.checked_sub(1).map(|before| (before, lines[before].trim())) {
            Some((before, SECTION)) => lines[before] = align,
            _ if optional => {}
            _ => return Err(format!("does not align {symbol} with `{SECTION}`")),
        }
    }
    Ok(lines.join("\n") + "\n")
}
