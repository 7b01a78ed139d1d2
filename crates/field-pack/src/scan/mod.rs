//! The uses of members in the files of kernel builds, as clang sees them.
//!
//! 1. [`select`]: the files whose text can name a member.
//! 2. [`scan`]: parses the files in several processes, because libclang serves one file at a time.
//! 3. [`worker`]: such a process.

mod command;
mod facts;
mod form;
mod record;
mod select;
mod visit;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use clang::diagnostic::Severity;
use clang::{Clang, Index};
use kcli::{Failure, Progress};
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

pub use facts::{Facts, Form, Member, MemberKind, Use, Whole, WholeForm};
pub use select::{Unit, Wanted, select, units};

/// The hidden command that parses files for [`scan`].
pub const WORKER: &str = "scan-files";

/// Number of files that a process parses at once.
const BATCH: usize = 12;

/// Files for a process to parse.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    source: PathBuf,
    types: Vec<String>,
    names: Vec<String>,
    units: Vec<Unit>,
}

/// Parses files, and returns the uses of all members of some structures.
///
/// # Errors
/// A failed job if a process fails; bad input if libclang is missing.
pub fn scan(source: &Path, wanted: &[Wanted], units: Vec<Unit>) -> Result<Facts, Failure> {
    if units.is_empty() {
        return Err(Failure::bad_input("no file of the builds uses a member of the plan"));
    }
    let types: Vec<String> = wanted.iter().map(|wanted| wanted.of.clone()).collect();
    let names: Vec<String> = wanted.iter().flat_map(|wanted| wanted.members.clone()).collect();
    let progress = Progress::bar(units.len() as u64, "parsing");
    let batches: Vec<Vec<Unit>> = units.chunks(BATCH).map(<[Unit]>::to_vec).collect();
    let next = std::sync::Mutex::new(batches.into_iter());
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let mut facts = Facts::default();
    let results: Vec<Result<Vec<Facts>, Failure>> = thread::scope(|scope| {
        let run = || {
            let mut found = Vec::new();
            loop {
                let batch = next.lock().map_or(None, |mut next| next.next());
                let Some(units) = batch else { return Ok(found) };
                let count = units.len() as u64;
                let (types, names) = (types.clone(), names.clone());
                found.push(in_process(&Job { source: source.to_owned(), types, names, units })?);
                progress.advance(count);
            }
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(run)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(Failure::job("a thread failed"))))
            .collect()
    });
    for result in results {
        for part in result? {
            facts.merge(part);
        }
    }
    facts.sort();
    Ok(facts)
}

/// Parses files in another process.
fn in_process(job: &Job) -> Result<Facts, Failure> {
    let program = std::env::current_exe()?;
    let mut child = Command::new(program).arg(WORKER).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(&serde_json::to_vec(job)?)?;
    }
    let output = child.wait_with_output()?;
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout)?),
        false => {
            let first =
                job.units.first().map(|unit| unit.command.file.display().to_string()).unwrap_or_default();
            Err(Failure::job(format!("parsing {first} and the files after it failed ({})", output.status)))
        }
    }
}

/// Parses the files of the job on `input`, and writes the facts to `output`.
///
/// # Errors
/// Bad input if there is no libclang.
pub fn worker(mut input: impl Read, mut output: impl Write) -> Result<(), Failure> {
    let mut text = Vec::new();
    input.read_to_end(&mut text)?;
    let job: Job = serde_json::from_slice(&text)?;
    let types: FxHashSet<String> = job.types.into_iter().collect();
    let names: FxHashSet<String> = job.names.into_iter().collect();
    let clang = Clang::new().map_err(|error| {
        Failure::bad_input(format!(
            "libclang cannot be loaded ({error}); install it, on Debian the package libclang1-14"
        ))
    })?;
    let mut visitor = visit::Visitor::new(&job.source, &types, &names);
    let mut failed = Vec::new();
    let (count, mut word) = (job.units.len(), 0);
    for unit in job.units {
        std::env::set_current_dir(&unit.dir)?;
        let name = unit.command.file.display().to_string();
        let index = Index::new(&clang, false, false);
        let mut parser = index.parser(&unit.command.file);
        let parsed = match parser.arguments(&unit.command.options).parse() {
            Ok(parsed) => parsed,
            Err(error) => {
                failed.push((name, error.to_string()));
                continue;
            }
        };
        let errors = parsed.get_diagnostics();
        if let Some(error) = errors.iter().find(|found| found.get_severity() >= Severity::Error) {
            failed.push((name, error.to_string()));
        }
        word = parsed.get_target().pointer_width as u64 / 8;
        visitor.visit(parsed.get_entity(), &unit.command.file);
    }
    let mut facts = visitor.into_facts();
    (facts.failed, facts.files, facts.word) = (failed, count, word);
    Ok(serde_json::to_writer(&mut output, &facts)?)
}

impl Facts {
    /// Adds the facts of other files.
    fn merge(&mut self, other: Facts) {
        self.uses.extend(other.uses);
        self.wholes.extend(other.wholes);
        self.members.extend(other.members);
        self.failed.extend(other.failed);
        self.files += other.files;
        self.word = self.word.max(other.word);
    }

    /// Sorts the facts by place and removes repeated ones.
    fn sort(&mut self) {
        self.uses.sort_by(|a, b| {
            (&a.file, a.offset, &a.of, &a.member, a.form).cmp(&(&b.file, b.offset, &b.of, &b.member, b.form))
        });
        self.uses.dedup();
        self.wholes.sort_by(|a, b| (&a.file, a.line, &a.of, a.form).cmp(&(&b.file, b.line, &b.of, b.form)));
        self.wholes.dedup();
        self.members.sort_by(|a, b| (&a.file, a.offset).cmp(&(&b.file, b.offset)));
        self.members.dedup();
        self.failed.sort();
    }
}
