//! Packed segments: parts of a kernel that begin on the next page instead of the next megabyte or two.
//!
//! Linker scripts align some parts of a kernel to the size of a large page, and the memory before them is never used.
//! Here, the linker script of the relink aligns these parts to pages, where nothing in the kernel's configuration needs
//! more. Each machine has a module: [`arm`], [`x86_64`].

mod arm;
mod x86_64;

use std::fs;

use kcli::Failure;
use kelf::{InputFiles, KernelBuild, Machine, Object};

use crate::relink::Staged;

/// What packing would do to a kernel.
pub struct Packing {
    /// Whether it changes anything.
    pub changes: bool,
    /// Whether packed segments require code ([`join`]).
    pub has_runtime: bool,
    /// The parts that do not change, each with the reason; if nothing changes, one reason.
    pub kept: Vec<String>,
}

impl Packing {
    /// Finds what packing would do.
    ///
    /// # Errors
    /// Bad input that names the option that prevents packing.
    pub fn of(build: &KernelBuild) -> Result<Packing, Failure> {
        match build.machine {
            Machine::Arm => arm::packing(build),
            Machine::X86_64 => Ok(x86_64::packing(build)),
            other => Ok(Packing::nothing(format!(
                "the linker script of a kernel for {other} aligns segments to pages"
            ))),
        }
    }

    /// Packing that changes nothing.
    fn nothing(why: String) -> Packing {
        Packing { changes: false, has_runtime: false, kept: vec![why] }
    }
}

/// Adds the code that packed segments require to a kernel's objects, if they do ([`Packing::has_runtime`]). `flags` are for the compiler.
///
/// # Errors
/// Those of [`kbuild::KernelCompiler`].
pub fn join(files: InputFiles, build: &KernelBuild, flags: &[&str]) -> Result<InputFiles, Failure> {
    arm::join(files, build, flags)
}

/// Gives sections of text names by which the changed linker script fills memory that must keep its alignment. Returns
/// their bytes.
pub fn fill(object: &mut Object<'_>, build: &KernelBuild) -> u64 {
    match build.machine {
        Machine::X86_64 => x86_64::fill(object, build),
        _ => 0,
    }
}

/// Changes the linker script of a relink.
///
/// # Errors
/// Bad input if the script is not the one that Linux has.
pub fn edit_script(staged: &Staged<'_>) -> Result<(), Failure> {
    let (build, path) = (staged.build(), staged.linker_script());
    let name = path.strip_prefix(staged.dir()).unwrap_or(&path);
    let wrong = |problem: &str| {
        Failure::bad_input(format!(
            "{}: {problem}, so its segments cannot be packed; expected the linker script of Linux 6.1 to 7.2; omit \
             --pack-segments",
            name.display()
        ))
    };
    let script = fs::read_to_string(&path).map_err(|error| wrong(&format!("cannot be read ({error})")))?;
    let packed = match build.machine {
        Machine::Arm => arm::packed(&script),
        _ => x86_64::packed(&script, build),
    };
    let script = packed.map_err(|problem| wrong(&problem))?;
    fs::write(&path, script).map_err(|error| Failure::job(format!("{}: {error}", path.display())))
}
