//! `--html`: the survey as one page for a browser.
//!
//! The page shows the document of `--json` unchanged, with the sizes of all objects, the facts of `--explain` for each
//! option, and the advice. Its script computes the sums, so that the page cannot contradict the document.

use indexmap::IndexSet;
use kcli::Failure;
use khtml::Explorer;
use kplan::{ConfigAdvice, KeptBytes, OptionValue};
use serde_json::{Value, json};

use crate::explain::{self, Explanation};
use crate::survey::{Measure, Row};
use crate::values::Sizing;
use crate::{advise, costs};

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = concat!(
    include_str!("html/model.js"),
    include_str!("html/panel.js"),
    include_str!("html/tables.js"),
    include_str!("html/page.js")
);

/// The contents of the page.
pub struct Survey<'a> {
    /// The path of the kernel.
    pub vmlinux: &'a str,
    /// The document of `--json`.
    pub document: &'a Value,
    /// The measurements.
    pub measure: &'a Measure<'a>,
    /// The rows, in the order of the document.
    pub rows: &'a [Row],
    /// The options that set the size of a variable, if there is a census.
    pub sizings: Option<&'a [Sizing]>,
    /// The options that are proposed together, if there is evidence to propose any.
    pub advice: Option<&'a ConfigAdvice>,
}

/// The texts of lists, each once; lists have their numbers.
type Texts = IndexSet<String>;

/// Returns the page.
///
/// # Errors
/// If a part cannot be written as JSON.
pub fn page(survey: &Survey<'_>) -> Result<String, Failure> {
    let facts = survey.measure.facts;
    let mut texts = Texts::new();
    let options: Vec<Value> = survey.rows.iter().map(|row| option(survey, row, &mut texts)).collect();
    let numbers: Vec<Value> = survey
        .sizings
        .unwrap_or_default()
        .iter()
        .filter_map(|sizing| {
            let explanation = explain::number(&sizing.option, facts, survey.sizings)?;
            Some(number(sizing, &explanation, &mut texts))
        })
        .collect();
    let objects = survey.measure.contents().iter().map(|(&object, &contents)| {
        let gates = facts.gates.of(object).iter().map(|gate| gate.condition.to_string());
        json!([object, bytes(contents), gates.collect::<Vec<_>>()])
    });
    let known = survey.measure.known(survey.rows);
    let details = json!({
        "vmlinux": survey.vmlinux,
        "objects": objects.collect::<Vec<_>>(),
        "options": options,
        "numbers": numbers,
        "known": { "all": bytes(known.all), "objects": bytes(known.objects), "parts": bytes(known.parts) },
        "advice": survey.advice.map(advice),
        "texts": texts,
    });
    let (document, details) = (serde_json::to_string(survey.document)?, serde_json::to_string(&details)?);
    let page = Explorer {
        title: "Configuration options",
        map: "Treemap of the objects, by directory",
        search: "Find an option or an object",
        style: STYLE,
        data: &[("survey", &document), ("details", &details)],
        script: SCRIPT,
    };
    Ok(page.to_string())
}

/// Returns the facts of `--explain` about an option, and the objects with parts of it.
fn option(survey: &Survey<'_>, row: &Row, texts: &mut Texts) -> Value {
    let facts = survey.measure.facts;
    let explanation = explain::option(row, facts.tree, facts.definitions, facts.gates);
    let whole = row.part.as_ref().map_or(&[][..], |part| &part.whole);
    let parts = costs::by_object(&facts.kernel.built, whole);
    let parts: Vec<Value> = parts.into_iter().map(|(object, kept)| json!([object, bytes(kept)])).collect();
    let mut value = explained(&explanation, texts);
    value["parts"] = json!(parts);
    value
}

/// Returns the facts about a number that sets the size of a variable.
fn number(sizing: &Sizing, explanation: &Explanation, texts: &mut Texts) -> Value {
    let mut value = explained(explanation, texts);
    value["name"] = json!(sizing.option);
    value["built"] = json!(sizing.built);
    value["variable"] = json!(sizing.holder.variable);
    value["bytes"] = json!(sizing.holder.bytes);
    match &sizing.smaller {
        Ok(smaller) => value["smaller"] = json!(String::from(smaller.set.clone())),
        Err(why) => value["why"] = json!(why),
    }
    value
}

fn explained(explanation: &Explanation, texts: &mut Texts) -> Value {
    let lists: Vec<Value> = explanation
        .lists
        .iter()
        .map(|(key, entries)| {
            let numbers = entries.iter().map(|entry| texts.insert_full(entry.clone()).0);
            json!([key, numbers.collect::<Vec<_>>()])
        })
        .collect();
    json!({ "title": explanation.title, "lines": explanation.lines, "lists": lists })
}

/// Returns the proposed options, and the options that were dropped.
fn advice(advice: &ConfigAdvice) -> Value {
    let off = advice.options.iter().filter(|option| option.set == OptionValue::No);
    let values = advice.options.iter().filter(|option| option.set != OptionValue::No);
    let names = |options: &mut dyn Iterator<Item = &kplan::OptionAdvice>| -> Vec<String> {
        options.map(|option| option.name.clone()).collect()
    };
    json!({
        "off": names(&mut { off }),
        "values": names(&mut { values }),
        "kept": advice.kept.iter().map(|kept| json!([kept.name, kept.reason])).collect::<Vec<_>>(),
        "summary": advise::summary(advice),
        "keeps": advice.joint.as_ref().map(|joint| bytes(joint.keeps)),
    })
}

/// Returns bytes as text, data, zeroed data, and init.
fn bytes(KeptBytes { text, data, bss, init }: KeptBytes) -> [u64; 4] {
    [text, data, bss, init]
}
