//! The advice: the section `config` of the plan, and the fragment of a configuration that follows it.

use std::fmt::Write as _;

use kcli::{Failure, human};
use kplan::{ConfigAdvice, Evidence, KeptBytes, OptionAdvice, OptionValue, Plan, UseClass};

use crate::survey::{Handled, Row};

/// Maximum number of functions that the section names for an option.
const MAX_FUNCTIONS: usize = 8;

/// Returns the section for the rows that may be turned off.
pub fn section(rows: &[Row], kernel: &str, build_id: Option<String>) -> ConfigAdvice {
    let options = rows.iter().filter(|row| row.advice().is_ok()).filter_map(option).collect();
    ConfigAdvice { kernel: kernel.to_owned(), build_id, options }
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
        rebuilds: row.rebuilds.len() as u64,
        evidence,
    })
}

/// Returns the section of a plan as a fragment of `.config`. Each option has a line with the reason before it.
///
/// # Errors
/// Bad input if the plan, read from `name`, has no such section.
pub fn fragment(plan: &Plan, name: &str) -> Result<String, Failure> {
    let Some(advice) = &plan.config else {
        return Err(Failure::bad_input(format!(
            "{name}: the plan has no section `config`; expected the output of `config-spec VMLINUX --advise`"
        )));
    };
    let mut text =
        format!("# Options of Linux {} that the traced system does not use.\n", one_line(&advice.kernel));
    for option in &advice.options {
        let _ = writeln!(text, "# {}", reason(option));
        let _ = writeln!(text, "# CONFIG_{} is not set", one_line(&option.name));
    }
    Ok(text)
}

/// Returns the text without characters that would begin another line of a configuration.
fn one_line(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// Returns why an option is proposed, in one line.
fn reason(option: &OptionAdvice) -> String {
    let what = match option.class {
        UseClass::Idle => "idle: nothing of it ran".to_owned(),
        UseClass::InitOnly => format!("init-only: {}, and nothing afterwards", ran(&option.ran)),
        UseClass::HooksOnly => format!("hooks-only: {}, and no program calls it", ran(&option.ran)),
        UseClass::Used => format!("used: {}", ran(&option.ran)),
    };
    let KeptBytes { init, .. } = option.keeps;
    let mut reason = format!("{what}; keeps {} bytes", human(option.keeps.resident()));
    if init > 0 {
        let _ = write!(reason, " and {} of init", human(init));
    }
    if !option.with.is_empty() {
        let _ = write!(reason, "; with {}", option.with.join(", "));
    }
    one_line(&reason)
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
             "keeps": {"text": 10, "data": 0, "bss": 0, "init": 0}, "ran": [], "rebuilds": 0, "evidence": "trace"}]}}"#;
        let plan = Plan::parse(text, "p").unwrap();
        let expected = "# Options of Linux 6.12.117 that the traced system does not use.\n\
            # init-only: pps_init ran, and nothing afterwards; keeps 12,409 bytes and 80 of init; with NTP_PPS\n\
            # CONFIG_PPS is not set\n\
            # idle: nothing of it ran; keeps 10 bytes\n\
            # CONFIG_TIMERFDCONFIG_X=y is not set\n";
        assert_eq!(fragment(&plan, "p").unwrap(), expected);
        let failure = fragment(&Plan::default(), "p.json").unwrap_err();
        assert!(failure.exit_code() == 2 && failure.message().contains("p.json"));
    }
}
