//! Following one value through the program: a pointer, to prove that nobody writes through it, or the
//! address of a function, to find everybody who calls it.
//!
//! Two constructions of the C library need this. `setuid` and its like put the number of a system call into
//! a structure in their frame and hand its address to a function that makes the call in every thread, by way
//! of a global variable. And `%gs:0x10` on i386 is filled from a variable that holds the address of
//! `int $0x80; ret`.
//!
//! The value is watched function by function: wherever it may be passed on, to a callee, into a variable, it
//! is followed there. Anything else that could be done with it ends the search without a proof. A variable
//! counts as one of its own if every instruction that names it reads or writes it directly, see
//! [`References::is_variable`].

use kcfg::isa::{Address, Effect, Value as Operand};
use rustc_hash::FxHashSet;

use crate::abi;
use crate::code::{ExitId, ExitKind, References};
use crate::flow::{Flows, State, Visit, Watched};
use crate::image::Addr;
use crate::values::{Atom, Origin, OriginId, Value, When};

/// How many words of stack arguments are looked at.
const MAX_ARGUMENTS: u64 = 8;

/// How many functions and variables are looked at before giving up.
const MAX_STEPS: usize = 200;

/// Where the C library of i386 keeps the address of the kernel's entry, from the thread pointer in bytes.
/// Calls through there are system calls by themselves.
const VSYSCALL_SLOT: i64 = 0x10;

/// The value cannot be followed: the instruction where it was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost(pub Addr);

/// What is to be proved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// Nobody writes to these bytes behind the pointer: from, to.
    Unwritten(i64, i64),
    /// Nobody calls the address but at `calls`.
    Called,
}

/// One search.
struct Search<'f, 'c, 'r> {
    flows: &'f mut Flows<'c>,
    references: &'r References,
    seen: FxHashSet<(Addr, Watched, i64)>,
    calls: Vec<ExitId>,
}

/// Proves that nothing writes to `width` bytes behind a pointer that a function was given, from the time
/// that it is called. `pointer` is the address of these bytes in terms of the function.
///
/// # Errors
/// Where the pointer was lost or written through.
pub fn prove_unwritten(
    flows: &mut Flows,
    references: &References,
    function: Addr,
    pointer: Atom,
    width: u8,
) -> Result<(), Lost> {
    let mut search = Search::new(flows, references);
    let from = search.signed(pointer.offset);
    let goal = Goal::Unwritten(from, from.saturating_add(width.into()));
    search.in_function(function, Watched::Origin(pointer.origin), goal)
}

/// Finds the calls through pointers that may call a function, given who makes its address known.
///
/// # Errors
/// Where the address was lost.
pub fn find_calls(
    flows: &mut Flows,
    references: &References,
    function: Addr,
) -> Result<Vec<ExitId>, Lost> {
    use crate::code::Taken;
    let taken = flows.code.entry(function).map(|entry| entry.taken.clone()).unwrap_or_default();
    let mut search = Search::new(flows, references);
    for by in taken {
        match by {
            Taken::Start => return Err(Lost(function)),
            Taken::Code(at) => {
                for user in search.flows.code.functions_of(at) {
                    search.in_function(user, Watched::Number(function.0), Goal::Called)?;
                }
            }
            Taken::Data(word) => search.in_variable(word, Goal::Called)?,
        }
    }
    Ok(search.calls)
}

/// The values that are stored to a variable: the function and the value in its terms. The variable's
/// initial content is not among them.
///
/// # Errors
/// If the variable may be written to through a pointer, or by an instruction that is not followed.
pub fn stores_to(
    flows: &mut Flows,
    references: &References,
    variable: Addr,
) -> Result<Vec<(Addr, Addr, Value)>, Lost> {
    if !references.is_variable(variable) {
        return Err(Lost(variable));
    }
    let mut stored = Vec::new();
    for reference in references.to(variable) {
        let at = reference.at;
        let mut effects = Vec::new();
        flows.code.isa.effects(flows.code.image.bytes(at), at.0, &mut effects);
        for effect in &effects {
            let Effect::Store { to, value, .. } = effect else { continue };
            for function in flows.code.functions_of(at) {
                let flow = flows.flow(function);
                let Some(state) = flows.before(&flow, at) else { continue };
                let address = flows.operand(&state, at, Operand::Address(*to));
                if address.atoms().iter().all(|atom| atom.as_number() != Some(variable.0)) {
                    continue;
                }
                let value = flows.operand(&state, at, *value);
                stored.push((function, at, value));
            }
        }
    }
    Ok(stored)
}

