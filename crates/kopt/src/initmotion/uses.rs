//! References of code that use an address without keeping it.

use goblin::elf::section_header::{SHF_MERGE, SHF_STRINGS};
use goblin::elf::sym::STB_LOCAL;
use kcfg::graph::{Dest, Graph, Ref, SymbolPlace, Terminator};
use kcfg::index::NodeId;
use kcfg::instructions::Instruction;
use kelf::RelocClass;
use kisa::{Effect, Reg, Value};
use rustc_hash::{FxHashMap, FxHashSet};

/// Functions that format the strings that they are given, and do not keep them when they return: they copy the text
/// (`vprintk_store()` in kernel/printk/printk.c; lib/vsprintf.c).
const PRINTERS: &[&str] = &[
    "_printk",
    "_printk_deferred",
    "__warn_printk",
    "panic",
    "early_printk",
    "early_print",
    "warn_slowpath_fmt",
    "_dev_printk",
    "_dev_emerg",
    "_dev_alert",
    "_dev_crit",
    "_dev_err",
    "_dev_warn",
    "_dev_notice",
    "_dev_info",
    "sprintf",
    "snprintf",
    "scnprintf",
    "kasprintf",
];

/// Functions that compare or copy the strings that they are given, and do not keep them (lib/string.c;
/// drivers/of/base.c, property.c and fdt.c; scripts/dtc/libfdt/fdt_ro.c).
const STRING_FUNCTIONS: &[&str] = &[
    "strcmp",
    "strncmp",
    "strcasecmp",
    "strlen",
    "memcmp",
    "strcpy",
    "sized_strscpy",
    "strscpy",
    "fdt_getprop",
    "fdt_path_offset",
    "of_find_property",
    "of_get_property",
    "of_property_read_variable_u32_array",
    "of_property_read_string",
    "of_property_match_string",
    "of_find_compatible_node",
    "of_find_node_by_name",
    "of_get_child_by_name",
    "of_device_is_compatible",
    "of_get_flat_dt_prop",
    "__of_parse_phandle_with_args",
];

/// Maximum number of blocks from an argument to the call.
const FOLLOWED: usize = 4;

/// The uses of addresses in a graph.
pub struct Uses<'g> {
    graph: &'g Graph,
    /// The printing functions, to which strings are pushed.
    printers: FxHashSet<NodeId>,
    /// The printing functions, and the ones that compare or copy: they get strings in registers and keep no address.
    forgetful: FxHashSet<NodeId>,
    /// For each literal that is only read, its readers: blocks, and offsets in them.
    readers: FxHashMap<NodeId, Vec<(NodeId, u32)>>,
}

