//! A process before its first instruction: memory by address, entry points, and the words that may point to code.
//!
//! The executable, its interpreter and its libraries share one address space, relocated as by the dynamic linker
//! (`link/`). A call of a library's function through the global offset table is then a call through a constant, and
//! the rest of the scan need not distinguish objects. Libraries that the program may load later by name are included as
//! well, but count only once they are requested (`by_name`).

mod bytes;
mod dynamic;
mod dynsym;
mod entries;
mod exidx;
mod landing;
mod link;
mod loaded;
mod memory;
mod names;
mod object;
mod parts;
mod process;
mod ranges;
mod relocs;
mod segment;
mod symbols;
mod unwind;
mod variables;
mod vsyscall;

pub use crate::address::Addr;
pub use dynamic::Dynamic;
pub use dynsym::{DynamicSymbol, DynamicSymbols, SymbolKind, Version};
pub use landing::{caught_types, landing_pads};
pub use loaded::Loaded;
pub use memory::{Image, MAX_BIAS, NamedObjects, ObjectIndex, SMALL_BIAS};
pub use object::Object;
pub use process::{Asker, Member, MemberIndex, Named, Process};
pub use symbols::Symbols;
pub use unwind::{Extent, Extents, Handlers};
pub use variables::Variables;
