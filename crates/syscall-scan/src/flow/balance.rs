//! Whether a function leaves the stack pointer where it was, as far as plain arithmetic tells.

use kcfg::isa::{Address, BinaryOp, Effect, Reg, Value};
use smallvec::{SmallVec, smallvec};

use crate::abi::Convention;
use crate::code::{Block, Code, ExitKind, Function};
use crate::image::Image;

/// What a register holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// The address so far above the one that the stack pointer held when the function was entered.
    Frame(u64),
    /// A number. Large frames are made by subtracting one from the stack pointer that an instruction just before
    /// has put into a register; behind the block, none is remembered.
    Number(u64),
}

impl Content {
    /// The sum of two, in the machine's word.
    fn plus(self, other: Content, image: &Image) -> Option<Content> {
        let sum = |a: u64, b: u64| image.wrap(a.wrapping_add(b));
        match (self, other) {
            (Content::Number(a), Content::Number(b)) => Some(Content::Number(sum(a, b))),
            (Content::Frame(a), Content::Number(b)) | (Content::Number(a), Content::Frame(b)) => {
                Some(Content::Frame(sum(a, b)))
            }
            (Content::Frame(_), Content::Frame(_)) => None,
        }
    }

    fn minus(self, other: Content, image: &Image) -> Option<Content> {
        let Content::Number(number) = other else { return None };
        self.plus(Content::Number(number.wrapping_neg()), image)
    }
}

/// The registers whose contents are known.
type Contents = SmallVec<[(Reg, Content); 4]>;

/// Whether every return of a function is reached with the stack pointer at the return address, whichever way control
/// takes. Where the stack pointer comes from memory, that is not known.
pub fn is_balanced(code: &Code, function: &Function) -> bool {
    let Some(convention) = Convention::of(code.image.machine) else { return false };
    let mut front: Vec<Option<Contents>> = vec![None; function.blocks.len()];
    front[0] = Some(smallvec![(convention.stack_pointer, Content::Frame(0))]);
    let mut pending = vec![0];
    while let Some(index) = pending.pop() {
        let block = &function.blocks[index];
        let Some(contents) = front[index].clone() else { continue };
        let Some(contents) = behind(code, convention, block, contents) else { return false };
        for next in block.successors.iter().map(|next| next.get()) {
            match &mut front[next] {
                None => front[next] = Some(contents.clone()),
                Some(known) => {
                    let count = known.len();
                    known.retain(|content| contents.contains(content));
                    if known.len() == count {
                        continue;
                    }
                }
            }
            pending.push(next);
        }
    }
    true
}

/// What is known behind a block. `None` if it returns, and the stack pointer is not where it should be.
fn behind(code: &Code, convention: &Convention, block: &Block, mut contents: Contents) -> Option<Contents> {
    let image = code.image;
    let stack_pointer = convention.stack_pointer;
    let exit = block.exit.map(|exit| code.exit(exit));
    let mut effects = Vec::new();
    let mut reader = code.reader(block.start);
    for at in code.instructions_from(block.start).take_while(|&at| at < block.end) {
        effects.clear();
        code.read_effects(&mut reader, at, &mut effects);
        let kind = exit.filter(|exit| exit.at == at).map(|exit| exit.kind);
        if kind == Some(ExitKind::Return) {
            let mut returned = contents.clone();
            // What takes the return address off the stack has to find it there.
            if convention.link.is_some() {
                effects.iter().for_each(|effect| apply(image, effect, &mut returned));
            }
            if register(&returned, stack_pointer) != Some(Content::Frame(0)) {
                return None;
            }
            continue; // on the way where it does not return, if there is one
        }
        let before = register(&contents, stack_pointer);
        if matches!(effects.first(), Some(Effect::OnlyIf(_))) {
            effects.iter().for_each(|effect| forget(&mut contents, effect.registers_written()));
        } else {
            effects.iter().for_each(|effect| apply(image, effect, &mut contents));
        }
        let popped = match kind {
            Some(ExitKind::Call(callee)) => code.popped(callee),
            Some(ExitKind::IndirectCall) => Some(0),
            _ => continue,
        };
        contents.retain(|(reg, _)| !convention.scratch.contains(reg));
        let popped = popped.map(|bytes| Content::Number(bytes.into()));
        let after = before.zip(popped).and_then(|(before, popped)| before.plus(popped, image));
        put(&mut contents, stack_pointer, after);
    }
    contents.retain(|(_, content)| matches!(content, Content::Frame(_)));
    Some(contents)
}

fn apply(image: &Image, effect: &Effect, contents: &mut Contents) {
    let word = image.machine.word_size();
    match *effect {
        Effect::Set { dst, value, width } if width == word => {
            put(contents, dst, content(image, contents, value))
        }
        Effect::Binary { op, dst, left, right, width } if width == word => {
            let operands = content(image, contents, left).zip(content(image, contents, right));
            let result = operands.and_then(|(left, right)| match op {
                BinaryOp::Add => left.plus(right, image),
                BinaryOp::Sub => left.minus(right, image),
                _ => None,
            });
            put(contents, dst, result);
        }
        _ => forget(contents, effect.registers_written()),
    }
}

/// What an operand is.
fn content(image: &Image, contents: &Contents, value: Value) -> Option<Content> {
    match value {
        Value::Const(number) => Some(Content::Number(image.wrap(number))),
        Value::Reg { reg, width } if width == image.machine.word_size() => register(contents, reg),
        Value::Address(Address { base: Some(base), index: None, displacement, segment: false }) => {
            register(contents, base)?.plus(Content::Number(displacement as u64), image)
        }
        _ => None,
    }
}

fn register(contents: &Contents, wanted: Reg) -> Option<Content> {
    contents.iter().find(|(reg, _)| *reg == wanted).map(|&(_, content)| content)
}

fn put(contents: &mut Contents, register: Reg, content: Option<Content>) {
    contents.retain(|(reg, _)| *reg != register);
    contents.extend(content.map(|content| (register, content)));
}

/// Forgets registers, given as bits.
fn forget(contents: &mut Contents, registers: u64) {
    contents.retain(|(reg, _)| registers >> reg.0 & 1 == 0);
}
