//! Writes the placed nodes: bytes, relocations, sections.

mod padding;
mod references;

use goblin::elf::section_header::{SHF_EXECINSTR, SHF_GROUP, SHF_LINK_ORDER, SHT_NOBITS, SHT_PROGBITS};
use indexmap::IndexMap;
use kelf::{ATTRIBUTES, Attributes, Group, Object, Reloc, RelocClass, Section, SectionIndex, SymbolIndex};
use rustc_hash::{FxHashMap, FxHashSet};
use typed_index_collections::{TiVec, ti_vec};

use super::lowered::{Error, Lowered, PlacedCode};
use super::pack;
use super::relax::{self, Placed, PlacedNode, Relax};
use super::symbols::{Places, SymbolTable};
use super::unwind;
use crate::carried::{self, Carried, HAND_WRITTEN, TABLE};
use crate::graph::{Block, Graph, JumpTable, NodeKind, Role, StackNote, SymbolPlace, Terminator};
use crate::index::{FunctionId, IdSet, NodeId, NodeMap, SectionId, SymbolId};
use crate::mapping::Content;
use crate::own::{OUTLINED, OWN};
use kisa::{BranchRelocation, Rewritable};

/// `SHT_ARM_ATTRIBUTES` (IHI 0044, 5.4.1).
const SHT_ARM_ATTRIBUTES: u32 = 0x7000_0003;

/// An object under construction.
pub(super) struct Emitter<'g> {
    graph: &'g Graph,
    isa: &'g dyn Rewritable,
    /// The output sections, with their placed nodes.
    placed: Vec<Placed>,
    sections: NodeMap<Option<SectionIndex>>,
    offsets: NodeMap<u32>,
    ends: NodeMap<u32>,
    part_ends: NodeMap<u32>,
    symbols: SymbolTable<'g>,
    /// For each section of the graph, its first output section.
    outputs: TiVec<SectionId, Option<SectionIndex>>,
    /// For each output section, its symbol.
    section_symbols: Vec<SymbolIndex>,
}

