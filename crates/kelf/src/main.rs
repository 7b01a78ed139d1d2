//! `kelf`: looks at ELF files with the eyes of kshrink.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kcli::{Failure, Output, Table, human, percent};
use kelf::SizeTable;

/// Looks at kernels and other ELF files.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the sizes of linked kernels or programs, in bytes
    ///
    /// `text` and `data` are what stays in memory after boot, executable or not; `init text` and
    /// `init data` lie between __init_begin and __init_end and are freed then. `image` is the
    /// content to load, `compressed image` the same through gzip -9, `boot image` the bzImage,
    /// zImage or Image.gz that was built beside it. `footprint` is text + data, and `init
    /// footprint` adds the init sections. `frozen text` and `frozen data` take no memory until they
    /// are used; their packed form, `packed`, is part of `data`.
    Size {
        /// The file that the others are compared with
        a: PathBuf,
        /// Files to compare
        b: Vec<PathBuf>,
        /// Print a JSON array with an object for each file
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    kcli::with_arguments(|arguments: Arguments| {
        kcli::main("kelf", || match arguments.command {
            Command::Size { a, b, json } => size(a, b, json),
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

/// The table for people: a line for each figure, a column for each file.
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
