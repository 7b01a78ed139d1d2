//! The data that reachable code can read, and therefore the pointers in data that count.
//!
//! A function with its address in data can be called once reachable code can read the pointer. That requires the
//! address of the variable around the pointer: reachable code loads it ([`super::uses`]), or other readable data
//! contains it.
//!
//! The assumptions about compiled code are the rules of C for pointers, and their use by compilers:
//!
//! - An address within a variable reaches only this variable. If the sizes of variables are unknown, it reaches
//!   everything up to the next variable of known size or the end of the section, because code refers to a variable by
//!   its first byte or a later one.
//! - The address of the end of a variable reaches the variable if the function that loads it counts down from it.
//! - If code adds an unknown index to an address, the variable may begin up to [`MAX_BIAS`] bytes after it, or
//!   [`SMALL_BIAS`] bytes if a known variable begins at the address.
//!
//! Variables that linkers collect in sections, to be walked from the first to the last one, are treated as one
//! variable, see [`crate::image::Variables`].

pub(super) mod readable;

use std::ops::Range;

use kisa::{Address, Addressing, BinaryOp, Effect, MemoryOperand, Reg, Value};

use self::readable::{FunctionWord, How};
use super::reachable::{Activity, Code};
use super::run::ExitKind;
use super::work::Work;
use crate::image::{Addr, MAX_BIAS, SMALL_BIAS};

