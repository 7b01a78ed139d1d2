//! Turns symbols of the objects into symbols of the graph, with their places.

use std::sync::Arc;

use goblin::elf::sym::{
    STB_GLOBAL, STB_LOCAL, STB_WEAK, STT_FILE, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, STT_OBJECT, STT_SECTION,
};
use kelf::{Definition, GlobalIndex, ObjectIndex, Place, Resolved, SymbolIndex};
use rustc_hash::FxHashSet;

use super::Connector;
use crate::carried::HAND_WRITTEN;
use crate::graph::{NodeKind, Symbol, SymbolPlace};
use crate::index::{NodeId, SymbolId};
use crate::mapping::{content_behind, symbol_in_front};
use crate::own::OWN;

impl<'p> Connector<'_, 'p> {
    /// Adds every named symbol that the program defines, and names functions after them.
    pub(super) fn define_symbols(&mut self) {
        for (i, input) in self.program.objects.iter().enumerate() {
            let object_index = ObjectIndex::from(i);
            let mut file: Arc<str> = member_name(&input.object.name).into();
            for (j, symbol) in input.object.symbols.iter().enumerate() {
                if symbol.kind == STT_FILE {
                    file = symbol.name.into();
                }
                if symbol.name.is_empty()
                    || symbol.name.starts_with(".L")
                    || matches!(symbol.kind, STT_SECTION | STT_FILE)
                {
                    continue;
                }
                let place = match symbol.place {
                    Place::Undefined | Place::Common => continue,
                    Place::Absolute => SymbolPlace::Absolute(symbol.value),
                    Place::Section(section) => {
                        let Some(id) = self.lifted.section(object_index, section) else { continue };
                        let Some((node, offset)) = self.lifted.locate(id, symbol.value as i64) else {
                            continue;
                        };
                        // Lowering creates mapping symbols anew, except for opaque code.
                        let whole = self.lifted.graph.chunk(node).is_some_and(|chunk| chunk.code);
                        if content_behind(self.program.machine, symbol.name).is_some() && !whole {
                            continue;
                        }
                        SymbolPlace::Node(node, offset as u32)
                    }
                };
                let id = self.lifted.graph.symbols.next_key();
                let says_encoding = self.program.machine.target().has_encoding_bit && symbol.kind == STT_FUNC;
                if (symbol.kind == STT_GNU_IFUNC || says_encoding) && symbol.is_local() {
                    self.by_symbol.insert((object_index, SymbolIndex::from(j)), id);
                }
                let (mut binding, mut unlinked) = (symbol.binding, false);
                if binding != STB_LOCAL {
                    match self.program.resolve(object_index, SymbolIndex::from(j)) {
                        Resolved::Global(global)
                            if self.program.global(global).definition
                                == Definition::In(object_index, SymbolIndex::from(j)) =>
                        {
                            self.globals.insert(global, id);
                        }
                        // An overridden weak definition keeps its code and its name, as a local symbol.
                        _ => (binding, unlinked) = (STB_LOCAL, true),
                    }
                }
                self.lifted.graph.symbols.push(Symbol {
                    name: symbol.name.to_owned(),
                    file: (binding == STB_LOCAL).then(|| Arc::clone(&file)),
                    binding,
                    kind: symbol.kind,
                    other: symbol.other,
                    size: symbol.size,
                    thumb: symbol.thumb,
                    place,
                    unlinked,
                });
                self.name_code(id);
            }
        }
    }

    /// Adds the undefined symbols of objects that no relocation refers to: the linker adds members of libraries that
    /// define them.
    pub(super) fn declare_undefined(&mut self) {
        for (i, input) in self.program.objects.iter().enumerate() {
            for (j, symbol) in input.object.symbols.iter().enumerate() {
                if symbol.place == Place::Undefined
                    && let Resolved::Global(global) =
                        self.program.resolve(ObjectIndex::from(i), SymbolIndex::from(j))
                    && self.program.global(global).definition == Definition::Undefined
                {
                    self.global(global);
                }
            }
        }
    }

    /// Records the sections of each COMDAT group, so that the final link still drops their duplicates.
    pub(super) fn groups(&mut self) {
        for (i, input) in self.program.objects.iter().enumerate() {
            let object_index = ObjectIndex::from(i);
            for group in input.object.groups.iter().filter(|group| group.flags != 0) {
                let Resolved::Global(signature) = self.program.resolve(object_index, group.signature) else {
                    continue;
                };
                let signature = self.global(signature);
                for &member in &group.members {
                    if let Some(id) = self.lifted.section(object_index, member) {
                        self.lifted.graph.sections[id].group = Some(signature);
                    }
                }
            }
        }
    }

    /// Names a function, or opaque code, by the first symbol at its start, a global one before a local one.
    fn name_code(&mut self, id: SymbolId) {
        let graph = &mut self.lifted.graph;
        let symbol = &graph.symbols[id];
        let SymbolPlace::Node(node, 0) = symbol.place else { return };
        if symbol.kind != STT_FUNC {
            return;
        }
        match &graph.nodes[node].kind {
            NodeKind::Block(block) => {
                let function = &mut graph.functions[block.function];
                if function.entry() == node && (function.name.contains(':') || symbol.binding == STB_GLOBAL) {
                    function.name.clone_from(&symbol.name);
                }
            }
            NodeKind::Chunk(_) => {
                let i = graph.opaque.partition_point(|opaque| opaque.node < node);
                if let Some(opaque) = graph.opaque.get_mut(i).filter(|opaque| opaque.node == node)
                    && opaque.reason != HAND_WRITTEN
                    && (opaque.name.contains(':') || symbol.binding == STB_GLOBAL)
                {
                    opaque.name.clone_from(&symbol.name);
                }
            }
        }
    }

    /// Adds a mapping symbol to each opaque function that does not begin with one.
    pub(super) fn mark_encodings(&mut self) {
        if self.program.machine.target().mapping_symbols.is_empty() {
            return;
        }
        let contents = std::mem::take(&mut self.lifted.contents);
        let marks = self.lifted.graph.symbols.iter().filter_map(|symbol| match symbol.place {
            SymbolPlace::Node(node, 0) => content_behind(self.program.machine, &symbol.name).map(|_| node),
            _ => None,
        });
        let marked: FxHashSet<NodeId> = marks.collect();
        for (node, content) in contents.into_iter().filter(|(node, _)| !marked.contains(node)) {
            let name = symbol_in_front(content).to_owned();
            let input = &self.lifted.graph.inputs[self.lifted.origin(node).section];
            let file = Some(Arc::clone(&input.object));
            let place = SymbolPlace::Node(node, 0);
            self.add_symbol(Symbol { name, file, place, ..Symbol::unnamed() });
        }
    }

    /// Returns the symbol of a global name, and adds it if no object defines it.
    pub(super) fn global(&mut self, global: GlobalIndex) -> SymbolId {
        if let Some(&id) = self.globals.get(&global) {
            return id;
        }
        let info = self.program.global(global);
        let (kind, size, place) = match info.definition {
            Definition::Common { size, align } => (STT_OBJECT, size, SymbolPlace::Common(align)),
            _ => (STT_NOTYPE, 0, SymbolPlace::Undefined),
        };
        let id = self.add_symbol(Symbol {
            name: self.program.global_name(global).to_owned(),
            file: None,
            binding: if info.weak { STB_WEAK } else { STB_GLOBAL },
            kind,
            other: info.visibility,
            size,
            thumb: false,
            place,
            unlinked: false,
        });
        self.globals.insert(global, id);
        id
    }

    pub(super) fn absolute(&mut self, value: u64) -> SymbolId {
        if let Some(&id) = self.absolutes.get(&value) {
            return id;
        }
        let place = SymbolPlace::Absolute(value);
        let id = self.add_symbol(Symbol { name: format!("ABS_{value:x}"), place, ..Symbol::unnamed() });
        self.absolutes.insert(value, id);
        id
    }

    /// Returns a symbol for a place.
    pub(super) fn place_symbol(&mut self, node: NodeId, offset: u32) -> SymbolId {
        if let Some(&id) = self.places.get(&(node, offset)) {
            return id;
        }
        let place = SymbolPlace::Node(node, offset);
        let kind = self.lifted.graph.section_of(node).kind_of_place();
        let id = self.add_symbol(Symbol { name: OWN.to_owned(), kind, place, ..Symbol::unnamed() });
        self.places.insert((node, offset), id);
        id
    }

    fn add_symbol(&mut self, symbol: Symbol) -> SymbolId {
        self.lifted.graph.symbols.push_and_get_key(symbol)
    }
}

/// Returns the file name of an object, which GNU ld uses as the source file of local symbols of an object without
/// `STT_FILE`.
fn member_name(object: &str) -> &str {
    let path = object.trim_end_matches(')');
    path.rsplit(['/', '(']).next().unwrap_or(path)
}
