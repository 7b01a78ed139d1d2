//! `config-spec try`: builds the kernel without the proposed options, tests it, and finds the options that must stay.
//!
//! A set of options that make the test fail is found by halving. One of the options stays then, and the others are tried
//! again.

use std::io::Write;
use std::path::Path;

use fixedbitset::FixedBitSet;
use kcli::search::{Verdict, smallest_failing};
use kcli::{Failure, Output, Progress, input_name, read_plan};
use kelf::KernelBuild;
use kplan::{ConfigAdvice, KeptOption, OptionAdvice, Tried};

use crate::advise;
use crate::arguments::TryArguments;
use crate::config::Config;
use crate::kernel;
use crate::tree::Tree;
use crate::trimmed::{PLAN, Trial, Trimmed};

/// Runs the command.
///
/// # Errors
/// Bad input if the plan is not about the build, or if the test fails without any change; a failed job if the kernel
/// cannot be built.
pub fn run(arguments: &TryArguments) -> Result<(), Failure> {
    let name = input_name(&arguments.plan);
    let mut plan = read_plan(&arguments.plan)?;
    let mut advice = advise::advice_of(&plan, &name)?.clone();
    let build = KernelBuild::find(&arguments.build.join("vmlinux")).map_err(Failure::of)?;
    let tree = Tree::find(&build)?;
    check(&advice, &name, &build, &tree)?;
    let trimmed = Trimmed::copy(&build, &tree, &arguments.make, &arguments.output)?;
    let mut tries = Tries::new(&trimmed, &arguments.test, &advice);
    let config = tries.run()?;
    let (trials, must_stay) = (tries.count, tries.must_stay);
    record(&mut advice, &must_stay, &config);
    let summary = summary(&advice, trials, &arguments.output);
    plan.config = Some(advice);
    trimmed.keep(&plan, &arguments.output)?;
    let mut output = Output::stdout();
    output.write_all(summary.as_bytes())?;
    Ok(output.commit()?)
}

/// Checks that a section is about a build, and that it proposes something.
fn check(advice: &ConfigAdvice, name: &str, build: &KernelBuild, tree: &Tree) -> Result<(), Failure> {
    let built = kernel::build_id(build)?;
    if let (Some(expected), Some(found)) = (&built, &advice.build_id)
        && expected != found
    {
        return Err(Failure::bad_input(format!(
            "{name}: the advice is for another kernel, with build ID {found}; expected build ID {expected}, of {}; run \
             config-spec --advise on this one",
            build.vmlinux.display()
        )));
    }
    if let Some(option) = advice.options.iter().find(|option| !tree.config.is_enabled(&option.name)) {
        return Err(Failure::bad_input(format!(
            "{name}: proposes to turn off {}, which is not y in {}; expected advice for this configuration; run \
             config-spec --advise on this build",
            option.name.escape_default(),
            tree.build.join(".config").display()
        )));
    }
    if advice.options.is_empty() {
        return Err(Failure::bad_input(format!(
            "{name}: proposes no option, so there is nothing to try; expected a section `config` with options"
        )));
    }
    Ok(())
}

/// Builds and tests kernels without options.
struct Tries<'a> {
    trimmed: &'a Trimmed<'a>,
    test: &'a str,
    options: &'a [OptionAdvice],
    /// Options without which the test fails, by number.
    must_stay: FixedBitSet,
    /// Number of tests.
    count: usize,
    progress: Progress,
}

