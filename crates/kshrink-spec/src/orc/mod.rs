/*!
Packed tables for unwinding (`CONFIG_UNWINDER_ORC` of x86-64 kernels).

objtool makes two tables of all addresses at which the unwind state changes, 10 bytes each. Only backtraces read them.
Here, they are packed to a tenth, and a runtime ([`runtime`], `kdecomp-rt/kernel/orc.c`) looks states up in the packed
form. The kernel's own tables keep the entries of a few bytes of code that nothing runs, one for each state, so that its
unwinder still does the unwinding.

The addresses are known after the first link, the states before it. [`tables`] takes the tables out of the object;
[`link`] packs them when they are known. Distances from the start of a region of code do not depend on the size of the
packed tables, so the second link is the last.
*/

pub mod runtime;
mod tables;

use std::fs;

use kcli::Failure;
use kelf::Object;

use tables::FIRST;
pub use tables::{Sizes, Tables};

use crate::phases::Phases;
use crate::relink::{Goal, Staged};

/// Links a kernel with packed tables, up to the boot image. Returns the sizes of the tables.
///
/// # Errors
/// If the object has no tables, or the kernel cannot be linked.
pub fn link(staged: &mut Staged<'_>, object: &mut Object<'_>, phases: &mut Phases) -> Result<Sizes, Failure> {
    let tables = take(staged, object)?;
    staged.link(&object.write().map_err(Failure::of)?, Goal::Vmlinux)?;
    phases.next("pack");
    let packed = tables.pack(&staged.vmlinux(), 0..0)?;
    phases.next("relink");
    tables.put(object, &packed);
    staged.link(&object.write().map_err(Failure::of)?, Goal::BootImage)?;
    tables.check(&staged.vmlinux(), 0..0, &packed)?;
    Ok(tables.sizes(&packed))
}

/// The size of the text for which the kernel has a table of its own (`ORC_UNWIND_TABLE` of
/// include/asm-generic/vmlinux.lds.h), 4 bytes for 256.
const TEXT_SIZE: &str = "text_size = _etext - _stext;";

/// The kernel's entry. It begins its text in Linux 6.12, and the text of system call and interrupt entries does in 7.2.
const HEAD: &str = "*(.head.text)";

/// Takes the tables out of an object that is to be linked there. The kernel looks up only the bytes that stand for states,
/// which are at the start of its text, so that the linker script makes room for no others; the function tracer looks up
/// its own code as well.
///
/// # Errors
/// If the object has no tables, or the linker script cannot be changed.
pub fn take(staged: &Staged<'_>, object: &mut Object<'_>) -> Result<Tables, Failure> {
    let path = staged.linker_script();
    let failed = |error: std::io::Error| Failure::job(format!("{}: {error}", path.display()));
    let script = fs::read_to_string(&path).map_err(failed)?;
    let tables = Tables::take(object, if script.contains(HEAD) { ".head.text" } else { ".entry.text" })?;
    if staged.build().is_enabled("CONFIG_DYNAMIC_FTRACE") {
        return Ok(tables);
    }
    let end = format!("text_size = {FIRST} + {} - _stext;", tables.states());
    fs::write(&path, script.replacen(TEXT_SIZE, &end, 1)).map_err(failed)?;
    Ok(tables)
}
