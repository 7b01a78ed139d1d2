//! The check of the command line that is linked into a kernel made for one.

use std::fs;

use kcli::Failure;
use kelf::KernelBuild;
use kplan::OnMismatch;

use kbuild::KernelCompiler;

/// Compares the command line at boot with the one that the kernel was made for.
const SOURCE: &str = include_str!("../runtime/cmdline.c");

/// Compiles the check. Returns a name for messages, and the object.
///
/// # Errors
/// Those of [`KernelCompiler`].
pub fn check(build: &KernelBuild, on_mismatch: OnMismatch) -> Result<(String, Vec<u8>), Failure> {
    let panics = match on_mismatch {
        OnMismatch::Warn => "-DKSHRINK_PANIC=0",
        OnMismatch::Panic => "-DKSHRINK_PANIC=1",
    };
    let dir = tempfile::tempdir()?;
    fs::write(dir.path().join("kshrink_cmdline.c"), SOURCE)?;
    let object = KernelCompiler::of(build)?.compile(dir.path(), "kshrink_cmdline.c", &[panics])?;
    Ok(("kshrink_cmdline.o".to_owned(), object))
}
