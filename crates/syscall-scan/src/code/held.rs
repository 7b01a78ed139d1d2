//! Addresses that instructions put together in registers, on machines where one instruction cannot hold one.
//!
//! `adrp x0, page; add x0, x0, #low` makes an address of two halves, `ldr r0, [pc, #8]` reads it from a pool of
//! constants beside the code, and the halves may be far apart: compilers make a page once and use it in
//! several blocks. So what registers are known to hold is followed from run to run while these are
//! explored. Where a function stores the page part of an address in its frame, it is taken to be what any load
//! from the frame may get: compilers keep pages on the stack when they run out of registers.

use std::ops::Range;

use indexmap::IndexSet;
use kelf::Machine;
use kisa::{Address, BinaryOp, Effect, Reg, TEMPORARY, Value};
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::explore::Work;
use super::{Code, ExitId, ExitKind, Taken};
use crate::abi::Convention;
use crate::image::{Addr, Image};

type FxIndexSet<T> = IndexSet<T, FxBuildHasher>;

/// A register and a number that it may hold.
pub(super) type Held = (Reg, u64);

/// Stands for any address in the stack frame.
const FRAME: u64 = u64::MAX;

/// How many numbers are tracked for one register. Compiled code has one or two; a pointer that a loop increments would
/// have any number of them.
const MAX_NUMBERS: usize = 8;

/// The same on ARM for constants that are loaded or immediate, each of which may become the address of a function.
const MAX_CONSTANTS: usize = 64;

/// Numbers below this are dropped at the end of a run, unless they carry the tag [`SMALL`]: nothing lies in the first
/// page.
const LEAST_ADDRESS: u64 = 0x1000;

/// Tag bit of a number below [`LEAST_ADDRESS`], above the 32 bits that numbers of ARM have: keep it across runs. It comes
/// from a literal pool or was made of two halves, as distances are that become addresses later.
const SMALL: u64 = 1 << 32;

/// What registers may hold where.
pub(super) struct Tracker {
    convention: &'static Convention,
    /// The numbers that are followed from run to run: those that may become addresses.
    addresses: Range<u64>,
    /// By start of a run, the numbers that arrive on edges from other runs.
    starts: FxHashMap<Addr, Vec<Held>>,
    /// By exit, the numbers behind it.
    exits: FxHashMap<ExitId, Vec<Held>>,
    /// By function.
    spills: FxHashMap<Addr, Spills>,
}

impl Tracker {
    /// One for a machine that needs it.
    pub(super) fn new(image: &Image) -> Option<Tracker> {
        let convention =
            Some(Convention::of(image.machine)).filter(|convention| convention.link.is_some())?;
        let (start, end) = image.memory();
        // Position-independent code of ARM reads distances from its pools, which may be any number. The C library
        // of a static program at a fixed address may be such code.
        let distances = image.machine == Machine::Arm;
        let addresses = if distances { LEAST_ADDRESS..u64::MAX } else { start & !0xfff..end };
        Some(Tracker {
            convention,
            addresses,
            starts: FxHashMap::default(),
            exits: FxHashMap::default(),
            spills: FxHashMap::default(),
        })
    }
}

/// The pages that a function spills, and its loads from the frame. All functions without an extent share one of these.
#[derive(Default)]
struct Spills {
    /// The page addresses that it stores.
    pages: FxIndexSet<u64>,
    /// Its loads from the frame: the address of the next instruction, the register.
    loads: FxIndexSet<(Addr, Reg)>,
    /// By load, how many loads there are up to the last one, this one included, that is not known to be full.
    open: Vec<usize>,
}

impl Spills {
    fn add_load(&mut self, next: Addr, dst: Reg) {
        if self.loads.insert((next, dst)) {
            self.open.push(self.loads.len());
        }
    }

