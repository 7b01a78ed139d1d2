//! What is known at one point of a function.

use kcfg::isa::{Condition, Reg};

use super::domain::{Domain, REGISTERS};
use super::frame::Frame;
use super::ranges::{Compared, Ranges};
use crate::image::Addr;
use crate::values::{Atom, Origin, OriginId, Value};

/// The state of the machine at one point of a function.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    /// The registers, by number.
    pub(super) registers: [Value; REGISTERS],
    /// The stack frame.
    pub frame: Frame,
    /// The ranges of unknown values.
    pub ranges: Ranges,
    /// Memory outside of the frame may have changed since the function was entered.
    pub dirty: bool,
    /// What was read from memory outside of the frame since it was last written to: address, width in
    /// bytes, value.
    pub(super) loaded: Vec<(Atom, u8, Value)>,
    /// The last write to a part of a register.
    pub(super) partial: Option<Partial>,
    /// What the flags compare.
    pub(super) compared: Option<Compared>,
}

/// The low bytes of a register, where they are known and the rest is not.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Partial {
    pub(super) reg: Reg,
    pub(super) width: u8,
    pub(super) value: Value,
}

impl State {
    /// The state in which every register holds an unknown of its own.
    pub fn at_entry(domain: &mut Domain) -> State {
        State {
            registers: std::array::from_fn(|number| domain.value(Origin::Register(Reg(number as u8)))),
            frame: Frame::new(),
            ranges: Ranges::default(),
            dirty: false,
            loaded: Vec::new(),
            partial: None,
            compared: None,
        }
    }

    /// The state in which everything is possible.
    pub(super) fn nothing_known() -> State {
        State {
            registers: std::array::from_fn(|_| Value::Any),
            frame: Frame::lost(),
            ranges: Ranges::default(),
            dirty: true,
            loaded: Vec::new(),
            partial: None,
            compared: None,
        }
    }

    /// The value of a register.
    pub fn register(&self, reg: Reg) -> &Value {
        self.registers.get(usize::from(reg.0)).unwrap_or(&Value::Any)
    }

    /// Gives a register a value.
    pub(super) fn set_register(&mut self, reg: Reg, value: Value) {
        if let Some(register) = self.registers.get_mut(usize::from(reg.0)) {
            *register = value;
        }
        if self.partial.as_ref().is_some_and(|partial| partial.reg == reg) {
            self.partial = None;
        }
    }

    /// Others wrote to memory, not known where.
    pub(super) fn written_by_others(&mut self, domain: &Domain) {
        self.dirty = true;
        self.loaded.clear();
        self.frame.written_by_others(domain);
    }

    /// Learns from the last comparison that it came out this way. Returns whether that is possible.
    pub(super) fn assume(&mut self, condition: Condition, domain: &Domain) -> bool {
        match self.compared {
            Some(compared) => self.ranges.assume(compared, condition, domain),
            None => true,
        }
    }

    /// An instruction makes a new value under an old name: the value of its last execution, wherever it
    /// still is, becomes nameless.
    pub(super) fn forget_origin(&mut self, origin: OriginId, domain: &Domain) {
        let from_it = |atom: &Atom| domain.origins.root(atom.origin) == origin;
        for value in &mut self.registers {
            if value.atoms().iter().any(from_it) {
                *value = Value::Any;
            }
        }
        self.frame.forget_origin(origin, domain);
        self.ranges.forget(|atom| from_it(&atom));
        self.loaded.retain(|(at, _, value)| !from_it(at) && !value.atoms().iter().any(from_it));
        self.compared = self.compared.filter(|compared| !from_it(&compared.left));
        self.partial = self.partial.take().filter(|partial| !partial.value.atoms().iter().any(from_it));
    }

    /// Makes this state hold for `other` too. Returns whether anything changed.
    ///
    /// `widen` is the head of a loop, where what differs becomes unknown at once, so that loops come to an
    /// end. A register that does gets a name, being one and the same value throughout a round.
    pub(super) fn join(&mut self, other: &State, widen: Option<Addr>, domain: &mut Domain) -> bool {
        let before = self.clone();
        // An address that is lost among unknown values may still be used.
        let mut lost = Vec::new();
        let mut unite = |mine: &Value, theirs: &Value| {
            let joined = mine.join(theirs);
            if joined == Value::Any || (widen.is_some() && joined != *mine) {
                lost.extend([mine.clone(), theirs.clone()]);
                return Value::Any;
            }
            joined
        };
        let mut named = Vec::new();
        for (number, theirs) in other.registers.iter().enumerate() {
            let mine = &before.registers[number];
            if mine != theirs {
                let width = before.ranges.width(mine, domain).max(other.ranges.width(theirs, domain));
                self.registers[number] = unite(mine, theirs);
                if self.registers[number] == Value::Any {
                    named.push((number as u8, width));
                }
            }
        }
        for value in &lost {
            self.frame.expose_value(value, domain);
        }
        lost.clear();
        self.frame.join(&other.frame, widen.is_some(), domain, |mine, theirs| {
            let joined = mine.join(theirs);
            if joined == Value::Any || (widen.is_some() && joined != *mine) {
                lost.extend([mine.clone(), theirs.clone()]);
                return Value::Any;
            }
            joined
        });
        for value in &lost {
            self.frame.lose(value, domain);
        }
        self.ranges.join(&other.ranges, widen.is_some());
        self.dirty |= other.dirty;
        self.loaded.retain(|loaded| other.loaded.contains(loaded));
        self.partial = self.partial.take().filter(|mine| other.partial.as_ref() == Some(mine));
        self.compared = self.compared.filter(|mine| other.compared == Some(*mine));
        if let Some(at) = widen {
            self.name_joined(at, &named, domain);
        }
        for &(number, _) in &named {
            let number = usize::from(number);
            let others = [&before.registers[number], &other.registers[number]];
            self.registers[number] = domain.blend(self.registers[number].clone(), others);
        }
        *self != before
    }

    /// Names registers that hold something else in every round of a loop that begins at `at`.
    fn name_joined(&mut self, at: Addr, named: &[(u8, u8)], domain: &mut Domain) {
        let mut names = Vec::new();
        for &(register, width) in named {
            let made = Origin::Made { at, slot: SLOT_JOINED + register };
            if let Some((origin, _)) = domain.origins.add(made) {
                self.forget_origin(origin, domain);
                names.push((register, origin, width));
            }
        }
        for (register, origin, width) in names {
            let named = domain.low(Atom::of(origin), width, (0, domain.mask));
            self.set_register(Reg(register), named.map_or(Value::Any, Value::One));
        }
    }
}

/// The slots of names that loops give, see `Step`. No instruction uses them.
const SLOT_JOINED: u8 = 224;
