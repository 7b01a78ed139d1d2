//! The computed jumps of a program and their targets, looked at again when their functions change.
//!
//! The address of a jump table may wait in the frame until it is used, beside objects whose addresses are given
//! away. A jump that is lost for that reason is looked at again under the assumption that what holds an address
//! of constant memory there is left alone: a table of jumps is of use to its own function only, so that no
//! object which others write to holds its address.

use std::cmp::Reverse;
use std::rc::Rc;

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::code::{Code, ExitId, ExitKind, Function, Shape};
use crate::flow::{Flow, Flows, is_balanced};
use crate::image::Addr;
use crate::parallel::share;
use crate::switches::{Found, Targets, among_own_tables, targets};

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
    /// What its targets followed from when they were looked for last.
    looked: Option<Basis>,
    /// The shape of its functions when they were looked for by what the jump is made of.
    tried: Option<Shape>,
    lost: bool,
}

/// What is known of a jump follows from code that has this shape.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Basis {
    /// The blocks that lead to it.
    Ways(Shape),
    /// All blocks of its functions.
    Functions(Shape),
}

/// What is known of a function with computed jumps.
struct Members {
    /// How many blocks it has.
    blocks: usize,
    shape: Shape,
    /// Whether it is known to leave the stack pointer where it was, whatever control goes through.
    balanced: bool,
    /// Its jumps, with the shape of what leads to them.
    jumps: Vec<(ExitId, Shape)>,
}

impl Jumps {
    /// The jumps whose targets are not known.
    pub(crate) fn lost(&self) -> impl Iterator<Item = ExitId> {
        self.jumps.iter().filter(|(_, jump)| jump.lost).map(|(&id, _)| id)
    }

    /// Finds the targets of computed jumps in functions that are not as they were. Returns whether
    /// any are new.
    pub(crate) fn follow(&mut self, code: &mut Code) -> bool {
        let mut pending: Vec<ExitId> = self.update(code).into_iter().collect();
        pending.retain(|&id| match self.jumps[&id].looked {
            Some(basis @ Basis::Ways(_)) => basis != Basis::Ways(self.ways(id)),
            Some(basis @ Basis::Functions(_)) => basis != Basis::Functions(self.shape(id)),
            None => true,
        });
        let mut found = self.look_by_values(&pending, || Flows::new(code));
        let is_unknown = |found: &Found| found.targets == Targets::Unknown;
        let unknown: Vec<ExitId> =
            found.iter().filter(|(_, found)| is_unknown(found)).map(|(&id, _)| id).collect();
        found.extend(self.look_by_values(&unknown, || Flows::new(code).map(Flows::keeping_constants)));
        pending.sort_unstable_by_key(|&id| code.exit(id).at);
        let mut any = false;
        for id in pending {
            let nothing = Found { targets: Targets::Unknown, by_values: false };
            let Found { targets, by_values } = found.remove(&id).unwrap_or(nothing);
            let basis = if by_values { Basis::Ways(self.ways(id)) } else { Basis::Functions(self.shape(id)) };
            let jump = self.jumps.entry(id).or_default();
            // One that constants decide may do so no longer at any time.
            jump.looked = (!code.is_decided(id)).then_some(basis);
            jump.tried = None;
            any |= self.note(code, id, targets);
        }
        any
    }

    /// Finds targets of the jumps that are lost by what they are made of. Returns whether any are new.
    pub(crate) fn follow_lost(&mut self, code: &mut Code) -> bool {
        let mut lost: Vec<ExitId> =
            self.lost().filter(|id| Some(self.shape(*id)) != self.jumps[id].tried).collect();
        lost.sort_unstable();
        let look = |flows: &mut Flows, &id: &ExitId| among_own_tables(flows, id);
        let begin = || Flows::new(code);
        let mut found =
            self.look(&lost, begin, |flows, _, jumps| jumps.iter().map(|id| look(flows, id)).collect());
        let mut any = false;
        for id in lost {
            let shape = self.shape(id);
            self.jumps.entry(id).or_default().tried = Some(shape);
            any |= self.note(code, id, found.remove(&id).unwrap_or(Targets::Unknown));
        }
        any
    }

    /// How many blocks the functions of a jump have.
    fn blocks(&self, id: ExitId) -> usize {
        self.members(id).map(|known| known.blocks).sum()
    }

    /// The shape of the functions of a jump.
    fn shape(&self, id: ExitId) -> Shape {
        self.members(id).map(|known| known.shape).collect()
    }

