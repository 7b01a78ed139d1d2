//! The blocks of a path as they are added to the graph.

mod exits;
pub mod loadable;
mod shared;

use std::collections::BTreeMap;

use kcfg::graph::{Contents, Dest, Editor, Graph, Ref, Target, Terminator};
use kcfg::index::NodeId;
use kisa::specializing::Simple;
use kisa::{Branch, BranchKind, Reg};

use super::demand::{Demand, Exit, Form, Piece, PieceEnd, Way};
use super::explore::{Explorer, Why};
use super::guard::Guard;
use super::op::{Code, Maker, bit};
use super::state::{REGISTERS, WORD};
use super::value::Value;

/// A block of the path.
#[derive(Clone, Debug)]
struct Block {
    contents: Contents,
    end: Finish,
}

/// The end of a block, with blocks by number.
#[derive(Clone, Copy, Debug)]
enum Finish {
    Go(usize),
    Branch(u8, usize, usize),
    /// A call, and whether it is computed.
    Call(bool, usize),
    Return,
    Jump(Dest),
    /// A call of code that several exits share.
    Shared(usize, usize),
}

/// A path, ready to be added to a graph.
pub struct Path {
    blocks: Vec<Block>,
    /// Code that several exits share: it puts known words of the stack in place. With a number, it goes on to other shared
    /// code, and otherwise returns.
    shared: Vec<(Contents, Option<usize>)>,
    /// The block after the comparisons.
    hit: usize,
    /// The block that jumps to the original function; `None` without comparisons.
    miss: Option<usize>,
    /// Size in bytes without branches; of the exits among them.
    pub size: u64,
    pub exit_size: u64,
    /// Number of exits, and of the words that they store in shared code.
    pub exits: u64,
    pub shared_words: u64,
    /// Number of operations that are left, and of those that went.
    pub left: u64,
    pub gone: u64,
}

/// Lays out a path.
///
/// # Errors
/// The reason why it cannot be encoded.
pub fn lay_out(
    explorer: &Explorer<'_>,
    pieces: &[Piece],
    exits: &[Exit],
    after: &[Demand],
    guard: Guard,
    entry: NodeId,
) -> Result<Path, Why> {
    let maker = explorer.maker();
    let count = guard.blocks.len();
    let path = Path {
        blocks: Vec::new(),
        shared: Vec::new(),
        hit: count,
        miss: (count > 0).then_some(count + 1),
        size: 0,
        exit_size: 0,
        exits: 0,
        shared_words: 0,
        left: 0,
        gone: 0,
    };
    let mut layout = Layout { maker, path, starts: BTreeMap::new(), exits: BTreeMap::new() };
    let original = Dest { target: Target::Node(entry), offset: 0 };
    let isa = explorer.original.isa;
    let equal = isa.branch_if_equal(super::guard::ENCODING).ok_or("there is no such branch")?;
    let differ = isa.inverse(equal).ok_or("there is no such branch")?;
    let miss = count + 1;
    for (number, (contents, on_equal)) in guard.blocks.into_iter().enumerate() {
        let condition = if on_equal { equal.condition } else { differ.condition };
        layout.push(contents, Finish::Branch(condition, miss, number + 1));
    }
    let mut front = guard.hit;
    layout.move_stack(&mut front, explorer.lowest)?;
    layout.push(front, Finish::Go(0));
    if count > 0 {
        layout.push(guard.miss, Finish::Jump(original));
    }
    let first = layout.path.blocks.len();
    layout.path.blocks[count].end = Finish::Go(first);
    for number in order(pieces) {
        layout.piece(number, &pieces[number], &after[number])?;
    }
    layout.finish(exits)?;
    Ok(layout.path)
}

/// The pieces in an order in which most of them run on into the next one.
fn order(pieces: &[Piece]) -> Vec<usize> {
    let mut placed = vec![false; pieces.len()];
    let mut order = Vec::with_capacity(pieces.len());
    let mut pending = vec![0];
    while let Some(mut at) = pending.pop() {
        while !placed[at] {
            placed[at] = true;
            order.push(at);
            let ways = match &pieces[at].end {
                PieceEnd::Go(way) => vec![*way],
                PieceEnd::Branch(_, [taken, next]) => vec![*next, *taken],
                PieceEnd::Leave => Vec::new(),
            };
            let mut inner = ways.iter().filter_map(|way| match way {
                Way::To(piece) => Some(*piece),
                Way::Exit(_) => None,
            });
            let Some(next) = inner.next() else { break };
            pending.extend(inner);
            at = next;
        }
    }
    order
}

