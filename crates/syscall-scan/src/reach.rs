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

use kcfg::isa::{BinaryOp, Effect, Reg, Value as Operand};
use kelf::Machine;
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::by_name::ByName;
use crate::code::{Code, ExitId, ExitKind};
use crate::flow::{Flow, Flows, State, sign_extend};
use crate::image::{Addr, Extent, Image};
use crate::values::{Origin, Value};

/// The most entries of a jump table whose index has no known bound.
const MAX_UNBOUNDED: u64 = 1024;

/// The most pieces of code of one size that a jump chooses from.
const MAX_PIECES: u64 = 256;

/// What is known about a computed jump.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Targets {
    /// Nothing new since the function had this many blocks.
    Unchanged,
    /// These.
    Known { targets: Vec<Addr>, table: bool },
    /// It leaves the function (a tail call), or control never gets to it.
    Leaves,
    /// They are not known.
    Unknown,
}

/// Places that lead to code which has not been seen, and what is not known there.
pub type LostPlaces = Vec<(Addr, String)>;

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
        let more = jumps.follow(&mut code) || code.read_data() || code.take_landing_pads();
        if !more && !names.follow(&mut code) && !code.take_inner_pointers() {
            break;
        }
    }
    let jump = "a jump whose targets are not known, so that not all code was seen";
    let lost = jumps.jumps.iter().filter(|(_, jump)| jump.lost).map(|(&id, _)| code.exit(id).at);
    let large = "addresses are made of distances here (the large code model), which are not followed";
    let large = code.large_distances().map(|at| (at, large.to_owned()));
    let mut lost: LostPlaces = lost.map(|at| (at, jump.to_owned())).chain(names.lost).chain(large).collect();
    lost.sort_unstable();
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
            let jump = self.jumps.entry(id).or_default();
            jump.blocks = blocks;
            match targets {
                Targets::Unchanged => {}
                Targets::Leaves => jump.lost = false,
                Targets::Unknown => jump.lost = true,
                Targets::Known { targets, table } => {
                    jump.lost = false;
                    any |= code.add_targets(id, &targets);
                    if table {
                        for (word, target) in code.image.code_pointers() {
                            if targets.binary_search(&target).is_ok() {
                                code.claim(word, target);
                            }
                        }
                    }
                }
            }
        }
        any
    }
}

/// How many of so many pieces of work a thread takes at once: few enough that all threads have something to
/// do, and enough that work which several pieces have in common is seldom done twice.
pub(crate) fn share(pieces: usize) -> usize {
    pieces.div_ceil(2 * rayon::current_num_threads())
}

/// Where a computed jump goes, over all functions that it is in; and how many blocks these have. They had
/// `before` when it was last looked at.
fn targets(flows: &mut Flows, at: Addr, before: usize) -> (usize, Targets) {
    let functions = flows.code.functions_of(at);
    let blocks = functions.iter().map(|&entry| flows.function(entry).blocks.len()).sum();
    let targets = if blocks == before { Targets::Unchanged } else { find_targets(flows, at, functions) };
    (blocks, targets)
}

fn find_targets(flows: &mut Flows, at: Addr, functions: Vec<Addr>) -> Targets {
    let mut all = Vec::new();
    let (mut leaves, mut table) = (true, false);
    for entry in functions {
        let flow = flows.flow(entry);
        let Some(before) = flows.before(&flow, at) else { continue };
        let within = flows.is_within_function(&before);
        let after = flows.after(&flow, at);
        let target = after.as_ref().and_then(|after| after.target.clone()).unwrap_or(Value::Any);
        match resolve(flows, at, &target, after.as_ref().map(|after| &after.state)) {
            Some((targets, exact)) => {
                leaves = false;
                table |= within && exact && targets.len() > 1;
                all.extend(targets);
            }
            None if within || !may_be_function(flows, &flow, &target) => return Targets::Unknown,
            None => {}
        }
    }
    all.sort_unstable();
    all.dedup();
    if leaves { Targets::Leaves } else { Targets::Known { targets: all, table } }
}

/// Whether a value that is not known may be the address of a function, as it is in a tail call: the function was
/// given it, has read it from memory, or got it from a callee. What is the sum of something and of a distance, as
/// tables of jumps have it, leads to a place in the function.
fn may_be_function(flows: &mut Flows, flow: &Flow, target: &Value) -> bool {
    target.atoms().iter().all(|atom| match flows.domain.origins.get(atom.origin) {
        Origin::Made { at, .. } => !adds_distance(flows, flow, at),
        Origin::Element { table, width, signed: false, .. } if atom.offset == 0 => flows
            .code
            .image
            .constant(table, width)
            .is_some_and(|entry| begins_function(flows.code, Addr(entry))),
        Origin::Element { .. } | Origin::Low { .. } | Origin::Signed { .. } => false,
        _ => true,
    })
}

