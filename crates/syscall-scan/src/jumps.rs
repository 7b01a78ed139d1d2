//! The computed jumps of a program and their targets, resolved again when the code that they follow from changes.
//!
//! Most targets follow from the chain of blocks just before the jump, alone or with the numbers that registers hold
//! there ([`targets_along`]). The others follow from the flow of values through whole functions ([`targets`]).
//!
//! The address of a jump table may wait in the frame until it is used, next to objects whose addresses escape. A jump
//! that is lost for that reason is analysed again under the assumption that nothing overwrites a slot with an address
//! of constant memory: only its own function uses a jump table, so that no object that others write to holds its
//! address.

use std::cell::LazyCell;
use std::cmp::Reverse;
use std::hash::Hash;

use kflow::{BlockIndex, Fingerprint, fingerprint};
use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::code::{Block, Code, ExitId, ExitKind, Function};
use crate::flow::Flows;
use crate::image::Addr;
use crate::parallel::share;
use crate::switches::{OwnTables, Targets, among_own_tables, targets, targets_along};

/// The computed jumps found so far.
#[derive(Default)]
pub(crate) struct Jumps {
    jumps: FxHashMap<ExitId, Jump>,
    /// The functions that contain computed jumps.
    functions: FxHashMap<Addr, Members>,
    /// The targets whose words of data were claimed last. The jumps of one interpreter share their targets.
    claimed: Vec<Addr>,
}

/// A computed jump.
#[derive(Default)]
struct Jump {
    /// The functions that contain it, by rising address.
    functions: Vec<Addr>,
    /// The code that its targets were last derived from.
    basis: Option<Basis>,
    /// The fingerprint of its functions at the last search for its targets in their own tables.
    tried_own_tables: Option<Fingerprint>,
    /// Whether its targets are unknown.
    lost: bool,
    /// Whether it leaves its functions.
    leaves: bool,
}

/// The code that targets were derived from, by its fingerprint: an equal fingerprint means equal targets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Basis {
    /// The chains of blocks before it.
    Chains(Fingerprint),
    /// All blocks of its functions.
    Functions(Fingerprint),
}

/// Known facts about a function with computed jumps.
struct Members {
    /// The number of its blocks.
    blocks: usize,
    fingerprint: Fingerprint,
    /// Its jumps, by their numbers.
    jumps: Vec<OwnJump>,
}

/// A computed jump, as seen in one of its functions.
struct OwnJump {
    id: ExitId,
    /// The blocks before it, see [`Function::chain_to`], and their fingerprint.
    chain: Function,
    fingerprint: Fingerprint,
}

impl Jumps {
    /// Returns the jumps whose targets are unknown.
    pub(crate) fn lost(&self) -> impl Iterator<Item = ExitId> {
        self.jumps.iter().filter(|(_, jump)| jump.lost).map(|(&id, _)| id)
    }

