//! The facts about one option.

use std::fmt;

use kcli::human;
use kplan::KeptBytes;
use rustc_hash::FxHashSet;

use crate::classes::Inside;
use crate::closure::Closures;
use crate::expression::Values;
use crate::gates::Gates;
use crate::kconfig::Definitions;
use crate::source::Place;
use crate::survey::{Facts, Handled, Row};
use crate::tree::Tree;
use crate::values::Sizing;

/// Maximum number of entries that are printed of each list.
const MAX_LIST: usize = 20;

/// The facts about an option, for people.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Its name, its prompt, and the place of its definition.
    pub title: String,
    /// Facts in a line each, by name.
    pub lines: Vec<(&'static str, String)>,
    /// Lists that are not empty, by name.
    pub lists: Vec<(&'static str, Vec<String>)>,
}

impl Explanation {
    fn new(title: String) -> Explanation {
        Explanation { title, lines: Vec::new(), lists: Vec::new() }
    }

    fn line(&mut self, key: &'static str, value: impl Into<String>) {
        self.lines.push((key, value.into()));
    }

    fn list<T>(&mut self, key: &'static str, entries: &[T], show: impl Fn(&T) -> String) {
        if !entries.is_empty() {
            self.lists.push((key, entries.iter().map(show).collect()));
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        for (key, value) in &self.lines {
            writeln!(f, "  {key:<9} {value}")?;
        }
        for (key, entries) in &self.lists {
            writeln!(f, "  {key} ({}):", entries.len())?;
            for entry in entries.iter().take(MAX_LIST) {
                writeln!(f, "    {entry}")?;
            }
            if entries.len() > MAX_LIST {
                writeln!(f, "    and {} more; see --html", entries.len() - MAX_LIST)?;
            }
        }
        Ok(())
    }
}

/// Returns the facts about an option that can be turned off.
pub fn option(row: &Row, tree: &Tree, definitions: &Definitions, gates: &Gates) -> Explanation {
    let place = definitions.options.get(&row.name).map_or("", |definition| definition.place.as_str());
    let mut text = Explanation::new(format!("{}: {} ({place})", row.name, row.prompt));
    match &row.class {
        Ok(class) => text.line("class", class.to_string()),
        Err(why) => text.line("class", format!("none: {why}")),
    }
    match row.advice() {
        Ok(()) => text.line("advice", "turn it off, and test the kernel"),
        Err(why) => text.line("advice", format!("keep it: {why}")),
    }
    text.line("contents", bytes(row.contents));
    if row.part.is_some() {
        text.line("parts", bytes(row.parts));
    }
    text.line("keeps", bytes(row.keeps));
    if let Some(after) = row.after {
        text.line("after", bytes(after));
    }
    match row.handlers {
        Handled::No => {}
        Handled::Maybe => text.line("calls", "programs may make its system calls"),
        Handled::RuledOut => text.line("calls", "no program makes its system calls"),
    }
    text.list("boot parameters", &row.parameters, |name| name.clone());
    text.list("goes with it", &row.with, |name| name.clone());
    text.list("comes instead", &row.instead, |name| name.clone());
    let is_other = |(name, _): &(&String, &String)| {
        **name != row.name && !row.with.contains(name) && !row.instead.contains(name)
    };
    let changed: Vec<_> = row.changes.iter().filter(is_other).collect();
    text.list("changes", &changed, |(name, value)| {
        format!("{name}: {} to {}", shown(tree.config.value(name)), shown(value))
    });
    text.list("objects", &row.objects, |object| {
        let conditions: Vec<String> =
            gates.of(object).iter().map(|gate| gate.condition.to_string()).collect();
        format!("{object}: {}", conditions.join(" || "))
    });
    text.list("members of libraries", &row.members, |object| object.clone());
    text.list("compiled again", &row.rebuilds, |object| object.clone());
    text.list("ran", &row.ran, |function| {
        let objects: Vec<&str> = row.objects.iter().map(String::as_str).collect();
        let none = FxHashSet::default();
        let parts = row.part.as_ref().map_or(&none, |part| &part.touched);
        let when = if function.is_init { "while the kernel started" } else { "afterwards, too" };
        let how = match (&function.used, function.caller_outside(Inside { objects: &objects, parts })) {
            (Some(why), _) => why.clone(),
            (None, Some(caller)) => format!("{when}, called by {caller}"),
            (None, None) if function.is_notified => format!("{when}, called by a notifier chain"),
            (None, None) if function.is_init => when.to_owned(),
            (None, None) => "called by its own code alone".to_owned(),
        };
        format!("{}: {how}", function.name)
    });
    text
}

/// Returns the facts about an option that is a number; `None` if it is none, or has no value. `sizings` are the options
/// that set the size of a variable, if there is a census.
pub fn number(name: &str, facts: &Facts<'_>, sizings: Option<&[Sizing]>) -> Option<Explanation> {
    let Facts { tree, definitions, .. } = facts;
    let definition = definitions.options.get(name).filter(|definition| definition.is_number())?;
    let value = Some(tree.config.value(name)).filter(|value| !value.is_empty())?;
    let prompt = definition.prompt.as_deref().unwrap_or("no prompt");
    let mut text = Explanation::new(format!("{name}: {prompt} ({})", definition.place));
    text.line("value", value);
    let range = match definition.range(Values { config: &tree.config, definitions }) {
        Ok(Some(range)) => format!("{} to {}", range.low, range.high),
        Ok(None) => "none".to_owned(),
        Err(why) => format!("not known: {why}"),
    };
    text.line("range", range);
    let sizing = sizings.map(|sizings| sizings.iter().find(|sizing| sizing.option == name));
    if let Some(Some(Sizing { holder, .. })) = sizing {
        let place = match holder.place {
            Place::Image => "in the kernel image",
            Place::Allocated => "allocated",
        };
        text.line("variable", format!("{}, {} bytes, {place}", holder.variable, human(holder.bytes)));
        text.line("source", &*holder.source);
    }
    let advice = match sizing.map(|sizing| sizing.map(|sizing| &sizing.smaller)) {
        None => "give --census to find the variable whose size it sets".to_owned(),
        Some(None) => "keep it: no variable with a page or more is linked with it".to_owned(),
        Some(Some(Err(why))) => format!("keep it: {why}"),
        Some(Some(Ok(smaller))) => {
            let set = String::from(smaller.set.clone());
            format!(
                "decide whether {set} serves, and test the kernel: less memory may cost speed or security"
            )
        }
    };
    text.line("advice", advice);
    Some(text)
}

/// Returns why an option cannot be turned off by itself, or is not known.
pub fn fixed(name: &str, tree: &Tree, definitions: &Definitions, closures: &Closures) -> Option<Explanation> {
    let definition = definitions.options.get(name)?;
    let value = tree.config.value(name);
    let prompt = definition.prompt.as_deref().unwrap_or("no prompt");
    let mut text = Explanation::new(format!("{name}: {prompt} ({})", definition.place));
    let advice = if value != "y" {
        format!("it is {}, not y", shown(value))
    } else if definition.in_choice {
        "it is one option of a choice; choose another one instead".to_owned()
    } else if definition.prompt.is_none() {
        "it has no prompt: other options turn it on".to_owned()
    } else if closures.contains_key(name) {
        "Kconfig turns it on again".to_owned()
    } else {
        "its closure is not known".to_owned()
    };
    text.line("fixed", advice);
    let selectors: Vec<_> = definitions.selectors(name, |option| tree.config.is_enabled(option)).collect();
    text.list("selected by", &selectors, |(option, condition)| match condition {
        Some(condition) => format!("{option} if {condition}"),
        None => (*option).to_owned(),
    });
    Some(text)
}

fn shown(value: &str) -> &str {
    if value.is_empty() { "not set" } else { value }
}

fn bytes(bytes: KeptBytes) -> String {
    let KeptBytes { text, data, bss, init } = bytes;
    format!("text {}, data {}, bss {}, init {}", human(text), human(data), human(bss), human(init))
}
