//! A process in memory: its objects, and the bytes at its addresses.

use std::ops::Range;
use std::sync::Arc;

use kelf::Machine;
use rustc_hash::FxHashSet;

use super::bytes::number;
use super::loaded::Loaded;
use super::process::Asker;
use super::ranges::{contains, normalize};
use super::segment::{Segment, bytes_at, bytes_in};
use super::unwind::Extent;
use crate::address::Addr;

/// Maximum distance in bytes from an indexed address to the start of the variable after it: tables of letters indexed
/// by `c - 'a'`, of errors by `number - 1`, and similar.
pub const MAX_BIAS: u64 = 4096;

/// The same if another variable begins at that address, a coincidence that only small distances cause.
pub const SMALL_BIAS: u64 = 64;

/// Maximum distance in bytes from an object at which an address may be relative to the object.
const SLACK: u64 = 0x10000;

/// The number of an object in an image, by rising address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectIndex(pub(super) u32);

impl ObjectIndex {
    /// Returns the index as a `usize`, to index a slice.
    pub fn get(self) -> usize {
        self.0 as usize
    }
}

/// A process in memory.
#[derive(Debug)]
pub struct Image {
    /// Its machine.
    pub machine: Machine,
    /// The first address that runs: the interpreter's entry point, if there is an interpreter.
    pub entry: Addr,
    /// The objects in it, by rising address.
    pub objects: Vec<Loaded>,
    /// The objects that code may request by name at run time.
    pub named: Vec<NamedObjects>,
    /// The places that request only the names that the user has given.
    pub settled: Vec<Asker>,
    /// See [`super::Process::given`].
    pub given: Vec<String>,
    pub(super) segments: Vec<Segment>,
    pub(super) code: Vec<Range<u64>>,
    /// Memory that is never written to.
    pub(super) read_only: Vec<Range<u64>>,
    pub(super) writable: Vec<Range<u64>>,
    /// Words outside of `read_only` that keep their address after relocation.
    pub(super) filled: FxHashSet<Addr>,
    /// Words of the global offset table with numbers about thread-local variables.
    pub(super) numbers: FxHashSet<Addr>,
    /// Words in constant memory that the program computes at start (`IRELATIVE` and the like).
    pub(super) computed: FxHashSet<Addr>,
    /// Data addresses in words of data and of the global offset table, by rising address.
    pub pointed_to: Arc<[Addr]>,
}

/// An object that code requests by name.
#[derive(Debug)]
pub struct NamedObjects {
    /// The strings that request it.
    pub strings: Vec<String>,
    /// The library that is then loaded.
    pub library: Option<ObjectIndex>,
    /// The library and its dependencies.
    pub objects: Vec<ObjectIndex>,
    /// The functions that are then called.
    pub functions: Vec<Addr>,
}

impl Image {
    /// Returns the bytes from `address` to the end of its segment; empty outside of any segment.
    pub fn bytes(&self, address: Addr) -> &[u8] {
        bytes_at(&self.segments, address.0)
    }

    /// Returns the bytes in a range of addresses, as far as one segment has them.
    pub fn bytes_in(&self, range: &Range<u64>) -> &[u8] {
        bytes_in(&self.segments, range)
    }

    /// Returns the bytes of code from an instruction to the end of its segment; empty outside of any segment.
    pub fn code_bytes(&self, instruction: Addr) -> &[u8] {
        self.bytes(self.first_byte(instruction))
    }

    /// Returns the address of an instruction's first byte.
    pub fn first_byte(&self, instruction: Addr) -> Addr {
        Addr(self.machine.first_byte(instruction.0))
    }

    /// Returns whether an instruction may be at this address.
    pub fn is_code(&self, address: Addr) -> bool {
        self.machine.is_aligned_code(address.0) && contains(&self.code, address.0, 1)
    }

    /// Returns whether the running program may write to this address.
    pub fn is_writable(&self, address: Addr) -> bool {
        contains(&self.writable, address.0, 1)
    }

    /// Returns the program's first address and the one after its last.
    pub fn memory(&self) -> (u64, u64) {
        let ends = self.segments.iter().map(|segment| segment.address.saturating_add(segment.memory_size));
        let starts = self.segments.iter().map(|segment| segment.address);
        (starts.min().unwrap_or(0), ends.max().unwrap_or(0))
    }

    /// Returns whether an address is in data, or so close before data that an index which is never 0 may be added to
    /// it.
    pub fn is_near_data(&self, address: Addr) -> bool {
        let is_data = |address: Addr| self.object_at(address).is_some() && !self.is_code(address);
        is_data(address) || is_data(Addr(address.0.saturating_add(MAX_BIAS)))
    }

