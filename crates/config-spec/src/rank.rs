//! `config-spec rank`: builds the kernel without each option, one at a time, and measures what it brings.
//!
//! The source is the ranking of options in Ikeda's study of Linux Tiny (sections 5.3 and 5.4), which sets one option
//! at a time. With a smaller kernel, each share is of the difference between both, as there.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use kcli::{Failure, Output, Progress};
use kelf::{KernelBuild, Program};
use kplan::KeptBytes;

use crate::arguments::RankArguments;
use crate::cache::Cache;
use crate::config::{Closure, Config};
use crate::costs;
use crate::figures::{Figures, Memory};
use crate::inspect::{Inspection, Question, inspect};
use crate::kernel;
use crate::print;
use crate::ranking::{Difference, Estimate, Ranked, Ranking, Saved, Whole};
use crate::survey::Row;
use crate::tree::Tree;
use crate::trimmed::Trimmed;

/// A change of an option to be measured.
struct Candidate {
    name: String,
    value: String,
    with: Vec<String>,
    rebuilds: usize,
    estimate: Option<Estimate>,
}

impl Candidate {
    /// Returns the result without savings.
    fn ranked(&self, problem: Option<String>) -> Ranked {
        Ranked {
            name: self.name.clone(),
            value: self.value.clone(),
            with: self.with.clone(),
            rebuilds: self.rebuilds,
            seconds: 0,
            estimate: self.estimate.clone(),
            saved: None,
            problem,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// Bad input if a build cannot be read, or an option cannot be changed; a failed job if the build cannot be copied.
pub fn run(arguments: &RankArguments) -> Result<(), Failure> {
    let build = KernelBuild::find(&arguments.vmlinux).map_err(Failure::of)?;
    let tree = Tree::find(&build)?;
    let smaller = arguments.against.as_deref().map(|path| {
        let other = KernelBuild::find(path).map_err(Failure::of)?;
        check_same_source(&build, &other)?;
        Ok::<_, Failure>((Tree::find(&other)?.config, whole(&other, &contents(&other)?, arguments)?))
    });
    let smaller = smaller.transpose()?;
    let config = smaller.as_ref().map(|(config, _)| config);
    let (candidates, contents) = inspect(&build, &tree, &Question::default(), |found| {
        let candidates = match config {
            Some(config) => differing(&found, &tree, config)?,
            None => named(&found.rows, &arguments.options)?,
        };
        Ok((candidates, owned(found.measure.contents())))
    })?;
    let mut output = Output::create(&arguments.measured.output)?;
    // Options that are named are wanted.
    let limit = if arguments.options.is_empty() { arguments.max_rebuilds } else { usize::MAX };
    let (mut candidates, slow): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|candidate| candidate.rebuilds <= limit);
    candidates.sort_by_key(|candidate| candidate.rebuilds);
    let original = whole(&build, &contents, arguments)?;
    let bench = Bench { build: &build, tree: &tree, arguments, contents, original: &original.figures };
    let options = bench.measure_all(&candidates)?;
    let mut ranking = Ranking {
        kernel: kernel::release(&build),
        original,
        against: smaller.map(|(_, whole)| whole),
        options,
        not_measured: slow.into_iter().map(|slow| (slow.name, slow.rebuilds)).collect(),
    };
    ranking.sort();
    match arguments.measured.json {
        true => print::write(&ranking, &mut output)?,
        false => write!(output, "{}", ranking.table())?,
    }
    output.commit()?;
    ranking.notes().iter().for_each(|note| eprintln!("config-spec: {note}"));
    Ok(())
}

/// Checks that another kernel is of the same machine and release.
fn check_same_source(build: &KernelBuild, other: &KernelBuild) -> Result<(), Failure> {
    let identity = |build: &KernelBuild| format!("Linux {} for {}", kernel::release(build), build.machine);
    let (expected, found) = (identity(build), identity(other));
    if expected == found {
        return Ok(());
    }
    Err(Failure::bad_input(format!(
        "{}: is {found}; expected {expected}, as {}; build both from the same source",
        other.vmlinux.display(),
        build.vmlinux.display()
    )))
}

/// Returns the options with code or data, or the named ones.
fn named(rows: &[Row], names: &[String]) -> Result<Vec<Candidate>, Failure> {
    let of = |row: &Row| Candidate {
        name: row.name.clone(),
        value: "n".to_owned(),
        with: row.with.clone(),
        rebuilds: row.rebuilds.len(),
        estimate: Some(Estimate::of(row)),
    };
    if names.is_empty() {
        return Ok(rows.iter().filter(|row| row.brings_something()).map(of).collect());
    }
    let short = |name: &String| name.strip_prefix("CONFIG_").unwrap_or(name).to_owned();
    let wanted: BTreeSet<String> = names.iter().map(short).collect();
    let one = |name: &String| {
        rows.iter().find(|row| row.name == *name).map(of).ok_or_else(|| {
            Failure::bad_input(format!(
                "{name}: cannot be turned off in this configuration; expected an option that config-spec lists; \
                 config-spec --explain {name} says why"
            ))
        })
    };
    wanted.iter().map(one).collect()
}

/// Returns the options with a prompt that have another value in the smaller configuration. Texts do not count.
fn differing(found: &Inspection<'_>, tree: &Tree, smaller: &Config) -> Result<Vec<Candidate>, Failure> {
    let definitions = found.measure.facts.definitions;
    let mut candidates = Vec::new();
    for (name, value) in tree.config.changes(smaller) {
        let has_prompt = definitions.options.get(&name).is_some_and(|option| option.prompt.is_some());
        if !has_prompt || value.starts_with('"') || tree.config.value(&name).starts_with('"') {
            continue;
        }
        let row = found.rows.iter().find(|row| row.name == name && value.is_empty());
        let value = if value.is_empty() { "n".to_owned() } else { value };
        let changes = match (row, found.conf) {
            (Some(row), _) => row.changes.clone(),
            (None, Some(conf)) => conf.changes(&[(&name, &value)])?,
            (None, None) => Closure::new(),
        };
        // Kconfig keeps the value of an option that others select.
        if !changes.contains_key(&name) {
            continue;
        }
        let rebuilds =
            row.map_or_else(|| found.measure.rebuilds(&changes, &[]).len(), |row| row.rebuilds.len());
        let with = tree.config.turned_off(&changes, &name);
        candidates.push(Candidate { name, value, with, rebuilds, estimate: row.map(Estimate::of) });
    }
    Ok(candidates)
}

/// The kernel that changes are measured against.
struct Bench<'a> {
    build: &'a KernelBuild,
    tree: &'a Tree,
    arguments: &'a RankArguments,
    contents: BTreeMap<String, KeptBytes>,
    original: &'a Figures,
}

impl Bench<'_> {
    fn measure_all(&self, candidates: &[Candidate]) -> Result<Vec<Ranked>, Failure> {
        let progress = Progress::bar(candidates.len() as u64, "building");
        let vmlinux = kcli::read_input(&self.build.vmlinux)?;
        let measured = candidates.iter().map(|candidate| {
            progress.message(format!("building with {}={}", candidate.name, candidate.value));
            let cache = self.cache_of(candidate, &vmlinux);
            let ranked = match cache.as_ref().filter(|_| self.arguments.resume).and_then(Cache::load) {
                Some(ranked) => ranked,
                None => {
                    let ranked = self.rank(candidate)?;
                    cache.iter().for_each(|cache| cache.save(&ranked));
                    ranked
                }
            };
            progress.note(ranked.to_string());
            progress.advance(1);
            Ok(ranked)
        });
        measured.collect()
    }

