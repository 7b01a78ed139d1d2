//! An object at its addresses in a process.

use std::ops::Range;
use std::sync::Arc;

use super::object::Object;
use super::ranges::contains;
use crate::address::Addr;

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
    pub(super) memory: Range<u64>,
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
    pub(super) fn range(&self, own: &Range<u64>) -> Range<u64> {
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
