//! The numbers of a system call: the content of its register, followed into the callers if the function itself does not
//! determine it.
//!
//! A value that depends on the function's parameters is translated into the terms of each caller, then into the terms
//! of the caller's callers, and so on, until only numbers are left. An address-taken function has unknown callers, and
//! its arguments can be anything.

mod callers;
mod translate;

use std::collections::BTreeSet;

use kflow::values::Element;
use kisa::{Effect, Value, low_mask, sign_extend};
use rustc_hash::FxHashMap;

use crate::abi;
use crate::arguments::arguments_used;
use crate::code::{Code, ExitId, ExitKind, References, Taken};
use crate::flow::{Domain, Flows, State};
use crate::follow::{Callees, Lost, Stored, Unwritten, prove_unwritten, stores_to};
use crate::image::{Addr, Image};
use crate::values::{Atom, Origin, OriginId, ValueSet, When};

/// Maximum number of values in a range.
const MAX_RANGE: u64 = 64;

/// Maximum number of computed calls that pointers are followed through.
const MAX_CALLEES: usize = 64;

/// Maximum length of a chain of wrappers.
pub(crate) const MAX_DEPTH: usize = 24;

/// The reason that a value is unknown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// An instruction computes it in a way that the analysis does not model.
    Computed(Addr),
    /// It is an argument of a function that may be called from anywhere.
    Callable {
        /// The function.
        function: Addr,
        /// The place that exposes its address.
        taken: Taken,
    },
    /// This instruction reads it from memory.
    Memory(Addr),
    /// It is read from memory that other code may write to.
    Written {
        /// The instruction that reads it.
        read: Addr,
        /// The place where the address of that memory escapes.
        lost: Addr,
    },
    /// It passes through too many functions.
    Deep,
}

/// The possible numbers of a value, or the reason that they are unknown.
pub type Resolved = Result<BTreeSet<u64>, Reason>;

/// Resolves values across all functions.
pub struct Resolver<'f, 'c> {
    flows: Flows<'c>,
    references: &'f References,
    /// The values being resolved, outermost first. A recursive call that passes the function's own argument on adds
    /// nothing.
    open: Vec<(Addr, Atom)>,
    /// The variables whose pointers are being followed, outermost first. A variable that holds its own successor
    /// (`p++`, `p = p->next`) would be followed without end.
    followed: Vec<Addr>,
    /// State of the depth-first search since the innermost value of `open` began: the maximum length of `open`, and the
    /// lowest index in it that a cycle led back to (Tarjan's low link).
    max_depth: usize,
    low_link: usize,
    /// The resolved values. A value on a cycle is kept once the whole cycle is resolved.
    known: FxHashMap<(Addr, Atom), CachedResult>,
    /// Whether unknown values are omitted, see [`Resolver::some_values`].
    lenient: bool,
    /// The callers of address-taken functions, if known.
    callers_by_pointer: FxHashMap<Addr, Option<Vec<(Addr, ExitId)>>>,
    /// The callees of the computed calls through which pointers are followed.
    callees: Callees,
    /// The counterpart of `known` for the other value of [`Resolver::lenient`].
    known_otherwise: FxHashMap<(Addr, Atom), CachedResult>,
}

/// The result for a value.
struct CachedResult {
    numbers: Resolved,
    /// Maximum number of values that its resolution added to [`Resolver::open`].
    depth: usize,
}

impl<'f, 'c> Resolver<'f, 'c> {
    /// Creates a resolver without results.
    pub fn new(code: &'c Code<'c>, references: &'f References) -> Resolver<'f, 'c> {
        Resolver {
            flows: Flows::new(code),
            references,
            open: Vec::new(),
            followed: Vec::new(),
            max_depth: 0,
            low_link: usize::MAX,
            known: FxHashMap::default(),
            lenient: false,
            callers_by_pointer: FxHashMap::default(),
            callees: Callees::default(),
            known_otherwise: FxHashMap::default(),
        }
    }

    /// Returns the code.
    pub(crate) fn code(&self) -> &'c Code<'c> {
        self.flows.code
    }

    /// Returns the domain that all states share.
    pub(crate) fn domain(&mut self) -> &mut Domain {
        &mut self.flows.domain
    }

    /// Returns the state of a function before an instruction; `None` if the instruction is never reached.
    pub(crate) fn before(&mut self, function: Addr, at: Addr) -> Option<State> {
        let flow = self.flows.flow(function);
        self.flows.before(&flow, at)
    }

    /// Returns the state after an instruction, see [`Flows::after`].
    pub(crate) fn after(&mut self, function: Addr, at: Addr) -> Option<State> {
        let flow = self.flows.flow(function);
        self.flows.after(&flow, at).map(|after| after.state)
    }

