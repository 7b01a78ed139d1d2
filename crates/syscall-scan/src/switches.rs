//! Where computed jumps go.
//!
//! Most are those of switches: an entry of a table, chosen by an index. The flow of values tells the entries where
//! it knows the table's address and the bounds of the index, and, as long as entries lead to instructions of the
//! jump's own function, where it knows the address alone.
//!
//! Where it knows neither ([`among_own_tables`]), what the jump is made of does:
//!
//! - It adds an entry of a table to the table's own address. Compilers make that address in the same function,
//!   since nobody else has a use for it, so that it is one of the constants that instructions of the function
//!   make. Entries of a table that is another switch's are taken as well, if they lead to instructions of the
//!   function.
//! - It goes to an entry of a table, as interpreters do whose tables hold the addresses of labels. It goes to one
//!   of the places within the function then that words of data point to; wherever an instruction makes the address
//!   of a label, that counts as code which may be called.

use kcfg::isa::{BinaryOp, Effect, Reg, Value as Operand};
use kelf::Machine;
use rustc_hash::FxHashSet;

use crate::code::{Code, ExitId, Taken};
use crate::flow::{Flow, Flows, sign_extend};
use crate::image::{Addr, Extent, Image};
use crate::values::{Origin, Value};

/// The most entries of a jump table whose index has no known bound.
const MAX_UNBOUNDED: u64 = 1024;

/// The most pieces of code of one size that a jump chooses from.
const MAX_PIECES: u64 = 256;

/// How many entries at most a table has whose index is known to be bounded. A byte of which nothing is known is no
/// bound.
const MAX_BOUNDED: u64 = 0xff;

/// The most tables of a function that are tried for a jump.
const MAX_TABLES: usize = 64;

/// What is known about a computed jump.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Targets {
    /// Nothing new since the function had this many blocks.
    Unchanged,
    /// These, by rising address.
    Known {
        /// The targets.
        targets: Vec<Addr>,
        /// Whether a table in memory holds them, as far as can be told.
        table: bool,
    },
    /// It leaves the function (a tail call), or control never gets to it.
    Leaves,
    /// They are not known.
    Unknown,
}

/// Where a computed jump goes, over all functions that it is in; and how many blocks these have. They had
/// `before` when it was last looked at.
pub(crate) fn targets(flows: &mut Flows, at: Addr, before: usize) -> (usize, Targets) {
    let functions = flows.code.functions_of(at);
    let blocks = functions.iter().map(|&entry| flows.function(entry).blocks.len()).sum();
    let targets = if blocks == before { Targets::Unchanged } else { find_targets(flows, at, functions) };
    (blocks, targets)
}

fn find_targets(flows: &mut Flows, at: Addr, functions: Vec<Addr>) -> Targets {
    let mut all = Vec::new();
    let (mut leaves, mut table) = (true, false);
    for entry in functions {
        let flow = flows.flow(entry);
        let Some(before) = flows.before(&flow, at) else { continue };
        let switch = || Lookup::of(flows.code, &flow, at).is_some_and(|lookup| lookup.relative);
        let within = flows.is_within_function(&before) || switch();
        let after = flows.after(&flow, at);
        let target = after.as_ref().and_then(|after| after.target.clone()).unwrap_or(Value::Any);
        match resolve(flows, at, &target, after.as_ref().map(|after| &after.state)) {
            Some(mut targets) => {
                leaves = false;
                table |= within && targets.len() > 1;
                // What lies behind the end of a table is no part of it.
                if within && targets.iter().any(|&target| is_inside(flows.code, at, target)) {
                    targets.retain(|&target| is_inside(flows.code, at, target));
                }
                all.extend(targets);
            }
            None if within || !may_be_function(flows, &flow, &target) => return Targets::Unknown,
            None => {}
        }
    }
    all.sort_unstable();
    all.dedup();
    if leaves { Targets::Leaves } else { Targets::Known { targets: all, table } }
}

/// The addresses that the target of a jump may be. Where there is no code, a program does not go.
fn resolve(flows: &Flows, at: Addr, target: &Value) -> Option<Vec<Addr>> {
    let image = flows.code.image;
    let mut targets = Vec::new();
    for atom in target.atoms() {
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
            }
            _ => return None,
        }
    }
    (!targets.is_empty()).then_some(targets)
}

