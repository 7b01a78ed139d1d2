//! The uses of a tracked pointer in one function.

use kflow::values::Element;
use kisa::{Address, Effect, Value, sign_extend};

use super::aim::{Aim, Bytes, Callees, Lost};
use crate::abi;
use crate::arguments::arguments_used;
use crate::code::{Code, ExitId, ExitKind, Function};
use crate::flow::{Flows, State};
use crate::image::Addr;
use crate::values::{Atom, Origin, OriginId, ValueSet, When};

/// Maximum number of stack argument words that are examined.
const MAX_ARGUMENTS: u64 = 8;

/// A place to which a pointer plus `offset` bytes is passed on.
pub(super) enum PassedOn {
    /// An argument of a function: a register or a word of the stack.
    Argument { callee: Addr, origin: OriginId, offset: u64 },
    /// A variable.
    Variable { variable: Addr, offset: u64 },
    /// The result of a call.
    Result { call: Addr, offset: u64 },
}

/// The search for uses of the pointer in one function.
pub(super) struct Look<'a> {
    pub(super) function: &'a Function,
    pub(super) pointer: OriginId,
    pub(super) bytes: Bytes,
    pub(super) word: u8,
    pub(super) passed_on: Vec<PassedOn>,
    /// See [`super::Unwritten::arguments`].
    pub(super) arguments: usize,
    /// The returns that may return the pointer, and the offset added to it.
    pub(super) results: Vec<(Addr, u64)>,
    /// Whether some return leaves the result register unchanged.
    pub(super) keeps_result: bool,
    /// The aim of the search.
    pub(super) aim: Aim,
    /// The calls found.
    pub(super) calls: Vec<ExitId>,
    /// The function whose address is tracked.
    pub(super) own: Option<Addr>,
    /// The last call of that function, and all its possible callees.
    pub(super) called: Option<(Addr, Vec<Addr>)>,
    pub(super) callees: Option<&'a Callees>,
}

