//! Constant propagation through registers alone, with additions and subtractions: it finds the addresses of most jump
//! tables.
//!
//! Compilers make the address of a table outside of the loop that uses it, and on i386 they keep that of the global
//! offset table in a register. Both are found without looking at memory, which is most of the work of [`super`].

use kelf::Machine;
use kisa::{Address, BinaryOp, Effect, Reg, TEMPORARY, Value};
use smallvec::SmallVec;

use crate::abi::Convention;
use crate::code::{Block, Code, ExitKind, Function};
use crate::image::Addr;

/// Registers with the numbers that they hold.
pub type RegisterNumbers = SmallVec<[(Reg, u64); 4]>;

/// The numbers that registers hold in front of each block of a function; `None` where control does not get.
pub fn numbers(code: &Code, convention: &Convention, function: &Function) -> Vec<Option<RegisterNumbers>> {
    let mut front: Vec<Option<RegisterNumbers>> = vec![None; function.blocks.len()];
    front[0] = Some(RegisterNumbers::new());
    let mut pending = vec![0];
    while let Some(index) = pending.pop() {
        let block = &function.blocks[index];
        let Some(numbers) = front[index].clone() else { continue };
        let numbers = behind(code, convention, block, numbers);
        for next in block.successors.iter().map(|next| next.get()) {
            match &mut front[next] {
                None => front[next] = Some(numbers.clone()),
                Some(known) => {
                    let count = known.len();
                    known.retain(|number| numbers.contains(number));
                    if known.len() == count {
                        continue;
                    }
                }
            }
            pending.push(next);
        }
    }
    front
}

/// What is known behind a block.
fn behind(
    code: &Code,
    convention: &Convention,
    block: &Block,
    mut numbers: RegisterNumbers,
) -> RegisterNumbers {
    let exit = block.exit.map(|exit| code.exit(exit));
    let mut effects = Vec::new();
    let mut reader = code.reader(block.start);
    for at in code.instructions_from(block.start).take_while(|&at| at < block.end) {
        effects.clear();
        code.read_effects(&mut reader, at, &mut effects);
        match effects.first() {
            Some(Effect::OnlyIf(_)) => effects.iter().for_each(|effect| forget(&mut numbers, effect)),
            _ => effects.iter().for_each(|effect| apply(code, effect, &mut numbers)),
        }
        let kind = exit.filter(|exit| exit.at == at).map(|exit| exit.kind);
        if matches!(kind, Some(ExitKind::Call(_) | ExitKind::IndirectCall)) {
            numbers.retain(|(reg, _)| !convention.scratch.contains(reg));
        }
        if let (Some(ExitKind::Call(callee)), Some(exit)) = (kind, exit) {
            let written = code.written_by_leaf(callee);
            numbers.retain(|(reg, _)| written >> reg.0 & 1 == 0);
            if let Some(reg) = program_counter(code, convention, callee) {
                put(&mut numbers, reg, Some(exit.next.0));
            }
        }
    }
    put(&mut numbers, TEMPORARY, None);
    numbers
}

/// The register in which a function leaves the address that it returns to: how position-independent code of i386 reads
/// the program counter (`mov (%esp),%ebx; ret`).
fn program_counter(code: &Code, convention: &Convention, function: Addr) -> Option<Reg> {
    if code.image.machine != Machine::I386 {
        return None;
    }
    let instructions = code.straight_instructions(function).filter(|instructions| instructions.len() == 2)?;
    match instructions[0].1[..] {
        [Effect::Set { dst, value: Value::Load { from, width: 4 }, width: 4 }] => {
            let top = Address { base: Some(convention.stack_pointer), ..Address::default() };
            (from == top).then_some(dst)
        }
        _ => None,
    }
}

fn apply(code: &Code, effect: &Effect, numbers: &mut RegisterNumbers) {
    let word = code.image.machine.word_size();
    let number = |value| number(code, numbers, value);
    let (dst, result) = match *effect {
        Effect::Set { dst, value, width } if width == word => (dst, number(value)),
        Effect::Binary { op, dst, left, right, width } if width == word => {
            let result = number(left).zip(number(right)).and_then(|(left, right)| match op {
                BinaryOp::Add => Some(left.wrapping_add(right)),
                BinaryOp::Sub => Some(left.wrapping_sub(right)),
                _ => None,
            });
            (dst, result)
        }
        _ => return forget(numbers, effect),
    };
    put(numbers, dst, result.map(|number| code.image.wrap(number)));
}

/// What an operand is.
fn number(code: &Code, numbers: &RegisterNumbers, value: Value) -> Option<u64> {
    let register = |reg: Reg| numbers.iter().find(|(known, _)| *known == reg).map(|&(_, number)| number);
    match value {
        Value::Const(number) => Some(number),
        Value::Reg { reg, width } if width == code.image.machine.word_size() => register(reg),
        Value::Address(Address { base, index: None, displacement, segment: None, .. }) => {
            let base = base.map_or(Some(0), register)?;
            Some(base.wrapping_add_signed(displacement))
        }
        _ => None,
    }
}

fn put(numbers: &mut RegisterNumbers, register: Reg, number: Option<u64>) {
    numbers.retain(|(reg, _)| *reg != register);
    numbers.extend(number.map(|number| (register, number)));
}

/// Forgets what an effect writes to.
fn forget(numbers: &mut RegisterNumbers, effect: &Effect) {
    let written = effect.registers_written();
    numbers.retain(|(reg, _)| written >> reg.0 & 1 == 0);
}
