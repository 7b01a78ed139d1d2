/*!
The code of a linked kernel, for commands that relate executed code to its address.

- [`KernelText`]: the functions of a `vmlinux` under the names that a plan uses, lookup by address and by name, the
  bytes of the code, and, for a rewritten kernel, the map back to the functions as they were compiled;
- [`PageMap`]: the memory pages of the executable sections, with the functions on each page and the number of bytes
  that ran.

`coverage` and `reorder` both use it. It is a separate crate because it joins two crates that do not depend on each
other: `kelf` reads the file and has no plan, `kplan` has the names and the coverage and reads no ELF.
*/

mod error;
mod kernel;
mod pages;

pub use error::{Error, Result};
pub use kernel::{KernelText, Place, Ran, function_name};
pub use pages::{FunctionPart, PAGE_SIZE, Page, PageMap, SectionPages};
