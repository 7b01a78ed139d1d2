/*!
Memory that holds throughout what it holds in the beginning, and memory that nobody reads.

The first is read-only data; and of other data, the variables to which nothing alive refers but instructions that load from
them. A variable whose address something has (another variable, an instruction that computes it, hand-written code, the
linker script) may be written by anybody.
*/

use fixedbitset::FixedBitSet;
use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHF_TLS, SHF_WRITE};
use goblin::elf::sym::{STB_LOCAL, STB_WEAK};
use kelf::RelocClass;
use kflow::constants::{Constant, ConstantMemory, Piece};
use kisa::{Address, Effect, Memory, Value};

use crate::graph::{Graph, Life, Ref, Role, SymbolPlace, Target};
use crate::index::NodeId;
use crate::instructions::{Instruction, symbol_of_node};
use crate::special::{Rule, World};

/// What nothing that is alive in a graph writes.
pub fn constant_memory(graph: &Graph) -> ConstantMemory {
    let mutable = not_only(graph, only_loads);
    let pinned = pinned(graph);
    let mut memory = ConstantMemory::default();
    for node in graph.node_ids().filter(|&node| graph.node(node).live && !pinned.contains(node.get())) {
        if is_plain_data(graph, node) && (!is_writable(graph, node) || !mutable.contains(node.get())) {
            memory.add(symbol_of_node(node), piece(graph, node));
        }
    }
    memory
}

/// The data to which nothing that is alive refers but instructions that do nothing else than to store there
/// ([`kisa::Rewritable::only_stores`]), as a set of nodes. Some of these compute what they store from what is there, so
/// that their flags say something of it.
pub fn unread_memory(graph: &Graph) -> FixedBitSet {
    let read = not_only(graph, only_stores);
    let pinned = pinned(graph);
    let is_unread = |&node: &NodeId| {
        let at = node.get();
        graph.node(node).live && !pinned.contains(at) && !read.contains(at) && is_plain_data(graph, node)
    };
    graph.node_ids().filter(is_unread).map(NodeId::get).collect()
}

/// The nodes to which something that is alive refers in another way than this: a field of an instruction, given by its
/// offset in bytes there.
fn not_only(graph: &Graph, way: fn(&Graph, &Instruction, u8) -> bool) -> FixedBitSet {
    let mut others = FixedBitSet::with_capacity(graph.nodes.len());
    for node in graph.node_ids().filter(|&node| graph.node(node).live) {
        let data: Vec<NodeId> = referred_data(graph, node).collect();
        if !data.is_empty() {
            let instructions = graph.block(node).and_then(|_| graph.instructions(node));
            match instructions {
                Some(instructions) => {
                    instructions.iter().for_each(|one| note(graph, node, one, way, &mut others));
                }
                None => data.into_iter().for_each(|to| others.insert(to.get())),
            }
        }
    }
    others.extend(graph.roots.iter().map(|root| root.node.get()));
    others
}

/// What others than the program may have to do with, by its name.
fn pinned(graph: &Graph) -> FixedBitSet {
    let mut pinned = FixedBitSet::with_capacity(graph.nodes.len());
    for symbol in &graph.symbols {
        let SymbolPlace::Node(node, _) = symbol.place else { continue };
        // A weak definition may give way to another one in the link. What a user program is linked with may name the
        // program's own variables.
        if symbol.binding == STB_WEAK || matches!(graph.world, World::Program) && symbol.binding != STB_LOCAL
        {
            pinned.insert(node.get());
        }
    }
    pinned
}

/// The data that a node refers to; a pointer to what is glued to other data may be one behind its end.
fn referred_data(graph: &Graph, node: NodeId) -> impl Iterator<Item = NodeId> {
    let refs = graph.refs_of(node).iter().filter(|reference| !matches!(reference.role, Role::Slot(_)));
    let nodes = refs.filter_map(|reference| graph.resolve_node(reference.target));
    let with_front = |to| std::iter::successors(Some(to), |&to| graph.node(to).glued_to);
    nodes.flat_map(with_front).filter(|&to| graph.chunk(to).is_some_and(|chunk| !chunk.code))
}

