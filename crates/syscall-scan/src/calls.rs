//! The system calls that a site makes: numbers and arguments together.
//!
//! A site in a wrapper makes a different call for each caller, with its own arguments. The search therefore follows all
//! registers to the callers together, until the number is a single number. Only then does it look for each argument
//! separately. A resulting set contains every value of the argument in calls of that number from that site.
//! Multiplexing calls (`socketcall`, `ipc`) are treated alike: their first argument is a number of the same kind.
//!
//! A number is a run-time value only if it is not an address in a position-independent program; such addresses are
//! omitted, because they are unknown before the program runs. Pointers into the program's own memory are omitted as
//! well, even if known: another build has other addresses, and a register that the call does not use may hold one by
//! chance.

use kflow::values::Element;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kplan::{Abi, MAX_VALUES};

use crate::abi;
use crate::arguments::{MAX_ARGUMENTS, Prototype};
use crate::constants;
use crate::flow::State;
use crate::image::{Addr, Image};
use crate::resolve::{MAX_DEPTH, Reason, Resolver};
use crate::values::{Atom, Origin, ValueSet, When};

/// Maximum number of paths into one site that are followed separately. With more, its arguments are treated as unknown.
const MAX_WAYS: usize = 4096;

/// The index of the number in the words of a [`CallPath`]. The arguments follow, and then the words of the block that
/// an argument points to.
const NUMBER: usize = 0;
const ARGUMENT: usize = 1;
const BLOCK: usize = ARGUMENT + MAX_ARGUMENTS;

/// The calls of a site.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// The known numbers that it can pass, each with the known facts about the call.
    pub known: BTreeMap<u32, SiteCall>,
    /// Why it may pass other numbers; `None` if it does not. The known arguments do not apply to such calls.
    pub unknown: Option<Reason>,
}

/// A call from one site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteCall {
    /// Known values of its arguments.
    pub arguments: KnownArguments,
    /// The operations of a multiplexing call with their arguments; `None` if some operation is unknown.
    pub operations: Option<BTreeMap<u64, KnownArguments>>,
    /// The shortest path of the number to the site: the calls of wrappers, outermost first.
    pub chain: Vec<Addr>,
}

/// The possible values of each argument, as the kernel sees them; `None` for any value.
pub type KnownArguments = [Option<BTreeSet<u64>>; MAX_ARGUMENTS];

/// A path of calls into a site: the words of the call in terms of a function on the path.
#[derive(Clone)]
struct CallPath {
    function: Addr,
    state: Rc<State>,
    /// The instruction: `state` is the state before it, or after it if it is a call.
    at: Addr,
    words: Vec<ValueSet>,
    /// The calls from here to the site, outermost first.
    chain: Vec<Addr>,
}

/// Finds the calls of the site at an instruction. `number` is the number of the call, if the instruction contains it.
pub fn calls(resolver: &mut Resolver, at: Addr, abi: Abi, number: Option<u32>) -> Calls {
    match search(resolver, at, abi, number, false) {
        Ok(known) => Calls { known, unknown: None },
        // The known numbers count nevertheless.
        Err(reason) => {
            let known = search(resolver, at, abi, number, true).unwrap_or_default();
            Calls { known, unknown: Some(reason) }
        }
    }
}

/// Returns the calls of a site; with `lenient`, only the known ones.
fn search(
    resolver: &mut Resolver,
    at: Addr,
    abi: Abi,
    number: Option<u32>,
    lenient: bool,
) -> Result<BTreeMap<u32, SiteCall>, Reason> {
    let mut search =
        SiteSearch { resolver, abi, number, lenient, ways: 0, open: Vec::new(), calls: BTreeMap::new() };
    match search.site(at) {
        Ok(()) => Ok(search.calls),
        Err(Stop::Unknown(reason)) => Err(reason),
        Err(Stop::TooMany) if number.is_some() => {
            Ok(number.into_iter().map(|number| (number, SiteCall::default())).collect())
        }
        Err(Stop::TooMany) => {
            let register = abi::registers(abi).number;
            let read = |state: &State| state.register(register).clone();
            let numbers = match lenient {
                true => resolver.some_numbers(at, read),
                false => resolver.numbers(at, read)?,
            };
            Ok(numbers.into_iter().map(|number| (number as u32, SiteCall::default())).collect())
        }
    }
}