impl<'g> Emitter<'g> {
    /// Places every node.
    pub fn new(graph: &'g Graph, relax: Relax) -> Result<Emitter<'g>, Error> {
        let isa = graph.isa();
        let mut emitter = Emitter {
            graph,
            isa,
            placed: Vec::new(),
            sections: ti_vec![None; graph.nodes.len()],
            offsets: ti_vec![0; graph.nodes.len()],
            ends: ti_vec![0; graph.nodes.len()],
            part_ends: ti_vec![0; graph.nodes.len()],
            symbols: SymbolTable::new(graph),
            outputs: ti_vec![None; graph.sections.len()],
            section_symbols: vec![SymbolIndex(0)],
        };
        for (id, section) in graph.sections.iter_enumerated() {
            let live: Vec<NodeId> =
                section.nodes.iter().copied().filter(|&node| graph.node(node).live).collect();
            let (offsets, placed) = (&mut emitter.offsets, &mut emitter.placed);
            if relax == Relax::Shortest && pack::fills_gaps(graph, id, &live) {
                relax::place_apart(graph, id, &live, offsets, placed);
                continue;
            }
            relax::place(isa, graph, id, &live, relax, offsets, placed).map_err(|far| Error::TooFar {
                from: graph.name_of(far.node),
                displacement: far.displacement,
            })?;
        }
        if relax == Relax::Shortest {
            pack::order(graph, &mut emitter.placed);
        }
        unwind::regroup(graph, &mut emitter.placed);
        let placed = std::mem::take(&mut emitter.placed);
        for (i, placed) in placed.iter().enumerate() {
            let index = SectionIndex::from(i + 1);
            emitter.outputs[placed.section].get_or_insert(index);
            for node in &placed.nodes {
                emitter.sections[node.node] = Some(index);
                emitter.ends[node.node] = node.offset
                    + graph.node(node.node).size
                    + node.branches.iter().map(|branch| u32::from(branch.form.len)).sum::<u32>();
            }
            emitter.find_parts(&placed.nodes);
            emitter.section_symbols.push(emitter.symbols.add_section(index));
        }
        let (places, symbols) = emitter.places();
        let live = placed.iter().flat_map(|placed| &placed.nodes).map(|placed| placed.node);
        symbols.add_defined(&places, live);
        emitter.placed = placed;
        emitter.name_parts();
        emitter.map_contents();
        let (_, symbols) = emitter.places();
        symbols.add_unplaced();
        Ok(emitter)
    }

    /// Finds the ends of the parts of functions in an output section: sequences of nodes of one function.
    fn find_parts(&mut self, nodes: &[PlacedNode]) {
        let graph = self.graph;
        for part in nodes.chunk_by(|one, other| graph.owner(one.node) == graph.owner(other.node)) {
            let end = part.last().map_or(0, |last| self.ends[last.node]);
            part.iter().for_each(|placed| self.part_ends[placed.node] = end);
        }
    }

    /// Adds a symbol to each part of a function that begins without one, so that it is a function when the object is
    /// read again: overridden weak functions, functions whose first block was removed, cold parts, and outlined code.
    /// objtool tells jumps within a function from jumps to others. If it checks the code, code without a function in the
    /// input (`.altinstr_aux`) gets no symbol.
    fn name_parts(&mut self) {
        let named = self.symbols.functions();
        let graph = self.graph;
        let entries: FxHashSet<NodeId> = graph.function_symbols().collect();
        let is_checked = graph.world.is_checked_by_objtool();
        let was_function = |node: NodeId| {
            if !is_checked {
                return graph.block(node).is_some();
            }
            let function = graph.function_of(node).map(|function| graph.function(function));
            function.is_some_and(|function| function.is_outlined || entries.contains(&function.entry()))
        };
        // objtool takes a function of this name for a part of another one.
        let colds: FxHashMap<FunctionId, &'g str> =
            if is_checked { cold_names(graph).collect() } else { FxHashMap::default() };
        let placed = std::mem::take(&mut self.placed);
        for nodes in placed.iter().map(|placed| &placed.nodes) {
            for part in nodes.chunk_by(|one, other| graph.owner(one.node) == graph.owner(other.node)) {
                let (first, end) = (part[0].node, self.part_ends[part[0].node]);
                let section = self.sections[first];
                let size = u64::from(end - part[0].offset);
                if let Some(section) = section.filter(|_| was_function(first) && size > 0)
                    && !named.contains(&(section, part[0].offset))
                {
                    let part_name = || graph.function_of(first).and_then(|function| colds.get(&function));
                    let name = match graph.is_outlined(first) {
                        true => OUTLINED,
                        false => part_name().copied().unwrap_or(OWN),
                    };
                    self.symbols.add_part(name, section, part[0].offset, size, graph.encoding(first));
                }
            }
        }
        self.placed = placed;
    }

    /// Adds the mapping symbols of the machine, if it has any, except in opaque code, which has its own.
    fn map_contents(&mut self) {
        let graph = self.graph;
        if graph.machine.target().mapping_symbols.is_empty() {
            return;
        }
        for (i, placed) in self.placed.iter().enumerate() {
            if graph.sections[placed.section].flags & u64::from(SHF_EXECINSTR) == 0 {
                continue;
            }
            let (mut before, mut end, mut code) = (None, 0, None);
            for &PlacedNode { node, offset, .. } in &placed.nodes {
                let section = SectionIndex::from(i + 1);
                let content = match &graph.node(node).kind {
                    NodeKind::Block(_) => Some(Content::Code(graph.encoding(node))),
                    NodeKind::Chunk(chunk) => (!chunk.code).then_some(Content::Data),
                };
                // The `nop`s between a table and literals would be read as slots.
                if before == Some(Content::Data)
                    && content == before
                    && let Some(code) = code.filter(|_| self.keeps_nops(node, offset - end))
                {
                    self.symbols.add_mapping(section, end, code);
                    before = Some(code);
                }
                if let Some(content) = content.filter(|&content| before != Some(content)) {
                    self.symbols.add_mapping(section, offset, content);
                }
                code = content.filter(|&content| content != Content::Data).or(code);
                (before, end) = (content, self.ends[node]);
            }
        }
    }

    fn places(&mut self) -> (Places<'_>, &mut SymbolTable<'g>) {
        let places = Places {
            sections: &self.sections,
            offsets: &self.offsets,
            ends: &self.ends,
            part_ends: &self.part_ends,
        };
        (places, &mut self.symbols)
    }

    /// Returns the object, and the origin of its code.
    pub fn lowered(self) -> Result<Lowered<'g>, Error> {
        let code = self.code();
        Ok(Lowered { object: self.object()?, code })
    }

