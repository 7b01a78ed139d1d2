//! The present places of the original's code and data.

use std::ops::Range;

use kelf::Functions;
use kplan::{BlockFunction, BlockMap};
use object::{Object, ObjectSymbol, SymbolKind};
use rustc_hash::FxHashMap;

/// The present places of the original's code and data.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Runs of code, by rising address in the original. Two runs overlap if the code is there twice.
    runs: Vec<Run>,
    /// For each run, the highest end in the original of all runs up to it.
    ends: Vec<u64>,
    /// Variables: the address in the original, the size, and the present address, by rising address.
    data: Vec<(u64, u64, u64)>,
}

/// Code that moved as a whole. An offset in it is the same in both kernels, up to its size in either.
#[derive(Clone, Debug)]
struct Run {
    original: Range<u64>,
    present: Range<u64>,
}

impl Run {
    /// Returns the present place of an address of the original in this run.
    fn place(&self, address: u64) -> u64 {
        self.present.start + (address - self.original.start).min(self.present.end - self.present.start)
    }

    /// Returns the present place of a part of the original.
    fn part(&self, range: &Range<u64>) -> Range<u64> {
        let start = self.place(range.start.max(self.original.start));
        let end = if range.end >= self.original.end { self.present.end } else { self.place(range.end) };
        start..end
    }
}

impl Places {
    /// Finds the places of all code of `map`, and of the variables that have the same name in both files.
    pub fn new(
        original: &Functions,
        map: &BlockMap,
        original_file: &object::File<'_>,
        rewritten_file: &object::File<'_>,
    ) -> Places {
        let mut runs = runs(original, map);
        runs.sort_by_key(|run| (run.original.start, run.present.start));
        let ends = runs.iter().scan(0, |end, run| {
            *end = run.original.end.max(*end);
            Some(*end)
        });
        let ends = ends.collect();
        Places { runs, ends, data: data(original_file, rewritten_file) }
    }

    /// Returns the runs with code of a range, by rising address in the original.
    fn runs_in(&self, range: &Range<u64>) -> &[Run] {
        let end = self.runs.partition_point(|run| run.original.start < range.end);
        let start = self.ends[..end].partition_point(|&end| end <= range.start);
        &self.runs[start..end]
    }

    /// Returns the present pieces of a range of the original, in the order of the original.
    pub fn pieces_in_order(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let runs = self.runs_in(range).iter().filter(|run| run.original.end > range.start);
        runs.map(|run| run.part(range)).filter(|piece| !piece.is_empty())
    }

    /// Returns the present pieces of some ranges of the original, by rising address, each as long as possible.
    pub fn pieces(&self, ranges: impl IntoIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
        let mut pieces: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            pieces.extend(self.pieces_in_order(&range));
        }
        pieces.sort_by_key(|piece| piece.start);
        pieces.dedup_by(|next, piece| {
            let joins = next.start <= piece.end;
            if joins {
                piece.end = piece.end.max(next.end);
            }
            joins
        });
        pieces
    }

    /// Returns the present address of an instruction of the original; `None` if it was removed.
    pub fn code(&self, address: u64) -> Option<u64> {
        self.pieces_in_order(&(address..address + 1)).next().map(|piece| piece.start)
    }

    /// Returns the present address directly after the instruction that ends at an address of the original.
    pub fn after(&self, address: u64) -> Option<u64> {
        self.pieces_in_order(&(address.checked_sub(1)?..address)).next().map(|piece| piece.end)
    }

    /// Returns the present address of a byte of the original, in code or in a variable.
    pub fn address(&self, address: u64) -> Option<u64> {
        self.code(address).or_else(|| {
            let next = self.data.partition_point(|&(start, ..)| start <= address);
            let (start, size, present) = self.data[next.checked_sub(1)?];
            (address - start < size).then(|| present + (address - start))
        })
    }
}

/// Returns the runs of all blocks. A block is one run, unless instructions in it changed their distance from its start.
fn runs(original: &Functions, map: &BlockMap) -> Vec<Run> {
    let bases: Vec<Option<u64>> = map
        .functions
        .iter()
        .map(|BlockFunction { function, .. }| {
            let (index, inside) = original.find(&function.name, function.file.as_deref(), function.nth)?;
            Some(original.function(index).address + inside)
        })
        .collect();
    let mut runs = Vec::new();
    for block in &map.blocks {
        let Some(base) = bases[block.function] else { continue };
        let ends = (base + block.original_offset + block.original_size, block.address + block.size);
        let first = map.moved.partition_point(|moved| moved.address < block.address);
        let moved = map.moved[first..].iter().take_while(|moved| moved.address < ends.1);
        let mut starts = vec![(base + block.original_offset, block.address)];
        for moved in moved {
            let start = (base + moved.original_offset, moved.address);
            match starts.last_mut() {
                Some(last) if last.1 == start.1 => *last = start,
                _ => starts.push(start),
            }
        }
        let nexts = starts[1..].iter().copied().chain([ends]);
        for (&(from, to), next) in starts.iter().zip(nexts) {
            // Instructions may have changed their order.
            let end = if next.0 > from { next.0 } else { from + (next.1 - to) };
            if next.1 > to {
                runs.push(Run { original: from..end, present: to..next.1 });
            }
        }
    }
    runs
}

/// Returns the variables whose name is unique in both files.
fn data(original: &object::File<'_>, rewritten: &object::File<'_>) -> Vec<(u64, u64, u64)> {
    let present = variables(rewritten);
    let mut data = Vec::new();
    for (name, variable) in variables(original) {
        if let (Some((address, size)), Some(Some((now, size_now)))) = (variable, present.get(&name))
            && size == *size_now
        {
            data.push((address, size, *now));
        }
    }
    data.sort_unstable();
    data
}

/// The name of a variable and, if it is local, its source file.
type VariableName<'a> = (&'a str, Option<&'a str>);

/// Returns address and size of each variable by its name; `None` if several have it.
fn variables<'a>(file: &object::File<'a>) -> FxHashMap<VariableName<'a>, Option<(u64, u64)>> {
    let mut variables = FxHashMap::default();
    let mut source = None;
    for symbol in file.symbols() {
        let Ok(name) = symbol.name() else { continue };
        match symbol.kind() {
            SymbolKind::File => source = Some(name).filter(|name| !name.is_empty()),
            SymbolKind::Data if symbol.is_definition() && symbol.size() > 0 => {
                let source = source.filter(|_| symbol.is_local());
                let place = Some((symbol.address(), symbol.size()));
                variables.entry((name, source)).and_modify(|known| *known = None).or_insert(place);
            }
            _ => {}
        }
    }
    variables
}
