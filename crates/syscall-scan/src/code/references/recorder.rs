//! Records the addresses that instructions refer to.

use kisa::{Address, Effect, MemoryOperand, Value};
use rustc_hash::FxHashSet;

use crate::code::services::is_service;
use crate::image::{Addr, Image};

/// Minimum number of references that is worth a search for duplicates.
const LEAST_LIMIT: usize = 1 << 16;

/// The addresses that instructions refer to, in order of discovery.
pub(in crate::code) struct Recorder<'a> {
    image: &'a Image,
    /// Whether addresses may be distances from the global offset table.
    relative: bool,
    /// The address of the global offset table of the instruction's object, once it is known.
    base: Option<Addr>,
    pub(super) absolute: Vec<Reference>,
    /// The number of references at which duplicates are dropped.
    limit: usize,
    pub(super) distances: Vec<(i64, Reference)>,
    /// Whether the strings that the C library and its services refer to matter.
    names_strings: bool,
    /// The addresses in constant memory that the C library and its services refer to.
    pub(super) strings: Vec<Addr>,
    seen: FxHashSet<Addr>,
}

/// An instruction that refers to an address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Reference {
    /// The address.
    pub to: Addr,
    /// The instruction.
    pub at: Addr,
    /// Whether it makes a pointer to the address, rather than reading or writing there.
    pub as_pointer: bool,
}

impl<'a> Recorder<'a> {
    pub(in crate::code) fn new(image: &'a Image) -> Recorder<'a> {
        Recorder {
            image,
            relative: image.machine.target().has_got_register,
            base: None,
            absolute: Vec::new(),
            limit: LEAST_LIMIT,
            distances: Vec::new(),
            names_strings: !image.named.is_empty() || image.objects.iter().any(is_service),
            strings: Vec::new(),
            seen: FxHashSet::default(),
        }
    }

    /// Records the addresses that an instruction refers to. If its effects do not contain any (as for some vector
    /// instructions), its memory operand counts.
    pub(in crate::code) fn note(
        &mut self,
        at: Addr,
        effects: &[Effect],
        base: Option<Addr>,
        operand: Option<MemoryOperand>,
    ) {
        self.base = base;
        let is_unfollowed =
            |effect: &Effect| matches!(effect, Effect::Escape(_) | Effect::Clobber(_) | Effect::ClobberFlags);
        if effects.iter().all(is_unfollowed) {
            if let Some(operand) = operand {
                self.address(at, &operand.address, true);
            }
        }
        for effect in effects {
            match effect {
                Effect::Store { to, .. } => self.address(at, to, false),
                Effect::ClobberRange(to) => self.address(at, to, true),
                Effect::Escape(_) => continue,
                _ => {}
            }
            effect.operands().for_each(|value| self.value(at, value));
        }
    }

    fn value(&mut self, at: Addr, value: Value) {
        match value {
            Value::Const(number) => self.add(at, number, true),
            Value::Load { from, .. } => self.address(at, &from, false),
            Value::Address(address) => self.address(at, &address, true),
            Value::Reg { .. } | Value::Symbol { .. } | Value::Unknown => {}
        }
    }

    fn address(&mut self, at: Addr, address: &Address, as_pointer: bool) {
        if address.segment.is_some() {
            return;
        }
        let displacement = address.displacement;
        // A base to which an unknown is added is the beginning of an array.
        let as_pointer = as_pointer || address.index.is_some();
        self.add(at, displacement as u64, as_pointer || address.base.is_some());
        if self.relative && address.base.is_some() {
            match self.base {
                Some(base) => {
                    let to = base.0.wrapping_add_signed(displacement) & 0xffff_ffff;
                    self.add(at, to, as_pointer);
                }
                None => self.distances.push((displacement, Reference { to: Addr(0), at, as_pointer })),
            }
        }
    }

    /// Turns distances into addresses if their global offset table is known by now.
    pub(in crate::code) fn settle(&mut self, base: impl Fn(Addr) -> Option<Addr>) {
        for (distance, reference) in std::mem::take(&mut self.distances) {
            match base(reference.at) {
                Some(base) => {
                    let to = base.0.wrapping_add_signed(distance) & 0xffff_ffff;
                    self.add(reference.at, to, reference.as_pointer);
                }
                None => self.distances.push((distance, reference)),
            }
        }
    }

    pub(in crate::code) fn add(&mut self, at: Addr, number: u64, as_pointer: bool) {
        if self.image.is_writable(Addr(number)) {
            self.absolute.push(Reference { to: Addr(number), at, as_pointer });
            if self.absolute.len() >= self.limit {
                self.absolute.sort_unstable();
                self.absolute.dedup();
                self.limit = LEAST_LIMIT.max(2 * self.absolute.len());
            }
        } else {
            self.note_string(at, number);
        }
    }

    /// Records the address of a possible string of the C library.
    pub(in crate::code) fn note_string(&mut self, at: Addr, number: u64) {
        if self.names_strings && !self.image.is_writable(Addr(number)) && !self.image.is_code(Addr(number)) {
            let asks = |address| self.image.object_at(address).is_some_and(is_service);
            if asks(Addr(number)) && asks(at) && self.seen.insert(Addr(number)) {
                self.strings.push(Addr(number));
            }
        }
    }
}