impl Code<'_> {
    /// Records the data addresses that an instruction refers to.
    pub(super) fn note_data(&mut self, at: Addr, effects: &[Effect], operand: Option<MemoryOperand>) {
        // A branch through a constant word is a separate edge.
        if self.is_blind() || self.linked(at, effects).is_some() {
            return;
        }
        let mut in_memory = false;
        for effect in effects {
            match *effect {
                Effect::Set { dst, value, width } if self.note_pointer(at, dst, value, width) => {
                    in_memory = true
                }
                Effect::Set { dst, value, .. }
                | Effect::MaybeSet { dst, value, .. }
                | Effect::SetSigned { dst, value, .. } => {
                    in_memory |= self.note_value(at, value, How::Register(dst));
                }
                Effect::Binary { op, left, right, .. } => {
                    in_memory |= self.note_value(at, left, How::Indexed);
                    // Subtracting an address from another one does not reach data.
                    if op != BinaryOp::Sub || matches!(right, Value::Load { .. }) {
                        in_memory |= self.note_value(at, right, How::Indexed);
                    }
                    if let (BinaryOp::Add, Value::Const(distance)) = (op, right) {
                        self.note_distance(at, i64::from(distance as u32 as i32), How::Indexed);
                    }
                }
                // Neither does comparing them.
                Effect::Compare { .. } | Effect::CompareZero { .. } | Effect::BranchIfCompared { .. } => {
                    for (from, width) in effect.memory_read() {
                        self.note_address(at, &from, How::Direct(width));
                        in_memory = true;
                    }
                }
                Effect::Store { to, value, width } => {
                    self.note_address(at, &to, How::Direct(width));
                    self.note_value(at, value, How::Stored);
                    in_memory = true;
                }
                Effect::ClobberRange(to) => {
                    self.note_address(at, &to, How::Stored);
                    in_memory = true;
                }
                Effect::Transfer(value) => in_memory |= self.note_value(at, value, How::Stored),
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
        if let (false, Some(operand)) = (in_memory, operand) {
            self.note_address(at, &operand.address, How::Direct(operand.width));
        }
    }

    /// Records a pointer that an instruction reads from a constant word, such as a global offset table slot. Returns
    /// whether it is one.
    fn note_pointer(&mut self, at: Addr, register: Reg, value: Value, width: u8) -> bool {
        let Value::Load {
            from: Address { base: None, index: None, displacement, segment: None, .. }, ..
        } = value
        else {
            return false;
        };
        let word = Addr(self.image.wrap(displacement as u64));
        let whole = width == self.image.machine.word_size();
        let Some(target) = self.image.constant(word, width).map(Addr).filter(|_| whole) else { return false };
        if self.image.is_code(target) {
            self.live.functions.push(FunctionWord { word, target, at, register });
        } else if self.image.object_at(target).is_some() {
            self.note_beginning(target, at);
            self.live.registers.push((target, at, register));
        } else {
            return false;
        }
        true
    }

    /// Returns whether the value is in memory, or an address.
    fn note_value(&mut self, at: Addr, value: Value, how: How) -> bool {
        match value {
            Value::Const(number) => {
                self.note_named(at, number, how);
                // The address of the global offset table may be added later.
                self.note_distance(at, i64::from(number as u32 as i32), How::Stored);
            }
            Value::Load { from, width } => self.note_address(at, &from, How::Direct(width)),
            Value::Address(address) => self.note_address(at, &Address { segment: None, ..address }, how),
            Value::Reg { .. } | Value::Symbol { .. } | Value::Unknown => return false,
        }
        !matches!(value, Value::Const(_))
    }

    fn note_address(&mut self, at: Addr, address: &Address, how: How) {
        if address.segment.is_some() {
            return;
        }
        let how = if address.index.is_some() { How::Indexed } else { how };
        let from_base = if address.base.is_some() { How::Indexed } else { how };
        self.note_named(at, address.displacement as u64, from_base);
        // The stack pointer never points to the global offset table.
        if address.base.is_some_and(|base| base != self.isa.convention().stack_pointer) {
            self.note_distance(at, address.displacement, how);
        }
    }

    /// Records a possible distance from the global offset table.
    fn note_distance(&mut self, at: Addr, distance: i64, how: How) {
        if self.image.machine.target().has_got_register {
            self.live.distances.push((distance, at, how));
        }
    }

    fn note_named(&mut self, at: Addr, number: u64, how: How) {
        let address = Addr(self.image.wrap(number));
        // The argument of `__tls_get_addr` is a pointer to two words about a thread-local variable.
        if self.image.is_near_data(address) && !self.image.is_number_slot(address) {
            self.note_beginning(address, at);
            self.note_base(address);
            self.live.named.push((address, at, how));
        }
    }

    /// Returns whether data addresses take several instructions, so that references to data are not recognised.
    pub(super) fn is_blind(&self) -> bool {
        self.isa.addressing() != Addressing::Whole
    }

    /// Makes the variable at an address readable by reachable code.
    pub fn open(&mut self, address: Addr) {
        self.live.named.push((address, address, How::Stored));
    }

    /// Adds the pointers in data that code can read so far. Returns whether any is new.
    pub fn read_data(&mut self) -> bool {
        if self.is_blind() {
            return self.take_pointers();
        }
        let before = self.work.len();
        let mut ranges = Vec::new();
        self.place_distances(&mut ranges);
        self.open_objects(&mut ranges);
        for (address, at, how) in std::mem::take(&mut self.live.named) {
            match how {
                How::Direct(width) => ranges.push(address.0..address.0.saturating_add(width.into())),
                How::Stored => ranges.push(self.image.pointed_variable(address)),
                How::Indexed => ranges.extend(self.indexed(address, at)),
                How::Register(register) => self.live.registers.push((address, at, register)),
            }
        }
        self.read_ranges(ranges);
        // Without known sizes, the lowest address reaches the most.
        self.live.registers.sort_unstable_by_key(|&(address, ..)| address);
        for (address, at, register) in std::mem::take(&mut self.live.registers) {
            let mut most = self.indexed(address, at);
            most.push(self.image.variable_before(address));
            if !most.iter().any(|range| self.is_news(range)) {
                continue; // no use of the address matters
            }
            let uses = self.uses(at, register);
            let accessed = uses.accesses.iter().map(|&(distance, width)| {
                let start = self.image.wrap(address.0.wrapping_add_signed(distance));
                start..start.saturating_add(width.into())
            });
            let mut ranges: Vec<Range<u64>> = accessed.collect();
            // The distance to the end of a section is compared to check whether an address is in the section.
            let is_end = self.image.ends_section(address) && !uses.escapes && uses.accesses.is_empty();
            if (uses.escapes || uses.indexed) && !is_end {
                ranges.push(self.image.pointed_variable(address));
            }
            if uses.indexed && uses.accesses.is_empty() && !is_end {
                ranges.extend(self.indexed(address, at));
            }
            if uses.descends {
                ranges.push(self.image.variable_before(address));
            }
            self.read_ranges(ranges);
            self.live.registers.push((address, at, register));
        }
        for function in std::mem::take(&mut self.live.functions) {
            self.follow_function(function);
        }
        self.work.len() > before
    }

    /// Finds the calls of a function whose address an instruction reads from a constant word. If the address is only
    /// called, its callers are known.
    fn follow_function(&mut self, function: FunctionWord) {
        let FunctionWord { word, target, at, register } = function;
        let uses = self.uses(at, register);
        if uses.escapes || uses.indexed || !uses.accesses.is_empty() {
            return self.take_pointer(word, target);
        }
        for call in uses.transfers {
            let Some(exit) = self.exit_at(call).filter(|_| self.live.calls.insert((call, target))) else {
                continue;
            };
            match self.exit(exit).kind {
                ExitKind::IndirectCall => self.work.push(Work::Call(exit, target)),
                _ => {
                    self.entry_at(target).linked = true;
                    self.add_targets(exit, &[target]);
                }
            }
        }
        self.live.functions.push(function);
    }

    fn note_beginning(&mut self, address: Addr, at: Addr) {
        if self.image.known_variable(address).is_some_and(|known| known.start == address.0) {
            let function = self.image.extent_around(at).map_or(at, |extent| extent.start);
            self.live.beginnings.insert((address, function));
        }
    }

    /// Returns whether the function of an instruction refers to the beginning of a variable.
    fn is_named_near(&self, variable: &Range<u64>, at: Addr) -> bool {
        let function = self.image.extent_around(at).map_or(at, |extent| extent.start);
        self.live.beginnings.contains(&(Addr(variable.start), function))
    }

    /// Returns whether a range contains pointers that have not been added.
    fn is_news(&self, range: &Range<u64>) -> bool {
        !self.live.has_all(range) && self.image.pointers(range.clone()).next().is_some()
    }

    /// Turns distances from global offset tables into addresses, if the table is known by now.
    fn place_distances(&mut self, ranges: &mut Vec<Range<u64>>) {
        let image = self.image;
        for (distance, at, how) in std::mem::take(&mut self.live.distances) {
            let Some(table) = self.global_offset_table(at) else {
                self.live.distances.push((distance, at, how));
                continue;
            };
            let address = Addr(image.wrap(table.0.wrapping_add_signed(distance)));
            let in_table = image.object_at(address).is_some_and(|loaded| loaded.is_slot(address));
            // The distance to other objects is unknown.
            let object = image.object_index(address);
            let is_own = object.is_none_or(|object| Some(object) == image.object_index(at));
            // No code makes pointers to the table's words.
            if is_own && (matches!(how, How::Direct(_)) || !in_table) {
                self.note_named(at, address.0, how);
            }
        }
        // Position-independent code with an unknown base may read anything.
        let lost = self.live.distances.iter().filter(|(_, at, _)| !image.is_fixed(*at));
        ranges.extend(lost.filter_map(|&(_, at, _)| image.object_at(at)).flat_map(|loaded| loaded.data()));
    }

    /// Adds the data of newly loaded objects that can be read without a reference.
    fn open_objects(&mut self, ranges: &mut Vec<Range<u64>>) {
        for (index, loaded) in self.image.objects.iter().enumerate() {
            if self.active[index] != Activity::Loaded {
                continue;
            }
            self.active[index] = Activity::Counts;
            // Code that looks up functions by name may look up variables as well.
            if !loaded.at_start || loaded.whole {
                ranges.extend(loaded.data());
            }
            // The code that starts a thread copies the thread-local variables.
            ranges.extend(loaded.thread_local());
        }
    }

    /// Returns the data that an indexed address may reach.
    fn indexed(&self, address: Addr, at: Addr) -> Vec<Range<u64>> {
        let own = self.image.pointed_variable(address);
        let bias = match self.image.known_variable(address) {
            Some(known) if known.start == address.0 => SMALL_BIAS,
            // A member of the first element of an array whose beginning the function refers to as well.
            Some(known) if known.end - address.0 > SMALL_BIAS && self.is_named_near(&known, at) => 0,
            _ => MAX_BIAS,
        };
        let end = address.0.saturating_add(bias);
        let mut next = own.end;
        let mut ranges = vec![own];
        while next < end {
            let Some(loaded) = self.image.object_at(Addr(next)) else {
                next = self.image.next_object(Addr(next)).map_or(end, |start| start.0);
                continue;
            };
            // Code refers to words of the global offset table by name.
            if loaded.is_slot(Addr(next)) {
                next = self.image.pointed_variable(Addr(next)).end;
                continue;
            }
            let variable = self.image.variable(Addr(next));
            next = variable.end.max(next + 1);
            ranges.push(variable);
        }
        ranges
    }

    /// Adds the pointers in ranges of data, and in all data that they reach.
    fn read_ranges(&mut self, mut ranges: Vec<Range<u64>>) {
        while let Some(range) = ranges.pop() {
            for new in self.live.add(range) {
                self.read_pointers(new, &mut ranges);
            }
        }
    }

    /// Adds the pointers in a range of data.
    fn read_pointers(&mut self, range: Range<u64>, ranges: &mut Vec<Range<u64>>) {
        let image = self.image;
        for (word, target) in image.pointers(range) {
            if image.is_code(target) {
                self.take_pointer(word, target);
            } else {
                ranges.push(image.variable(target));
            }
        }
    }
}