struct Layout<'e, 'g> {
    maker: Maker<'e, 'g>,
    path: Path,
    /// The first block of each piece.
    starts: BTreeMap<usize, usize>,
    /// The block of each exit.
    exits: BTreeMap<usize, usize>,
}

/// Numbers of blocks that are not laid out yet: pieces, and exits.
const PIECE: usize = 1 << 20;
const EXIT: usize = 1 << 21;

impl Layout<'_, '_> {
    fn push(&mut self, contents: Contents, end: Finish) {
        self.path.size += contents.bytes.len() as u64;
        self.path.blocks.push(Block { contents, end });
    }

    fn piece(&mut self, number: usize, piece: &Piece, after: &Demand) -> Result<(), Why> {
        self.starts.insert(number, self.path.blocks.len());
        let mut demand = after.clone();
        // From the last operation to the first.
        let mut forms = Vec::with_capacity(piece.ops.len());
        for op in piece.ops.iter().rev() {
            let free = demand.registers;
            forms.push((demand.before(op), free));
        }
        let mut current = Contents::default();
        for (op, (form, needed)) in piece.ops.iter().zip(forms.into_iter().rev()) {
            let op = match (form, &op.short) {
                (Form::None, _) => {
                    self.path.gone += 1;
                    continue;
                }
                (Form::Short, Some(short)) => short,
                _ => op,
            };
            self.path.left += 1;
            match &op.code {
                Code::Call(contents, stack) => {
                    let by = stack.map_or(0, |stack| stack - self.maker.lowest);
                    self.move_stack(&mut current, by)?;
                    let computed = !contents.refs.iter().any(|r| r.role == kcfg::graph::Role::Callee);
                    append(&mut current, contents.clone());
                    let next = self.path.blocks.len() + 1;
                    self.push(std::mem::take(&mut current), Finish::Call(computed, next));
                    self.move_stack(&mut current, -by)?;
                }
                code => self.code(&mut current, code, needed | op.reads)?,
            }
        }
        let place = |way: Way| match way {
            Way::To(piece) => PIECE + piece,
            Way::Exit(exit) => EXIT + exit,
        };
        match &piece.end {
            PieceEnd::Go(way) => self.push(current, Finish::Go(place(*way))),
            PieceEnd::Branch(condition, [taken, next]) => {
                self.push(current, Finish::Branch(*condition, place(*taken), place(*next)));
            }
            PieceEnd::Leave => {
                self.move_stack(&mut current, -self.maker.lowest)?;
                self.maker.explorer.original.isa.encode_return(super::guard::ENCODING, &mut current.bytes);
                self.push(current, Finish::Return);
            }
        }
        Ok(())
    }

    fn code(&self, current: &mut Contents, code: &Code, needed: u64) -> Result<(), Why> {
        let lowest = self.maker.lowest;
        match code {
            Code::Plain(contents) => append(current, contents.clone()),
            Code::Native(contents, before, after) => {
                self.move_stack(current, before - lowest)?;
                append(current, contents.clone());
                self.move_stack(current, lowest - after)?;
            }
            Code::Move(place, word, otherwise) => {
                let stack_pointer = self.maker.explorer.original.isa.convention().stack_pointer;
                let free = (0..REGISTERS as u8)
                    .map(Reg)
                    .find(|&reg| reg != stack_pointer && needed & bit(reg) == 0 && Some(reg) != place.base);
                let Some(reg) = free else { return self.code(current, otherwise, needed) };
                append(current, self.maker.simple(Simple::Load(reg, *place))?);
                append(current, self.maker.simple(Simple::Store(self.maker.slot(*word), reg, WORD as u8))?);
            }
            Code::Address(offset, word, otherwise) => {
                let stack_pointer = self.maker.explorer.original.isa.convention().stack_pointer;
                let free =
                    (0..REGISTERS as u8).map(Reg).find(|&reg| reg != stack_pointer && needed & bit(reg) == 0);
                let Some(reg) = free else { return self.code(current, otherwise, needed) };
                append(current, self.maker.set(reg, Value::Stack(*offset))?);
                append(current, self.maker.simple(Simple::Store(self.maker.slot(*word), reg, WORD as u8))?);
            }
            Code::Call(..) => return Err("a call is in the middle of a block"),
        }
        Ok(())
    }

