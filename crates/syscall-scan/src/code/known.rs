//! What is known at one point of a program while it is explored: the constants in registers and in the words of the
//! frame, see [`super::constants`].

use kisa::{Condition, Reg, low_mask};
use smallvec::{SmallVec, smallvec};

use crate::abi::Convention;

/// How many numbers something is one of; with more, it is unknown.
const MAX_NUMBERS: usize = 24;

/// How many words of a frame are remembered.
const MAX_WORDS: usize = 12;

/// The numbers that something is one of.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Numbers {
    /// Sorted; never empty.
    list: SmallVec<[u64; 2]>,
    /// Whether they are made of what the function was called with. Other constants are not remembered from run
    /// to run: compilers have decided the branches that these decide.
    pub(super) given: bool,
}

impl Numbers {
    pub(super) fn one(number: u64) -> Numbers {
        Numbers { list: smallvec![number], given: false }
    }

    /// `None` if they are too many.
    pub(super) fn of(mut list: SmallVec<[u64; 2]>, given: bool) -> Option<Numbers> {
        list.sort_unstable();
        list.dedup();
        (list.len() <= MAX_NUMBERS).then_some(Numbers { list, given })
    }

    pub(super) fn single(&self) -> Option<u64> {
        match self.list[..] {
            [number] => Some(number),
            _ => None,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        self.list.iter().copied()
    }

    pub(super) fn each(&self, f: impl Fn(u64) -> u64) -> Numbers {
        let mut list: SmallVec<[u64; 2]> = self.iter().map(f).collect();
        list.sort_unstable();
        list.dedup();
        Numbers { list, given: self.given }
    }

    pub(super) fn union(&self, other: &Numbers) -> Option<Numbers> {
        Numbers::of(self.iter().chain(other.iter()).collect(), self.given || other.given)
    }

    /// What comes out of every pair; `None` if that is too much.
    pub(super) fn pairs(&self, other: &Numbers, f: impl Fn(u64, u64) -> Option<u64>) -> Option<Numbers> {
        if self.list.len() * other.list.len() > MAX_NUMBERS {
            return None;
        }
        let pairs = self.iter().flat_map(|a| other.iter().map(move |b| (a, b)));
        let list = pairs.map(|(a, b)| f(a, b)).collect::<Option<SmallVec<[u64; 2]>>>()?;
        Numbers::of(list, self.given || other.given)
    }

    fn covers(&self, other: &Numbers) -> bool {
        self.given >= other.given && other.iter().all(|number| self.list.contains(&number))
    }
}

/// What a register holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Content {
    Numbers(Numbers),
    /// An address in the frame, so many bytes from where the stack pointer was when the function was entered.
    Frame(i64),
}

/// A word of the frame.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Word {
    offset: i64,
    width: u8,
    numbers: Numbers,
}

impl Word {
    fn end(&self) -> i64 {
        self.offset + i64::from(self.width)
    }
}

/// What is known.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Known {
    /// By register.
    registers: SmallVec<[(Reg, Content); 1]>,
    /// By offset.
    frame: Vec<Word>,
    /// Where the part of the frame begins that others may write to.
    exposed: i64,
}

impl Known {
    /// Nothing.
    pub(super) fn nothing() -> Known {
        Known { registers: SmallVec::new(), frame: Vec::new(), exposed: i64::MIN }
    }

    /// What the callee knows where it begins, `stack_pointer` being its register if frames are followed.
    pub(super) fn in_callee(&self, convention: &Convention, stack_pointer: Option<Reg>) -> Known {
        let mut known = Known { exposed: 0, ..Known::nothing() };
        for (register, content) in &self.registers {
            if let (Content::Numbers(numbers), true) = (content, convention.arguments.contains(register)) {
                known.put(*register, Some(Content::Numbers(Numbers { given: true, ..numbers.clone() })));
            }
        }
        if let Some(register) = stack_pointer {
            known.put(register, Some(Content::Frame(0)));
        }
        known.simplify();
        known
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.registers.is_empty() && self.frame.is_empty() && self.exposed == i64::MIN
    }

    /// Without numbers, nobody asks where in the frame there may be any.
    fn simplify(&mut self) {
        if !self.has_numbers() && !self.has_frame() {
            *self = Known::nothing();
        }
    }

    /// What the caller knows behind a call.
    pub(super) fn behind_call(&self, convention: &Convention) -> Known {
        let mut known = self.clone();
        known.registers.retain(|(register, _)| !convention.scratch.contains(register));
        // What the callee is given on the stack is its own.
        match known.register(convention.stack_pointer) {
            Some(&Content::Frame(top)) => known.frame.retain(|word| word.offset > top),
            _ => known.frame.clear(),
        }
        known.keep_given();
        known
    }

    /// Another function begins, with what is in the registers for arguments.
    pub(super) fn give(&mut self, convention: &Convention) {
        for (register, content) in &mut self.registers {
            if let (Content::Numbers(numbers), true) = (content, convention.arguments.contains(register)) {
                numbers.given = true;
            }
        }
        self.keep_given();
    }

    /// Forgets what is not remembered from run to run.
    pub(super) fn keep_given(&mut self) {
        self.registers.retain(|(_, content)| match content {
            Content::Numbers(numbers) => numbers.given,
            Content::Frame(_) => true,
        });
        self.simplify();
    }

