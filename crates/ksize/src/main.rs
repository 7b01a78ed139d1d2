//! `kelf`: inspects ELF files as kshrink sees them.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kcli::{Failure, Output, Table, human, percent};
use ksize::SizeTable;

mod origins;

use origins::Kernel;

/// Inspect kernels and other ELF files.
#[derive(Parser)]
#[command(name = "kelf", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the sizes of linked kernels or programs, in bytes
    ///
    /// `text` and `data` remain in memory after boot, executable or not; `init text` and `init data` are between
    /// __init_begin and __init_end and are freed then. `image` is the content to load, `compressed image` the same
    /// through gzip -9, `boot image` the bzImage, zImage or Image.gz of the same build. `footprint` is text + data, and
    /// `init footprint` adds the init sections. `frozen text` and `frozen data` take no memory until they are used;
    /// their packed form, `packed`, is part of `data`.
    Size {
        /// The reference file of the comparison
        a: PathBuf,
        /// Files to compare
        b: Vec<PathBuf>,
        /// Print a JSON array with an object for each file
        #[arg(long)]
        json: bool,
    },
    /// Print the original functions, offsets and source lines of addresses of a rewritten kernel
    ///
    /// Several lines for one address mean shared code: each line names one function that contained it.
    #[command(after_help = WHERE_EXAMPLES)]
    Where {
        #[command(flatten)]
        kernel: RewrittenKernel,
        /// An address in hexadecimal digits, or a place such as schedule+0x1a
        #[arg(required = true)]
        places: Vec<String>,
        /// Treat the addresses as return addresses of calls, as in a backtrace
        #[arg(long = "return")]
        is_return: bool,
    },
    /// Rewrite the addresses and functions in a console log as places of the original kernel
    ///
    /// Reads the log of a rewritten kernel (an oops, a warning, a backtrace) and writes it with
    /// original functions, offsets and, if the original was built with debugging information, source lines. Keeps code
    /// of modules as it is.
    #[command(after_help = SYMBOLIZE_EXAMPLES)]
    Symbolize {
        #[command(flatten)]
        kernel: RewrittenKernel,
        /// The log; `-` is standard input
        #[arg(default_value = "-")]
        log: PathBuf,
    },
}

/// A rewritten kernel and its original.
#[derive(clap::Args)]
struct RewrittenKernel {
    /// The output directory of kshrink-spec
    out: PathBuf,
    /// The original kernel [default: the input in OUT/report.json]
    #[arg(long, value_name = "VMLINUX")]
    original: Option<PathBuf>,
}

impl RewrittenKernel {
    fn open(&self) -> Result<Kernel, Failure> {
        Kernel::open(&self.out, self.original.as_deref())
    }
}

const WHERE_EXAMPLES: &str = "\
Examples:
  kelf where shrunk c01234f2
  kelf where shrunk --return schedule+0x1a/0x90 --original build/vmlinux";

const SYMBOLIZE_EXAMPLES: &str = "\
Examples:
  dmesg | kelf symbolize shrunk
  kelf symbolize shrunk --original build/vmlinux console.log";

fn main() -> ExitCode {
    kcli::with_arguments(|arguments: Arguments| {
        kcli::main("kelf", || match arguments.command {
            Command::Size { a, b, json } => size(a, b, json),
            Command::Where { kernel, places, is_return } => {
                origins::print_places(&kernel.open()?, &places, is_return)
            }
            Command::Symbolize { kernel, log } => symbolize(&kernel.open()?, &log),
        })
    })
}

fn size(a: PathBuf, b: Vec<PathBuf>, json: bool) -> Result<(), Failure> {
    let paths = std::iter::once(a).chain(b);
    let tables = paths.map(|path| SizeTable::of(&path).map_err(Failure::of));
    let tables = tables.collect::<Result<Vec<_>, _>>()?;
    let mut output = Output::stdout();
    if json {
        serde_json::to_writer_pretty(&mut output, &tables)?;
        writeln!(output)?;
    } else {
        write!(output, "{}", size_text(&tables))?;
    }
    Ok(output.commit()?)
}

fn symbolize(kernel: &Kernel, log: &Path) -> Result<(), Failure> {
    if log == Path::new("-") {
        return origins::symbolize(kernel, std::io::stdin().lock(), "standard input");
    }
    let name = log.display().to_string();
    let file = File::open(log).map_err(|error| Failure::bad_input(format!("cannot read {name}: {error}")))?;
    origins::symbolize(kernel, BufReader::new(file), &name)
}

/// Formats the human-readable table: a line for each figure, a column for each file.
fn size_text(tables: &[SizeTable]) -> Table {
    let mut heading = vec![String::new()];
    for (index, table) in tables.iter().enumerate() {
        heading.push(table.path.display().to_string());
        if index > 0 {
            heading.push(String::new());
        }
    }
    let mut text = Table::new(heading);
    let columns: Vec<_> = tables.iter().map(SizeTable::columns).collect();
    for (figure, &(name, first)) in columns[0].iter().enumerate() {
        let mut row = vec![name.to_string(), cell(first)];
        for column in &columns[1..] {
            let now = column[figure].1;
            row.push(cell(now));
            row.push(match (first, now) {
                (Some(first), Some(now)) => percent(first, now),
                _ => String::new(),
            });
        }
        if columns.iter().any(|column| column[figure].1.is_some()) {
            text.row(row);
        }
    }
    text
}

fn cell(figure: Option<u64>) -> String {
    figure.map(human).unwrap_or_default()
}