    /// Returns the range that a data address may reach, provided that it denotes the variable around it. Every word of
    /// the global offset table is a variable.
    pub fn variable(&self, address: Addr) -> Range<u64> {
        let Some(loaded) = self.object_at(address) else { return address.0..address.0.saturating_add(1) };
        if loaded.is_slot(address) {
            return address.0..address.0.saturating_add(self.machine.word_size().into());
        }
        let own = loaded.object.variables.around(loaded.own(address).0);
        let end = own.end.wrapping_add(loaded.base).min(loaded.memory.end);
        own.start.wrapping_add(loaded.base)..end
    }

    /// Returns the range that a pointer to a data address may reach: an address of a word of the global offset table
    /// then denotes the whole table, as in the large code model.
    pub fn pointed_variable(&self, address: Addr) -> Range<u64> {
        let loaded = self.object_at(address).filter(|loaded| loaded.is_slot(address));
        let table = loaded.and_then(|loaded| {
            let own = loaded.own(address).0;
            let table = loaded.object.got.iter().find(|table| table.contains(&own))?;
            Some(loaded.range(table))
        });
        table.unwrap_or_else(|| self.variable(address))
    }

    /// Returns the range before an address, provided that the address is the end of a variable.
    pub fn variable_before(&self, address: Addr) -> Range<u64> {
        let Some(loaded) = self.object_at(Addr(address.0.wrapping_sub(1))) else {
            return address.0..address.0;
        };
        let start = loaded.object.variables.before(loaded.own(address).0);
        loaded.address(start).0..address.0
    }

    /// Returns the variable at an address, if its size is known.
    pub fn known_variable(&self, address: Addr) -> Option<Range<u64>> {
        let loaded = self.object_at(address)?;
        loaded.object.variables.known(loaded.own(address).0).map(|own| loaded.range(&own))
    }

    /// Returns whether a section ends at an address and no other begins there.
    pub fn ends_section(&self, address: Addr) -> bool {
        self.object_at(address)
            .is_some_and(|loaded| loaded.object.variables.ends_section(loaded.own(address).0))
    }

