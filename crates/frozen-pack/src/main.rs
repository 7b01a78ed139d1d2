//! `frozen-pack`: packs code and read-only data of a kernel, page by page.

mod arguments;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use frozen_pack::bench;
use frozen_pack::format::Packed;
use frozen_pack::input;
use frozen_pack::pack::{Piece, pack};
use kcli::{Failure, Output, Progress, human, read_input};

use arguments::{Arguments, Command, Format};

fn main() -> ExitCode {
    kcli::with_arguments(|arguments: Arguments| {
        kcli::main("frozen-pack", || match &arguments.command {
            Command::Bench { vmlinux, pages, section, format } => {
                print_bench(&sections(vmlinux, section)?, pages.page_size, *format)
            }
            Command::Pack { file, pages, section, range, address, code, output } => {
                let pieces = match range {
                    Some(range) => {
                        let piece = input::range(&read_input(file)?, range.clone(), *address, *code);
                        vec![piece.map_err(|error| bad_file(file, &error))?]
                    }
                    None => sections(file, section)?,
                };
                write_packed(&pieces, pages.page_size, output)
            }
            Command::Unpack { file, page, output } => unpack(file, *page, output),
        })
    })
}

fn sections(path: &Path, names: &[String]) -> Result<Vec<Piece>, Failure> {
    input::sections(&read_input(path)?, names).map_err(|error| bad_file(path, &error))
}

fn print_bench(pieces: &[Piece], page_size: u32, format: Format) -> Result<(), Failure> {
    let progress = Progress::spinner("packing with every coder");
    let rows = bench::bench(pieces, page_size).map_err(Failure::job)?;
    drop(progress);
    let mut output = Output::stdout();
    match format {
        Format::Text => output.write_all(bench::text(&rows).as_bytes())?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut output, &rows)?;
            writeln!(output)?;
        }
    }
    Ok(output.commit()?)
}

fn write_packed(pieces: &[Piece], page_size: u32, path: &Path) -> Result<(), Failure> {
    let progress = Progress::spinner("packing");
    let packed = pack(pieces, page_size).map_err(Failure::job)?;
    let bytes = packed.write().map_err(Failure::bad_input)?;
    drop(progress);
    let mut output = Output::create(path)?;
    output.write_all(&bytes)?;
    output.commit()?;
    let size: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
    eprintln!(
        "frozen-pack: {} bytes in {} pages packed into {}, {:.4} of them",
        human(size as u64),
        packed.index.len(),
        human(bytes.len() as u64),
        bytes.len() as f64 / size as f64
    );
    Ok(())
}

fn unpack(path: &Path, page: Option<u32>, output: &Path) -> Result<(), Failure> {
    let packed = Packed::read(&read_input(path)?).map_err(|damaged| bad_file(path, &damaged))?;
    let bytes = match page {
        Some(page) => packed.page(page).map_err(|damaged| (page, damaged)),
        None => packed
            .segments
            .iter()
            .map(|segment| packed.unpack(segment))
            .collect::<Result<Vec<_>, _>>()
            .map(|all| all.concat()),
    };
    let bytes = bytes.map_err(|(page, damaged)| bad_file(path, &format!("page {page}: {damaged}")))?;
    let mut output = Output::create(output)?;
    output.write_all(&bytes)?;
    Ok(output.commit()?)
}

fn bad_file(path: &Path, problem: &dyn std::fmt::Display) -> Failure {
    let name = match path == Path::new("-") {
        true => "standard input".into(),
        false => path.display().to_string(),
    };
    Failure::bad_input(format!("{name}: {problem}"))
}
