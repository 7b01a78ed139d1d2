//! Facts about each byte of code, by address: exploration and the functions built from it need little else.

use std::collections::hash_map;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::run::{ExitId, RunId};
use crate::image::{Addr, Image};

/// Facts about each byte of code: the length of an instruction that starts there, and whether it is an exit, the start
/// of a run, or possibly the start of a function.
pub(super) struct Marks {
    ranges: Vec<MarkedRange>,
    runs: Vec<Run>,
    /// The runs outside of the code, which consist only of their exits.
    outside: FxHashMap<Addr, RunId>,
}

/// A straight-line piece of code.
pub(super) struct Run {
    pub(super) start: Addr,
    /// The exits that lead to it, except calls.
    pub(super) incoming: SmallVec<[ExitId; 4]>,
    /// Its exit, once it is decoded; before that, the exit at its first instruction, if there is one.
    exit: Option<ExitId>,
    is_decoded: bool,
}

/// The marks of one range of code.
struct MarkedRange {
    start: u64,
    marks: Vec<u8>,
    /// The number of the run that begins at a byte, or of another exit there. Pages of unreached code are never
    /// written.
    numbers: Vec<u32>,
}

const LENGTH: u8 = 0x0f;
const EXIT: u8 = 0x10;
/// The start of a decoded run, which ends the preceding runs.
const START: u8 = 0x20;
const ENTRY: u8 = 0x40;
/// The start of a run.
const RUN: u8 = 0x80;

/// Returns the length of the instruction at a mark, if there is one.
fn length(mark: u8) -> Option<u64> {
    Some(u64::from(mark & LENGTH)).filter(|&length| length > 0)
}

impl Marks {
    /// Creates empty marks.
    pub(super) fn new(image: &Image) -> Marks {
        let range = |range: &std::ops::Range<u64>| {
            let size = image.bytes_in(range).len();
            MarkedRange { start: range.start, marks: vec![0; size], numbers: vec![0; size] }
        };
        let ranges = image.code().iter().map(range).collect();
        Marks { ranges, runs: Vec::new(), outside: FxHashMap::default() }
    }

    fn place(&self, at: Addr) -> Option<(usize, usize)> {
        let range = self.ranges.partition_point(|range| range.start <= at.0).checked_sub(1)?;
        let offset = usize::try_from(at.0 - self.ranges[range].start).ok()?;
        (offset < self.ranges[range].marks.len()).then_some((range, offset))
    }

    fn find(&self, at: Addr) -> Option<u8> {
        self.place(at).map(|(range, offset)| self.ranges[range].marks[offset])
    }

    fn set(&mut self, at: Addr, mark: u8) {
        if let Some((range, offset)) = self.place(at) {
            self.ranges[range].marks[offset] |= mark;
        }
    }

    /// Records that a function may begin at an address.
    pub(super) fn set_entry(&mut self, at: Addr) {
        self.set(at, ENTRY);
    }

    /// Returns whether a function may begin at an address; always true outside of the code.
    pub(super) fn may_be_entry(&self, at: Addr) -> bool {
        self.find(at).is_none_or(|mark| mark & ENTRY != 0)
    }

    /// Records the length of an instruction in bytes.
    pub(super) fn set_length(&mut self, at: Addr, length: u8) {
        self.set(at, length & LENGTH);
    }

    /// Records an exit.
    pub(super) fn set_exit(&mut self, at: Addr, exit: ExitId) {
        let Some((range, offset)) = self.place(at) else {
            let run = self.run_from(at);
            self.runs[run.get()].exit = Some(exit);
            return;
        };
        let MarkedRange { marks, numbers, .. } = &mut self.ranges[range];
        marks[offset] |= EXIT;
        match marks[offset] & RUN {
            0 => numbers[offset] = exit.0,
            _ => self.runs[numbers[offset] as usize].exit = Some(exit),
        }
    }