    /// Returns the words in a range of data that point into the process: (place, target).
    pub fn pointers(&self, range: Range<u64>) -> impl Iterator<Item = (Addr, Addr)> + '_ {
        let loaded = self.object_at(Addr(range.start));
        let lists = loaded.into_iter().flat_map(|l| [&l.code_pointers, &l.slots, &l.data_pointers]);
        let word = u64::from(self.machine.word_size());
        lists.flat_map(move |list| {
            let first = list.partition_point(|&(place, _)| place.0.saturating_add(word) <= range.start);
            let end = range.end;
            list[first..].iter().copied().take_while(move |&(place, _)| place.0 < end)
        })
    }

    /// Returns the ranges of code, by rising address.
    pub fn code(&self) -> &[Range<u64>] {
        &self.code
    }

    /// Returns the numbers of all objects.
    pub fn indices(&self) -> impl Iterator<Item = ObjectIndex> + use<> {
        (0..self.objects.len() as u32).map(ObjectIndex)
    }

    /// Returns the interpreter, in a process that also has a program.
    pub fn interpreter(&self) -> Option<&Loaded> {
        let first = self.object_at(self.entry)?;
        let is_program = |loaded: &Loaded| loaded.object.interpreter.is_some();
        (!is_program(first) && self.objects.iter().any(is_program)).then_some(first)
    }

    /// Returns the object at an address.
    pub fn object_at(&self, address: Addr) -> Option<&Loaded> {
        self.object_index(address).map(|index| &self.objects[index.get()])
    }

    /// Returns the number of the object at an address.
    pub fn object_index(&self, address: Addr) -> Option<ObjectIndex> {
        let next = self.objects.partition_point(|object| object.memory.start <= address.0);
        let index = next.checked_sub(1).filter(|&index| address.0 < self.objects[index].memory.end)?;
        Some(ObjectIndex(index as u32))
    }

    /// Returns the start of the first object after an address.
    pub fn next_object(&self, address: Addr) -> Option<Addr> {
        let next = self.objects.partition_point(|object| object.memory.start <= address.0);
        self.objects.get(next).map(|object| Addr(object.memory.start))
    }

    /// Returns whether an address is in an object that is loaded at its own addresses, so that a constant in its code
    /// may be this address.
    pub fn is_fixed(&self, address: Addr) -> bool {
        self.object_at(address).is_some_and(|loaded| loaded.object.fixed)
    }

    /// Returns whether an address is in an object that may be loaded elsewhere.
    pub fn is_movable(&self, address: Addr) -> bool {
        self.object_at(address).is_some_and(|loaded| !loaded.object.fixed)
    }

    /// Returns whether a number may be an address in a position-independent program.
    pub fn may_be_moved(&self, number: u64) -> bool {
        let first = self.objects.first().map_or(u64::MAX, |first| first.memory.start);
        if number.saturating_add(SLACK) < first {
            return false;
        }
        let near = [number, number.saturating_add(SLACK), number.saturating_sub(SLACK)];
        near.into_iter().any(|address| self.is_movable(Addr(address)))
    }

    /// Returns the words of data that may be pointers to code: (place, target).
    pub fn code_pointers(&self) -> impl Iterator<Item = (Addr, Addr)> {
        self.objects.iter().flat_map(|object| object.code_pointers.iter().copied())
    }

    /// Returns the file at an address, and the address in the file.
    pub fn place(&self, address: Addr) -> (Arc<str>, Addr) {
        match self.object_at(address) {
            Some(loaded) => (Arc::clone(&loaded.file), loaded.own(address)),
            None => (Arc::clone(&self.objects[0].file), address),
        }
    }

    /// Returns whether the user has given the names that an instruction requests.
    pub fn is_settled(&self, at: Addr) -> bool {
        let (file, own) = self.place(at);
        self.settled.iter().any(|asker| asker.is(&file, own))
    }

    /// Returns a human-readable place in code: the function, if it has a name, and the address in its file, with the
    /// name of the file if there are several.
    pub fn describe(&self, at: Addr) -> String {
        match self.function_at(at) {
            Some(function) => format!("{function} ({})", self.describe_data(at)),
            None => self.describe_data(at),
        }
    }

    /// Returns an address in its file, with the name of the file if there are several.
    pub fn describe_data(&self, at: Addr) -> String {
        let (file, own) = self.place(at);
        match file.rsplit('/').next().filter(|_| self.objects.len() > 1) {
            Some(name) => format!("{name}:{own}"),
            None => own.to_string(),
        }
    }

    /// Returns the name of the function at this address.
    pub fn function_at(&self, address: Addr) -> Option<&str> {
        let loaded = self.object_at(address)?;
        loaded.object.symbols.function_at(loaded.own(address))
    }

    /// Returns whether a function starts at this address.
    pub fn is_function(&self, address: Addr) -> bool {
        self.object_at(address).is_some_and(|loaded| loaded.object.symbols.is_function(loaded.own(address)))
    }

    /// Returns the extent around this address.
    pub fn extent_around(&self, address: Addr) -> Option<Extent> {
        let loaded = self.object_at(address)?;
        loaded.object.extents.around(loaded.own(address)).map(|extent| extent.moved(loaded.base))
    }

    /// Returns the extent around this address, or for hand-written code the extent of a symbol with a size.
    pub fn extent_or_symbol(&self, address: Addr) -> Option<Extent> {
        self.extent_around(address).or_else(|| {
            let loaded = self.object_at(address)?;
            let bounds = loaded.object.symbols.bounds(loaded.own(address))?;
            let extent = Extent { start: bounds.start, end: bounds.end, handlers: None, personality: None };
            Some(extent.moved(loaded.base))
        })
    }

    /// Returns all extents with landing pads.
    pub fn extents_with_pads(&self) -> impl Iterator<Item = Extent> {
        self.objects.iter().flat_map(|loaded| {
            let extents = loaded.object.extents.iter().chain(&loaded.object.unwound);
            let extents = extents.filter(|extent| extent.handlers.is_some());
            extents.map(|extent| extent.moved(loaded.base))
        })
    }

    /// Returns the pages (of 4 KiB) with constant words, by rising address.
    pub fn constant_pages(&self) -> Vec<Range<u64>> {
        let page = |address: u64| address & !0xfff;
        let read_only = self.read_only.iter().map(|range| page(range.start)..range.end);
        let filled = self.filled.iter().map(|word| page(word.0)..page(word.0).saturating_add(0x1000));
        normalize(read_only.chain(filled).collect())
    }

    /// Returns the number of `width` bytes (at most 8) at an address, if it never changes.
    pub fn constant(&self, address: Addr, width: u8) -> Option<u64> {
        let filled = || width <= self.machine.word_size() && self.filled.contains(&address);
        let known = contains(&self.read_only, address.0, width.into()) || filled();
        if known && !self.computed.contains(&address) && !self.numbers.contains(&address) {
            self.initial(address, width)
        } else {
            None
        }
    }

    /// Returns whether a word of the global offset table holds a number about a thread-local variable, not an address.
    pub fn is_number_slot(&self, word: Addr) -> bool {
        self.numbers.contains(&word)
    }

    /// Returns whether `size` bytes at an address never change.
    pub fn is_constant(&self, address: Addr, size: usize) -> bool {
        contains(&self.read_only, address.0, size as u64)
    }

    /// Returns the number of `width` bytes (at most 8) at an address when the program starts.
    pub fn initial(&self, address: Addr, width: u8) -> Option<u64> {
        let bytes = self.bytes(address).get(..usize::from(width))?;
        (width <= 8).then(|| number(bytes))
    }

    /// Returns the string at an address.
    pub fn string(&self, address: Addr) -> Option<&[u8]> {
        let bytes = self.bytes(address);
        bytes.iter().position(|&byte| byte == 0).map(|end| &bytes[..end])
    }

    /// Returns a number modulo the machine's word.
    pub fn wrap(&self, value: u64) -> u64 {
        if self.machine.is_64() { value } else { value & 0xffff_ffff }
    }
}
