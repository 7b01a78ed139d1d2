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

use std::ops::Range;

use kcfg::edges::{Destination, EdgeKind, Edges};
use kcfg::graph::{CodeName, Graph, Role, SymbolPlace};
use kcfg::index::{InputId, NodeId};
use kopt::names::CodeNames;
use kplan::{Coverage, CoveredFunction, FunctionName, UseClass};
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
    /// Its first block in the graph of the kernel as it was built.
    pub node: NodeId,
    /// Whether the kernel frees it after it has started.
    pub is_init: bool,
    /// The reason why it may be more than a hook; `None` if it is a hook, or runs only while the kernel starts.
    pub used: Option<String>,
    /// Whether a notifier chain may call it.
    pub is_notified: bool,
    /// The direct calls of it. For functions of `.init` sections, also the places that hold its address.
    pub callers: Vec<Caller>,
}

/// A place that calls a function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Caller {
    /// The object's name.
    pub object: String,
    /// The place in the graph of the kernel as it was built.
    pub node: NodeId,
}

/// The code of an option.
#[derive(Clone, Copy)]
pub struct Inside<'a> {
    /// The objects that are linked for it alone, by name.
    pub objects: &'a [&'a str],
    /// Its parts of other objects.
    pub parts: &'a FxHashSet<NodeId>,
}

impl Inside<'_> {
    fn contains(&self, caller: &Caller) -> bool {
        self.objects.binary_search(&caller.object.as_str()).is_ok() || self.parts.contains(&caller.node)
    }
}

/// The functions that ran, by object.
#[derive(Default)]
pub struct Ran {
    functions: Vec<RanFunction>,
    /// Numbers of functions.
    of_object: FxHashMap<String, Vec<usize>>,
    of_node: FxHashMap<NodeId, usize>,
    /// The bytes that ran in each input section, as offsets.
    bytes: FxHashMap<InputId, Vec<Range<u64>>>,
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
                Some(named) => {
                    ran.add_bytes(graph, named, covered);
                    found.push((named.node, covered));
                }
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
            let number = ran.functions.len();
            ran.functions.push(RanFunction { name, node, is_init, used, is_notified, callers });
            ran.of_node.insert(node, number);
            ran.of_object.entry(input.object.to_string()).or_default().push(number);
        }
        ran
    }

    /// Notes the bytes of a function that ran: all, if the trace does not tell which.
    fn add_bytes(&mut self, graph: &Graph, named: CodeName<'_>, covered: &CoveredFunction) {
        let Some(origin) = graph.node(named.node).origin() else { return };
        let start = u64::from(origin.offset) + u64::from(named.offset);
        let ran = self.bytes.entry(origin.section).or_default();
        match &covered.ran {
            Some(ranges) => {
                ran.extend(ranges.iter().map(|range| start + range.offset..start + range.offset + range.size))
            }
            None => ran.push(start..start + covered.size.max(named.symbol.size)),
        }
    }

    /// Whether any of some bytes of an input section ran.
    pub fn any(&self, section: InputId, bytes: &Range<u64>) -> bool {
        let ran = self.bytes.get(&section).into_iter().flatten();
        ran.into_iter().any(|ran| ran.start < bytes.end && bytes.start < ran.end)
    }

    /// Iterates over all functions.
    pub fn functions(&self) -> impl Iterator<Item = &RanFunction> {
        self.functions.iter()
    }

    /// Returns the function that begins with a block, if it ran.
    pub fn at(&self, node: NodeId) -> Option<&RanFunction> {
        self.of_node.get(&node).map(|&number| &self.functions[number])
    }

    /// Returns the functions of some objects and blocks that ran, each once: first those of the objects in their order.
    pub fn in_code(&self, inside: Inside<'_>) -> Vec<&RanFunction> {
        let of_objects = inside.objects.iter().filter_map(|object| self.of_object.get(*object)).flatten();
        let mut blocks: Vec<&NodeId> = inside.parts.iter().collect();
        blocks.sort_unstable();
        let of_blocks = blocks.into_iter().filter_map(|node| self.of_node.get(node));
        let mut seen = FxHashSet::default();
        let numbers = of_objects.chain(of_blocks).filter(|&&number| seen.insert(number));
        numbers.map(|&number| &self.functions[number]).collect()
    }
}

impl RanFunction {
    /// Returns an object with a direct call of the function from outside.
    pub fn caller_outside(&self, inside: Inside<'_>) -> Option<&str> {
        let caller = self.callers.iter().find(|caller| !inside.contains(caller))?;
        Some(&caller.object)
    }
}

