/*!
Memory that never changes its initial content, and memory that nobody reads.

Constant memory is read-only data, including the literals of 32-bit ARM, and variables that live instructions only load
from. A variable whose address is stored or computed anywhere (in another variable, an instruction, hand-written code,
the linker script) may be written by any code.

A compiler replaces loads of a constant by its value in the object that defines it. A remaining load is therefore of a
`const volatile` variable, which a tool may write in the linked program: its value is unknown.
*/

use std::ops::Range;

use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHF_TLS, SHF_WRITE};
use goblin::elf::sym::{STB_LOCAL, STB_WEAK, STT_OBJECT};
use kelf::RelocClass;
use kflow::constants::{Constant, ConstantMemory, Piece};
use kisa::{Address, Effect, Memory, Value};
use rustc_hash::FxHashMap;
use typed_index_collections::TiVec;

use crate::graph::{Graph, Life, Ref, Role, Section, SymbolPlace};
use crate::index::{NodeId, NodeSet, SectionId};
use crate::instructions::{Instruction, symbol_of_node};
use crate::special::{Rule, World};

/// The uses of data by the live nodes of a graph.
pub struct DataUses {
    /// The data nodes that are used only by references.
    plain: NodeSet,
    /// The nodes among these that may be accessed from outside the program.
    pinned: NodeSet,
    /// The nodes with references other than plain loads, and the nodes with references other than plain stores.
    not_only_loaded: NodeSet,
    not_only_stored: NodeSet,
    /// The constants that code of their own object loads, as ranges of bytes by node.
    volatile: FxHashMap<NodeId, Vec<Range<u32>>>,
}

/// Maximum size of a constant in bytes; a larger one is a table, which compiled code reads too.
const MAX_SCALAR: u32 = 8;

impl DataUses {
    /// Finds the uses of data by all live nodes.
    pub fn of(graph: &Graph) -> DataUses {
        let none = NodeSet::with_capacity(graph.nodes.len());
        let mut uses = DataUses {
            plain: plain_data(graph),
            pinned: pinned(graph),
            not_only_loaded: none.clone(),
            not_only_stored: none,
            volatile: FxHashMap::default(),
        };
        let constants = named_constants(graph);
        for node in graph.node_ids().filter(|&node| graph.node(node).live) {
            let mut data = referred_data(graph, node).peekable();
            if data.peek().is_some() {
                match graph.block(node).and_then(|_| graph.instructions(node)) {
                    Some(instructions) => {
                        for instruction in &instructions {
                            uses.note(graph, node, instruction, &constants);
                        }
                    }
                    None => data.for_each(|to| uses.add(to, false, false)),
                }
                // Literals.
                if graph.is_among_code(node) {
                    for reference in graph.refs_of(node) {
                        uses.note_constant(graph, node, reference, &constants);
                    }
                }
            }
        }
        graph.roots.iter().for_each(|root| uses.add(root.node, false, false));
        uses
    }

    /// Returns the memory that nothing writes.
    pub fn constant_memory(&self, graph: &Graph) -> ConstantMemory {
        let mut memory = ConstantMemory::default();
        for node in self.plain.difference(&self.pinned) {
            if !is_writable(graph, node) || !self.not_only_loaded.contains(node) {
                let mut piece = piece(graph, node);
                let volatile = self.volatile.get(&node).into_iter().flatten();
                volatile.for_each(|range| piece.hide(range.clone()));
                memory.add(symbol_of_node(node), piece);
            }
        }
        memory
    }

    /// Returns the data, as a set of nodes, that is only referenced by instructions that store there and do nothing
    /// else ([`kisa::Rewritable::only_stores`]). Some of these compute the stored value from the old one, so their
    /// flags depend on it.
    pub fn unread_memory(&self) -> NodeSet {
        let mut unread = self.plain.clone();
        unread.difference_with(&self.pinned);
        unread.difference_with(&self.not_only_stored);
        unread
    }

    /// Records the references of an instruction, and the constants of its own object that it loads.
    fn note(&mut self, graph: &Graph, node: NodeId, instruction: &Instruction, constants: &Constants) {
        let end = instruction.offset + instruction.inst.bytes.len() as u32;
        let operand = graph.isa().memory_operand(&instruction.inst);
        let own = |reference: &&Ref| (instruction.offset..end).contains(&reference.offset);
        for reference in graph.refs_of(node).iter().filter(own) {
            let field = (reference.offset - instruction.offset) as u8;
            let loads = only_loads(graph, instruction, field);
            let stores = only_stores(graph, instruction, field);
            let to = graph.resolve_node(reference.target);
            for to in std::iter::successors(to, |&to| graph.node(to).glued_to) {
                self.add(to, loads, stores);
            }
            // Without a register in the address, the load is of exactly these bytes.
            let exact = operand.filter(|operand| {
                loads && operand.displacement_offset == Some(field) && operand.address.registers() == 0
            });
            match (exact, self.constant_at_home(graph, node, reference)) {
                (Some(operand), Some((to, offset))) => {
                    let range = offset..offset.saturating_add(operand.width.into());
                    self.volatile.entry(to).or_default().push(range);
                }
                (None, Some(_)) => self.note_constant(graph, node, reference, constants),
                (_, None) => {}
            }
        }
    }

    /// Records a constant of its own object whose address code contains, unless it is large.
    fn note_constant(&mut self, graph: &Graph, node: NodeId, reference: &Ref, constants: &Constants) {
        let Some((to, offset)) = self.constant_at_home(graph, node, reference) else { return };
        let named = constants.get(&to).into_iter().flatten();
        let scalar = named.filter(|range| range.contains(&offset) && range.len() <= MAX_SCALAR as usize);
        self.volatile.entry(to).or_default().extend(scalar.cloned());
    }