/// The reason that a search ends.
enum Stop {
    Unknown(Reason),
    TooMany,
}

impl From<Reason> for Stop {
    fn from(reason: Reason) -> Stop {
        Stop::Unknown(reason)
    }
}

struct SiteSearch<'r, 'f, 'c> {
    resolver: &'r mut Resolver<'f, 'c>,
    abi: Abi,
    /// The number, if the instruction contains it.
    number: Option<u32>,
    /// Whether paths with an unknown number are skipped.
    lenient: bool,
    /// The number of paths followed so far.
    ways: usize,
    /// The functions of the current path, from the site outwards.
    open: Vec<(Addr, Vec<ValueSet>)>,
    calls: BTreeMap<u32, SiteCall>,
}

impl SiteSearch<'_, '_, '_> {
    fn site(&mut self, at: Addr) -> Result<(), Stop> {
        let functions = self.resolver.code().functions_of(at);
        if functions.is_empty() {
            return Err(Reason::Computed(at).into());
        }
        for function in functions {
            let Some(state) = self.resolver.before(function, at) else { continue };
            let words = self.words(&state);
            let way = CallPath { function, state: Rc::new(state), at, words, chain: Vec::new() };
            self.split(&way, NUMBER, &mut |search, way, number| search.call(way, number as u32))?;
        }
        Ok(())
    }

    /// Returns the number, the arguments, and the words that the second argument points to.
    fn words(&mut self, state: &State) -> Vec<ValueSet> {
        let mut words = vec![match self.number {
            Some(number) => ValueSet::number(number.into()),
            None => state.register(abi::registers(self.abi).number).clone(),
        }];
        words.extend(abi::registers(self.abi).arguments.iter().map(|&reg| state.register(reg).clone()));
        words.resize(BLOCK, ValueSet::Any);
        if abi::word_size(self.abi) == 4 {
            let block = words[ARGUMENT + 1].clone();
            words.extend((0..MAX_ARGUMENTS).map(|index| self.pointed_to(state, &block, 4 * index as u64)));
        }
        words
    }

    /// Returns the word at a distance after a pointer, before the site.
    fn pointed_to(&mut self, state: &State, pointer: &ValueSet, distance: u64) -> ValueSet {
        let Some(pointer) = pointer.single() else { return ValueSet::Any };
        let domain = self.resolver.domain();
        let at = domain.plus(pointer, distance);
        if let Some(place) = domain.place(at) {
            return state.frame.load(place, 4, domain).unwrap_or(ValueSet::Any);
        }
        let given = matches!(domain.origins.get(domain.origins.root(at.origin)), Origin::Register(_));
        if !given || state.dirty {
            return ValueSet::Any;
        }
        domain.value(Origin::Memory { at, width: 4, when: When::Entry })
    }

    /// Splits a path by the possible numbers of one of its words, and passes each part on.
    fn split(
        &mut self,
        way: &CallPath,
        word: usize,
        found: &mut dyn FnMut(&mut Self, &CallPath, u64) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let atoms = match &way.words[word] {
            ValueSet::Any if self.lenient => return Ok(()),
            ValueSet::Any => return Err(Reason::Computed(way.at).into()),
            value => value.elements().to_vec(),
        };
        for atom in atoms {
            let mut way = way.clone();
            way.words[word] = ValueSet::One(atom);
            let CallPath { function, state, words, at, .. } = &way;
            let numbers = match self.resolver.range(state, atom) {
                Some(numbers) => numbers.collect(),
                None if self.resolver.depends_on_caller(atom) => {
                    self.callers(&way, word, found)?;
                    continue;
                }
                None if self.lenient => self.resolver.some_values(*function, state, &words[word], *at),
                None => self.resolver.value(*function, state, &words[word], *at)?,
            };
            for number in numbers {
                way.words[word] = ValueSet::number(number);
                self.count()?;
                found(self, &way, number)?;
            }
        }
        Ok(())
    }

    fn count(&mut self) -> Result<(), Stop> {
        self.ways += 1;
        if self.ways > MAX_WAYS { Err(Stop::TooMany) } else { Ok(()) }
    }

    /// Does the same for the callers of a path's function.
    fn callers(
        &mut self,
        way: &CallPath,
        word: usize,
        found: &mut dyn FnMut(&mut Self, &CallPath, u64) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        self.count()?;
        let way = &self.widened(way, word);
        let key = (way.function, way.words.clone());
        if self.open.contains(&key) {
            return Ok(()); // A recursive call with the same words.
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(Stop::TooMany);
        }
        self.open.push(key);
        let callers = match self.resolver.callers(way.function) {
            Ok(callers) => callers,
            Err(reason) => match self.resolver.callers_by_pointer(way.function) {
                Some(callers) => callers,
                None if self.lenient => self.resolver.known_callers(way.function),
                None => return Err(reason.into()),
            },
        };
        for (caller, exit) in callers {
            let at = self.resolver.code().exit(exit).at;
            let Some(state) = self.resolver.after(caller, at) else { continue };
            let words = way.words.iter().map(|value| self.in_caller(way, value, &state, at)).collect();
            let chain = [&[at], &way.chain[..]].concat();
            let way = CallPath { function: caller, state: Rc::new(state), at, words, chain };
            self.split(&way, word, found)?;
        }
        self.open.pop();
        Ok(())
    }

    /// Returns a path, widened if it returns to a recursive function: words that differ in every round can have any
    /// value.
    fn widened(&self, way: &CallPath, word: usize) -> CallPath {
        let mut way = way.clone();
        let mut open = self.open.iter().rev();
        let earlier =
            open.find(|(function, words)| *function == way.function && words[word] == way.words[word]);
        if let Some((_, earlier)) = earlier {
            for (own, earlier) in way.words.iter_mut().zip(earlier) {
                if own != earlier {
                    *own = ValueSet::Any;
                }
            }
        }
        way
    }

    /// Returns a value in terms of a caller. `state` is the caller's state at the call.
    fn in_caller(&mut self, way: &CallPath, value: &ValueSet, state: &State, at: Addr) -> ValueSet {
        let parts: Vec<ValueSet> = value
            .elements()
            .iter()
            .map(|&atom| match self.resolver.range(&way.state, atom) {
                Some(numbers) => ValueSet::of(numbers.map(Atom::number).collect()),
                None => self.resolver.translate(atom, state, at),
            })
            .collect();
        parts.into_iter().reduce(|a, b| a.join(&b)).unwrap_or(ValueSet::Any)
    }

    /// Records one call at the end of a path.
    fn call(&mut self, way: &CallPath, number: u32) -> Result<(), Stop> {
        let (abi, own) = abi::split(self.abi, number);
        let prototype = Prototype::of(abi, own.into());
        let arguments = match prototype {
            Some(prototype) => self.arguments(way, &way.words[ARGUMENT..BLOCK], prototype),
            None => KnownArguments::default(),
        };
        let operations = self.operations(way, number)?;
        let chain = way.chain.clone();
        let new = SiteCall { arguments, operations, chain };
        match self.calls.get_mut(&number) {
            Some(call) => call.merge(new),
            None => drop(self.calls.insert(number, new)),
        }
        Ok(())
    }

    /// Returns the possible values of the words of a call.
    fn arguments(&mut self, way: &CallPath, words: &[ValueSet], prototype: Prototype) -> KnownArguments {
        let mut arguments = KnownArguments::default();
        for (index, (argument, word)) in arguments.iter_mut().zip(words).enumerate() {
            if prototype.bits(index) > 0 {
                *argument = self.argument(way, word, prototype, index);
            }
        }
        arguments
    }

    fn argument(
        &mut self,
        way: &CallPath,
        word: &ValueSet,
        prototype: Prototype,
        index: usize,
    ) -> Option<BTreeSet<u64>> {
        let numbers = self.resolver.value(way.function, &way.state, word, way.at).ok()?;
        let image = self.resolver.code().image;
        let is_address = |number| image.may_be_moved(number) || points_into(image, prototype, index, number);
        if numbers.iter().any(|&number| is_address(number)) {
            return None;
        }
        let seen: BTreeSet<u64> = numbers.into_iter().map(|number| prototype.seen(index, number)).collect();
        (seen.len() <= MAX_VALUES).then_some(seen)
    }

    /// Returns the operations of a multiplexing call.
    fn operations(
        &mut self,
        way: &CallPath,
        number: u32,
    ) -> Result<Option<BTreeMap<u64, KnownArguments>>, Stop> {
        let (abi, call) = (self.abi, abi::name(self.abi, number).unwrap_or_default());
        let block = call == "socketcall" && way.words.len() > BLOCK;
        if !block && call != "ipc" {
            return Ok(None);
        }
        let open = self.open.len();
        let lenient = std::mem::replace(&mut self.lenient, false);
        let mut operations = BTreeMap::new();
        let split = self.split(way, ARGUMENT, &mut |search, way, operation| {
            let arguments = if block {
                let stands_for = constants::operation(abi, call, operation).1;
                let prototype = stands_for.and_then(|name| Prototype::named(abi, &name));
                prototype.map(|prototype| search.arguments(way, &way.words[BLOCK..], prototype))
            } else {
                let prototype = Prototype::of(abi, number.into());
                prototype.map(|prototype| search.arguments(way, &way.words[ARGUMENT..BLOCK], prototype))
            };
            merge(&mut operations, operation, arguments.unwrap_or_default());
            Ok(())
        });
        self.lenient = lenient;
        match split {
            Ok(()) => Ok(Some(operations)),
            Err(Stop::Unknown(_)) => {
                self.open.truncate(open);
                Ok(None)
            }
            Err(Stop::TooMany) => Err(Stop::TooMany),
        }
    }
}

