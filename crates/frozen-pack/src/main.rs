//! `frozen-pack`: plans which parts of a kernel are packed until their first use, and packs code and read-only data by
//! page.

mod arguments;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use frozen_pack::bench;
use frozen_pack::codec::format::{MAGIC, Packed};
use frozen_pack::codec::pack::{Piece, pack};
use frozen_pack::input;
use frozen_pack::plan::cold::Cold;
use frozen_pack::plan::reads::ReadData;
use frozen_pack::plan::table::Summary;
use frozen_pack::plan::{self, Plan, kernel, why};
use frozen_pack::show::{self, Shown};
use kcfg::graph::Graph;
use kcfg::index::NodeSet;
use kcli::{
    Failure, Output, Progress, human, is_piped_stdin, read_input, read_input_if, read_piped_plan, read_plan,
};
use kelf::Program;
use kopt::freeze::closure::Closure;
use kplan::{Coverage, Mechanism};
use serde::Serialize;

use arguments::{Arguments, Command, Format};

fn main() -> ExitCode {
    kcli::with_arguments(|arguments: Arguments| {
        kcli::main("frozen-pack", || match &arguments.command {
            Command::Plan {
                vmlinux,
                mechanism,
                minimum,
                everything,
                after_boot,
                pin,
                assume_cold,
                why,
                pinned,
                output,
            } => {
                let mechanism = Mechanism::from(*mechanism);
                if minimum.is_some() && mechanism != Mechanism::Stub {
                    return Err(Failure::bad_input(
                        "--minimum applies to regions; it requires --mechanism stub",
                    ));
                }
                if after_boot.is_some() && mechanism == Mechanism::Stub {
                    return Err(Failure::bad_input(
                        "--after-boot applies to pages that the kernel frees after boot; it requires --mechanism page",
                    ));
                }
                let everything = *everything;
                let after_boot = after_boot.as_deref();
                let wishes =
                    Wishes { mechanism, minimum: *minimum, everything, after_boot, pin, assume_cold };
                let question = match why {
                    Some(symbol) => Some(Question::Why(symbol)),
                    None => pinned.then_some(Question::Pinned),
                };
                add_plan(vmlinux, &wishes, question, output)
            }
            Command::Bench { vmlinux, pages, section, format } => {
                print_bench(&sections(vmlinux, section)?, pages.page_size, *format)
            }
            Command::Pack { file, pages, section, range, address, code, output } => {
                let pieces = match range {
                    Some(range) => {
                        let piece =
                            input::range(&read_input(file)?, range.clone(), *address, code.map(Into::into));
                        vec![piece.map_err(|error| bad_file(file, &error))?]
                    }
                    None => sections(file, section)?,
                };
                write_packed(&pieces, pages.page_size, output)
            }
            Command::Unpack { file, page, output } => unpack(file, *page, output),
            Command::Show { vmlinux, format } => print_shown(vmlinux, *format),
        })
    })
}

/// The user's requests besides the code that ran.
struct Wishes<'a> {
    mechanism: Mechanism,
    minimum: Option<u32>,
    everything: bool,
    /// The plan of what ran after boot.
    after_boot: Option<&'a Path>,
    pin: &'a [String],
    assume_cold: &'a [String],
}

/// The information requested instead of a plan.
enum Question<'a> {
    Why(&'a str),
    Pinned,
}

fn add_plan(
    vmlinux: &Path,
    wishes: &Wishes<'_>,
    question: Option<Question<'_>>,
    output: &Path,
) -> Result<(), Failure> {
    let mut document = if is_piped_stdin() { read_piped_plan()? } else { Default::default() };
    let progress = Progress::spinner("reading");
    let frozen = kernel::with_graph(vmlinux, &document, wishes.mechanism, |graph, program| {
        let plan = plan_of(graph, program, &document, vmlinux, wishes)?;
        drop(progress);
        let text = match question {
            None => {
                eprint!("{}", Summary::of(&plan));
                return Ok(Some(plan.frozen()));
            }
            Some(Question::Why(symbol)) => {
                why::explain(&plan, symbol).ok_or_else(|| no_symbol(vmlinux, symbol))?
            }
            Some(Question::Pinned) => why::pinned(&plan),
        };
        let mut out = Output::create(output)?;
        out.write_all(text.as_bytes())?;
        out.commit()?;
        Ok(None)
    })?;
    if frozen.is_none() {
        return Ok(());
    }
    document.frozen = frozen;
    let mut out = Output::create(output)?;
    document.write(&mut out)?;
    Ok(out.commit()?)
}

