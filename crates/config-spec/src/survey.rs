//! What is known about every option that can be turned off.

use std::collections::{BTreeMap, BTreeSet};

use kcfg::index::NodeId;
use kcfg::parameters::{self, Parameter};
use kplan::{KeptBytes, UseClass};
use rayon::prelude::*;
use rustc_hash::FxHashSet;

use crate::classes::{self, Handlers, Inside, Ran, RanFunction};
use crate::closure::Closures;
use crate::config::{Closure, Config};
use crate::costs::{self, Costs};
use crate::flags::Flags;
use crate::gates::Gates;
use crate::hardware::Hardware;
use crate::kconfig::Definitions;
use crate::kernel::Kernel;
use crate::libraries::Libraries;
use crate::mentions::Mentions;
use crate::parts::{Part, Parts};
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
    /// The members of libraries that nothing refers to then, by name.
    pub members: Vec<String>,
    /// The contents of these objects and members.
    pub contents: KeptBytes,
    /// The bytes that the kernel as built keeps only because of these objects.
    pub keeps: KeptBytes,
    /// The same after the passes of the plan, if there is one.
    pub after: Option<KeptBytes>,
    /// Its parts of other objects; `None` without a look at source lines.
    pub part: Option<Part>,
    /// The contents of these parts.
    pub parts: KeptBytes,
    /// Other objects that a build compiles again, by name.
    pub rebuilds: Vec<String>,
    /// The functions of these objects and parts that ran.
    pub ran: Vec<RanFunction>,
    /// The class, or the reason why there is none.
    pub class: Result<UseClass, String>,
    /// Handlers of system calls in these objects, and whether the plan rules out every one.
    pub handlers: Handled,
    /// The boot parameters of these objects and parts, by name.
    pub parameters: Vec<String>,
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
    /// Whether objects are linked for the option alone, or have parts of it.
    pub fn brings_something(&self) -> bool {
        !self.objects.is_empty() || self.parts != KeptBytes::default()
    }

    /// Returns the names of all objects that the kernel then lacks.
    pub fn objects_and_members(&self) -> impl Iterator<Item = &str> {
        self.objects.iter().chain(&self.members).map(String::as_str)
    }

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

/// Returns the functions that ran, that stay, and that stubs stand for without the option: it is used.
fn replaced(part: &Part, ran: Option<&Ran>, own: &[&RanFunction]) -> Vec<RanFunction> {
    let is_replaced = |function: &&RanFunction| {
        part.replaced.contains(&function.name.name) && own.iter().all(|own| own.node != function.node)
    };
    let used = |function: &RanFunction| RanFunction {
        used: Some("a stub stands for it without the option".to_owned()),
        ..function.clone()
    };
    ran.into_iter().flat_map(Ran::functions).filter(is_replaced).map(used).collect()
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
    /// The options that change flags of the compiler.
    pub flags: &'a Flags,
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

/// The bytes of a kernel that options bring.
pub struct Known {
    /// The contents of all objects.
    pub all: KeptBytes,
    /// The contents of the objects that an option removes.
    pub objects: KeptBytes,
    /// The parts that an option removes of other objects.
    pub parts: KeptBytes,
}

/// Everything that rows share.
pub struct Measure<'a> {
    /// The facts.
    pub facts: &'a Facts<'a>,
    contents: BTreeMap<&'a str, KeptBytes>,
    built: Costs<'a>,
    after: Option<Costs<'a>>,
    handlers: Handlers<'a>,
    handlers_after: Option<Handlers<'a>>,
    with_code: FxHashSet<&'a str>,
    parameters: Vec<Parameter>,
    libraries: Libraries<'a>,
    mentions: &'a Mentions,
    parts: Option<Parts<'a>>,
}