/// Returns the class of some code, of which these functions ran.
pub fn class(ran: &[&RanFunction], inside: Inside<'_>) -> UseClass {
    let registered = |function: &&RanFunction| {
        function.used.is_none() && !function.is_notified && function.caller_outside(inside).is_none()
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

/// The live handlers of system calls in a graph.
pub struct Handlers<'g> {
    /// Name, object, and node.
    all: Vec<(&'g str, &'g str, NodeId)>,
}

impl<'g> Handlers<'g> {
    /// Finds the live handlers by their names.
    pub fn of(graph: &'g Graph) -> Handlers<'g> {
        let handler = |named: CodeName<'g>| {
            let is_handler = is_entry(&named.symbol.name) && graph.node(named.node).live;
            let input = graph.input_of(named.node).filter(|_| is_handler)?;
            Some((named.symbol.name.as_str(), &*input.object, named.node))
        };
        Handlers { all: graph.code_names().filter_map(handler).collect() }
    }

    /// Returns the handlers in some code, by name.
    pub fn inside(&self, inside: Inside<'_>) -> Vec<&'g str> {
        let is_inside = |(_, object, node): &&(&str, &str, NodeId)| {
            inside.objects.binary_search(object).is_ok() || inside.parts.contains(node)
        };
        self.all.iter().filter(is_inside).map(|(name, ..)| *name).collect()
    }

    /// Whether there is a handler of this name.
    pub fn has(&self, name: &str) -> bool {
        self.all.iter().any(|(own, ..)| *own == name)
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
    /// The places with a direct call of each function.
    callers: FxHashMap<NodeId, Vec<NodeId>>,
    /// The code that refers to each piece of data that holds the address of a function, with the offset there.
    of_data: FxHashMap<NodeId, Vec<(NodeId, i64)>>,
    /// The variables in these pieces of data, and functions: name, offset in bytes, and size.
    symbols: FxHashMap<NodeId, Vec<(&'g str, u32, u64)>>,
}

impl<'g> Users<'g> {
    fn of(graph: &'g Graph, functions: FxHashSet<NodeId>) -> Users<'g> {
        let live = || graph.node_ids().filter(|&id| graph.node(id).live);
        let mut by_address: FxHashMap<NodeId, Vec<(NodeId, u32)>> = FxHashMap::default();
        let mut callers: FxHashMap<NodeId, Vec<NodeId>> = FxHashMap::default();
        let edges = Edges::of(graph);
        for id in live() {
            for reference in graph.refs_of(id) {
                let Some(to) = graph.resolve_node(reference.target).filter(|to| functions.contains(to))
                else {
                    continue;
                };
                if graph.takes_address(id, reference) {
                    by_address.entry(to).or_default().push((id, reference.offset));
                } else if reference.role != Role::Site {
                    // A direct call; hand-written code is not decoded, and has no other sign of one.
                    callers.entry(to).or_default().push(id);
                }
            }
            edges.for_each(id, |edge| {
                if let (EdgeKind::TailCall | EdgeKind::Switch, Destination::Node(to)) = (edge.kind, edge.to)
                    && functions.contains(&to)
                {
                    callers.entry(to).or_default().push(id);
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
        for symbol in graph.symbols().iter().filter(|symbol| !symbol.name.is_empty()) {
            if let SymbolPlace::Node(node, offset) = symbol.place {
                symbols.entry(node).or_default().push((symbol.name.as_str(), offset, symbol.size));
            }
        }
        Users { graph, by_address, callers, of_data, symbols }
    }

    /// Returns the places with a direct call of a function, and `with_holders` those that hold its address, by the name of
    /// their objects.
    fn callers(&self, function: NodeId, with_holders: bool) -> Vec<Caller> {
        let direct = self.callers.get(&function).into_iter().flatten().copied();
        let holders = self.holders(function).filter(|_| with_holders).map(|(holder, _)| holder);
        let caller = |node| Some(Caller { object: self.graph.input_of(node)?.object.to_string(), node });
        let mut callers: Vec<Caller> = direct.chain(holders).filter_map(caller).collect();
        callers.sort_unstable();
        callers.dedup();
        callers
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
            && size == 3 * u64::from(self.graph.machine().word_size());
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
        let callers = vec![Caller { object: "a.o".to_owned(), node: NodeId::from(7) }];
        let (name, used) = (FunctionName::global("f"), used.map(str::to_owned));
        RanFunction { name, node: NodeId::from(1), is_init, used, is_notified: false, callers }
    }

    #[test]
    fn class_is_that_of_the_most_used_function() {
        let (init, hook, used) =
            (ran(true, None), ran(false, None), ran(false, Some("ops holds its address")));
        let of = |ran: &[&RanFunction], objects: &[&str]| {
            class(ran, Inside { objects, parts: &FxHashSet::default() })
        };
        assert_eq!(of(&[], &["a.o"]), UseClass::Idle);
        assert_eq!(of(&[&init], &["a.o", "b.o"]), UseClass::InitOnly);
        assert_eq!(of(&[&init], &["b.o"]), UseClass::HooksOnly);
        assert_eq!(of(&[&init, &hook], &["a.o"]), UseClass::InitOnly);
        let notified = RanFunction { is_notified: true, ..ran(false, None) };
        assert_eq!(of(&[&init, &notified], &["a.o"]), UseClass::HooksOnly);
        assert_eq!(of(&[&hook], &["b.o"]), UseClass::HooksOnly);
        assert_eq!(of(&[&hook, &used, &init], &["a.o"]), UseClass::Used);
        let parts = FxHashSet::from_iter([NodeId::from(7)]);
        assert_eq!(class(&[&hook], Inside { objects: &[], parts: &parts }), UseClass::InitOnly);
    }

    #[test]
    fn handlers_are_told_by_their_names() {
        assert!(is_entry("__ia32_sys_io_setup") && is_entry("sys_read") && is_entry("__x64_sys_futex"));
        assert!(!is_entry("do_sys_open") && !is_entry("sysfs_init") && !is_entry("ksys_read"));
    }
}