/// The entries of a jump table of unknown size: as long as they lead to instructions of the jump's own
/// function. `None` where nothing says how far the function goes.
fn unbounded(
    code: &Code,
    at: Addr,
    table: Addr,
    stride: u8,
    entry: impl Fn(Addr) -> Option<Addr>,
) -> Option<Vec<Addr>> {
    code.image.extent_around(at)?;
    let entries = (0..MAX_UNBOUNDED)
        .map_while(|index| entry(table.plus(index * u64::from(stride))))
        .take_while(|&target| is_inside(code, at, target));
    Some(entries.collect())
}

/// Whether an address may be one of an instruction of the same function as a jump, or of a part of it that lies
/// elsewhere, at whose beginning nobody calls. Where nothing says how far functions go, any may be.
fn is_inside(code: &Code, at: Addr, target: Addr) -> bool {
    let image = code.image;
    let Some(own) = image.extent_around(at) else { return true };
    let is_part = |part: Extent| code.entry(part.start).is_none() && !begins_function(image, part.start);
    let extent = image.extent_around(target);
    image.is_code(target)
        && (extent == Some(own) || extent.is_some_and(is_part))
        && code.is_instruction(target)
}

/// Whether a symbol says that a function begins here, and not a part of one.
fn begins_function(image: &Image, at: Addr) -> bool {
    image.is_function(at) && !image.function_at(at).is_some_and(|name| name.contains(".cold"))
}

/// Where a jump goes within its function that takes an entry of a table whose address is not known: the entries of
/// all tables of the function.
pub(crate) fn among_own_tables(flows: &mut Flows, jump: ExitId) -> Targets {
    let code = flows.code;
    let at = code.exit(jump).at;
    // Elsewhere an address may be made in several steps.
    if code.image.machine != Machine::X86_64 || code.image.extent_around(at).is_none() {
        return Targets::Unknown;
    }
    let functions = code.functions_of(at);
    let is_pad = |&entry: &Addr| {
        let unwound = |taken: &Taken| *taken == Taken::Unwinder;
        code.entry(entry).is_some_and(|entry| entry.callers.is_empty() && entry.taken.iter().all(unwound))
    };
    // Where the unwinder enters a function, what it computed before is still there.
    if functions.iter().all(is_pad) {
        return Targets::Unknown;
    }
    let functions: Vec<_> = functions.into_iter().map(|entry| flows.flow(entry)).collect();
    let mut tables = FxHashSet::default();
    for block in functions.iter().flat_map(|flow| &flow.function.blocks) {
        tables.extend(constants(code, block.start, block.end));
    }
    if tables.len() > MAX_TABLES {
        return Targets::Unknown;
    }
    let mut all = Vec::new();
    for flow in &functions {
        let Some(lookup) = Lookup::of(code, flow, at) else { return Targets::Unknown };
        if !lookup.relative {
            all.extend(labels(code, at));
            continue;
        }
        let Some(span) = flows.span(flow, lookup.at, lookup.index) else { continue };
        for &table in &tables {
            let target = |index| lookup.target(code.image, table, index);
            if span.steps() < MAX_BOUNDED {
                let targets = span.iter().filter_map(target);
                all.extend(targets.filter(|&target| is_inside(code, at, target)));
            } else {
                let targets = (0..MAX_UNBOUNDED).map_while(target);
                all.extend(targets.take_while(|&target| is_inside(code, at, target)));
            }
        }
    }
    all.sort_unstable();
    all.dedup();
    if all.is_empty() { Targets::Unknown } else { Targets::Known { targets: all, table: true } }
}

/// The addresses of constant data that instructions between two addresses make.
fn constants(code: &Code, start: Addr, end: Addr) -> Vec<Addr> {
    let mut constants = Vec::new();
    let mut effects = Vec::new();
    let mut at = start;
    while at < end {
        effects.clear();
        code.effects(at, &mut effects);
        for effect in &effects {
            let Effect::Set { value, .. } = *effect else { continue };
            let address = match value {
                Operand::Const(number) => number,
                Operand::Address(address) if address.base.is_none() && address.index.is_none() => {
                    address.displacement as u64
                }
                _ => continue,
            };
            let address = Addr(code.image.wrap(address));
            if code.image.constant(address, 4).is_some() && !code.image.is_code(address) {
                constants.push(address);
            }
        }
        let Some(length) = code.length(at) else { break };
        at = at.plus(length);
    }
    constants
}

