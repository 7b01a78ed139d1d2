//! The symbol table of the lowered object.

use goblin::elf::sym::{STB_GLOBAL, STB_LOCAL, STT_FILE, STT_FUNC, STT_SECTION};
use indexmap::IndexMap;
use kelf::{Place, SectionIndex, Symbol, SymbolIndex};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::{Graph, NodeKind, SymbolPlace, Target};
use crate::index::{NodeId, NodeMap, SymbolId};
use crate::mapping::{Content, symbol_in_front};
use crate::own::OWN;
use kisa::Encoding;

/// Symbols under construction.
pub(super) struct SymbolTable<'g> {
    graph: &'g Graph,
    pub symbols: Vec<Symbol<'g>>,
    /// For symbols of the graph, their indices in the table.
    indices: FxHashMap<SymbolId, SymbolIndex>,
    /// The first local symbol of a function at an offset in bytes of a section.
    function_at: FxHashMap<(SectionIndex, u32), SymbolIndex>,
    /// Symbols that were added for places in nodes.
    own: FxHashMap<(NodeId, i64), SymbolIndex>,
}

/// The places of the nodes in the output.
pub(super) struct Places<'l> {
    /// For each node, its output section, if it is alive.
    pub sections: &'l NodeMap<Option<SectionIndex>>,
    /// For each node, its offset there.
    pub offsets: &'l NodeMap<u32>,
    /// For each node, its end there, including branches.
    pub ends: &'l NodeMap<u32>,
    /// For each block, the end there of the sequence of blocks of its function that contains it.
    pub part_ends: &'l NodeMap<u32>,
}

