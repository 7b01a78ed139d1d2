/*!
Pass `exports`: removes the exports that no shipped module may use.

In a kernel with loadable modules, every export is a root. The plan lists the modules ([`kplan::Exports`]). An export
is kept if

- a module of the list imports it;
- its name is a string ([`names_in`]) in data of a module, or in data that the kernel can reach: `symbol_get()`,
  kallsyms, kprobes and live patches look symbols up by name;
- the id of its type is listed for BPF programs (`__BTF_ID__func__NAME__N`, include/linux/btf_ids.h).

The other entries are removed, and pass [`reach`](mod@crate::reach) removes everything that only they kept alive. The
kernel refuses a module that needs such a symbol (`Unknown symbol` in kernel/module/main.c).

From Linux 6.5 on, an export is an entry of the section `.export_symbol` with the label `__export_symbol_NAME`
(include/linux/export.h); modpost makes the table of exports from these entries when the kernel is linked. Before 6.5,
an export is a section `___ksymtab+NAME` or `___ksymtab_gpl+NAME`, and its name is a string in `__ksymtab_strings`. An
entry without a known name is kept and reported.
*/

use kcfg::edges::Edges;
use kcfg::graph::{Editor, Graph, Root, SymbolPlace};
use kcfg::index::{NodeId, NodeSet};
use kcfg::special::{RootReason, World};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::pass::{Context, Facts, Pass, Phase, Runs};
use crate::reach::add_reachable;
use crate::report::PassReport;

/// The section of entries from Linux 6.5 on.
const ENTRIES: &str = ".export_symbol";
/// The prefix of the labels of its entries.
const LABEL: &str = "__export_symbol_";
/// The section with the names of exports before Linux 6.5.
const STRINGS: &str = "__ksymtab_strings";
/// The count of entries that were removed.
pub(crate) const REMOVED: &str = "exports removed";

/// Pass `exports`: removes the exports that no module of the plan may use.
pub struct Exports;

impl Pass for Exports {
    fn facts(&self) -> Facts {
        Facts {
            name: "exports",
            summary: "removes the exports that no module of --modules uses",
            phase: Phase::Removes,
            runs: Runs::WithPlan(|plan| plan.exports.is_some()),
            on_64_bits: true,
        }
    }

    fn run(&self, graph: &mut Graph, context: &mut Context<'_>) -> PassReport {
        let plan = context.plan;
        let mut report = PassReport::new(self.name());
        if !matches!(graph.world(), World::Kernel(_)) {
            return report;
        }
        let Some(exports) = &plan.exports else {
            report.keep("all exports", "the plan does not list the modules that ship");
            return report;
        };
        split_entries(graph);
        let table = Table::of(graph);
        let Used { listed, looked_up } = Used::of(graph, &table, exports);
        let needed = needed_otherwise(graph);
        for (&node, name) in &table.names {
            let stays = listed.contains(name) || looked_up.contains(name) || needed.contains(node);
            if !stays {
                report.removed.remove(graph, node);
                report.count(REMOVED, 1);
            }
        }
        graph.retain_roots(|graph, root| {
            let exported = root.reason == RootReason::Exported;
            !exported || graph.node(root.node).live && !table.is_decided_by_entry(root)
        });
        let needed = needed_otherwise(graph);
        for &node in table.strings.iter().filter(|&&node| !needed.contains(node)) {
            report.removed.remove(graph, node);
        }
        let mut looked_up: Vec<&String> = looked_up.iter().collect();
        looked_up.sort_unstable();
        for name in looked_up {
            report.keep(name, "its name is in data, where it may be looked up");
        }
        for &node in &table.unnamed {
            report.keep(graph.name_of(node), "an export without the label that names it");
        }
        report
    }
}

