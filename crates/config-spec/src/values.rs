//! The numbers among the options that set the size of a variable, and smaller values of them.
//!
//! The variables come from a census ([`crate::holders`]), and the link of a variable with an option from the source file
//! that defines the variable ([`crate::source`]). The kernel's own Kconfig has to accept the smaller value.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use census::document::Document;
use kcli::Failure;
use kplan::{OptionValue, ValueLimit};

use crate::conf::Conf;
use crate::config::Closure;
use crate::expression::{Values, number};
use crate::holders::{self, Holder, PAGE};
use crate::kconfig::{Definition, Kind};
use crate::source::{Place, Source, Text};
use crate::survey::Facts;

/// An option that sets the size of a variable.
#[derive(Clone, Debug)]
pub struct Sizing {
    /// The option.
    pub option: String,
    /// Its value in the kernel as built.
    pub built: String,
    /// The variable; of several, the one that holds most.
    pub holder: Holder,
    /// The smaller value, or the reason why there is none, for people.
    pub smaller: Result<Smaller, String>,
}

/// A smaller value that Kconfig accepts.
#[derive(Clone, Debug)]
pub struct Smaller {
    /// The value.
    pub set: OptionValue,
    /// The reason why it is not smaller.
    pub limit: ValueLimit,
    /// The changes of the configuration with it, by option.
    pub changes: Closure,
}

/// Returns the options that set the size of a variable of the census or of the kernel image, those first whose variable
/// holds most. Without `conf`, no value is checked.
///
/// # Errors
/// The errors of Kconfig.
pub fn find(facts: &Facts<'_>, conf: Option<&Conf<'_>>, census: &Document) -> Result<Vec<Sizing>, Failure> {
    let mut texts: BTreeMap<String, Text> = BTreeMap::new();
    let holders = holders::find(census, facts.kernel.program);
    for holder in &holders {
        if !texts.contains_key(&holder.source) {
            let bytes = fs::read(facts.tree.build.join(Path::new(&holder.source))).unwrap_or_default();
            texts.insert(holder.source.clone(), Text::new(&String::from_utf8_lossy(&bytes)));
        }
    }
    let sources: BTreeMap<&str, Source<'_>> =
        texts.iter().map(|(path, text)| (path.as_str(), Source::parse(text))).collect();
    let mut found: Vec<Sizing> = Vec::new();
    for holder in &holders {
        let Some(source) = sources.get(holder.source.as_str()) else { continue };
        let Some(option) = option_of(facts, source, holder) else { continue };
        if found.iter().any(|sizing| sizing.option == option) {
            continue;
        }
        let built = facts.tree.config.value(option).to_owned();
        let definition = &facts.definitions.options[option];
        let values = Values { config: &facts.tree.config, definitions: facts.definitions };
        let lower = lower(definition, values, &built, holder, source.is_exponent(option));
        let smaller = match (lower, conf) {
            (Ok((set, limit)), Some(conf)) => checked(option, set, limit, conf)?,
            (Ok(_), None) => Err("Kconfig was not asked whether it accepts a smaller value".to_owned()),
            (Err(why), _) => Err(why),
        };
        found.push(Sizing { option: option.to_owned(), built, holder: holder.clone(), smaller });
    }
    Ok(found)
}

/// Returns the one numeric option that sets the size of what a variable holds. If memory is allocated, a value may reach
/// the call through other functions, so the file must mention no other number.
fn option_of<'s>(facts: &Facts<'_>, source: &Source<'s>, holder: &Holder) -> Option<&'s str> {
    let is_number = |option: &&str| {
        let definition = facts.definitions.options.get(*option);
        definition.is_some_and(Definition::is_number) && !facts.tree.config.value(option).is_empty()
    };
    let numbers: Vec<&str> = source.mentioned().filter(is_number).collect();
    let mut linked = numbers.iter().filter(|option| source.sets_size(option, &holder.variable, holder.place));
    let option = linked.next()?;
    let is_only = linked.next().is_none() && (holder.place == Place::Image || numbers.len() == 1);
    is_only.then_some(*option)
}

