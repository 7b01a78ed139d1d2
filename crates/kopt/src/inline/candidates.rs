//! The functions with one call, and the reasons to keep their calls.

use goblin::elf::sym::{STB_WEAK, STT_GNU_IFUNC};
use kcfg::edges::Edges;
use kcfg::graph::{Graph, Life, Role, SymbolPlace, Terminator, for_each_successor};
use kcfg::index::{FunctionId, FunctionMap, NodeId, NodeSet};
use kcfg::special::TableKind;
use typed_index_collections::ti_vec;

use super::body::is_named_from;
use super::frame::Why;
use crate::identical::entries;
use crate::{layout, near};

/// The classes of code that is inlined. The kernel does not test whether an address is in one of these sections.
const CLASSES: [&str; 2] = [".text", ".init.text"];

/// A function that one place uses.
pub struct Candidate {
    /// The function.
    pub function: FunctionId,
    /// Its live blocks, in order.
    pub blocks: Vec<NodeId>,
    /// The block that ends with the call of it, or with the jump to it.
    pub user: NodeId,
    /// Whether that is a call.
    pub is_call: bool,
}

/// The uses of a function by code and data outside of it.
#[derive(Clone, Copy)]
enum Used {
    /// None.
    Never,
    /// By the end of this block.
    Once(NodeId),
    /// By several places, or by one that is neither a direct call nor a direct jump.
    Otherwise,
}

/// The functions that one place uses, with the reason to keep them in their places if there is one.
pub fn find(graph: &Graph, edges: &Edges<'_>) -> Vec<(Candidate, Option<Why>)> {
    let used = uses(graph);
    let (bound, glued) = (near::bound(graph), glued(graph));
    let mut all = Vec::new();
    for (function, used) in used.iter_enumerated() {
        let Used::Once(user) = *used else { continue };
        let blocks = graph.function(function).blocks.iter().copied();
        let blocks: Vec<NodeId> = blocks.filter(|&block| graph.node(block).live).collect();
        let is_call = matches!(graph.block(user).map(|block| &block.end), Some(Terminator::Call { .. }));
        let candidate = Candidate { function, blocks, user, is_call };
        let judge = Judge { graph, edges, candidate: &candidate, bound: &bound, glued: &glued };
        let why = judge.why_not();
        all.push((candidate, why));
    }
    all
}

/// Finds the uses of all functions.
fn uses(graph: &Graph) -> FunctionMap<Used> {
    let mut used: FunctionMap<Used> = ti_vec![Used::Never; graph.functions().len()];
    let mut add = |to: NodeId, by: Option<NodeId>| {
        let Some(function) = graph.function_of(to) else { return };
        used[function] = match (used[function], by) {
            (Used::Never, Some(by)) => Used::Once(by),
            _ => Used::Otherwise,
        };
    };
    let is_entry =
        |to: NodeId| graph.function_of(to).is_some_and(|function| graph.function(function).entry() == to);
    for id in graph.node_ids().filter(|&id| graph.node(id).live) {
        let own = graph.owner(id);
        let is_own = |to: NodeId| own.is_some() && graph.function_of(to) == own;
        // An entry of a table about code continues the function that has this code.
        let site = graph.site(id).and_then(|site| graph.function_of(graph.resolve_node(site.target)?));
        for reference in graph.refs_of(id) {
            let Some((to, inside)) = graph.resolve(reference.target) else { continue };
            let starts = inside == 0 && reference.addend == 0 && is_entry(to);
            let is_known = starts && !graph.may_be_replaced(reference.target);
            match reference.role {
                Role::Site => {}
                Role::Callee => add(to, is_known.then_some(id)),
                // Inside of a function, its own jump leads there.
                Role::Slot(_) if !starts => {}
                _ if (is_own(to) || site.is_some() && graph.function_of(to) == site) && !starts => {}
                Role::Slot(_) | Role::Address => add(to, None),
            }
        }
        let Some(block) = graph.block(id) else { continue };
        for_each_successor(graph, &block.end, |to| {
            let is_jump = match &block.end {
                Terminator::Jump(dest) => {
                    let is_node = dest.offset == 0 && !graph.may_be_replaced(dest.target);
                    is_node && graph.resolve(dest.target) == Some((to, 0)) && is_entry(to)
                }
                _ => false,
            };
            if !is_own(to) {
                add(to, is_jump.then_some(id));
            }
        });
    }
    for symbol in graph.symbols() {
        let SymbolPlace::Node(node, offset) = symbol.place else { continue };
        let is_plain = symbol.binding != STB_WEAK && symbol.kind != STT_GNU_IFUNC;
        if graph.node(node).live && !(is_plain && (symbol.unlinked || offset == 0 && is_entry(node))) {
            add(node, None);
        }
    }
    graph.roots().iter().for_each(|root| add(root.node, None));
    used
}

