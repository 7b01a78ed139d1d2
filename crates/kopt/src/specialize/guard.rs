//! The comparison of facts at the entry of a path.

use std::collections::BTreeSet;

use kcfg::graph::{Contents, Graph};
use kisa::specializing::{Place, Simple, Specialize};
use kisa::{Encoding, Reg};

use super::context::{Context, From, target};
use super::explore::Why;
use super::op::{bit, reference};
use super::state::WORD;
use super::value::{Base, NameId, Value};

/// The code that compares.
pub struct Guard {
    /// Its blocks. Each ends with a branch to the original function, which is taken if the operands of the block's last
    /// comparison are equal (`true`) or differ.
    pub blocks: Vec<(Contents, bool)>,
    /// The code after the last of them, and the code before the jump to the original function.
    pub hit: Contents,
    pub miss: Contents,
    /// Number of words and pointers that are compared.
    pub compared: u64,
    /// Number of instructions on the way into the path.
    pub instructions: u64,
}

/// Registers that comparisons may use.
pub struct Scratch {
    /// Those that nobody needs.
    pub free: Vec<Reg>,
    /// Those that have to be saved.
    pub saved: Vec<Reg>,
}

/// Returns the code that compares the facts that decided something.
///
/// # Errors
/// If there are too few registers.
pub fn guard(
    graph: &Graph,
    specialize: &dyn Specialize,
    context: &Context,
    used: &BTreeSet<usize>,
    addresses: &BTreeSet<NameId>,
    scratch: Scratch,
) -> Result<Guard, Why> {
    let mut needed = vec![false; context.objects.len()];
    for (number, fact) in context.facts.iter().enumerate() {
        let is_pointer = matches!(fact.value, Value::Name(..));
        needed[fact.object] |= used.contains(&number) && !is_pointer;
    }
    for (number, object) in context.objects.iter().enumerate() {
        needed[number] |= matches!(object.base, Base::Name(name) if addresses.contains(&name));
    }
    for number in (0..context.objects.len()).rev() {
        if let (From::Member(outer, _), true) = (context.objects[number].from, needed[number]) {
            needed[outer] = true;
        }
    }
    let (free, saved) = (scratch.free.len(), scratch.saved.len());
    let mut maker = Maker {
        graph,
        specialize,
        context,
        used,
        needed,
        registers: scratch.free.into_iter().chain(scratch.saved).collect(),
        most: 0,
        current: Contents::default(),
        guard: Guard {
            blocks: Vec::new(),
            hit: Contents::default(),
            miss: Contents::default(),
            compared: 0,
            instructions: 0,
        },
    };
    for number in 0..context.objects.len() {
        match context.objects[number].from {
            _ if !maker.needed[number] => {}
            From::Register(reg) => maker.object(number, Some(reg), false, 1)?,
            From::Symbol => maker.object(number, None, false, 1)?,
            From::Member(..) => {}
        }
    }
    let Maker { most, registers, mut guard, .. } = maker;
    if most > free + saved {
        return Err("there are too few registers to compare its facts");
    }
    let pushed = &registers[free.min(most)..most];
    let code = |simple: Simple| -> Result<Vec<u8>, Why> {
        Ok(specialize.encode(simple, false).ok_or("an operation has no encoding")?.bytes)
    };
    let mut front = Vec::new();
    for &reg in pushed {
        front.extend(code(Simple::Push(reg))?);
        let back = code(Simple::Pop(reg))?;
        guard.hit.bytes.splice(0..0, back.iter().copied());
        guard.miss.bytes.splice(0..0, back);
        guard.instructions += 2;
    }
    if let Some((first, _)) = guard.blocks.first_mut() {
        let by = front.len() as u32;
        first.bytes.splice(0..0, front);
        first.refs.iter_mut().for_each(|reference| reference.offset += by);
    }
    Ok(guard)
}

