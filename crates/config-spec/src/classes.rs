//! The use that traces show of the code of an option.
//!
//! The class of an option depends on the functions of its objects that ran:
//!
//! - *idle*: none;
//! - *init-only*: only initcalls and other functions of `.init` sections, and functions that only the objects themselves
//!   call. The code registered itself, and nothing called it afterwards;
//! - *hooks-only*: also functions that other objects call directly (`exit_aio`, `gunzip`), and callbacks that the objects
//!   register with a notifier chain. System calls are no hooks;
//! - *used*: anything else. A function whose address is in a table counts as called through the table, because no trace
//!   tells that from a direct call.

use std::collections::BTreeSet;

use kcfg::edges::{Destination, EdgeKind, Edges};
use kcfg::graph::{Graph, Role, SymbolPlace};
use kcfg::index::NodeId;
use kopt::names::CodeNames;
use kplan::{Coverage, FunctionName, UseClass};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::costs::is_init;

/// Prefixes of the functions that system calls enter, in the kernels of all machines.
const ENTRIES: [&str; 9] = [
    "__ia32_compat_sys_",
    "__ia32_sys_",
    "__x64_compat_sys_",
    "__x64_sys_",
    "__arm64_compat_sys_",
    "__arm64_sys_",
    "compat_sys_",
    "__se_sys_",
    "sys_",
];

/// Tables that name functions, but not to call them.
const LISTS: [&str; 4] = ["___ksymtab", "__ksymtab", "_kprobe_blacklist", "__mcount_loc"];

/// A function that ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RanFunction {
    /// Its name.
    pub name: FunctionName,
    /// Whether the kernel frees it after it has started.
    pub is_init: bool,
    /// The reason why it may be more than a hook; `None` if it is a hook, or runs only while the kernel starts.
    pub used: Option<String>,
    /// Whether a notifier chain may call it.
    pub is_notified: bool,
    /// The objects with a direct call of it, by name. For functions of `.init` sections, also those that hold its address.
    pub callers: Vec<String>,
}

/// The functions that ran, by object.
#[derive(Default)]
pub struct Ran {
    of_object: FxHashMap<String, Vec<RanFunction>>,
    /// The functions that this kernel does not have.
    pub absent: Vec<FunctionName>,
}

impl Ran {
    /// Finds the functions of a plan in the graph of the kernel as it was built.
    pub fn of(graph: &Graph, coverage: &Coverage) -> Ran {
        let names = CodeNames::of(graph);
        let mut found = Vec::new();
        let mut ran = Ran::default();
        for covered in &coverage.functions {
            match names.find(&covered.function) {
                Some(named) => found.push((named.node, covered)),
                None => ran.absent.push(covered.function.clone()),
            }
        }
        let users = Users::of(graph, found.iter().map(|(node, _)| *node).collect());
        for (node, covered) in found {
            let Some(input) = graph.input_of(node) else { continue };
            let is_init = is_init(&covered.section) || is_init(&input.name);
            let name = covered.function.clone();
            let is_notified = !is_init && users.holders(node).next().is_some();
            let callers = users.callers(node, is_init);
            let used = match is_init {
                true => None,
                false if is_entry(&name.name) => Some("it is a system call".to_owned()),
                false if !is_notified && callers.is_empty() => Some("no caller of it is known".to_owned()),
                false => users.caller_by_address(node),
            };
            let function = RanFunction { name, is_init, used, is_notified, callers };
            ran.of_object.entry(input.object.to_string()).or_default().push(function);
        }
        ran
    }

    /// Returns the functions of some objects that ran, in the order of the objects.
    pub fn in_objects(&self, objects: &[&str]) -> Vec<&RanFunction> {
        objects.iter().filter_map(|object| self.of_object.get(*object)).flatten().collect()
    }
}

impl RanFunction {
    /// Returns an object outside of `objects` (sorted) with a direct call of the function.
    pub fn caller_outside(&self, objects: &[&str]) -> Option<&str> {
        let mut callers = self.callers.iter().map(String::as_str);
        callers.find(|caller| objects.binary_search(caller).is_err())
    }
}

/// Returns the class of the code of `objects` (sorted), of which these functions ran.
pub fn class(ran: &[&RanFunction], objects: &[&str]) -> UseClass {
    let registered = |function: &&RanFunction| {
        function.used.is_none() && !function.is_notified && function.caller_outside(objects).is_none()
    };
    if ran.is_empty() {
        UseClass::Idle
    } else if ran.iter().all(registered) {
        UseClass::InitOnly
    } else if ran.iter().all(|function| function.used.is_none()) {
        UseClass::HooksOnly
    } else {
        UseClass::Used
    }
}

