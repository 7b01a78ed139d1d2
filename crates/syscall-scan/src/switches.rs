//! The targets of computed jumps.
//!
//! Most are switches: an index selects an entry of a table. The flow of values determines the entries if the table's
//! address and the bounds of the index are known. With the address alone, it follows the entries as long as they lead
//! to instructions of the jump's own function.
//!
//! If neither is known ([`among_own_tables`]), the form of the jump decides:
//!
//! - The jump adds a table entry to the table's own address. Compilers load that address in the same function, so that
//!   it is one of the constants in the function's instructions. Entries of another switch's table are accepted as well,
//!   if they lead to instructions of the function.
//! - The jump goes to the address in a word of memory, as in interpreters with tables of label addresses. Its targets
//!   are then the places within the function that words of data point to. An instruction that loads the address of a
//!   label makes the label address-taken.

use std::cmp::Ordering;
use std::rc::Rc;

use kflow::BlockIndex;
use kisa::{Address, BinaryOp, Effect, Flow, Reg, Value, sign_extend};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::code::{Block, Code, Entry, ExitId, ExitKind, Function};
use crate::flow::{Flows, FunctionStates, State, constant_address};
use crate::image::{Addr, Extent, Image};
use crate::values::{Atom, Origin, ValueSet};

/// Maximum number of entries of a jump table without a known bound.
const MAX_UNBOUNDED: u64 = 1024;

/// Number of table entries to search for the first address of a function.
const MAX_OPTIONAL: u64 = 64;

/// Maximum number of equally sized code pieces that a jump selects from.
const MAX_PIECES: u64 = 256;

/// Maximum number of entries of a table with a bounded index. An unknown byte is not a bound.
const MAX_BOUNDED: u64 = 0xff;

/// Maximum number of blocks that are searched backwards for the instructions that compute the target of a jump.
const MAX_WAYS: usize = 200;

/// Maximum number of tables of a function that are tried for a jump.
const MAX_TABLES: usize = 64;

/// The known targets of a computed jump.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Targets {
    /// All targets, by rising address.
    Known {
        /// The targets.
        targets: Vec<Addr>,
        /// Whether they probably come from a table in memory.
        table: bool,
    },
    /// The jump leaves the function (a tail call), or is never reached.
    Leaves,
    /// The targets are unknown.
    Unknown,
}

impl Targets {
    /// Creates known targets.
    fn of(mut targets: Vec<Addr>, table: bool) -> Targets {
        targets.sort_unstable();
        targets.dedup();
        Targets::Known { targets, table }
    }

    /// Joins the targets of a jump that several functions contain.
    pub(crate) fn join(self, other: Targets) -> Targets {
        match (self, other) {
            (Targets::Unknown, _) | (_, Targets::Unknown) => Targets::Unknown,
            (Targets::Leaves, targets) | (targets, Targets::Leaves) => targets,
            (Targets::Known { targets, table }, Targets::Known { targets: more, table: of_more }) => {
                Targets::of([targets, more].concat(), table || of_more)
            }
        }
    }
}

/// Returns the targets of a computed jump that ends a chain of blocks ([`Function::chain_to`]), if the chain determines
/// them, given the numbers that registers hold before it. The chain suffices for most switches: they compare an index
/// and load the address of a table just before they read an entry.
pub(crate) fn targets_along(
    flows: &mut Flows,
    at: Addr,
    chain: &Function,
    numbers: &[(Reg, u64)],
) -> Option<Targets> {
    let target = flows.after_chain(chain, numbers)?.target.filter(ValueSet::is_numbers)?;
    let (targets, _) = resolve(flows, at, &target, None)?;
    let code = flows.code;
    // The chain does not include the value of the stack pointer, and therefore cannot distinguish a switch from a tail
    // call through a table of functions. Without extents of functions, words of data point to the targets of such a
    // table.
    let is_pointed_to = || code.image.code_pointers().any(|(_, target)| targets.contains(&target));
    let is_inside = |&target: &Addr| is_inside(code, at, target);
    if !targets.iter().all(is_inside) || code.image.extent_or_symbol(at).is_none() && is_pointed_to() {
        return None;
    }
    let table = targets.len() > 1;
    Some(Targets::of(targets, table))
}

