//! The computed jumps of a program and their targets, looked at again when their functions change.
//!
//! The address of a jump table may wait in the frame until it is used, beside objects whose addresses are given
//! away. A jump that is lost for that reason is looked at again under the assumption that what holds an address
//! of constant memory there is left alone: a table of jumps is of use to its own function only, so that no
//! object which others write to holds its address.

use std::cmp::Reverse;

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::code::{Code, ExitId, ExitKind, Function};
use crate::flow::Flows;
use crate::image::Addr;
use crate::parallel::share;
use crate::switches::{Targets, among_own_tables, targets};

/// The computed jumps so far.
#[derive(Default)]
pub(crate) struct Jumps {
    jumps: FxHashMap<ExitId, Jump>,
    /// The functions that have any.
    functions: FxHashMap<Addr, Members>,
}

/// A computed jump.
#[derive(Default)]
struct Jump {
    /// The functions that it is in, by rising address.
    functions: Vec<Addr>,
    /// Whether its targets are not known without assumptions about constants.
    is_unknown: bool,
    /// The size of these when its targets were looked for last,
    looked: usize,
    /// and when they were looked for by what the jump is made of.
    tried: usize,
    lost: bool,
}

/// What is known of a function with computed jumps.
struct Members {
    /// How many blocks it has, and ways from one to another.
    size: usize,
    jumps: Vec<ExitId>,
}

impl Jumps {
    /// The jumps whose targets are not known.
    pub(crate) fn lost(&self) -> impl Iterator<Item = ExitId> {
        self.jumps.iter().filter(|(_, jump)| jump.lost).map(|(&id, _)| id)
    }

    /// Finds the targets of computed jumps in functions that are larger than before, or smaller. Returns whether
    /// any are new.
    pub(crate) fn follow(&mut self, code: &mut Code) -> bool {
        let mut pending: Vec<ExitId> = self.update(code).into_iter().collect();
        pending.retain(|id| self.size(*id) != self.jumps[id].looked);
        let look = |flows: &mut Flows, id, functions: &[Addr]| targets(flows, code.exit(id).at, functions);
        // More code tells no more about a jump.
        let stays_unknown = |id: &ExitId| {
            let Jump { is_unknown, looked, .. } = self.jumps[id];
            is_unknown && self.size(*id) >= looked
        };
        let (mut unknown, plain): (Vec<ExitId>, Vec<ExitId>) =
            pending.iter().partition(|&id| stays_unknown(id));
        let mut found = self.look(&plain, || Flows::new(code), look);
        unknown.extend(plain.iter().filter(|id| found[id] == Targets::Unknown));
        found.extend(self.look(&unknown, || Flows::new(code).map(Flows::keeping_constants), look));
        for id in unknown {
            self.jumps.entry(id).or_default().is_unknown = true;
        }
        pending.sort_unstable_by_key(|&id| code.exit(id).at);
        let mut any = false;
        for id in pending {
            let size = self.size(id);
            // One that constants decide may do so no longer at any time.
            self.jumps.entry(id).or_default().looked = if code.is_decided(id) { 0 } else { size };
            any |= self.note(code, id, found.remove(&id).unwrap_or(Targets::Unknown));
        }
        any
    }

    /// Finds targets of the jumps that are lost by what they are made of. Returns whether any are new.
    pub(crate) fn follow_lost(&mut self, code: &mut Code) -> bool {
        let mut lost: Vec<ExitId> = self.lost().filter(|id| self.size(*id) != self.jumps[id].tried).collect();
        lost.sort_unstable();
        let mut found = self.look(&lost, || Flows::new(code), |flows, id, _| among_own_tables(flows, id));
        let mut any = false;
        for id in lost {
            let size = self.size(id);
            self.jumps.entry(id).or_default().tried = size;
            any |= self.note(code, id, found.remove(&id).unwrap_or(Targets::Unknown));
        }
        any
    }

    /// How large the functions of a jump are.
    fn size(&self, id: ExitId) -> usize {
        let functions = self.jumps.get(&id).into_iter().flat_map(|jump| &jump.functions);
        functions.filter_map(|entry| self.functions.get(entry)).map(|known| known.size).sum()
    }