/// Returns the value to propose, and its limit: the smallest value of the range. Without a range, the exponent of a power
/// of two is lowered until the variable needs one page.
///
/// # Errors
/// The reason why there is no smaller value, for people.
fn lower(
    definition: &Definition,
    values: Values<'_>,
    built: &str,
    holder: &Holder,
    is_exponent: bool,
) -> Result<(String, ValueLimit), String> {
    if definition.prompt.is_none() {
        return Err("it has no prompt, so nobody can set it".to_owned());
    }
    let present = number(built).ok_or_else(|| format!("its value {built} is no number"))?;
    let (low, limit) = match definition.range(values)? {
        Some(range) => (range.low, ValueLimit::Range),
        None if is_exponent && definition.kind == Some(Kind::Int) => {
            let elements = u32::try_from(present).ok().and_then(|exponent| 1_u64.checked_shl(exponent));
            if elements.is_none_or(|elements| elements > holder.bytes) {
                return Err(format!("{} holds less than 2^{present} bytes", holder.variable));
            }
            let halvings = holder.bytes.div_ceil(PAGE).next_power_of_two().ilog2();
            ((present - i64::from(halvings)).max(0).to_string(), ValueLimit::Page)
        }
        None => return Err("it has no range, and is no exponent of a power of two".to_owned()),
    };
    match number(&low) {
        Some(low) if low >= present => Err(match limit {
            ValueLimit::Range => format!("{built} is the smallest value that Kconfig allows"),
            ValueLimit::Page => format!("{} needs one page", holder.variable),
        }),
        _ => Ok((low, limit)),
    }
}

/// Asks Kconfig whether it accepts a value.
fn checked(
    option: &str,
    set: String,
    limit: ValueLimit,
    conf: &Conf<'_>,
) -> Result<Result<Smaller, String>, Failure> {
    let changes = conf.changes(&[(option, &set)])?;
    Ok(match changes.get(option) {
        Some(new) if *new == set => Ok(Smaller { set: OptionValue::Number(set), limit, changes }),
        Some(new) => Err(format!("Kconfig makes {new} of {set}")),
        None => Err(format!("Kconfig does not accept {set}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::kconfig::{Definitions, Range};

    #[test]
    fn lower_value_is_limited_by_range_or_page() {
        let (config, definitions) = (Config::default(), Definitions::default());
        let values = Values { config: &config, definitions: &definitions };
        let value = |range: Option<&str>, built: &str, bytes: u64, is_exponent: bool| {
            let range = range.map(|low| Range { low: low.into(), high: "24".into(), condition: None });
            let definition = Definition {
                kind: Some(Kind::Int),
                prompt: Some("Order".into()),
                ranges: range.into_iter().collect(),
                ..Definition::default()
            };
            let holder =
                Holder { variable: "table".into(), bytes, place: Place::Allocated, source: "table.c".into() };
            lower(&definition, values, built, &holder, is_exponent)
        };
        let is = |set: &str, limit| Ok((set.to_owned(), limit));
        assert_eq!(value(Some("8"), "16", 1 << 18, true), is("8", ValueLimit::Range));
        assert_eq!(value(None, "16", 1 << 18, true), is("10", ValueLimit::Page));
        // 12 bytes an element, in a block of 16 KiB.
        assert_eq!(value(None, "10", 12 << 10, true), is("8", ValueLimit::Page));
        assert_eq!(value(None, "1", 1 << 18, true), is("0", ValueLimit::Page));
        for (range, built, bytes, is_exponent) in [
            (Some("16"), "16", 1 << 18, true),
            (Some("LOWEST"), "16", 1 << 18, true),
            (None, "10", PAGE, true),
            (None, "20", 1 << 18, true),
            (None, "64", 1 << 18, true),
            (None, "16", 1 << 18, false),
            (Some("8"), "", 1 << 18, true),
        ] {
            assert!(value(range, built, bytes, is_exponent).is_err(), "{range:?} {built} {bytes}");
        }
        let hidden = Definition { kind: Some(Kind::Int), ..Definition::default() };
        let holder =
            Holder { variable: "t".into(), bytes: 1 << 18, place: Place::Image, source: String::new() };
        assert!(lower(&hidden, values, "16", &holder, true).is_err());
    }
}
