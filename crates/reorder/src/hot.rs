//! The hot code: the functions of a coverage that ran, found in a linked kernel and grouped by region.

use std::ops::Range;

use kelf::Function;
use kplan::{ByteRange, Coverage, FunctionName, Granularity, HotFunction, Order};
use rangemap::RangeSet;
use rustc_hash::FxHashMap;

use crate::algorithm::{Algorithm, Unit, WeightedCall, balanced, call_chain, first_use, packed};
use crate::regions::{Region, region_at};

/// A function that ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hot {
    /// The function.
    pub function: FunctionName,
    /// Its place in the kernel.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Time of its first execution, on the scale of the coverage.
    pub first: u64,
    /// Number of entries, if known.
    pub count: Option<u64>,
    /// Its executed ranges: all of it, if the coverage does not record them.
    pub ran: Vec<Range<u64>>,
    /// Its region, as an index into [`HotCode::regions`].
    pub region: usize,
    /// Its index in the coverage.
    pub covered: usize,
}

/// The hot code of a kernel.
#[derive(Clone, Debug)]
pub struct HotCode {
    /// The regions of the kernel, by rising address.
    pub regions: Vec<Region>,
    /// The functions that ran, in the order of the coverage.
    pub functions: Vec<Hot>,
    /// Number of functions of the coverage that the kernel does not have.
    pub unmatched: usize,
    /// Number of functions with another size in the kernel: they count as hot completely.
    pub resized: usize,
}

/// The method of ordering.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// The code that moves as a unit.
    pub granularity: Granularity,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Size of a page in bytes.
    pub page_size: u64,
}

impl HotCode {
    /// Finds the functions of a coverage in a kernel with these regions. `find` returns the kernel's function with a
    /// name.
    pub fn new<'k>(
        regions: Vec<Region>,
        coverage: &Coverage,
        find: impl Fn(&FunctionName) -> Option<&'k Function>,
    ) -> HotCode {
        let mut functions = Vec::new();
        let (mut unmatched, mut resized) = (0, 0);
        for (index, covered) in coverage.functions.iter().enumerate() {
            let Some(&Function { address, size, .. }) = find(&covered.function) else {
                unmatched += 1;
                continue;
            };
            // With another size, it is another version of the function, whose bytes are not comparable.
            resized += usize::from(size != covered.size);
            let known = covered.ran.as_ref().filter(|_| size == covered.size);
            let ran: Vec<Range<u64>> = match known {
                Some(ran) => ran.iter().map(|range| range.offsets()).collect(),
                None => std::iter::once(0..size).collect(),
            };
            let Some(region) = region_at(&regions, address).filter(|_| size > 0 && !ran.is_empty()) else {
                unmatched += 1;
                continue;
            };
            let (function, first, count) = (covered.function.clone(), covered.first, covered.count);
            functions.push(Hot { function, address, size, first, count, ran, region, covered: index });
        }
        HotCode { regions, functions, unmatched, resized }
    }

    /// Returns the addresses of the bytes that ran.
    pub fn addresses(&self) -> RangeSet<u64> {
        let ranges = self.functions.iter().flat_map(|function| {
            function.ran.iter().map(|range| function.address + range.start..function.address + range.end)
        });
        ranges.filter(|range| !range.is_empty()).collect()
    }

    /// Returns the index of each function in [`HotCode::functions`].
    pub fn index(&self) -> FxHashMap<&FunctionName, usize> {
        self.functions.iter().enumerate().map(|(index, hot)| (&hot.function, index)).collect()
    }

    /// Orders the hot code: region by region, by address, and within each region by the chosen method. `calls` are
    /// between [`HotCode::functions`], and each of `traces` lists some of them by first execution.
    pub fn order(&self, method: Method, calls: &[WeightedCall], traces: &[Vec<usize>]) -> Order {
        let mut functions = Vec::new();
        let mut seen = vec![0; self.functions.len()];
        traces.iter().flatten().for_each(|&hot| seen[hot] += 1);
        for region in 0..self.regions.len() {
            let members: Vec<usize> =
                (0..self.functions.len()).filter(|&hot| self.functions[hot].region == region).collect();
            let units: Vec<Unit> = members
                .iter()
                .map(|&hot| unit(&self.functions[hot], method.granularity, seen[hot]))
                .collect();
            let local = |hot: usize| members.binary_search(&hot).ok();
            let order = match method.algorithm {
                Algorithm::FirstUse => first_use(&units),
                Algorithm::CallChain => {
                    let calls = calls.iter().filter_map(|call| {
                        Some(WeightedCall {
                            from: local(call.from)?,
                            to: local(call.to)?,
                            weight: call.weight,
                        })
                    });
                    call_chain(&units, &calls.collect::<Vec<_>>(), method.page_size)
                }
                Algorithm::Balanced => {
                    let traces = traces.iter().map(|trace| trace.iter().filter_map(|&hot| local(hot)));
                    balanced(&units, &traces.map(Iterator::collect).collect::<Vec<_>>())
                }
                Algorithm::Packed => {
                    let start = self.regions[region].addresses.start % method.page_size;
                    packed(&units, method.page_size, start)
                }
            };
            let listed = order.into_iter().map(|unit| &self.functions[members[unit]]);
            functions.extend(listed.map(|hot| entry(hot, method.granularity)));
        }
        Order { granularity: method.granularity, algorithm: method.algorithm.name().into(), functions }
    }
}

/// Returns the part of a function that moves.
fn unit(hot: &Hot, granularity: Granularity, seen: usize) -> Unit {
    let heat = hot.count.unwrap_or(1);
    match granularity {
        Granularity::Function => Unit { size: hot.size, first: hot.first, heat, seen, ran: hot.ran.clone() },
        Granularity::Block => {
            let size = hot.ran.iter().map(|range| range.end - range.start).sum();
            Unit { size, first: hot.first, heat, seen, ran: std::iter::once(0..size).collect() }
        }
    }
}

fn entry(hot: &Hot, granularity: Granularity) -> HotFunction {
    let whole = matches!(hot.ran.as_slice(), [all] if *all == (0..hot.size));
    let ranges = match granularity {
        Granularity::Block if !whole => hot.ran.as_slice(),
        _ => &[],
    };
    let ranges =
        ranges.iter().map(|range| ByteRange { offset: range.start, size: range.end - range.start }).collect();
    HotFunction { function: hot.function.clone(), ranges }
}