    /// Returns the read-only data of the same object that a reference of code names, and the offset in it.
    fn constant_at_home(&self, graph: &Graph, node: NodeId, reference: &Ref) -> Option<(NodeId, u32)> {
        let (to, inside) = graph.resolve(reference.target)?;
        let home = |node| Some(graph.input_of(node)?.object_index);
        let offset = u32::try_from(i64::from(inside) + reference.addend).ok()?;
        let is_constant = self.plain.contains(to) && !is_writable(graph, to) && !graph.is_among_code(to);
        (is_constant && home(node).is_some() && home(node) == home(to)).then_some((to, offset))
    }

    /// Records a reference to a node: by an instruction that only loads from it or only stores there, or another one.
    fn add(&mut self, to: NodeId, loads: bool, stores: bool) {
        if !loads {
            self.not_only_loaded.insert(to);
        }
        if !stores {
            self.not_only_stored.insert(to);
        }
    }
}

/// The read-only variables with a sized symbol, as ranges of bytes by node.
type Constants = FxHashMap<NodeId, Vec<Range<u32>>>;

fn named_constants(graph: &Graph) -> Constants {
    let mut constants = Constants::default();
    for symbol in graph.symbols.iter().filter(|symbol| symbol.kind == STT_OBJECT && symbol.size > 0) {
        let SymbolPlace::Node(node, start) = symbol.place else { continue };
        let end = u64::from(start) + symbol.size;
        if let (false, Ok(end)) = (is_writable(graph, node), u32::try_from(end)) {
            constants.entry(node).or_default().push(start..end);
        }
    }
    constants
}

/// Returns the nodes that may be accessed by name from outside the program.
fn pinned(graph: &Graph) -> NodeSet {
    let mut pinned = NodeSet::with_capacity(graph.nodes.len());
    for symbol in &graph.symbols {
        let SymbolPlace::Node(node, _) = symbol.place else { continue };
        // Another definition may override a weak one in the link. Code linked with a user program may refer to the
        // program's own variables by name.
        if symbol.binding == STB_WEAK || matches!(graph.world, World::Program) && symbol.binding != STB_LOCAL
        {
            pinned.insert(node);
        }
    }
    pinned
}

/// Returns the data that a node refers to. A pointer to data that is glued to other data may point to the end of that.
fn referred_data(graph: &Graph, node: NodeId) -> impl Iterator<Item = NodeId> {
    let refs = graph.refs_of(node).iter().filter(|reference| !matches!(reference.role, Role::Slot(_)));
    let nodes = refs.filter_map(|reference| graph.resolve_node(reference.target));
    let with_front = |to| std::iter::successors(Some(to), |&to| graph.node(to).glued_to);
    nodes.flat_map(with_front).filter(|&to| graph.chunk(to).is_some_and(|chunk| !chunk.code))
}

/// Whether a field of an instruction is only the address of a load.
fn only_loads(graph: &Graph, instruction: &Instruction, field: u8) -> bool {
    let operand = graph.isa().memory_operand(&instruction.inst);
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

/// Whether a field of an instruction is the address of a store, and the instruction does nothing else.
fn only_stores(graph: &Graph, instruction: &Instruction, field: u8) -> bool {
    let operand = graph.isa().memory_operand(&instruction.inst);
    let is_operand = operand.is_some_and(|operand| operand.displacement_offset == Some(field));
    is_operand && graph.isa().only_stores(&instruction.inst)
}

fn is_writable(graph: &Graph, node: NodeId) -> bool {
    graph.section_of(node).flags & u64::from(SHF_WRITE) != 0
}

/// Returns the live data nodes that are used only by reference.
fn plain_data(graph: &Graph) -> NodeSet {
    let holds_data = |section: &Section| {
        let flags = |flag: u32| section.flags & u64::from(flag) != 0;
        flags(SHF_ALLOC)
            && !flags(SHF_EXECINSTR)
            && !flags(SHF_TLS)
            && graph.world.rule(&section.name, section.kind, section.flags) == Rule::Data
    };
    let sections: TiVec<SectionId, bool> = graph.sections.iter().map(holds_data).collect();
    let is_plain = |&id: &NodeId| {
        let node = graph.node(id);
        let data = graph.chunk(id).filter(|chunk| !chunk.code && chunk.life == Life::Referenced);
        // Literals are among the code.
        node.live && data.is_some_and(|data| data.function.is_some() || sections[node.section])
    };
    graph.node_ids().filter(is_plain).collect()
}

/// Returns the content of a data node.
fn piece(graph: &Graph, node: NodeId) -> Piece {
    let word = graph.machine.word_size();
    let field = |reference: &Ref| {
        // The linker may truncate or extend the address in any other field.
        let constant = (reference.class == RelocClass::Absolute && reference.width == word)
            .then(|| graph.resolve(reference.target))
            .flatten()
            .map(|(to, inside)| Constant {
                symbol: Some(symbol_of_node(to)),
                number: reference.addend.wrapping_add(inside.into()) as u64 & kisa::low_mask(reference.width),
            });
        let constant = constant.filter(|_| !graph.may_be_replaced(reference.target));
        (reference.offset, reference.width, constant)
    };
    Piece {
        size: graph.node(node).size,
        bytes: graph.bytes_of(node).to_vec(),
        fields: graph.refs_of(node).iter().map(field).collect(),
    }
}