    /// Returns the possible numbers of an atom in a state, if they are few.
    pub(crate) fn range(&self, state: &State, atom: Atom) -> Option<impl Iterator<Item = u64> + use<>> {
        let span = state.ranges.get(atom, &self.flows.domain);
        (span.steps() < MAX_RANGE).then(|| span.iter())
    }

    /// Returns whether the value of an atom depends on the function's caller.
    pub(crate) fn depends_on_caller(&self, atom: Atom) -> bool {
        let domain = &self.flows.domain;
        let root = domain.origins.get(domain.origins.root(atom.origin));
        matches!(root, Origin::Register(_)) && domain.place(atom).is_none()
    }

    /// Returns the possible numbers of a value before the instruction at `at`, in every function that contains it.
    /// `read` picks the value from the state.
    pub fn numbers(&mut self, at: Addr, read: impl Fn(&State) -> ValueSet) -> Resolved {
        self.read(at, |_, state| read(state))
    }

    /// Returns the possible numbers of an operand before the instruction at `at`.
    pub fn operand(&mut self, at: Addr, operand: Value) -> Resolved {
        self.read(at, |flows, state| flows.operand(state, at, operand))
    }

    /// Returns the known numbers among those of [`Resolver::numbers`], even if others are possible.
    pub fn some_numbers(&mut self, at: Addr, read: impl Fn(&State) -> ValueSet) -> BTreeSet<u64> {
        self.leniently(|resolver| resolver.numbers(at, read))
    }

    /// Returns the known numbers of a value of `function`, even if others are possible: the number that one caller
    /// passes counts although another caller is unknown. The value is that in `state`, at `at`.
    pub(crate) fn some_values(
        &mut self,
        function: Addr,
        state: &State,
        value: &ValueSet,
        at: Addr,
    ) -> BTreeSet<u64> {
        self.leniently(|resolver| resolver.value(function, state, value, at))
    }

    fn leniently(&mut self, resolve: impl FnOnce(&mut Self) -> Resolved) -> BTreeSet<u64> {
        self.lenient = true;
        std::mem::swap(&mut self.known, &mut self.known_otherwise);
        let numbers = resolve(self);
        std::mem::swap(&mut self.known, &mut self.known_otherwise);
        self.lenient = false;
        numbers.unwrap_or_default()
    }

    /// Returns the numbers, or none if they are unknown and `lenient` is set.
    fn if_known(&self, numbers: Resolved) -> Resolved {
        if self.lenient { Ok(numbers.unwrap_or_default()) } else { numbers }
    }

    fn read(&mut self, at: Addr, read: impl Fn(&mut Flows, &State) -> ValueSet) -> Resolved {
        let functions = self.flows.code.functions_of(at);
        if functions.is_empty() {
            return Err(Reason::Computed(at));
        }
        let mut all = BTreeSet::new();
        for function in functions {
            let flow = self.flows.flow(function);
            let Some(state) = self.flows.before(&flow, at) else { continue };
            let value = read(&mut self.flows, &state);
            all.extend(self.value(function, &state, &value, at)?);
        }
        Ok(all)
    }

    /// Returns the possible numbers of a value of `function` in `state`, at `at`.
    pub(crate) fn value(&mut self, function: Addr, state: &State, value: &ValueSet, at: Addr) -> Resolved {
        if *value == ValueSet::Any {
            return self.if_known(Err(Reason::Computed(at)));
        }
        let mut all = BTreeSet::new();
        for &atom in value.elements() {
            match self.range(state, atom) {
                Some(numbers) => all.extend(numbers),
                None => {
                    let numbers = self.of_callers(function, atom);
                    all.extend(self.if_known(numbers)?);
                }
            }
        }
        Ok(all)
    }

    /// Returns the possible numbers of a value of `function` that depends on its callers or on writes to memory by
    /// other code.
    fn of_callers(&mut self, function: Addr, atom: Atom) -> Resolved {
        let key = (function, atom);
        if let Some(known) = self.known.get(&key) {
            if self.open.len() + known.depth > MAX_DEPTH {
                return Err(Reason::Deep);
            }
            self.max_depth = self.max_depth.max(self.open.len() + known.depth);
            return known.numbers.clone();
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(Reason::Deep);
        }
        if let Some(place) = self.open.iter().position(|open| *open == key) {
            self.low_link = self.low_link.min(place);
            return Ok(BTreeSet::new());
        }
        let own = self.open.len();
        let before = (self.max_depth, self.low_link);
        (self.max_depth, self.low_link) = (own + 1, usize::MAX);
        self.open.push(key);
        let numbers = self.of_origin(function, atom);
        self.open.pop();
        // In a cycle back to a value that is still open, these are not yet all numbers.
        if self.low_link >= own {
            self.low_link = usize::MAX;
            if numbers != Err(Reason::Deep) {
                let depth = self.max_depth - own;
                self.known.insert(key, CachedResult { numbers: numbers.clone(), depth });
            }
        }
        self.max_depth = self.max_depth.max(before.0);
        self.low_link = self.low_link.min(before.1);
        numbers
    }