/// Returns the targets of a computed jump, over the functions that contain it.
pub(crate) fn targets(flows: &mut Flows, at: Addr, functions: &[Addr]) -> Targets {
    let mut all = Vec::new();
    let (mut leaves, mut table) = (true, false);
    for &entry in functions {
        let flow = &flows.flow(entry);
        let Some(before) = flows.before(flow, at) else { continue };
        let switch = || {
            let lookups = Lookup::of(flows.code, flow, at).unwrap_or_default();
            lookups.iter().any(|lookup| lookup.is_switch(flows.code, at))
        };
        let within = flows.is_within_function(&before) || switch();
        let after = flows.after(flow, at);
        let target = after.as_ref().and_then(|after| after.target.clone()).unwrap_or(ValueSet::Any);
        match resolve(flows, at, &target, after.as_ref().map(|after| &after.state)) {
            Some((mut targets, exact)) => {
                leaves = false;
                table |= within && exact && targets.len() > 1;
                // Bytes after the end of a table are not part of it.
                if within && targets.iter().any(|&target| is_inside(flows.code, at, target)) {
                    targets.retain(|&target| is_inside(flows.code, at, target));
                }
                all.extend(targets);
            }
            None if within || !may_be_function(flows, flow, &target) => return Targets::Unknown,
            None => {}
        }
    }
    if leaves { Targets::Leaves } else { Targets::of(all, table) }
}

/// Returns whether an unknown value may be the address of a function, as in a tail call: an argument, a value read from
/// memory, or a callee's result. A sum with a distance, as in jump tables, leads to a place in the function.
fn may_be_function(flows: &mut Flows, flow: &FunctionStates, target: &ValueSet) -> bool {
    target.elements().iter().all(|atom| match flows.domain.origins.get(atom.origin) {
        Origin::Made { at, .. } => !adds_distance(flows, flow, at),
        Origin::Element { table, stride, width, signed: false, .. } if atom.offset == 0 => {
            let image = flows.code.image;
            let entry = |index: u64| image.constant(table.plus(index * u64::from(stride)), width);
            // The program checks for missing functions before the jump.
            let mut code = (0..MAX_OPTIONAL).filter_map(entry).filter(|&entry| image.is_code(Addr(entry)));
            code.next().is_some_and(|entry| is_known_beginning(flows.code, Addr(entry)))
        }
        Origin::Element { .. } | Origin::Low { .. } | Origin::Signed { .. } => false,
        Origin::Number => true,
        // An unknown added to a code address leads to a place near it.
        _ => !flows.code.image.is_code(Addr(atom.offset)),
    })
}

/// Returns whether symbols, the unwind table or callers indicate that a function begins at an address.
fn is_known_beginning(code: &Code, address: Addr) -> bool {
    let extent = code.image.extent_or_symbol(address);
    let begins = extent.is_some_and(|extent| extent.start == address);
    code.image.is_code(address)
        && (begins || code.image.is_function(address) || code.entry(address).is_some())
}

/// Returns whether an instruction adds a number and a sign-extended half word.
fn adds_distance(flows: &mut Flows, flow: &FunctionStates, at: Addr) -> bool {
    let effects = flows.code.effects_at(at);
    let parts = effects.iter().flat_map(|effect| match *effect {
        Effect::Binary { op: BinaryOp::Add, left: Value::Reg { reg: a, .. }, right, .. } => match right {
            Value::Reg { reg: b, .. } => [Some(a), Some(b)],
            _ => [Some(a), None],
        },
        Effect::Set { value: Value::Address(address), .. } => {
            [address.base, address.index.map(|(index, _)| index)]
        }
        _ => [None; 2],
    });
    let parts: Vec<Reg> = parts.flatten().collect();
    let Some(state) = flows.before(flow, at).filter(|_| !parts.is_empty()) else { return false };
    let (code, origins) = (flows.code, &flows.domain.origins);
    let is_distance = |origin| match origins.get(origin) {
        Origin::Element { .. } | Origin::Signed { .. } => true,
        Origin::Made { at, .. } => {
            code.effects_at(at).iter().any(|effect| matches!(effect, Effect::SetSigned { .. }))
        }
        _ => false,
    };
    parts.iter().any(|&part| state.register(part).elements().iter().any(|atom| is_distance(atom.origin)))
}