impl<'a> Measure<'a> {
    /// Prepares the graphs for measurements. `parts` are the parts of options between `#if`.
    pub fn new(facts: &'a Facts<'a>, mentions: &'a Mentions, parts: Option<Parts<'a>>) -> Measure<'a> {
        let kernel = facts.kernel;
        Measure {
            facts,
            contents: costs::contents(kernel.program),
            built: Costs::new(&kernel.built),
            after: kernel.after.as_ref().map(Costs::new),
            handlers: Handlers::of(&kernel.built),
            handlers_after: kernel.after.as_ref().map(Handlers::of),
            with_code: classes::with_code(&kernel.built),
            parameters: parameters::all(&kernel.built),
            libraries: Libraries::of(kernel.program),
            mentions,
            parts,
        }
    }

    /// Returns the bytes of the sections of each object, by its name.
    pub fn contents(&self) -> &BTreeMap<&'a str, KeptBytes> {
        &self.contents
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

    /// Returns the bytes that options bring, each once.
    pub fn known(&self, rows: &[Row]) -> Known {
        let built = &self.facts.kernel.built;
        let removed: BTreeSet<&str> = rows.iter().flat_map(Row::objects_and_members).collect();
        let whole = rows.iter().filter_map(|row| row.part.as_ref()).flat_map(|part| &part.whole);
        let is_elsewhere =
            |id: &&NodeId| built.input_of(**id).is_some_and(|input| !removed.contains(&*input.object));
        let parts: BTreeSet<NodeId> = whole.filter(is_elsewhere).copied().collect();
        Known {
            all: costs::total(self.contents.values()),
            objects: costs::sum(&self.contents, &removed.into_iter().collect::<Vec<_>>()),
            parts: costs::bytes(built, &parts.into_iter().collect::<Vec<_>>()),
        }
    }

    /// Returns the bytes that the kernel keeps only because of some objects and parts of others, as built and after the
    /// passes.
    pub fn kept(&self, objects: &[&str], parts: &[NodeId]) -> (KeptBytes, Option<KeptBytes>) {
        let of = |costs: &Costs<'_>| costs.of(objects, &self.facts.kernel.built, parts);
        (of(&self.built), self.after.as_ref().map(of))
    }

    /// Returns the objects that a build without some objects compiles again after changes of the configuration.
    pub fn rebuilds(&self, changes: &Closure, objects: &[&str]) -> Vec<&str> {
        match self.facts.flags.changed_by(changes) {
            Some(_) => self.mentions.all(objects),
            None => self.mentions.of(changes.keys().map(String::as_str), objects),
        }
    }

    /// Returns the reason to keep some of several options whose changes go together, if there is one in their parts; for
    /// people.
    pub fn part_objection(&self, changes: &Closure) -> Option<String> {
        if let Some(why) = self.flag(changes) {
            return Some(why);
        }
        let part = self.parts.as_ref()?.of(changes, self.facts.ran);
        let used = part.ran.iter().find_map(|function| {
            let why = function.used.as_ref()?;
            Some(format!("{} ran: {why}", function.name))
        });
        part.unclear.or(used)
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
        let parts = FxHashSet::default();
        let own = Inside { objects, parts: &parts };
        let ran = self.facts.ran.map(|ran| ran.in_code(own)).unwrap_or_default();
        let class = classes::class(&ran, Inside { objects: together, parts: &parts });
        advice(class, self.handled(own)).err()
    }

    fn row(&self, name: &str, changes: &Closure) -> Row {
        let Facts { tree, definitions, gates, ran, .. } = self.facts;
        let with = tree.config.turned_off(changes, name);
        let is_instead = |(other, new): &(&String, &String)| {
            *other != name && tree.config.value(other).is_empty() && *new == "y"
        };
        let instead: Vec<String> =
            changes.iter().filter(is_instead).map(|(other, _)| other.clone()).collect();
        let objects = gates.removed_by(&tree.config.with(changes));
        let rebuilds = self.rebuilds(changes, &objects);
        let built = &self.facts.kernel.built;
        let part = self.parts.as_ref().map(|parts| parts.of(changes, *ran));
        let whole = part.as_ref().map_or(&[][..], |part| &part.whole);
        // Options that are turned on instead may bring other users.
        let members = match instead.is_empty() {
            true => self.libraries.unused_without(&objects, built, whole),
            false => Vec::new(),
        };
        // Functions of other objects that nothing else reaches run for this option alone.
        let only = self.built.nodes(&objects, built, whole);
        let keeps = costs::bytes(built, &only);
        let after = self.after.as_ref().map(|after| after.of(&objects, built, whole));
        let mut parts: FxHashSet<NodeId> = only.into_iter().collect();
        let whole_functions = Inside { objects: &objects, parts: &parts };
        let mut functions = ran.map(|ran| ran.in_code(whole_functions)).unwrap_or_default();
        let replaced = part.as_ref().map(|part| replaced(part, *ran, &functions)).unwrap_or_default();
        functions.extend(&replaced);
        if let Some(part) = &part {
            let known: FxHashSet<NodeId> = functions.iter().map(|function| function.node).collect();
            functions.extend(part.ran.iter().filter(|function| !known.contains(&function.node)));
            parts.extend(&part.touched);
        }
        let inside = Inside { objects: &objects, parts: &parts };
        let own = self.parameters.iter().filter(|parameter| parts.contains(&parameter.node));
        let parameters = own.map(|parameter| parameter.name.clone()).collect();
        Row {
            name: name.to_owned(),
            prompt: definitions.options.get(name).and_then(|found| found.prompt.clone()).unwrap_or_default(),
            contents: costs::sum(&self.contents, &[&objects[..], &members].concat()),
            keeps,
            after,
            parts: costs::bytes(built, whole),
            class: match (self.class(inside, part.as_ref(), rebuilds.len(), &functions), self.flag(changes)) {
                (Ok(UseClass::Used), _) => Ok(UseClass::Used),
                (_, Some(why)) if ran.is_some() => Err(why),
                (class, _) => class,
            },
            handlers: self.handled(inside),
            device: self.device(&objects),
            parameters,
            ran: functions.into_iter().cloned().collect(),
            rebuilds: rebuilds.into_iter().map(str::to_owned).collect(),
            objects: objects.into_iter().map(str::to_owned).collect(),
            members: members.into_iter().map(str::to_owned).collect(),
            changes: changes.clone(),
            with,
            instead,
            part,
        }
    }

    /// Returns why the option may be in all code, if it changes flags of the compiler; for people.
    fn flag(&self, changes: &Closure) -> Option<String> {
        let flag = self.facts.flags.changed_by(changes)?;
        Some(format!("{flag} changes flags of the compiler or the linker, so all code may depend on it"))
    }

    fn class(
        &self,
        inside: Inside<'_>,
        part: Option<&Part>,
        mentions: usize,
        ran: &[&RanFunction],
    ) -> Result<UseClass, String> {
        if self.facts.ran.is_none() {
            return Err("the plan has no traces".to_owned());
        }
        let class = classes::class(ran, inside);
        // What ran is a fact, also if there may be more.
        if class == UseClass::Used {
            return Ok(class);
        }
        match part {
            Some(Part { unclear: Some(unclear), .. }) => return Err(unclear.clone()),
            None if mentions > MAX_MENTIONS => {
                return Err(format!("{mentions} other objects mention it, so its code may be in them"));
            }
            _ => {}
        }
        if inside.objects.is_empty() && inside.parts.is_empty() {
            return Err("no code is there for it alone".to_owned());
        }
        let has_code = |id: &NodeId| self.facts.kernel.built.is_code(*id);
        if !inside.objects.iter().any(|object| self.with_code.contains(object))
            && !inside.parts.iter().any(has_code)
        {
            return Err("it brings no code, and traces show nothing about data".to_owned());
        }
        Ok(class)
    }

    fn handled(&self, inside: Inside<'_>) -> Handled {
        let handlers = self.handlers.inside(inside);
        let after = self.handlers_after.as_ref();
        let is_left = |name: &&str| after.is_none_or(|after| after.has(name));
        match handlers.is_empty() {
            true => Handled::No,
            false if handlers.iter().any(is_left) => Handled::Maybe,
            false => Handled::RuledOut,
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
