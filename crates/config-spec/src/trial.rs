//! `config-spec try`: builds the kernel with the proposed changes, tests it, and finds the options that must stay as they
//! are.
//!
//! A set of options that make the test fail is found by halving. One of the options stays then, and the others are tried
//! again.

use std::io::Write;
use std::path::Path;

use fixedbitset::FixedBitSet;
use kcli::search::{Verdict, smallest_failing};
use kcli::{Failure, Output, Progress, input_name, read_plan};
use kelf::KernelBuild;
use kplan::{ConfigAdvice, KeptOption, OptionAdvice, OptionValue, Tried};

use crate::advise;
use crate::arguments::TryArguments;
use crate::config::{Change, Config};
use crate::expression;
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
    let trimmed = Trimmed::copy_to(&build, &tree, &arguments.make, &arguments.output)?;
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
    for option in &advice.options {
        let built = tree.config.value(&option.name);
        let (change, is_possible) = match &option.set {
            OptionValue::No => ("turn off".to_owned(), built == "y"),
            OptionValue::Number(number) => (format!("set {number} as"), expression::number(built).is_some()),
        };
        if !is_possible {
            return Err(Failure::bad_input(format!(
                "{name}: proposes to {change} {}, which is {} in {}; expected advice for this configuration; run \
                 config-spec --advise on this build",
                option.name.escape_default(),
                if built.is_empty() { "not set" } else { built },
                tree.build.join(".config").display()
            )));
        }
    }
    if advice.options.is_empty() {
        return Err(Failure::bad_input(format!(
            "{name}: proposes no option, so there is nothing to try; expected a section `config` with options"
        )));
    }
    Ok(())
}

/// Builds and tests kernels with proposed changes.
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
        // If several options make the test fail only together, the option that keeps the fewest bytes stays.
        let cannot_be_separated = found.iter().find(|alternatives| alternatives.len() > 1);
        let bytes = |option: &OptionAdvice| option.keeps.resident() + option.memory;
        let cheapest = found.iter().flatten().min_by_key(|&&number| bytes(&options[rest[number]]));
        let stay: Vec<usize> = match cannot_be_separated {
            Some(alternatives) => alternatives.iter().map(|&number| rest[number]).collect(),
            None => cheapest.iter().map(|&&number| rest[number]).collect(),
        };
        if stay.is_empty() {
            return Err(Failure::job(
                "the test fails without reason: no option that makes it fail was found",
            ));
        }
        for (position, &number) in rest.iter().enumerate() {
            let off = with_others(options, rest, &[position]);
            if off.ones().any(|position| stay.contains(&rest[position])) {
                self.must_stay.grow_and_insert(number);
                self.progress.note(format!("{} stays", options[number].name));
            }
        }
        Ok(())
    }

    /// Builds and tests a kernel with some of the changes.
    fn trial(&mut self, set: &FixedBitSet) -> Result<Trial, Failure> {
        self.count += 1;
        let options = self.options;
        let changes: Vec<Change<'_>> =
            set.ones().map(|number| (options[number].name.as_str(), options[number].set.as_str())).collect();
        self.progress.message(format!("test {}, with {} changes", self.count, changes.len()));
        let trial = self.trimmed.trial(&changes, self.test)?;
        let shown: Vec<String> = changes.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        self.progress.note(format!(
            "test {}: {:?} with {}",
            self.count,
            trial.verdict,
            if shown.is_empty() { "no change".to_owned() } else { shown.join(", ") }
        ));
        Ok(trial)
    }
}

/// Returns a set of positions in `rest`, with the positions of the options that Kconfig turns off with them.
fn with_others(options: &[OptionAdvice], rest: &[usize], set: &[usize]) -> FixedBitSet {
    let goes = |position: usize| {
        set.iter().any(|&of| position == of || options[rest[of]].with.contains(&options[rest[position]].name))
    };
    (0..rest.len()).filter(|&position| goes(position)).collect()
}

