//! The proposed options together.
//!
//! Each option is judged alone first. Several together may turn off an option that each of them selects, and remove
//! objects that each of them needs. These are judged here, and measured.

use std::collections::BTreeSet;

use kcfg::index::NodeId;
use kcli::Failure;
use kplan::{JointAdvice, KeptOption};

use crate::conf::Conf;
use crate::config::{Change, Closure};
use crate::survey::{MAX_MENTIONS, Measure, Row};
use crate::values::{Sizing, Smaller};

/// The options that can be proposed together.
pub struct Joint<'r> {
    /// Their rows, in the order of all rows.
    pub rows: Vec<&'r Row>,
    /// The smaller values.
    pub values: Vec<(&'r Sizing, &'r Smaller)>,
    /// Their effect.
    pub effect: JointAdvice,
    /// The options that could be proposed alone, but not with the others.
    pub kept: Vec<KeptOption>,
}

/// Something that goes only if several options are off, and has to stay.
enum Needed {
    Option(String),
    Object(String),
}

/// Returns the options that can be proposed together. An option stays if a build without it compiles more than `max_rebuilds`
/// other objects again.
///
/// # Errors
/// The errors of Kconfig.
pub fn judge<'r>(
    measure: &Measure<'_>,
    conf: &Conf<'_>,
    rows: &'r [Row],
    sizings: &'r [Sizing],
    max_rebuilds: usize,
) -> Result<Joint<'r>, Failure> {
    let proposed = rows.iter().filter(|row| row.advice().is_ok());
    let (mut rows, slow): (Vec<&Row>, Vec<&Row>) =
        proposed.partition(|row| row.rebuilds.len() <= max_rebuilds);
    let slow = slow.into_iter().map(|row| {
        let reason =
            format!("a build compiles {} other objects again; see --max-rebuilds", row.rebuilds.len());
        KeptOption { name: row.name.clone(), reason }
    });
    let mut kept: Vec<KeptOption> = slow.collect();
    loop {
        let changes = changes(conf, &rows, sizings)?;
        let stays = |row: &Row| !changes.get(&row.name).is_some_and(String::is_empty);
        if let Some(position) = rows.iter().position(|row| stays(row)) {
            let name = rows.remove(position).name.clone();
            let reason = "Kconfig turns it on again when the other options are off".to_owned();
            kept.push(KeptOption { name, reason });
            continue;
        }
        // Values change lines as well, but bring no code.
        let off = self::changes(conf, &rows, &[])?;
        if let Some(why) = measure.part_objection(&off).filter(|_| !rows.is_empty()) {
            let position = cause(conf, &rows, &[], &|off| measure.part_objection(off).is_some())?;
            let name = rows.remove(position).name.clone();
            kept.push(KeptOption { name, reason: format!("with other proposed options: {why}") });
            continue;
        }
        let effect = Effect::new(measure, &rows, &changes);
        let Some((needed, reason)) = effect.needed(measure) else {
            let effect = effect.advice(measure, &changes);
            let values = values(sizings, &changes, &mut kept);
            return Ok(Joint { rows, values, effect, kept });
        };
        let goes = |changes: &Closure| needed.goes(measure, changes);
        let position = cause(conf, &rows, sizings, &goes)?;
        let name = rows.remove(position).name.clone();
        kept.push(KeptOption { name, reason: needed.reason(&reason) });
    }
}

/// Returns the changes without the options of some rows, and with the smaller values.
fn changes(conf: &Conf<'_>, rows: &[&Row], sizings: &[Sizing]) -> Result<Closure, Failure> {
    let off = rows.iter().map(|row| (row.name.as_str(), "n"));
    let values = sizings
        .iter()
        .filter_map(|sizing| Some((sizing.option.as_str(), sizing.smaller.as_ref().ok()?.set.as_str())));
    let all: Vec<Change<'_>> = off.chain(values).collect();
    if all.is_empty() { Ok(Closure::new()) } else { conf.changes(&all) }
}

