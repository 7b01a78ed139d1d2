//! The known facts at one point of a function.

use std::rc::Rc;

use kflow::values::{Comparison, Partial, Ranges, Span};
use kisa::{Condition, Effect, Reg};
use smallvec::SmallVec;

use super::domain::Domain;
use super::frame::Frame;
use crate::image::Addr;
use crate::values::{Atom, Origin, OriginId, ValueSet};

/// The state of the machine at one point of a function.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    /// The registers, by number. Copies share them until one is changed.
    pub(super) registers: Rc<[ValueSet]>,
    /// The stack frame.
    pub frame: Frame,
    /// The ranges of unknown values.
    pub ranges: Ranges<Atom>,
    /// Whether memory outside of the frame may have changed since the function's entry.
    pub dirty: bool,
    /// Loads from outside of the frame since the last write there.
    pub(super) loaded: Rc<Vec<KnownLoad>>,
    /// The last write to a part of a register.
    pub(super) partial: Option<Partial<Atom>>,
    /// The comparison that the flags represent.
    pub(super) compared: Option<Comparison<Atom>>,
    /// After predicated instructions: the state if they were skipped.
    split: Option<Box<ConditionalSplit>>,
}

/// The state after skipped predicated instructions (ARM), next to the state after executed ones.
#[derive(Clone, PartialEq, Debug)]
struct ConditionalSplit {
    /// The condition of their execution, for the last comparison; [`Condition::Other`] once the flags no longer
    /// represent that comparison.
    condition: Condition,
    /// The state if they were skipped.
    skipped: State,
    /// Whether they may have been executed, and whether they may have been skipped.
    may_happen: bool,
    may_skip: bool,
}

/// A value read from memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KnownLoad {
    /// The address without the index.
    pub(super) at: Atom,
    /// The index, and its factor in bytes.
    pub(super) index: Option<(Atom, u8)>,
    /// The size in bytes.
    pub(super) width: u8,
    pub(super) value: ValueSet,
}

impl State {
    /// Creates the state in which every register holds its own unknown.
    pub fn at_entry(domain: &mut Domain) -> State {
        State {
            registers: (0..domain.registers as u8).map(|n| domain.value(Origin::Register(Reg(n)))).collect(),
            frame: Frame::new(),
            dirty: false,
            ..State::nothing_known(0)
        }
    }

    /// Creates the state in which everything is possible.
    pub(super) fn nothing_known(registers: usize) -> State {
        State {
            registers: vec![ValueSet::Any; registers].into(),
            frame: Frame::lost(),
            ranges: Ranges::default(),
            dirty: true,
            loaded: Rc::default(),
            partial: None,
            compared: None,
            split: None,
        }
    }

    /// Returns the value of a register.
    pub fn register(&self, reg: Reg) -> &ValueSet {
        self.registers.get(usize::from(reg.0)).unwrap_or(&ValueSet::Any)
    }

    /// Sets the value of a register.
    pub(super) fn set_register(&mut self, reg: Reg, value: ValueSet) {
        let number = usize::from(reg.0);
        if self.registers.get(number).is_some_and(|known| *known != value) {
            Rc::make_mut(&mut self.registers)[number] = value;
        }
        if self.partial.as_ref().is_some_and(|partial| partial.reg == reg) {
            self.partial = None;
        }
    }

    /// Makes every frame address in a register known to other code.
    pub(super) fn expose_registers(&mut self, stack_pointer: Reg, domain: &Domain) {
        for (number, value) in self.registers.iter().enumerate() {
            if number != usize::from(stack_pointer.0) {
                self.frame.expose_value(value, domain);
            }
        }
    }

    /// Records that other code wrote to unknown memory.
    pub(super) fn written_by_others(&mut self, domain: &Domain) {
        self.dirty = true;
        self.loaded = Rc::default();
        self.frame.written_by_others(domain);
    }