impl<'f, 'c, 'r> Search<'f, 'c, 'r> {
    fn new(flows: &'f mut Flows<'c>, references: &'r References) -> Search<'f, 'c, 'r> {
        Search { flows, references, seen: FxHashSet::default(), calls: Vec::new() }
    }

    /// A number modulo the word as a signed one.
    fn signed(&self, offset: u64) -> i64 {
        let width = self.flows.code.image.machine.word_size();
        crate::flow::sign_extend(offset, width) as i64
    }

    /// Follows a value through one function.
    fn in_function(&mut self, function: Addr, watched: Watched, goal: Goal) -> Result<(), Lost> {
        let key = match goal {
            Goal::Unwritten(from, _) => from,
            Goal::Called => 0,
        };
        if !self.seen.insert((function, watched, key)) {
            return Ok(());
        }
        if self.seen.len() > MAX_STEPS {
            return Err(Lost(function));
        }
        let flow = self.flows.watch(function, watched).map_err(Lost)?;
        let mut passed_on = Vec::new();
        let mut calls = Vec::new();
        self.flows.walk(&flow, &mut |flows: &mut Flows, visit| {
            let mut look = Look { flows, watched, goal, passed_on: &mut passed_on };
            match visit {
                Visit::Instruction { at, state, effects } => look.instruction(at, state, effects),
                Visit::Exit { exit, state, target } => {
                    if target.is_some_and(|target| watched.is_in(target)) {
                        calls.push(exit);
                    }
                    look.exit(&flow.function, exit, state)
                }
                Visit::End { next, state } if look.leaves(&flow.function, next) => {
                    look.arguments(next, next, state)
                }
                Visit::End { .. } => Ok(()),
            }
        })?;
        self.calls.extend(calls);
        for next in passed_on {
            match next {
                PassedOn::Argument { callee, origin, offset } => {
                    let goal = self.behind(goal, offset);
                    self.in_function(callee, Watched::Origin(origin), goal)?;
                }
                PassedOn::Variable { variable, offset } => {
                    let goal = self.behind(goal, offset);
                    self.in_variable(variable, goal)?;
                }
            }
        }
        Ok(())
    }

    /// The goal for a pointer that is so many bytes further on.
    fn behind(&self, goal: Goal, offset: u64) -> Goal {
        let offset = self.signed(offset);
        match goal {
            Goal::Unwritten(from, to) => {
                Goal::Unwritten(from.wrapping_sub(offset), to.wrapping_sub(offset))
            }
            Goal::Called => Goal::Called,
        }
    }

    /// Whether an instruction reads whole words only, so that no part of a value gets out of sight.
    fn reads_whole(&self, at: Addr) -> bool {
        let code = self.flows.code;
        let mut effects = Vec::new();
        code.isa.effects(code.image.bytes(at), at.0, &mut effects);
        let whole = |value: &Operand| match value {
            Operand::Load { width, .. } => *width == code.image.machine.word_size(),
            _ => true,
        };
        effects.iter().all(|effect| match effect {
            Effect::Set { value, .. }
            | Effect::MaybeSet { value, .. }
            | Effect::SetSigned { value, .. }
            | Effect::Store { value, .. }
            | Effect::Transfer(value) => whole(value),
            Effect::Binary { left, right, .. } => whole(left) && whole(right),
            _ => true,
        })
    }

    /// Follows a value through everybody who reads a variable.
    fn in_variable(&mut self, variable: Addr, goal: Goal) -> Result<(), Lost> {
        if !self.references.is_variable(variable) {
            return Err(Lost(variable));
        }
        let width = self.flows.code.image.machine.word_size();
        for reference in self.references.to(variable) {
            let when = When::Later(reference.at);
            let read = Origin::Memory { at: Atom::number(variable.0), width, when };
            let Some((origin, _)) = self.flows.domain.origins.add(read) else {
                return Err(Lost(reference.at));
            };
            if !self.reads_whole(reference.at) {
                return Err(Lost(reference.at));
            }
            for function in self.flows.code.functions_of(reference.at) {
                self.in_function(function, Watched::Origin(origin), goal)?;
            }
        }
        Ok(())
    }
}

/// A place where a value goes on.
enum PassedOn {
    /// An argument of a function: a register or a word of its stack.
    Argument { callee: Addr, origin: OriginId, offset: u64 },
    /// A variable.
    Variable { variable: Addr, offset: u64 },
}

/// One look at one instruction.
struct Look<'a, 'c> {
    flows: &'a mut Flows<'c>,
    watched: Watched,
    goal: Goal,
    passed_on: &'a mut Vec<PassedOn>,
}

impl Look<'_, '_> {
    fn instruction(&mut self, at: Addr, state: &State, effects: &[Effect]) -> Result<(), Lost> {
        for effect in effects {
            match effect {
                Effect::Store { to, value, width } => {
                    let value = self.flows.operand(state, at, *value);
                    self.store(at, state, to, &value, *width)?;
                }
                Effect::ClobberRange(to) => self.write(at, state, to, i64::MAX)?,
                Effect::SystemCall { compat } => {
                    let abi = abi::abi(self.flows.code.image.machine, *compat);
                    for &register in abi::argument_registers(abi) {
                        self.give(at, state.register(register))?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn store(
        &mut self,
        at: Addr,
        state: &State,
        to: &Address,
        value: &Value,
        width: u8,
    ) -> Result<(), Lost> {
        self.write(at, state, to, width.into())?;
        let Some(offset) = value.atoms().iter().find_map(|&atom| self.watched.offset_of(atom)) else {
            return Ok(());
        };
        if to.segment {
            let slot = to.base.is_none() && to.index.is_none() && to.displacement == VSYSCALL_SLOT;
            return if slot && self.goal == Goal::Called { Ok(()) } else { Err(Lost(at)) };
        }
        let address = self.flows.operand(state, at, Operand::Address(*to));
        for &atom in address.atoms() {
            match atom.as_number() {
                _ if self.flows.domain.place(atom).is_some() => {}
                Some(number) => {
                    let variable = Addr(number);
                    self.passed_on.push(PassedOn::Variable { variable, offset });
                }
                None => return Err(Lost(at)),
            }
        }
        if address == Value::Any { Err(Lost(at)) } else { Ok(()) }
    }

    /// `size` bytes are written to an address.
    fn write(&mut self, at: Addr, state: &State, to: &Address, size: i64) -> Result<(), Lost> {
        let Goal::Unwritten(from, end) = self.goal else { return Ok(()) };
        if to.segment {
            return Ok(());
        }
        let address = self.flows.operand(state, at, Operand::Address(*to));
        let width = self.flows.code.image.machine.word_size();
        for offset in address.atoms().iter().filter_map(|&atom| self.watched.offset_of(atom)) {
            let offset = crate::flow::sign_extend(offset, width) as i64;
            if offset < end && offset.saturating_add(size) > from {
                return Err(Lost(at));
            }
        }
        Ok(())
    }

    /// The kernel gets a value, and may write behind it if it is a pointer.
    fn give(&mut self, at: Addr, value: &Value) -> Result<(), Lost> {
        let width = self.flows.code.image.machine.word_size();
        for offset in value.atoms().iter().filter_map(|&atom| self.watched.offset_of(atom)) {
            let offset = crate::flow::sign_extend(offset, width) as i64;
            match self.goal {
                Goal::Unwritten(_, end) if offset < end => return Err(Lost(at)),
                Goal::Unwritten(..) => {}
                Goal::Called => return Err(Lost(at)),
            }
        }
        Ok(())
    }

    fn exit(
        &mut self,
        function: &crate::code::Function,
        id: ExitId,
        state: &State,
    ) -> Result<(), Lost> {
        let exit = self.flows.code.exit(id);
        match exit.kind {
            ExitKind::Call(callee) => self.arguments(exit.at, callee, state),
            ExitKind::IndirectCall | ExitKind::IndirectJump => {
                if exit.successors.is_empty() || exit.kind == ExitKind::IndirectCall {
                    self.unknown_callee(exit.at, state)?;
                }
                Ok(())
            }
            ExitKind::Return => {
                let result = self.flows.convention.result;
                match self.watched.is_in(state.register(result)) {
                    true => Err(Lost(exit.at)),
                    false => Ok(()),
                }
            }
            ExitKind::Jump => {
                for &next in &exit.successors {
                    if self.leaves(function, next) {
                        self.arguments(exit.at, next, state)?;
                    }
                }
                Ok(())
            }
            ExitKind::Stop => Ok(()),
        }
    }

    /// Whether control goes to another function there.
    fn leaves(&self, function: &crate::code::Function, next: Addr) -> bool {
        function.entry != next && self.flows.code.entry(next).is_some()
    }

    /// What a callee can see of the watched value: the arguments that are it.
    fn visible(&mut self, state: &State) -> Vec<(Origin, u64)> {
        let mut visible = Vec::new();
        for &register in self.flows.convention.arguments {
            let atoms = state.register(register).atoms().iter();
            let offsets = atoms.filter_map(|&atom| self.watched.offset_of(atom));
            visible.extend(offsets.map(|offset| (Origin::Register(register), offset)));
        }
        let stack_pointer = self.flows.convention.stack_pointer;
        let Some(top) = state.register(stack_pointer).single() else { return visible };
        let width = self.flows.code.image.machine.word_size();
        let domain = &mut self.flows.domain;
        for word in 1..=MAX_ARGUMENTS {
            let distance = word * u64::from(width);
            let Some(place) = domain.place(domain.plus(top, distance)) else { continue };
            let Some(value) = state.frame.load(place, width, domain) else { continue };
            let atoms = value.atoms().iter();
            for offset in atoms.filter_map(|&atom| self.watched.offset_of(atom)) {
                let at = domain.plus(Atom::of(domain.frame), distance);
                visible.push((Origin::Memory { at, width, when: When::Entry }, offset));
            }
        }
        visible
    }

    fn arguments(&mut self, at: Addr, callee: Addr, state: &State) -> Result<(), Lost> {
        for (origin, offset) in self.visible(state) {
            let Some((origin, _)) = self.flows.domain.origins.add(origin) else {
                return Err(Lost(at));
            };
            self.passed_on.push(PassedOn::Argument { callee, origin, offset });
        }
        Ok(())
    }

    fn unknown_callee(&mut self, at: Addr, state: &State) -> Result<(), Lost> {
        if self.visible(state).is_empty() { Ok(()) } else { Err(Lost(at)) }
    }
}