/// Returns the possible names in data: strings of letters, digits, underscores and dots before a zero byte. Any other
/// byte may precede them, as in `symbol:NAME` or in a structure.
pub fn names_in(bytes: &[u8]) -> impl Iterator<Item = &str> {
    let texts = bytes.split_inclusive(|&byte| byte == 0).filter_map(|text| text.strip_suffix(&[0]));
    texts.filter_map(|text| {
        let start = text.iter().rposition(|&byte| !is_word(byte)).map_or(0, |before| before + 1);
        std::str::from_utf8(&text[start..]).ok().filter(|name| !name.is_empty())
    })
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.'
}

/// Cuts sections of entries apart at the labels of the entries.
fn split_entries(graph: &mut Graph) {
    let mut cuts: FxHashMap<NodeId, Vec<u32>> = FxHashMap::default();
    for symbol in graph.symbols() {
        if let SymbolPlace::Node(node, offset) = symbol.place
            && offset > 0
            && symbol.name.starts_with(LABEL)
            && *graph.section_of(node).name == *ENTRIES
            && offset < graph.node(node).size
        {
            cuts.entry(node).or_default().push(offset);
        }
    }
    let mut cuts: Vec<(NodeId, Vec<u32>)> = cuts.into_iter().collect();
    cuts.sort_unstable();
    let mut editor = Editor::new(graph, "exports");
    for (node, mut offsets) in cuts {
        offsets.sort_unstable();
        offsets.dedup();
        // Every entry ends with an aligned address.
        let align = editor.graph().node(node).align.max(1);
        let cuts: Vec<(u32, u32)> =
            offsets.iter().map(|&at| (at, align.min(1 << at.trailing_zeros()))).collect();
        editor.split_data(node, &cuts);
    }
    editor.finish();
}

/// The exports of a graph.
struct Table {
    /// The entries by node, each with the name of its symbol.
    names: FxHashMap<NodeId, String>,
    /// The entries of each name.
    entries: FxHashMap<String, Vec<NodeId>>,
    /// Entries without a known name.
    unnamed: Vec<NodeId>,
    /// The strings of Linux before 6.5.
    strings: Vec<NodeId>,
    /// Places of symbols that have entries.
    places: FxHashSet<(NodeId, u32)>,
}

impl Table {
    fn of(graph: &Graph) -> Table {
        let mut labels: FxHashMap<NodeId, &str> = FxHashMap::default();
        for symbol in graph.symbols() {
            if let (SymbolPlace::Node(node, 0), Some(name)) = (symbol.place, symbol.name.strip_prefix(LABEL))
            {
                labels.insert(node, name);
            }
        }
        let mut table = Table {
            names: FxHashMap::default(),
            entries: FxHashMap::default(),
            unnamed: Vec::new(),
            strings: Vec::new(),
            places: FxHashSet::default(),
        };
        for section in graph.sections() {
            let live = section.nodes.iter().copied().filter(|&node| graph.node(node).live);
            match &*section.name {
                ENTRIES => live.for_each(|node| table.add(node, labels.get(&node).copied())),
                STRINGS => table.strings.extend(live),
                name => {
                    if let Some(name) = name_of_section(name) {
                        live.for_each(|node| table.add(node, Some(name)));
                    }
                }
            }
        }
        table.unnamed.sort_unstable();
        for symbol in graph.symbols() {
            if let SymbolPlace::Node(node, offset) = symbol.place
                && table.entries.contains_key(&symbol.name)
            {
                table.places.insert((node, offset));
            }
        }
        table
    }

    fn add(&mut self, node: NodeId, name: Option<&str>) {
        let Some(name) = name else { return self.unnamed.push(node) };
        self.names.insert(node, name.to_owned());
        self.entries.entry(name.to_owned()).or_default().push(node);
    }

    /// Whether the target of a root is kept only if an entry is: an exported symbol, or the string with its name.
    fn is_decided_by_entry(&self, root: &Root) -> bool {
        self.places.contains(&(root.node, root.range.start)) || self.strings.contains(&root.node)
    }
}

/// The names of exports that are kept.
struct Used {
    /// Names that the plan lists.
    listed: FxHashSet<String>,
    /// Other names that may be looked up.
    looked_up: FxHashSet<String>,
}

