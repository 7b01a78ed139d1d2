/*!
The code of a linked kernel, for the commands that relate what ran to where it lies.

- [`KernelText`]: the functions of a `vmlinux` under the names that a plan uses, from an address to a function and
  back, its bytes, and, for a rewritten kernel, the map back to the functions as they were compiled;
- [`PageMap`]: the memory pages that its executable sections lie on, with the functions on each page and how many
  bytes of them ran.

`coverage` and `reorder` both stand on it. It is a crate of its own because it joins what two crates keep apart:
`kelf` reads the file and knows no plan, `kplan` has the names and the coverage and knows no ELF.
*/

mod error;
mod kernel;
mod pages;

pub use error::{Error, Result};
pub use kernel::{KernelText, Place, Ran, function_name};
pub use pages::{FunctionPart, PAGE_SIZE, Page, PageMap, SectionPages};