    /// The shape of what leads to a jump in its functions.
    fn ways(&self, id: ExitId) -> Shape {
        let ways = |known: &Members| {
            let own = known.jumps.iter().find(|&&(jump, _)| jump == id);
            own.map_or(known.shape, |&(_, ways)| ways)
        };
        self.members(id).map(ways).collect()
    }

    fn members(&self, id: ExitId) -> impl Iterator<Item = &Members> {
        let functions = self.jumps.get(&id).into_iter().flat_map(|jump| &jump.functions);
        functions.filter_map(|entry| self.functions.get(entry))
    }

    /// Brings up to date which jumps there are in which functions. Returns the jumps of those that have changed.
    fn update(&mut self, code: &mut Code) -> FxHashSet<ExitId> {
        let changed = code.take_changed();
        let code = &*code;
        let have_jumps = code.functions_that_jump();
        let has_jumps = |entry: &Addr| have_jumps.binary_search(entry).is_ok();
        let functions: Vec<Addr> = changed.functions.iter().copied().filter(has_jumps).collect();
        let known: Vec<Members> = functions.par_iter().map(|&entry| Members::of(code, entry)).collect();
        let mut jumps = FxHashSet::default();
        for &entry in changed.gone.iter().chain(&changed.functions) {
            for (id, _) in self.functions.remove(&entry).into_iter().flat_map(|known| known.jumps) {
                let functions = &mut self.jumps.entry(id).or_default().functions;
                functions.retain(|&other| other != entry);
                jumps.insert(id);
            }
        }
        for (entry, known) in functions.into_iter().zip(known) {
            for &(id, _) in &known.jumps {
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
                Some(known) => known.shape == now.shape && known.jumps == now.jumps,
                None => now.jumps.is_empty(),
            }
        })
    }

    /// Looks at jumps by the flow of values: by what leads to them where their functions are balanced, by their whole
    /// functions otherwise.
    fn look_by_values<'c>(
        &self,
        jumps: &[ExitId],
        flows: impl Fn() -> Option<Flows<'c>> + Sync,
    ) -> FxHashMap<ExitId, Found> {
        self.look(jumps, flows, |flows, functions, jumps| {
            let flow = |&entry: &Addr| match self.functions.get(&entry) {
                Some(known) if known.balanced => flows.flow_to(entry, jumps),
                _ => flows.flow(entry),
            };
            let functions: Vec<Rc<Flow>> = functions.iter().map(flow).collect();
            jumps.iter().map(|&id| targets(flows, flows.code.exit(id).at, &functions)).collect()
        })
    }

    /// Looks at jumps with `look`, which is given functions and the jumps that are in all of them.
    fn look<'c, F: Send>(
        &self,
        jumps: &[ExitId],
        flows: impl Fn() -> Option<Flows<'c>> + Sync,
        look: impl Fn(&mut Flows<'c>, &[Addr], &[ExitId]) -> Vec<F> + Sync,
    ) -> FxHashMap<ExitId, F> {
        let mut groups: FxHashMap<&[Addr], Vec<ExitId>> = FxHashMap::default();
        for id in jumps {
            groups.entry(&self.jumps[id].functions).or_default().push(*id);
        }
        let mut groups: Vec<(&[Addr], Vec<ExitId>)> = groups.into_iter().collect();
        groups.sort_unstable_by_key(|(functions, jumps)| (Reverse(self.blocks(jumps[0])), *functions));
        let found = share(&groups, flows, |flows, (functions, jumps)| {
            flows.as_mut().map_or_else(Vec::new, |flows| look(flows, functions, jumps))
        });
        let ids = groups.into_iter().map(|(_, jumps)| jumps);
        ids.zip(found).flat_map(|(jumps, found)| jumps.into_iter().zip(found)).collect()
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
        let is_jump = |&id: &ExitId| code.exit(id).kind == ExitKind::IndirectJump;
        let mut known = Members {
            blocks: function.blocks.len(),
            shape: function.shape(),
            balanced: false,
            jumps: Vec::new(),
        };
        if !exits.clone().any(|id| is_jump(&id)) {
            return known;
        }
        known.balanced = is_balanced(code, &function);
        let ways = function.ways(code);
        for (block, &ways) in function.blocks.iter().zip(&ways) {
            let ways = if known.balanced { ways } else { known.shape };
            known.jumps.extend(block.exit.filter(is_jump).map(|id| (id, ways)));
        }
        known.jumps.sort_unstable();
        known.jumps.dedup_by_key(|&mut (id, _)| id);
        known
    }
}