    fn of_origin(&mut self, function: Addr, atom: Atom) -> Resolved {
        if self.flows.domain.place(atom).is_some() {
            return Err(Reason::Computed(function)); // an address in the frame
        }
        let origins = &self.flows.domain.origins;
        match origins.get(origins.root(atom.origin)) {
            Origin::Register(_) => return self.of_arguments(function, atom),
            Origin::Memory { .. } => {}
            Origin::Made { at, .. } | Origin::Frame { at } | Origin::Element { at, .. } => {
                return Err(Reason::Computed(at));
            }
            _ => return Err(Reason::Computed(function)),
        }
        let numbers = match origins.get(atom.origin) {
            Origin::Low { of, width } => {
                let numbers = self.of_callers(function, of)?.into_iter();
                numbers.map(|number| number & low_mask(width)).collect()
            }
            Origin::Signed { of, width } => {
                let numbers = self.of_callers(function, of)?.into_iter();
                numbers.map(|number| sign_extend(number, width) & self.flows.domain.mask).collect()
            }
            Origin::Memory { at, width, when: When::Later(by) } => self.of_memory(function, at, width, by)?,
            _ => return Err(Reason::Computed(function)),
        };
        let domain = &self.flows.domain;
        let plus = |number| domain.plus(Atom::number(number), atom.offset).offset;
        Ok(numbers.into_iter().map(plus).collect())
    }

    /// Returns the possible numbers of an argument of a function.
    fn of_arguments(&mut self, function: Addr, atom: Atom) -> Resolved {
        let code = self.flows.code;
        let mut all = BTreeSet::new();
        let callers = match self.callers(function) {
            Err(reason) => match self.callers_by_pointer(function) {
                Some(callers) => callers,
                None if self.lenient => self.known_callers(function),
                None => return Err(reason),
            },
            Ok(callers) => callers,
        };
        for (caller, exit) in callers {
            if let Some(numbers) = self.passed(exit, atom) {
                all.extend(numbers);
                continue;
            }
            let at = code.exit(exit).at;
            let flow = self.flows.flow(caller);
            let Some(after) = self.flows.after(&flow, at) else { continue };
            let value = self.translate(atom, &after.state, at);
            all.extend(self.value(caller, &after.state, &value, at)?);
        }
        Ok(all)
    }

    /// Returns the numbers of an argument of a callee, if the straight-line code before the call determines them.
    fn passed(&mut self, call: ExitId, atom: Atom) -> Option<Vec<u64>> {
        let (state, keeps_frame) = self.flows.after_run(call)?;
        if !keeps_frame && !self.is_in_register(atom.origin) {
            return None;
        }
        let value = self.translate(atom, &state, self.flows.code.exit(call).at);
        value.is_numbers().then(|| value.elements().iter().map(|atom| atom.offset).collect())
    }

    /// Returns whether an origin is the content of a register, or a part of it.
    fn is_in_register(&self, origin: OriginId) -> bool {
        match self.flows.domain.origins.get(origin) {
            Origin::Register(_) => true,
            Origin::Low { of, .. } | Origin::Signed { of, .. } => self.is_in_register(of.origin),
            _ => false,
        }
    }

    /// Returns the possible numbers of `width` bytes of memory when the instruction `by` of `function` reads them.
    fn of_memory(&mut self, function: Addr, at: Atom, width: u8, by: Addr) -> Resolved {
        let unknown = || Reason::Memory(by);
        let origins = &self.flows.domain.origins;
        match origins.get(at.origin) {
            Origin::Number => self.of_variable(Addr(at.offset), width, by),
            // A pointer in a variable: follow all stores to the variable.
            Origin::Memory { at: variable, when: When::Later(_), .. } => {
                let variable = Addr(variable.as_number().ok_or_else(unknown)?);
                if self.followed.contains(&variable) || self.followed.len() >= MAX_DEPTH {
                    return Err(unknown());
                }
                self.followed.push(variable);
                let numbers = self.of_pointers(variable, at.offset, width, by);
                self.followed.pop();
                numbers
            }
            // The value that a pointer argument points to at the call, if nothing writes to it.
            _ if matches!(origins.get(origins.root(at.origin)), Origin::Register(_)) => {
                let unwritten = self
                    .prove_unwritten(function, at, width)
                    .map_err(|Lost(at)| Reason::Written { read: by, lost: at })?;
                let memory = Origin::Memory { at, width, when: When::Entry };
                let (origin, _) = self.flows.domain.origins.add(memory).ok_or(Reason::Deep)?;
                let numbers = self.of_callers(function, Atom::of(origin))?;
                let abi = abi::abi(self.flows.code.image.machine, false);
                let fits = |&nr: &u64| arguments_used(abi, nr, |_| None) <= unwritten.arguments;
                if numbers.iter().all(fits) { Ok(numbers) } else { Err(unknown()) }
            }
            _ => Err(unknown()),
        }
    }