    fn move_stack(&self, current: &mut Contents, by: i32) -> Result<(), Why> {
        if by != 0 {
            append(current, self.maker.simple(Simple::MoveStack(by))?);
        }
        Ok(())
    }

    /// Adds the exits that are used, and resolves the numbers of blocks.
    fn finish(&mut self, exits: &[Exit]) -> Result<(), Why> {
        self.add_exits(exits)?;
        let (starts, ends) = (&self.starts, &self.exits);
        let resolve = |to: usize| match to {
            _ if to >= EXIT => ends.get(&(to - EXIT)).copied().ok_or("an exit is missing"),
            _ if to >= PIECE => starts.get(&(to - PIECE)).copied().ok_or("a block is missing"),
            _ => Ok(to),
        };
        for block in &mut self.path.blocks {
            block.end = match block.end {
                Finish::Go(to) => Finish::Go(resolve(to)?),
                Finish::Call(computed, to) => Finish::Call(computed, resolve(to)?),
                Finish::Branch(condition, taken, next) => {
                    Finish::Branch(condition, resolve(taken)?, resolve(next)?)
                }
                other => other,
            };
        }
        Ok(())
    }
}

/// Size in bytes of a call.
const CALL: usize = 5;

/// Appends code.
fn append(code: &mut Contents, more: Contents) {
    let start = code.bytes.len() as u32;
    code.bytes.extend(more.bytes);
    code.refs.extend(more.refs.into_iter().map(|r| Ref { offset: r.offset + start, ..r }));
}

/// Returns a conditional branch, and the blocks where it leads if its condition holds and otherwise. It is inverted if
/// that avoids a branch to `following`, the block after it.
fn branch(
    graph: &Graph,
    condition: u8,
    taken: usize,
    next: usize,
    following: usize,
) -> (Branch, usize, usize) {
    let branch = Branch { kind: BranchKind::Conditional, condition };
    match graph.isa().inverse(branch) {
        Some(inverse) if taken == following => (inverse, next, taken),
        _ => (branch, taken, next),
    }
}

impl Path {
    /// Adds the path to a graph, as a function of its own after the section of its entry. Returns its first block.
    pub fn add(self, editor: &mut Editor<'_>, entry: NodeId) -> NodeId {
        let graph: &Graph = editor.graph();
        let function = graph.function_of(entry);
        let name = function.map_or("", |function| &graph.function(function).name);
        let name = format!("{name}.path");
        let mut shared = Vec::new();
        if !self.shared.is_empty() {
            let (contents, nexts): (Vec<_>, Vec<_>) = self.shared.into_iter().unzip();
            shared = editor.add_function(entry, format!("{name}.exits"), contents);
            editor.align(shared[0], 1);
            for (&node, next) in shared.iter().zip(nexts) {
                let end = next.map_or(Terminator::Return, |next| Terminator::FallThrough(shared[next]));
                editor.end_block(node, end);
            }
        }
        let graph = editor.graph();
        let contents = self.blocks.iter().map(|block| match block.end {
            Finish::Shared(code, _) => {
                Contents::call(graph, super::guard::ENCODING, Target::Node(shared[code]))
            }
            _ => block.contents.clone(),
        });
        let contents = contents.collect();
        let nodes = editor.add_function(entry, name, contents);
        let at = |number: usize| Dest { target: Target::Node(nodes[number]), offset: 0 };
        for (number, block) in self.blocks.iter().enumerate() {
            let end = match block.end {
                Finish::Go(to) => Terminator::FallThrough(nodes[to]),
                Finish::Branch(condition, taken, next) => {
                    let (branch, taken, next) = branch(editor.graph(), condition, taken, next, number + 1);
                    Terminator::Branch { branch, taken: at(taken), next: nodes[next] }
                }
                Finish::Shared(_, next) | Finish::Call(false, next) => {
                    Terminator::Call { next: Some(nodes[next]) }
                }
                Finish::Call(true, next) => Terminator::IndirectCall { next: Some(nodes[next]) },
                Finish::Return => Terminator::Return,
                Finish::Jump(dest) => Terminator::Jump(dest),
            };
            editor.end_block(nodes[number], end);
        }
        nodes[0]
    }
}
