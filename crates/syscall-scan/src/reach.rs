//! All code that the program can reach: exploration and the targets of computed jumps, in turn.
//!
//! A computed jump needs the values of its function, and the values of a function need all of its code, so
//! that the two go round until nothing is new. Words of data that point to code come last: by then most
//! jump tables are known to be that, and are not mistaken for tables of functions.
//!
//! The address of a jump table may wait in the frame until it is used, beside objects whose addresses are given
//! away. A jump that is lost for that reason is looked at again under the assumption that what holds an address
//! of constant memory there is left alone: a table of jumps is of use to its own function only, so that no
//! object which others write to holds its address.

use kplan::UnresolvedKind;
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::by_name::ByName;
use crate::code::{Code, ExitId, ExitKind};
use crate::flow::Flows;
use crate::image::{Addr, Image};
use crate::switches::{Targets, among_own_tables, targets};

/// Places that lead to code which has not been seen, and what is not known there.
pub type LostPlaces = Vec<(Addr, UnresolvedKind, String)>;

/// What is known of all code that can run.
pub struct Reached<'i> {
    /// The code.
    pub code: Code<'i>,
    /// The places that lead to code which has not been seen.
    pub lost: LostPlaces,
    /// The libraries that are loaded by name and that are not there, and where they are loaded.
    pub absent: Vec<(Addr, String)>,
}

/// Explores the whole program. `None` if kshrink does not know the machine's instruction set.
pub fn reach(image: &Image) -> Option<Reached<'_>> {
    let mut code = Code::new(image)?;
    let mut jumps = Jumps::default();
    let mut names = ByName::new(image);
    loop {
        code.explore();
        let more = jumps.follow(&mut code)
            || jumps.follow_lost(&mut code)
            || code.read_data()
            || code.take_landing_pads();
        if !more && !names.follow(&mut code) && !code.take_inner_pointers() {
            break;
        }
    }
    let jump = "a jump whose targets are not known, so that not all code was seen";
    let large = "addresses are made of distances here (the large code model), which are not followed";
    let lost = jumps.jumps.iter().filter(|(_, jump)| jump.lost).map(|(&id, _)| code.exit(id).at);
    let lost = lost.map(|at| (at, UnresolvedKind::Jump, jump.to_owned()));
    let large = code.large_distances().map(|at| (at, UnresolvedKind::Code, large.to_owned()));
    let names_lost = names.lost.into_iter().map(|(at, reason)| (at, UnresolvedKind::Name, reason));
    let mut lost: LostPlaces = lost.chain(large).chain(names_lost).collect();
    lost.sort_unstable_by_key(|&(at, ..)| at);
    Some(Reached { code, lost, absent: names.absent.into_iter().collect() })
}

/// The computed jumps so far.
#[derive(Default)]
struct Jumps {
    jumps: FxHashMap<ExitId, Jump>,
}

/// A computed jump.
#[derive(Default)]
struct Jump {
    /// The sizes of its functions when it was last looked at.
    blocks: usize,
    lost: bool,
}

impl Jumps {
    /// Finds the targets of all computed jumps. Returns whether any are new.
    fn follow(&mut self, code: &mut Code) -> bool {
        let mut pending: Vec<(ExitId, Addr)> = code
            .exits()
            .filter(|(_, exit)| exit.kind == ExitKind::IndirectJump)
            .map(|(id, exit)| (id, exit.at))
            .collect();
        // The jumps of one function are next to each other, so that one thread has them all.
        pending.sort_unstable_by_key(|&(_, at)| at);
        let found: Vec<(ExitId, usize, Targets)> = {
            let code = &*code;
            let jumps = pending.par_iter().with_min_len(share(pending.len())).map_init(
                || (Flows::new(code), None),
                |(flows, keeping), &(id, at)| {
                    let before = self.jumps.get(&id).map_or(0, |jump| jump.blocks);
                    let found = flows.as_mut().map(|flows| targets(flows, at, before));
                    let (blocks, mut found) = found.unwrap_or((0, Targets::Unknown));
                    if found == Targets::Unknown {
                        let keeping =
                            keeping.get_or_insert_with(|| Flows::new(code).map(Flows::keeping_constants));
                        let again = keeping.as_mut().map(|flows| targets(flows, at, 0).1);
                        found = again.unwrap_or(found);
                    }
                    (id, blocks, found)
                },
            );
            jumps.collect()
        };
        let mut any = false;
        for (id, blocks, targets) in found {
            self.jumps.entry(id).or_default().blocks = blocks;
            any |= self.note(code, id, targets);
        }
        any
    }

    /// Finds targets of the jumps that are lost by what they are made of. Returns whether any are new.
    fn follow_lost(&mut self, code: &mut Code) -> bool {
        let lost = self.jumps.iter().filter(|(_, jump)| jump.lost).map(|(&id, _)| id);
        let mut lost: Vec<ExitId> = lost.collect();
        lost.sort_unstable();
        let found: Vec<(ExitId, Targets)> = {
            let Some(mut flows) = Flows::new(code) else { return false };
            lost.into_iter().map(|id| (id, among_own_tables(&mut flows, id))).collect()
        };
        found.into_iter().fold(false, |any, (id, targets)| any | self.note(code, id, targets))
    }

    /// Takes what has been found out about a jump. Returns whether it has new targets.
    fn note(&mut self, code: &mut Code, id: ExitId, targets: Targets) -> bool {
        let Some(jump) = self.jumps.get_mut(&id) else { return false };
        match targets {
            Targets::Unchanged => return false,
            Targets::Leaves => jump.lost = false,
            Targets::Unknown => jump.lost = true,
            Targets::Known { targets, table } => {
                jump.lost = false;
                if table {
                    // A pointer to the beginning of a function may be just that.
                    let is_middle =
                        |target| code.image.extent_around(target).is_none_or(|extent| extent.start != target);
                    let own = |&(_, target): &(Addr, Addr)| {
                        targets.binary_search(&target).is_ok() && is_middle(target)
                    };
                    let words: Vec<(Addr, Addr)> = code.image.code_pointers().filter(own).collect();
                    words.into_iter().for_each(|(word, target)| code.claim(word, target));
                }
                return code.add_targets(id, &targets);
            }
        }
        false
    }
}

/// How many of so many pieces of work a thread takes at once: few enough that all threads have something to
/// do, and enough that work which several pieces have in common is seldom done twice.
pub(crate) fn share(pieces: usize) -> usize {
    pieces.div_ceil(2 * rayon::current_num_threads())
}