    fn code(&self) -> Vec<PlacedCode> {
        let mut code = Vec::new();
        for placed in &self.placed {
            if self.graph.sections[placed.section].flags & u64::from(SHF_EXECINSTR) == 0 {
                continue;
            }
            code.extend(placed.nodes.iter().filter_map(|&PlacedNode { node, offset, .. }| {
                let size = self.ends[node] - offset;
                self.sections[node].map(|section| PlacedCode { node, section, offset, size })
            }));
        }
        code
    }

    fn object(mut self) -> Result<Object<'g>, Error> {
        let carried = carried::section(self.graph.machine, &self.carried(), &self.section_symbols);
        let mut sections = vec![Section::null()];
        for placed in std::mem::take(&mut self.placed) {
            sections.push(self.section(&placed)?);
        }
        let groups = self.groups();
        sections.push(carried);
        if let Some(Attributes { merged, .. }) = &self.graph.attributes {
            sections.push(Section {
                name: ATTRIBUTES,
                kind: SHT_ARM_ATTRIBUTES,
                size: merged.len() as u64,
                data: merged.as_slice().into(),
                ..Section::null()
            });
        }
        if self.graph.stack != StackNote::Missing {
            let executable = self.graph.stack == StackNote::Executable;
            let flags = if executable { u64::from(SHF_EXECINSTR) } else { 0 };
            sections.push(Section { name: ".note.GNU-stack", kind: SHT_PROGBITS, flags, ..Section::null() });
        }
        Ok(Object {
            name: "kshrink.o".to_owned(),
            machine: self.graph.machine,
            flags: self.graph.flags,
            sections,
            symbols: self.symbols.symbols,
            groups,
        })
    }

    /// Returns the opaque code and data.
    fn carried(&self) -> Vec<Carried> {
        let reasons: FxHashMap<NodeId, &'static str> =
            self.graph.opaque.iter().map(|opaque| (opaque.node, opaque.reason)).collect();
        let mut all = Vec::new();
        for (i, placed) in self.placed.iter().enumerate() {
            let section = SectionIndex::from(i + 1);
            if self.graph.sections[placed.section].whole {
                all.push(Carried { section, range: 0..placed.size, reason: HAND_WRITTEN });
            }
            for &PlacedNode { node, offset, .. } in &placed.nodes {
                if let Some(&reason) = reasons.get(&node) {
                    all.push(Carried { section, range: offset..self.ends[node], reason });
                }
            }
        }
        all.extend(self.tables_without_jump());
        all
    }

    /// Returns the live jump tables whose jumps were removed.
    fn tables_without_jump(&self) -> Vec<Carried> {
        let graph = self.graph;
        let mut jumps = IdSet::with_capacity(graph.tables.len());
        for node in graph.nodes.iter().filter(|node| node.live) {
            if let NodeKind::Block(Block { end: Terminator::Switch(table), .. }) = &node.kind {
                jumps.insert(*table);
            }
        }
        let gone = graph.tables.keys().filter(|&table| !jumps.contains(table));
        let tables = gone.filter_map(|table| {
            let JumpTable { chunk, range } = &graph.tables[table];
            let is_data = graph.slots(table).first()?.role == Role::Address;
            let section = self.sections[*chunk].filter(|_| is_data)?;
            let start = self.offsets[*chunk];
            let range = start + range.start..start + range.end;
            Some(Carried { section, range, reason: TABLE })
        });
        let mut tables: Vec<Carried> = tables.collect();
        tables.sort_by_key(|table| (table.section, table.range.start));
        tables
    }

    fn section(&mut self, placed: &Placed) -> Result<Section<'g>, Error> {
        let graph = self.graph;
        let input = &graph.sections[placed.section];
        let mut data = Vec::new();
        let mut relocs = Vec::new();
        if input.kind != SHT_NOBITS {
            data.reserve_exact(placed.size as usize);
            for (i, node) in placed.nodes.iter().enumerate() {
                let before = i.checked_sub(1).map(|before| placed.nodes[before].node);
                self.pad(input.flags, node, before, &mut data);
                let first = relocs.len();
                self.node(input.flags, node, &mut data, &mut relocs)?;
                if let Some(&(section, offset)) = placed.about.get(i) {
                    self.set_site(node, section, offset, &mut relocs[first..]);
                }
            }
        }
        // With `SHF_LINK_ORDER` but no order, the linker has no place for a section.
        let order = placed.about.first().map(|&(section, _)| section).or(input.order);
        let link_order = order.and_then(|order| self.outputs[order]);
        let dropped = if link_order.is_some() { SHF_GROUP } else { SHF_GROUP | SHF_LINK_ORDER };
        Ok(Section {
            name: graph.world.output_name(&input.name),
            kind: input.kind,
            flags: input.flags & !u64::from(dropped),
            align: u64::from(placed.align),
            entsize: input.entsize,
            size: u64::from(placed.size),
            data: data.into(),
            relocs,
            link_order,
        })
    }

    /// Redirects the relocation of an entry's site to an offset in a section.
    fn set_site(&self, entry: &PlacedNode, section: SectionId, offset: u32, relocs: &mut [Reloc]) {
        let Some(site) = self.graph.site(entry.node) else { return };
        let at = u64::from(entry.offset + site.offset);
        if let (Some(section), Some(reloc)) =
            (self.outputs[section], relocs.iter_mut().find(|reloc| reloc.offset == at))
        {
            reloc.symbol = self.section_symbols[section.get()];
            reloc.addend = i64::from(offset);
        }
    }

    fn node(
        &mut self,
        flags: u64,
        placed: &PlacedNode,
        data: &mut Vec<u8>,
        relocs: &mut Vec<Reloc>,
    ) -> Result<(), Error> {
        let graph = self.graph;
        data.extend_from_slice(graph.bytes_of(placed.node));
        for reference in graph.refs_of(placed.node) {
            self.reference(flags, placed, reference, data, relocs)?;
        }
        let mut at = placed.offset + graph.node(placed.node).size;
        for branch in &placed.branches {
            at += u32::from(branch.form.len);
            let displacement = if branch.symbolic {
                let field = at - u32::from(branch.form.len) + u32::from(branch.form.field_offset);
                let BranchRelocation { r_type, bias } =
                    self.isa.branch_relocation(branch.branch, branch.form.len);
                let (symbol, addend) =
                    self.branch_target(placed.node, branch.dest.target, branch.dest.offset)?;
                relocs.push(Reloc {
                    offset: u64::from(field),
                    r_type,
                    class: RelocClass::Branch,
                    width: branch.form.field_width,
                    symbol,
                    addend: addend - i64::from(bias),
                });
                0
            } else {
                relax::destination(graph, &branch.dest, &self.offsets) - i64::from(at)
            };
            self.isa.encode_branch(branch.branch, branch.form, displacement, data);
        }
        Ok(())
    }

    /// Returns the groups with a section in the output, in the order of their first sections.
    fn groups(&mut self) -> Vec<Group> {
        let mut members: IndexMap<SymbolId, Vec<SectionIndex>> = IndexMap::new();
        for section in &self.graph.sections {
            let Some(signature) = section.group else { continue };
            if let Some(index) = section.nodes.iter().find_map(|node| self.sections[*node]) {
                members.entry(signature).or_default().push(index);
            }
        }
        members.values_mut().for_each(|members| members.sort_unstable());
        members.sort_by(|_, one, _, other| one.cmp(other));
        members
            .into_iter()
            .filter_map(|(signature, members)| {
                let signature = self.symbols.index(signature)?;
                Some(Group { flags: kelf::GRP_COMDAT, signature, members })
            })
            .collect()
    }
}

/// The names of the parts of functions that are out of line.
fn cold_names(graph: &Graph) -> impl Iterator<Item = (FunctionId, &str)> {
    let colds = graph.symbols.iter().filter(|symbol| symbol.name.contains(".cold"));
    colds.filter_map(|symbol| match symbol.place {
        SymbolPlace::Node(node, 0) => Some((graph.function_of(node)?, symbol.name.as_str())),
        _ => None,
    })
}
