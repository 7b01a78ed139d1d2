/*!
The section `params` of the plan: the parameters that the command line needs, and those that can be removed or fixed.

A parameter is *named* if a word of the command line is or may be for it:

- a `core_param` or `module_param`: a word with its name;
- an `early_param` or `__setup`: a word that begins with its string, because `obsolete_checksetup` (init/main.c)
  compares only that much; the word `console` also calls `earlycon` (`do_early_param`).

All others are *unnamed*, and are removed, except parameters with a sysfs file, which programs may read or write.
*/

use std::collections::BTreeSet;

use goblin::elf::sym::STB_LOCAL;
use kcfg::graph::{Graph, Symbol, SymbolPlace};
use kcfg::index::NodeId;
use kcfg::parameters::{self, Parameter, ParameterKind};
use kcli::Failure;
use kplan::{
    FixedVariable, KeptParameter, NamedParameter, NamedWord, OnMismatch, ParameterName, ParameterTable,
    Params,
};

use crate::changes::{Change, Changes};
use crate::effective::CommandLine;
use crate::line::{Word, begins_with, is_same};
use crate::types::SimpleType;

/// The user's requests.
#[derive(Debug)]
pub struct Wishes<'a> {
    /// The command line.
    pub line: &'a CommandLine,
    /// Variables to fix, with their values as text.
    pub fix: &'a [(String, String)],
    /// Parameters and variables to fix even if they may change.
    pub force: &'a [String],
    /// Whether to remove parameters whose sysfs files can be read, but not written to.
    pub remove_read_only: bool,
    /// The reaction of the kernel to another command line.
    pub on_mismatch: OnMismatch,
}

/// A parameter, and its words.
struct Use<'w> {
    parameter: Parameter,
    words: Vec<&'w Word>,
}

/// Decides, and removes the unnamed parameters from the graph, because they may be the only writers of a variable.
///
/// # Errors
/// Bad input if a variable to fix does not exist, if its value is not of its type, or if a name to force is not used.
pub fn decide(graph: &mut Graph, wishes: &Wishes<'_>) -> Result<Params, Failure> {
    let all: Vec<Use<'_>> = parameters::all(graph)
        .into_iter()
        .map(|parameter| {
            let words = wishes.line.words.iter().filter(|word| is_for(word, &parameter)).collect();
            Use { parameter, words }
        })
        .collect();
    let mut params = Params {
        command_line: wishes.line.text.clone(),
        on_mismatch: wishes.on_mismatch,
        named: named(&wishes.line.words, &all),
        unnamed: Vec::new(),
        fixed: Vec::new(),
        kept: Vec::new(),
    };
    let mut gone: BTreeSet<NodeId> = BTreeSet::new();
    for one in all.iter().filter(|one| one.words.is_empty()) {
        match reason_to_keep(&one.parameter, wishes) {
            None => {
                params.unnamed.push(name_of(&one.parameter));
                gone.insert(one.parameter.node);
            }
            Some(why) => params.kept.push(KeptParameter { name: one.parameter.name.clone(), why }),
        }
    }
    graph.retain_roots(|_, root| !gone.contains(&root.node));
    gone.into_iter().for_each(|node| graph.remove(node));
    kopt::reach::run(graph);
    let changes = Changes::of(graph);
    let fixer = Fixer { graph, changes: &changes, wishes };
    for one in all.iter().filter(|one| !one.words.is_empty()) {
        match fixer.parameter(one, &all) {
            Ok(Some(fixed)) => params.fixed.push(fixed),
            Ok(None) => {}
            Err(why) => params.kept.push(KeptParameter { name: one.parameter.name.clone(), why }),
        }
    }
    for (variable, value) in wishes.fix {
        match fixer.variable(variable, value)? {
            Ok(fixed) => params.fixed.push(fixed),
            Err(why) => params.kept.push(KeptParameter { name: variable.clone(), why }),
        }
    }
    check_forced(wishes, &params)?;
    Ok(params)
}

/// Whether a word is or may be for a parameter.
fn is_for(word: &Word, parameter: &Parameter) -> bool {
    match parameter.kind {
        ParameterKind::Variable { .. } => is_same(&word.name, &parameter.name),
        ParameterKind::Handler { .. } => {
            begins_with(&word.to_string(), &parameter.name)
                || word.name == "console" && parameter.name == "earlycon"
        }
    }
}

