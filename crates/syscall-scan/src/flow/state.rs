//! What is known at one point of a function.

use std::rc::Rc;

use kflow::values::{Comparison, Ranges, Span};
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
    /// Memory outside of the frame may have changed since the function was entered.
    pub dirty: bool,
    /// What was read from memory outside of the frame since it was last written to.
    pub(super) loaded: Rc<Vec<KnownLoad>>,
    /// The last write to a part of a register.
    pub(super) partial: Option<Partial>,
    /// What the flags compare.
    pub(super) compared: Option<Comparison<Atom>>,
    /// Behind predicated instructions: the state if they were skipped.
    split: Option<Box<ConditionalSplit>>,
}

/// The state behind predicated instructions (ARM's) that were skipped, beside that where they were executed.
#[derive(Clone, PartialEq, Debug)]
struct ConditionalSplit {
    /// They happened if this holds of the last comparison; [`Condition::Other`] if that is no longer what the
    /// flags tell.
    condition: Condition,
    /// The state if they did not.
    skipped: State,
    /// Whether they can have happened, and whether they can not have.
    may_happen: bool,
    may_skip: bool,
}

/// A value that was read from memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KnownLoad {
    /// The address,
    pub(super) at: Atom,
    /// plus this times so many bytes.
    pub(super) index: Option<(Atom, u8)>,
    /// How many bytes.
    pub(super) width: u8,
    pub(super) value: ValueSet,
}

/// The low bytes of a register, where they are known and the rest is not.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Partial {
    pub(super) reg: Reg,
    pub(super) width: u8,
    pub(super) value: ValueSet,
}

impl State {
    /// The state in which every register holds an unknown of its own.
    pub fn at_entry(domain: &mut Domain) -> State {
        State {
            registers: (0..domain.registers as u8).map(|n| domain.value(Origin::Register(Reg(n)))).collect(),
            frame: Frame::new(),
            dirty: false,
            ..State::nothing_known(0)
        }
    }

    /// The state in which everything is possible.
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

    /// The value of a register.
    pub fn register(&self, reg: Reg) -> &ValueSet {
        self.registers.get(usize::from(reg.0)).unwrap_or(&ValueSet::Any)
    }

    /// Gives a register a value.
    pub(super) fn set_register(&mut self, reg: Reg, value: ValueSet) {
        let number = usize::from(reg.0);
        if self.registers.get(number).is_some_and(|known| *known != value) {
            Rc::make_mut(&mut self.registers)[number] = value;
        }
        if self.partial.as_ref().is_some_and(|partial| partial.reg == reg) {
            self.partial = None;
        }
    }

    /// Others get to know every address in the frame that a register holds.
    pub(super) fn expose_registers(&mut self, stack_pointer: Reg, domain: &Domain) {
        for (number, value) in self.registers.iter().enumerate() {
            if number != usize::from(stack_pointer.0) {
                self.frame.expose_value(value, domain);
            }
        }
    }

    /// Others wrote to memory, not known where.
    pub(super) fn written_by_others(&mut self, domain: &Domain) {
        self.dirty = true;
        self.loaded = Rc::default();
        self.frame.written_by_others(domain);
    }

    /// Learns from the last comparison that it came out this way. Returns whether that is possible.
    fn assume(&mut self, condition: Condition, domain: &Domain) -> bool {
        let Some(compared) = &self.compared else { return true };
        self.ranges.assume(compared, condition, domain)
    }

    /// What follows happens only if this holds of the last comparison.
    pub(super) fn split_on(&mut self, condition: Condition, domain: &Domain) {
        if self.split.is_none() {
            let mut skipped = self.clone();
            let may_skip = skipped.assume(condition.inverse(), domain);
            let may_happen = self.assume(condition, domain);
            self.split = Some(Box::new(ConditionalSplit { condition, skipped, may_happen, may_skip }));
        }
    }

    /// The flags change: what happened on a condition before has nothing to do with what will.
    pub(super) fn end_split(&mut self) {
        if let Some(split) = &mut self.split {
            split.condition = Condition::Other;
        }
    }

    /// Gets ready for an instruction with these effects. If it has the same condition as the last one, or the opposite
    /// condition, the two ways stay separate (`moveq r0, #1; movne r0, #2` leaves one of two). They also do if a branch on the condition
    /// separates them.
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

    /// Whether the last instruction happened on a condition.
    pub(super) fn is_split(&self) -> bool {
        self.split.is_some()
    }

    /// Joins the states in which the last instructions were executed and were skipped.
    pub(super) fn settle(&mut self, domain: &mut Domain) {
        self.settle_for(&[], domain);
    }

    /// Leaves the state in which the last instructions were executed. Returns the state in which they were skipped, if
    /// that is possible.
    pub(super) fn skipped(&mut self) -> Option<State> {
        self.split.take().filter(|split| split.may_skip).map(|split| split.skipped)
    }

    /// Value ids are reused each time an instruction runs: what still holds the values that they stood for the last time
    /// becomes unknown.
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

    /// Makes this state hold for `other` too.
    ///
    /// `widen` is the head of a loop, where what differs becomes unknown at once, so that loops come to an
    /// end. A register that does gets a value id, since it holds one value throughout an iteration.
    pub(super) fn join(&mut self, other: &State, widen: Option<Addr>, domain: &mut Domain) {
        debug_assert!(self.split.is_none() && other.split.is_none());
        let widens = widen.is_some();
        // An address that is lost among unknown values may still be used.
        let mut lost = SmallVec::<[_; 4]>::new();
        let mut named = SmallVec::<[_; 4]>::new();
        // Where neither way has written to any, they are the same ones.
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

    /// Gives value ids to registers that differ between the iterations of a loop which begins at `at`.
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

/// The slots of the value ids that heads of loops give, see `Step`. No instruction uses them.
const SLOT_JOINED: u8 = 208;