/// Decides which nodes of a graph freeze.
fn plan_of<'g>(
    graph: &'g Graph,
    program: &Program<'_>,
    document: &kplan::Plan,
    vmlinux: &Path,
    wishes: &Wishes<'_>,
) -> Result<Plan<'g>, Failure> {
    let named = |symbols: &[String]| -> Result<NodeSet, Failure> {
        let mut nodes = NodeSet::with_capacity(graph.nodes().len());
        for symbol in symbols {
            let found = plan::nodes_of(graph, symbol);
            if found.is_empty() {
                return Err(no_symbol(vmlinux, symbol));
            }
            nodes.extend(found);
        }
        Ok(nodes)
    };
    let closure = Closure::of(graph)
        .map_err(|unmatched| Failure::bad_input(format!("{}: {unmatched}", vmlinux.display())))?;
    let assume_cold = named(wishes.assume_cold)?;
    let by_coverage = |coverage: &Coverage| -> Result<Cold, Failure> {
        let data = ReadData::of(graph, program, coverage, vmlinux).map_err(Failure::bad_input)?;
        if let Some(remark) = &data.remark {
            eprintln!("frozen-pack: warning: {remark}");
        }
        Cold::by_coverage(graph, coverage, &data, &assume_cold)
            .map_err(|other| Failure::bad_input(format!("{}: {other}", vmlinux.display())))
    };
    let ever = match &document.coverage {
        _ if wishes.everything => Cold::everything(graph),
        Some(coverage) => by_coverage(coverage)?,
        None => {
            return Err(Failure::bad_input(
                "the plan on standard input has no section `coverage` of the code that ran; make one with coverage, or \
                 freeze all that may freeze with --everything",
            ));
        }
    };
    let mut at_boot = NodeSet::default();
    let cold = match wishes.after_boot {
        None => ever,
        Some(path) => {
            let Some(coverage) = read_plan(path)?.coverage else {
                return Err(Failure::bad_input(format!(
                    "{}: it has no section `coverage` of the code that ran after boot; make one with coverage qemu \
                     --after-boot",
                    path.display()
                )));
            };
            let later = by_coverage(&coverage)?;
            at_boot = later.nodes.difference(&ever.nodes).collect();
            later
        }
    };
    let pinned = named(wishes.pin)?;
    Ok(Plan::new(graph, cold, at_boot, closure, pinned, wishes.mechanism, wishes.minimum))
}

fn no_symbol(vmlinux: &Path, symbol: &str) -> Failure {
    Failure::bad_input(format!(
        "{}: it defines no symbol `{symbol}`; expected the name of a function or variable, as in System.map",
        vmlinux.display()
    ))
}

fn sections(path: &Path, names: &[String]) -> Result<Vec<Piece>, Failure> {
    input::sections(&read_linked(path)?, names).map_err(|error| bad_file(path, &error))
}

/// Reads a linked ELF file of 32 bits or for x86-64.
fn read_linked(path: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = read_input_if(path, |head| input::check_header(head).is_ok())?;
    input::check_header(&bytes).map_err(|error| bad_file(path, &error))?;
    Ok(bytes)
}

fn print_bench(pieces: &[Piece], page_size: u32, format: Format) -> Result<(), Failure> {
    let progress = Progress::spinner("packing with every coder");
    let rows = bench::bench(pieces, page_size).map_err(Failure::job)?;
    drop(progress);
    print(&rows, |rows| bench::text(rows), format)
}

fn print_shown(vmlinux: &Path, format: Format) -> Result<(), Failure> {
    let shown = show::show(&read_linked(vmlinux)?).map_err(|error| bad_file(vmlinux, &error))?;
    print(&shown, Shown::to_string, format)
}

/// Prints a value as a human-readable table, or as JSON.
fn print<T: Serialize>(it: &T, text: impl Fn(&T) -> String, format: Format) -> Result<(), Failure> {
    let mut output = Output::stdout();
    match format {
        Format::Text => output.write_all(text(it).as_bytes())?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut output, it)?;
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
    let packed = Packed::read(&read_input_if(path, |head| head.starts_with(&MAGIC))?)
        .map_err(|damaged| bad_file(path, &damaged))?;
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