    /// Takes it that a branch goes to its target, or does not.
    pub(super) fn learn(&mut self, learnt: &Learnt, taken: bool) {
        let &Learnt { register, right, width, condition } = learnt;
        let condition = if taken { condition } else { condition.inverse() };
        let Some((_, Content::Numbers(numbers))) =
            self.registers.iter_mut().find(|(own, _)| *own == register)
        else {
            return;
        };
        let may = |number: u64| condition.holds(number, right, width) != Some(false);
        if numbers.iter().any(may) {
            numbers.list.retain(|number| may(*number));
        }
    }

    pub(super) fn has_numbers(&self) -> bool {
        self.registers.iter().any(|(_, content)| matches!(content, Content::Numbers(_)))
    }

    /// Registers, as bits, hold something else, but for addresses in the frame.
    pub(super) fn forget(&mut self, registers: u64) {
        self.registers.retain(|(register, content)| {
            matches!(content, Content::Frame(_)) || registers >> register.0 & 1 == 0
        });
        self.simplify();
    }

    pub(super) fn has_frame(&self) -> bool {
        !self.frame.is_empty()
    }

    pub(super) fn forget_frame(&mut self) {
        self.frame.clear();
    }

    /// The numbers that a register is known to hold one of.
    pub(super) fn numbers(&self, register: Reg) -> Option<Vec<u64>> {
        match self.register(register)? {
            Content::Numbers(numbers) => Some(numbers.iter().collect()),
            Content::Frame(_) => None,
        }
    }

    pub(super) fn register(&self, register: Reg) -> Option<&Content> {
        self.registers.iter().find(|(own, _)| *own == register).map(|(_, content)| content)
    }

    pub(super) fn put(&mut self, register: Reg, content: Option<Content>) {
        let place = self.registers.partition_point(|(own, _)| *own < register);
        let is_there = self.registers.get(place).is_some_and(|(own, _)| *own == register);
        match (content, is_there) {
            (Some(content), true) => self.registers[place].1 = content,
            (Some(content), false) => self.registers.insert(place, (register, content)),
            (None, true) => drop(self.registers.remove(place)),
            (None, false) => {}
        }
    }

    /// Others may write to the frame from here on.
    pub(super) fn expose(&mut self, offset: i64) {
        self.exposed = self.exposed.min(offset);
        let exposed = self.exposed;
        self.frame.retain(|word| word.end() <= exposed);
    }

    pub(super) fn store(&mut self, offset: i64, width: u8, numbers: Option<Numbers>) {
        let end = offset.saturating_add(width.into());
        self.frame.retain(|word| word.end() <= offset || end <= word.offset);
        let Some(numbers) = numbers.filter(|numbers| numbers.given) else { return };
        if end <= self.exposed && self.frame.len() < MAX_WORDS {
            let place = self.frame.partition_point(|word| word.offset < offset);
            self.frame.insert(place, Word { offset, width, numbers });
        }
    }

    pub(super) fn load(&self, offset: i64, width: u8) -> Option<Numbers> {
        let word = self.frame.iter().find(|word| word.offset == offset && word.width >= width)?;
        Some(word.numbers.each(|number| number & low_mask(width)))
    }

    /// Whether a state that is joined with this one changes nothing.
    pub(super) fn covers(&self, other: &Known) -> bool {
        self.exposed <= other.exposed
            && self.registers.iter().all(|(register, mine)| match (mine, other.register(*register)) {
                (Content::Numbers(mine), Some(Content::Numbers(theirs))) => mine.covers(theirs),
                (mine, theirs) => Some(mine) == theirs,
            })
            && self.frame.iter().all(|mine| {
                let theirs = other.frame.iter().find(|theirs| theirs.offset == mine.offset);
                theirs
                    .is_some_and(|theirs| theirs.width == mine.width && mine.numbers.covers(&theirs.numbers))
            })
    }

    /// Keeps what holds of both. With `widen`, what differs is forgotten at once.
    pub(super) fn join(&mut self, other: &Known, widen: bool) {
        let mut lost: SmallVec<[i64; 2]> = smallvec![other.exposed];
        let kept = |mine: &mut Numbers, theirs: &Numbers| {
            let joined = mine.union(theirs).filter(|joined| !widen || joined == mine);
            joined.map(|joined| *mine = joined).is_some()
        };
        self.registers.retain(|(register, mine)| match (mine, other.register(*register)) {
            (Content::Numbers(mine), Some(Content::Numbers(theirs))) => kept(mine, theirs),
            (Content::Frame(mine), Some(Content::Frame(theirs))) if *mine == *theirs => true,
            // A pointer that walks may walk down.
            (Content::Frame(_), Some(Content::Frame(_))) => {
                lost.push(i64::MIN);
                false
            }
            (Content::Frame(mine), _) => {
                lost.push(*mine);
                false
            }
            _ => false,
        });
        let frames = other.registers.iter().filter_map(|(register, content)| match content {
            Content::Frame(theirs) if self.register(*register) != Some(content) => Some(*theirs),
            _ => None,
        });
        lost.extend(frames);
        self.frame.retain_mut(|mine| {
            let theirs = other.frame.iter().find(|theirs| theirs.offset == mine.offset);
            theirs
                .is_some_and(|theirs| theirs.width == mine.width && kept(&mut mine.numbers, &theirs.numbers))
        });
        lost.into_iter().for_each(|offset| self.expose(offset));
        self.simplify();
    }
}

/// What a conditional branch tells about a register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Learnt {
    pub(super) register: Reg,
    /// What it is compared with.
    pub(super) right: u64,
    pub(super) width: u8,
    /// What holds where the branch is taken.
    pub(super) condition: Condition,
}
