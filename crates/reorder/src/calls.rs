//! Calls between hot functions: from the trace if it has calls, otherwise decoded from the code that ran.
//!
//! Without a trace of calls, the weight of a call is the number of entries of its caller, or 1. Only direct calls and
//! jumps to the first byte of another function are found, not calls through pointers.

use kisa::{Encoding, Flow, Inst};
use kplan::Coverage;
use ktext::KernelText;
use rustc_hash::FxHashMap;

use crate::algorithm::WeightedCall;
use crate::hot::HotCode;

/// Returns the calls of a coverage between functions that the kernel has.
pub fn traced(hot: &HotCode, coverage: &Coverage) -> Vec<WeightedCall> {
    let found: FxHashMap<usize, usize> =
        hot.functions.iter().enumerate().map(|(index, function)| (function.covered, index)).collect();
    let calls = coverage.calls.iter().filter_map(|call| {
        Some(WeightedCall { from: *found.get(&call.from)?, to: *found.get(&call.to)?, weight: call.count })
    });
    calls.collect()
}

/// Returns the direct calls in the code of a kernel that ran.
pub fn decoded(hot: &HotCode, kernel: &KernelText) -> Vec<WeightedCall> {
    let isa = kisa::isa(kernel.linked.machine);
    let entries: FxHashMap<u64, usize> =
        hot.functions.iter().enumerate().map(|(index, function)| (function.address, index)).collect();
    let mut calls = Vec::new();
    for (from, function) in hot.functions.iter().enumerate() {
        let weight = function.count.unwrap_or(1).max(1);
        for range in &function.ran {
            let start = function.address + range.start;
            let size = usize::try_from(range.end - range.start).ok();
            let Some(bytes) = size.and_then(|size| kernel.linked.bytes_at(start, size)) else { continue };
            let mut at = 0;
            loop {
                let address = start + at as u64;
                let encoding = if kernel.linked.is_thumb(address) { Encoding::Thumb } else { Encoding::Main };
                let Some(Inst { insn, .. }) = isa.decode(&bytes[at..], encoding.at(address)) else { break };
                if let Flow::Direct { target, .. } = insn.flow
                    && let Some(&to) = entries.get(&kernel.linked.machine.first_byte(target))
                    && to != from
                {
                    calls.push(WeightedCall { from, to, weight });
                }
                at += usize::from(insn.len);
            }
        }
    }
    calls
}
