//! Writes references as relocations, or as numbers if the distance is known.

use goblin::elf::section_header::{SHF_EXECINSTR, SHF_MERGE};
use kelf::{Reloc, RelocClass, SymbolIndex, reloc};

use super::Emitter;
use crate::graph::{Ref, Role, Target};
use crate::index::NodeId;
use crate::lower::Error;
use crate::lower::relax::PlacedNode;

impl Emitter<'_> {
    /// Writes a reference of a placed node, as a field in the data of its section or as a relocation.
    ///
    /// # Errors
    /// If the distance does not fit the field, or the target is not in the output.
    pub(super) fn reference(
        &mut self,
        flags: u64,
        placed: &PlacedNode,
        reference: &Ref,
        data: &mut [u8],
        relocs: &mut Vec<Reloc>,
    ) -> Result<(), Error> {
        let place = (placed.offset + reference.offset) as usize;
        let field = place..place + usize::from(reference.width);
        if let Some(to) = self.graph.resolve_node(reference.target)
            && self.sections[to].is_none()
            && matches!(reference.role, Role::Slot(_))
        {
            // A slot of a jump table whose jump was removed.
            data[field].fill(0);
            return Ok(());
        }
        if reference.class == RelocClass::Literal {
            return self.near(placed, reference, &mut data[field]);
        }
        // Opaque code keeps its relocations, because it is not decoded when the object is read again.
        if let Target::Node(to) = reference.target
            && reference.class == RelocClass::Relative
            && self.graph.block(placed.node).is_some()
            && self.sections[to] == self.sections[placed.node]
            && flags & u64::from(SHF_EXECINSTR) != 0
        {
            // The distance within a section is known.
            let value =
                i64::from(self.offsets[to]) + reference.addend - i64::from(reference.bias) - place as i64;
            let bits = 8 * u32::from(reference.width);
            if bits < 64 && !(-(1i64 << (bits - 1))..1i64 << (bits - 1)).contains(&value) {
                return Err(Error::TooFar { from: self.graph.name_of(placed.node), displacement: value });
            }
            data[field].copy_from_slice(&value.to_le_bytes()[..usize::from(reference.width)]);
            return Ok(());
        }
        let (symbol, addend) = match (reference.class, self.own_symbol(reference)) {
            (_, Some(found)) => found,
            (RelocClass::Branch, None) => {
                self.branch_target(placed.node, reference.target, reference.addend)?
            }
            (_, None) => self.named(placed.node, reference.target, reference.addend)?,
        };
        relocs.push(Reloc {
            offset: place as u64,
            r_type: reference.r_type,
            class: reference.class,
            width: reference.width,
            symbol,
            addend: addend - i64::from(reference.bias),
        });
        Ok(())
    }

    /// Fills in a distance that has no relocation: from an instruction to a nearby place that it reads, or in the slot
    /// of a table.
    fn near(&self, placed: &PlacedNode, reference: &Ref, field: &mut [u8]) -> Result<(), Error> {
        let graph = self.graph;
        let target = graph.resolve(reference.target).filter(|(to, _)| {
            self.sections[*to].is_some() && self.sections[*to] == self.sections[placed.node]
        });
        let (to, inside) = target.ok_or_else(|| Error::Dangling {
            from: graph.name_of(placed.node),
            to: graph.resolve_node(reference.target).map_or_else(String::new, |to| graph.name_of(to)),
        })?;
        let target = i64::from(self.offsets[to]) + i64::from(inside) + reference.addend;
        let place = i64::from(placed.offset + reference.offset);
        let reaches = match reference.role {
            Role::Slot(table) => {
                let start = i64::from(placed.offset + graph.tables[table].range.start);
                let slot = (target - start) / 2;
                let fits = slot >= 0 && slot < 1 << (8 * field.len());
                field.copy_from_slice(&slot.to_le_bytes()[..field.len()]);
                fits
            }
            _ => self.isa.set_literal(field, graph.encoding(placed.node).at(place as u64), target as u64),
        };
        if reaches {
            return Ok(());
        }
        Err(Error::TooFar { from: graph.name_of(placed.node), displacement: target - place })
    }

    /// Returns a separate symbol for a node if the section symbol would be resolved differently: the linker makes a
    /// table entry for a symbol, not for a place, and resolves an offset from a mergeable section's symbol to the
    /// string or constant at that offset.
    fn own_symbol(&mut self, reference: &Ref) -> Option<(SymbolIndex, i64)> {
        let Target::Node(to) = reference.target else { return None };
        let section = self.graph.section_of(to);
        let outside = !(0..i64::from(self.graph.node(to).size)).contains(&reference.addend);
        // In a relative field, the addend includes the distance to the end of the instruction, so the linker would look
        // for the string at another offset.
        let relative = reference.class == RelocClass::Relative;
        let merged = section.flags & u64::from(SHF_MERGE) != 0 && (outside || relative);
        let distance = reloc::is_distance(self.graph.machine, reference.r_type);
        let (places, symbols) = self.places();
        if matches!(reference.class, RelocClass::Got | RelocClass::Tls) && !(distance && outside) {
            symbols.own(to, reference.addend, &places).map(|symbol| (symbol, 0))
        } else if merged {
            symbols.own(to, 0, &places).map(|symbol| (symbol, reference.addend))
        } else {
            None
        }
    }

    /// Returns the symbol and addend by which a branch refers to its destination: never a section symbol where the
    /// linker drops addends ([`kelf::Target::drops_branch_addends`]). GNU as emits no such relocation either.
    ///
    /// # Errors
    /// If the destination is not in the output.
    pub(super) fn branch_target(
        &mut self,
        from: NodeId,
        target: Target,
        offset: i64,
    ) -> Result<(SymbolIndex, i64), Error> {
        if let Target::Node(to) = target
            && self.graph.machine.target().drops_branch_addends
        {
            let (places, symbols) = self.places();
            if let Some(symbol) = symbols.branch_target(to, offset, &places) {
                return Ok((symbol, 0));
            }
        }
        self.named(from, target, offset)
    }

    /// Returns the symbol and addend by which the output refers to a target.
    pub(super) fn named(
        &mut self,
        from: NodeId,
        target: Target,
        offset: i64,
    ) -> Result<(SymbolIndex, i64), Error> {
        let named = match target {
            Target::Symbol(symbol) => self.symbols.index(symbol).map(|index| (index, offset)),
            Target::Node(to) => self.sections[to]
                .map(|section| (self.section_symbols[section.get()], i64::from(self.offsets[to]) + offset)),
        };
        named.ok_or_else(|| Error::Dangling {
            from: self.graph.name_of(from),
            to: self.graph.resolve_node(target).map_or_else(String::new, |to| self.graph.name_of(to)),
        })
    }
}
