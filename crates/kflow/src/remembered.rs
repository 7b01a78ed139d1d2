//! Results about functions, keyed by their inputs: a function without changes is not analysed again.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::Cfg;
use crate::constants::{Asked, ConstantMemory};
use crate::program::{FunctionCfg, FunctionIndex, Program, Then};
use crate::summary::{Found, Summaries};

/// A number that differs for things that differ: for two of a million of them by chance with a probability of 1 : 10^7 at most.
pub type Fingerprint = u64;

/// The fingerprint of all that `f` adds to a hasher.
pub fn fingerprint(f: impl FnOnce(&mut DefaultHasher)) -> Fingerprint {
    let mut hasher = DefaultHasher::new();
    f(&mut hasher);
    hasher.finish()
}

/// What has been found out about functions in one analysis of a program, for the next one, of what the program has become.
#[derive(Default)]
pub struct Remembered {
    functions: FxHashMap<Fingerprint, Known>,
}

/// What was found out about a function.
struct Known {
    /// What it rests on besides what the fingerprint is of: what memory holds that nothing writes.
    asked: Asked,
    found: Arc<Found>,
    /// Whether the present analysis has made use of it.
    is_used: bool,
}

impl Remembered {
    /// What was found out about a function with this fingerprint, if memory still holds what it rests on.
    pub(crate) fn get(&self, function: Fingerprint, memory: &ConstantMemory) -> Option<Arc<Found>> {
        let known = self.functions.get(&function)?;
        let holds = known
            .asked
            .iter()
            .all(|(&(symbol, offset, width), answer)| memory.read(symbol, offset, width) == *answer);
        holds.then(|| Arc::clone(&known.found))
    }

    /// The present analysis makes use of what was found out; if that is new, `asked` is what it rests on.
    pub(crate) fn keep(&mut self, function: Fingerprint, asked: Option<Asked>, found: &Arc<Found>) {
        if let Some(asked) = asked {
            let found = Arc::clone(found);
            self.functions.insert(function, Known { asked, found, is_used: true });
        } else if let Some(known) = self.functions.get_mut(&function) {
            known.is_used = true;
        }
    }

    /// An analysis is done: what it had no use for is forgotten.
    pub(crate) fn finish(&mut self) {
        self.functions.retain(|_, known| std::mem::take(&mut known.is_used));
    }
}

/// The fingerprint of what a function does, and of what is known of those that it calls, given those of the instructions of
/// all blocks.
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

/// The fingerprint of what a block does by itself.
pub(crate) fn of_block(program: &impl Program, block: crate::BlockIndex) -> Fingerprint {
    fingerprint(|hasher| {
        program.fingerprint(block).hash(hasher);
        (program.may_leave_early(block), program.read_by_exit(block)).hash(hasher);
        (program.switch_index(block), program.compared_register(block)).hash(hasher);
    })
}