    /// Narrows ranges by the outcome of the last comparison. Returns whether this outcome is possible.
    fn assume(&mut self, condition: Condition, domain: &Domain) -> bool {
        let Some(compared) = &self.compared else { return true };
        self.ranges.assume(compared, condition, domain)
    }

    /// Makes the following instructions conditional on the last comparison.
    pub(super) fn split_on(&mut self, condition: Condition, domain: &Domain) {
        if self.split.is_none() {
            let mut skipped = self.clone();
            let may_skip = skipped.assume(condition.inverse(), domain);
            let may_happen = self.assume(condition, domain);
            self.split = Some(Box::new(ConditionalSplit { condition, skipped, may_happen, may_skip }));
        }
    }

    /// Records that the flags change: earlier conditions do not correlate with later ones.
    pub(super) fn end_split(&mut self) {
        if let Some(split) = &mut self.split {
            split.condition = Condition::Other;
        }
    }

    /// Prepares for an instruction with these effects. The two paths remain separate if it has the last instruction's
    /// condition or the inverse (`moveq r0, #1; movne r0, #2` leaves one of two values), or if it is a branch on that
    /// condition.
    pub(super) fn settle_for(&mut self, effects: &[Effect], domain: &mut Domain) {
        let Some(mut split) = self.split.take() else { return };
        match effects.first() {
            Some(Effect::OnlyIf(Condition::Other) | Effect::BranchIf(Condition::Other)) => {}
            Some(&(Effect::OnlyIf(condition) | Effect::BranchIf(condition)))
                if condition == split.condition =>
            {
                self.split = Some(split);
                return;
            }
            Some(&(Effect::OnlyIf(condition) | Effect::BranchIf(condition)))
                if condition == split.condition.inverse() =>
            {
                std::mem::swap(self, &mut split.skipped);
                let ConditionalSplit { may_happen, may_skip, .. } = *split;
                (split.condition, split.may_happen, split.may_skip) = (condition, may_skip, may_happen);
                self.split = Some(split);
                return;
            }
            _ => {}
        }
        if !split.may_happen {
            *self = split.skipped;
        } else if split.may_skip {
            self.join(&split.skipped, None, domain);
        }
    }

    /// Returns whether the last instruction was conditional.
    pub(super) fn is_split(&self) -> bool {
        self.split.is_some()
    }

    /// Joins the states in which the last instructions were executed and skipped.
    pub(super) fn settle(&mut self, domain: &mut Domain) {
        self.settle_for(&[], domain);
    }

    /// Selects the state in which the last instructions were executed. Returns the state in which they were skipped, if
    /// possible.
    pub(super) fn skipped(&mut self) -> Option<State> {
        self.split.take().filter(|split| split.may_skip).map(|split| split.skipped)
    }

    /// Forgets all values that use the given value ids: an instruction reuses its ids each time it runs, so that older
    /// values become unknown.
    pub(super) fn forget_origins(&mut self, origins: &[OriginId], domain: &Domain) {
        if origins.is_empty() {
            return;
        }
        let stale = |value: &ValueSet| domain.is_made_from(value, origins);
        let is_stale = |atom: Atom| stale(&ValueSet::One(atom));
        if self.registers.iter().any(stale) {
            let registers = Rc::make_mut(&mut self.registers).iter_mut();
            registers.filter(|value| stale(value)).for_each(|value| *value = ValueSet::Any);
        }
        self.frame.forget_origins(origins, domain);
        self.ranges.forget(is_stale);
        let outdated = |loaded: &KnownLoad| {
            let index = loaded.index.is_some_and(|(index, _)| is_stale(index));
            is_stale(loaded.at) || index || stale(&loaded.value)
        };
        if self.loaded.iter().any(outdated) {
            Rc::make_mut(&mut self.loaded).retain(|loaded| !outdated(loaded));
        }
        let is_old = |compared: &Comparison<Atom>| stale(&compared.left) || stale(&compared.right);
        self.compared = self.compared.take().filter(|compared| !is_old(compared));
        self.partial = self.partial.take().filter(|partial| !stale(&partial.value));
    }

