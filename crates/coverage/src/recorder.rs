//! Records the code that ran, and makes the section `coverage`.

use kplan::{Coverage, CoveredFunction, RanRange, Run};
use ktext::{KernelText, Place};

/// Records the executed bytes of functions, and the order of their first execution.
#[derive(Debug)]
pub struct Recorder<'a> {
    kernel: &'a KernelText,
    /// Functions by their index in [`KernelText`].
    functions: Vec<Option<FunctionRecord>>,
    /// Number of events so far that executed some byte first: the time scale of `first`.
    clock: u64,
}

/// The data of a function that ran.
#[derive(Debug)]
struct FunctionRecord {
    section: usize,
    /// For each byte, the clock at its first execution, from 1; 0 if it did not run.
    first: Vec<u64>,
    /// For each byte, the number of executions of an instruction that starts there; empty if the trace has no counts.
    counts: Vec<u64>,
}

impl<'a> Recorder<'a> {
    /// Creates a recorder for traces of `kernel`.
    pub fn new(kernel: &'a KernelText) -> Recorder<'a> {
        let functions = std::iter::repeat_with(|| None).take(kernel.function_count()).collect();
        Recorder { kernel, functions, clock: 0 }
    }

    /// Records an execution of the bytes of `place`, and its count, if the trace has counts.
    pub fn ran(&mut self, place: &Place, count: Option<u64>) {
        // Functions are smaller than the memory of this process, which holds their kernel.
        let size = usize::try_from(self.kernel.size(place.function)).unwrap_or(usize::MAX);
        let (start, end) = (place.offsets.start as usize, (place.offsets.end as usize).min(size));
        let seen = self.functions[place.function].get_or_insert_with(|| FunctionRecord {
            section: place.section,
            first: vec![0; size],
            counts: Vec::new(),
        });
        let Some(bytes) = seen.first.get_mut(start..end) else { return };
        if bytes.contains(&0) {
            self.clock += 1;
        }
        for first in bytes.iter_mut().filter(|first| **first == 0) {
            *first = self.clock;
        }
        if let Some(count) = count
            && start < end
        {
            seen.counts.resize(size, 0);
            seen.counts[start] = seen.counts[start].saturating_add(count);
        }
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.clock == 0
    }

    /// Returns the section `coverage` for this trace.
    pub fn finish(self, run: Run) -> Coverage {
        let kernel = self.kernel;
        let functions = self.functions.into_iter().enumerate();
        let functions = functions.filter_map(|(number, seen)| covered(kernel, number, seen?)).collect();
        let mut coverage = Coverage { runs: vec![run], functions, calls: Vec::new() };
        coverage.normalise();
        coverage
    }
}

fn covered(kernel: &KernelText, number: usize, seen: FunctionRecord) -> Option<CoveredFunction> {
    let mut ran: Vec<RanRange> = Vec::new();
    for (offset, &first) in seen.first.iter().enumerate().filter(|&(_, &first)| first != 0) {
        let count = seen.counts.get(offset).copied();
        match ran.last_mut() {
            Some(last) if last.offset + last.size == offset as u64 => {
                last.size += 1;
                last.first = last.first.min(first);
                last.count = last.count.max(count);
            }
            _ => ran.push(RanRange { offset: offset as u64, size: 1, first, count }),
        }
    }
    Some(CoveredFunction {
        function: kernel.name(number),
        section: kernel.linked.sections[seen.section].name.clone(),
        size: kernel.size(number),
        first: ran.iter().map(|range| range.first).min()?,
        count: seen.counts.first().copied(),
        ran: Some(ran),
    })
}
