//! `config-spec compare`: the sizes of several kernels, and the memory that is free when they run.

use std::io::Write;
use std::path::Path;

use kcli::{Failure, Output, Progress, Table, human};
use kelf::KernelBuild;
use serde::Serialize;

use crate::arguments::CompareArguments;
use crate::config::Config;
use crate::figures::{Figures, Memory};
use crate::print;
use crate::tree::Tree;

/// A kernel in the comparison.
#[derive(Serialize)]
struct Compared {
    /// Its vmlinux.
    kernel: String,
    /// Number of options that are `y` or `m`.
    options: usize,
    #[serde(flatten)]
    figures: Figures,
}

/// Runs the command.
///
/// # Errors
/// Bad input if a build cannot be read, or if the command that measures memory fails.
pub fn run(arguments: &CompareArguments) -> Result<(), Failure> {
    let progress = Progress::bar(arguments.kernels.len() as u64, "measuring kernels");
    let mut kernels = Vec::new();
    for path in &arguments.kernels {
        kernels.push(compared(path, arguments.measured.memory.as_deref())?);
        progress.advance(1);
    }
    drop(progress);
    let mut output = Output::create(&arguments.measured.output)?;
    match arguments.measured.json {
        true => print::write(&kernels, &mut output)?,
        false => write!(output, "{}", table(&kernels))?,
    }
    Ok(output.commit()?)
}

fn compared(path: &Path, command: Option<&str>) -> Result<Compared, Failure> {
    let build = KernelBuild::find(path).map_err(Failure::of)?;
    let tree = Tree::find(&build)?;
    let figures = Figures::with_memory(&build, command)?;
    Ok(Compared { kernel: path.display().to_string(), options: enabled(&tree.config), figures })
}

fn enabled(config: &Config) -> usize {
    config.names().filter(|name| matches!(config.value(name), "y" | "m")).count()
}

/// Returns the figures, each row a figure and each column a kernel. Sizes of files are in bytes, memory is in KiB.
fn table(kernels: &[Compared]) -> Table {
    let mut table = Table::new([""].into_iter().chain(kernels.iter().map(|kernel| kernel.kernel.as_str())));
    let mut row = |name: &str, figure: &dyn Fn(&Compared) -> Option<u64>| {
        if kernels.iter().any(|kernel| figure(kernel).is_some()) {
            let cells = kernels.iter().map(|kernel| figure(kernel).map_or("-".to_owned(), human));
            table.row([name.to_owned()].into_iter().chain(cells));
        }
    };
    row("options", &|kernel| Some(kernel.options as u64));
    row("vmlinux", &|kernel| Some(kernel.figures.vmlinux));
    row("boot image", &|kernel| kernel.figures.boot_image);
    row("footprint", &|kernel| Some(kernel.figures.footprint));
    row("resident", &|kernel| kernel.figures.resident);
    let mut memory =
        |name: &str, figure: fn(Memory) -> u64| row(name, &|kernel| kernel.figures.memory.map(figure));
    memory("total KiB", |memory| memory.total);
    memory("used KiB", |memory| memory.total.saturating_sub(memory.free));
    memory("free KiB", |memory| memory.free);
    memory("buffers KiB", |memory| memory.buffers);
    memory("cached KiB", |memory| memory.cached);
    table
}