    /// Returns the file for the result of one change.
    fn cache_of(&self, candidate: &Candidate, vmlinux: &[u8]) -> Option<Cache> {
        let RankArguments { make, measured, .. } = self.arguments;
        let estimate = serde_json::to_string(&candidate.estimate).ok()?;
        let change = format!("{}={} {}", candidate.name, candidate.value, candidate.with.join(" "));
        let memory = measured.memory.as_deref().unwrap_or_default();
        let texts = [&self.tree.text, &change, &estimate, memory, &make.join("\0")];
        let parts: Vec<&[u8]> =
            std::iter::once(vmlinux).chain(texts.into_iter().map(str::as_bytes)).collect();
        Cache::file("ranks", &parts)
    }

    /// Builds and measures the kernel with one change.
    fn rank(&self, candidate: &Candidate) -> Result<Ranked, Failure> {
        let trimmed = Trimmed::copy(self.build, self.tree, &self.arguments.make, &std::env::temp_dir())?;
        Ok(match self.measure(candidate, &trimmed) {
            Ok(ranked) => ranked,
            // A kernel that cannot be configured or read does not end the measurement of the others.
            Err(failure) => candidate.ranked(Some(failure.message().to_owned())),
        })
    }

    /// Builds the kernel with one change, in a copy of the build directory.
    fn measure(&self, candidate: &Candidate, trimmed: &Trimmed<'_>) -> Result<Ranked, Failure> {
        let Candidate { name, value, estimate, .. } = candidate;
        let start = std::time::Instant::now();
        let built = trimmed.build(&[(name, value)])?;
        let mut ranked = candidate.ranked(None);
        let is_set = built.config.value(name) == if value == "n" { "" } else { value };
        match built.failure {
            Some(failure) => ranked.problem = Some(failure.message().to_owned()),
            None if !is_set => ranked.problem = Some("Kconfig does not accept the value".to_owned()),
            None => {
                let without = KernelBuild::find(&trimmed.dir().join("vmlinux")).map_err(Failure::of)?;
                let contents = contents(&without)?;
                let mut figures = Figures::of(&without.dir)?;
                if let Some(command) = &self.arguments.measured.memory {
                    match Memory::measure(command, &without.dir) {
                        Ok(memory) => figures.memory = Some(memory),
                        Err(problem) => ranked.problem = Some(problem),
                    }
                }
                ranked.saved = Some(self.saved(&contents, &figures, estimate.as_ref()));
            }
        }
        ranked.seconds = start.elapsed().as_secs();
        Ok(ranked)
    }