    /// The last of the first `count` loads that is not full, and its index. A load that is full once always is.
    fn last_open(
        &mut self,
        count: usize,
        is_full: impl Fn(&(Addr, Reg)) -> bool,
    ) -> Option<(usize, (Addr, Reg))> {
        let mut found = count;
        while let Some(index) = found.checked_sub(1) {
            if self.open[index] < found {
                found = self.open[index];
            } else if is_full(&self.loads[index]) {
                self.open[index] = index;
            } else {
                break;
            }
        }
        // The next search goes there at once.
        let mut at = count;
        while at > found {
            at = std::mem::replace(&mut self.open[at - 1], found);
        }
        let index = found.checked_sub(1)?;
        Some((index, self.loads[index]))
    }
}

/// What the result of an instruction may be.
#[derive(Clone, Copy, PartialEq)]
enum Made {
    /// An address.
    Address,
    /// An address, if the program is always loaded there.
    Number,
    /// No address by itself.
    Part,
}

impl Code<'_> {
    /// Registers may hold these numbers where a run begins that has been decoded.
    pub(super) fn arrive_holding(&mut self, start: Addr, mut holding: Vec<Held>) {
        let most = self.most_numbers();
        let Some(tracker) = &mut self.tracker else { return };
        let known = tracker.starts.entry(start).or_default();
        let mut excess = Vec::new();
        holding.retain(|&held| {
            let is_new = may_add(known, held, usize::MAX);
            let fits = may_add(known, held, most);
            known.extend(fits.then_some(held));
            excess.extend((is_new && !fits).then_some(held.1));
            fits
        });
        for number in excess {
            self.lose(start, number);
        }
        if holding.is_empty() {
            return;
        }
        let mut effects = Vec::new();
        let mut at = start;
        loop {
            effects.clear();
            let Some(length) = self.length(at) else { return };
            self.effects(at, &mut effects);
            self.follow_held((at, at.plus(length)), &effects, &mut holding, false);
            if holding.is_empty() {
                return;
            }
            if let Some(exit) = self.exit_at(at) {
                return self.leave_holding(exit, &holding);
            }
            at = at.plus(length);
        }
    }

    /// Control leaves a run while registers hold these numbers.
    pub(super) fn leave_holding(&mut self, exit: ExitId, holding: &[Held]) {
        let most = self.most_numbers();
        let Some(tracker) = &mut self.tracker else { return };
        let convention = tracker.convention;
        let calls = matches!(self.exits[exit.0 as usize].kind, ExitKind::Call(_) | ExitKind::IndirectCall);
        let leaves = matches!(self.exits[exit.0 as usize].kind, ExitKind::IndirectJump | ExitKind::Return);
        let (at, conditional) = (self.exits[exit.0 as usize].at, self.exits[exit.0 as usize].conditional);
        let (mut news, mut given, mut excess) = (Vec::new(), Vec::new(), Vec::new());
        let lasts = |number: u64| number == FRAME || tracker.addresses.contains(&number);
        for &(reg, number) in holding.iter().filter(|held| lasts(held.1)) {
            if (calls || leaves) && convention.arguments.contains(&reg) {
                given.push(number);
            }
            if calls && !conditional && convention.scratch.contains(&reg) {
                continue;
            }
            let behind = tracker.exits.entry(exit).or_default();
            if may_add(behind, (reg, number), most) {
                behind.push((reg, number));
                news.push((reg, number));
            } else if may_add(behind, (reg, number), usize::MAX) {
                excess.push(number);
            }
        }
        for number in given {
            self.escape(at, number);
        }
        for number in excess {
            self.lose(at, number);
        }
        if !news.is_empty() {
            let targets = self.exits[exit.0 as usize].successors.iter();
            self.work.extend(targets.map(|&target| Work::Holds(target, news.clone())));
        }
    }

    /// An exit leads to one more place.
    pub(super) fn pass_on_held(&mut self, exit: ExitId, target: Addr) {
        let behind = self.tracker.as_ref().and_then(|tracker| tracker.exits.get(&exit));
        self.work.extend(behind.map(|held| Work::Holds(target, held.clone())));
    }

    /// Goes over one instruction: takes the addresses of code that it makes, notes what data it reaches, and
    /// keeps up to date what registers hold. With `fresh`, when the instruction is decoded for the first time, its own
    /// constants count; later, only what is computed from numbers in `holding`.
    pub(super) fn follow_held(
        &mut self,
        (at, next): (Addr, Addr),
        effects: &[Effect],
        holding: &mut Vec<Held>,
        fresh: bool,
    ) {
        let (mut maybe, mut branches) = (false, false);
        let before = holding.len();
        for effect in effects {
            let mut most = self.most_numbers();
            let (dst, made, kind) = match *effect {
                Effect::Set { dst, value, .. } | Effect::MaybeSet { dst, value, .. } => {
                    (dst, self.evaluate(at, value, holding, fresh), self.made_by(value))
                }
                Effect::Binary { op, dst, left, right, .. } => {
                    let mut combined = self.combine(at, (op, left, right), holding, fresh);
                    let kind = self.made_from(at, op, left, right);
                    match (self.image.machine, kind) {
                        (Machine::Arm, Made::Number) => combined.iter_mut().for_each(keep_across_runs),
                        (Machine::Arm, Made::Address) => {}
                        _ => most = MAX_NUMBERS,
                    }
                    // `add pc, pc, r3` is a jump, whose targets are no functions.
                    branches |= dst == TEMPORARY && kind == Made::Address;
                    (dst, combined, kind)
                }
                Effect::SetSigned { dst, value, .. } => {
                    self.evaluate(at, value, holding, fresh);
                    (dst, Vec::new(), Made::Part)
                }
                Effect::Clobber(dst) => (dst, Vec::new(), Made::Part),
                Effect::Store { to, value, .. } => {
                    self.reach(at, &to, holding, fresh);
                    for number in self.evaluate(at, value, holding, fresh) {
                        self.escape(at, number);
                        if self.is_frame(&to, holding) {
                            self.store_page(at, number);
                        }
                    }
                    continue;
                }
                Effect::ClobberRange(to) => {
                    for number in self.addresses(&to, holding, fresh) {
                        self.references.add(at, number, true);
                    }
                    continue;
                }
                Effect::Compare { .. } | Effect::CompareZero { .. } | Effect::BranchIfCompared { .. } => {
                    for value in effect.operands() {
                        self.evaluate(at, value, holding, fresh);
                    }
                    continue;
                }
                Effect::Transfer(_) if branches => continue,
                Effect::Transfer(value) => {
                    for number in self.evaluate(at, value, holding, fresh) {
                        self.escape(at, number);
                    }
                    continue;
                }
                Effect::Swap(a, b) => {
                    for (reg, _) in holding.iter_mut().filter(|(reg, _)| [a, b].contains(reg)) {
                        *reg = if *reg == a { b } else { a };
                    }
                    continue;
                }
                Effect::OnlyIf(_) => {
                    maybe = true;
                    continue;
                }
                Effect::ClobberFlags
                | Effect::ClobberMemory
                | Effect::Escape(_)
                | Effect::SystemCall { .. }
                | Effect::BranchIf(_) => continue,
            };
            let from_frame = match *effect {
                Effect::Set { value: Value::Load { from, .. }, .. } => self.is_frame(&from, holding),
                _ => false,
            };
            if !maybe && !matches!(effect, Effect::MaybeSet { .. }) {
                holding.retain(|&(reg, _)| reg != dst);
            }
            let made = self.but_return_address(next, dst, made);
            self.hold(at, dst, &made, (kind, most), holding);
            if from_frame {
                self.load_page((at, next), dst, holding);
            }
        }
        let followed = |effect: &Effect| {
            !matches!(
                effect,
                Effect::Escape(_) | Effect::Clobber(_) | Effect::ClobberFlags | Effect::OnlyIf(_)
            )
        };
        if before > 0 && !effects.iter().any(followed) {
            self.reach_unfollowed(at, &holding.clone());
        }
    }

    /// A vector is loaded, or something is done with an address that is not followed.
    fn reach_unfollowed(&mut self, at: Addr, holding: &[Held]) {
        if let Some(operand) = self.memory_operand(at) {
            for number in self.addresses(&operand.address, holding, false) {
                self.references.add(at, number, true);
            }
        }
        let read = self.registers_read(at);
        for &(_, number) in holding.iter().filter(|(reg, _)| read >> reg.0 & 1 != 0) {
            self.escape(at, number);
        }
    }

    fn is_stack_pointer(&self, reg: Reg) -> bool {
        self.tracker.as_ref().is_some_and(|tracker| tracker.convention.stack_pointer == reg)
    }

    /// Whether an address is one in the frame.
    fn is_frame(&self, address: &Address, holding: &[Held]) -> bool {
        let is_frame =
            |reg| self.is_stack_pointer(reg) || numbers(holding, reg).any(|number| number == FRAME);
        address.base.is_some_and(is_frame)
    }

    /// A number is stored in the frame. If it is the page part of an address, loads of the function may get it back.
    fn store_page(&mut self, at: Addr, number: u64) {
        if self.image.machine == Machine::Arm {
            return; // Its addresses have no page part.
        }
        let function = self.image.extent_around(at).map_or(Addr(0), |extent| extent.start);
        let Some(tracker) = &mut self.tracker else { return };
        if number & 0xfff != 0 || !tracker.addresses.contains(&number) {
            return;
        }
        let spills = tracker.spills.entry(function).or_default();
        if spills.pages.insert(number) {
            self.work.push(Work::Reloads { function, page: number, loads: spills.loads.len() });
        }
    }

    /// The first `loads` loads of a function may get a page that it has spilled: delivers it to the last one of them that
    /// can hold more, and leaves the others for later.
    pub(super) fn reload(&mut self, function: Addr, page: u64, loads: usize) {
        let Some(Tracker { spills, starts, .. }) = &mut self.tracker else { return };
        let is_full = |&(next, dst): &(Addr, Reg)| {
            starts.get(&next).is_some_and(|known| numbers(known, dst).count() >= MAX_NUMBERS)
        };
        let load = spills.get_mut(&function).and_then(|spills| spills.last_open(loads, is_full));
        let Some((index, (next, dst))) = load else { return };
        self.work.push(Work::Reloads { function, page, loads: index });
        self.arrive_holding(next, vec![(dst, page)]);
    }

    /// A word is loaded from the frame.
    fn load_page(&mut self, (at, next): (Addr, Addr), dst: Reg, holding: &mut Vec<Held>) {
        if self.image.machine == Machine::Arm {
            return;
        }
        let function = self.image.extent_around(at).map_or(Addr(0), |extent| extent.start);
        let Some(tracker) = &mut self.tracker else { return };
        let spills = tracker.spills.entry(function).or_default();
        spills.add_load(next, dst);
        for &number in &spills.pages {
            if numbers(holding, dst).count() >= MAX_NUMBERS {
                break;
            }
            if may_add(holding, (dst, number), MAX_NUMBERS) {
                holding.push((dst, number));
            }
        }
    }

    /// A number goes where it is not followed: as an argument, into memory, into a vector.
    fn escape(&mut self, at: Addr, number: u64) {
        self.references.add(at, number, true);
        let target = Addr(number);
        if self.image.machine == Machine::Arm && self.image.is_fixed(target) && self.is_function(target) {
            self.take(target, Taken::Code(at));
        }
    }

    /// How many numbers a register is followed with.
    fn most_numbers(&self) -> usize {
        if self.image.machine == Machine::Arm { MAX_CONSTANTS } else { MAX_NUMBERS }
    }

    /// A number is not followed any further. Only that of ARM may still be an address that nobody has taken.
    fn lose(&mut self, at: Addr, number: u64) {
        if self.image.machine == Machine::Arm {
            self.escape(at, number);
        }
    }

    /// Whether what an operand reads may be an address.
    fn made_by(&self, value: Value) -> Made {
        match (self.image.machine, value) {
            (_, Value::Address(_)) => Made::Address,
            // No address fits into an instruction, and what comes from a pool of constants may be a distance:
            // where it goes shows that.
            (Machine::Arm, _) => Made::Part,
            _ => Made::Number,
        }
    }

    /// Whether an operation may complete an address: on ARM, `movt` and the addition of the program counter.
    fn made_from(&self, at: Addr, op: BinaryOp, left: Value, right: Value) -> Made {
        let is_counter = |value| self.is_counter(at, value);
        match (self.image.machine, op, right) {
            (Machine::Arm, BinaryOp::Or, Value::Const(number)) if number & 0xffff == 0 => Made::Number,
            (Machine::Arm, BinaryOp::Add, _) if is_counter(left) || is_counter(right) => Made::Address,
            (Machine::Arm, ..) => Made::Part,
            _ => Made::Address,
        }
    }

    /// Whether a number is what an instruction of ARM reads of the program counter.
    fn is_counter(&self, at: Addr, value: Value) -> bool {
        let counter = if at.0 & 1 == 0 { at.0 + 8 } else { (at.0 & !1) + 4 };
        self.image.machine == Machine::Arm && value == Value::Const(counter)
    }

    /// A call leaves its return address in a register; nobody calls it.
    fn but_return_address(&self, next: Addr, dst: Reg, mut made: Vec<u64>) -> Vec<u64> {
        let link = self.tracker.as_ref().and_then(|tracker| tracker.convention.link);
        made.retain(|&number| link != Some(dst) || number != next.0);
        made
    }

    fn hold(
        &mut self,
        at: Addr,
        dst: Reg,
        made: &[u64],
        (kind, most): (Made, usize),
        holding: &mut Vec<Held>,
    ) {
        for &number in made {
            let is_address = match kind {
                _ if self.image.machine == Machine::Arm && dst == TEMPORARY => false,
                Made::Address => true,
                Made::Number => self.image.is_fixed(Addr(number)),
                Made::Part => false,
            };
            // What adds the program counter and comes out odd is the address of Thumb code, whatever lies there.
            let is_thumb = self.image.machine == Machine::Arm && kind == Made::Address && number & 1 != 0;
            if is_address && (self.is_function(Addr(number)) || is_thumb && self.is_beginning(Addr(number))) {
                self.take(Addr(number), Taken::Code(at));
            }
            if may_add(holding, (dst, number), most) {
                holding.push((dst, number));
            } else if may_add(holding, (dst, number), usize::MAX) {
                self.lose(at, number);
            }
        }
    }

    /// The numbers that an operand may be, as far as is known.
    fn evaluate(&mut self, at: Addr, value: Value, holding: &[Held], fresh: bool) -> Vec<u64> {
        match value {
            Value::Const(number) if fresh => vec![number],
            Value::Reg { reg, width } if width == self.image.machine.word_size() => {
                let frame = self.is_stack_pointer(reg).then_some(FRAME);
                numbers(holding, reg).chain(frame).collect()
            }
            Value::Address(address) if self.is_frame(&address, holding) => vec![FRAME],
            Value::Address(address) if address.index.is_none() => self.addresses(&address, holding, fresh),
            Value::Address(address) => {
                // The beginning of an array.
                for number in self.addresses(&address, holding, fresh) {
                    self.references.add(at, number, true);
                }
                Vec::new()
            }
            Value::Load { from, width } => {
                self.reach(at, &from, holding, fresh);
                let whole = width == self.image.machine.word_size() && from.index.is_none();
                let from = if whole { self.addresses(&from, holding, fresh) } else { Vec::new() };
                let loaded = from.into_iter().filter_map(|from| self.image.constant(Addr(from), width));
                let mut loaded: Vec<u64> = loaded.collect();
                if self.image.machine == Machine::Arm {
                    loaded.iter_mut().for_each(keep_across_runs);
                }
                loaded
            }
            _ => Vec::new(),
        }
    }

    /// The sums and so on that two operands may make.
    fn combine(
        &mut self,
        at: Addr,
        (op, left, right): (BinaryOp, Value, Value),
        holding: &[Held],
        fresh: bool,
    ) -> Vec<u64> {
        let own = |code: &mut Self, value| match value {
            Value::Const(number) => vec![number],
            value => code.evaluate(at, value, holding, fresh),
        };
        let known = |value: &Value| matches!(value, Value::Const(_));
        let (lefts, rights) = (own(self, left), own(self, right));
        let counts = self.is_counter(at, left) || self.is_counter(at, right);
        if lefts.is_empty() || rights.is_empty() || (known(&left) && known(&right) && !counts) {
            // What is added to an unknown number is the beginning of an array.
            for number in lefts.into_iter().chain(rights) {
                self.references.add(at, number, true);
            }
            return Vec::new();
        }
        let result = |left: u64, right: u64| {
            if left == FRAME || right == FRAME {
                return Some(FRAME);
            }
            Some(self.image.wrap(match op {
                BinaryOp::Add => left.wrapping_add(right),
                BinaryOp::Sub => left.wrapping_sub(right),
                BinaryOp::And => left & right,
                BinaryOp::Or => left | right,
                _ => return None,
            }))
        };
        let pairs = lefts.iter().flat_map(|&left| rights.iter().map(move |&right| (left, right)));
        pairs.take(MAX_NUMBERS).filter_map(|(left, right)| result(left, right)).collect()
    }

    /// Something is read or written there.
    fn reach(&mut self, at: Addr, address: &Address, holding: &[Held], fresh: bool) {
        let as_pointer = address.index.is_some();
        for number in self.addresses(address, holding, fresh) {
            self.references.add(at, number, as_pointer);
        }
    }

    /// The addresses that an expression may be, its index aside.
    fn addresses(&self, address: &Address, holding: &[Held], fresh: bool) -> Vec<u64> {
        let plus = |number: u64| match number {
            FRAME => FRAME,
            number => self.image.wrap(number.wrapping_add_signed(address.displacement)),
        };
        match (address.base, address.index) {
            _ if address.segment.is_some() => Vec::new(),
            (Some(base), None) => numbers(holding, base).map(plus).collect(),
            (Some(base), Some((index, _))) => {
                numbers(holding, base).chain(numbers(holding, index)).map(plus).collect()
            }
            (None, _) if fresh => vec![plus(0)],
            (None, _) => Vec::new(),
        }
    }

    /// Whether an address that code makes is one of a function: not if it is in the middle of one, or of an
    /// instruction.
    fn is_function(&self, target: Addr) -> bool {
        self.is_beginning(target)
            && (if self.image.machine == Machine::Arm {
                self.begins_sensibly(target)
            } else {
                self.is_instruction(target)
            })
    }

    /// Whether an address is not known to be in the middle of a function.
    fn is_beginning(&self, target: Addr) -> bool {
        let middle = self.image.extent_around(target).is_some_and(|extent| extent.start != target);
        self.image.is_code(target) && (!middle || self.image.is_function(target))
    }
}

