//! Creates the nodes: one for each block and chunk in the plans of the sections.

use std::ops::Range;
use std::sync::Arc;

use goblin::elf::section_header::{SHF_EXECINSTR, SHT_NOBITS};
use kelf::{ObjectIndex, Program, SectionIndex};
use typed_index_collections::TiVec;

use rustc_hash::FxHashSet;

use super::decode::spans::Span;
use super::decode::{CodeSection, may_fall_through};
use super::instructions::{DataKind, DataPart};
use super::placed::PlacedInsn;
use super::plan::SectionPlan;
use super::sites::FixedRegion;
use crate::carried::NO_FUNCTION;
use crate::graph::{
    Block, Chunk, Function, Graph, InputSection, Life, Node, NodeKind, Opaque, Origin, Provenance, Root,
    Section, Sources, StackNote, Terminator,
};
use crate::index::{FunctionId, NodeId, SectionId};
use crate::mapping::Content;
use crate::special::World;
use kisa::{BranchKind, Flow};

/// Alignment in bytes of literals.
const LITERAL_ALIGN: u32 = 4;

/// A graph under construction, with the data needed to add the references.
pub(super) struct Lifted<'p> {
    pub graph: Graph,
    /// For each section of each object, its section in the graph.
    pub section_ids: Vec<Vec<Option<SectionId>>>,
    /// For each section in the graph, the section of an object that it comes from.
    pub origins: TiVec<SectionId, (ObjectIndex, SectionIndex)>,
    /// The decoded code sections, by section in the graph.
    pub code: TiVec<SectionId, Option<&'p CodeSection>>,
    /// The last instruction of each block.
    pub ends: Vec<(NodeId, BlockEnd)>,
    /// The `jmp`s that the kernel patches to `nop`s and back for static keys, by section and offset.
    pub static_jumps: FxHashSet<(SectionId, u32)>,
    /// The tables of distances through which blocks jump: the block, the table after it, and the number and width of
    /// its slots.
    pub distances: Vec<Distances>,
    /// Opaque functions, and the content at their start.
    pub contents: Vec<(NodeId, Content)>,
}

/// A table of distances after the block that jumps through it.
pub(super) struct Distances {
    pub block: NodeId,
    pub table: NodeId,
    pub slots: u32,
    pub width: u8,
}

/// The end of a block, before its targets are known.
pub(super) struct BlockEnd {
    pub last: PlacedInsn,
    /// The block is a patch site.
    pub patched: bool,
    /// It ends with a `ud2` after which control never resumes.
    pub fatal: bool,
    /// The next node, if the block may fall through or return there.
    pub next: Option<NodeId>,
}

impl Lifted<'_> {
    /// Returns the section in the graph.
    pub fn section(&self, object: ObjectIndex, section: SectionIndex) -> Option<SectionId> {
        self.section_ids[object.get()][section.get()]
    }

    /// Returns the node of a section that contains the byte at `offset`, and the offset in it. Offsets before the
    /// section are in its first node, offsets after it in its last.
    pub fn locate(&self, section: SectionId, offset: i64) -> Option<(NodeId, i64)> {
        let nodes = &self.graph.sections[section].nodes;
        let after = nodes.partition_point(|&node| i64::from(self.origin(node).offset) <= offset);
        let &node = nodes.get(after.saturating_sub(1))?;
        Some((node, offset - i64::from(self.origin(node).offset)))
    }

    /// Returns the place of a node in the input, which every lifted node has.
    pub fn origin(&self, node: NodeId) -> &Origin {
        self.graph.node(node).origin().expect("lifted from the input")
    }
}