fn name_of(parameter: &Parameter) -> ParameterName {
    let table = match parameter.table() {
        "early" => ParameterTable::Early,
        "setup" => ParameterTable::Setup,
        "core" => ParameterTable::Core,
        _ => ParameterTable::Module,
    };
    ParameterName { name: parameter.name.clone(), table }
}

fn named(words: &[Word], all: &[Use<'_>]) -> Vec<NamedParameter> {
    let mut named = Vec::new();
    for word in words {
        let parameters = all.iter().filter(|one| one.words.iter().any(|&other| std::ptr::eq(other, word)));
        let parameters: Vec<ParameterName> = parameters.map(|one| name_of(&one.parameter)).collect();
        if !parameters.is_empty() {
            named.push(NamedParameter { name: word.name.clone(), value: word.value.clone(), parameters });
        }
    }
    named
}

/// Returns the reason why an unnamed parameter is kept.
fn reason_to_keep(parameter: &Parameter, wishes: &Wishes<'_>) -> Option<String> {
    let ParameterKind::Variable { mode, .. } = parameter.kind else { return None };
    if parameter.is_writable() {
        return Some(format!("its file in sysfs can be written to (mode {mode:04o})"));
    }
    let visible = parameter.is_visible() && !wishes.remove_read_only;
    visible.then(|| format!("its file in sysfs can be read (mode {mode:04o}); see --remove-read-only"))
}

struct Fixer<'a> {
    graph: &'a Graph,
    changes: &'a Changes<'a>,
    wishes: &'a Wishes<'a>,
}

impl Fixer<'_> {
    /// Returns the variable of a named parameter, if its type is simple. `Err`: the reason why it is not fixed.
    fn parameter(&self, one: &Use<'_>, all: &[Use<'_>]) -> Result<Option<FixedVariable>, String> {
        let ParameterKind::Variable { operations, variable, mode, flags, .. } = &one.parameter.kind else {
            return Ok(None);
        };
        let operations = operations.as_ref().map_or("", |place| &place.name);
        let Some(simple) = SimpleType::of_operations(operations) else { return Ok(None) };
        let [word] = one.words[..] else {
            return Err("the command line names it several times".to_owned());
        };
        let others = all.iter().filter(|other| other.words.iter().any(|&other| std::ptr::eq(other, word)));
        if others.count() > 1 {
            return Err(format!("`{word}` names other parameters as well"));
        }
        if *flags != 0 {
            return Err("setting it taints the kernel, or is forbidden by lockdown".to_owned());
        }
        let value = simple.parse(word.value.as_deref(), self.graph.machine().word_size())?;
        let forced = self.wishes.force.contains(&one.parameter.name);
        if !forced && one.parameter.is_writable() {
            return Err(format!("its file in sysfs can be written to (mode {mode:04o})"));
        }
        if !forced && one.parameter.is_visible() && !self.wishes.remove_read_only {
            return Err(format!("its file in sysfs can be read (mode {mode:04o}); see --remove-read-only"));
        }
        let place = variable.as_ref().and_then(|place| place.node).ok_or_else(|| NOT_APART.to_owned())?;
        let symbol = self.symbol_at(place).ok_or_else(|| NOT_APART.to_owned())?;
        let size = simple.size(self.graph.machine().word_size());
        self.check(place, size, forced, |from| from == one.parameter.node)?;
        let parameter = Some(NamedWord { name: one.parameter.name.clone(), value: word.value.clone() });
        Ok(Some(FixedVariable { parameter, ..fixed(symbol, size, value, forced) }))
    }

    /// Returns the variable with a name given by the user. The inner `Err`: the reason why it is not fixed.
    fn variable(&self, name: &str, value: &str) -> Result<Result<FixedVariable, String>, Failure> {
        let (file, bare) = name.split_once(':').map_or((None, name), |(file, name)| (Some(file), name));
        let is_meant = |symbol: &&Symbol| {
            symbol.name == bare
                && file.is_none_or(|file| symbol.binding == STB_LOCAL && symbol.file.as_deref() == Some(file))
                && matches!(symbol.place, SymbolPlace::Node(node, _)
                    if self.graph.chunk(node).is_some_and(|chunk| !chunk.code))
        };
        let found: Vec<&Symbol> = self.graph.symbols().iter().filter(is_meant).collect();
        let symbol = match found[..] {
            [symbol] => symbol,
            [] => {
                return Err(Failure::bad_input(format!(
                    "--fix {name}: the kernel has no such variable; expected a name as in System.map"
                )));
            }
            _ => {
                let mut files: Vec<&str> = found.iter().filter_map(|symbol| symbol.file.as_deref()).collect();
                files.dedup();
                return Err(Failure::bad_input(format!(
                    "--fix {name}: the kernel has {} variables of this name; expected FILE:{bare}, where FILE is one of {}",
                    found.len(),
                    files.join(", ")
                )));
            }
        };
        let simple = SimpleType::of_size(symbol.size).ok_or_else(|| {
            let size = symbol.size;
            Failure::bad_input(format!(
                "--fix {name}: it has {size} bytes; expected a variable of 1, 2, 4 or 8"
            ))
        })?;
        let word = self.graph.machine().word_size();
        let parsed = simple.parse(Some(value), word).or_else(|_| unsigned(value, simple.size(word)));
        let number = parsed.map_err(|_: String| {
            Failure::bad_input(format!(
                "--fix {name}={value}: expected an integer that fits into {} bytes",
                simple.size(word)
            ))
        })?;
        let SymbolPlace::Node(node, offset) = symbol.place else { return Ok(Err(NOT_APART.to_owned())) };
        let forced = self.wishes.force.iter().any(|forced| forced == name);
        let size = simple.size(word);
        Ok(self.check((node, offset), size, forced, |_| false).map(|()| fixed(symbol, size, number, forced)))
    }

    /// Checks that a node is one variable of this size, and that nothing changes it.
    fn check(
        &self,
        (node, offset): (NodeId, u32),
        size: u8,
        forced: bool,
        is_own: impl Fn(NodeId) -> bool,
    ) -> Result<(), String> {
        if !self.graph.node(node).live {
            return Err("nothing uses the variable".to_owned());
        }
        let changes = self.changes.of_variable(node, offset, is_own);
        if !changes.is_empty() && !forced {
            let changes: Vec<String> = changes.iter().map(Change::to_string).collect();
            return Err(format!("the variable may change: {}", changes.join(", ")));
        }
        if offset != 0 || self.graph.node(node).size != u32::from(size) {
            return Err(NOT_APART.to_owned());
        }
        Ok(())
    }

    fn symbol_at(&self, (node, offset): (NodeId, u32)) -> Option<&Symbol> {
        let symbol = self.changes.names().symbol(node, offset)?;
        Some(&self.graph.symbols()[symbol])
    }
}