    fn saved(
        &self,
        contents: &BTreeMap<String, KeptBytes>,
        now: &Figures,
        estimate: Option<&Estimate>,
    ) -> Saved {
        let expected = estimate.map(|estimate| estimate.objects.as_slice()).unwrap_or_default();
        let gone = self.contents.keys().filter(|object| !contents.contains_key(*object));
        let is_expected = |object: &&String| expected.contains(object);
        let memory = |figures: &Figures| figures.memory.map(|memory| memory.free);
        let is_there = |object: &&String| contents.contains_key(*object);
        Saved {
            contents: Difference::between(
                costs::total(self.contents.values()),
                costs::total(contents.values()),
            ),
            not_expected: gone.filter(|object| estimate.is_some() && !is_expected(object)).cloned().collect(),
            still_there: expected.iter().filter(is_there).cloned().collect(),
            vmlinux: self.original.vmlinux as i64 - now.vmlinux as i64,
            footprint: self.original.footprint as i64 - now.footprint as i64,
            boot_image: self
                .original
                .boot_image
                .zip(now.boot_image)
                .map(|(old, new)| old as i64 - new as i64),
            free: memory(self.original).zip(memory(now)).map(|(old, new)| new as i64 - old as i64),
        }
    }
}

/// Returns the figures of a build, with its memory if there is a command.
fn whole(
    build: &KernelBuild,
    contents: &BTreeMap<String, KeptBytes>,
    arguments: &RankArguments,
) -> Result<Whole, Failure> {
    let figures = Figures::with_memory(build, arguments.measured.memory.as_deref())?;
    Ok(Whole { contents: costs::total(contents.values()).total(), figures })
}

/// Returns the contents of the linked objects of a build, by name.
fn contents(build: &KernelBuild) -> Result<BTreeMap<String, KeptBytes>, Failure> {
    let files = kernel::read_objects(build)?;
    let program = Program::link(&files).map_err(Failure::of)?;
    Ok(owned(&costs::contents(&program)))
}

/// Returns contents that outlive the program.
fn owned(contents: &BTreeMap<&str, KeptBytes>) -> BTreeMap<String, KeptBytes> {
    contents.iter().map(|(&name, &bytes)| (name.to_owned(), bytes)).collect()
}