    /// Returns the run that begins at an address, which is added if it is new.
    pub(super) fn run_from(&mut self, start: Addr) -> RunId {
        let new = RunId(self.runs.len() as u32);
        let mut run = Run { start, incoming: SmallVec::new(), exit: None, is_decoded: false };
        match self.place(start) {
            Some((range, offset)) => {
                let MarkedRange { marks, numbers, .. } = &mut self.ranges[range];
                if marks[offset] & RUN != 0 {
                    return RunId(numbers[offset]);
                }
                run.exit = (marks[offset] & EXIT != 0).then(|| ExitId(numbers[offset]));
                marks[offset] |= RUN;
                numbers[offset] = new.0;
            }
            None => match self.outside.entry(start) {
                hash_map::Entry::Occupied(known) => return *known.get(),
                hash_map::Entry::Vacant(place) => drop(place.insert(new)),
            },
        }
        self.runs.push(run);
        new
    }

    /// Returns the run that begins at an address, if any.
    pub(super) fn run_at(&self, start: Addr) -> Option<RunId> {
        let Some((range, offset)) = self.place(start) else { return self.outside.get(&start).copied() };
        let MarkedRange { marks, numbers, .. } = &self.ranges[range];
        (marks[offset] & RUN != 0).then(|| RunId(numbers[offset]))
    }

    /// Returns the number of runs.
    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Returns a run.
    pub(super) fn run(&self, run: RunId) -> &Run {
        &self.runs[run.get()]
    }

    /// Records that an exit leads to a run.
    pub(super) fn set_incoming(&mut self, run: RunId, from: ExitId) {
        self.runs[run.get()].incoming.push(from);
    }

    /// Records that a run has been decoded, and its exit.
    pub(super) fn set_decoded(&mut self, run: RunId, exit: ExitId) {
        self.set(self.run(run).start, START);
        let run = &mut self.runs[run.get()];
        (run.exit, run.is_decoded) = (Some(exit), true);
    }

    /// Returns the exit of a run, once it has been decoded.
    pub(super) fn exit_of(&self, run: RunId) -> Option<ExitId> {
        let run = self.run(run);
        run.exit.filter(|_| run.is_decoded)
    }

    /// Returns the exit at an instruction, or before invalid bytes.
    pub(super) fn exit_at(&self, at: Addr) -> Option<ExitId> {
        let Some((range, offset)) = self.place(at) else {
            return self.outside.get(&at).and_then(|&run| self.run(run).exit);
        };
        let MarkedRange { marks, numbers, .. } = &self.ranges[range];
        match marks[offset] & (EXIT | RUN) {
            EXIT => Some(ExitId(numbers[offset])),
            0 | RUN => None,
            _ => self.runs[numbers[offset] as usize].exit,
        }
    }

    /// Returns the exit of the run that begins at an address, once it has been decoded.
    pub(super) fn exit_of_run(&self, start: Addr) -> Option<ExitId> {
        self.exit_of(self.run_at(start)?)
    }

    /// Returns the length of the instruction at an address, if it is reachable.
    pub(super) fn length(&self, at: Addr) -> Option<u64> {
        self.find(at).and_then(length)
    }

    /// Follows instructions as long as each leads only to the next. Returns the end, and whether a run begins there.
    pub(super) fn straight(&self, start: Addr) -> (Addr, bool) {
        let Some((range, first)) = self.place(start) else { return (start, false) };
        let marks = &self.ranges[range].marks[first..];
        let mut offset = 0;
        while let Some(&mark) = marks.get(offset) {
            let length = usize::from(mark & LENGTH);
            if mark & EXIT != 0 || length == 0 {
                break;
            }
            offset += length;
            if marks.get(offset).is_some_and(|mark| mark & START != 0) {
                return (start.plus(offset as u64), true);
            }
        }
        (start.plus(offset as u64), false)
    }

    /// Returns whether any instruction starts between two addresses.
    pub(super) fn any(&self, start: Addr, end: Addr) -> bool {
        let Some((range, offset)) = self.place(start) else { return false };
        let marks = &self.ranges[range].marks[offset..];
        let size = usize::try_from(end.0.saturating_sub(start.0)).unwrap_or(usize::MAX);
        marks.iter().take(size).any(|&mark| length(mark).is_some())
    }

    pub(super) fn count(&self) -> usize {
        let instructions = |marks: &Vec<u8>| marks.iter().filter(|&&m| m & LENGTH != 0).count();
        self.ranges.iter().map(|range| instructions(&range.marks)).sum()
    }
}
