//! Relocations and branches become references and terminators; symbols get their places.

mod symbols;
mod terminators;

use goblin::elf::section_header::{SHF_EXECINSTR, SHF_MERGE};
use goblin::elf::sym::STT_SECTION;
use kelf::{
    GlobalIndex, Object, ObjectIndex, Place, Program, Reloc, RelocClass, Resolved, SectionIndex, SymbolIndex,
};
use kisa::{BranchKind, BranchRelocation, Flow, Rewritable};
use rustc_hash::FxHashMap;

use super::decode::CodeSection;
use super::instructions::slot_value;
use super::nodes::{Distances, Lifted};
use super::placed::reloc_at;
use super::plan;
use crate::error::Error;
use crate::graph::{JumpTable, Life, Ref, Role, SymbolPlace, Target};
use crate::index::{NodeId, SectionId, SymbolId, TableId};

/// Fills in references, terminators and symbols.
pub(super) fn connect<'p>(program: &'p Program<'p>, lifted: &mut Lifted<'p>) -> Result<(), Error> {
    let mut connector = Connector {
        isa: lifted.graph.isa(),
        program,
        lifted,
        globals: FxHashMap::default(),
        by_symbol: FxHashMap::default(),
        absolutes: FxHashMap::default(),
        places: FxHashMap::default(),
        tables: FxHashMap::default(),
        switches: FxHashMap::default(),
    };
    connector.define_symbols();
    connector.mark_encodings();
    connector.add_tables();
    connector.groups();
    for section in connector.lifted.origins.keys() {
        connector.section_references(section)?;
    }
    connector.terminators()?;
    connector.declare_undefined();
    Ok(())
}

struct Connector<'c, 'p> {
    isa: &'static dyn Rewritable,
    program: &'p Program<'p>,
    lifted: &'c mut Lifted<'p>,
    globals: FxHashMap<GlobalIndex, SymbolId>,
    /// Local symbols that references must keep, because the linker looks at the symbol: indirect functions
    /// (`STT_GNU_IFUNC`), and functions on ARM, whose symbols give the encoding.
    by_symbol: FxHashMap<(ObjectIndex, SymbolIndex), SymbolId>,
    absolutes: FxHashMap<u64, SymbolId>,
    /// Symbols for places without a symbol of their own that an instruction of ARM refers to.
    places: FxHashMap<(NodeId, u32), SymbolId>,
    /// The number and width in bytes of the slots of each table of distances.
    tables: FxHashMap<NodeId, (u32, u8)>,
    /// The tables of distances by the blocks that jump through them.
    switches: FxHashMap<NodeId, TableId>,
}