/// The nodes that must be directly before or after another one.
fn glued(graph: &Graph) -> NodeSet {
    let mut glued = NodeSet::with_capacity(graph.nodes().len());
    for id in graph.node_ids().filter(|&id| graph.node(id).live) {
        glued.extend(graph.node(id).glued_to.into_iter().flat_map(|before| [before, id]));
    }
    glued
}

struct Judge<'g> {
    graph: &'g Graph,
    edges: &'g Edges<'g>,
    candidate: &'g Candidate,
    bound: &'g NodeSet,
    glued: &'g NodeSet,
}

impl Judge<'_> {
    /// The reason why the function stays in its place, as far as its own code does not matter.
    fn why_not(&self) -> Option<Why> {
        let (graph, Candidate { function, blocks, user, is_call }) = (self.graph, self.candidate);
        let entry = graph.function(*function).entry();
        if blocks.first() != Some(&entry) {
            return Some("its beginning was removed");
        }
        if graph.function(*function).is_outlined || graph.is_outlined(*user) {
            return Some("outlined code works on the frames of its callers");
        }
        let class = |node: NodeId| layout::class(graph.world(), &graph.section_of(node).name);
        if class(entry) != class(*user) {
            return Some("its caller is in another kind of section");
        }
        if !CLASSES.contains(&class(entry)) {
            return Some("the kernel may ask whether an address is in its section");
        }
        let is_apart = |&node: &NodeId| graph.node(node).section != graph.node(entry).section;
        let has_group = |node: NodeId| graph.section_of(node).group.is_some();
        if blocks.iter().any(is_apart) || has_group(entry) || has_group(*user) {
            return Some("the linker may drop or place its parts apart");
        }
        if !graph.room_before(entry).is_empty() || graph.begins_with_landing_pad(entry) {
            return Some("its entry may be patched, or be found by computed calls");
        }
        if blocks.iter().any(|&block| self.depends_on_its_place(block)) || self.is_bound(*user) {
            return Some("its code, or the call, depends on its place");
        }
        if blocks.iter().any(|&block| self.is_listed(block)) {
            return Some("a table lists it as a function");
        }
        if *is_call && self.call_is_named() {
            return Some("a table is about the call");
        }
        None
    }

    fn is_bound(&self, node: NodeId) -> bool {
        self.bound.contains(node) || self.glued.contains(node) || self.graph.knows_own_address(node)
    }

    fn depends_on_its_place(&self, node: NodeId) -> bool {
        self.is_bound(node) || self.graph.encoding(node) != self.graph.encoding(self.candidate.user)
    }

    /// Whether a table lists the function of a block, rather than one of its instructions.
    fn is_listed(&self, node: NodeId) -> bool {
        entries(self.edges, node).iter().any(|&entry| match self.graph.chunk(entry).map(|chunk| chunk.life) {
            Some(Life::Site(kind)) => !matches!(
                kind,
                TableKind::ExceptionTable
                    | TableKind::Bug
                    | TableKind::Alternative
                    | TableKind::Paravirt
                    | TableKind::LockPrefix
                    | TableKind::PatchSite
                    | TableKind::RuntimeConst
                    | TableKind::StaticKey
                    | TableKind::StaticCall
                    | TableKind::Annotation
            ),
            _ => true,
        })
    }

    fn call_is_named(&self) -> bool {
        let callee = self.graph.callee(self.candidate.user);
        callee.is_none_or(|callee| {
            let call = call_start(self.graph, self.candidate.user, callee.offset);
            is_named_from(self.graph, self.edges, self.candidate.user, call)
        })
    }
}

/// Returns the offset in bytes of the call that ends a block, given that of its field.
pub fn call_start(graph: &Graph, node: NodeId, field: u32) -> u32 {
    let starts = graph.decode(node).flatten().map(|inst| inst.at.address as u32);
    starts.take_while(|&start| start <= field).last().unwrap_or(0)
}