/// Records the results in a section. Options to which Kconfig gave another value were not tried.
fn record(advice: &mut ConfigAdvice, must_stay: &FixedBitSet, config: &Config) {
    for (number, option) in advice.options.iter_mut().enumerate() {
        let value = config.value(&option.name);
        let is_as_proposed = match &option.set {
            OptionValue::No => value.is_empty(),
            OptionValue::Number(number) => value == number,
        };
        option.tried = match must_stay.contains(number) {
            true => Some(Tried::Fails),
            false => is_as_proposed.then_some(Tried::Passes),
        };
    }
    let (tried, other): (Vec<_>, Vec<_>) =
        std::mem::take(&mut advice.options).into_iter().partition(|option| option.tried.is_some());
    advice.options = tried;
    advice.kept.extend(other.into_iter().map(|option| {
        let reason = match (&option.set, config.value(&option.name)) {
            (OptionValue::No, _) => "Kconfig turns it on again".to_owned(),
            (OptionValue::Number(_), "") => "Kconfig removes it with the other options".to_owned(),
            (OptionValue::Number(number), value) => format!("Kconfig makes {value} of {number}"),
        };
        KeptOption { name: option.name, reason }
    }));
    if must_stay.count_ones(..) > 0 {
        // It was measured with these options off.
        advice.joint = None;
    }
}

/// Returns the results, for people.
fn summary(advice: &ConfigAdvice, trials: usize, out: &Path) -> String {
    let with = |tried: Tried| advice.options.iter().filter(move |option| option.tried == Some(tried));
    let (off, values): (Vec<_>, Vec<_>) =
        with(Tried::Passes).partition(|option| option.set == OptionValue::No);
    let values = match values.len() {
        0 => String::new(),
        count => format!(", and with {}", advise::smaller_values(count)),
    };
    let tests = if trials == 1 { "test" } else { "tests" };
    let mut text = format!(
        "{}: the test passes without {} options{values} ({trials} {tests}); {}: the plan\n",
        out.display(),
        off.len(),
        out.join(PLAN).display()
    );
    for option in with(Tried::Fails) {
        text += &match &option.set {
            OptionValue::No => format!("{} stays: the test fails without it\n", option.name),
            OptionValue::Number(number) => {
                format!("{} stays: the test fails with the value {number}\n", option.name)
            }
        };
    }
    for kept in &advice.kept {
        text += &format!("{} stays: {}\n", kept.name, kept.reason);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_depend_on_the_value_that_kconfig_made() {
        let option = |name: &str, set: &str| {
            format!(
                r#"{{"name": "{name}", "set": "{set}", "class": "value", "with": [], "objects": [],
                "keeps": {{"text": 0, "data": 0, "bss": 0, "init": 0}}, "ran": [], "rebuilds": 0, "evidence": "census"}}"#
            )
        };
        let options =
            [("TAKEN", "8"), ("CLAMPED", "2"), ("GONE", "2"), ("FAILS", "3"), ("OFF", "n"), ("ON", "n")];
        let options = options.map(|(name, set)| option(name, set)).join(",");
        let text = format!(r#"{{"kernel": "6.12.117", "options": [{options}]}}"#);
        let mut advice: ConfigAdvice = serde_json::from_str(&text).unwrap();
        let config = Config::parse("CONFIG_TAKEN=8\nCONFIG_CLAMPED=5\nCONFIG_FAILS=16\nCONFIG_ON=y\n");
        let mut must_stay = FixedBitSet::with_capacity(6);
        must_stay.insert(3);
        record(&mut advice, &must_stay, &config);
        let verdicts: Vec<_> =
            advice.options.iter().map(|option| (option.name.as_str(), option.tried)).collect();
        let (passes, fails) = (Some(Tried::Passes), Some(Tried::Fails));
        assert_eq!(verdicts, [("TAKEN", passes), ("FAILS", fails), ("OFF", passes)]);
        let kept: Vec<_> =
            advice.kept.iter().map(|kept| (kept.name.as_str(), kept.reason.as_str())).collect();
        let expected = [
            ("CLAMPED", "Kconfig makes 5 of 2"),
            ("GONE", "Kconfig removes it with the other options"),
            ("ON", "Kconfig turns it on again"),
        ];
        assert_eq!(kept, expected);
        let text = summary(&advice, 2, Path::new("out"));
        assert!(text.contains("without 1 options, and with 1 smaller value (2 tests)"), "{text}");
        assert!(text.contains("FAILS stays: the test fails with the value 3\n"), "{text}");
    }
}
