//! Applying relocations.

use std::sync::Arc;

use kelf::reloc::DynamicReloc;

use super::Linker;
use crate::address::Addr;
use crate::image::dynsym::{DynamicSymbol, SymbolKind};
use crate::image::process::{Bound, MemberIndex, Use};
use crate::image::ranges::contains;
use crate::image::relocs::Reloc;
use crate::image::segment::bytes_at;

/// Maximum number of zeros written out before a copied variable. Programs have their copies at the start of zeroed
/// memory.
const MAX_ZEROS: usize = 64 << 20;

impl<'p> Linker<'p> {
    pub(super) fn apply(&mut self, index: MemberIndex, reloc: &Reloc) {
        let base = self.bases[index.get()];
        let place = self.wrap(reloc.place.wrapping_add(base));
        let word = self.word();
        let in_place = |linker: &Self, width| linker.read(place, width).unwrap_or(0);
        match reloc.kind {
            DynamicReloc::None | DynamicReloc::Copy => {}
            DynamicReloc::Relative | DynamicReloc::Irelative => {
                let addend = reloc.addend.map_or_else(|| in_place(self, word), |addend| addend as u64);
                let target = self.wrap(addend.wrapping_add(base));
                self.point(index, reloc.kind, place, Addr(target), reloc.kind == DynamicReloc::Irelative);
            }
            DynamicReloc::Absolute(_)
            | DynamicReloc::Slot
            | DynamicReloc::CallSlot
            | DynamicReloc::Distance(_) => {
                self.bind(index, reloc, place);
            }
            DynamicReloc::Number(words) => {
                let places = (0..words).map(|i| Addr(place.wrapping_add(u64::from(i) * u64::from(word))));
                self.numbers.extend(places);
            }
            DynamicReloc::Unknown => {
                self.computed.insert(Addr(place));
                self.bind(index, reloc, place);
            }
        }
    }

    /// Applies a relocation with a symbol.
    fn bind(&mut self, index: MemberIndex, reloc: &Reloc, place: u64) {
        let width = match reloc.kind {
            DynamicReloc::Absolute(width) | DynamicReloc::Distance(width) => width,
            _ => self.word(),
        };
        let in_slot = matches!(reloc.kind, DynamicReloc::Slot | DynamicReloc::CallSlot);
        let addend = match reloc.addend {
            Some(addend) => addend as u64,
            None if in_slot => 0,
            None => self.read(place, width).unwrap_or(0),
        };
        let purpose = if reloc.kind == DynamicReloc::CallSlot { Use::Call } else { Use::Address };
        let bound = self.lookup(index, reloc.symbol, purpose);
        if reloc.symbol == 0 {
            // By the System V ABI, the value of this symbol is 0.
            self.write_number(place, addend, width);
            return;
        }
        let whole = width == self.word() && !matches!(reloc.kind, DynamicReloc::Distance(_));
        for &(definer, symbol) in &bound.definitions {
            if symbol.kind == SymbolKind::ThreadLocal {
                continue;
            }
            let value = self.wrap(self.value(definer, symbol).wrapping_add(addend));
            if symbol.kind == SymbolKind::Ifunc {
                self.computed.insert(Addr(place));
            }
            if whole {
                self.point(index, reloc.kind, place, Addr(value), symbol.kind == SymbolKind::Ifunc);
            } else {
                let distance = matches!(reloc.kind, DynamicReloc::Distance(_));
                let value = if distance { value.wrapping_sub(place) } else { value };
                self.write_number(place, value, width);
                // An address in the middle of an instruction, or half of an address.
                let target = Addr(self.wrap(if distance { value.wrapping_add(place) } else { value }));
                if self.is_code(target.0) {
                    self.found[index.get()].pointers.push((Addr(place), target));
                } else {
                    self.pointed_to.push(target);
                    self.found[index.get()].data.push((Addr(place), target));
                }
            }
        }
        if bound.definitions.is_empty() {
            // No definition is known.
            self.write_number(place, 0, width);
        }
        if !bound.certain {
            self.computed.insert(Addr(place));
        }
    }

