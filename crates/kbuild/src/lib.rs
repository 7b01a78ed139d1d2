//! The kernel's own make in a copy of its build directory. The user's directory is only read.
//!
//! - [`BuildCopy`]: the copy, without the files that a link does not read, or whole;
//! - [`Make`]: make in the copy, with the variables that the build recorded;
//! - [`KernelCompiler`]: compiles C for the kernel with the flags of its own build;
//! - [`records`], [`recorded`], [`compile_again`]: the objects of the build, and the commands that compiled them;
//! - [`Objtool`]: the tool that adds unwind tables to x86-64 code;
//! - [`check_apart`], [`check_output`]: outputs that are not inside the build directory.

mod command;
mod compiler;
mod copy;
mod make;
mod objtool;
mod output;
mod record;
mod toolchain;
mod tools;

pub use command::run;
pub use compiler::{
    ASSEMBLY, KernelCompiler, Source, Unit, WITH_TYPES, compile_again, recorded, recorded_command,
};
pub use copy::{BuildCopy, Content};
pub use make::{Make, parse_variable};
pub use objtool::Objtool;
pub use output::{check_apart, check_output, existing_ancestor};
pub use record::records;
