//! Linking like the dynamic linker: every object of a process gets its address, and is relocated.
//!
//! The addresses are arbitrary, because the kernel's are random: a fact about one address holds for no other. Objects
//! are far apart, so that a number which is not an address is rarely treated as one.
//!
//! # Constant memory
//!
//! Code reads the global offset table, and memory that is protected after relocation, as often as constants, and their
//! contents determine the targets of calls. A word counts as constant in these cases:
//!
//! - The segment is read-only.
//! - A relocation fills a word of the global offset table: nothing else writes there. A lazily bound slot holds the
//!   binder's result from the beginning; the interpreter's code that exposes the binder's address makes the binder
//!   reachable.
//! - A relocation fills a word of memory that is protected afterwards and is not the interpreter's own. Other words
//!   there are not constant: the C library sets variables among them before it protects them.
//! - No code of the object runs before its constants with addresses (`.data.rel.ro`) are protected.
//!
//! A word that a function of the program computes (`IRELATIVE`, symbols of functions that select functions) is unknown,
//! as is one that may bind to several definitions.

use std::ops::Range;
use std::sync::Arc;

use kelf::Machine;
use rustc_hash::{FxHashMap, FxHashSet};

use super::object::{Segment, bytes_at, bytes_in};
use super::process::{Bound, Member, MemberIndex, Process, Scopes, Use};
use super::relocs::{Reloc, RelocKind, number};
use super::{
    Addr, DynamicSymbol, Image, Loaded, NamedObjects, Object, ObjectIndex, SymbolKind, contains, is_code,
    normalize, vsyscall,
};
use crate::Error;

/// The distance of objects on 64-bit machines, and the address of the first.
const WIDE: u64 = 1 << 32;
const WIDE_START: u64 = 16 * WIDE;
const WIDE_END: u64 = 1 << 47;

/// The same for 32-bit machines, whose programs at fixed addresses are below.
const NARROW: u64 = 1 << 16;
const NARROW_START: u64 = 0x2000_0000;
const NARROW_END: u64 = 0xff00_0000;

/// Functions that interpreters look up by name in the loaded libraries and call: in glibc's `elf/dl-minimal-malloc.c`,
/// `elf/dl-call-libc-early-init.c` and `elf/dl-mutex.c`; in musl's `ldso/dynlink.c`; in uClibc-ng's `ldso/ldso/ldso.c`.
const LOOKED_UP: [&str; 11] = [
    "__libc_early_init",
    "__libc_memalign",
    "calloc",
    "free",
    "malloc",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "realloc",
    "__dls2b",
    "__dls3",
    "__pthread_initialize_minimal",
];

impl Image {
    /// Loads the files of a process into memory and relocates them.
    ///
    /// # Errors
    /// If they do not fit into one address space, or the entry point is outside of the code.
    pub fn link(process: &Process) -> Result<Image, Error> {
        let bases = place(process)?;
        let machine = process.members[0].object.machine;
        let mut linker = Linker::new(process, &bases);
        for index in (0..process.members.len() as u32).map(MemberIndex) {
            linker.relocate(index);
        }
        for index in (0..process.members.len() as u32).map(MemberIndex) {
            linker.copy(index);
        }
        let vsyscall = linker.map_vsyscall();
        let mut objects: Vec<Loaded> = Vec::with_capacity(bases.len());
        for (index, member) in process.members.iter().enumerate() {
            objects.push(linker.loaded(MemberIndex(index as u32), member));
        }
        let mut order: Vec<usize> = (0..objects.len()).collect();
        order.sort_by_key(|&member| objects[member].memory.start);
        let index = |member: MemberIndex| {
            let place = order.iter().position(|&other| other == member.get()).unwrap_or(0);
            ObjectIndex(place as u32)
        };
        let named = process.named.iter().map(|named| NamedObjects {
            strings: named.strings.clone(),
            library: named.member.map(index),
            objects: process.closure(named.member.as_slice()).into_iter().map(index).collect(),
            functions: linker.functions_named(named.imports.iter().map(|name| &**name)),
        });
        let named = named.collect();
        // The vsyscall page comes after all others, so that their numbers do not change.
        objects.extend(vsyscall);
        objects.sort_by_key(|loaded| loaded.memory.start);
        let first = process.interpreter.unwrap_or(MemberIndex::FIRST);
        let entry =
            Addr(linker.wrap(process.members[first.get()].object.entry.wrapping_add(bases[first.get()])));
        let is_library = process.members[0].object.is_library();
        let writable = linker.segments.iter().filter(|segment| segment.writable);
        let writable = normalize(writable.map(|segment| segment.address..segment.end()).collect());
        let mut pointed_to = std::mem::take(&mut linker.pointed_to);
        pointed_to.sort_unstable();
        pointed_to.dedup();
        let image = Image {
            machine,
            entry,
            objects,
            code: linker.code,
            read_only: normalize(linker.read_only),
            writable,
            filled: linker.filled,
            named,
            settled: process.settled.clone(),
            given: process.given.clone(),
            numbers: linker.numbers,
            computed: linker.computed,
            pointed_to: pointed_to.into(),
            segments: linker.segments,
        };
        if !is_library && !image.is_code(entry) {
            let entry = Addr(process.members[first.get()].object.entry);
            return Err(Error::NoEntry { entry });
        }
        Ok(image)
    }
}

