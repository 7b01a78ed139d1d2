//! Which instructions name which variable.
//!
//! Noted while code is explored, because that is when every instruction is looked at, and put in order when
//! somebody asks.

use std::ops::Range;
use std::sync::Arc;

use kelf::Machine;
use kisa::{Address, Effect, MemoryOperand, Value};
use rayon::prelude::*;
use rustc_hash::FxHashSet;

use super::Code;
use super::deferred::is_service;
use crate::image::{Addr, Image};

/// How many references are not worth a search for those that have come several times.
const LEAST_LIMIT: usize = 1 << 16;

/// The addresses that instructions name, as they come.
pub(super) struct Recorder<'a> {
    image: &'a Image,
    /// Whether addresses may be distances from the global offset table.
    relative: bool,
    /// Where the global offset table of the instruction's object is, once that is known.
    base: Option<Addr>,
    absolute: Vec<Reference>,
    /// How many of them there are when those that have come several times are dropped.
    limit: usize,
    distances: Vec<(i64, Reference)>,
    /// Whether it matters which strings the C library and its services name.
    names_strings: bool,
    /// The addresses in their constant memory that these name.
    strings: Vec<Addr>,
    seen: FxHashSet<Addr>,
}

/// An instruction that names an address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Reference {
    /// The address.
    pub to: Addr,
    /// The instruction.
    pub at: Addr,
    /// Whether it makes a pointer of it, rather than reading or writing there.
    pub as_pointer: bool,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(image: &'a Image) -> Recorder<'a> {
        Recorder {
            image,
            relative: image.machine == Machine::I386,
            base: None,
            absolute: Vec::new(),
            limit: LEAST_LIMIT,
            distances: Vec::new(),
            names_strings: !image.named.is_empty() || image.objects.iter().any(is_service),
            strings: Vec::new(),
            seen: FxHashSet::default(),
        }
    }

    /// Notes the addresses that an instruction names. Where its effects do not tell (it may be a vector's), its
    /// memory operand does.
    pub(super) fn note(
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
            match *effect {
                Effect::Set { value, .. }
                | Effect::MaybeSet { value, .. }
                | Effect::SetSigned { value, .. }
                | Effect::CompareZero { value, .. }
                | Effect::Transfer(value) => self.value(at, value),
                Effect::Binary { left, right, .. }
                | Effect::Compare { left, right, .. }
                | Effect::BranchIfCompared { left, right, .. } => {
                    self.value(at, left);
                    self.value(at, right);
                }
                Effect::Store { to, value, .. } => {
                    self.address(at, &to, false);
                    self.value(at, value);
                }
                Effect::ClobberRange(to) => self.address(at, &to, true),
                Effect::ClobberFlags
                | Effect::Clobber(_)
                | Effect::ClobberMemory
                | Effect::Escape(_)
                | Effect::Swap(..)
                | Effect::SystemCall { .. }
                | Effect::BranchIf(_)
                | Effect::OnlyIf(_) => {}
            }
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
        // What something unknown is added to is the beginning of an array.
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

    /// Makes addresses of the distances whose global offset table is known by now.
    pub(super) fn settle(&mut self, base: impl Fn(Addr) -> Option<Addr>) {
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

    pub(super) fn add(&mut self, at: Addr, number: u64, as_pointer: bool) {
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

    /// Notes the address of what may be a string of the C library.
    pub(super) fn note_string(&mut self, at: Addr, number: u64) {
        if self.names_strings && !self.image.is_writable(Addr(number)) && !self.image.is_code(Addr(number)) {
            let asks = |address| self.image.object_at(address).is_some_and(is_service);
            if asks(Addr(number)) && asks(at) && self.seen.insert(Addr(number)) {
                self.strings.push(Addr(number));
            }
        }
    }
}

impl Code<'_> {
    /// The addresses in their constant memory that the code of the C library and of its services names, as they
    /// are found.
    pub fn named_strings(&self) -> &[Addr] {
        &self.references.strings
    }
}

/// The instructions that name an address that the program may write to, by address.
pub struct References {
    /// See [`Image::pointed_to`].
    pointed_to: Arc<[Addr]>,
    references: Vec<Reference>,
}

impl References {
    /// Those of all code that can run.
    pub fn new(code: &Code) -> References {
        let is_data = |reference: &Reference| code.image.is_writable(reference.to);
        let relative = code.references.distances.iter().filter_map(|&(distance, reference)| {
            let table = code.global_offset_table(reference.at)?;
            let to = code.image.wrap(table.0.wrapping_add_signed(distance));
            Some(Reference { to: Addr(to), ..reference })
        });
        let absolute = code
            .references
            .absolute
            .iter()
            .map(|&reference| Reference { to: Addr(code.image.wrap(reference.to.0)), ..reference });
        let mut references: Vec<Reference> = absolute.chain(relative).filter(is_data).collect();
        references.par_sort_unstable();
        references.dedup();
        References { pointed_to: Arc::clone(&code.image.pointed_to), references }
    }

    /// The instructions that name just this address.
    pub fn to(&self, address: Addr) -> &[Reference] {
        self.within(address.0..address.0.saturating_add(1))
    }

    /// Whether the `width` bytes at an address are a variable of their own, as far as code tells: they are named, as a
    /// whole only, and no pointer to them or to what they are a part of is made, nor is there one in data. Their
    /// variable is known if symbols give sizes of variables; otherwise they stand for all of it.
    pub fn is_variable(&self, image: &Image, address: Addr, width: u8) -> bool {
        let named = !self.to(address).is_empty();
        let end = address.plus(width.into());
        let whole = image.known_variable(address).unwrap_or(address.0..end.0);
        let parts = self.within(address.0.saturating_add(1)..end.0);
        named
            && parts.is_empty()
            && self.pointed_to(whole.clone()).is_empty()
            && !self.within(whole).iter().any(|reference| reference.as_pointer)
    }

    /// The instructions that name an address in a range.
    pub fn within(&self, range: Range<u64>) -> &[Reference] {
        let first = self.references.partition_point(|reference| reference.to.0 < range.start);
        let count = self.references[first..].partition_point(|reference| reference.to.0 < range.end);
        &self.references[first..first + count]
    }

    /// The addresses in a range that words of data point to.
    pub fn pointed_to(&self, range: Range<u64>) -> &[Addr] {
        let first = self.pointed_to.partition_point(|address| address.0 < range.start);
        let count = self.pointed_to[first..].partition_point(|address| address.0 < range.end);
        &self.pointed_to[first..first + count]
    }
}
