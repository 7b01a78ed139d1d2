//! The contents of a rewritten graph: items with their sizes, and the chains that keep them.

use indexmap::IndexSet;
use kcfg::graph::{Graph, Life, Provenance};
use kcfg::index::{FunctionId, NodeId, NodeMap};
use kopt::explain::Chains;
use kopt::retained::{self, Retained};
use kplan::{ChainLink, Contents, Item, ItemKind, MemoryClass};
use rustc_hash::{FxBuildHasher, FxHashMap};
use typed_index_collections::ti_vec;

use crate::explain;
use crate::sizes::{Sizes, class};

/// Lists the contents of a graph after all passes.
pub fn contents(graph: &Graph, sizes: &Sizes) -> Contents {
    let chains = Chains::find(graph);
    let names = graph.names_by_node();
    let on_chain = on_chains(graph, &chains, &names);
    let mut builder = Builder {
        graph,
        names: &names,
        on_chain: &on_chain,
        reasons: graph.opaque().iter().map(|opaque| (opaque.node, opaque.reason)).collect(),
        retained: retained::of_nodes(graph),
        objects: IndexSet::default(),
        sections: IndexSet::default(),
        phrases: IndexSet::default(),
        numbers: FxHashMap::default(),
        items: Vec::new(),
    };
    for id in graph.node_ids() {
        builder.add(id, sizes);
    }
    let links = builder.links(&chains);
    Contents {
        steps: sizes.steps.iter().map(|&step| step.to_owned()).collect(),
        objects: builder.objects.into_iter().collect(),
        sections: builder.sections.into_iter().collect(),
        phrases: builder.phrases.into_iter().collect(),
        items: builder.items,
        links,
    }
}

/// Marks each node on the chain of a function or of a chunk with a name.
fn on_chains(graph: &Graph, chains: &Chains, names: &NodeMap<Vec<&str>>) -> NodeMap<bool> {
    let mut on_chain = ti_vec![false; graph.nodes().len()];
    let functions = graph.functions().iter().filter_map(|function| goal(chains, &function.blocks));
    let named = graph.node_ids().filter(|id| graph.block(*id).is_none() && !names[*id].is_empty());
    for goal in functions.chain(named) {
        let mut at = Some(goal);
        while let Some(node) = at.filter(|node| !std::mem::replace(&mut on_chain[*node], true)) {
            at = chains.step(node).map(|(_, from)| from);
        }
    }
    on_chain
}

/// Returns the block at which the chain of a function ends: the first reachable one.
fn goal(chains: &Chains, blocks: &[NodeId]) -> Option<NodeId> {
    let is_reachable = |&id: &NodeId| chains.step(id).is_some() || chains.root(id).is_some();
    blocks.iter().copied().find(is_reachable)
}

/// The parts of a program that are one item.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Function(FunctionId),
    Chunk(NodeId),
    /// All chunks without a name of an object and a section.
    Unnamed(usize, usize),
}

struct Builder<'g> {
    graph: &'g Graph,
    names: &'g NodeMap<Vec<&'g str>>,
    on_chain: &'g NodeMap<bool>,
    /// The reasons for opaque code.
    reasons: FxHashMap<NodeId, &'static str>,
    retained: NodeMap<Retained>,
    objects: IndexSet<String, FxBuildHasher>,
    sections: IndexSet<String, FxBuildHasher>,
    phrases: IndexSet<String, FxBuildHasher>,
    /// The numbers of items.
    numbers: FxHashMap<Key, usize>,
    items: Vec<Item>,
}

