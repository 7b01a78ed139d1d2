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

mod bind;
mod place;
mod scan;

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::bytes::number;
use super::loaded::Loaded;
use super::memory::{Image, NamedObjects, ObjectIndex};
use super::process::{Bound, Member, MemberIndex, Process, Scopes};
use super::ranges::{contains, normalize};
use super::segment::{Segment, bytes_at, bytes_in};
use super::{object, vsyscall};
use crate::Error;
use crate::address::Addr;

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
        let bases = place::bases(process)?;
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
        let is_interpreter = |object: &Arc<object::Object>| {
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
        self.process.members[0].object.machine.is_aligned_code(address) && contains(&self.code, address, 1)
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

    /// Maps the vsyscall page, if the kernel has one and some file refers to the page ([`vsyscall`]).
    fn map_vsyscall(&mut self) -> Option<Loaded> {
        let is_named = |segment: &Segment| vsyscall::is_named_in(&segment.bytes);
        let machine = self.process.members[0].object.machine;
        if !machine.target().programs.has_vsyscall || !self.segments.iter().any(is_named) {
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