    /// Brings up to date which jumps there are in which functions. Returns the jumps of those that have changed.
    fn update(&mut self, code: &mut Code) -> FxHashSet<ExitId> {
        let changed = code.take_changed();
        let code = &*code;
        let have_jumps = code.functions_that_jump();
        let mut functions = changed.functions.clone();
        functions.retain(|entry| have_jumps.binary_search(entry).is_ok());
        let known: Vec<Members> = functions.par_iter().map(|&entry| Members::of(code, entry)).collect();
        let mut jumps = FxHashSet::default();
        for &entry in changed.gone.iter().chain(&changed.functions) {
            for id in self.functions.remove(&entry).into_iter().flat_map(|known| known.jumps) {
                let functions = &mut self.jumps.entry(id).or_default().functions;
                functions.retain(|&other| other != entry);
                jumps.insert(id);
            }
        }
        for (entry, known) in functions.into_iter().zip(known) {
            for &id in &known.jumps {
                let functions = &mut self.jumps.entry(id).or_default().functions;
                if let Err(place) = functions.binary_search(&entry) {
                    functions.insert(place, entry);
                }
                jumps.insert(id);
            }
            if !known.jumps.is_empty() {
                self.functions.insert(entry, known);
            }
        }
        debug_assert!(self.knows_all(code));
        jumps
    }

    /// Whether a look at all functions finds nothing else.
    fn knows_all(&self, code: &Code) -> bool {
        let mut entries = code.entries().map(|(entry, _)| entry).filter(|&entry| code.entry(entry).is_some());
        entries.all(|entry| {
            let now = Members::of(code, entry);
            match self.functions.get(&entry) {
                Some(known) => known.size == now.size && known.jumps == now.jumps,
                None => now.jumps.is_empty(),
            }
        })
    }

    /// Looks at jumps with `look`, those of the same functions on the same thread.
    fn look<'c>(
        &self,
        jumps: &[ExitId],
        flows: impl Fn() -> Option<Flows<'c>> + Sync,
        look: impl Fn(&mut Flows<'c>, ExitId, &[Addr]) -> Targets + Sync,
    ) -> FxHashMap<ExitId, Targets> {
        let mut groups: FxHashMap<&[Addr], Vec<ExitId>> = FxHashMap::default();
        for id in jumps {
            groups.entry(&self.jumps[id].functions).or_default().push(*id);
        }
        let mut groups: Vec<(&[Addr], Vec<ExitId>)> = groups.into_iter().collect();
        groups.sort_unstable_by_key(|(functions, jumps)| (Reverse(self.size(jumps[0])), *functions));
        let found = share(&groups, flows, |flows, (functions, jumps)| {
            let look = |&id: &ExitId| {
                let found = flows.as_mut().map(|flows| look(flows, id, functions));
                (id, found.unwrap_or(Targets::Unknown))
            };
            jumps.iter().map(look).collect::<Vec<_>>()
        });
        found.into_iter().flatten().collect()
    }

    /// Takes what has been found out about a jump. Returns whether it has new targets.
    fn note(&mut self, code: &mut Code, id: ExitId, targets: Targets) -> bool {
        let Some(jump) = self.jumps.get_mut(&id) else { return false };
        jump.lost = targets == Targets::Unknown && !code.is_decided(id);
        let Targets::Known { targets, table } = targets else { return false };
        if table {
            // A pointer to the beginning of a function may be just that.
            let is_middle =
                |target| code.image.extent_around(target).is_none_or(|extent| extent.start != target);
            let own =
                |&(_, target): &(Addr, Addr)| targets.binary_search(&target).is_ok() && is_middle(target);
            let words: Vec<(Addr, Addr)> = code.image.code_pointers().filter(own).collect();
            words.into_iter().for_each(|(word, target)| code.claim(word, target));
        }
        !code.is_decided(id) && code.add_targets(id, &targets)
    }
}

impl Members {
    fn of(code: &Code, entry: Addr) -> Members {
        let function = Function::new(code, entry);
        let exits = function.blocks.iter().filter_map(|block| block.exit);
        let mut jumps: Vec<ExitId> =
            exits.filter(|&id| code.exit(id).kind == ExitKind::IndirectJump).collect();
        jumps.sort_unstable();
        jumps.dedup();
        let ways = function.blocks.iter().map(|block| block.successors.len()).sum::<usize>();
        Members { size: function.blocks.len() + ways, jumps }
    }
}