impl Builder<'_> {
    /// Adds a node to its item.
    fn add(&mut self, id: NodeId, sizes: &Sizes) {
        let size = &sizes.nodes[id];
        let class_after = class(self.graph, self.graph.section_of(id));
        let Some(class_before) = size.class_before.or(class_after) else { return };
        if size.before == 0 && size.after == 0 && size.removed.is_empty() && !self.on_chain[id] {
            return;
        }
        let number = self.number_of(id, class_before);
        let item = &mut self.items[number];
        item.before += size.before;
        add_to(&mut item.removed, size.removed.iter().copied());
        add_to(&mut item.after, class_after.filter(|_| size.after > 0).map(|class| (class, size.after)));
    }

    /// Returns the number of the item of a node, and adds the item if it is new.
    fn number_of(&mut self, id: NodeId, class_before: MemoryClass) -> usize {
        let (object, section) = self.place(id);
        let key = match self.graph.home_of(id) {
            Some(function) => Key::Function(function),
            None if self.names[id].is_empty() && !self.on_chain[id] => Key::Unnamed(object, section),
            None => Key::Chunk(id),
        };
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        let (kind, names, phrase) = self.describe(id, key);
        self.items.push(Item {
            kind,
            names,
            object,
            section,
            class_before,
            before: 0,
            after: Vec::new(),
            removed: Vec::new(),
            link: None,
            retained: [0; 3],
            phrase: phrase.map(|phrase| number(&mut self.phrases, phrase)),
        });
        self.numbers.insert(key, self.items.len() - 1);
        self.items.len() - 1
    }

    /// Returns the kind, the names and the phrase of an item.
    fn describe(&self, id: NodeId, key: Key) -> (ItemKind, Vec<String>, Option<String>) {
        let names = || self.names[id].iter().map(|&name| name.to_owned()).collect();
        match (key, self.graph.chunk(id)) {
            (Key::Function(function), _) => {
                (ItemKind::Function, vec![self.graph.function(function).name.clone()], None)
            }
            (Key::Unnamed(..), _) => (ItemKind::Unnamed, Vec::new(), None),
            (_, Some(chunk)) => match chunk.life {
                Life::Site(kind) => (ItemKind::TableEntry, names(), Some(format!("{kind:?}"))),
                Life::Referenced if chunk.code => {
                    (ItemKind::Code, names(), self.reasons.get(&id).map(|&reason| reason.to_owned()))
                }
                Life::Referenced => (ItemKind::Data, names(), None),
            },
            (_, None) => unreachable!("a block is part of a function"),
        }
    }

    /// Returns the object and the section of a node.
    fn place(&mut self, id: NodeId) -> (usize, usize) {
        // All blocks of a function are one item.
        let id = match self.graph.home_of(id) {
            Some(function) => self.graph.function(function).entry(),
            None => id,
        };
        let (object, section) = match (self.graph.input_of(id), self.graph.node(id).provenance) {
            (Some(input), _) => (input.object.to_string(), input.name.to_string()),
            (None, Provenance::Made(pass)) => {
                (format!("(made by {pass})"), self.graph.section_of(id).name.to_string())
            }
            (None, Provenance::Input(_)) => unreachable!("an origin names an input section"),
        };
        (number(&mut self.objects, object), number(&mut self.sections, section))
    }

    /// Returns the links of all chains, and sets the last link of each item.
    fn links(&mut self, chains: &Chains) -> Vec<ChainLink> {
        let mut links = Vec::new();
        let mut link_of: FxHashMap<NodeId, usize> = FxHashMap::default();
        for &id in chains.nodes().iter().filter(|&&id| self.on_chain[id]) {
            let function = self.graph.home_of(id);
            let from = chains.step(id).map(|(kind, from)| (kind, from, link_of.get(&from).copied()));
            // Edges within one function are no links.
            if let Some((_, previous, Some(link))) = from
                && function.is_some()
                && self.graph.home_of(previous) == function
            {
                link_of.insert(id, link);
                continue;
            }
            let key = function.map_or(Key::Chunk(id), Key::Function);
            let (Some(&item), Some(phrase)) = (
                self.numbers.get(&key),
                from.map(|(kind, ..)| explain::verb(kind).to_owned())
                    .or_else(|| chains.root(id).map(|reason| reason.to_string())),
            ) else {
                continue;
            };
            let phrase = number(&mut self.phrases, phrase);
            links.push(ChainLink { item, phrase, from: from.and_then(|(.., link)| link) });
            link_of.insert(id, links.len() - 1);
        }
        for (&key, &item) in &self.numbers {
            let goal = match key {
                Key::Function(function) => goal(chains, &self.graph.function(function).blocks),
                Key::Chunk(id) => Some(id),
                Key::Unnamed(..) => None,
            };
            let Some(goal) = goal else { continue };
            self.items[item].link = link_of.get(&goal).copied();
            let Retained { bytes, code, init } = self.retained[goal];
            self.items[item].retained = [bytes, code, init];
        }
        links
    }
}

/// Returns the number of a text in a list, and adds the text if it is new.
fn number(list: &mut IndexSet<String, FxBuildHasher>, text: String) -> usize {
    list.insert_full(text).0
}

