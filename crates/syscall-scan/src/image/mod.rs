//! A process before its first instruction: memory by address, entry points, and the words that may point to code.
//!
//! The executable, its interpreter and its libraries share one address space, relocated as by the dynamic linker
//! (`link.rs`). A call of a library's function through the global offset table is then a call through a constant, and
//! the rest of the scan need not distinguish objects. Libraries that the program may load later by name are included as
//! well, but count only once they are requested (`by_name`).

mod dynamic;
mod dynsym;
mod exidx;
mod link;
mod names;
mod object;
mod process;
mod relocs;
mod symbols;
mod unwind;
mod variables;
mod vsyscall;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use kelf::Machine;
use rustc_hash::FxHashSet;

pub use dynamic::Dynamic;
pub use dynsym::{DynamicSymbol, DynamicSymbols, SymbolKind, Version};
pub use object::Object;
pub use process::{Asker, Member, MemberIndex, Named, Process};
pub use symbols::Symbols;
pub use unwind::{Extent, Extents, Handlers, caught_types, landing_pads};
pub use variables::Variables;

use object::{Segment, bytes_at};

/// A virtual address of the process. On ARM, bit 0 marks Thumb code, as in ELF and branch instructions: such an address
/// denotes the instruction at the even address below.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Addr(pub u64);

