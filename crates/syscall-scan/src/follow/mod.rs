//! Tracks pointers through the program: to prove that nothing writes to a pointer's target, to find the calls of the
//! function whose address is there, or to find the calls of a function from its address. Also finds the values that are
//! stored to a variable.
//!
//! `setuid` and similar calls need this. The C library has to make the call in every thread, and uses a structure in
//! the caller's frame that holds the number. Its address is passed to a function that makes the call, and through a
//! variable to a signal handler that makes it in the other threads.
//!
//! The pointer is watched function by function: it is tracked into every callee or variable to which it may be passed
//! on. Any other use ends the search without a proof. A variable counts as separate if every instruction that refers to
//! it reads or writes it directly, see [`References::is_variable`].

mod aim;
mod look;

use kflow::values::Element;
use kisa::{Effect, Value, sign_extend};
use rustc_hash::FxHashSet;

use self::aim::{Aim, Bytes};
pub use self::aim::{Callees, Lost};
use self::look::{Look, PassedOn, read_by};
use crate::code::{ExitId, Reference, References};
use crate::flow::{Flows, Visit, constant_address};
use crate::image::Addr;
use crate::values::{Atom, Origin, OriginId, ValueSet, When};

/// The widest store in bytes.
const MAX_STORE: u64 = 64;

/// The slot of the value id for the address of a variable, see `Step`. No instruction uses it.
const SLOT_ADDRESS: u8 = 207;

/// Maximum number of functions to examine, each once for every way in which a pointer reaches it. Successful proofs
/// need at most 20.
const MAX_FUNCTIONS: usize = 64;

/// The result of a proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unwritten {
    /// Maximum number of arguments of the system calls with numbers in these bytes, as a condition of the proof.
    pub arguments: usize,
}

/// A value stored to a variable: the storing function and instruction, and the value in the function's terms.
pub struct Stored {
    /// The function.
    pub function: Addr,
    /// The instruction.
    pub at: Addr,
    /// The value.
    pub value: ValueSet,
}

/// Proves that nothing writes to `width` bytes at a pointer that a function received, from the time of the call on.
/// `pointer` is the address of these bytes in terms of the function.
///
/// # Errors
/// The place where the pointer was lost or written through.
pub fn prove_unwritten(
    flows: &mut Flows,
    references: &References,
    callees: &Callees,
    function: Addr,
    pointer: Atom,
    width: u8,
) -> Result<Unwritten, Lost> {
    let word = flows.code.image.machine.word_size();
    let from = sign_extend(pointer.offset, word) as i64;
    let bytes = Bytes { from, to: from.saturating_add(width.into()) };
    let mut search = Search::new(flows, references, Aim::Writes);
    search.callees = Some(callees);
    search.in_function(function, pointer.origin, bytes)?;
    Ok(Unwritten { arguments: search.arguments })
}

/// Returns the values that are stored to a variable of `width` bytes, except its initial content.
///
/// # Errors
/// If the variable may be written through a pointer, or by an unsupported instruction.
pub fn stores_to(
    flows: &mut Flows,
    references: &References,
    variable: Addr,
    width: u8,
) -> Result<Vec<Stored>, Lost> {
    if !references.is_variable(flows.code.image, variable, width) {
        return Err(Lost(variable));
    }
    if let Some(at) = overlapping_store(flows, references, variable) {
        return Err(Lost(at));
    }
    let mut stored = Vec::new();
    for reference in references.to(variable) {
        let at = reference.at;
        let effects = flows.code.effects_at(at);
        for effect in &effects {
            let Effect::Store { to, value, .. } = effect else { continue };
            for function in flows.code.functions_of(at) {
                let flow = flows.flow(function);
                let Some(state) = flows.before(&flow, at) else { continue };
                let address = flows.operand(&state, at, Value::Address(*to));
                if address == ValueSet::number(variable.0) {
                    let value = flows.operand(&state, at, *value);
                    stored.push(Stored { function, at, value });
                } else if address.is_any()
                    || address.elements().iter().any(|&atom| {
                        // A call pushes its return address, which is in the frame.
                        atom.as_number().is_none() && flows.domain.place(atom).is_none()
                    })
                {
                    return Err(Lost(at));
                }
            }
        }
    }
    Ok(stored)
}