    /// Notes that a word points to `target`, or to the result of the function there.
    fn point(&mut self, index: MemberIndex, kind: DynamicReloc, place: u64, target: Addr, called: bool) {
        let own = place.wrapping_sub(self.bases[index.get()]);
        let member = &self.process.members[index.get()];
        let in_slot = matches!(kind, DynamicReloc::Slot | DynamicReloc::CallSlot)
            || contains(&member.object.got, own, 1);
        let protected = contains(&member.object.relro, own, self.word().into());
        let is_interpreter = self.process.interpreter == Some(index);
        if in_slot || protected && !is_interpreter {
            self.filled.insert(Addr(place));
        }
        let is_code = self.is_code(target.0);
        if called {
            self.computed.insert(Addr(place));
            // Discard the linker's value, which leads to the binder.
            self.write_number(place, 0, self.word());
            // The function runs at relocation, or at the first use of the slot.
            if is_code {
                self.found[index.get()].starts.push(target);
            }
        } else {
            self.write_number(place, target.0, self.word());
        }
        if is_code {
            let found = &mut self.found[index.get()];
            let list = if in_slot { &mut found.slots } else { &mut found.pointers };
            list.push((Addr(place), target));
        } else {
            self.pointed_to.push(target);
            self.found[index.get()].data.push((Addr(place), target));
        }
    }

    fn write_number(&mut self, place: u64, value: u64, width: u8) {
        self.write(place, &value.to_le_bytes()[..usize::from(width.min(8))]);
    }

    fn lookup(&mut self, index: MemberIndex, symbol: u32, purpose: Use) -> Arc<Bound<'p>> {
        if let Some(bound) = self.bound.get(&(index, symbol, purpose as u8)) {
            return Arc::clone(bound);
        }
        let dynamic = self.process.members[index.get()].object.dynamic.as_ref();
        let bound = match dynamic.and_then(|dynamic| dynamic.symbols.get(symbol)) {
            Some(found) => self.scopes.lookup(index, found, purpose),
            None => Bound { definitions: Vec::new(), certain: false },
        };
        let bound = Arc::new(bound);
        self.bound.insert((index, symbol, purpose as u8), Arc::clone(&bound));
        bound
    }

    pub(super) fn value(&self, definer: MemberIndex, symbol: &DynamicSymbol) -> u64 {
        let base = if symbol.absolute { 0 } else { self.bases[definer.get()] };
        self.wrap(symbol.value.wrapping_add(base))
    }

    /// Copies library variables to the program, which was linked as if they were its own.
    pub(super) fn copy(&mut self, index: MemberIndex) {
        let member = &self.process.members[index.get()];
        let Some(dynamic) = &member.object.dynamic else { return };
        for reloc in member.object.relocs.iter().filter(|reloc| reloc.kind == DynamicReloc::Copy) {
            let place = self.wrap(reloc.place.wrapping_add(self.bases[index.get()]));
            let size = dynamic.symbols.get(reloc.symbol).map_or(0, |symbol| symbol.size);
            let bound = self.lookup(index, reloc.symbol, Use::Copy);
            for &(definer, symbol) in &bound.definitions {
                let from = self.value(definer, symbol);
                let bytes = bytes_at(&self.segments, from);
                let size = usize::try_from(size.min(symbol.size)).unwrap_or(usize::MAX).min(bytes.len());
                let bytes = bytes[..size].to_vec();
                self.make_room(place, size);
                self.write(place, &bytes);
                let copied = from..from.saturating_add(size as u64);
                let moved = |pointers: &[(Addr, Addr)]| -> Vec<(Addr, Addr)> {
                    let pointers = pointers.iter().filter(|(word, _)| copied.contains(&word.0));
                    pointers
                        .map(|&(word, target)| (Addr((word.0 - from).wrapping_add(place)), target))
                        .collect()
                };
                let found = &self.found[definer.get()];
                let (code, data) = (moved(&found.pointers), moved(&found.data));
                self.found[index.get()].pointers.extend(code);
                self.found[index.get()].data.extend(data);
            }
        }
    }

    /// Writes out the zeros at the end of a segment, as far as a copy needs.
    fn make_room(&mut self, place: u64, size: usize) {
        let next = self.segments.partition_point(|segment| segment.address <= place);
        let Some(segment) = next.checked_sub(1).map(|index| &mut self.segments[index]) else { return };
        let end = place.saturating_add(size as u64);
        let room = usize::try_from(end - segment.address).unwrap_or(usize::MAX);
        // The preceding zeros are the program's own variables.
        if end <= segment.end() && segment.bytes.len() < room && room - segment.bytes.len() <= MAX_ZEROS {
            Arc::make_mut(&mut segment.bytes).resize(room, 0);
        }
    }
}