/// Adds to the numbers of some keys.
fn add_to<K: PartialEq, N: std::ops::AddAssign>(
    sums: &mut Vec<(K, N)>,
    more: impl IntoIterator<Item = (K, N)>,
) {
    for (key, number) in more {
        match sums.iter_mut().find(|(of, _)| *of == key) {
            Some((_, sum)) => *sum += number,
            None => sums.push((key, number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use goblin::elf::section_header::{SHF_EXECINSTR, SHF_WRITE};
    use goblin::elf::sym::{STT_FILE, STT_FUNC, STT_OBJECT};
    use kelf::{InputFiles, Place, Program, Symbol};
    use kopt::reach::Reach;
    use kopt::{Options, PassRef};
    use kplan::Plan;

    use super::*;
    use crate::freeze::handmade::{address, branch, global, object, place, section};
    use crate::phases::Phases;
    use crate::rewrite::{self, RewriteInput, Rewritten};

    /// `main` calls `used`, which reads `state`; nothing calls `unused`, which would read `other`.
    fn program() -> Vec<u8> {
        let main = [0xe8, 0, 0, 0, 0, 0xc3];
        let read = [0xa1, 0, 0, 0, 0, 0xc3];
        let text = [main, read, read].concat();
        let relocs = vec![branch(1, 3), address(7, 5, 0), address(13, 6, 0)];
        let function = |name, value| Symbol { kind: STT_FUNC, size: 6, ..global(name, value, place(1)) };
        let variable =
            |name, size, number| Symbol { kind: STT_OBJECT, size, ..global(name, 0, place(number)) };
        let sections = vec![
            section(".text", SHF_EXECINSTR, 1, text, relocs),
            section(".data.state", SHF_WRITE, 4, vec![0; 4], Vec::new()),
            section(".data.other", SHF_WRITE, 4, vec![0; 8], Vec::new()),
        ];
        // Code is split into blocks only if a compiler made it, from a named file.
        let file = Symbol { kind: STT_FILE, name: "a.c", place: Place::Absolute, ..Symbol::null() };
        let symbols = vec![
            file,
            function("main", 0),
            function("used", 6),
            function("unused", 12),
            variable("state", 4, 2),
            variable("other", 8, 3),
        ];
        object(sections, symbols, &[]).write().unwrap()
    }

    fn rewritten() -> Contents {
        let files = InputFiles::of_bytes([("dir/a.o".to_owned(), program())]);
        let files = files.entered_by(&["main".to_owned()]);
        let input = RewriteInput::Objects { files, entries: vec!["main".to_owned()] };
        let program: Program<'_> = input.link().unwrap();
        let lifter = input.lifter(&program).unwrap();
        let mut phases = Phases::start(kcli::Progress::hidden());
        let (plan, passes) = (Plan::default(), [&Reach as PassRef]);
        let Ok(Rewritten { graph, mut sizes, .. }) =
            rewrite::run_passes(lifter, &plan, &passes, Options::default(), &mut phases, |_, _| ())
        else {
            panic!("the program cannot be rewritten");
        };
        let Ok(lowered) = rewrite::lower(&graph, &passes) else { panic!("the program cannot be lowered") };
        sizes.place(&lowered.code);
        contents(&graph, &sizes)
    }

    fn item<'c>(contents: &'c Contents, name: &str) -> &'c Item {
        let mut items = contents.items.iter();
        items.find(|item| item.names == [name]).unwrap_or_else(|| panic!("no {name} in {contents:?}"))
    }

    /// The names of the items on the chain of an item, with the phrases that lead to them.
    fn chain(contents: &Contents, name: &str) -> Vec<String> {
        let mut chain = Vec::new();
        let mut at = item(contents, name).link;
        while let Some(number) = at {
            let link = contents.links[number];
            let names = &contents.items[link.item].names;
            chain.insert(0, format!("{} {}", contents.phrases[link.phrase], names.join(",")));
            at = link.from;
        }
        chain
    }

    #[test]
    fn items_have_sizes_before_and_after() {
        let contents = rewritten();
        assert_eq!(
            (&*contents.objects, &*contents.steps),
            (&["dir/a.o".to_owned()][..], &["reach".to_owned()][..])
        );
        let of = |name| {
            let item = item(&contents, name);
            (item.kind, item.class_before, item.before, item.after.clone(), item.removed.clone())
        };
        let text = MemoryClass::Text;
        assert_eq!(of("main"), (ItemKind::Function, text, 6, vec![(text, 6)], vec![]));
        assert_eq!(of("unused"), (ItemKind::Function, text, 6, vec![], vec![(0, 6)]));
        assert_eq!(of("other"), (ItemKind::Data, MemoryClass::Data, 8, vec![], vec![(0, 8)]));
    }

    #[test]
    fn chains_and_retained_bytes() {
        let contents = rewritten();
        assert_eq!(chain(&contents, "state"), ["entry point main", "calls used", "refers to state"]);
        assert!(chain(&contents, "other").is_empty() && item(&contents, "other").link.is_none());
        assert_eq!(item(&contents, "main").retained, [16, 12, 0]);
        assert_eq!(item(&contents, "used").retained, [10, 6, 0]);
        assert_eq!(item(&contents, "unused").retained, [0, 0, 0]);
    }
}