/// Returns the calls and jumps whose target may be the content of a word of a variable, which has no other readers.
///
/// # Errors
/// If the word may be read in another way.
pub fn calls_through(flows: &mut Flows, references: &References, at: Addr) -> Result<Vec<ExitId>, Lost> {
    let word = flows.code.image.machine.word_size();
    let end = at.0.saturating_add(word.into());
    let image = flows.code.image;
    // References to read-only memory are not recorded.
    let mut data = image.object_at(at).into_iter().flat_map(|loaded| loaded.data());
    let data = data.find(|range| range.contains(&at.0) && image.is_writable(at)).ok_or(Lost(at))?;
    let start = data.start;
    // The end of a variable may be the start of a count-down, unless it is another variable's beginning.
    let is_end = references.to(Addr(end)).iter().all(|reference| reference.as_pointer);
    let leads_there = |address: Addr| image.variable(address).contains(&at.0) || address.0 == end && is_end;
    // A word that points to itself identifies an object (`__dso_handle`).
    let is_handle = |address: Addr| image.initial(address, word) == Some(address.0);
    let mut pointed_to = references.pointed_to(start..end + 1).iter().copied();
    if let Some(address) = pointed_to.find(|&address| leads_there(address) && !is_handle(address)) {
        return Err(Lost(address));
    }
    if !references.within(start..end).iter().any(|reference| leads_there(reference.to)) {
        return Err(Lost(at)); // the reader is not found
    }
    let mut search = Search::new(flows, references, Aim::CallsThrough);
    for &Reference { to, at: by, as_pointer } in references.within(start..end + 1) {
        let distance = at.0.wrapping_sub(to.0) as i64;
        let bytes = Bytes { from: distance, to: distance + i64::from(word) };
        if as_pointer && leads_there(to) {
            search.of_address(to, by, bytes)?;
        } else if !as_pointer {
            search.direct(to, by, bytes)?;
        }
    }
    Ok(search.calls())
}

/// Returns the calls and jumps whose target may be the function address that an instruction loads.
///
/// # Errors
/// If the address may be used for anything other than calls.
pub fn calls_of(
    flows: &mut Flows,
    references: &References,
    function: Addr,
    at: Addr,
) -> Result<Vec<ExitId>, Lost> {
    let mut search = Search::new(flows, references, Aim::Calls);
    search.own = Some(function);
    search.of_address(function, at, Bytes { from: 0, to: 1 })?;
    Ok(search.calls())
}

/// Returns an instruction that writes to a variable together with the bytes before it, such as a vector store.
fn overlapping_store(flows: &Flows, references: &References, variable: Addr) -> Option<Addr> {
    let mut before = (1..MAX_STORE).flat_map(|distance| {
        let start = Addr(variable.0.wrapping_sub(distance));
        references.to(start).iter().map(move |reference| (distance, reference))
    });
    let overlaps = |(distance, reference): &(u64, &Reference)| {
        let effects = flows.code.effects_at(reference.at);
        effects.iter().any(|effect| match effect {
            Effect::Store { width, .. } => u64::from(*width) > *distance,
            _ => false,
        })
    };
    before.find(overlaps).map(|(_, reference)| reference.at)
}

/// A search.
struct Search<'f, 'c> {
    flows: &'f mut Flows<'c>,
    references: &'f References,
    /// Size of an address in bytes.
    word: u8,
    seen: FxHashSet<(Addr, OriginId, Bytes)>,
    arguments: usize,
    aim: Aim,
    /// The calls found.
    calls: Vec<ExitId>,
    /// The function whose calls are searched for by its address.
    own: Option<Addr>,
    callees: Option<&'f Callees>,
}

impl<'f, 'c> Search<'f, 'c> {
    fn new(flows: &'f mut Flows<'c>, references: &'f References, aim: Aim) -> Search<'f, 'c> {
        let word = flows.code.image.machine.word_size();
        let seen = FxHashSet::default();
        let (arguments, calls) = (usize::MAX, Vec::new());
        Search { flows, references, word, seen, arguments, aim, calls, own: None, callees: None }
    }

    /// Returns the calls found, each once.
    fn calls(mut self) -> Vec<ExitId> {
        self.calls.sort_unstable();
        self.calls.dedup();
        self.calls
    }

    /// Tracks the address `to` that an instruction loads.
    fn of_address(&mut self, to: Addr, by: Addr, bytes: Bytes) -> Result<(), Lost> {
        let effects = self.flows.code.effects_at(by);
        let makes = |effect: &Effect| match *effect {
            Effect::Set { value, width, .. } if width == self.word => constant_address(value) == Some(to.0),
            Effect::Store { value, width, .. } if width == self.word && self.aim == Aim::Calls => {
                constant_address(value) == Some(to.0)
            }
            _ => false,
        };
        // An instruction that stores the address may move the stack pointer as well.
        let moves = |effect: &Effect| match *effect {
            Effect::Binary { dst, .. } => dst == self.flows.convention.stack_pointer,
            _ => false,
        };
        let names = |effect: &&Effect| effect.operands().any(|value| constant_address(value) == Some(to.0));
        let is_plain = effects.iter().filter(names).count() == 1
            && effects.iter().any(makes)
            && effects.iter().all(|effect| makes(effect) || moves(effect));
        if !is_plain {
            return Err(Lost(by));
        }
        let made = Origin::Made { at: by, slot: SLOT_ADDRESS };
        let (made, _) = self.flows.domain.origins.add(made).ok_or(Lost(by))?;
        for function in self.flows.code.functions_of(by) {
            self.flows.domain.address_made = Some((by, to.0, made));
            let followed = self.in_function(function, made, bytes);
            self.flows.domain.address_made = None;
            followed?;
        }
        Ok(())
    }