/// Creates the nodes of all sections.
pub(super) fn create<'p>(program: &Program<'_>, world: &World, plans: &'p [Vec<SectionPlan>]) -> Lifted<'p> {
    let graph = Graph {
        machine: program.machine,
        world: world.clone(),
        nodes: TiVec::new(),
        inputs: TiVec::new(),
        sections: TiVec::new(),
        functions: TiVec::new(),
        symbols: TiVec::new(),
        tables: TiVec::new(),
        counters: None,
        sources: Sources::default(),
        roots: Vec::new(),
        opaque: Vec::new(),
        stack: program
            .objects
            .iter()
            .map(|input| stack_note(&input.object))
            .max()
            .unwrap_or(StackNote::Missing),
        flags: program.objects.iter().fold(0, |flags, input| flags | input.object.flags),
        attributes: None,
        bytes: Vec::new(),
        refs: Vec::new(),
    };
    let mut lifted = Lifted {
        graph,
        section_ids: Vec::new(),
        origins: TiVec::new(),
        code: TiVec::new(),
        ends: Vec::new(),
        static_jumps: FxHashSet::default(),
        distances: Vec::new(),
        contents: Vec::new(),
    };
    for (i, (input, object_plans)) in program.objects.iter().zip(plans).enumerate() {
        let object = &input.object;
        let object_name: Arc<str> = object.name.as_str().into();
        let mut ids = Vec::with_capacity(object_plans.len());
        for (j, (section, plan)) in object.sections.iter().zip(object_plans).enumerate() {
            if matches!(plan, SectionPlan::Skip) {
                ids.push(None);
                continue;
            }
            let id = lifted.graph.sections.next_key();
            let name: Arc<str> = section.name.into();
            lifted.graph.inputs.push(InputSection {
                name: Arc::clone(&name),
                object: Arc::clone(&object_name),
                object_index: ObjectIndex::from(i),
                size: section.size as u32,
            });
            lifted.graph.sections.push(Section {
                name,
                kind: section.kind,
                flags: section.flags,
                align: section.align as u32,
                entsize: section.entsize,
                group: None,
                order: None,
                whole: matches!(plan, SectionPlan::Chunks { code: false, opaque: Some(_), .. }),
                nodes: Vec::new(),
            });
            let mut nodes = SectionNodes { lifted: &mut lifted, section, id };
            let code = nodes.create(plan);
            nodes.measure();
            lifted.code.push(code);
            lifted.origins.push((ObjectIndex::from(i), SectionIndex::from(j)));
            ids.push(Some(id));
        }
        for (section, id) in object.sections.iter().zip(&ids) {
            let order = section.link_order.and_then(|order| ids[order.get()]);
            if let (Some(id), Some(order)) = (id, order) {
                lifted.graph.sections[*id].order = Some(order);
            }
        }
        lifted.section_ids.push(ids);
    }
    lifted
}

fn stack_note(object: &kelf::Object<'_>) -> StackNote {
    match object.sections.iter().find(|section| section.name == ".note.GNU-stack") {
        None => StackNote::Missing,
        Some(note) if note.flags & u64::from(SHF_EXECINSTR) != 0 => StackNote::Executable,
        Some(_) => StackNote::NotExecutable,
    }
}

struct SectionNodes<'l, 'o, 'p> {
    lifted: &'l mut Lifted<'p>,
    section: &'o kelf::Section<'o>,
    id: SectionId,
}