/// Returns the base of each member.
fn place(process: &Process) -> Result<Vec<u64>, Error> {
    let wide = process.members[0].object.machine.is_64();
    let (mut next, gap, end) =
        if wide { (WIDE_START, WIDE, WIDE_END) } else { (NARROW_START, NARROW, NARROW_END) };
    let fits = |memory: &Range<u64>| memory.end <= if wide { WIDE_END } else { 1 << 32 };
    let too_large = || Error::Damaged { error: "its segments do not fit into an address space".to_owned() };
    let mut taken: Vec<Range<u64>> = Vec::new();
    for member in process.members.iter().filter(|member| member.object.fixed) {
        let memory = member.object.memory();
        let free = |other: &Range<u64>| memory.end <= other.start || other.end <= memory.start;
        if !fits(&memory) || !taken.iter().all(free) {
            return Err(too_large());
        }
        taken.push(memory);
    }
    let mut bases = Vec::with_capacity(process.members.len());
    for member in &process.members {
        let memory = member.object.memory();
        if member.object.fixed {
            bases.push(0);
            continue;
        }
        let size = memory.end - memory.start;
        if size >= end {
            return Err(too_large());
        }
        let mut start = next;
        while let Some(other) = taken.iter().find(|other| start < other.end && other.start < start + size) {
            start = other.end.next_multiple_of(gap);
            if start >= end {
                return Err(too_large());
            }
        }
        let after = start + size;
        if after > end {
            return Err(too_large());
        }
        // Leave room for off-by-one addresses.
        next = (after + gap).next_multiple_of(gap);
        bases.push(start.wrapping_sub(memory.start));
    }
    Ok(bases)
}

/// Relocation in progress.
struct Linker<'p> {
    process: &'p Process,
    scopes: Scopes<'p>,
    bases: &'p [u64],
    segments: Vec<Segment>,
    code: Vec<Range<u64>>,
    read_only: Vec<Range<u64>>,
    filled: FxHashSet<Addr>,
    numbers: FxHashSet<Addr>,
    computed: FxHashSet<Addr>,
    pointed_to: Vec<Addr>,
    found: Vec<MemberWords>,
    /// The bindings of references, shared by several relocations.
    bound: FxHashMap<(MemberIndex, u32, u8), Arc<Bound<'p>>>,
}

/// The words found while relocating an object.
#[derive(Clone, Default)]
struct MemberWords {
    pointers: Vec<(Addr, Addr)>,
    slots: Vec<(Addr, Addr)>,
    data: Vec<(Addr, Addr)>,
    starts: Vec<Addr>,
}