impl Look<'_> {
    /// Returns the offsets from the pointer of a value's atoms.
    fn offsets<'v>(&self, value: &'v ValueSet) -> impl Iterator<Item = u64> + use<'v> {
        let pointer = self.pointer;
        let atoms = value.elements().iter().filter(move |atom| atom.origin == pointer);
        atoms.map(|atom| atom.offset)
    }

    /// Returns whether an access of `size` bytes at `offset` touches the tracked bytes.
    fn touches(&self, offset: u64, size: i64) -> bool {
        let offset = sign_extend(offset, self.word) as i64;
        offset < self.bytes.to && offset.saturating_add(size) > self.bytes.from
    }

    pub(super) fn instruction(
        &mut self,
        flows: &mut Flows,
        at: Addr,
        state: &State,
        effects: &[Effect],
    ) -> Result<(), Lost> {
        match self.aim {
            Aim::Writes => {}
            Aim::CallsThrough => self.reads(flows, at, state, effects)?,
            Aim::Calls => self.calls_own(flows, at, state, effects)?,
        }
        for effect in effects {
            match effect {
                Effect::Store { to, value, width } => {
                    let value = flows.operand(state, at, *value);
                    self.write(flows, at, state, to, (*width).into())?;
                    self.store(flows, at, state, to, &value)?;
                }
                Effect::ClobberRange(to) => self.write(flows, at, state, to, i64::MAX)?,
                Effect::SystemCall { compat, number } => {
                    self.system_call(flows, at, state, *compat, *number)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Handles an instruction that may read the bytes.
    fn reads(&mut self, flows: &mut Flows, at: Addr, state: &State, effects: &[Effect]) -> Result<(), Lost> {
        let hidden = flows.code.memory_operand(at);
        let mut touched = |address: Address, width: u8| {
            let place = flows.operand(state, at, Value::Address(address));
            let near = self.offsets(&place).any(|offset| self.touches(offset, width.into()));
            address.segment.is_none() && (near || self.is_lost(state, &address, &place))
        };
        let mut known = false;
        let mut loads = Vec::new();
        for operand in effects.iter().flat_map(Effect::operands) {
            if let Value::Load { from, width } = operand {
                known = true;
                if touched(from, width) {
                    loads.push(operand);
                }
            }
        }
        // The instruction may read memory that its effects do not represent.
        let stores = |effect: &Effect| matches!(effect, Effect::Store { .. } | Effect::ClobberRange(_));
        if let Some(operand) =
            hidden.filter(|_| !known && !effects.iter().any(stores) && !is_address(effects))
        {
            if touched(operand.address, operand.width) {
                return Err(Lost(at));
            }
        }
        let calls = read_by(flows.code, at, effects, |operand| loads.contains(&operand))?;
        self.calls.extend(calls);
        Ok(())
    }

    /// Handles an instruction that may call the function whose address is tracked.
    fn calls_own(
        &mut self,
        flows: &mut Flows,
        at: Addr,
        state: &State,
        effects: &[Effect],
    ) -> Result<(), Lost> {
        for effect in effects {
            let &Effect::Transfer(target) = effect else { continue };
            let target = flows.operand(state, at, target);
            if self.offsets(&target).any(|offset| offset != 0) {
                return Err(Lost(at));
            }
            if self.offsets(&target).next().is_some() {
                self.calls.push(flows.code.exit_at(at).ok_or(Lost(at))?);
                let own = self.own.into_iter();
                let others = target.elements().iter().filter_map(|atom| atom.as_number());
                let callees: Vec<Addr> = own.chain(others.map(Addr)).collect();
                let code = flows.code;
                let are_all = callees.len() == target.elements().len()
                    && callees.iter().all(|&callee| code.entry(callee).is_some());
                self.called = are_all.then_some((at, callees));
            }
        }
        Ok(())
    }

    /// Handles a write of `size` bytes to an address.
    fn write(&self, flows: &mut Flows, at: Addr, state: &State, to: &Address, size: i64) -> Result<(), Lost> {
        // A search for calls of the present content ignores what is written later.
        if to.segment.is_some() || self.aim != Aim::Writes {
            return Ok(());
        }
        let address = flows.operand(state, at, Value::Address(*to));
        let touched = self.offsets(&address).any(|offset| self.touches(offset, size));
        if touched || self.is_lost(state, to, &address) { Err(Lost(at)) } else { Ok(()) }
    }

    /// Returns whether an address is made of the pointer and an unknown, so that it may be anywhere.
    fn is_lost(&self, state: &State, operand: &Address, address: &ValueSet) -> bool {
        let mut registers = operand.base.into_iter().chain(operand.index.map(|(index, _)| index));
        self.offsets(address).next().is_none()
            && registers.any(|register| self.offsets(state.register(register)).next().is_some())
    }

    /// Handles a store of a value, which may be the pointer.
    fn store(
        &mut self,
        flows: &mut Flows,
        at: Addr,
        state: &State,
        to: &Address,
        value: &ValueSet,
    ) -> Result<(), Lost> {
        let Some(offset) = self.offsets(value).next() else { return Ok(()) };
        let address = flows.operand(state, at, Value::Address(*to));
        if to.segment.is_some() || address == ValueSet::Any || self.offsets(value).count() > 1 {
            return Err(Lost(at));
        }
        for &atom in address.elements() {
            match atom.as_number() {
                Some(number) => {
                    self.passed_on.push(PassedOn::Variable { variable: Addr(number), offset });
                }
                None if flows.domain.place(atom).is_some() => {}
                None => return Err(Lost(at)),
            }
        }
        Ok(())
    }

    /// Handles a system call: the kernel gets the pointer if it reads the register that holds it, and may write through
    /// it.
    fn system_call(
        &mut self,
        flows: &mut Flows,
        at: Addr,
        state: &State,
        compat: bool,
        number: Option<u32>,
    ) -> Result<(), Lost> {
        if self.aim == Aim::CallsThrough {
            return Ok(());
        }
        let abi = abi::abi(flows.code.image.machine, compat);
        let registers = abi::registers(abi).arguments;
        let given = registers.iter().position(|&register| {
            self.offsets(state.register(register)).any(|offset| self.touches(offset, i64::MAX))
        });
        let Some(given) = given else { return Ok(()) };
        // The kernel may call the function.
        if self.aim == Aim::Calls {
            return Err(Lost(at));
        }
        let numbers = match number {
            Some(number) => &ValueSet::number(number.into()),
            None => state.register(abi::registers(abi).number),
        };
        let argument =
            |index: usize| registers.get(index).and_then(|&register| state.register(register).as_number());
        let ignores = |number: u64| arguments_used(abi, number, argument) <= given;
        if numbers.is_numbers() && numbers.elements().iter().all(|atom| ignores(atom.offset)) {
            return Ok(());
        }
        // The number of this call is in the tracked bytes. If the claim holds for all numbers stored there, it holds
        // here, provided that nothing else was stored there, which is what is being proved.
        let own = numbers.single().map(|atom| match flows.domain.origins.get(atom.origin) {
            Origin::Signed { of, .. } => flows.domain.origins.get(of.origin),
            own => own,
        });
        let Some(Origin::Memory { at: read, .. }) = own else { return Err(Lost(at)) };
        let from = sign_extend(read.offset, self.word) as i64;
        if read.origin != self.pointer || from != self.bytes.from {
            return Err(Lost(at));
        }
        self.arguments = self.arguments.min(given);
        Ok(())
    }

    pub(super) fn exit(&mut self, flows: &mut Flows, id: ExitId, state: &State) -> Result<(), Lost> {
        let exit = flows.code.exit(id);
        match exit.kind {
            ExitKind::Call(callee) => self.arguments(flows, exit.at, callee, state),
            ExitKind::IndirectCall => self.unknown_callee(flows, exit.at, state),
            ExitKind::IndirectJump if exit.successors.is_empty() => {
                self.unknown_callee(flows, exit.at, state)
            }
            ExitKind::Jump | ExitKind::IndirectJump => {
                exit.successors.iter().try_for_each(|&next| self.goes_on(flows, exit.at, next, state))
            }
            ExitKind::Return => self.result(flows, exit.at, state),
            ExitKind::Stop => Ok(()),
        }
    }

    /// Handles a return, possibly with the pointer as the result.
    fn result(&mut self, flows: &mut Flows, at: Addr, state: &State) -> Result<(), Lost> {
        let register = flows.convention.results[0];
        let result = state.register(register);
        let found = flows.domain.origins.add(Origin::Register(register));
        self.keeps_result |=
            result.elements().iter().any(|&atom| found.is_some_and(|(found, _)| atom == Atom::of(found)));
        for offset in self.offsets(result) {
            if self.results.iter().all(|&(_, known)| known != offset) {
                self.results.push((at, offset));
            }
        }
        Ok(())
    }

    /// Passes the pointer on to the callers that receive it as a result.
    pub(super) fn pass_results_on(&mut self, code: &Code) -> Result<(), Lost> {
        let Some(&(at, _)) = self.results.first() else { return Ok(()) };
        let entry = code.entry(self.function.entry).ok_or(Lost(at))?;
        if entry.callers.is_empty() && self.keeps_result {
            // A function that sometimes leaves the register unchanged has no result. (Arguments are passed in that
            // register only if all callers are known.)
            return Ok(());
        }
        if !entry.taken.is_empty() || self.results.len() > 1 {
            return Err(Lost(at));
        }
        for &call in &entry.callers {
            let call = code.exit(call).at;
            let results = self.results.iter();
            self.passed_on.extend(results.map(|&(_, offset)| PassedOn::Result { call, offset }));
        }
        Ok(())
    }

    /// Handles a transition to `next`, which may be another function.
    pub(super) fn goes_on(
        &mut self,
        flows: &mut Flows,
        at: Addr,
        next: Addr,
        state: &State,
    ) -> Result<(), Lost> {
        let leaves = self.function.entry != next && flows.code.entry(next).is_some();
        if leaves { self.arguments(flows, at, next, state) } else { Ok(()) }
    }

    /// Returns the parts of the pointer that a function beginning in this state can see: the registers and stack words
    /// that may be arguments.
    fn visible(&self, flows: &mut Flows, state: &State) -> Vec<(Origin, u64)> {
        let mut visible = Vec::new();
        for register in flows.convention.inputs() {
            let offsets = self.offsets(state.register(register));
            visible.extend(offsets.map(|offset| (Origin::Register(register), offset)));
        }
        let Some(top) = state.register(flows.convention.stack_pointer).single() else {
            return visible;
        };
        let first = if flows.convention.link_register.is_some() { 0 } else { u64::from(self.word) };
        let domain = &mut flows.domain;
        for index in 0..MAX_ARGUMENTS {
            let distance = first + index * u64::from(self.word);
            let Some(place) = domain.place(domain.plus(top, distance)) else { continue };
            let Some(value) = state.frame.load(place, self.word, domain) else { continue };
            for offset in self.offsets(&value) {
                let at = domain.plus(Atom::of(domain.frame), distance);
                visible.push((Origin::Memory { at, width: self.word, when: When::Entry }, offset));
            }
        }
        visible
    }

    fn arguments(&mut self, flows: &mut Flows, at: Addr, callee: Addr, state: &State) -> Result<(), Lost> {
        for (origin, offset) in self.visible(flows, state) {
            let (origin, _) = flows.domain.origins.add(origin).ok_or(Lost(at))?;
            self.passed_on.push(PassedOn::Argument { callee, origin, offset });
        }
        Ok(())
    }

    /// Handles a computed call.
    fn unknown_callee(&mut self, flows: &mut Flows, at: Addr, state: &State) -> Result<(), Lost> {
        if let Some(callees) = self.callees.and_then(|callees| callees.get(&at)) {
            return callees.iter().try_for_each(|&callee| self.arguments(flows, at, callee, state));
        }
        if let Some((_, callees)) = self.called.take_if(|(call, _)| *call == at) {
            return callees.into_iter().try_for_each(|callee| self.arguments(flows, at, callee, state));
        }
        // A register that only holds the callee is not an argument.
        let through = match Effect::target(&flows.code.effects_at(at)) {
            Some(Value::Reg { reg, .. }) => Some(Origin::Register(reg)),
            _ => None,
        };
        let is_argument = |seen: &(Origin, u64)| self.aim != Aim::Calls || Some(seen.0) != through;
        if self.visible(flows, state).iter().any(is_argument) { Err(Lost(at)) } else { Ok(()) }
    }
}

/// Returns whether an instruction only computes an address.
fn is_address(effects: &[Effect]) -> bool {
    matches!(effects, [Effect::Set { value: Value::Address(_), .. }])
}

/// Returns the call by an instruction whose target is one of the given operands.
///
/// # Errors
/// If it uses such an operand in any other way.
pub(super) fn read_by(
    code: &Code,
    at: Addr,
    effects: &[Effect],
    in_question: impl Fn(Value) -> bool,
) -> Result<Option<ExitId>, Lost> {
    let reading: Vec<&Effect> = effects.iter().filter(|effect| effect.operands().any(&in_question)).collect();
    match reading[..] {
        [] => Ok(None),
        [Effect::Transfer(_)] => code.exit_at(at).map(Some).ok_or(Lost(at)),
        _ => Err(Lost(at)),
    }
}