struct Maker<'a> {
    graph: &'a Graph,
    specialize: &'a dyn Specialize,
    context: &'a Context,
    used: &'a BTreeSet<usize>,
    needed: Vec<bool>,
    registers: Vec<Reg>,
    /// Number of registers used.
    most: usize,
    current: Contents,
    guard: Guard,
}

impl Maker<'_> {
    /// Compares the facts about an object whose address is in a register, and about the objects to which it points. The
    /// registers from `depth` on are free; the one before it may be overwritten if `own` says so. The first register is for
    /// sums.
    fn object(&mut self, number: usize, base: Option<Reg>, own: bool, depth: usize) -> Result<(), Why> {
        let object = &self.context.objects[number];
        if let Some(reg) = base.filter(|_| object.may_be_null) {
            self.add(Simple::TestRegister(reg), None)?;
            self.branch(true);
        }
        let mut zeros = Vec::new();
        let facts: Vec<_> = self.context.facts.iter().enumerate().collect();
        for (fact_number, fact) in facts {
            if fact.object != number || !self.used.contains(&fact_number) {
                continue;
            }
            let place = self.place(number, base, fact.offset)?;
            match fact.value {
                Value::Name(..) => continue,
                Value::Bits(bits) if bits.get() == Some(0) => zeros.push(place),
                Value::Bits(bits) => self.bits(place, bits.known, bits.value)?,
                value => {
                    let address = target(self.graph, value).ok_or("a fact is unknown")?;
                    self.compare(place, 0, WORD as u8, Some(address))?;
                }
            }
            self.guard.compared += 1;
        }
        match zeros[..] {
            [] => {}
            [place] => self.compare(place, 0, WORD as u8, None)?,
            [first, ref others @ ..] => {
                let sum = self.register(0)?;
                self.add(Simple::Load(sum, first.0), first.1)?;
                for place in others {
                    self.add(Simple::Or(sum, place.0), place.1)?;
                }
                self.branch(false);
            }
        }
        let members: Vec<(usize, i32)> = (0..self.context.objects.len())
            .filter(|&inner| self.needed[inner])
            .filter_map(|inner| match self.context.objects[inner].from {
                From::Member(outer, offset) if outer == number => Some((inner, offset)),
                _ => None,
            })
            .collect();
        for (at, &(inner, offset)) in members.iter().enumerate() {
            let is_last = at + 1 == members.len();
            let (reg, next) = match base.filter(|_| own && is_last) {
                Some(reg) => (reg, depth),
                None => (self.register(depth)?, depth + 1),
            };
            let place = self.place(number, base, offset)?;
            self.add(Simple::Load(reg, place.0), place.1)?;
            self.guard.compared += 1;
            self.object(inner, Some(reg), true, next)?;
        }
        Ok(())
    }

    fn register(&mut self, number: usize) -> Result<Reg, Why> {
        self.most = self.most.max(number + 1);
        self.registers.get(number).copied().ok_or("there are too few registers to compare its facts")
    }

    /// Returns the place of a word of an object, and the address in its displacement.
    fn place(
        &self,
        number: usize,
        base: Option<Reg>,
        offset: i32,
    ) -> Result<(Place, Option<(kcfg::graph::Target, i64)>), Why> {
        match (self.context.objects[number].base, base) {
            (Base::Symbol(symbol), _) => {
                let target = self.graph.target_of(symbol).ok_or("a fact is unknown")?;
                Ok((Place { base: None, displacement: 0 }, Some((target, offset.into()))))
            }
            (_, Some(reg)) => Ok((Place { base: Some(reg), displacement: offset }, None)),
            _ => Err("a fact is unknown"),
        }
    }

    /// Compares some bits of a word.
    fn bits(&mut self, place: Located, known: u32, value: u32) -> Result<(), Why> {
        let part = |at: i32, width: u8| {
            let mask = u32::MAX >> (32 - 8 * u32::from(width));
            (known >> (8 * at) & mask, value >> (8 * at) & mask, mask)
        };
        let at = |offset: i32| {
            (moved(place.0, offset), place.1.map(|(to, addend)| (to, addend + i64::from(offset))))
        };
        if known == u32::MAX {
            return self.compare(place, value, WORD as u8, None);
        }
        for half in [0, 2] {
            let (mask, own, all) = part(half, 2);
            if mask == all {
                self.compare(at(half), own, 2, None)?;
                continue;
            }
            for byte in [half, half + 1] {
                let (mask, own, all) = part(byte, 1);
                if mask == all {
                    self.compare(at(byte), own, 1, None)?;
                    continue;
                }
                if mask & !own != 0 {
                    self.test(at(byte), mask & !own, false)?;
                }
                for bit in (0..8).map(|bit| 1 << bit).filter(|bit| own & bit != 0) {
                    self.test(at(byte), bit, true)?;
                }
            }
        }
        Ok(())
    }

    fn compare(
        &mut self,
        place: Located,
        number: u32,
        width: u8,
        address: Option<(kcfg::graph::Target, i64)>,
    ) -> Result<(), Why> {
        let simple = Simple::Compare(place.0, number, width);
        let encoded =
            self.specialize.encode(simple, address.is_some()).ok_or("an operation has no encoding")?;
        let start = self.current.bytes.len() as u32;
        if let Some(to) = place.1 {
            let at = encoded.displacement.ok_or("an operation has no field for an address")?;
            self.current.refs.push(reference(self.graph, start + u32::from(at), to));
        }
        if let Some(to) = address {
            let at = encoded.number.ok_or("an operation has no field for an address")?;
            self.current.refs.push(reference(self.graph, start + u32::from(at), to));
        }
        self.current.bytes.extend(encoded.bytes);
        self.guard.instructions += 1;
        self.branch(false);
        Ok(())
    }

    /// Tests bits, and misses if none is set (`true`) or any is.
    fn test(&mut self, place: Located, mask: u32, none: bool) -> Result<(), Why> {
        self.add(Simple::Test(place.0, mask, 1), place.1)?;
        self.branch(none);
        Ok(())
    }

    fn add(&mut self, simple: Simple, address: Option<(kcfg::graph::Target, i64)>) -> Result<(), Why> {
        let encoded = self.specialize.encode(simple, false).ok_or("an operation has no encoding")?;
        if let Some(to) = address {
            let at = encoded.displacement.ok_or("an operation has no field for an address")?;
            let start = self.current.bytes.len() as u32;
            self.current.refs.push(reference(self.graph, start + u32::from(at), to));
        }
        self.current.bytes.extend(encoded.bytes);
        self.guard.instructions += 1;
        Ok(())
    }

    fn branch(&mut self, equal: bool) {
        self.guard.blocks.push((std::mem::take(&mut self.current), equal));
        self.guard.instructions += 1;
    }
}

/// A place in memory, with the address in its displacement if there is one.
type Located = (Place, Option<(kcfg::graph::Target, i64)>);

fn moved(place: Place, by: i32) -> Place {
    match place.base {
        Some(_) => Place { displacement: place.displacement + by, ..place },
        // The address in the displacement moves.
        None => place,
    }
}

/// Returns the registers for comparisons: those that nobody needs at the entry of a function and that it may change, and
/// those that it preserves.
pub fn scratch(live: u64, changes: u64, stack_pointer: Reg, clobbered: u64) -> Scratch {
    let all = (0..super::state::REGISTERS as u8).map(Reg).filter(|&reg| reg != stack_pointer);
    let (free, others): (Vec<Reg>, Vec<Reg>) =
        all.partition(|&reg| live & bit(reg) == 0 && clobbered & changes & bit(reg) != 0);
    let saved = others.into_iter().filter(|&reg| clobbered & bit(reg) == 0).collect();
    Scratch { free, saved }
}

/// The encoding of the code.
pub const ENCODING: Encoding = Encoding::Main;