impl<'g> SymbolTable<'g> {
    pub fn new(graph: &'g Graph) -> SymbolTable<'g> {
        SymbolTable {
            graph,
            symbols: vec![Symbol::null()],
            indices: FxHashMap::default(),
            function_at: FxHashMap::default(),
            own: FxHashMap::default(),
        }
    }

    /// Adds the symbol of a section.
    pub fn add_section(&mut self, section: SectionIndex) -> SymbolIndex {
        self.push(Symbol { kind: STT_SECTION, place: Place::Section(section), ..Symbol::null() })
    }

    /// Adds every symbol of a live node, except unlinked ones: the local symbols of each object after the symbol of
    /// its source file, then all others. Symbols that lifting made for references follow in the order of the `live`
    /// nodes that refer to them.
    pub fn add_defined(&mut self, places: &Places<'_>, live: impl Iterator<Item = NodeId>) {
        let mut files: IndexMap<*const u8, Vec<SymbolId>> = IndexMap::new();
        let mut others = Vec::new();
        for (id, symbol) in self.graph.symbols.iter_enumerated().filter(|(_, symbol)| !symbol.unlinked) {
            let SymbolPlace::Node(node, _) = symbol.place else { continue };
            if places.sections[node].is_none() || symbol.name == OWN {
                continue;
            }
            match &symbol.file {
                // Compare addresses: each object has its own symbol, even if two have the same name.
                Some(file) => files.entry(file.as_ptr()).or_default().push(id),
                None => others.push(id),
            }
        }
        for symbols in files.into_values() {
            self.add_file(self.graph.symbols[symbols[0]].file.as_deref().unwrap_or_default());
            symbols.into_iter().for_each(|id| self.add_placed(id, places));
        }
        others.into_iter().for_each(|id| self.add_placed(id, places));
        let graph = self.graph;
        for reference in live.flat_map(|node| graph.refs_of(node)) {
            if let Target::Symbol(symbol) = reference.target
                && graph.symbols[symbol].name == OWN
                && !self.indices.contains_key(&symbol)
            {
                self.add_placed(symbol, places);
            }
        }
    }

    /// Adds the symbol of a source file.
    fn add_file(&mut self, name: &'g str) {
        self.push(Symbol { name, kind: STT_FILE, place: Place::Absolute, ..Symbol::null() });
    }

    /// Adds a symbol of a live node.
    fn add_placed(&mut self, id: SymbolId, places: &Places<'_>) {
        let symbol = &self.graph.symbols[id];
        let SymbolPlace::Node(node, offset) = symbol.place else { return };
        let Some(section) = places.sections[node] else { return };
        let input = self.graph.node(node);
        let behind = offset > 0 && offset >= input.size && matches!(input.kind, NodeKind::Block(_));
        let value = if behind { places.ends[node] } else { places.offsets[node] + offset };
        let is_function = symbol.kind == STT_FUNC && offset == 0;
        let size = match input.kind {
            NodeKind::Block(_) if is_function => u64::from(places.part_ends[node] - value),
            _ => symbol.size,
        };
        let index = self.push(Symbol {
            name: &symbol.name,
            value: u64::from(value),
            thumb: symbol.thumb,
            size,
            binding: symbol.binding,
            kind: symbol.kind,
            other: symbol.other,
            place: Place::Section(section),
        });
        self.indices.insert(id, index);
        if symbol.kind == STT_FUNC && symbol.binding == STB_LOCAL {
            self.function_at.entry((section, value)).or_insert(index);
        }
    }

    /// Returns the starts of functions with a symbol, by section and offset in bytes.
    pub fn functions(&self) -> FxHashSet<(SectionIndex, u32)> {
        let functions = self.symbols.iter().filter(|symbol| symbol.kind == STT_FUNC && symbol.size > 0);
        let placed = functions.filter_map(|symbol| match symbol.place {
            Place::Section(section) => Some((section, symbol.value as u32)),
            _ => None,
        });
        placed.collect()
    }

    /// Adds a symbol for a part of a function that has none.
    pub fn add_part(
        &mut self,
        name: &'g str,
        section: SectionIndex,
        offset: u32,
        size: u64,
        encoding: Encoding,
    ) {
        let (value, thumb, place) = (offset.into(), encoding == Encoding::Thumb, Place::Section(section));
        let index = self.push(Symbol { name, value, thumb, size, kind: STT_FUNC, place, ..Symbol::null() });
        self.function_at.entry((section, offset)).or_insert(index);
    }

    /// Adds a mapping symbol at the start of this content.
    pub fn add_mapping(&mut self, section: SectionIndex, offset: u32, content: Content) {
        let (name, value, place) = (symbol_in_front(content), offset.into(), Place::Section(section));
        self.push(Symbol { name, value, place, ..Symbol::null() });
    }

    /// Adds every undefined global symbol of the objects, even without a live reference: the linker may add a member of
    /// a library for each, which may have effects of its own (constructors). Also adds every absolute global symbol,
    /// which takes no memory: a linker script may name it. Sorts them by name, because the order of the references
    /// depends on the order of the sections.
    pub fn add_unplaced(&mut self) {
        let symbols = &self.graph.symbols;
        let is_unplaced = |id: &SymbolId| {
            let place = matches!(symbols[*id].place, SymbolPlace::Undefined | SymbolPlace::Absolute(_));
            place && symbols[*id].binding == STB_GLOBAL
        };
        let mut unplaced: Vec<SymbolId> = symbols.keys().filter(is_unplaced).collect();
        unplaced.sort_by_key(|&id| &symbols[id].name);
        for id in unplaced {
            self.index(id);
        }
    }

    /// Returns the index of a symbol, and adds it if the object does not define it. `None` if its node was removed.
    pub fn index(&mut self, id: SymbolId) -> Option<SymbolIndex> {
        if let Some(&index) = self.indices.get(&id) {
            return Some(index);
        }
        let symbol = &self.graph.symbols[id];
        let (value, place) = match symbol.place {
            SymbolPlace::Node(..) => return None,
            SymbolPlace::Undefined => (0, Place::Undefined),
            SymbolPlace::Common(align) => (align, Place::Common),
            SymbolPlace::Absolute(value) => (value, Place::Absolute),
        };
        let index = self.push(Symbol {
            name: &symbol.name,
            value,
            thumb: false,
            size: symbol.size,
            binding: symbol.binding,
            kind: symbol.kind,
            other: symbol.other,
            place,
        });
        self.indices.insert(id, index);
        Some(index)
    }

    /// Returns the symbol for branches to an offset in bytes from the start of a node, if they must not be against a
    /// section symbol: the symbol of the function there, or a new one. A global symbol may resolve to another object's
    /// in the link.
    pub fn branch_target(&mut self, node: NodeId, offset: i64, places: &Places<'_>) -> Option<SymbolIndex> {
        let place = u32::try_from(i64::from(places.offsets[node]) + offset).ok()?;
        let section = places.sections[node]?;
        let function = self.function_at.get(&(section, place)).copied();
        function.or_else(|| self.own(node, offset, places))
    }

    /// Returns a local symbol at an offset in bytes from the start of a node, for references that must not be against a
    /// section symbol.
    pub fn own(&mut self, node: NodeId, offset: i64, places: &Places<'_>) -> Option<SymbolIndex> {
        if let Some(&index) = self.own.get(&(node, offset)) {
            return Some(index);
        }
        let section = places.sections[node]?;
        let index = self.push(Symbol {
            name: OWN,
            value: u64::try_from(i64::from(places.offsets[node]) + offset).ok()?,
            kind: self.graph.section_of(node).kind_of_place(),
            place: Place::Section(section),
            ..Symbol::null()
        });
        self.own.insert((node, offset), index);
        Some(index)
    }

    fn push(&mut self, symbol: Symbol<'g>) -> SymbolIndex {
        self.symbols.push(symbol);
        SymbolIndex::from(self.symbols.len() - 1)
    }
}