/// Returns the smaller values that are in `changes`. The others are noted in `kept`.
fn values<'r>(
    sizings: &'r [Sizing],
    changes: &Closure,
    kept: &mut Vec<KeptOption>,
) -> Vec<(&'r Sizing, &'r Smaller)> {
    let smaller = |sizing: &'r Sizing| Some((sizing, sizing.smaller.as_ref().ok()?));
    let (taken, other): (Vec<_>, Vec<_>) =
        sizings.iter().filter_map(smaller).partition(|(sizing, smaller)| {
            changes.get(&sizing.option).is_some_and(|value| *value == String::from(smaller.set.clone()))
        });
    kept.extend(other.into_iter().map(|(sizing, _)| KeptOption {
        name: sizing.option.clone(),
        reason: "the other proposed options remove it, or change its range".to_owned(),
    }));
    taken
}

/// Returns the row that keeps something if its option stays: of several, the last one, which keeps the fewest bytes.
fn cause(
    conf: &Conf<'_>,
    rows: &[&Row],
    sizings: &[Sizing],
    goes: &dyn Fn(&Closure) -> bool,
) -> Result<usize, Failure> {
    for position in (0..rows.len()).rev() {
        let mut others = rows.to_vec();
        others.remove(position);
        if !goes(&changes(conf, &others, sizings)?) {
            return Ok(position);
        }
    }
    // Several options have to stay: one now, and others in later rounds.
    Ok(rows.len().saturating_sub(1))
}

impl Needed {
    fn goes(&self, measure: &Measure<'_>, changes: &Closure) -> bool {
        let facts = measure.facts;
        match self {
            Needed::Option(name) => changes.get(name).is_some_and(String::is_empty),
            Needed::Object(name) => {
                let removed = facts.gates.removed_by(&facts.tree.config.with(changes));
                removed.contains(&name.as_str())
            }
        }
    }

    fn reason(&self, why: &str) -> String {
        let (Needed::Option(name) | Needed::Object(name)) = self;
        format!("with other proposed options, it turns off {name}: {why}")
    }
}

/// The parts that go if options are off together.
struct Effect<'m> {
    /// The options that go only then.
    with: Vec<String>,
    /// All objects that go.
    objects: Vec<&'m str>,
    /// The objects that go only then.
    only: Vec<&'m str>,
    /// The parts of other objects that go.
    parts: Vec<NodeId>,
}

impl<'m> Effect<'m> {
    fn new(measure: &Measure<'m>, rows: &[&Row], changes: &Closure) -> Effect<'m> {
        let facts = measure.facts;
        let single: BTreeSet<&String> =
            rows.iter().flat_map(|row| row.with.iter().chain([&row.name])).collect();
        let is_new = |(name, value): &(&String, &String)| {
            value.is_empty() && facts.tree.config.is_enabled(name) && !single.contains(name)
        };
        let with = changes.iter().filter(is_new).map(|(name, _)| name.clone()).collect();
        let objects = facts.gates.removed_by(&facts.tree.config.with(changes));
        let single: BTreeSet<&str> = rows.iter().flat_map(|row| &row.objects).map(String::as_str).collect();
        let only = objects.iter().copied().filter(|object| !single.contains(object)).collect();
        let parts =
            rows.iter().filter_map(|row| row.part.as_ref()).flat_map(|part| part.whole.iter().copied());
        Effect { with, objects, only, parts: parts.collect() }
    }

    /// Returns something that has to stay, with the reason.
    fn needed(&self, measure: &Measure<'_>) -> Option<(Needed, String)> {
        for option in &self.with {
            let off = Closure::from([(option.clone(), String::new())]);
            let mentions = measure.rebuilds(&off, &self.objects).len();
            if mentions > MAX_MENTIONS {
                let reason = format!("{mentions} other objects mention it, so its code may be in them");
                return Some((Needed::Option(option.clone()), reason));
            }
        }
        self.only.iter().find_map(|object| {
            let reason = measure.objection(&[object], &self.objects)?;
            Some((Needed::Object((*object).to_owned()), reason))
        })
    }

    fn advice(self, measure: &Measure<'_>, changes: &Closure) -> JointAdvice {
        let (keeps, after) = measure.kept(&self.objects, &self.parts);
        let rebuilds = measure.rebuilds(changes, &self.objects).len() as u64;
        let objects = self.only.into_iter().map(str::to_owned).collect();
        JointAdvice { with: self.with, objects, keeps, after, rebuilds }
    }
}