    /// Returns the jumps that leave their functions.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = ExitId> {
        self.jumps.iter().filter(|(_, jump)| jump.leaves).map(|(&id, _)| id)
    }

    /// Finds the targets of computed jumps whose code has changed since the last call. Returns whether any target is
    /// new.
    pub(crate) fn follow(&mut self, code: &mut Code) -> bool {
        let mut pending: Vec<ExitId> = self.update(code).into_iter().collect();
        pending.retain(|&id| match self.jumps[&id].basis {
            Some(Basis::Chains(fingerprint)) => fingerprint != self.chains(id),
            Some(Basis::Functions(fingerprint)) => fingerprint != self.fingerprint(id),
            None => true,
        });
        let mut found = self.look(&pending, || Flows::new(code), |flows, id| self.look_for(flows, id));
        let unknown = found.iter().filter(|(_, (targets, _))| *targets == Targets::Unknown);
        let unknown: Vec<ExitId> = unknown.map(|(&id, _)| id).collect();
        let keeping = || Flows::new(code).keeping_constants();
        found.extend(self.look(&unknown, keeping, |flows, id| self.look_for(flows, id)));
        pending.sort_unstable_by_key(|&id| code.exit(id).at);
        let mut any = false;
        for id in pending {
            let (targets, by_chains) = found.remove(&id).unwrap_or((Targets::Unknown, false));
            let basis = if by_chains {
                Basis::Chains(self.chains(id))
            } else {
                Basis::Functions(self.fingerprint(id))
            };
            let jump = self.jumps.entry(id).or_default();
            // Constants may cease to decide a jump at any time.
            jump.basis = (!code.is_decided(id)).then_some(basis);
            jump.tried_own_tables = None;
            any |= self.note(code, id, targets);
        }
        any
    }

    /// Searches the tables of their own functions for the targets of lost jumps ([`among_own_tables`]). Returns whether
    /// any target is new.
    pub(crate) fn follow_lost(&mut self, code: &mut Code) -> bool {
        let mut lost: Vec<ExitId> =
            self.lost().filter(|id| Some(self.fingerprint(*id)) != self.jumps[id].tried_own_tables).collect();
        lost.sort_unstable();
        let functions = code.functions_of_jumps(&lost);
        let mut found = self.look(
            &lost,
            || OwnTables::new(code),
            |own, id| among_own_tables(own, id, functions.get(&id).map_or(&[], Vec::as_slice)),
        );
        let mut any = false;
        for id in lost {
            let fingerprint = self.fingerprint(id);
            self.jumps.entry(id).or_default().tried_own_tables = Some(fingerprint);
            any |= self.note(code, id, found.remove(&id).unwrap_or(Targets::Unknown));
        }
        any
    }

    /// Returns the number of blocks in the functions of a jump.
    fn blocks(&self, id: ExitId) -> usize {
        self.members(id).map(|known| known.blocks).sum()
    }

    /// Returns the fingerprint of the functions of a jump.
    fn fingerprint(&self, id: ExitId) -> Fingerprint {
        fingerprint(|hasher| self.members(id).for_each(|known| known.fingerprint.hash(hasher)))
    }

    /// Returns the fingerprint of the chains before a jump in its functions.
    fn chains(&self, id: ExitId) -> Fingerprint {
        fingerprint(|hasher| self.own(id).for_each(|(_, own)| own.fingerprint.hash(hasher)))
    }

    /// Returns a jump as seen by its functions: once per function, unless instructions overlap there.
    fn own(&self, id: ExitId) -> impl Iterator<Item = (Addr, &OwnJump)> {
        let functions = self.jumps.get(&id).into_iter().flat_map(|jump| &jump.functions);
        functions.flat_map(move |&entry| {
            let jumps = self.functions.get(&entry).map_or(&[][..], |known| &known.jumps);
            let first = jumps.partition_point(|own| own.id < id);
            jumps[first..].iter().take_while(move |own| own.id == id).map(move |own| (entry, own))
        })
    }

    fn members(&self, id: ExitId) -> impl Iterator<Item = &Members> {
        let functions = self.jumps.get(&id).into_iter().flat_map(|jump| &jump.functions);
        functions.filter_map(|entry| self.functions.get(entry))
    }

    /// Updates the computed jumps of each function. Returns the jumps of changed functions.
    fn update(&mut self, code: &mut Code) -> FxHashSet<ExitId> {
        let changed = code.take_changed();
        let code = &*code;
        let have_jumps = code.functions_that_jump();
        let has_jumps = |entry: &Addr| have_jumps.binary_search(entry).is_ok();
        let functions: Vec<Addr> = changed.functions.iter().copied().filter(has_jumps).collect();
        let known: Vec<Members> = functions.par_iter().map(|&entry| Members::of(code, entry)).collect();
        let mut jumps = FxHashSet::default();
        for &entry in changed.gone.iter().chain(&changed.functions) {
            for OwnJump { id, .. } in self.functions.remove(&entry).into_iter().flat_map(|known| known.jumps)
            {
                let functions = &mut self.jumps.entry(id).or_default().functions;
                functions.retain(|&other| other != entry);
                jumps.insert(id);
            }
        }
        for (entry, known) in functions.into_iter().zip(known) {
            for id in known.jumps.iter().map(|own| own.id) {
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

    /// Returns whether a fresh look at all functions finds nothing new.
    fn knows_all(&self, code: &Code) -> bool {
        let mut entries = code.entries().map(|(entry, _)| entry).filter(|&entry| code.entry(entry).is_some());
        entries.all(|entry| {
            let now = Members::of(code, entry);
            match self.functions.get(&entry) {
                Some(known) => {
                    known.fingerprint == now.fingerprint && known.fingerprints().eq(now.fingerprints())
                }
                None => now.jumps.is_empty(),
            }
        })
    }

    /// Finds the targets of a jump. Also returns whether the chains before it sufficed. In each of its functions, the
    /// chain is tried first, alone and then with the numbers that registers hold before it, and then the flow of values
    /// through the whole function.
    fn look_for(&self, flows: &mut Flows, id: ExitId) -> (Targets, bool) {
        let at = flows.code.exit(id).at;
        let (mut along, mut open, mut by_chains) = (Targets::Leaves, Vec::new(), true);
        for (entry, own) in self.own(id) {
            let targets = targets_along(flows, at, &own.chain, &[]).or_else(|| {
                by_chains = false;
                let numbers = flows.numbers_at(entry, own.chain.entry);
                targets_along(flows, at, &own.chain, &numbers)
            });
            match targets {
                Some(targets) => along = along.join(targets),
                None => open.push(entry),
            }
        }
        (along.join(targets(flows, at, &open)), by_chains)
    }

    /// Applies `look` to jumps, with those of the same functions on the same thread. `begin` creates the context that a
    /// thread keeps from one jump to the next.
    fn look<K, F: Send>(
        &self,
        jumps: &[ExitId],
        begin: impl Fn() -> K + Sync,
        look: impl Fn(&mut K, ExitId) -> F + Sync,
    ) -> FxHashMap<ExitId, F> {
        let mut groups: FxHashMap<&[Addr], Vec<ExitId>> = FxHashMap::default();
        for id in jumps {
            groups.entry(&self.jumps[id].functions).or_default().push(*id);
        }
        let mut groups: Vec<(&[Addr], Vec<ExitId>)> = groups.into_iter().collect();
        groups.sort_unstable_by_key(|(functions, jumps)| (Reverse(self.blocks(jumps[0])), *functions));
        let found = share(&groups, begin, |kept, (_, jumps)| {
            jumps.iter().map(|&id| (id, look(kept, id))).collect::<Vec<_>>()
        });
        found.into_iter().flatten().collect()
    }

    /// Records the targets of a jump. Returns whether any is new.
    fn note(&mut self, code: &mut Code, id: ExitId, targets: Targets) -> bool {
        let Some(jump) = self.jumps.get_mut(&id) else { return false };
        jump.lost = targets == Targets::Unknown && !code.is_decided(id);
        jump.leaves = targets == Targets::Leaves;
        let Targets::Known { targets, table } = targets else { return false };
        if table && targets != self.claimed {
            // A pointer to the start of a function may be an ordinary function pointer.
            let is_middle = |target| {
                let extent = code.image.extent_around(target);
                extent.is_none_or(|extent| extent.start != target) && !code.image.is_function(target)
            };
            let own =
                |&(_, target): &(Addr, Addr)| targets.binary_search(&target).is_ok() && is_middle(target);
            let words: Vec<(Addr, Addr)> = code.image.code_pointers().filter(own).collect();
            words.into_iter().for_each(|(word, target)| code.claim(word, target));
            self.claimed.clone_from(&targets);
        }
        !code.is_decided(id) && code.add_targets(id, &targets)
    }
}

impl Members {
    fn of(code: &Code, entry: Addr) -> Members {
        let function = Function::new(code, entry);
        let predecessors = LazyCell::new(|| function.predecessors());
        let own = |(index, block): (usize, &Block)| {
            let id = block.exit.filter(|&id| code.exit(id).kind == ExitKind::IndirectJump)?;
            let chain = function.chain_to(BlockIndex(index as u32), &predecessors);
            Some(OwnJump { id, fingerprint: chain.fingerprint_with_exits(code), chain })
        };
        let mut jumps: Vec<OwnJump> = function.blocks.iter().enumerate().filter_map(own).collect();
        jumps.sort_unstable_by_key(|own| own.id);
        Members { blocks: function.blocks.len(), fingerprint: function.fingerprint(), jumps }
    }

    /// Returns its jumps, with the fingerprints of the blocks before them.
    fn fingerprints(&self) -> impl Iterator<Item = (ExitId, Fingerprint)> {
        self.jumps.iter().map(|own| (own.id, own.fingerprint))
    }
}

#[cfg(test)]
mod tests {
    use kshrink_tests::recipe;

    use super::*;
    use crate::image::{Image, Object, Process};
    use crate::reach::reach;

    /// Chains miss no target in BusyBox that whole functions find.
    #[test]
    fn chains_tell_what_functions_tell() {
        for machine in ["i386", "amd64", "armhf", "arm64"] {
            let root = recipe("package.sh", &["busybox-static", machine]);
            let object = Object::read(&std::fs::read(root.join("bin/busybox")).unwrap()).unwrap();
            let image = Image::link(&Process::single(object, "busybox")).unwrap();
            let code = reach(&image).code;
            let mut flows = Flows::new(&code);
            let mut told = 0;
            for entry in code.functions_that_jump() {
                for own in Members::of(&code, entry).jumps {
                    let at = code.exit(own.id).at;
                    let numbers = flows.numbers_at(entry, own.chain.entry);
                    let along =
                        [&[][..], &numbers].map(|known| targets_along(&mut flows, at, &own.chain, known));
                    let Targets::Known { targets: whole, .. } = targets(&mut flows, at, &[entry]) else {
                        continue;
                    };
                    for along in along.into_iter().flatten() {
                        let Targets::Known { targets: along, .. } = along else { unreachable!() };
                        let missing: Vec<Addr> = whole
                            .iter()
                            .copied()
                            .filter(|target| along.binary_search(target).is_err())
                            .collect();
                        assert!(missing.is_empty(), "{machine} {at}: {missing:?}");
                        told += 1;
                    }
                }
            }
            assert!(told > 50, "{machine}: {told}");
        }
    }
}