/// The instructions of the function of a jump that words of data point to. Its beginning is no label.
fn labels(code: &Code, at: Addr) -> impl Iterator<Item = Addr> {
    let image = code.image;
    let own = image.extent_around(at);
    let pointers = image.object_at(at).into_iter().flat_map(|loaded| &loaded.code_pointers);
    let targets = pointers.map(|&(_, target)| target);
    targets.filter(move |&target| own.is_some_and(|own| own.start != target) && is_inside(code, at, target))
}

/// How a jump takes its target from a table: `movslq (%base,%index,4),%x; add %base,%x; jmp *%x`, or
/// `jmp *(%base,%index,8)`, or the like.
struct Lookup {
    /// The instruction that reads the table.
    at: Addr,
    index: Reg,
    /// Bytes from one entry to the next.
    stride: u8,
    /// What is added to the address of the table.
    displacement: i64,
    /// Size of an entry in bytes.
    width: u8,
    /// Whether entries count from the table's address, and are signed.
    relative: bool,
}

impl Lookup {
    /// That of a jump, if its block has it.
    fn of(code: &Code, flow: &Flow, jump: Addr) -> Option<Lookup> {
        let block = &flow.function.blocks[flow.function.block_at(jump)?.get()];
        let mut instructions = Vec::new();
        let mut at = block.start;
        while at <= jump {
            let mut effects = Vec::new();
            code.effects(at, &mut effects);
            instructions.push((at, effects));
            at = at.plus(code.length(at)?);
        }
        let word = code.image.machine.word_size();
        let (_, last) = instructions.pop()?;
        let transfer = last.iter().find_map(|effect| match *effect {
            Effect::Transfer(value) => Some(value),
            _ => None,
        })?;
        let mut wanted = match transfer {
            Operand::Reg { reg, width } if width == word => reg,
            value => return Lookup::reading(jump, value, None).filter(|lookup| lookup.width == word),
        };
        let mut added = None;
        for (at, effects) in instructions.into_iter().rev() {
            let writes = |reg: Reg| effects.iter().any(|effect| written(effect) == Some(reg));
            if !writes(wanted) {
                if added.is_some_and(writes) {
                    return None;
                }
                continue;
            }
            match *effects.first()? {
                Effect::Binary {
                    op: BinaryOp::Add, dst, left, right: Operand::Reg { reg, width }, ..
                } if added.is_none() && width == word && left == (Operand::Reg { reg: dst, width }) => {
                    added = Some(reg);
                }
                Effect::Set { value: Operand::Reg { reg, width }, .. } if width == word => wanted = reg,
                Effect::SetSigned { value, width, .. } if width == word && added.is_some() => {
                    return Lookup::reading(at, value, added);
                }
                Effect::Set { value, width, .. } if width == word && added.is_none() => {
                    return Lookup::reading(at, value, None).filter(|lookup| lookup.width == word);
                }
                _ => return None,
            }
        }
        None
    }

    /// The look-up by an instruction that reads `value`, to which `added` is added later.
    fn reading(at: Addr, value: Operand, added: Option<Reg>) -> Option<Lookup> {
        let Operand::Load { from, width } = value else { return None };
        let (index, stride) = from.index?;
        let same = added.is_none_or(|added| from.base == Some(added)) && !from.segment;
        let (displacement, relative) = (from.displacement, added.is_some());
        same.then_some(Lookup { at, index, stride, displacement, width, relative })
    }

    /// The target by an entry that counts from the table's address; `None` if there is none.
    fn target(&self, image: &Image, table: Addr, index: u64) -> Option<Addr> {
        let entry = table.0.wrapping_add_signed(self.displacement);
        let entry = entry.wrapping_add(index.wrapping_mul(self.stride.into()));
        let content = image.constant(Addr(image.wrap(entry)), self.width)?;
        Some(Addr(image.wrap(table.0.wrapping_add(sign_extend(content, self.width)))))
    }
}

/// The register that an effect changes.
fn written(effect: &Effect) -> Option<Reg> {
    match *effect {
        Effect::Set { dst, .. }
        | Effect::MaybeSet { dst, .. }
        | Effect::SetSigned { dst, .. }
        | Effect::Binary { dst, .. }
        | Effect::Clobber(dst) => Some(dst),
        _ => None,
    }
}