const NOT_APART: &str = "the variable could not be separated from its neighbours (see -fdata-sections)";

fn fixed(symbol: &Symbol, size: u8, value: i64, forced: bool) -> FixedVariable {
    let file = symbol.file.as_deref().filter(|_| symbol.binding == STB_LOCAL).map(str::to_owned);
    FixedVariable { variable: symbol.name.clone(), file, size, value, parameter: None, forced }
}

/// Parses a number that fits into this many bytes as an unsigned integer.
fn unsigned(value: &str, size: u8) -> Result<i64, String> {
    let operations = match size {
        1 => "param_ops_byte",
        2 => "param_ops_ushort",
        4 => "param_ops_uint",
        _ => "param_ops_ullong",
    };
    SimpleType::of_operations(operations).ok_or_else(String::new)?.parse(Some(value), size)
}

/// Checks that every name to force was used, to find misspelt ones.
fn check_forced(wishes: &Wishes<'_>, params: &Params) -> Result<(), Failure> {
    let is_used = |name: &&String| {
        let own = |fixed: &FixedVariable| {
            let local = fixed.file.as_ref().map(|file| format!("{file}:{}", fixed.variable));
            let parameter = fixed.parameter.as_ref().map(|word| &word.name);
            fixed.variable == **name || local.as_ref() == Some(name) || parameter == Some(name)
        };
        let is_named = |one: &NamedParameter| one.parameters.iter().any(|parameter| parameter.name == **name);
        params.fixed.iter().any(own) || params.named.iter().any(is_named)
    };
    match wishes.force.iter().find(|name| !is_used(name)) {
        None => Ok(()),
        Some(name) => Err(Failure::bad_input(format!(
            "--force {name}: expected a parameter that the command line names, or a variable of --fix"
        ))),
    }
}