/// Whether a function begins at an address, as far as symbols, the unwinder's table and callers tell.
fn begins_function(code: &Code, address: Addr) -> bool {
    let extent = code.image.extent_around(address);
    let begins = extent.is_some_and(|extent| extent.start == address);
    code.image.is_code(address)
        && (begins || code.image.is_function(address) || code.entry(address).is_some())
}

/// Whether an instruction adds a number to another one that is half a word and has been sign-extended.
fn adds_distance(flows: &mut Flows, flow: &Flow, at: Addr) -> bool {
    let mut effects = Vec::new();
    flows.code.effects(at, &mut effects);
    let parts = effects.iter().flat_map(|effect| match *effect {
        Effect::Binary { op: BinaryOp::Add, left: Operand::Reg { reg: a, .. }, right, .. } => match right {
            Operand::Reg { reg: b, .. } => [Some(a), Some(b)],
            _ => [Some(a), None],
        },
        Effect::Set { value: Operand::Address(address), .. } => {
            [address.base, address.index.map(|(index, _)| index)]
        }
        _ => [None; 2],
    });
    let parts: Vec<Reg> = parts.flatten().collect();
    let Some(state) = flows.before(flow, at).filter(|_| !parts.is_empty()) else { return false };
    let (code, origins) = (flows.code, &flows.domain.origins);
    let is_distance = |origin| match origins.get(origin) {
        Origin::Element { .. } | Origin::Signed { .. } => true,
        Origin::Made { at, .. } => {
            let mut effects = Vec::new();
            code.effects(at, &mut effects);
            effects.iter().any(|effect| matches!(effect, Effect::SetSigned { .. }))
        }
        _ => false,
    };
    parts.iter().any(|&part| state.register(part).atoms().iter().any(|atom| is_distance(atom.origin)))
}

/// The addresses that the target of a jump may be, in a state that says what is known of unknown values; and
/// whether there are no others among them.
fn resolve(flows: &Flows, at: Addr, target: &Value, state: Option<&State>) -> Option<(Vec<Addr>, bool)> {
    let image = flows.code.image;
    let mut targets = Vec::new();
    let mut exact = true;
    for atom in target.atoms() {
        match flows.domain.origins.get(atom.origin) {
            Origin::Number if image.is_code(Addr(atom.offset)) => targets.push(Addr(atom.offset)),
            Origin::Element { table, stride, width, signed, .. } => {
                let entries = unbounded(flows.code, at, table, stride, |entry| {
                    let entry = image.constant(entry, width)?;
                    let entry = if signed { sign_extend(entry, width) } else { entry };
                    Some(Addr(image.wrap(entry.wrapping_add(atom.offset))))
                });
                targets.extend(entries?);
                exact &= image.extent_around(at).is_some();
            }
            // Pieces of code of one size, one behind the other, as in functions that copy memory.
            _ => {
                let span = state?.ranges.get(*atom, &flows.domain);
                if span.steps() >= MAX_PIECES || !span.iter().all(|piece| image.is_code(Addr(piece))) {
                    return None;
                }
                targets.extend(span.iter().map(Addr));
            }
        }
    }
    (!targets.is_empty()).then_some((targets, exact))
}

/// The entries of a jump table of unknown size: as long as they lead to instructions of the jump's own
/// function, or of a part of it that lies elsewhere, at whose beginning nobody calls. `None` where nothing
/// says how far the function goes; but on ARM, where few functions say that, entries that lead to any code then.
fn unbounded(
    code: &Code,
    at: Addr,
    table: Addr,
    stride: u8,
    entry: impl Fn(Addr) -> Option<Addr>,
) -> Option<Vec<Addr>> {
    let own = code.image.extent_around(at);
    if own.is_none() && code.image.machine != Machine::Arm {
        return None;
    }
    let is_own = |target: Addr| {
        let extent = code.image.extent_around(target);
        let part = |extent: Extent| target != extent.start && code.entry(extent.start).is_none();
        own.is_none() || extent == own || extent.is_some_and(part)
    };
    let is_target =
        |&target: &Addr| code.image.is_code(target) && is_own(target) && code.is_instruction(target);
    let entries = (0..MAX_UNBOUNDED)
        .map_while(|index| entry(table.plus(index * u64::from(stride))))
        .take_while(is_target);
    Some(entries.collect())
}
