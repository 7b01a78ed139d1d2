//! Selection of the wanted nodes that freeze.
//!
//! With mechanism `page`, a function freezes whole if all of it is wanted, and block by block otherwise. A run of
//! blocks does not freeze if the branches around it would grow by more than freezing saves. With mechanism `stub`, code
//! freezes in regions ([`partition`]), and data does not freeze.

use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHF_TLS, SHF_WRITE, SHT_PROGBITS};
use indexmap::IndexMap;
use kcfg::graph::{Graph, Section};
use kcfg::index::{NodeId, NodeSet};
use kcfg::special::Rule;
use kplan::{Granularity, Mechanism};

use super::closure::{Closure, Reason};
use super::region::Region;
use super::regions::partition;
use crate::layout;
use crate::layout::hot_cold::move_together;
use crate::layout::split::{ColdPart, Splitter, cold_runs, cost, refers_to};

pub use super::region::size;

/// Packed size of frozen code in percent, including all that unpacking needs: the row of the coder's measurements in
/// docs/frozen-format.md, rounded up.
const PACKED_PERCENT: u64 = 55;

/// Packed size, in bytes, of the branches from a frozen run back into ordinary code.
const WAY_BACK: u64 = 3;

/// The nodes that freeze.
#[derive(Default)]
pub struct Selection {
    /// Code, in its final order.
    pub code: Vec<NodeId>,
    /// Read-only data, in its final order.
    pub data: Vec<NodeId>,
    /// The functions that freeze in part.
    pub parts: Vec<Part>,
    /// With mechanism `stub`, the regions of the code, in order.
    pub regions: Vec<Region>,
    /// Number of functions that freeze whole.
    pub functions: u64,
    /// Bytes of code that freeze.
    pub code_bytes: u64,
    /// Bytes of data that freeze.
    pub data_bytes: u64,
    /// Bytes of wanted code that do not freeze because longer branches would take more.
    pub inline_bytes: u64,
    /// Bytes of wanted nodes that must not freeze, by reason.
    pub pinned: IndexMap<Reason, u64>,
    /// Functions that would freeze in part but cannot be split, and the reason.
    pub whole: Vec<(NodeId, &'static str)>,
}

/// A function that freezes in part.
pub struct Part {
    /// The blocks that do not freeze, in their order.
    pub ordinary: Vec<NodeId>,
    /// The blocks that freeze, in their order.
    pub frozen: Vec<NodeId>,
    /// The frozen part; `None` if the function's entry is in it, which then has the name already.
    pub out_of_line: Option<ColdPart>,
}

impl Selection {
    /// Selects the wanted nodes that may freeze. `minimum` is the smallest size of a region in bytes; without it,
    /// regions are weighed one by one.
    pub fn of(
        graph: &Graph,
        wanted: &NodeSet,
        closure: &Closure,
        mechanism: Mechanism,
        minimum: Option<u64>,
    ) -> Selection {
        let mut selection = Selection::default();
        let splitter = Splitter::new(graph, Granularity::Block);
        if mechanism == Mechanism::Stub {
            selection.by_region(graph, wanted, closure, &splitter, minimum);
            return selection;
        }
        for section in graph.sections() {
            if holds_frozen_code(graph, section) {
                for function in section.nodes.chunk_by(|&one, &other| move_together(graph, one, other)) {
                    selection.function(graph, wanted, closure, &splitter, function);
                }
            } else if holds_frozen_data(graph, section) {
                let glued = |&one: &NodeId, &other: &NodeId| graph.node(other).glued_to == Some(one);
                for piece in section.nodes.chunk_by(glued) {
                    selection.piece(graph, wanted, closure, piece);
                }
            }
        }
        selection
    }

    /// Selects code by regions.
    fn by_region(
        &mut self,
        graph: &Graph,
        wanted: &NodeSet,
        closure: &Closure,
        splitter: &Splitter,
        minimum: Option<u64>,
    ) {
        let mut functions = Vec::new();
        let mut blocks = NodeSet::with_capacity(graph.nodes().len());
        for section in graph.sections().iter().filter(|section| holds_frozen_code(graph, section)) {
            for nodes in section.nodes.chunk_by(|&one, &other| move_together(graph, one, other)) {
                let all: Vec<NodeId> = nodes.iter().copied().filter(|&node| graph.node(node).live).collect();
                // Data among instructions moves with them.
                let live: Vec<NodeId> =
                    all.iter().copied().filter(|&node| !graph.is_among_code(node)).collect();
                let may: Vec<NodeId> = live
                    .iter()
                    .copied()
                    .filter(|&node| self.may_freeze(graph, wanted, closure, node))
                    .collect();
                match may.first().map(|_| splitter.check_blocks(graph, &live)) {
                    None => {}
                    Some(Err(why)) => self.whole.push((live[0], why)),
                    Some(Ok(_)) => {
                        self.inline_bytes += may.iter().map(|&node| size(graph, node)).sum::<u64>();
                        blocks.extend(may.iter().copied());
                        functions.push(live);
                    }
                }
            }
        }
        self.regions = partition(graph, blocks, minimum);
        let frozen: Vec<NodeId> = self.regions.iter().flat_map(|region| &region.nodes).copied().collect();
        self.take(graph, &frozen);
        let blocks = frozen.iter().filter(|&&node| graph.block(node).is_some());
        self.inline_bytes -= blocks.map(|&node| size(graph, node)).sum::<u64>();
        let frozen: NodeSet = frozen.iter().copied().collect();
        for live in functions {
            let ordinary: Vec<NodeId> = live.iter().copied().filter(|node| !frozen.contains(*node)).collect();
            match ordinary.len() {
                0 => self.functions += 1,
                stay if stay == live.len() => {}
                _ => self.parts.push(Part { ordinary, frozen: Vec::new(), out_of_line: None }),
            }
        }
    }