    /// Proves that nothing writes to the memory at a pointer ([`prove_unwritten`]). Resolves the callees of computed
    /// calls that receive the pointer.
    fn prove_unwritten(&mut self, function: Addr, pointer: Atom, width: u8) -> Result<Unwritten, Lost> {
        loop {
            let callees = &self.callees;
            let proof = prove_unwritten(&mut self.flows, self.references, callees, function, pointer, width);
            let Err(Lost(at)) = proof else { return proof };
            if self.callees.contains_key(&at) || self.callees.len() >= MAX_CALLEES {
                return proof;
            }
            let Some(callees) = self.callees_at(at) else { return proof };
            self.callees.insert(at, callees);
        }
    }

    /// Returns the functions that the computed call at `at` calls, if they are known and functions of the program.
    fn callees_at(&mut self, at: Addr) -> Option<Vec<Addr>> {
        let code = self.flows.code;
        let exit = code.exit_at(at).map(|exit| code.exit(exit).kind)?;
        let target = Effect::target(&code.effects_at(at))?;
        if !matches!(exit, ExitKind::IndirectCall | ExitKind::IndirectJump) {
            return None;
        }
        let callees = self.operand(at, target).ok()?.into_iter().map(Addr);
        // A null pointer is not called.
        let callees: Vec<Addr> = callees.filter(|callee| callee.0 != 0).collect();
        callees.iter().all(|&callee| code.entry(callee).is_some()).then_some(callees)
    }

    /// Returns the possible numbers of `width` bytes at `offset` from the pointer in a variable.
    fn of_pointers(&mut self, variable: Addr, offset: u64, width: u8, by: Addr) -> Resolved {
        let word = self.flows.code.image.machine.word_size();
        if self.flows.code.image.initial(variable, word).unwrap_or(0) != 0 {
            return Err(Reason::Memory(by));
        }
        let mut all = BTreeSet::new();
        for Stored { function, at: place, value } in self.stores_to(variable, word, by)? {
            if value == ValueSet::Any {
                return Err(Reason::Computed(place));
            }
            // A null pointer is not read through.
            for &pointer in value.elements().iter().filter(|p| **p != Atom::number(0)) {
                let at = self.flows.domain.plus(pointer, offset);
                all.extend(self.of_memory(function, at, width, by)?);
            }
        }
        Ok(all)
    }

    /// Returns the possible numbers of a variable.
    fn of_variable(&mut self, variable: Addr, width: u8, by: Addr) -> Resolved {
        let mut all = BTreeSet::new();
        all.insert(self.flows.code.image.initial(variable, width).unwrap_or(0));
        for Stored { function, at, value } in self.stores_to(variable, width, by)? {
            let flow = self.flows.flow(function);
            let Some(state) = self.flows.before(&flow, at) else { continue };
            all.extend(self.value(function, &state, &value, at)?);
        }
        Ok(all.into_iter().map(|number| number & low_mask(width)).collect())
    }

    fn stores_to(&mut self, variable: Addr, width: u8, by: Addr) -> Result<Vec<Stored>, Reason> {
        stores_to(&mut self.flows, self.references, variable, width)
            .map_err(|Lost(at)| Reason::Written { read: by, lost: at })
    }
}

impl Reason {
    /// Returns the reason in words. Functions are named if the program has symbols.
    pub fn describe(&self, image: &Image) -> String {
        let name = |at: &Addr| image.describe(*at);
        match self {
            Reason::Computed(at) => format!("the number is computed in {}", name(at)),
            Reason::Callable { function, taken } => {
                let how = match taken {
                    Taken::Start => "the entry point of the program".to_owned(),
                    Taken::Code(at) => format!("whose address is taken in {}", name(at)),
                    Taken::Data(at) => format!("whose address is in data, at {}", image.describe_data(*at)),
                    Taken::Unwinder => "an exception handler".to_owned(),
                    Taken::Named(at) => format!("which is looked up by name, see {}", name(at)),
                };
                format!("the number is an argument of {}, {how}", name(function))
            }
            Reason::Memory(at) => format!("the number is read from memory in {}", name(at)),
            Reason::Written { read, lost } => format!(
                "the number is read in {} from memory whose address escapes in {}",
                name(read),
                name(lost)
            ),
            Reason::Deep => "the number passes through too many functions".to_owned(),
        }
    }
}
