//! The members that have to stay as they are.

use std::collections::BTreeMap;

use super::accessors::Compressed;
use super::rewrite::{Name, Rewritten};
use crate::document::{Fields, Scheme, Value};
use crate::scan::{Facts, MemberKind, WholeForm};

/// Number of places that a reason names.
const PLACES: usize = 3;

/// Excludes members that cannot have another form by their declaration, or by a use of the whole structure.
pub fn by_declaration(
    fields: &Fields,
    facts: &Facts,
    harmless: &[String],
    excluded: &mut BTreeMap<Name, String>,
) {
    for of in &fields.types {
        let is_of_order = |form| matches!(form, WholeForm::Positional | WholeForm::Distance);
        let whole = whole_uses(&of.name, facts, harmless, |form| !is_of_order(form));
        let positional = whole_uses(&of.name, facts, harmless, |form| form == WholeForm::Positional);
        let order = whole_uses(&of.name, facts, harmless, is_of_order);
        if let Some(reason) = &order
            && !of.order.is_empty()
        {
            excluded.entry((of.name.clone(), String::new())).or_insert_with(|| reason.clone());
        }
        for member in &of.members {
            let name = (of.name.clone(), member.name.clone());
            let declared =
                facts.members.iter().find(|found| found.of == of.name && found.name == member.name);
            let reason = match declared {
                None => Some("it is not declared in the builds".to_owned()),
                Some(declared) => match &declared.kind {
                    MemberKind::Other(reason) => Some(reason.clone()),
                    _ if declared.is_volatile => Some("it is volatile".to_owned()),
                    _ => match &member.scheme {
                        Scheme::Absent { .. } => positional.clone(),
                        _ => positional.clone().or_else(|| whole.clone()),
                    },
                },
            };
            if let Some(reason) = reason {
                excluded.entry(name).or_insert(reason);
            }
        }
    }
}

/// Returns the reason for all members of a structure whose whole objects are used in some form.
fn whole_uses(
    of: &str,
    facts: &Facts,
    harmless: &[String],
    is_wanted: impl Fn(WholeForm) -> bool,
) -> Option<String> {
    let found = facts.wholes.iter().filter(|whole| whole.of == of && is_wanted(whole.form));
    let found = found.filter(|whole| !harmless.contains(&format!("{}:{}", whole.file, whole.line)));
    let reasons: Vec<String> = found
        .map(|whole| {
            let reason = match whole.form {
                WholeForm::Copy => "the whole structure is copied".to_owned(),
                WholeForm::Bytes => format!("{} uses the bytes of the structure", whole.by),
                WholeForm::Local => format!("the variable {} on the stack has the structure", whole.by),
                WholeForm::Positional => "the structure is initialized without names".to_owned(),
                WholeForm::Distance => "a distance within the structure is computed".to_owned(),
                WholeForm::Cast => format!("a pointer to the structure becomes one to {}", whole.by),
            };
            format!("{reason} ({}:{})", whole.file, whole.line)
        })
        .collect();
    (!reasons.is_empty()).then(|| join(&reasons))
}

/// Excludes absent members that some code gives another value.
pub fn by_stores(compressed: &[Compressed], rewritten: &Rewritten, excluded: &mut BTreeMap<Name, String>) {
    for member in compressed {
        let Scheme::Absent { value } = &member.scheme else { continue };
        let name = (member.of.clone(), member.name.clone());
        let field = (member.of.clone(), member.field.clone());
        let stores = rewritten.stored.get(&name).into_iter().flatten();
        let others: Vec<String> = stores
            .filter(|(text, _)| !is_constant(text, value))
            .map(|(text, place)| format!("{text:?} is stored ({place})"))
            .collect();
        if !others.is_empty() {
            excluded.entry(field).or_insert_with(|| join(&others));
        }
    }
}

/// Whether an expression is a constant with a value.
fn is_constant(text: &str, value: &Value) -> bool {
    let plain = text.trim();
    let is_number = plain.starts_with(|letter: char| letter.is_ascii_digit());
    let plain = if is_number { plain.trim_end_matches(['u', 'U', 'l', 'L']) } else { plain };
    let number = match plain {
        "NULL" | "false" => Some(0),
        "true" => Some(1),
        _ => match plain.strip_prefix("0x") {
            Some(digits) => i128::from_str_radix(digits, 16).ok(),
            None => plain.parse::<i128>().ok(),
        },
    };
    number.is_some_and(|number| *value == Value::Number(number))
}

/// Joins reasons; only some of many places are named.
pub fn join(reasons: &[String]) -> String {
    let mut reasons = reasons.to_vec();
    reasons.dedup();
    let mut text = reasons.iter().take(PLACES).cloned().collect::<Vec<_>>().join("; ");
    if reasons.len() > PLACES {
        text += &format!("; and {} more", reasons.len() - PLACES);
    }
    text
}