impl<'p> Connector<'_, 'p> {
    /// Turns the relocations of a section into references.
    fn section_references(&mut self, id: SectionId) -> Result<(), Error> {
        let relocs = self.relocs(id);
        let executable = self.lifted.graph.sections[id].flags & u64::from(SHF_EXECINSTR) != 0;
        let code = self.lifted.code[id];
        let mut pending = relocs.iter().peekable();
        for i in 0..self.lifted.graph.sections[id].nodes.len() {
            let node = self.lifted.graph.sections[id].nodes[i];
            let (start, size) = (self.lifted.origin(node).offset, self.lifted.graph.node(node).size);
            let first = self.lifted.graph.refs.len() as u32;
            while let Some(reloc) = pending.next_if(|reloc| reloc.offset < u64::from(start + size)) {
                // Only padding and the branch of the previous block precede the node's start.
                if reloc.offset < u64::from(start) || reloc.class == RelocClass::None {
                    continue;
                }
                if reloc.offset + u64::from(reloc.width) > u64::from(start + size) {
                    return Err(self.straddling(id, reloc));
                }
                let counts_from_end = kelf::reloc::counts_from_end(self.program.machine, reloc.r_type);
                let bias = match is_relative(reloc.class) || counts_from_end {
                    true => plan::bias(self.program.machine, reloc, code, executable),
                    false => 0,
                };
                let (target, addend) = self.target(id, reloc, bias)?;
                self.lifted.graph.refs.push(Ref {
                    offset: reloc.offset as u32 - start,
                    r_type: reloc.r_type,
                    class: reloc.class,
                    width: reloc.width,
                    bias,
                    target,
                    addend,
                    role: Role::Address,
                });
            }
            if let Some(code) = code {
                self.local_branches(id, node, code, relocs, first);
                self.literals(id, node, code, first);
                self.slots(id, node);
            }
            let site = self.lifted.graph.chunk(node).is_some_and(|chunk| matches!(chunk.life, Life::Site(_)));
            if let Some(first) = self.lifted.graph.refs.get_mut(first as usize)
                && site
                && first.offset == 0
            {
                first.role = Role::Site;
            }
            let last = self.lifted.graph.refs.len() as u32;
            self.lifted.graph.nodes[node].refs = first..last;
        }
        Ok(())
    }

    /// Adds references for direct branches that the assembler resolved: for calls by blocks, and for all branches out
    /// of an opaque chunk. Also adds references for the addresses that it resolved.
    fn local_branches(
        &mut self,
        id: SectionId,
        node: NodeId,
        code: &CodeSection,
        relocs: &[Reloc],
        first: u32,
    ) {
        let (start, end) = {
            let start = self.lifted.origin(node).offset;
            (start, start + self.lifted.graph.node(node).size)
        };
        let from = code.insns.partition_point(|placed| placed.offset < start);
        let mut added = false;
        for placed in code.insns[from..].iter().take_while(|placed| placed.offset < end) {
            let (Flow::Direct { field_offset, field_width, branch, .. }, Some(target)) =
                (placed.insn.flow, placed.target())
            else {
                continue;
            };
            let field = placed.offset + u32::from(field_offset);
            let leaves = !(start..end).contains(&target);
            let calls = branch.kind == BranchKind::Call && self.lifted.graph.block(node).is_some();
            if !leaves && !calls || reloc_at(relocs, field).is_some() {
                continue;
            }
            let Some((target, addend)) = self.lifted.locate(id, i64::from(target)) else { continue };
            let (r_type, class, bias) = if self.program.machine.target().has_encoded_branches {
                // Under an `it`, a jump is encoded as an unconditional one.
                let encoded = match placed.is_predicated() && !calls {
                    true => self.isa.jump(placed.encoding),
                    false => branch,
                };
                let BranchRelocation { r_type, bias } = self.isa.branch_relocation(encoded, placed.insn.len);
                (r_type, RelocClass::Branch, bias)
            } else {
                let r_type = kelf::reloc::relative_32(self.program.machine);
                (r_type, RelocClass::Relative, (placed.end() - field) as u8)
            };
            self.lifted.graph.refs.push(Ref {
                offset: field - start,
                r_type,
                class,
                width: field_width,
                bias,
                target: Target::Node(target),
                addend,
                role: Role::Address,
            });
            added = true;
        }
        for &(field, target) in
            code.addresses_in(start..end).filter(|(_, target)| !(start..end).contains(target))
        {
            let Some(placed) = code.insn_containing(field) else { continue };
            let Some((target, addend)) = self.lifted.locate(id, i64::from(target)) else { continue };
            self.lifted.graph.refs.push(Ref {
                offset: field - start,
                r_type: kelf::reloc::relative_32(self.program.machine),
                class: RelocClass::Relative,
                width: 4,
                bias: (placed.end() - field) as u8,
                target: Target::Node(target),
                addend,
                role: Role::Address,
            });
            added = true;
        }
        if added {
            self.lifted.graph.refs[first as usize..].sort_by_key(|reference| reference.offset);
        }
    }

    /// Adds references for the literals that the instructions of a block read.
    fn literals(&mut self, id: SectionId, node: NodeId, code: &CodeSection, first: u32) {
        if self.lifted.graph.block(node).is_none() {
            return;
        }
        let start = self.lifted.origin(node).offset;
        let end = start + self.lifted.graph.node(node).size;
        for &(at, to) in code.literals_in(start..end) {
            let (Some((target, addend)), Some(insn)) =
                (self.lifted.locate(id, i64::from(to)), code.insn_containing(at))
            else {
                continue;
            };
            self.lifted.graph.refs.push(Ref {
                offset: at - start,
                r_type: 0,
                class: RelocClass::Literal,
                width: insn.insn.len,
                bias: 0,
                target: Target::Node(target),
                addend,
                role: Role::Address,
            });
        }
        self.lifted.graph.refs[first as usize..].sort_by_key(|reference| reference.offset);
    }

    /// Adds references for the slots of a table of distances.
    fn slots(&mut self, id: SectionId, node: NodeId) {
        let Some(&(slots, width)) = self.tables.get(&node) else { return };
        let start = self.lifted.origin(node).offset;
        for number in 0..slots {
            let offset = number * u32::from(width);
            let bytes = self.lifted.graph.bytes_of(node);
            let distance = slot_value(&bytes[offset as usize..(offset + u32::from(width)) as usize]);
            let target = i64::from(start + 2 * distance);
            let (target, addend) = self.lifted.locate(id, target).expect("planning included every slot");
            self.lifted.graph.refs.push(Ref {
                offset,
                r_type: 0,
                class: RelocClass::Literal,
                width,
                bias: 0,
                target: Target::Node(target),
                addend,
                role: Role::Address,
            });
        }
    }

    /// Adds the tables of distances to the graph.
    fn add_tables(&mut self) {
        for Distances { block, table, slots, width } in std::mem::take(&mut self.lifted.distances) {
            let range = 0..slots * u32::from(width);
            let id = self.lifted.graph.tables.push_and_get_key(JumpTable { chunk: table, range });
            self.tables.insert(table, (slots, width));
            self.switches.insert(block, id);
        }
    }

    /// Returns the target of a relocation of the section, and the offset in bytes from it.
    fn target(&mut self, id: SectionId, reloc: &Reloc, bias: u8) -> Result<(Target, i64), Error> {
        let (object_index, _) = self.lifted.origins[id];
        let addend = reloc.addend + i64::from(bias);
        let (object_index, symbol) = match self.program.resolve(object_index, reloc.symbol) {
            Resolved::Global(global) => {
                let symbol = self.global(global);
                let block = self.block_at(symbol, addend).filter(|_| !self.stays_by_symbol(id, reloc));
                return Ok(block.unwrap_or((Target::Symbol(symbol), addend)));
            }
            Resolved::Local(object_index, symbol) => (object_index, symbol),
        };
        if let Some(&symbol) = self.by_symbol.get(&(object_index, symbol)) {
            let may_move = self.program.machine.target().has_encoding_bit && !self.stays_by_symbol(id, reloc);
            let block = self.block_at(symbol, addend).filter(|_| may_move);
            return Ok(block.unwrap_or((Target::Symbol(symbol), addend)));
        }
        let object = &self.program.objects[object_index.get()].object;
        let symbol = &object.symbols[symbol.get()];
        let Place::Section(section) = symbol.place else {
            return Ok((Target::Symbol(self.absolute(symbol.value)), addend));
        };
        let Some(section_id) = self.lifted.section(object_index, section) else {
            return Err(self.discarded(id, reloc, object, section));
        };
        if kelf::reloc::stays_by_symbol(self.program.machine, reloc.r_type, reloc.class) {
            let Some((node, offset)) = self.lifted.locate(section_id, symbol.value as i64) else {
                return Err(self.discarded(id, reloc, object, section));
            };
            // A label may be beyond the section.
            let inside = offset.min(self.lifted.graph.node(node).size.into());
            let addend = reloc.addend + offset - inside;
            return Ok((Target::Symbol(self.place_symbol(node, inside as u32)), addend));
        }
        // In a mergeable section, a reference by the symbol of a string is to that string, whatever the addend; a
        // reference by the symbol of the section is to the string at the offset.
        let merged = self.lifted.graph.sections[section_id].flags & u64::from(SHF_MERGE) != 0;
        let point = symbol.value as i64 + addend;
        let at = if merged && symbol.kind != STT_SECTION { symbol.value as i64 } else { point };
        let Some((node, offset)) = self.lifted.locate(section_id, at) else {
            return Err(self.discarded(id, reloc, object, section));
        };
        let offset = offset + point - at;
        // The linker makes a table entry for the place itself. (Addends may be relative to the end of an instruction.)
        let word = i64::from(self.program.machine.word_size());
        let inside = -word..=i64::from(self.lifted.graph.node(node).size);
        let entry = matches!(reloc.class, RelocClass::Got | RelocClass::Tls)
            && !kelf::reloc::is_distance(self.program.machine, reloc.r_type);
        if entry && !inside.contains(&offset) {
            return Err(self.outside(id, reloc, object, section));
        }
        Ok((Target::Node(node), offset))
    }

    /// Whether the addend of a relocation of the section is not an offset from the function that it names.
    fn stays_by_symbol(&self, id: SectionId, reloc: &Reloc) -> bool {
        let (machine, flags) = (self.program.machine, self.lifted.graph.sections[id].flags);
        kelf::reloc::stays_by_symbol(machine, reloc.r_type, reloc.class)
            || flags & u64::from(SHF_EXECINSTR) != 0 && kelf::reloc::is_added_to_pc(machine, reloc.r_type)
    }

    /// Returns the block at an offset from a global symbol, within the same function.
    fn block_at(&self, symbol: SymbolId, addend: i64) -> Option<(Target, i64)> {
        let SymbolPlace::Node(node, inside) = self.lifted.graph.symbols[symbol].place else {
            return None;
        };
        let function = self.lifted.graph.block(node).filter(|_| addend != 0)?.function;
        let at = i64::from(self.lifted.origin(node).offset) + i64::from(inside) + addend;
        let (to, 0) = self.lifted.locate(self.lifted.graph.node(node).section, at)? else { return None };
        (self.lifted.graph.block(to)?.function == function).then_some((Target::Node(to), 0))
    }

    /// Returns the object and the name of a section, for an error.
    fn place(&self, id: SectionId) -> (String, String) {
        let input = &self.lifted.graph.inputs[id.lifted_from()];
        (input.object.to_string(), input.name.to_string())
    }

    fn straddling(&self, id: SectionId, reloc: &Reloc) -> Error {
        let (object, section) = self.place(id);
        Error::Straddling { object, section, offset: reloc.offset }
    }

    fn discarded(&self, id: SectionId, reloc: &Reloc, object: &Object<'_>, target: SectionIndex) -> Error {
        let ((from, section), target) = (self.place(id), object.section(target).name.to_owned());
        Error::Discarded { object: from, section, offset: reloc.offset, target }
    }

    fn outside(&self, id: SectionId, reloc: &Reloc, object: &Object<'_>, target: SectionIndex) -> Error {
        let ((from, section), target) = (self.place(id), object.section(target).name.to_owned());
        Error::Outside { object: from, section, offset: reloc.offset, target }
    }

    fn relocs(&self, id: SectionId) -> &'p [Reloc] {
        let (object, section) = self.lifted.origins[id];
        &self.program.objects[object.get()].object.sections[section.get()].relocs
    }
}

fn is_relative(class: RelocClass) -> bool {
    matches!(class, RelocClass::Relative | RelocClass::Branch)
}