/// Returns the possible addresses of a jump target and whether they are exact. `state` bounds unknown values. A program
/// does not jump to a place without code.
fn resolve(flows: &Flows, at: Addr, target: &ValueSet, state: Option<&State>) -> Option<(Vec<Addr>, bool)> {
    let image = flows.code.image;
    let mut targets = Vec::new();
    let mut exact = true;
    for atom in target.elements() {
        match flows.domain.origins.get(atom.origin) {
            Origin::Number if image.is_code(Addr(atom.offset)) => targets.push(Addr(atom.offset)),
            Origin::Number => {}
            Origin::Element { table, stride, width, signed, .. } => {
                let entries = unbounded(flows.code, at, table, stride, |entry| {
                    let entry = image.constant(entry, width)?;
                    let entry = if signed { sign_extend(entry, width) } else { entry };
                    Some(Addr(image.wrap(entry.wrapping_add(atom.offset))))
                });
                targets.extend(entries?);
                exact &= image.extent_or_symbol(at).is_some();
            }
            // Consecutive pieces of code of equal size, as in functions that copy memory.
            _ => {
                let ranges = &state?.ranges;
                let span = ranges.get(*atom, &flows.domain);
                if span.steps() < MAX_PIECES && span.iter().all(|piece| image.is_code(Addr(piece))) {
                    targets.extend(span.iter().map(Addr));
                } else {
                    let size = ranges.get(Atom::of(atom.origin), &flows.domain).step;
                    targets.extend(unrolled(flows.code, Addr(atom.offset), size)?);
                }
            }
        }
    }
    (!targets.is_empty()).then_some((targets, exact))
}

/// Returns the entries of a jump table of unknown size, as long as they lead to instructions of the jump's own
/// function. `None` if the extent of the function is unknown. On machines where few extents are known, entries
/// that lead to any code count instead.
fn unbounded(
    code: &Code,
    at: Addr,
    table: Addr,
    stride: u8,
    entry: impl Fn(Addr) -> Option<Addr>,
) -> Option<Vec<Addr>> {
    if code.image.extent_or_symbol(at).is_none() && !code.image.machine.target().has_unwind_index {
        return None;
    }
    let entries = (0..MAX_UNBOUNDED)
        .map_while(|index| entry(table.plus(index * u64::from(stride))))
        .take_while(|&target| is_inside(code, at, target));
    Some(entries.collect())
}

/// Returns the pieces of unrolled code of equal size from which a jump selects the first to run, as in functions that
/// divide or copy. They begin with the first piece and continue while each piece begins with an instruction and falls
/// through to the next. `None` if there is only one.
fn unrolled(code: &Code, first: Addr, size: u64) -> Option<Vec<Addr>> {
    if size <= 1 || !code.image.is_code(first) {
        return None;
    }
    let mut pieces = vec![first];
    let mut at = first;
    while let Some(insn) = code.decode(at).filter(|_| (pieces.len() as u64) < MAX_PIECES) {
        if !matches!(insn.flow, Flow::Next) {
            break;
        }
        at = at.plus(insn.len.into());
        let next = pieces.last()?.plus(size);
        match at.cmp(&next) {
            Ordering::Less => {}
            Ordering::Equal => pieces.push(next),
            Ordering::Greater => break,
        }
    }
    (pieces.len() > 1).then_some(pieces)
}