impl Addr {
    /// Returns the address `bytes` further on.
    pub fn plus(self, bytes: u64) -> Addr {
        Addr(self.0.wrapping_add(bytes))
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Maximum distance in bytes from an indexed address to the start of the variable after it: tables of letters indexed
/// by `c - 'a'`, of errors by `number - 1`, and similar.
pub const MAX_BIAS: u64 = 4096;

/// The same if another variable begins at that address, a coincidence that only small distances cause.
pub const SMALL_BIAS: u64 = 64;

/// Maximum distance in bytes from an object at which an address may be relative to the object.
const SLACK: u64 = 0x10000;

/// The number of an object in an image, by rising address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectIndex(u32);

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
    /// See [`Process::given`].
    pub given: Vec<String>,
    segments: Vec<Segment>,
    code: Vec<Range<u64>>,
    /// Memory that is never written to.
    read_only: Vec<Range<u64>>,
    writable: Vec<Range<u64>>,
    /// Words outside of `read_only` that keep their address after relocation.
    filled: FxHashSet<Addr>,
    /// Words of the global offset table with numbers about thread-local variables.
    numbers: FxHashSet<Addr>,
    /// Words in constant memory that the program computes at start (`IRELATIVE` and the like).
    computed: FxHashSet<Addr>,
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

/// An object in a process.
#[derive(Debug)]
pub struct Loaded {
    /// The object.
    pub object: Arc<Object>,
    /// The path of its file in reports.
    pub file: Arc<str>,
    /// The offset added to its addresses, modulo 2^64.
    pub base: u64,
    /// Whether it is present at program start, rather than loaded by name later.
    pub at_start: bool,
    /// Whether every exported function counts, because the requested names are unknown.
    pub whole: bool,
    /// Code that runs if the object is loaded: initialisers, finalisers, functions that select functions, and the
    /// program's entry point.
    pub starts: Vec<Addr>,
    /// Words of data that may be pointers to code: (place, target), by rising address.
    pub code_pointers: Vec<(Addr, Addr)>,
    /// Words of the global offset table that point to code, likewise. Code refers to each word by name, and a word
    /// counts only if reachable code does.
    pub slots: Vec<(Addr, Addr)>,
    /// Whether it is the C library.
    pub is_c_library: bool,
    /// Words of data that point to data, likewise.
    pub data_pointers: Vec<(Addr, Addr)>,
    memory: Range<u64>,
}

impl Loaded {
    /// Converts an address of the process to the object's own.
    pub fn own(&self, address: Addr) -> Addr {
        Addr(address.0.wrapping_sub(self.base))
    }

    /// Converts an address of the object to that of the process.
    pub fn address(&self, own: u64) -> Addr {
        Addr(own.wrapping_add(self.base))
    }

    /// Returns the functions that other objects can call, unordered.
    pub fn exported_functions(&self) -> impl Iterator<Item = Addr> {
        self.object.exported_functions().map(|symbol| self.address(symbol.value))
    }

    /// Returns the functions of a name that other objects can call.
    pub fn functions_named(&self, name: &str) -> impl Iterator<Item = Addr> {
        let symbols = self.object.exports(name.as_bytes()).filter(|symbol| symbol.kind.is_code());
        symbols.map(|symbol| self.address(symbol.value))
    }

    /// Converts a range of the object to that of the process.
    fn range(&self, own: &Range<u64>) -> Range<u64> {
        self.address(own.start).0..self.address(own.end).0
    }

    /// Returns the start of its code, if the Go compiler made it.
    pub fn code_of_go(&self) -> Option<Addr> {
        let begin = self.object.code.first().filter(|_| self.object.made_by_go)?;
        Some(self.address(begin.start))
    }

    /// Returns the ranges of its data, except the global offset table.
    pub fn data(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut start = self.memory.start;
        let tables = self.object.got.iter().map(|table| self.range(table));
        let end = self.memory.end;
        tables.chain(std::iter::once(end..end)).map(move |table| {
            let data = start..table.start;
            start = table.end;
            data
        })
    }

    /// Returns the range with the initial content of its thread-local variables.
    pub fn thread_local(&self) -> Option<Range<u64>> {
        self.object.thread_local.as_ref().map(|range| self.range(range))
    }

    /// Returns the base address of i386 code for relative references, if the object specifies one.
    pub fn global_offset_table(&self) -> Option<Addr> {
        let got = self.object.dynamic.as_ref()?.got?;
        Some(self.address(got))
    }

    /// Returns whether an address is in the procedure linkage table.
    pub fn is_linkage(&self, address: Addr) -> bool {
        contains(&self.object.plt, self.own(address).0, 1)
    }

    /// Returns whether an address is in the global offset table.
    pub fn is_slot(&self, address: Addr) -> bool {
        contains(&self.object.got, self.own(address).0, 1)
    }

    /// Returns the entries for a word of the global offset table: the word with its possible code targets.
    pub fn slots_at(&self, word: Addr) -> &[(Addr, Addr)] {
        let first = self.slots.partition_point(|&(other, _)| other < word);
        let count = self.slots[first..].partition_point(|&(other, _)| other == word);
        &self.slots[first..first + count]
    }
}

impl Image {
    /// Returns the bytes from `address` to the end of its segment; empty outside of any segment.
    pub fn bytes(&self, address: Addr) -> &[u8] {
        bytes_at(&self.segments, address.0)
    }

    /// Returns the bytes in a range of addresses, as far as one segment has them.
    pub fn bytes_in(&self, range: &Range<u64>) -> &[u8] {
        object::bytes_in(&self.segments, range)
    }

    /// Returns the bytes of code from an instruction to the end of its segment; empty outside of any segment.
    pub fn code_bytes(&self, instruction: Addr) -> &[u8] {
        self.bytes(self.first_byte(instruction))
    }

    /// Returns the address of an instruction's first byte.
    pub fn first_byte(&self, instruction: Addr) -> Addr {
        match self.machine {
            Machine::Arm => Addr(instruction.0 & !1),
            _ => instruction,
        }
    }

    /// Returns whether an instruction may be at this address.
    pub fn is_code(&self, address: Addr) -> bool {
        is_code(self.machine, &self.code, address.0)
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
        (width <= 8).then(|| relocs::number(bytes))
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

/// Returns whether an instruction may be at an address, given the ranges of code.
fn is_code(machine: Machine, code: &[Range<u64>], address: u64) -> bool {
    let aligned = match machine {
        Machine::I386 | Machine::X86_64 => true,
        Machine::Arm => address & 1 != 0 || address & 3 == 0,
        Machine::Aarch64 => address & 3 == 0,
    };
    aligned && contains(code, address, 1)
}

fn contains(ranges: &[Range<u64>], address: u64, size: u64) -> bool {
    let next = ranges.partition_point(|range| range.start <= address);
    next > 0 && address.checked_add(size).is_some_and(|end| end <= ranges[next - 1].end)
}

/// Sorts ranges and joins those that touch.
fn normalize(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| range.start < range.end);
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let ranges = normalize(vec![10..20, 0..5, 20..30, 40..40]);
        assert_eq!(ranges, [0..5, 10..30]);
        assert!(contains(&ranges, 10, 20) && contains(&ranges, 29, 1));
        assert!(!contains(&ranges, 29, 2) && !contains(&ranges, 5, 1));
        assert!(!contains(&ranges, u64::MAX, 8));
    }
}
