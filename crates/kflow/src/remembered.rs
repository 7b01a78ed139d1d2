//! Results about functions, keyed by their inputs: a function without changes is not analysed again.

use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::Cfg;
use crate::constants::{Asked, ConstantMemory};
use crate::fingerprint::{Fingerprint, fingerprint};
use crate::program::{FunctionCfg, FunctionIndex, Program, Then};
use crate::summary::{Found, Summaries};

/// Results about functions from one analysis of a program, for the next analysis after the program has changed.
#[derive(Default)]
pub struct Remembered {
    functions: FxHashMap<Fingerprint, Known>,
}

/// The result about a function.
struct Known {
    /// The inputs that the fingerprint does not include: the content of memory that nothing writes.
    asked: Asked,
    found: Arc<Found>,
    /// Whether the current analysis has used it.
    is_used: bool,
}

impl Remembered {
    /// Returns the result about a function with this fingerprint, if memory still has the content that it depends on.
    pub(crate) fn get(&self, function: Fingerprint, memory: &ConstantMemory) -> Option<Arc<Found>> {
        let known = self.functions.get(&function)?;
        let holds = known
            .asked
            .iter()
            .all(|(&(symbol, offset, width), answer)| memory.read(symbol, offset, width) == *answer);
        holds.then(|| Arc::clone(&known.found))
    }

    /// Marks a result as used in the current analysis. For a new result, `asked` holds the memory that it depends on.
    pub(crate) fn keep(&mut self, function: Fingerprint, asked: Option<Asked>, found: &Arc<Found>) {
        if let Some(asked) = asked {
            let found = Arc::clone(found);
            self.functions.insert(function, Known { asked, found, is_used: true });
        } else if let Some(known) = self.functions.get_mut(&function) {
            known.is_used = true;
        }
    }

    /// Ends an analysis and discards the results that it did not use.
    pub(crate) fn finish(&mut self) {
        self.functions.retain(|_, known| std::mem::take(&mut known.is_used));
    }
}

/// Returns the fingerprint of a function's behaviour and of the facts about its callees, given the fingerprints of all
/// blocks.
pub(crate) fn of_function(
    program: &impl Program,
    summaries: &Summaries,
    function: FunctionIndex,
    cfg: &FunctionCfg,
    blocks: &[Fingerprint],
) -> Fingerprint {
    fingerprint(|hasher| {
        (summaries.machine, program.has_other_entries(function), cfg.blocks.len()).hash(hasher);
        for (index, block) in cfg.blocks.iter().enumerate() {
            (blocks[block.get()], cfg.ways[index].len()).hash(hasher);
            for way in cfg.ways[index] {
                let to = match way.then {
                    Then::Block(to) => cfg.successor(index.into(), to),
                    Then::Caller | Then::Nowhere | Then::Anywhere => None,
                };
                let to = to.map(|place| cfg.successors(index.into())[place]);
                (way.condition, std::mem::discriminant(&way.then), to).hash(hasher);
                if let Some(callee) = way.callee {
                    (std::mem::discriminant(&callee), summaries.get(callee)).hash(hasher);
                    summaries.returns(callee).hash(hasher);
                    summaries.results(callee).for_each(|result| result.hash(hasher));
                }
                way.callee.is_some().hash(hasher);
            }
        }
    })
}

/// Returns the fingerprint of a block's own behaviour.
pub(crate) fn of_block(program: &impl Program, block: crate::BlockIndex) -> Fingerprint {
    fingerprint(|hasher| {
        program.fingerprint(block).hash(hasher);
        (program.may_leave_early(block), program.read_by_exit(block)).hash(hasher);
        (program.switch_index(block), program.compared_register(block)).hash(hasher);
    })
}
