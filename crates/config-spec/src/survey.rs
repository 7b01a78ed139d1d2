//! What is known about every option that can be turned off.

use std::collections::BTreeMap;

use kplan::{KeptBytes, UseClass};
use rayon::prelude::*;
use rustc_hash::FxHashSet;

use crate::classes::{self, Handlers, Ran, RanFunction};
use crate::closure::{Closure, Closures};
use crate::config::Config;
use crate::costs::{self, Costs};
use crate::gates::Gates;
use crate::hardware::Hardware;
use crate::kconfig::Definitions;
use crate::kernel::Kernel;
use crate::mentions::Mentions;
use crate::tree::Tree;

/// Maximum number of other objects that mention an option with a class. More of them may hold parts of the option
/// between `#ifdef`, about which objects say nothing.
pub const MAX_MENTIONS: usize = 5;

/// An option that can be turned off.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its prompt.
    pub prompt: String,
    /// The changes of the configuration without it, by option.
    pub changes: Closure,
    /// The other options that are turned off, by name.
    pub with: Vec<String>,
    /// The options that are turned on instead, by name.
    pub instead: Vec<String>,
    /// The objects that the kernel then lacks, by name.
    pub objects: Vec<String>,
    /// The contents of these objects.
    pub contents: KeptBytes,
    /// The bytes that the kernel as built keeps only because of these objects.
    pub keeps: KeptBytes,
    /// The same after the passes of the plan, if there is one.
    pub after: Option<KeptBytes>,
    /// Other objects that a build compiles again, by name.
    pub rebuilds: Vec<String>,
    /// The functions of these objects that ran.
    pub ran: Vec<RanFunction>,
    /// The class, or the reason why there is none.
    pub class: Result<UseClass, String>,
    /// Handlers of system calls in these objects, and whether the plan rules out every one.
    pub handlers: Handled,
    /// The device of the target that one of the objects drives.
    pub device: Option<String>,
}

/// The system calls that enter the code of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// None.
    No,
    /// The plan does not rule out all of them.
    Maybe,
    /// No program makes any of them.
    RuledOut,
}

impl Row {
    /// Whether the plan's evidence suffices to propose turning it off. Otherwise the reason, for people.
    ///
    /// # Errors
    /// The reason.
    pub fn advice(&self) -> Result<(), String> {
        let class = self.class.clone()?;
        if let Some(device) = &self.device {
            return Err(format!("the target has a device that it drives: {device}"));
        }
        advice(class, self.handlers)
    }
}

/// Whether code with this use and these system calls may go. Otherwise the reason, for people.
fn advice(class: UseClass, handlers: Handled) -> Result<(), String> {
    match (class, handlers) {
        (UseClass::Idle | UseClass::InitOnly, _) => Ok(()),
        (UseClass::HooksOnly, Handled::RuledOut) => Ok(()),
        (UseClass::HooksOnly, Handled::Maybe) => Err("programs may make its system calls".to_owned()),
        (UseClass::HooksOnly, Handled::No) => {
            Err("other code calls it, and no system call shows that it is unused".to_owned())
        }
        (UseClass::Used, _) => Err("its functions ran".to_owned()),
        (UseClass::Value, _) => Err("it is a number".to_owned()),
    }
}

/// The facts that rows are made of.
pub struct Facts<'a> {
    /// The build's configuration.
    pub tree: &'a Tree,
    /// The definitions of options.
    pub definitions: &'a Definitions,
    /// The gates of the objects.
    pub gates: &'a Gates,
    /// The kernel.
    pub kernel: &'a Kernel<'a>,
    /// The functions that ran, if the plan has traces.
    pub ran: Option<&'a Ran>,
    /// The devices of the target, if they are known.
    pub hardware: Option<&'a Hardware>,
}

/// Returns the options that a person can set to `n` one at a time, as far as their definitions tell: they are `y`, have
/// a prompt, and are not one of several in a `choice`.
pub fn candidates<'a>(config: &'a Config, definitions: &Definitions) -> Vec<&'a str> {
    let is_candidate = |option: &&str| {
        let definition = definitions.options.get(*option);
        definition.is_some_and(|definition| definition.prompt.is_some() && !definition.in_choice)
    };
    config.enabled().filter(is_candidate).collect()
}

/// Returns the closures of candidates without asking Kconfig: each changes itself only.
pub fn quick_closures(candidates: &[&str]) -> Closures {
    let alone =
        |option: &&str| ((*option).to_owned(), Some(Closure::from([((*option).to_owned(), String::new())])));
    candidates.iter().map(alone).collect()
}

/// Everything that rows share.
pub struct Measure<'a> {
    /// The facts.
    pub facts: &'a Facts<'a>,
    contents: BTreeMap<&'a str, KeptBytes>,
    built: Costs<'a>,
    after: Option<Costs<'a>>,
    handlers: Handlers,
    handlers_after: Option<Handlers>,
    with_code: FxHashSet<&'a str>,
    mentions: Mentions,
}