/// Returns whether an address may belong to an instruction of the same function as a jump, including cold parts
/// elsewhere. Without extents of functions, every address may.
fn is_inside(code: &Code, at: Addr, target: Addr) -> bool {
    let image = code.image;
    let own = image.extent_or_symbol(at);
    let is_part = |part: Extent| code.entry(part.start).is_none() && !begins_function(image, part.start);
    let extent = image.extent_or_symbol(target);
    image.is_code(target)
        && (own.is_none() || extent == own || extent.is_some_and(is_part))
        && code.is_instruction(target)
}

/// Returns whether a symbol marks the beginning of a function, rather than of a part of one.
fn begins_function(image: &Image, at: Addr) -> bool {
    image.is_function(at) && !image.function_at(at).is_some_and(|name| name.contains(".cold"))
}

/// Shared data for the jumps of the same functions that are resolved with the functions' tables. An interpreter may
/// have thousands of jumps, and as many labels.
pub(crate) struct OwnTables<'c> {
    flows: Flows<'c>,
    /// The functions of the previous jump.
    entries: Vec<Addr>,
    functions: Vec<Rc<FunctionStates>>,
    tables: FxHashSet<Addr>,
    /// The labels by the extent of the jump's function, from the unwind table and from symbols.
    labels: FxHashMap<[Option<Extent>; 2], Vec<Addr>>,
}

impl<'c> OwnTables<'c> {
    /// Creates an empty cache.
    pub(crate) fn new(code: &'c Code<'c>) -> OwnTables<'c> {
        OwnTables {
            flows: Flows::new(code),
            entries: Vec::new(),
            functions: Vec::new(),
            tables: FxHashSet::default(),
            labels: FxHashMap::default(),
        }
    }

    /// Switches to the functions with these entries.
    fn enter(&mut self, entries: &[Addr]) {
        if self.entries == entries {
            return;
        }
        self.entries = entries.to_vec();
        self.functions = entries.iter().map(|&entry| self.flows.flow(entry)).collect();
        self.tables.clear();
        for block in self.functions.iter().flat_map(|flow| &flow.function.blocks) {
            self.tables.extend(constants(self.flows.code, block.start, block.end));
        }
    }

    fn labels(&mut self, at: Addr) -> &[Addr] {
        let code = self.flows.code;
        let extents = [code.image.extent_around(at), code.image.extent_or_symbol(at)];
        self.labels.entry(extents).or_insert_with(|| labels(code, at).collect())
    }
}

/// Finds the targets of a jump through a table at an unknown address: the entries of all tables of its functions. A
/// jump through any other word of memory may reach all labels.
pub(crate) fn among_own_tables(own: &mut OwnTables, jump: ExitId, functions: &[Addr]) -> Targets {
    let code = own.flows.code;
    let at = code.exit(jump).at;
    // Without relative addresses, code may load the address of a table in several steps.
    if !code.image.machine.target().has_relative_addresses || code.image.extent_or_symbol(at).is_none() {
        return Targets::Unknown;
    }
    let is_pad = |&entry: &Addr| code.entry(entry).is_some_and(Entry::is_landing_pad);
    // Values computed before an exception remain valid at a landing pad.
    if functions.iter().all(is_pad) {
        return Targets::Unknown;
    }
    own.enter(functions);
    if own.tables.len() > MAX_TABLES {
        return Targets::Unknown;
    }
    let mut all = Vec::new();
    for flow in &own.functions.clone() {
        let Some(lookups) = Lookup::of(code, flow, at) else { return Targets::Unknown };
        for lookup in lookups {
            let (true, Some((index, _))) = (lookup.relative, lookup.index) else {
                // A value saved in the frame may have been computed before.
                if lookup.index.is_none()
                    && lookup.base.is_some_and(|base| own.flows.is_in_frame(flow, lookup.at, base))
                {
                    return Targets::Unknown;
                }
                all.extend(own.labels(at));
                continue;
            };
            let Some(span) = own.flows.span(flow, lookup.at, index) else { continue };
            for &table in &own.tables {
                let target = |index| lookup.target(code.image, table, index);
                if span.steps() < MAX_BOUNDED {
                    let targets = span.iter().filter_map(target);
                    all.extend(targets.filter(|&target| is_inside(code, at, target)));
                } else {
                    // Start at the beginning of the table: the index may be negative. A distance of 0 leads nowhere.
                    let targets = (0..MAX_UNBOUNDED)
                        .map_while(|index| lookup.entry(code.image, table, index))
                        .filter(|&target| target != table);
                    all.extend(targets.take_while(|&target| is_inside(code, at, target)));
                }
            }
        }
    }
    if all.is_empty() { Targets::Unknown } else { Targets::of(all, true) }
}