/// Notes what an instruction refers to in another way.
fn note(
    graph: &Graph,
    node: NodeId,
    instruction: &Instruction,
    way: fn(&Graph, &Instruction, u8) -> bool,
    others: &mut FixedBitSet,
) {
    let end = instruction.offset + instruction.bytes.len() as u32;
    let own = |reference: &&Ref| (instruction.offset..end).contains(&reference.offset);
    for reference in graph.refs_of(node).iter().filter(own) {
        let Some(to) = graph.resolve_node(reference.target) else { continue };
        let field = (reference.offset - instruction.offset) as u8;
        if !way(graph, instruction, field) {
            others.extend(std::iter::successors(Some(to), |&to| graph.node(to).glued_to).map(NodeId::get));
        }
    }
}

/// Whether a field of an instruction is the address of what it loads, and of nothing else.
fn only_loads(graph: &Graph, instruction: &Instruction, field: u8) -> bool {
    let operand = graph.isa().memory_operand(instruction.bytes, instruction.address);
    let Some(operand) = operand.filter(|operand| operand.displacement_offset == Some(field)) else {
        return false;
    };
    let is_it = |address: &Address| address.symbol.is_some() && address.segment.is_none();
    let loads = |effect: &Effect| {
        let mut values = effect.operands();
        values.any(|value| matches!(value, Value::Load { from, .. } if is_it(&from)))
    };
    let may_write = |effect: &Effect| match effect.memory_written() {
        Some(Memory::At(to, _) | Memory::From(to)) => to.symbol.is_some(),
        Some(Memory::Any) => true,
        None => false,
    };
    operand.width > 0 && instruction.effects.iter().any(loads) && !instruction.effects.iter().any(may_write)
}

/// Whether a field of an instruction is the address of what it stores to, and the instruction does nothing else.
fn only_stores(graph: &Graph, instruction: &Instruction, field: u8) -> bool {
    let operand = graph.isa().memory_operand(instruction.bytes, instruction.address);
    let is_operand = operand.is_some_and(|operand| operand.displacement_offset == Some(field));
    is_operand && graph.isa().only_stores(instruction.bytes, instruction.address)
}

fn is_writable(graph: &Graph, node: NodeId) -> bool {
    graph.section_of(node).flags & u64::from(SHF_WRITE) != 0
}

/// Whether a node is data that is used by reference only.
fn is_plain_data(graph: &Graph, node: NodeId) -> bool {
    let section = graph.section_of(node);
    let flags = |flag: u32| section.flags & u64::from(flag) != 0;
    let is_data = graph.chunk(node).is_some_and(|chunk| !chunk.code && chunk.life == Life::Referenced);
    is_data
        && flags(SHF_ALLOC)
        && !flags(SHF_EXECINSTR)
        && !flags(SHF_TLS)
        && graph.world.rule(&section.name, section.kind, section.flags) == Rule::Data
}

/// What a node of data holds.
fn piece(graph: &Graph, node: NodeId) -> Piece {
    let field = |reference: &Ref| {
        let constant = (reference.class == RelocClass::Absolute)
            .then(|| graph.resolve(reference.target))
            .flatten()
            .map(|(to, inside)| Constant {
                symbol: Some(symbol_of_node(to)),
                number: reference.addend.wrapping_add(inside.into()) as u64 & kisa::low_mask(reference.width),
            });
        // The address of an indirect function is what it returns; that of a weak one may be another.
        let is_certain = match reference.target {
            Target::Node(_) => true,
            Target::Symbol(symbol) => {
                let symbol = &graph.symbols[symbol.get()];
                symbol.binding != STB_WEAK && symbol.kind != goblin::elf::sym::STT_GNU_IFUNC
            }
        };
        (reference.offset, reference.width, constant.filter(|_| is_certain))
    };
    Piece {
        size: graph.node(node).size,
        bytes: graph.bytes_of(node).to_vec(),
        fields: graph.refs_of(node).iter().map(field).collect(),
    }
}