/// Whether a function of this name is the handler of a system call.
fn is_entry(name: &str) -> bool {
    ENTRIES.iter().any(|prefix| name.starts_with(prefix))
}

/// The handlers of system calls in a graph.
pub struct Handlers {
    /// The names of the live handlers of each object.
    of_object: FxHashMap<String, BTreeSet<String>>,
}

impl Handlers {
    /// Finds the live handlers by their names.
    pub fn of(graph: &Graph) -> Handlers {
        let mut of_object: FxHashMap<String, BTreeSet<String>> = FxHashMap::default();
        for named in graph.code_names().filter(|named| is_entry(&named.symbol.name)) {
            if let Some(input) = graph.input_of(named.node).filter(|_| graph.node(named.node).live) {
                of_object.entry(input.object.to_string()).or_default().insert(named.symbol.name.clone());
            }
        }
        Handlers { of_object }
    }

    /// Returns the handlers in some objects.
    pub fn in_objects(&self, objects: &[&str]) -> BTreeSet<&str> {
        objects
            .iter()
            .filter_map(|object| self.of_object.get(*object))
            .flatten()
            .map(String::as_str)
            .collect()
    }
}

/// Returns the objects that hold code.
pub fn with_code(graph: &Graph) -> FxHashSet<&str> {
    graph.code_names().filter_map(|named| Some(&*graph.input_of(named.node)?.object)).collect()
}

/// The places that call functions, or take their addresses.
struct Users<'g> {
    graph: &'g Graph,
    /// The places that take the address of each function: a node, and an offset in bytes in it.
    by_address: FxHashMap<NodeId, Vec<(NodeId, u32)>>,
    /// The objects with a direct call of each function.
    callers: FxHashMap<NodeId, BTreeSet<&'g str>>,
    /// The code that refers to each piece of data that holds the address of a function, with the offset there.
    of_data: FxHashMap<NodeId, Vec<(NodeId, i64)>>,
    /// The variables in these pieces of data, and functions: name, offset in bytes, and size.
    symbols: FxHashMap<NodeId, Vec<(&'g str, u32, u64)>>,
}