impl Used {
    /// Finds the names. A name in data counts only if the data is reachable; a kept export makes its code and data
    /// reachable.
    fn of(graph: &Graph, table: &Table, exports: &kplan::Exports) -> Used {
        let listed = exports.modules.iter().flat_map(|module| module.imports.iter().chain(&module.strings));
        let listed: FxHashSet<String> =
            listed.filter(|&name| table.entries.contains_key(name)).cloned().collect();
        let mut looked_up: FxHashSet<String> = FxHashSet::default();
        let stays = |root: &&Root| {
            let exported = root.reason == RootReason::Exported;
            !exported || !table.names.contains_key(&root.node) && !table.is_decided_by_entry(root)
        };
        let mut from: Vec<NodeId> = graph.roots().iter().filter(stays).map(|root| root.node).collect();
        from.extend(listed.iter().flat_map(|name| &table.entries[name]));
        let (edges, types) = (Edges::of(graph), types_for_bpf(graph));
        let mut reachable = NodeSet::with_capacity(graph.nodes().len());
        while !from.is_empty() {
            for node in add_reachable(graph, &edges, std::mem::take(&mut from), &mut reachable) {
                let types = types.get(&node).into_iter().flatten().copied();
                for name in names_of(graph, node).chain(types).filter(|&name| !listed.contains(name)) {
                    if let Some(entries) = table.entries.get(name)
                        && looked_up.insert(name.to_owned())
                    {
                        from.extend(entries);
                    }
                }
            }
        }
        Used { listed, looked_up }
    }
}

/// Returns the names that a node can look up: strings in its data, and strings inside the data that it refers to.
fn names_of(graph: &Graph, node: NodeId) -> impl Iterator<Item = &str> {
    let data =
        |node: NodeId| graph.chunk(node).is_some_and(|chunk| !chunk.code).then(|| graph.bytes_of(node));
    let inside = graph.refs_of(node).iter().filter_map(move |reference| {
        let (to, offset) = graph.resolve(reference.target)?;
        let at = usize::try_from(i64::from(offset) + reference.addend).ok().filter(|&at| at > 0)?;
        let text = data(to)?.get(at..)?;
        let name = &text[..text.iter().position(|&byte| byte == 0)?];
        std::str::from_utf8(name).ok().filter(|name| name.bytes().all(is_word))
    });
    names_in(data(node).unwrap_or_default()).chain(inside)
}

/// For each node, the names whose type ids it holds for BPF programs, by its labels.
fn types_for_bpf(graph: &Graph) -> FxHashMap<NodeId, Vec<&str>> {
    let mut types: FxHashMap<NodeId, Vec<&str>> = FxHashMap::default();
    for symbol in graph.symbols() {
        if let SymbolPlace::Node(node, _) = symbol.place
            && let Some((_, rest)) =
                symbol.name.strip_prefix("__BTF_ID__").and_then(|kind| kind.split_once("__"))
            && let Some((name, _)) = rest.rsplit_once("__")
        {
            types.entry(node).or_default().push(name);
        }
    }
    types
}

/// The nodes with a live reference, or with a root other than an export.
fn needed_otherwise(graph: &Graph) -> NodeSet {
    let mut needed = NodeSet::with_capacity(graph.nodes().len());
    for node in graph.node_ids().filter(|&node| graph.node(node).live) {
        let targets = graph.refs_of(node).iter().filter_map(|reference| graph.resolve_node(reference.target));
        needed.extend(targets);
    }
    let roots = graph.roots().iter().filter(|root| root.reason != RootReason::Exported);
    needed.extend(roots.map(|root| root.node));
    needed
}

/// Returns the name in `___ksymtab+NAME` and similar section names.
fn name_of_section(name: &str) -> Option<&str> {
    let (table, name) = name.split_once('+')?;
    matches!(table, "___ksymtab" | "___ksymtab_gpl" | "___kcrctab" | "___kcrctab_gpl").then_some(name)
}
