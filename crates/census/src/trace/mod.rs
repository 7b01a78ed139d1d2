//! The code that allocated the memory of a kernel, and the parts of it that nothing used.
//!
//! QEMU runs the kernel with a plugin (`fixtures/qemu/allocations.c`), which needs no registers: it watches the allocators'
//! own accesses to memory.
//!
//! 1. [`allocators`] lists the functions that the plugin watches;
//! 2. [`recording`] reads the output of the plugin: the last call for each word of memory, and its last access;
//! 3. [`objects`] finds the call of each slab object, page and early allocation in the core of the same run;
//! 4. [`sites`] adds the objects up by the code that called the allocator;
//! 5. [`document`] is the result, [`report`] prints it.

pub mod allocators;
pub mod document;
pub mod objects;
pub mod recording;
pub mod report;
pub mod sites;

use std::path::Path;

use kcli::{Failure, Progress};
use kelf::{Functions, SourceLines};

use crate::take::with_running;

use document::{Document, SCHEMA};
use recording::Recording;

/// Returns the list of allocators of the kernel `vmlinux`, as the plugin reads it.
///
/// # Errors
/// If the kernel cannot be read, or is not one for i386 or x86-64 with SLUB.
pub fn places(vmlinux: &Path) -> Result<String, Failure> {
    let functions = Functions::read(vmlinux).map_err(Failure::of)?;
    allocators::places(&functions, &vmlinux.display().to_string()).map_err(Failure::of)
}

/// Finds the code that allocated the memory of the kernel `vmlinux`, from a core and the recording of the same run.
///
/// # Errors
/// If a file cannot be read, core or recording are damaged or of another kernel, or the kernel is not supported.
pub fn trace(vmlinux: &Path, core: &Path, path: &Path, progress: &Progress) -> Result<Document, Failure> {
    let name = vmlinux.display().to_string();
    let functions = Functions::read(vmlinux).map_err(Failure::of)?;
    let places = allocators::places(&functions, &name).map_err(Failure::of)?;
    progress.message("reading the recording");
    let recording = Recording::read(path)?;
    recording.check_kernel(&places, &name).map_err(Failure::of)?;
    let lines = SourceLines::open(vmlinux, |name| functions.address_of(name)).map_err(Failure::of)?;
    let mut document = with_running(vmlinux, core, progress, |running| {
        let objects = objects::find(running, &recording)?;
        Ok(Document {
            schema: SCHEMA.into(),
            kernel: running.kernel.banner_line(),
            build_id: running.kernel.build_id.clone(),
            core: core.display().to_string(),
            trace: path.display().to_string(),
            memory: sites::sums(&objects),
            sites: sites::add_up(&objects, &recording, &functions),
        })
    })?;
    for site in &mut document.sites {
        site.lines = lines.at(site.address.wrapping_sub(1));
    }
    Ok(document)
}