/// Returns the addresses of constant data that instructions between two addresses load.
fn constants(code: &Code, start: Addr, end: Addr) -> Vec<Addr> {
    let instructions = code.instructions_from(start).take_while(|&at| at < end);
    let made = instructions.flat_map(|at| code.effects_at(at)).filter_map(|effect| match effect {
        Effect::Set { value, .. } => Some(Addr(code.image.wrap(constant_address(value)?))),
        _ => None,
    });
    let is_data =
        |address: &Addr| code.image.constant(*address, 4).is_some() && !code.image.is_code(*address);
    made.filter(is_data).collect()
}

/// Returns the instructions of a jump's function that words of data point to, except its beginning.
fn labels(code: &Code, at: Addr) -> impl Iterator<Item = Addr> {
    let image = code.image;
    let own = image.extent_around(at);
    let pointers = image.object_at(at).into_iter().flat_map(|loaded| &loaded.code_pointers);
    let targets = pointers.map(|&(_, target)| target);
    targets.filter(move |&target| own.is_some_and(|own| own.start != target) && is_inside(code, at, target))
}

/// The way in which a jump reads its target from a table: `movslq (%base,%index,4),%x; add %base,%x; jmp *%x`, or
/// `jmp *(%base,%index,8)`, or similar.
struct Lookup {
    /// The instruction that reads the table.
    at: Addr,
    /// The register that holds the address of the table.
    base: Option<Reg>,
    /// The register that holds the index, and the distance of entries in bytes. `None` if the word is not a table
    /// entry.
    index: Option<(Reg, u8)>,
    /// The displacement added to the address of the table.
    displacement: i64,
    /// Size of an entry in bytes.
    width: u8,
    /// Whether entries are signed and relative to the table's address.
    relative: bool,
}

impl Lookup {
    /// Returns the look-ups of a jump, one for each path to it; `None` if some path has none.
    fn of(code: &Code, flow: &FunctionStates, jump: Addr) -> Option<Vec<Lookup>> {
        let word = code.image.machine.word_size();
        let transfer = Effect::target(&code.effects_at(jump))?;
        let Value::Reg { reg: wanted, width } = transfer else {
            let lookup = Lookup::reading(jump, transfer, None)?;
            return (lookup.width == word).then(|| vec![lookup]);
        };
        let mut ways = LookupSearch { code, flow, seen: FxHashSet::default(), found: Vec::new() };
        let block = flow.function.block_at(jump)?;
        (width == word && ways.search(block, jump, wanted, None).is_some()).then_some(ways.found)
    }

    /// Returns the look-up by an instruction that reads `value`, to which `added` is added later.
    fn reading(at: Addr, value: Value, added: Option<Reg>) -> Option<Lookup> {
        let Value::Load { from, width } = value else { return None };
        let same = added.is_none_or(|added| from.base == Some(added) && from.index.is_some())
            && from.segment.is_none();
        let Address { base, index, displacement, .. } = from;
        same.then_some(Lookup { at, base, index, displacement, width, relative: added.is_some() })
    }

    /// Returns whether it reads labels in the function of the jump at `at`, as a switch does, rather than functions.
    fn is_switch(&self, code: &Code, at: Addr) -> bool {
        let first = || code.image.constant(Addr(code.image.wrap(self.displacement as u64)), self.width);
        let is_label =
            |first: u64| code.image.extent_or_symbol(at).is_some() && is_inside(code, at, Addr(first));
        let is_table = self.base.is_none() && self.index.is_some();
        self.relative || is_table && first().is_some_and(is_label)
    }