    /// Selects nodes of a function, or of code that is glued together.
    fn function(
        &mut self,
        graph: &Graph,
        wanted: &NodeSet,
        closure: &Closure,
        splitter: &Splitter,
        nodes: &[NodeId],
    ) {
        let all: Vec<NodeId> = nodes.iter().copied().filter(|&node| graph.node(node).live).collect();
        // Literals move with their readers.
        let (literals, live): (Vec<NodeId>, Vec<NodeId>) =
            all.iter().partition(|&&node| graph.is_among_code(node));
        let mut stays: Vec<bool> =
            live.iter().map(|&node| !self.may_freeze(graph, wanted, closure, node)).collect();
        if stays.iter().all(|&stays| stays) {
            return;
        }
        let checked = splitter.check(graph, &all);
        if !stays.contains(&true) {
            match leaves_by_short_branch(graph, &all) {
                true => self.whole.push((live[0], "has a short branch to other code")),
                false => {
                    self.functions += 1;
                    self.take(graph, &all);
                }
            }
            return;
        }
        let function = match checked {
            Ok(function) => function,
            Err(why) => return self.whole.push((live[0], why)),
        };
        for run in cold_runs(&stays) {
            let bytes: u64 = live[run.clone()].iter().map(|&node| size(graph, node)).sum();
            if bytes * (100 - PACKED_PERCENT) / 100 <= cost(graph, &live, &stays, &run) + WAY_BACK {
                self.inline_bytes += bytes;
                stays[run].fill(true);
            }
        }
        let part = |stay: bool| {
            let nodes = live.iter().zip(&stays).filter(move |&(_, &stays)| stays == stay);
            nodes.map(|(&node, _)| node).collect::<Vec<NodeId>>()
        };
        let (mut ordinary, mut frozen) = (part(true), part(false));
        let Some(&first) = frozen.first() else { return };
        let read = |literal: &NodeId| ordinary.iter().any(|&block| refers_to(graph, block, *literal));
        let (stay, leave): (Vec<NodeId>, Vec<NodeId>) = literals.into_iter().partition(read);
        ordinary.extend(stay);
        frozen.extend(leave);
        self.take(graph, &frozen);
        let bytes = frozen.iter().map(|&node| size(graph, node)).sum();
        let out_of_line = stays[0].then_some(ColdPart { function, first, bytes });
        self.parts.push(Part { ordinary, frozen, out_of_line });
    }

    /// Adds code to the selection.
    fn take(&mut self, graph: &Graph, nodes: &[NodeId]) {
        self.code_bytes += nodes.iter().map(|&node| size(graph, node)).sum::<u64>();
        self.code.extend(nodes);
    }

    /// Selects data that is glued together, all or nothing.
    fn piece(&mut self, graph: &Graph, wanted: &NodeSet, closure: &Closure, nodes: &[NodeId]) {
        let live: Vec<NodeId> = nodes.iter().copied().filter(|&node| graph.node(node).live).collect();
        // Every node is checked, so that each is counted under its reason.
        let free = live.iter().filter(|&&node| self.may_freeze(graph, wanted, closure, node)).count();
        if free == live.len() {
            self.data_bytes += live.iter().map(|&node| u64::from(graph.node(node).size)).sum::<u64>();
            self.data.extend(live);
        }
    }

    /// Whether a node is wanted and may freeze. Counts wanted nodes that must not.
    fn may_freeze(&mut self, graph: &Graph, wanted: &NodeSet, closure: &Closure, node: NodeId) -> bool {
        if !wanted.contains(node) {
            return false;
        }
        match closure.reason(node) {
            Some(reason) => {
                *self.pinned.entry(reason).or_default() += size(graph, node);
                false
            }
            None => true,
        }
    }
}

/// Whether code of a section may freeze. The linker script separates other classes of code because they are freed or
/// patched, or run where nothing may fault.
pub fn holds_frozen_code(graph: &Graph, section: &Section) -> bool {
    let flags = section.flags;
    flags & u64::from(SHF_EXECINSTR) != 0
        && section.group.is_none()
        && graph.world().rule(&section.name, section.kind, flags) == Rule::Code
        && layout::class(graph.world(), &section.name) == ".text"
}

/// Whether data of a section may freeze: it is constant, and is found by reference only.
pub fn holds_frozen_data(graph: &Graph, section: &Section) -> bool {
    let flags = section.flags;
    let constant =
        flags & u64::from(SHF_ALLOC) != 0 && flags & u64::from(SHF_WRITE | SHF_EXECINSTR | SHF_TLS) == 0;
    constant
        && section.kind == SHT_PROGBITS
        && section.group.is_none()
        && (&*section.name == ".rodata" || section.name.starts_with(".rodata."))
        && graph.world().rule(&section.name, section.kind, flags) == Rule::Data
}

/// Whether code has a branch of short range to other code.
fn leaves_by_short_branch(graph: &Graph, nodes: &[NodeId]) -> bool {
    nodes.iter().any(|&node| {
        graph.refs_of(node).iter().any(|reference| {
            let to = graph.resolve_node(reference.target);
            reference.is_short() && to.is_none_or(|to| !nodes.contains(&to))
        })
    })
}