impl<'a> Tries<'a> {
    fn new(trimmed: &'a Trimmed<'a>, test: &'a str, advice: &'a ConfigAdvice) -> Tries<'a> {
        let must_stay = FixedBitSet::with_capacity(advice.options.len());
        let progress = Progress::spinner("building");
        Tries { trimmed, test, options: &advice.options, must_stay, count: 0, progress }
    }

    /// Tries until the test passes. Returns the configuration of the last kernel, with which it does.
    fn run(&mut self) -> Result<Config, Failure> {
        let mut is_checked = false;
        loop {
            let rest: Vec<usize> =
                (0..self.options.len()).filter(|&option| !self.must_stay.contains(option)).collect();
            let off = rest.iter().copied().collect();
            let trial = self.trial(&off)?;
            match trial.verdict {
                Verdict::Good => return Ok(trial.config),
                Verdict::Untestable => {
                    return Err(Failure::bad_input(format!(
                        "--test: the test cannot run on the kernel without {} options (exit status 125); expected exit \
                         status 0 or another one{}",
                        rest.len(),
                        trial.failure
                    )));
                }
                Verdict::Bad => {}
            }
            if !is_checked {
                let original = if rest.is_empty() { trial } else { self.trial(&FixedBitSet::new())? };
                if original.verdict != Verdict::Good {
                    return Err(Failure::bad_input(format!(
                        "--test: the test fails on a kernel with all options, too, so none of them is at fault; \
                         expected a command that succeeds with the build directory as $1, and make's variables of the \
                         build as --make{}",
                        original.failure
                    )));
                }
                is_checked = true;
            }
            self.search(&rest)?;
        }
    }

    /// Finds options without which the test fails, and keeps one.
    fn search(&mut self, rest: &[usize]) -> Result<(), Failure> {
        let options = self.options;
        let off = |set: &FixedBitSet| -> FixedBitSet { set.ones().map(|number| rest[number]).collect() };
        let found = smallest_failing(
            rest.len(),
            |set| with_others(options, rest, set),
            |set| Ok::<_, Failure>(self.trial(&off(set))?.verdict),
        )?;
        // Several that only together make the test fail: one has to stay, the one that keeps the fewest bytes.
        let cannot_be_separated = found.iter().find(|alternatives| alternatives.len() > 1);
        let cheapest = found.iter().flatten().min_by_key(|&&number| options[rest[number]].keeps.resident());
        let stay: Vec<usize> = match cannot_be_separated {
            Some(alternatives) => alternatives.iter().map(|&number| rest[number]).collect(),
            None => cheapest.iter().map(|&&number| rest[number]).collect(),
        };
        if stay.is_empty() {
            return Err(Failure::job(
                "the test fails without reason: no option that makes it fail was found",
            ));
        }
        for &number in rest {
            let off =
                with_others(options, rest, &[rest.iter().position(|&other| other == number).unwrap_or(0)]);
            if off.ones().any(|position| stay.contains(&rest[position])) {
                self.must_stay.grow_and_insert(number);
                self.progress.note(format!("{} stays", options[number].name));
            }
        }
        Ok(())
    }

    /// Builds and tests a kernel without options.
    fn trial(&mut self, off: &FixedBitSet) -> Result<Trial, Failure> {
        self.count += 1;
        let names: Vec<&str> = off.ones().map(|number| self.options[number].name.as_str()).collect();
        self.progress.message(format!("test {}, without {} options", self.count, names.len()));
        let trial = self.trimmed.trial(&names, self.test)?;
        self.progress.note(format!(
            "test {}: {:?} without {}",
            self.count,
            trial.verdict,
            if names.is_empty() { "changes".to_owned() } else { names.join(", ") }
        ));
        Ok(trial)
    }
}

/// Adds to a set of positions in `rest` those of options that go with the options of the set.
fn with_others(options: &[OptionAdvice], rest: &[usize], set: &[usize]) -> FixedBitSet {
    let goes = |position: usize| {
        set.iter().any(|&of| position == of || options[rest[of]].with.contains(&options[rest[position]].name))
    };
    (0..rest.len()).filter(|&position| goes(position)).collect()
}

/// Records the results in a section. Options that Kconfig turned on again were not tried.
fn record(advice: &mut ConfigAdvice, must_stay: &FixedBitSet, config: &Config) {
    for (number, option) in advice.options.iter_mut().enumerate() {
        option.tried = match must_stay.contains(number) {
            true => Some(Tried::Fails),
            false => config.value(&option.name).is_empty().then_some(Tried::Passes),
        };
    }
    let (tried, on): (Vec<_>, Vec<_>) =
        std::mem::take(&mut advice.options).into_iter().partition(|option| option.tried.is_some());
    advice.options = tried;
    advice.kept.extend(
        on.into_iter()
            .map(|option| KeptOption { name: option.name, reason: "Kconfig turns it on again".to_owned() }),
    );
    if must_stay.count_ones(..) > 0 {
        // It was measured with these options off.
        advice.joint = None;
    }
}

/// Returns the results, for people.
fn summary(advice: &ConfigAdvice, trials: usize, out: &Path) -> String {
    let with = |tried: Tried| advice.options.iter().filter(move |option| option.tried == Some(tried));
    let tests = if trials == 1 { "test" } else { "tests" };
    let mut text = format!(
        "{}: the test passes without {} options ({trials} {tests}); {}: the plan\n",
        out.display(),
        with(Tried::Passes).count(),
        out.join(PLAN).display()
    );
    for option in with(Tried::Fails) {
        text += &format!("{} stays: the test fails without it\n", option.name);
    }
    for kept in &advice.kept {
        text += &format!("{} stays: {}\n", kept.name, kept.reason);
    }
    text
}