impl<'p> Linker<'p> {
    fn new(process: &'p Process, bases: &'p [u64]) -> Linker<'p> {
        let members = || process.members.iter().zip(bases);
        let moved =
            |range: &Range<u64>, base: u64| range.start.wrapping_add(base)..range.end.wrapping_add(base);
        let mut segments: Vec<Segment> = members()
            .flat_map(|(member, &base)| {
                let segments = member.object.segments.iter().cloned();
                segments.map(move |s| Segment { address: s.address.wrapping_add(base), ..s })
            })
            .collect();
        segments.sort_by_key(|segment| segment.address);
        let code = members().flat_map(|(m, &base)| m.object.code.iter().map(move |r| moved(r, base)));
        let is_interpreter = |object: &Arc<super::Object>| {
            let interpreter = process.interpreter.map(|index| &process.members[index.get()].object);
            interpreter.is_none_or(|interpreter| Arc::ptr_eq(interpreter, object))
        };
        let protected = members()
            .filter(|(member, _)| !is_interpreter(&member.object) && !member.object.chooses_functions());
        let protected = protected.flat_map(|(member, &base)| {
            member.object.relocated_constants.iter().map(move |range| moved(range, base))
        });
        let read_only =
            members().flat_map(|(m, &base)| m.object.read_only.iter().map(move |r| moved(r, base)));
        Linker {
            process,
            scopes: process.scopes(),
            bases,
            code: normalize(code.collect()),
            read_only: read_only.chain(protected).collect(),
            segments,
            filled: FxHashSet::default(),
            numbers: FxHashSet::default(),
            computed: FxHashSet::default(),
            pointed_to: Vec::new(),
            found: vec![MemberWords::default(); process.members.len()],
            bound: FxHashMap::default(),
        }
    }

    fn is_code(&self, address: u64) -> bool {
        is_code(self.process.members[0].object.machine, &self.code, address)
    }

    fn word(&self) -> u8 {
        self.process.members[0].object.machine.word_size()
    }

    fn wrap(&self, value: u64) -> u64 {
        if self.word() == 8 { value } else { value & 0xffff_ffff }
    }

    fn read(&self, address: u64, width: u8) -> Option<u64> {
        bytes_at(&self.segments, address).get(..width.into()).map(number)
    }

    fn write(&mut self, address: u64, value: &[u8]) {
        let next = self.segments.partition_point(|segment| segment.address <= address);
        let Some(segment) = next.checked_sub(1).map(|index| &mut self.segments[index]) else { return };
        let Ok(offset) = usize::try_from(address - segment.address) else { return };
        let Some(end) = offset.checked_add(value.len()) else { return };
        if end <= segment.bytes.len() {
            Arc::make_mut(&mut segment.bytes)[offset..end].copy_from_slice(value);
        }
    }

    /// Maps the vsyscall page, if this is an x86-64 process and some file refers to the page ([`vsyscall`]).
    fn map_vsyscall(&mut self) -> Option<Loaded> {
        let is_named = |segment: &Segment| vsyscall::is_named_in(&segment.bytes);
        let machine = self.process.members[0].object.machine;
        if machine != Machine::X86_64 || !self.segments.iter().any(is_named) {
            return None;
        }
        let object = vsyscall::object()?;
        let word = u64::from(self.word());
        for (index, member) in self.process.members.iter().enumerate() {
            for range in &member.object.data {
                let start = next_word(range.start.wrapping_add(self.bases[index]), word);
                let data = start..range.end.wrapping_add(self.bases[index]);
                let words = bytes_in(&self.segments, &data).chunks_exact(word as usize).map(number);
                let found = words.zip((start..).step_by(word as usize));
                let found = found.filter(|(target, _)| vsyscall::functions().any(|own| own == *target));
                let found = found.map(|(target, place)| (Addr(place), Addr(target)));
                self.found[index].pointers.extend(found);
            }
        }
        self.segments.extend(object.segments.iter().cloned());
        self.code.extend(object.code.iter().cloned());
        self.read_only.extend(object.read_only.iter().cloned());
        Some(Loaded {
            file: vsyscall::NAME.into(),
            base: 0,
            at_start: true,
            whole: false,
            starts: Vec::new(),
            code_pointers: Vec::new(),
            slots: Vec::new(),
            is_c_library: false,
            data_pointers: Vec::new(),
            memory: object.memory(),
            object,
        })
    }

    /// Applies the relocations of a member, except copies.
    fn relocate(&mut self, index: MemberIndex) {
        let member = &self.process.members[index.get()];
        for reloc in &member.object.relocs {
            self.apply(index, reloc);
        }
        if member.object.fixed {
            self.scan(index, member);
        }
        let Some(dynamic) = &member.object.dynamic else { return };
        let base = self.bases[index.get()];
        let functions = dynamic.functions.iter().map(|function| function.wrapping_add(base));
        let mut starts: Vec<u64> = functions.collect();
        let word = self.word();
        for array in &dynamic.arrays {
            let array = array.start.wrapping_add(base)..array.end.wrapping_add(base);
            starts.extend(bytes_in(&self.segments, &array).chunks_exact(word.into()).map(number));
        }
        // Every exported function of such a library counts as called.
        if member.whole {
            let exported = dynamic.symbols.exported_functions().filter(|symbol| !symbol.absolute);
            starts.extend(exported.map(|symbol| symbol.value.wrapping_add(base)));
        }
        let starts: Vec<Addr> =
            starts.into_iter().map(|start| self.wrap(start)).filter(|&s| self.is_code(s)).map(Addr).collect();
        self.found[index.get()].starts.extend(starts);
    }

    fn apply(&mut self, index: MemberIndex, reloc: &Reloc) {
        let base = self.bases[index.get()];
        let place = self.wrap(reloc.place.wrapping_add(base));
        let word = self.word();
        let in_place = |linker: &Self, width| linker.read(place, width).unwrap_or(0);
        match reloc.kind {
            RelocKind::None | RelocKind::Copy => {}
            RelocKind::Relative | RelocKind::Irelative => {
                let addend = reloc.addend.map_or_else(|| in_place(self, word), |addend| addend as u64);
                let target = self.wrap(addend.wrapping_add(base));
                self.point(index, reloc.kind, place, Addr(target), reloc.kind == RelocKind::Irelative);
            }
            RelocKind::Absolute(_) | RelocKind::Slot | RelocKind::CallSlot | RelocKind::Distance(_) => {
                self.bind(index, reloc, place);
            }
            RelocKind::Number(words) => {
                let places = (0..words).map(|i| Addr(place.wrapping_add(u64::from(i) * u64::from(word))));
                self.numbers.extend(places);
            }
            RelocKind::Unknown => {
                self.computed.insert(Addr(place));
                self.bind(index, reloc, place);
            }
        }
    }

    /// Applies a relocation with a symbol.
    fn bind(&mut self, index: MemberIndex, reloc: &Reloc, place: u64) {
        let width = match reloc.kind {
            RelocKind::Absolute(width) | RelocKind::Distance(width) => width,
            _ => self.word(),
        };
        let in_slot = matches!(reloc.kind, RelocKind::Slot | RelocKind::CallSlot);
        let addend = match reloc.addend {
            Some(addend) => addend as u64,
            None if in_slot => 0,
            None => self.read(place, width).unwrap_or(0),
        };
        let purpose = if reloc.kind == RelocKind::CallSlot { Use::Call } else { Use::Address };
        let bound = self.lookup(index, reloc.symbol, purpose);
        if reloc.symbol == 0 {
            // By the System V ABI, the value of this symbol is 0.
            self.write_number(place, addend, width);
            return;
        }
        let whole = width == self.word() && !matches!(reloc.kind, RelocKind::Distance(_));
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
                let distance = matches!(reloc.kind, RelocKind::Distance(_));
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
    fn point(&mut self, index: MemberIndex, kind: RelocKind, place: u64, target: Addr, called: bool) {
        let own = place.wrapping_sub(self.bases[index.get()]);
        let member = &self.process.members[index.get()];
        let in_slot =
            matches!(kind, RelocKind::Slot | RelocKind::CallSlot) || contains(&member.object.got, own, 1);
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

    fn value(&self, definer: MemberIndex, symbol: &DynamicSymbol) -> u64 {
        let base = if symbol.absolute { 0 } else { self.bases[definer.get()] };
        self.wrap(symbol.value.wrapping_add(base))
    }

    /// Copies library variables to the program, which was linked as if they were its own.
    fn copy(&mut self, index: MemberIndex) {
        let member = &self.process.members[index.get()];
        let Some(dynamic) = &member.object.dynamic else { return };
        for reloc in member.object.relocs.iter().filter(|reloc| reloc.kind == RelocKind::Copy) {
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

    /// Finds the words of a program at a fixed address that hold code addresses without a relocation.
    fn scan(&mut self, index: MemberIndex, member: &Member) {
        let word = self.word();
        let object = &member.object;
        let mut found = Vec::new();
        let mut data = Vec::new();
        for range in &object.data {
            self.scan_unaligned(object, range, &mut found);
            let start = next_word(range.start, word.into());
            let words = bytes_in(&self.segments, &(start..range.end)).chunks_exact(word.into()).map(number);
            for (place, target) in words.enumerate().map(|(i, n)| (start + i as u64 * u64::from(word), n)) {
                let protected = contains(&object.relro, place, word.into());
                let is_slot = contains(&object.got, place, 1);
                // A slot of 0 belongs to an undefined weak symbol.
                if object.is_loaded(target) && (protected || is_slot) || target == 0 && is_slot {
                    self.filled.insert(Addr(place));
                }
                if object.is_code(target) {
                    found.push((Addr(place), Addr(target)));
                } else if object.is_loaded(target) {
                    self.pointed_to.push(Addr(target));
                    data.push((Addr(place), Addr(target)));
                }
            }
        }
        let (slots, pointers): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(place, _)| contains(&object.got, place.0, 1));
        self.found[index.get()].slots.extend(slots);
        self.found[index.get()].pointers.extend(pointers);
        self.found[index.get()].data.extend(data);
    }

    /// Finds unaligned words with code addresses, as in packed structures. Since many numbers look like such a word,
    /// only the addresses of functions count.
    fn scan_unaligned(&self, object: &Object, range: &Range<u64>, found: &mut Vec<(Addr, Addr)>) {
        let word = u64::from(self.word());
        let bytes = bytes_in(&self.segments, range);
        let begins = |target: u64| match object.extents.around(Addr(target)) {
            Some(extent) => extent.start == Addr(target),
            // Parts of numbers resemble addresses of ARM code more often than those of Thumb code, which are odd.
            None => word == 8 || object.machine == Machine::Arm && target & 1 != 0,
        };
        for (place, bytes) in (range.start..).zip(bytes.windows(word as usize)) {
            let target = number(bytes);
            let is_code = place % word != 0 && object.is_code(target);
            if is_code && (object.symbols.is_function(Addr(target)) || begins(target)) {
                found.push((Addr(place), Addr(target)));
            }
        }
    }

    /// Returns the functions with these names in the files present at program start, in every version.
    fn functions_named<'n>(&self, names: impl Iterator<Item = &'n [u8]>) -> Vec<Addr> {
        let mut functions = Vec::new();
        for name in names {
            for (index, member) in self.process.members.iter().enumerate().filter(|(_, m)| m.at_start) {
                let values =
                    member.object.exports(name).map(|symbol| self.value(MemberIndex(index as u32), symbol));
                functions.extend(values.filter(|&value| self.is_code(value)).map(Addr));
            }
        }
        functions
    }

    fn loaded(&mut self, index: MemberIndex, member: &Member) -> Loaded {
        let base = self.bases[index.get()];
        let mut found = std::mem::take(&mut self.found[index.get()]);
        for list in [&mut found.pointers, &mut found.slots, &mut found.data] {
            list.sort_unstable();
            list.dedup();
        }
        if self.process.interpreter == Some(index) {
            found.starts.extend(self.functions_named(LOOKED_UP.iter().map(|name| name.as_bytes())));
        }
        // The interpreter jumps to the program's entry point. Libraries that may be run as programs (libc.so.6,
        // libcap.so.2) also have an entry point, which a program that loads them never reaches.
        let start = self.wrap(member.object.entry.wrapping_add(base));
        if index == MemberIndex::FIRST && member.object.interpreter.is_some() && self.is_code(start) {
            found.starts.push(Addr(start));
        }
        found.starts.sort_unstable();
        found.starts.dedup();
        let memory = member.object.memory();
        Loaded {
            object: Arc::clone(&member.object),
            file: Arc::clone(&member.file),
            base,
            at_start: member.at_start,
            is_c_library: member.object.is_c_library(),
            whole: member.whole,
            starts: found.starts,
            code_pointers: found.pointers,
            slots: found.slots,
            data_pointers: found.data,
            memory: memory.start.wrapping_add(base)..memory.end.wrapping_add(base),
        }
    }
}

/// Returns the first aligned word at or after an address, or the last address of all.
fn next_word(address: u64, word: u64) -> u64 {
    address.checked_next_multiple_of(word).unwrap_or(u64::MAX)
}

/// Maximum number of zeros written out before a copied variable. Programs have their copies at the start of zeroed
/// memory.
const MAX_ZEROS: usize = 64 << 20;
