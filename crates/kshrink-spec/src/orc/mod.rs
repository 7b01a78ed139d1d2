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

use kcli::Failure;
use kelf::Object;

pub use tables::{Sizes, Tables};

use crate::phases::Phases;
use crate::relink::{Goal, Staged};

/// Links a kernel with packed tables, up to the boot image. Returns the sizes of the tables.
///
/// # Errors
/// If the object has no tables, or the kernel cannot be linked.
pub fn link(staged: &mut Staged<'_>, object: &mut Object<'_>, phases: &mut Phases) -> Result<Sizes, Failure> {
    let tables = Tables::take(object)?;
    staged.link(&object.write().map_err(Failure::of)?, Goal::Vmlinux)?;
    phases.next("pack");
    let packed = tables.pack(&staged.vmlinux(), 0..0)?;
    phases.next("relink");
    tables.put(object, &packed);
    staged.link(&object.write().map_err(Failure::of)?, Goal::BootImage)?;
    tables.check(&staged.vmlinux(), 0..0, &packed)?;
    Ok(tables.sizes(&packed))
}
