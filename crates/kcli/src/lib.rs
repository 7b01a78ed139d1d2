//! Shared parts of the commands of kshrink. Each command is a thin shell over its library:
//!
//! - [`main`]: runs a command, prints its error, picks its exit code, and prints events if `KSHRINK_LOG` selects some;
//! - [`with_arguments`]: parses its command line, which man pages and completions are generated from as well;
//! - [`Output`], [`read_input`], [`is_piped_stdin`]: files and pipes; `-` means standard input or output;
//! - [`create_with_page`]: a result, and a page beside it;
//! - [`read_input_if`]: input whose head shows whether it is of the expected kind;
//! - [`read_document`]: a JSON document, by its schema;
//! - [`read_key`]: the key of a device;
//! - [`read_plan`], [`read_piped_plan`], [`named_or_piped`]: the plan that most commands read;
//! - [`Progress`]: a spinner or bar on a terminal, nothing for pipes and logs;
//! - [`Table`] and [`human`]: figures in columns;
//! - [`scratch`]: temporary directories and commands that a signal cleans up;
//! - [`search`]: the candidates that make a test fail, by halving.
//!
//! This is a handful of functions, not a framework: a command describes its own arguments and calls the functions it
//! needs. Standard output is for results alone, and a result is either whole or absent. Diagnostics and progress
//! therefore use standard error, and a file appears under its name only when it is complete.

mod document;
mod input;
mod install;
mod key;
mod log;
mod output;
mod plan;
mod progress;
mod run;
pub mod scratch;
pub mod search;
mod table;
mod with_page;

pub use document::{other_document, read_document};
pub use input::{is_piped_stdin, read_input, read_input_if};
pub use install::with_arguments;
pub use key::{Key, read_key};
pub use output::Output;
pub use plan::{check_machine_of_plan, input_name, named_or_piped, read_piped_plan, read_plan};
pub use progress::Progress;
pub use run::{Failure, Fault, OrBadInput, main};
pub use table::{Table, human, percent};
pub use with_page::create_with_page;