impl<'g> Users<'g> {
    fn of(graph: &'g Graph, functions: FxHashSet<NodeId>) -> Users<'g> {
        let live = || graph.node_ids().filter(|&id| graph.node(id).live);
        let mut by_address: FxHashMap<NodeId, Vec<(NodeId, u32)>> = FxHashMap::default();
        let mut callers: FxHashMap<NodeId, BTreeSet<&str>> = FxHashMap::default();
        let edges = Edges::of(graph);
        for id in live() {
            for reference in graph.refs_of(id) {
                let Some(to) = graph.resolve_node(reference.target).filter(|to| functions.contains(to))
                else {
                    continue;
                };
                if graph.takes_address(id, reference) {
                    by_address.entry(to).or_default().push((id, reference.offset));
                } else if reference.role != Role::Site
                    && let Some(input) = graph.input_of(id)
                {
                    // A direct call; hand-written code is not decoded, and has no other sign of one.
                    callers.entry(to).or_default().insert(&*input.object);
                }
            }
            edges.for_each(id, |edge| {
                if let (EdgeKind::TailCall | EdgeKind::Switch, Destination::Node(to)) = (edge.kind, edge.to)
                    && functions.contains(&to)
                    && let Some(input) = graph.input_of(id)
                {
                    callers.entry(to).or_default().insert(&*input.object);
                }
            });
        }
        let data: FxHashSet<NodeId> = by_address
            .values()
            .flatten()
            .map(|&(id, _)| id)
            .filter(|&id| graph.block(id).is_none())
            .collect();
        let mut of_data: FxHashMap<NodeId, Vec<(NodeId, i64)>> = FxHashMap::default();
        for id in live() {
            for reference in graph.refs_of(id) {
                if let Some((to, offset)) =
                    graph.resolve(reference.target).filter(|(to, _)| data.contains(to))
                {
                    of_data.entry(to).or_default().push((id, i64::from(offset) + reference.addend));
                }
            }
        }
        let mut symbols: FxHashMap<NodeId, Vec<(&str, u32, u64)>> = FxHashMap::default();
        for symbol in graph.symbols.iter().filter(|symbol| !symbol.name.is_empty()) {
            if let SymbolPlace::Node(node, offset) = symbol.place {
                symbols.entry(node).or_default().push((symbol.name.as_str(), offset, symbol.size));
            }
        }
        Users { graph, by_address, callers, of_data, symbols }
    }

    /// Returns the objects with a direct call of a function, by name, and `with_holders` those that hold its address.
    fn callers(&self, function: NodeId, with_holders: bool) -> Vec<String> {
        let mut callers = self.callers.get(&function).cloned().unwrap_or_default();
        let holders = self.holders(function).filter(|_| with_holders);
        callers.extend(holders.filter_map(|(holder, _)| Some(&*self.graph.input_of(holder)?.object)));
        callers.into_iter().map(str::to_owned).collect()
    }

    /// Iterates over the places that hold the address of a function, to call it.
    fn holders(&self, function: NodeId) -> impl Iterator<Item = (NodeId, u32)> {
        let holders = self.by_address.get(&function).into_iter().flatten().copied();
        holders.filter(|&(holder, _)| !self.is_list(holder))
    }

    /// Returns the place that may call a function through its address; `None` if only notifier chains can.
    fn caller_by_address(&self, function: NodeId) -> Option<String> {
        let (user, offset) =
            self.holders(function).find(|&(user, offset)| !self.is_notifier(user, offset))?;
        let place = match (self.graph.function_of(user), self.variable(user, offset)) {
            (Some(function), _) => self.graph.function(function).name.as_str(),
            (None, Some((name, ..))) => name,
            (None, None) => &self.graph.section_of(user).name,
        };
        Some(format!("{place} holds its address"))
    }

    fn is_list(&self, user: NodeId) -> bool {
        let section = &self.graph.section_of(user).name;
        LISTS.iter().any(|list| section.starts_with(list))
    }

    /// Returns the variable at an offset in bytes in a piece of data: name, offset, and size.
    fn variable(&self, data: NodeId, offset: u32) -> Option<(&'g str, u32, u64)> {
        let mut variables = self.symbols.get(&data)?.iter();
        variables
            .find(|&&(_, start, size)| {
                (u64::from(start)..u64::from(start) + size).contains(&u64::from(offset))
            })
            .copied()
    }

    /// Whether the word at an offset in bytes in a piece of data is the callback of a `struct notifier_block`
    /// (include/linux/notifier.h: three words, the first is the callback) that code only hands to functions that register or
    /// unregister notifiers.
    fn is_notifier(&self, data: NodeId, offset: u32) -> bool {
        let Some((_, start, size)) = self.variable(data, offset) else { return false };
        let is_block = self.graph.block(data).is_none()
            && start == offset
            && size == 3 * u64::from(self.graph.machine.word_size());
        let range = i64::from(start)..i64::from(start) + size as i64;
        let users = self.of_data.get(&data).into_iter().flatten();
        let mut users = users.filter(|(_, at)| range.contains(at)).peekable();
        is_block
            && users.peek().is_some()
            && users.all(|&(code, at)| at == range.start && self.registers(code))
    }

    /// Whether a block ends with a call of a function that registers or unregisters notifiers, by its name.
    fn registers(&self, code: NodeId) -> bool {
        let callee = self.graph.callee(code).and_then(|callee| self.graph.resolve_node(callee.target));
        let mut names = callee.and_then(|callee| self.symbols.get(&callee)).into_iter().flatten();
        names.any(|(name, ..)| {
            name.contains("register") && (name.contains("notifier") || name.contains("notify"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(is_init: bool, used: Option<&str>) -> RanFunction {
        let callers = vec!["a.o".to_owned()];
        let (name, used) = (FunctionName::global("f"), used.map(str::to_owned));
        RanFunction { name, is_init, used, is_notified: false, callers }
    }

    #[test]
    fn class_is_that_of_the_most_used_function() {
        let (init, hook, used) =
            (ran(true, None), ran(false, None), ran(false, Some("ops holds its address")));
        assert_eq!(class(&[], &["a.o"]), UseClass::Idle);
        assert_eq!(class(&[&init], &["a.o", "b.o"]), UseClass::InitOnly);
        assert_eq!(class(&[&init], &["b.o"]), UseClass::HooksOnly);
        assert_eq!(class(&[&init, &hook], &["a.o"]), UseClass::InitOnly);
        let notified = RanFunction { is_notified: true, ..ran(false, None) };
        assert_eq!(class(&[&init, &notified], &["a.o"]), UseClass::HooksOnly);
        assert_eq!(class(&[&hook], &["b.o"]), UseClass::HooksOnly);
        assert_eq!(class(&[&hook, &used, &init], &["a.o"]), UseClass::Used);
    }

    #[test]
    fn handlers_are_told_by_their_names() {
        assert!(is_entry("__ia32_sys_io_setup") && is_entry("sys_read") && is_entry("__x64_sys_futex"));
        assert!(!is_entry("do_sys_open") && !is_entry("sysfs_init") && !is_entry("ksys_read"));
    }
}