    /// Extends this state to cover `other`.
    ///
    /// `widen` is the head of a loop, where differing values become unknown at once, so that the analysis of loops
    /// terminates. A register that differs gets a value id, since it holds one value throughout an iteration.
    pub(super) fn join(&mut self, other: &State, widen: Option<Addr>, domain: &mut Domain) {
        debug_assert!(self.split.is_none() && other.split.is_none());
        let widens = widen.is_some();
        // A frame address that is lost among unknown values may still be used.
        let mut lost = SmallVec::<[_; 4]>::new();
        let mut named = SmallVec::<[_; 4]>::new();
        // Registers are shared if neither path has written to any.
        if !Rc::ptr_eq(&self.registers, &other.registers) {
            let registers = Rc::make_mut(&mut self.registers).iter_mut().zip(other.registers.iter());
            for (number, (mine, theirs)) in registers.enumerate().filter(|(_, (mine, theirs))| mine != theirs)
            {
                let mut joined = mine.join(theirs);
                let lossy = widens && joined != *mine && !domain.is_addresses_of_code(&joined);
                if joined == ValueSet::Any || lossy {
                    let width = |ranges: &Ranges<Atom>, value| ranges.of(value, domain).width();
                    let width = width(&self.ranges, mine).max(width(&other.ranges, theirs));
                    lost.push((mine.clone(), theirs.clone()));
                    named.push((number, width));
                    joined = ValueSet::Any;
                }
                *mine = joined;
            }
        }
        for (mine, theirs) in &lost {
            self.frame.expose_value(mine, domain);
            self.frame.expose_value(theirs, domain);
        }
        let mut forgotten = SmallVec::<[_; 4]>::new();
        self.frame.join(&other.frame, widen.is_some(), domain, |mine, theirs| {
            let joined = mine.join(theirs);
            if joined == ValueSet::Any || (widens && joined != *mine) {
                forgotten.extend([mine.clone(), theirs.clone()]);
                return ValueSet::Any;
            }
            joined
        });
        for value in &forgotten {
            self.frame.lose(value, domain);
        }
        self.ranges.join(&other.ranges, domain, widens);
        self.dirty |= other.dirty;
        if self.loaded != other.loaded {
            Rc::make_mut(&mut self.loaded).retain(|loaded| other.loaded.contains(loaded));
        }
        self.partial = self.partial.take().filter(|mine| other.partial.as_ref() == Some(mine));
        self.compared = self.compared.take().filter(|mine| other.compared.as_ref() == Some(mine));
        if let Some(at) = widen {
            self.name_joined(at, &named, domain);
        }
        for (&(number, _), (mine, theirs)) in named.iter().zip(&lost) {
            let blended = domain.blend(self.registers[number].clone(), [mine, theirs]);
            Rc::make_mut(&mut self.registers)[number] = blended;
        }
    }

    /// Gives value ids to registers that differ between the iterations of a loop that begins at `at`.
    fn name_joined(&mut self, at: Addr, named: &[(usize, u8)], domain: &mut Domain) {
        let names = named.iter().filter_map(|&(register, width)| {
            let made = Origin::Made { at, slot: SLOT_JOINED + register as u8 };
            domain.origins.add(made).map(|(origin, _)| (register, origin, width))
        });
        let names: Vec<(usize, OriginId, u8)> = names.collect();
        let origins: Vec<OriginId> = names.iter().map(|&(_, origin, _)| origin).collect();
        self.forget_origins(&origins, domain);
        for (register, origin, width) in names {
            let named = domain.low(Atom::of(origin), width, Span::new(0, domain.mask));
            self.set_register(Reg(register as u8), named.map_or(ValueSet::Any, ValueSet::One));
        }
    }
}

/// The first slot of the value ids that loop heads give, see `Step`. No instruction uses them.
const SLOT_JOINED: u8 = 208;