    /// Examines an instruction that reads or writes at an address. `bytes` are relative to the address.
    fn direct(&mut self, to: Addr, by: Addr, bytes: Bytes) -> Result<(), Lost> {
        let effects = self.flows.code.effects_at(by);
        let reads = |value: Value| match value {
            Value::Load { from, width } => {
                from.displacement as u64 == to.0 && bytes.from < i64::from(width) && bytes.to > 0
            }
            _ => false,
        };
        self.read(by, &effects, reads)
    }

    /// Records a call through the bytes. `reads` returns whether an operand reads them.
    fn read(&mut self, at: Addr, effects: &[Effect], reads: impl Fn(Value) -> bool) -> Result<(), Lost> {
        let calls = read_by(self.flows.code, at, effects, reads)?;
        self.calls.extend(calls);
        Ok(())
    }

    /// Tracks a pointer through one function, and onwards.
    fn in_function(&mut self, function: Addr, pointer: OriginId, bytes: Bytes) -> Result<(), Lost> {
        if !self.seen.insert((function, pointer, bytes)) {
            return Ok(());
        }
        if self.seen.len() > MAX_FUNCTIONS {
            return Err(Lost(function));
        }
        let flow = self.flows.watch(function, pointer).map_err(Lost)?;
        let mut look = Look {
            function: &flow.function,
            pointer,
            bytes,
            word: self.word,
            passed_on: Vec::new(),
            arguments: self.arguments,
            results: Vec::new(),
            keeps_result: false,
            aim: self.aim,
            calls: Vec::new(),
            own: self.own,
            called: None,
            callees: self.callees,
        };
        self.flows.walk(&flow, &mut |flows: &mut Flows, visit| match visit {
            Visit::Instruction { at, state, effects } => look.instruction(flows, at, state, effects),
            Visit::Exit { exit, state } => look.exit(flows, exit, state),
            Visit::End { next, state } => look.goes_on(flows, next, next, state),
        })?;
        self.flows.domain.address_made = None;
        look.pass_results_on(self.flows.code)?;
        self.arguments = look.arguments;
        self.calls.extend(&look.calls);
        for next in look.passed_on {
            match next {
                PassedOn::Argument { callee, origin, offset } => {
                    let bytes = self.behind(bytes, offset);
                    self.in_function(callee, origin, bytes)?;
                }
                PassedOn::Variable { variable, offset } => {
                    let bytes = self.behind(bytes, offset);
                    self.in_variable(variable, bytes)?;
                }
                PassedOn::Result { call, offset } => {
                    let slot = self.flows.convention.results[0].0;
                    let made = Origin::Made { at: call, slot };
                    let (made, _) = self.flows.domain.origins.add(made).ok_or(Lost(call))?;
                    let behind = self.behind(bytes, offset);
                    for caller in self.flows.code.functions_of(call) {
                        self.in_function(caller, made, behind)?;
                        // A callee of a few instructions is analysed as part of the caller.
                        if self.is_read_from_variable(pointer) {
                            self.in_function(caller, pointer, bytes)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn is_read_from_variable(&self, pointer: OriginId) -> bool {
        let origin = self.flows.domain.origins.get(pointer);
        matches!(origin, Origin::Memory { when: When::Later(_), .. })
    }

    /// Returns the same bytes relative to a pointer that is `offset` bytes further on.
    fn behind(&self, bytes: Bytes, offset: u64) -> Bytes {
        let offset = sign_extend(offset, self.word) as i64;
        Bytes { from: bytes.from.wrapping_sub(offset), to: bytes.to.wrapping_sub(offset) }
    }

    /// Tracks a pointer through all readers of the variable that holds it.
    fn in_variable(&mut self, variable: Addr, bytes: Bytes) -> Result<(), Lost> {
        if !self.references.is_variable(self.flows.code.image, variable, self.word) {
            return Err(Lost(variable));
        }
        for reference in self.references.to(variable) {
            if !self.reads_whole(reference.at) {
                return Err(Lost(reference.at));
            }
            let when = When::Later(reference.at);
            let read = Origin::Memory { at: Atom::number(variable.0), width: self.word, when };
            let (origin, _) = self.flows.domain.origins.add(read).ok_or(Lost(reference.at))?;
            for function in self.flows.code.functions_of(reference.at) {
                self.in_function(function, origin, bytes)?;
            }
        }
        Ok(())
    }

    /// Returns whether an instruction reads only whole words, so that no part of a pointer is lost.
    fn reads_whole(&self, at: Addr) -> bool {
        // A comparison reveals no part of a pointer.
        let compares = |effect: &&Effect| {
            matches!(
                effect,
                Effect::Compare { .. } | Effect::CompareZero { .. } | Effect::BranchIfCompared { .. }
            )
        };
        let effects = self.flows.code.effects_at(at);
        let others = effects.iter().filter(|effect| !compares(effect));
        others.flat_map(Effect::memory_read).all(|(_, width)| width == self.word)
    }
}