impl<'p> SectionNodes<'_, '_, 'p> {
    fn create(&mut self, plan: &'p SectionPlan) -> Option<&'p CodeSection> {
        match plan {
            SectionPlan::Skip => None,
            &SectionPlan::Chunks { ref starts, code, life, root, opaque } => {
                for (i, &start) in starts.iter().enumerate() {
                    let end = starts.get(i + 1).map_or(self.section.size as u32, |&next| next);
                    let align = if i == 0 || self.section.entsize > 0 { self.section.align } else { 1 };
                    let node = self.chunk(start..end, align as u32, Chunk { code, life, function: None });
                    let range = 0..end - start;
                    self.lifted.graph.roots.extend(root.map(|reason| Root { node, range, reason }));
                    if let Some(reason) = opaque.filter(|_| code) {
                        let name = format!("{}:{}", self.object(), self.section.name);
                        self.lifted.graph.opaque.push(Opaque { node, name, reason });
                    }
                }
                None
            }
            SectionPlan::Code { code, regions, fatal_traps, glued } => {
                let jumps = regions.iter().filter(|region| region.static_jump);
                self.lifted.static_jumps.extend(jumps.map(|region| (self.id, region.start)));
                let mut end = 0;
                for (i, span) in code.spans.iter().enumerate() {
                    let first = self.lifted.graph.nodes.next_key();
                    let padding = self.bytes(end..span.start);
                    self.span(code, i, regions, fatal_traps);
                    if let Some(node) = self.lifted.graph.nodes.get_mut(first) {
                        node.padding = padding;
                    }
                    end = span.end;
                }
                self.glue(glued);
                Some(code)
            }
        }
    }

    /// Sets the size of each node in the input: up to the start of the next one.
    fn measure(&mut self) {
        let graph = &mut self.lifted.graph;
        let (mut end, mut padding) = (self.section.size as u32, 0);
        for &id in graph.sections[self.id].nodes.iter().rev() {
            let node = &mut graph.nodes[id];
            let Provenance::Input(origin) = &mut node.provenance else { continue };
            origin.size = end - origin.offset;
            origin.branch_len = (end - padding).saturating_sub(origin.offset + node.size);
            (end, padding) = (origin.offset, node.padding.len() as u32);
        }
    }

    /// Glues the blocks at these offsets to the previous block.
    fn glue(&mut self, glued: &[u32]) {
        let graph = &mut self.lifted.graph;
        for pair in graph.sections[self.id].nodes.windows(2) {
            let behind = &mut graph.nodes[pair[1]];
            let offset = behind.origin().map(|origin| origin.offset);
            if offset.is_some_and(|offset| glued.binary_search(&offset).is_ok()) {
                behind.glued_to = Some(pair[0]);
            }
        }
    }

    /// Glues the last node to the previous one if `count` is not 0.
    fn glue_last(&mut self, count: &mut u32) {
        let last = NodeId::from(self.lifted.graph.nodes.len() - 1);
        self.glue_node(last, count);
    }

    fn glue_node(&mut self, node: NodeId, count: &mut u32) {
        if *count > 0 {
            *count -= 1;
            self.lifted.graph.nodes[node].glued_to = node.get().checked_sub(1).map(NodeId::from);
        }
    }

    fn span(&mut self, code: &CodeSection, index: usize, regions: &[FixedRegion], fatal_traps: &[u32]) {
        let span = &code.spans[index];
        if let Some(reason) = span.opaque {
            let chunk = Chunk { code: true, life: Life::Referenced, function: None };
            // Literals in it must keep their alignment.
            let literals = self.lifted.graph.machine.target().has_literals;
            let align = if literals { span.align.max(LITERAL_ALIGN) } else { span.align };
            let node = self.chunk(span.start..span.end, align, chunk);
            let content = if span.data { Content::Data } else { Content::Code(span.encoding) };
            self.lifted.contents.push((node, content));
            let name = format!("{}:{}+{:#x}", self.object(), self.section.name, span.start);
            // Outlined code may not follow a convention.
            let reason = if span.outlined { NO_FUNCTION } else { reason };
            self.lifted.graph.opaque.push(Opaque { node, name, reason });
            return;
        }
        let function = self.lifted.graph.functions.next_key();
        let first = self.lifted.graph.nodes.next_key();
        let from = code.insns.partition_point(|placed| placed.offset < span.start);
        let to = code.insns.partition_point(|placed| placed.offset < span.end);
        let mut start = span.start;
        // Number of following nodes that must stay after the previous one.
        let mut glued = 0;
        for i in from..to {
            let placed = code.insns[i];
            let end = placed.end();
            let region = region_containing(regions, placed.offset);
            let inside = region.is_some_and(|region| end < region.end);
            let leads = code.leaders.binary_search(&end).is_ok();
            let ends = leads || ends_block(placed.insn.flow) && !inside || code.data_behind(end).is_some();
            if !ends && i + 1 < to {
                continue;
            }
            let static_jump = region.is_some_and(|region| region.static_jump);
            let patched = region.is_some() && !static_jump || self.keeps_its_bytes(&placed);
            self.block(span, function, start..end, placed, patched, fatal_traps);
            self.glue_last(&mut glued);
            if code.fixed_tables.binary_search(&placed.offset).is_ok() {
                // The next instruction, and the table.
                glued = 2;
            }
            start = end;
            let mut behind = code.data_behind(end);
            if behind.is_some()
                && let Some((_, end)) = self.lifted.ends.last_mut()
            {
                end.next = None;
            }
            while let Some(part) =
                behind.and_then(|behind| code.data.get(behind)).filter(|part| part.padding == start)
            {
                let first = self.lifted.graph.nodes.next_key();
                self.data(function, part);
                self.glue_node(first, &mut glued);
                start = part.end;
                behind = behind.map(|behind| behind + 1);
            }
        }
        let is_block = |&node: &NodeId| self.lifted.graph.block(node).is_some();
        let nodes = (first.get()..self.lifted.graph.nodes.len()).map(NodeId::from);
        let blocks: Vec<NodeId> = nodes.filter(is_block).collect();
        if !blocks.is_empty() {
            let name = format!("{}:{}+{:#x}", self.object(), self.section.name, span.start);
            let encoding = span.encoding;
            self.lifted.graph.functions.push(Function { name, encoding, blocks, is_outlined: span.outlined });
            self.finish_span(code, index);
        }
    }

    /// Whether a jump has no encoding of this length without a prefix. On x86, the prefix makes room for another jump,
    /// which the kernel patches in (`patch_retpoline`, arch/x86/kernel/alternative.c).
    fn keeps_its_bytes(&self, placed: &PlacedInsn) -> bool {
        let Flow::Direct { branch, .. } = placed.insn.flow else { return false };
        let forms = self.lifted.graph.isa().branch_forms(branch);
        branch.kind == BranchKind::Jump && forms.iter().all(|form| form.len != placed.insn.len)
    }

    fn block(
        &mut self,
        span: &Span,
        function: FunctionId,
        range: Range<u32>,
        last: PlacedInsn,
        patched: bool,
        fatal_traps: &[u32],
    ) {
        let branch_is_apart = !patched
            && matches!(last.insn.flow, Flow::Direct { branch, .. } if branch.kind != BranchKind::Call);
        let end = if branch_is_apart { last.offset } else { range.end };
        let align = if range.start == span.start { span.align } else { 1 };
        let block = Block { function, end: Terminator::Unreachable };
        let node = self.node(range.start..end, align, NodeKind::Block(block));
        let fatal = fatal_traps.binary_search(&last.offset).is_ok();
        let next = Some(NodeId(node.0 + 1));
        self.lifted.ends.push((node, BlockEnd { last, patched, fatal, next }));
    }

    /// Creates the chunks of data in a function.
    fn data(&mut self, function: FunctionId, part: &DataPart) {
        let in_front = self.lifted.graph.sections[self.id].nodes.last().copied();
        let first = self.lifted.graph.nodes.next_key();
        let padding = self.bytes(part.padding..part.start);
        let chunk = || Chunk { code: false, life: Life::Referenced, function: Some(function) };
        match &part.kind {
            DataKind::Literals(starts) => {
                for (i, &start) in starts.iter().enumerate() {
                    let end = starts.get(i + 1).map_or(part.end, |&next| next);
                    self.chunk(start..end, LITERAL_ALIGN, chunk());
                }
            }
            &DataKind::Distances { slots, width } => {
                let table = self.chunk(part.start..part.end, width.into(), chunk());
                self.lifted.graph.nodes[table].glued_to = in_front;
                if let Some(block) = in_front {
                    self.lifted.distances.push(Distances { block, table, slots, width });
                }
            }
        }
        self.lifted.graph.nodes[first].padding = padding;
    }

    /// Clears the fall-through of the last block of a function if it has none.
    fn finish_span(&mut self, code: &CodeSection, index: usize) {
        let (span, behind) = (&code.spans[index], code.spans.get(index + 1));
        let adjacent = behind.is_some_and(|behind| behind.start == span.end);
        if let Some((_, end)) = self.lifted.ends.last_mut()
            && (behind.is_none() || !may_fall_through(end.last.insn.flow, adjacent))
        {
            end.next = None;
        }
    }

    fn chunk(&mut self, range: Range<u32>, align: u32, chunk: Chunk) -> NodeId {
        self.node(range, align, NodeKind::Chunk(chunk))
    }

    fn node(&mut self, range: Range<u32>, align: u32, kind: NodeKind) -> NodeId {
        let bytes = self.bytes(range.clone());
        let graph = &mut self.lifted.graph;
        let (section, offset) = (self.id.lifted_from(), range.start);
        let id = graph.nodes.push_and_get_key(Node {
            provenance: Provenance::Input(Origin { section, offset, size: 0, branch_len: 0 }),
            section: self.id,
            size: range.len() as u32,
            bytes,
            refs: 0..0,
            padding: 0..0,
            align,
            glued_to: None,
            kind,
            live: true,
        });
        graph.sections[self.id].nodes.push(id);
        id
    }

    /// Copies bytes of the section into the graph.
    fn bytes(&mut self, range: Range<u32>) -> Range<u32> {
        let bytes = &mut self.lifted.graph.bytes;
        let start = bytes.len() as u32;
        if self.section.kind != SHT_NOBITS {
            bytes.extend_from_slice(&self.section.data[range.start as usize..range.end as usize]);
        }
        start..bytes.len() as u32
    }

    fn object(&self) -> &str {
        &self.lifted.graph.inputs[self.id.lifted_from()].object
    }
}

fn region_containing(regions: &[FixedRegion], offset: u32) -> Option<&FixedRegion> {
    let after = regions.partition_point(|region| region.start <= offset);
    regions[..after].last().filter(|region| offset < region.end)
}

fn ends_block(flow: Flow) -> bool {
    flow != Flow::Next
}
