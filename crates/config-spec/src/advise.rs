//! The advice: the section `config` of the plan, and the fragment of a configuration that follows it.

use std::fmt::Write as _;

use kcli::{Failure, human};
use kplan::{
    ConfigAdvice, Evidence, JointAdvice, KeptBytes, OptionAdvice, OptionValue, Plan, Tried, UseClass,
    ValueFacts, ValueLimit,
};

use crate::joint::Joint;
use crate::survey::{Handled, Measure, Row};
use crate::values::{Sizing, Smaller};

/// Maximum number of functions that the section names for an option.
const MAX_FUNCTIONS: usize = 8;

/// Returns the section for the options that may be turned off together, and for the smaller values.
pub fn section(
    measure: &Measure<'_>,
    joint: Joint<'_>,
    kernel: &str,
    build_id: Option<String>,
) -> ConfigAdvice {
    let mut options: Vec<OptionAdvice> = joint.rows.into_iter().filter_map(option).collect();
    options.extend(joint.values.into_iter().map(|(sizing, smaller)| value(measure, sizing, smaller)));
    let (effect, kept) = (Some(joint.effect), joint.kept);
    ConfigAdvice { kernel: kernel.to_owned(), build_id, options, joint: effect, kept }
}

/// Returns the effect of the options of a section together, for people.
pub fn summary(advice: &ConfigAdvice) -> Option<String> {
    let JointAdvice { with, keeps, after, rebuilds, .. } = advice.joint.as_ref()?;
    let (off, values): (Vec<_>, Vec<_>) =
        advice.options.iter().partition(|option| option.set == OptionValue::No);
    let mut text = String::new();
    if !off.is_empty() || values.is_empty() {
        let _ = write!(text, "{} options together keep {} bytes", off.len(), human(keeps.resident()));
        if keeps.init > 0 {
            let _ = write!(text, " and {} of init", human(keeps.init));
        }
        if let Some(after) = after {
            let _ = write!(text, ", {} after shrinking", human(after.resident()));
        }
        text += "; ";
    }
    if !values.is_empty() {
        let memory = values.iter().map(|option| option.memory).sum();
        let _ =
            write!(text, "the variables of {} hold {} bytes; ", smaller_values(values.len()), human(memory));
    }
    let _ = write!(text, "a build compiles {rebuilds} other objects again");
    if !with.is_empty() {
        let _ = write!(text, "; only together they turn off {}", with.join(", "));
    }
    Some(one_line(&text))
}

/// Returns the number of smaller values, with the noun.
pub fn smaller_values(count: usize) -> String {
    format!("{count} smaller {}", if count == 1 { "value" } else { "values" })
}

fn option(row: &Row) -> Option<OptionAdvice> {
    let evidence = match row.handlers {
        Handled::RuledOut => Evidence::TraceAndScan,
        Handled::No | Handled::Maybe => Evidence::Trace,
    };
    Some(OptionAdvice {
        name: row.name.clone(),
        set: OptionValue::No,
        class: *row.class.as_ref().ok()?,
        with: row.with.clone(),
        objects: row.objects.clone(),
        keeps: row.keeps,
        after: row.after,
        ran: row.ran.iter().take(MAX_FUNCTIONS).map(|function| function.name.to_string()).collect(),
        parameters: row.parameters.clone(),
        rebuilds: row.rebuilds.len() as u64,
        memory: 0,
        value: None,
        evidence,
        tried: None,
    })
}

fn value(measure: &Measure<'_>, sizing: &Sizing, smaller: &Smaller) -> OptionAdvice {
    let config = &measure.facts.tree.config;
    OptionAdvice {
        name: sizing.option.clone(),
        set: smaller.set.clone(),
        class: UseClass::Value,
        with: config.turned_off(&smaller.changes, &sizing.option),
        objects: Vec::new(),
        keeps: KeptBytes::default(),
        after: None,
        ran: Vec::new(),
        parameters: Vec::new(),
        rebuilds: measure.rebuilds(&smaller.changes, &[]).len() as u64,
        memory: sizing.holder.bytes,
        value: Some(ValueFacts {
            variable: sizing.holder.variable.clone(),
            built: sizing.built.clone(),
            limit: smaller.limit,
        }),
        evidence: Evidence::Census,
        tried: None,
    }
}

/// Returns the section of a plan as a fragment of `.config`. Each option has a line with the reason before it. Options
/// without which a test failed are left out.
///
/// # Errors
/// Bad input if the plan, read from `name`, has no such section.
pub fn fragment(plan: &Plan, name: &str) -> Result<String, Failure> {
    let advice = advice_of(plan, name)?;
    let kernel = one_line(&advice.kernel);
    let is_about_values = advice.options.iter().all(|option| option.class == UseClass::Value);
    let mut text = match is_about_values && !advice.options.is_empty() {
        true => format!("# Options of Linux {kernel} that set the size of a variable.\n"),
        false => format!("# Options of Linux {kernel} that the traced system does not use.\n"),
    };
    if let Some(summary) = summary(advice) {
        let _ = writeln!(text, "# {summary}.");
    }
    for option in advice.options.iter().filter(|option| option.tried != Some(Tried::Fails)) {
        let _ = writeln!(text, "# {}", reason(option));
        let name = one_line(&option.name);
        let _ = match &option.set {
            OptionValue::No => writeln!(text, "# CONFIG_{name} is not set"),
            OptionValue::Number(number) => writeln!(text, "CONFIG_{name}={number}"),
        };
    }
    Ok(text)
}

