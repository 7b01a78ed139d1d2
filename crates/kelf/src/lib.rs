//! Reads and writes ELF for the kshrink tools.
//!
//! Each step borrows from the previous one:
//!
//! 1. [`KernelBuild::find`] finds the inputs of the link of a `vmlinux`;
//! 2. [`InputFiles`] reads those files, through (thin) archives ([`archive`]);
//! 3. [`Object::read`] turns each object into plain data, checked once and for all ([`read`]);
//! 4. [`Program::link`] selects the needed library members and resolves symbols like `ld`;
//! 5. the rest of kshrink makes a new [`Object`] of it;
//! 6. [`Object::write`] turns that into bytes, for the kernel's own link ([`write`](mod@write)).
//!
//! This crate contains no instruction set and gives no section a meaning. Its main decision is that an object is plain
//! data (`Vec`s with public fields and index newtypes) rather than a view into a file: a rewriter makes most of its
//! output from scratch, and reading and writing then meet in one type that tests can compare.
//!
//! For the linked file, [`ElfFile`] and [`Segments`] give its sections and symbols, [`Functions`] the code by name and
//! address, and [`section_bases`] the addresses of an object's sections. [`Dump`] reads the memory of a running kernel.

pub mod archive;
pub mod build_dir;
pub mod dump;
pub mod functions;
pub mod index;
pub mod inputs;
pub mod machine;
pub mod object;
pub mod program;
pub mod read;
pub mod reloc;
pub mod target;
pub mod write;

mod addend;
mod attributes;
mod bases;
mod error;
mod head;
mod headers;
mod join;
mod lines;
mod resolve;
mod segments;
mod source;

pub use addend::put as put_field;
pub use attributes::{ATTRIBUTES, Attributes, merge as merge_attributes};
pub use bases::section_bases;
pub use build_dir::{KernelBuild, KernelVersion};
pub use dump::{Dump, DumpError};
pub use error::{Error, Result};
pub use functions::{Function, Functions};
pub use head::{read_file_if, read_if};
pub use headers::{ElfFile, find_note, is_bitcode, is_object, linked_machine, read_linked};
pub use index::{FunctionIndex, GlobalIndex, ObjectIndex, SectionIndex, SymbolIndex};
pub use inputs::InputFiles;
pub use join::OWN_SYMBOL;
pub use lines::SourceLines;
pub use machine::Machine;
pub use object::{GRP_COMDAT, Group, Object, Place, Section, Symbol};
pub use program::{Input, Program, Resolved};
pub use reloc::{Reloc, RelocClass};
pub use resolve::{Definition, Global};
pub use segments::Segments;
pub use source::SourceTree;
pub use target::Target;
