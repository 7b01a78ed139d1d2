//! What the commands of kshrink share, so that each of them stays a thin shell over its library:
//!
//! - [`main`]: runs a command, prints its error, picks its exit code;
//! - [`with_arguments`]: parses its command line, from which man pages and completions are made as well;
//! - [`Output`], [`read_input`], [`is_piped_stdin`]: files and pipes, `-` being standard input or
//!   output;
//! - [`read_input_if`], [`read_file_if`], [`read_if`]: files whose head tells whether they are of the wanted kind;
//! - [`read_plan`], [`read_piped_plan`], [`named_or_piped`]: the plan that most of them read;
//! - [`Progress`]: a spinner or bar for people, nothing for pipes and logs;
//! - [`Table`] and [`human`]: figures in columns.
//!
//! This is a handful of functions and not a framework: a command describes its own arguments and calls
//! what it needs. The decision behind it is that standard output belongs to results alone, and that
//! a result is either whole or absent. Diagnostics and progress therefore go to standard error, and
//! a file appears under its name only when it is complete.

mod input;
mod install;
mod output;
mod plan;
mod progress;
mod run;
mod table;

pub use input::{is_piped_stdin, read_file_if, read_if, read_input, read_input_if};
pub use install::with_arguments;
pub use output::Output;
pub use plan::{check_machine_of_plan, input_name, named_or_piped, read_piped_plan, read_plan};
pub use progress::Progress;
pub use run::{Failure, Fault, OrBadInput, main};
pub use table::{Table, human, percent};