/// Returns the section of a plan that was read from `name`.
///
/// # Errors
/// Bad input if it has none.
pub fn advice_of<'p>(plan: &'p Plan, name: &str) -> Result<&'p ConfigAdvice, Failure> {
    plan.config.as_ref().ok_or_else(|| {
        Failure::bad_input(format!(
            "{name}: the plan has no section `config`; expected the output of `config-spec VMLINUX --advise`"
        ))
    })
}

/// Returns the text without characters that would begin another line of a configuration.
fn one_line(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// Returns why an option is proposed, in one line.
fn reason(option: &OptionAdvice) -> String {
    if let (Some(facts), OptionValue::Number(number)) = (&option.value, &option.set) {
        return one_line(&value_reason(option, facts, number));
    }
    let what = match option.class {
        UseClass::Idle => "idle: nothing of it ran".to_owned(),
        UseClass::InitOnly => format!("init-only: {}, and nothing afterwards", ran(&option.ran)),
        UseClass::HooksOnly => format!("hooks-only: {}, and no program calls it", ran(&option.ran)),
        UseClass::Used => format!("used: {}", ran(&option.ran)),
        UseClass::Value => "value".to_owned(),
    };
    let KeptBytes { init, .. } = option.keeps;
    let mut reason = format!("{what}; keeps {} bytes", human(option.keeps.resident()));
    if init > 0 {
        let _ = write!(reason, " and {} of init", human(init));
    }
    if !option.parameters.is_empty() {
        let _ = write!(
            reason,
            "; has the boot parameters {}, see cmdline-spec --recommend",
            option.parameters.join(", ")
        );
    }
    if !option.with.is_empty() {
        let _ = write!(reason, "; with {}", option.with.join(", "));
    }
    one_line(&reason)
}

/// Returns why a smaller value is proposed.
fn value_reason(option: &OptionAdvice, facts: &ValueFacts, number: &str) -> String {
    let ValueFacts { variable, built, limit } = facts;
    let limit = match limit {
        ValueLimit::Range => format!("the smallest value that Kconfig allows is {number}"),
        ValueLimit::Page => format!("{number} makes it one page, and Kconfig has no range"),
    };
    format!(
        "value: {variable} holds {} bytes, set by CONFIG_{}={built}; {limit}; less memory may cost speed or security, so \
         decide",
        human(option.memory),
        option.name
    )
}

/// Returns the names of functions that ran, the first two.
fn ran(functions: &[String]) -> String {
    match functions {
        [] => "nothing ran".to_owned(),
        [one] => format!("{one} ran"),
        [one, two] => format!("{one} and {two} ran"),
        [one, two, ..] => format!("{one}, {two} and others ran"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragment_states_a_reason_for_each_option() {
        let text = r#"{"schema": "kshrink/1", "config": {"kernel": "6.12.117", "options": [
            {"name": "PPS", "set": "n", "class": "init-only", "with": ["NTP_PPS"], "objects": ["drivers/pps/pps.o"],
             "keeps": {"text": 12345, "data": 60, "bss": 4, "init": 80}, "ran": ["pps_init"], "rebuilds": 0,
             "evidence": "trace"},
            {"name": "TIMERFD\nCONFIG_X=y", "set": "n", "class": "idle", "with": [], "objects": ["fs/timerfd.o"],
             "keeps": {"text": 10, "data": 0, "bss": 0, "init": 0}, "ran": [], "rebuilds": 0, "evidence": "trace"},
            {"name": "EPOLL", "set": "n", "class": "init-only", "with": [], "objects": ["fs/eventpoll.o"],
             "keeps": {"text": 9, "data": 0, "bss": 0, "init": 0}, "ran": [], "rebuilds": 0, "evidence": "trace",
             "tried": "fails"}],
            "joint": {"with": ["CRC"], "objects": ["lib/crc.o"],
                      "keeps": {"text": 12400, "data": 60, "bss": 4, "init": 80}, "rebuilds": 2}}}"#;
        let plan = Plan::parse(text, "p").unwrap();
        let expected = "# Options of Linux 6.12.117 that the traced system does not use.\n\
            # 3 options together keep 12,464 bytes and 80 of init; a build compiles 2 other objects again; only \
            together they turn off CRC.\n\
            # init-only: pps_init ran, and nothing afterwards; keeps 12,409 bytes and 80 of init; with NTP_PPS\n\
            # CONFIG_PPS is not set\n\
            # idle: nothing of it ran; keeps 10 bytes\n\
            # CONFIG_TIMERFDCONFIG_X=y is not set\n";
        assert_eq!(fragment(&plan, "p").unwrap(), expected);
        let failure = fragment(&Plan::default(), "p.json").unwrap_err();
        assert!(failure.exit_code() == 2 && failure.message().contains("p.json"));
    }
}