/// Returns whether a pointer argument points into the program's memory.
fn points_into(image: &Image, prototype: Prototype, index: usize, number: u64) -> bool {
    prototype.is_pointer(index) && image.object_at(Addr(number)).is_some()
}

/// Adds arguments for an operation.
fn merge(operations: &mut BTreeMap<u64, KnownArguments>, operation: u64, new: KnownArguments) {
    match operations.get_mut(&operation) {
        Some(known) => unite(known, new),
        None => drop(operations.insert(operation, new)),
    }
}

/// Joins other arguments into `known`.
fn unite(known: &mut KnownArguments, new: KnownArguments) {
    for (known, new) in known.iter_mut().zip(new) {
        *known = match (known.take(), new) {
            (Some(mut known), Some(new)) => {
                known.extend(new);
                (known.len() <= MAX_VALUES).then_some(known)
            }
            _ => None,
        };
    }
}

impl SiteCall {
    fn merge(&mut self, new: SiteCall) {
        unite(&mut self.arguments, new.arguments);
        self.operations = match (self.operations.take(), new.operations) {
            (Some(mut known), Some(new)) => {
                new.into_iter().for_each(|(operation, arguments)| merge(&mut known, operation, arguments));
                Some(known)
            }
            _ => None,
        };
        if new.chain.len() < self.chain.len() {
            self.chain = new.chain;
        }
    }
}