    /// Returns the target for an index into a table with relative entries; `None` if there is no entry.
    fn target(&self, image: &Image, table: Addr, index: u64) -> Option<Addr> {
        let distance = index.wrapping_mul(self.index?.1.into()).wrapping_add_signed(self.displacement);
        self.at_distance(image, table, distance)
    }

    /// Returns the target for the numbered entry of such a table, counted from its beginning.
    fn entry(&self, image: &Image, table: Addr, number: u64) -> Option<Addr> {
        self.at_distance(image, table, number.wrapping_mul(self.index?.1.into()))
    }

    fn at_distance(&self, image: &Image, table: Addr, distance: u64) -> Option<Addr> {
        let entry = Addr(image.wrap(table.0.wrapping_add(distance)));
        let content = image.constant(entry, self.width)?;
        Some(Addr(image.wrap(table.0.wrapping_add(sign_extend(content, self.width)))))
    }
}

/// A search for the instructions that compute the target of a jump in a register.
struct LookupSearch<'w, 'c> {
    code: &'w Code<'c>,
    flow: &'w FunctionStates,
    seen: FxHashSet<(BlockIndex, Reg, Option<Reg>)>,
    found: Vec<Lookup>,
}

impl LookupSearch<'_, '_> {
    /// Searches before `end`, which is in `block`, and in the preceding blocks. `wanted` holds the target, or becomes
    /// it when `added` is added. `None` if the target is computed in any other way.
    fn search(&mut self, block: BlockIndex, end: Addr, mut wanted: Reg, added: Option<Reg>) -> Option<()> {
        let code = self.code;
        let word = code.image.machine.word_size();
        let blocks = &self.flow.function.blocks;
        let start = blocks[block.get()].start;
        let instructions: Vec<Addr> = code.instructions_from(start).take_while(|&at| at < end).collect();
        for at in instructions.into_iter().rev() {
            let effects = code.effects_at(at);
            let writes = |reg: Reg| effects.iter().any(|effect| effect.registers_written() >> reg.0 & 1 != 0);
            if !writes(wanted) {
                if added.is_some_and(writes) {
                    return None;
                }
                continue;
            }
            match *effects.first()? {
                Effect::Binary { op: BinaryOp::Add, dst, left, right: Value::Reg { reg, width }, .. }
                    if added.is_none() && width == word && left == (Value::Reg { reg: dst, width }) =>
                {
                    // Either register may be the entry.
                    let (seen, found) = (self.seen.clone(), self.found.len());
                    return self.search(block, at, dst, Some(reg)).or_else(|| {
                        self.seen = seen;
                        self.found.truncate(found);
                        self.search(block, at, reg, Some(dst))
                    });
                }
                Effect::Set { value: Value::Reg { reg, width }, .. } if width == word => wanted = reg,
                Effect::SetSigned { value, width, .. } if width == word && added.is_some() => {
                    self.found.push(Lookup::reading(at, value, added)?);
                    return Some(());
                }
                Effect::Set { value, width, .. } if width == word && added.is_none() => {
                    self.found.push(Lookup::reading(at, value, None).filter(|lookup| lookup.width == word)?);
                    return Some(());
                }
                _ => return None,
            }
        }
        if !self.seen.insert((block, wanted, added)) {
            return Some(());
        }
        if block == BlockIndex(0) || self.seen.len() > MAX_WAYS {
            return None;
        }
        for &before in self.flow.predecessors(block) {
            let Block { end, exit, .. } = blocks[before.get()];
            let keeps = |register| !code.isa.convention().clobbers(register);
            let goes_on = |exit| match code.exit(exit).kind {
                ExitKind::Jump | ExitKind::IndirectJump => true,
                _ => keeps(wanted) && added.is_none_or(keeps),
            };
            if !exit.is_none_or(goes_on) {
                return None;
            }
            self.search(before, end, wanted, added)?;
        }
        Some(())
    }
}