impl<'a> Measure<'a> {
    /// Prepares the graphs for measurements.
    pub fn new(facts: &'a Facts<'a>) -> Measure<'a> {
        let kernel = facts.kernel;
        Measure {
            facts,
            contents: costs::contents(kernel.program),
            built: Costs::of(&kernel.built),
            after: kernel.after.as_ref().map(Costs::of),
            handlers: Handlers::of(&kernel.built),
            handlers_after: kernel.after.as_ref().map(Handlers::of),
            with_code: classes::with_code(&kernel.built),
            mentions: Mentions::read(&facts.tree.build),
        }
    }

    /// Returns the rows of all options that have a closure, those that keep most first.
    pub fn rows(&self, closures: &Closures) -> Vec<Row> {
        let off: Vec<(&String, &Closure)> =
            closures.iter().filter_map(|(name, closure)| Some((name, closure.as_ref()?))).collect();
        let mut rows: Vec<Row> = off.into_par_iter().map(|(name, closure)| self.row(name, closure)).collect();
        rows.sort_by_key(|row| {
            let bytes = |bytes: KeptBytes| std::cmp::Reverse((bytes.resident(), bytes.init));
            (bytes(row.keeps), bytes(row.contents), row.name.clone())
        });
        rows
    }

    /// Returns the bytes that the kernel keeps only because of some objects, as built and after the passes.
    pub fn kept(&self, objects: &[&str]) -> (KeptBytes, Option<KeptBytes>) {
        if objects.is_empty() {
            return (KeptBytes::default(), self.after.as_ref().map(|_| KeptBytes::default()));
        }
        (self.built.of_objects(objects), self.after.as_ref().map(|after| after.of_objects(objects)))
    }

    /// Returns the objects that a build without some objects compiles again after changes of the configuration.
    pub fn rebuilds(&self, changes: &Closure, objects: &[&str]) -> Vec<&str> {
        self.mentions.of(changes.keys().map(String::as_str), objects)
    }

    /// Returns the reason to keep some of the objects that go together, if there is one; for people.
    pub fn objection(&self, objects: &[&str], together: &[&str]) -> Option<String> {
        if objects.is_empty() {
            return None;
        }
        if let Some(device) = self.device(objects) {
            return Some(format!("the target has a device that it drives: {device}"));
        }
        if !objects.iter().any(|object| self.with_code.contains(object)) {
            return Some("its objects hold no code, and traces show nothing about data".to_owned());
        }
        let ran = self.facts.ran.map(|ran| ran.in_objects(objects)).unwrap_or_default();
        advice(classes::class(&ran, together), self.handled(objects)).err()
    }

    fn row(&self, name: &str, changes: &Closure) -> Row {
        let Facts { tree, definitions, gates, ran, .. } = self.facts;
        let others = |wanted: &dyn Fn(&str, &str) -> bool| -> Vec<String> {
            let wanted = |(other, value): &(&String, &String)| *other != name && wanted(other, value);
            changes.iter().filter(wanted).map(|(other, _)| other.clone()).collect()
        };
        let with = others(&|other, new| tree.config.is_enabled(other) && new.is_empty());
        let instead = others(&|other, new| tree.config.value(other).is_empty() && new == "y");
        let objects = gates.removed_by(&tree.config.with(changes));
        let rebuilds = self.rebuilds(changes, &objects);
        let functions = ran.map(|ran| ran.in_objects(&objects)).unwrap_or_default();
        let (keeps, after) = self.kept(&objects);
        Row {
            name: name.to_owned(),
            prompt: definitions.options.get(name).and_then(|found| found.prompt.clone()).unwrap_or_default(),
            contents: costs::sum(&self.contents, &objects),
            keeps,
            after,
            class: self.class(&objects, rebuilds.len(), &functions),
            handlers: self.handled(&objects),
            device: self.device(&objects),
            ran: functions.into_iter().cloned().collect(),
            rebuilds: rebuilds.into_iter().map(str::to_owned).collect(),
            objects: objects.into_iter().map(str::to_owned).collect(),
            changes: changes.clone(),
            with,
            instead,
        }
    }

    fn class(&self, objects: &[&str], mentions: usize, ran: &[&RanFunction]) -> Result<UseClass, String> {
        if self.facts.ran.is_none() {
            return Err("the plan has no traces".to_owned());
        }
        if objects.is_empty() {
            return Err("no object is linked for it alone".to_owned());
        }
        if mentions > MAX_MENTIONS {
            return Err(format!("{mentions} other objects mention it, so its code may be in them"));
        }
        if !objects.iter().any(|object| self.with_code.contains(object)) {
            return Err("its objects hold no code, and traces show nothing about data".to_owned());
        }
        Ok(classes::class(ran, objects))
    }

    fn handled(&self, objects: &[&str]) -> Handled {
        if self.handlers.in_objects(objects).is_empty() {
            return Handled::No;
        }
        match &self.handlers_after {
            Some(after) if after.in_objects(objects).is_empty() => Handled::RuledOut,
            _ => Handled::Maybe,
        }
    }

    fn device(&self, objects: &[&str]) -> Option<String> {
        let hardware = self.facts.hardware?;
        let device = |object: &&str| {
            let mut modules = self.facts.gates.of(object).iter().map(|gate| gate.module.as_str());
            modules.find_map(|module| hardware.device_of(object, module))
        };
        objects.iter().find_map(device).map(str::to_owned)
    }
}
