//! The use that traces show of the code of an option.
//!
//! The class of an option depends on the functions of its objects that ran:
//!
//! - *idle*: none;
//! - *init-only*: only functions of `.init` sections. The code registered itself, and nothing called it afterwards;
//! - *hooks-only*: afterwards only functions whose addresses nothing takes, so that other code called them directly
//!   (`exit_aio`), and callbacks that an init function registers with a notifier chain. System calls are no hooks;
//! - *used*: anything else. A function whose address is in a table counts as called through the table, because no trace
//!   tells that from a direct call.

use std::collections::BTreeSet;

use kcfg::edges::{Destination, EdgeKind, Edges};
use kcfg::graph::{Graph, SymbolPlace};
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
            let used = match is_init {
                true => None,
                false if is_entry(&covered.function.name) => Some("it is a system call".to_owned()),
                false => users.caller_by_address(node),
            };
            let function = RanFunction { name: covered.function.clone(), is_init, used };
            ran.of_object.entry(input.object.to_string()).or_default().push(function);
        }
        ran
    }

    /// Returns the functions of some objects that ran, in the order of the objects.
    pub fn in_objects(&self, objects: &[&str]) -> Vec<&RanFunction> {
        objects.iter().filter_map(|object| self.of_object.get(*object)).flatten().collect()
    }
}

/// Returns the class of code of which these functions ran.
pub fn class(ran: &[&RanFunction]) -> UseClass {
    if ran.is_empty() {
        UseClass::Idle
    } else if ran.iter().all(|function| function.is_init) {
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
        objects.iter().filter_map(|object| self.of_object.get(*object)).flatten().map(String::as_str).collect()
    }
}

/// Returns the objects that hold code.
pub fn with_code(graph: &Graph) -> FxHashSet<&str> {
    graph.code_names().filter_map(|named| Some(&*graph.input_of(named.node)?.object)).collect()
}

/// The nodes that take the address of functions.
struct Users<'g> {
    graph: &'g Graph,
    of_function: FxHashMap<NodeId, Vec<NodeId>>,
    /// The code that refers to each piece of data that refers to a function.
    of_data: FxHashMap<NodeId, Vec<NodeId>>,
    names: FxHashMap<NodeId, &'g str>,
}

impl<'g> Users<'g> {
    fn of(graph: &'g Graph, functions: FxHashSet<NodeId>) -> Users<'g> {
        let live = || graph.node_ids().filter(|&id| graph.node(id).live);
        let mut of_function: FxHashMap<NodeId, Vec<NodeId>> = FxHashMap::default();
        for id in live() {
            for reference in graph.refs_of(id) {
                if let Some(to) = graph.resolve_node(reference.target).filter(|to| functions.contains(to))
                    && graph.takes_address(id, reference)
                {
                    of_function.entry(to).or_default().push(id);
                }
            }
        }
        let data: FxHashSet<NodeId> =
            of_function.values().flatten().copied().filter(|&id| graph.block(id).is_none()).collect();
        let edges = Edges::of(graph);
        let mut of_data: FxHashMap<NodeId, Vec<NodeId>> = FxHashMap::default();
        for id in live() {
            edges.for_each(id, |edge| {
                if let (EdgeKind::Data, Destination::Node(to)) = (edge.kind, edge.to)
                    && data.contains(&to)
                {
                    of_data.entry(to).or_default().push(id);
                }
            });
        }
        let mut names = FxHashMap::default();
        for symbol in &graph.symbols {
            if let SymbolPlace::Node(node, 0) = symbol.place
                && !symbol.name.is_empty()
            {
                names.entry(node).or_insert(symbol.name.as_str());
            }
        }
        Users { graph, of_function, of_data, names }
    }

    /// Returns the place that may call a function through its address; `None` if only notifier chains can.
    fn caller_by_address(&self, function: NodeId) -> Option<String> {
        let users = self.of_function.get(&function)?;
        let user = users.iter().find(|&&user| !self.is_list(user) && !self.is_notifier(user))?;
        let place = match self.graph.function_of(*user) {
            Some(function) => self.graph.function(function).name.as_str(),
            None => self.names.get(user).copied().unwrap_or(&self.graph.section_of(*user).name),
        };
        Some(format!("{place} holds its address"))
    }

    fn is_list(&self, user: NodeId) -> bool {
        let section = &self.graph.section_of(user).name;
        LISTS.iter().any(|list| section.starts_with(list))
    }

    /// Whether a piece of data is a `struct notifier_block` (include/linux/notifier.h: three words, the first is the
    /// callback) that code only hands to functions that register or unregister notifiers.
    fn is_notifier(&self, data: NodeId) -> bool {
        let word = u32::from(self.graph.machine.word_size());
        let is_block = self.graph.block(data).is_none()
            && self.graph.node(data).size == 3 * word
            && self.graph.refs_of(data).iter().all(|reference| reference.offset == 0);
        let hands_on = |&code: &NodeId| {
            let callee = self.graph.callee(code).and_then(|callee| self.graph.resolve_node(callee.target));
            callee.and_then(|callee| self.names.get(&callee)).is_some_and(|name| {
                name.contains("register") && (name.contains("notifier") || name.contains("notify"))
            })
        };
        is_block && self.of_data.get(&data).is_some_and(|users| users.iter().all(hands_on))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(is_init: bool, used: Option<&str>) -> RanFunction {
        RanFunction { name: FunctionName::global("f"), is_init, used: used.map(str::to_owned) }
    }

    #[test]
    fn class_is_that_of_the_most_used_function() {
        let (init, hook, used) = (ran(true, None), ran(false, None), ran(false, Some("ops holds its address")));
        assert_eq!(class(&[]), UseClass::Idle);
        assert_eq!(class(&[&init]), UseClass::InitOnly);
        assert_eq!(class(&[&init, &hook]), UseClass::HooksOnly);
        assert_eq!(class(&[&hook, &used, &init]), UseClass::Used);
    }

    #[test]
    fn handlers_are_told_by_their_names() {
        assert!(is_entry("__ia32_sys_io_setup") && is_entry("sys_read") && is_entry("__x64_sys_futex"));
        assert!(!is_entry("do_sys_open") && !is_entry("sysfs_init") && !is_entry("ksys_read"));
    }
}