impl<'g> Uses<'g> {
    /// Finds the functions that keep no address.
    pub fn of(graph: &'g Graph) -> Uses<'g> {
        let printers = named(graph, PRINTERS);
        let forgetful = printers.union(&named(graph, STRING_FUNCTIONS)).copied().collect();
        Uses { graph, printers, forgetful, readers: readers(graph) }
    }

    /// Whether a literal holds the address of a string that does not escape: every reader only passes it in a register
    /// to a function that keeps no address.
    pub fn of_literal(&self, id: NodeId) -> bool {
        let readers = self.readers.get(&id).map_or(&[][..], Vec::as_slice);
        !readers.is_empty()
            && readers.iter().all(|&(block, offset)| self.is_forgotten(block, offset))
            && self
                .graph
                .refs_of(id)
                .iter()
                .all(|to| is_string(self.graph, to) && lies_within(self.graph, to))
    }

    /// Whether the register that an instruction of a block writes is only passed to a function that keeps no address.
    fn is_forgotten(&self, id: NodeId, offset: u32) -> bool {
        let graph = self.graph;
        let Some(instructions) = graph.instructions(id) else { return false };
        let Some(load) = instructions.iter().position(|instruction| instruction.offset == offset) else {
            return false;
        };
        let written = written(&instructions[load]);
        let mut arguments = graph.isa().convention().arguments.iter().copied();
        let Some(reg) = arguments.find(|reg| written == 1 << reg.0) else { return false };
        let mut at = id;
        let mut from = load + 1;
        for _ in 0..FOLLOWED {
            let (Some(block), Some(instructions)) = (graph.block(at), graph.instructions(at)) else {
                return false;
            };
            let calls = usize::from(matches!(block.end, Terminator::Call { .. }));
            let end = instructions.len().saturating_sub(calls);
            let between = instructions.get(from..end).unwrap_or_default();
            if between.iter().any(|instruction| self.touches(instruction, reg)) {
                return false;
            }
            at = match &block.end {
                Terminator::Call { .. } => return self.forgets(at),
                Terminator::FallThrough(next) => *next,
                Terminator::Jump(dest) => match self.start_of(dest) {
                    Some(to) if self.forgetful.contains(&to) => return true,
                    Some(to) => to,
                    None => return false,
                },
                _ => return false,
            };
            from = 0;
        }
        false
    }

    /// Whether an instruction reads or writes a register.
    fn touches(&self, instruction: &Instruction<'_>, reg: Reg) -> bool {
        let read = self.graph.isa().registers_read(&instruction.inst);
        (read | written(instruction)) >> reg.0 & 1 != 0
    }

    /// Returns the node that a jump enters at its start.
    fn start_of(&self, dest: &Dest) -> Option<NodeId> {
        let (to, inside) = self.graph.resolve(dest.target).filter(|_| dest.offset == 0)?;
        (inside == 0).then_some(to)
    }

    /// For each reference of a block, whether the address does not escape: it is in a memory operand, or is pushed as
    /// an argument of a printing function.
    pub fn of_block(&self, id: NodeId) -> Vec<bool> {
        let graph = self.graph;
        let refs = graph.refs_of(id);
        let mut stays = vec![false; refs.len()];
        if refs.is_empty() {
            return stays;
        }
        let instructions = graph.instructions(id).unwrap_or_default();
        let printed_from = self.printed_from(id, &instructions);
        for (number, instruction) in instructions.iter().enumerate() {
            let operand = graph.isa().memory_operand(&instruction.inst);
            let operand = operand.filter(|operand| operand.width > 0);
            let displacement = operand.and_then(|operand| operand.displacement_offset);
            for field in &instruction.fields {
                let at = instruction.offset + u32::from(field.offset);
                let Ok(reference) = refs.binary_search_by_key(&at, |reference| reference.offset) else {
                    continue;
                };
                let is_access = displacement == Some(field.offset);
                let is_printed = number >= printed_from && self.pushes_address(instruction);
                stays[reference] = (is_access || is_printed) && lies_within(graph, &refs[reference]);
            }
        }
        stays
    }

    /// The index of the first instruction of a block whose pushes are arguments of a printing call, made by the block
    /// or a later one.
    fn printed_from(&self, id: NodeId, instructions: &[Instruction<'_>]) -> usize {
        let nothing = instructions.len();
        let mut at = id;
        for step in 0..FOLLOWED {
            let Some(block) = self.graph.block(at) else { return nothing };
            if step > 0 && self.graph.instructions(at).is_none_or(|all| all.iter().any(|i| self.pops(i))) {
                return nothing;
            }
            at = match &block.end {
                Terminator::Call { .. } if self.prints(at) => {
                    return instructions.iter().rposition(|i| self.pops(i)).map_or(0, |last| last + 1);
                }
                Terminator::FallThrough(next) => *next,
                Terminator::Jump(dest) => match self.start_of(dest) {
                    Some(to) => to,
                    None => return nothing,
                },
                _ => return nothing,
            };
        }
        nothing
    }

    /// Whether a block calls a printing function.
    fn prints(&self, id: NodeId) -> bool {
        self.callee(id).is_some_and(|callee| self.printers.contains(&callee))
    }

    /// Whether a block calls a function that keeps no address and is in another object. In the same object, the
    /// compiler may know that the call preserves registers (`-fipa-ra`).
    fn forgets(&self, id: NodeId) -> bool {
        let object = |node: NodeId| {
            let origin = self.graph.node(node).origin()?;
            Some(self.graph.inputs()[origin.section].object_index)
        };
        let callee = self.callee(id).filter(|callee| self.forgetful.contains(callee));
        let objects = callee.and_then(|callee| Some((object(callee)?, object(id)?)));
        objects.is_some_and(|(its, own)| its != own)
    }

    /// The first node of the function that a block calls.
    fn callee(&self, id: NodeId) -> Option<NodeId> {
        let callee = self.graph.callee(id).filter(|callee| callee.addend == 0)?;
        let (to, inside) = self.graph.resolve(callee.target)?;
        (inside == 0).then_some(to)
    }

    fn moves_stack(&self, instruction: &Instruction<'_>) -> bool {
        let pointer = self.graph.isa().convention().stack_pointer;
        instruction.effects.iter().any(|effect| effect.registers_written() >> pointer.0 & 1 != 0)
    }

    /// Whether an instruction may pop from the stack, or switch the stack.
    fn pops(&self, instruction: &Instruction<'_>) -> bool {
        let stores = instruction.effects.iter().any(|effect| matches!(effect, Effect::Store { .. }));
        self.moves_stack(instruction) && !stores
    }

    /// Whether an instruction pushes an address without another use of it.
    fn pushes_address(&self, instruction: &Instruction<'_>) -> bool {
        let is_address = |value: Value| matches!(value, Value::Symbol { .. });
        let mut users = instruction.effects.iter().filter(|effect| effect.operands().any(is_address));
        let stores = matches!(users.next(), Some(Effect::Store { value, .. }) if is_address(*value));
        stores && users.next().is_none() && self.moves_stack(instruction)
    }
}

/// The functions with these names.
fn named(graph: &Graph, names: &[&str]) -> FxHashSet<NodeId> {
    let global = graph.symbols().iter().filter(|symbol| symbol.binding != STB_LOCAL);
    let found = global.filter(|symbol| names.contains(&symbol.name.as_str()));
    let places = found.filter_map(|symbol| match symbol.place {
        SymbolPlace::Node(node, 0) => Some(node),
        _ => None,
    });
    places.collect()
}

/// The registers that an instruction writes, as bits.
fn written(instruction: &Instruction<'_>) -> u64 {
    instruction.effects.iter().fold(0, |all, effect| all | effect.registers_written())
}

/// The literals that are only read, each with its readers.
fn readers(graph: &Graph) -> FxHashMap<NodeId, Vec<(NodeId, u32)>> {
    let mut readers: FxHashMap<NodeId, Vec<(NodeId, u32)>> = FxHashMap::default();
    let mut used: FxHashSet<NodeId> = FxHashSet::default();
    for id in graph.node_ids().filter(|&id| graph.node(id).live) {
        for reference in graph.refs_of(id) {
            let Some(to) = graph.resolve_node(reference.target) else { continue };
            if graph.chunk(to).is_none_or(|chunk| chunk.function.is_none()) {
                continue;
            }
            let is_read = reference.class == RelocClass::Literal && !graph.takes_address(id, reference);
            if is_read && graph.block(id).is_some() {
                readers.entry(to).or_default().push((id, reference.offset));
            } else {
                used.insert(to);
            }
        }
    }
    readers.retain(|literal, _| !used.contains(literal));
    readers
}

/// Whether a reference is to strings that the linker merges, which are never written.
fn is_string(graph: &Graph, reference: &Ref) -> bool {
    let flags = u64::from(SHF_MERGE | SHF_STRINGS);
    let section = graph.resolve_node(reference.target).map(|to| graph.section_of(to));
    section.is_some_and(|section| section.flags & flags == flags)
}

/// Whether a reference is to a byte of its target node.
fn lies_within(graph: &Graph, reference: &Ref) -> bool {
    graph.resolve(reference.target).is_some_and(|(to, inside)| {
        let at = i64::from(inside) + reference.addend;
        (0..i64::from(graph.node(to).size)).contains(&at)
    })
}