/// Whether a register does not have this number yet, and has fewer than `most`.
fn may_add(known: &[Held], held: Held, most: usize) -> bool {
    let mut count = 0;
    for known in known.iter().filter(|known| known.0 == held.0) {
        if known.1 == held.1 {
            return false;
        }
        count += 1;
    }
    count < most
}

/// Tags a small number as one to keep across runs, see [`SMALL`].
fn keep_across_runs(number: &mut u64) {
    if *number < LEAST_ADDRESS {
        *number |= SMALL;
    }
}

fn numbers(holding: &[Held], reg: Reg) -> impl Iterator<Item = u64> {
    holding.iter().filter(move |held| held.0 == reg).map(|held| held.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loads that get each of some pages, while loads are full that have got `room` of them.
    #[test]
    fn loads_get_pages_until_they_are_full() {
        let mut spills = Spills::default();
        let mut got = [0; 10];
        (0..10).for_each(|load| spills.add_load(Addr(load), Reg(0)));
        spills.add_load(Addr(3), Reg(0));
        assert_eq!(spills.loads.len(), 10);
        for (count, room, expected) in
            [(10, 1, 10), (10, 1, 0), (10, 2, 10), (4, 3, 4), (10, 3, 6), (10, 3, 0), (6, 4, 6), (0, 9, 0)]
        {
            // In this test alone, what was full has more room later.
            spills.open = (1..=10).collect();
            let mut next = count;
            let mut delivered = 0;
            while let Some((index, (at, _))) = spills.last_open(next, |load| got[load.0.0 as usize] >= room) {
                assert!(index < next && at == Addr(index as u64));
                got[index] += 1;
                (next, delivered) = (index, delivered + 1);
            }
            assert_eq!(delivered, expected, "{count} loads, room for {room}");
        }
    }
}
