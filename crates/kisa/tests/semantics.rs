//! Compares the model of ARM and AArch64 with the machine: executes random instructions with random registers (under
//! qemu-user), and checks their changes against their effects.
//!
//! For each instruction that completes, the effects must write every register and the memory that changed, and a value
//! that the effects give for a register must be its actual value. The flags must match the last comparison of the
//! effects, be forgotten, or be unchanged.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kelf::Machine;
use kisa::{Address, At, BinaryOp, Condition, Effect, Flow, Inst, Reg, TEMPORARY, Value, isa};
use kshrink_tests::process::{require, run};

/// Address of the harness's memory, see `fixtures/isa/execute.c`.
const MEMORY: u64 = 0x2000_0000;
const MEMORY_SIZE: u64 = 0x4000;
/// Address of the instruction.
const CODE: u64 = 0x3000_0000;

const CASES: usize = 12_000;
/// Number of instructions that one process executes.
const CHUNK: usize = 250;

/// A generator of random numbers (SplitMix64), which makes failures reproducible.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// One of the three encodings.
#[derive(Clone, Copy, PartialEq)]
enum Encoding {
    A64,
    A32,
    T32,
}

impl Encoding {
    fn machine(self) -> Machine {
        if self == Encoding::A64 { Machine::Aarch64 } else { Machine::Arm }
    }

    fn registers(self) -> usize {
        if self == Encoding::A64 { 32 } else { 15 }
    }

    fn mask(self) -> u64 {
        if self == Encoding::A64 { u64::MAX } else { 0xffff_ffff }
    }

    /// Compiles the harness for the machine.
    fn harness(self, directory: &Path) -> (PathBuf, &'static str) {
        let (compiler, emulator) = match self {
            Encoding::A64 => ("aarch64-linux-gnu-gcc", "qemu-aarch64"),
            _ => ("arm-linux-gnueabihf-gcc", "qemu-arm"),
        };
        require(emulator);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/isa/execute.c");
        let program = directory.join("execute");
        run(Command::new(compiler).args(["-O1", "-static", "-o"]).arg(&program).arg(source));
        (program, emulator)
    }

    /// Returns an undefined instruction.
    fn end(self) -> &'static [u8] {
        match self {
            Encoding::A64 => &[0, 0, 0, 0],
            Encoding::A32 => &[0xf0, 0x00, 0xf0, 0xe7],
            Encoding::T32 => &[0x00, 0xde],
        }
    }
}

/// An instruction and the state before it is executed.
struct Case {
    bytes: Vec<u8>,
    /// Number of bytes before it (`it`).
    before: usize,
    at: At,
    registers: [u64; 32],
    flags: u64,
}

/// The state after execution.
struct Outcome {
    registers: Vec<u64>,
    flags: u64,
    finished: bool,
    /// The first and the last byte of memory that changed.
    changed: Option<(u64, u64)>,
}

fn case(encoding: Encoding, random: &mut Random) -> Case {
    let mut registers = [0; 32];
    for register in &mut registers {
        *register = match random.below(8) {
            0 => random.next(),
            1 => random.below(256),
            2 => random.below(256).wrapping_neg(),
            3 => random.next() as u32 as u64,
            _ => MEMORY + MEMORY_SIZE / 4 + random.below(MEMORY_SIZE / 16) * 8,
        } & encoding.mask();
    }
    // The stack pointer must be aligned.
    let stack_pointer = if encoding == Encoding::A64 { 31 } else { 13 };
    registers[stack_pointer] = MEMORY + MEMORY_SIZE / 2 + random.below(64) * 16;
    let flags = random.below(16) << 28;
    let (mut bytes, mut at, mut before) = (Vec::new(), kisa::Encoding::Main.at(CODE), 0);
    match encoding {
        Encoding::A64 => bytes.extend((random.next() as u32).to_le_bytes()),
        Encoding::A32 => {
            let word = random.next() as u32;
            // Mostly unconditional.
            let word = if random.below(3) > 0 { word & 0x0fff_ffff | 0xe000_0000 } else { word };
            bytes.extend(word.to_le_bytes());
        }
        Encoding::T32 => {
            at.encoding = kisa::Encoding::Thumb;
            if random.below(4) == 0 {
                let condition = random.below(14);
                before = 2;
                bytes.extend((0xbf08 | (condition as u16) << 4).to_le_bytes());
                at = at.moved_to(CODE + 2).on(Some(condition as u8));
            }
            let (first, second) = (random.next() as u16, random.next() as u16);
            let first = if random.below(2) == 0 { first } else { first | 0xe800 };
            bytes.extend(first.to_le_bytes());
            if first >= 0xe800 {
                bytes.extend(second.to_le_bytes());
            }
        }
    }
    Case { bytes, before, at, registers, flags }
}

/// Runs some cases. An instruction may overwrite the harness itself, and the remaining cases are then lost.
fn execute(encoding: Encoding, (program, emulator): (&Path, &str), cases: &[Case]) -> Vec<Outcome> {
    let mut input = Vec::new();
    for case in cases {
        for register in case.registers {
            input.extend(register.to_le_bytes());
        }
        input.extend(case.flags.to_le_bytes());
        input.extend((case.bytes.len() as u32).to_le_bytes());
        input.extend(u32::from(encoding == Encoding::T32).to_le_bytes());
        let mut code = case.bytes.clone();
        code.extend(encoding.end());
        code.resize(16, 0);
        input.extend(code);
    }
    // Some instructions run for ever; all others together take milliseconds.
    let mut child = Command::new("timeout")
        .args(["-s", "KILL", "5", emulator])
        .arg(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("timeout: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input).is_ok());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let half = |bytes: &[u8], at: usize| u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()));
    let results = output.stdout.chunks_exact(280);
    results
        .map(|bytes| Outcome {
            registers: (0..32).map(|number| word(bytes, 8 * number)).collect(),
            flags: word(bytes, 256),
            finished: half(bytes, 264) != 0,
            changed: (half(bytes, 268) <= half(bytes, 272)).then(|| (half(bytes, 268), half(bytes, 272))),
        })
        .collect()
}

/// The machine as the effects describe it. A register holds one of a few numbers, or anything.
#[derive(Clone)]
struct State {
    registers: [Option<Vec<u64>>; 33],
    /// Ranges of memory that may have changed; `None` for all memory.
    stores: Vec<Option<(u64, u64)>>,
    flags: Flags,
}

#[derive(Clone, PartialEq, Debug)]
enum Flags {
    Unchanged,
    Unknown,
    Compared(u64, u64, u8),
    Zero(u64, u8),
}

struct Model {
    mask: u64,
    state: State,
    /// The state without the conditional effects.
    skipped: Option<State>,
}

fn low(value: u64, width: u8) -> u64 {
    if width >= 8 { value } else { value & ((1 << (8 * width)) - 1) }
}

fn sign_extend(value: u64, width: u8) -> u64 {
    let unused = 64 - 8 * u32::from(width);
    ((value << unused) as i64 >> unused) as u64
}

/// Returns the byte in the harness's memory.
fn byte(address: u64) -> Option<u64> {
    let index = address.checked_sub(MEMORY).filter(|&index| index < MEMORY_SIZE)?;
    Some(index.wrapping_mul(167).wrapping_add(13).wrapping_add((index >> 8).wrapping_mul(31)) & 0xff)
}

impl Model {
    fn addresses(&self, address: &Address) -> Option<Vec<u64>> {
        let mut sums = vec![address.displacement as u64];
        let index = address.index.map(|(reg, scale)| (reg, u64::from(scale)));
        for (reg, scale) in address.base.map(|reg| (reg, 1)).into_iter().chain(index) {
            let values = self.state.registers[usize::from(reg.0)].as_ref()?;
            sums = sums
                .iter()
                .flat_map(|sum| {
                    values.iter().map(|value| sum.wrapping_add(value.wrapping_mul(scale)) & self.mask)
                })
                .collect();
        }
        Some(sums.into_iter().map(|sum| sum & self.mask).collect())
    }

    fn value(&self, value: Value) -> Option<Vec<u64>> {
        match value {
            Value::Const(number) => Some(vec![number]),
            Value::Reg { reg, width } => {
                let values = self.state.registers[usize::from(reg.0)].as_ref()?;
                Some(values.iter().map(|&value| low(value, width)).collect())
            }
            Value::Address(address) => self.addresses(&address),
            Value::Load { from, width } => {
                let load = |address: u64| {
                    let mut bytes =
                        (0..u64::from(width)).rev().map(|index| byte(address.wrapping_add(index)));
                    bytes.try_fold(0, |value, byte| Some(value << 8 | byte?))
                };
                self.addresses(&from)?.into_iter().map(load).collect()
            }
            Value::Symbol { .. } | Value::Unknown => None,
        }
    }

    fn write(&mut self, dst: Reg, values: Option<Vec<u64>>, width: u8) {
        assert!(width >= 4, "these machines have no narrower registers");
        let values =
            values.map(|values| values.into_iter().map(|value| low(value, width) & self.mask).collect());
        self.state.registers[usize::from(dst.0)] = values;
    }

    fn apply(&mut self, effect: &Effect) {
        match *effect {
            Effect::Set { dst, value, width } => self.write(dst, self.value(value), width),
            Effect::MaybeSet { dst, value, width } => {
                let old = self.state.registers[usize::from(dst.0)].clone();
                let both = old.zip(self.value(value)).map(|(old, new)| [old, new].concat());
                self.write(dst, both, width);
            }
            Effect::SetSigned { dst, value, from, width } => {
                let values = self.value(value);
                let values = values.map(|values| values.into_iter().map(|v| sign_extend(v, from)).collect());
                self.write(dst, values, width);
            }
            Effect::Binary { op, dst, left, right, width } => {
                let result = self.value(left).zip(self.value(right)).map(|(lefts, rights)| {
                    let pairs = lefts.iter().flat_map(|&l| rights.iter().map(move |&r| (l, r)));
                    pairs.map(|(left, right)| binary(op, left, right, width)).collect()
                });
                self.write(dst, result, width);
            }
            Effect::Store { to, width, .. } => {
                let stores = self.addresses(&to);
                match stores {
                    Some(stores) => {
                        let range = |at: u64| Some((at, at.wrapping_add(width.into())));
                        self.state.stores.extend(stores.into_iter().map(range));
                    }
                    None => self.state.stores.push(None),
                }
            }
            Effect::ClobberMemory | Effect::ClobberRange(_) => self.state.stores.push(None),
            Effect::Compare { left, right, width } => {
                self.state.flags = match (self.value(left).as_deref(), self.value(right).as_deref()) {
                    (Some(&[left]), Some(&[right])) => Flags::Compared(left, right, width),
                    _ => Flags::Unknown,
                };
            }
            Effect::CompareZero { value, width } => {
                self.state.flags = match self.value(value).as_deref() {
                    Some(&[value]) => Flags::Zero(value, width),
                    _ => Flags::Unknown,
                };
            }
            Effect::ClobberFlags => self.state.flags = Flags::Unknown,
            Effect::Clobber(reg) => self.state.registers[usize::from(reg.0)] = None,
            Effect::Escape(_) => {}
            Effect::OnlyIf(_) => self.skipped = Some(self.state.clone()),
            Effect::Swap(..)
            | Effect::Transfer(_)
            | Effect::BranchIf(_)
            | Effect::BranchIfCompared { .. }
            | Effect::SystemCall { .. } => unreachable!("{effect:?} in a straight instruction"),
        }
    }
}

fn binary(op: BinaryOp, left: u64, right: u64, width: u8) -> u64 {
    let result = match op {
        BinaryOp::Add => left.wrapping_add(right),
        BinaryOp::Sub => left.wrapping_sub(right),
        BinaryOp::And => left & right,
        BinaryOp::Or => left | right,
        BinaryOp::Xor => left ^ right,
        BinaryOp::Shl => left.checked_shl(right as u32).unwrap_or(0),
        BinaryOp::Shr => low(left, width).checked_shr(right as u32).unwrap_or(0),
    };
    low(result, width)
}

/// Whether the flags in the status register agree with the effects.
fn flags_agree(flags: &Flags, before: u64, after: u64) -> bool {
    let bit = |bit: u32| after >> bit & 1 != 0;
    let (n, z, c, v) = (bit(31), bit(30), bit(29), bit(28));
    match *flags {
        Flags::Unknown => true,
        Flags::Unchanged => before == after,
        Flags::Zero(value, width) => z == (low(value, width) == 0),
        Flags::Compared(left, right, width) => {
            let conditions = [
                (Condition::Equal, z),
                (Condition::NotEqual, !z),
                (Condition::AboveOrEqual, c),
                (Condition::Below, !c),
                (Condition::Above, c && !z),
                (Condition::BelowOrEqual, !c || z),
                (Condition::GreaterOrEqual, n == v),
                (Condition::Less, n != v),
                (Condition::Greater, !z && n == v),
                (Condition::LessOrEqual, z || n != v),
            ];
            conditions.iter().all(|&(condition, holds)| condition.holds(left, right, width) == Some(holds))
        }
    }
}

/// Returns the first difference between a state and what happened.
fn wrong(state: &State, case: &Case, outcome: &Outcome, count: usize) -> Option<String> {
    for number in 0..count {
        let actual = outcome.registers[number];
        if let Some(values) = &state.registers[number] {
            if !values.contains(&actual) {
                return Some(format!("register {number} is {actual:#x}, one of {values:x?} is expected"));
            }
        }
    }
    if !flags_agree(&state.flags, case.flags, outcome.flags) {
        return Some(format!("the flags are {:#x}, {:?} is expected", outcome.flags, state.flags));
    }
    let (first, last) = outcome.changed?;
    for at in [MEMORY + first, MEMORY + last] {
        let within = |store: &Option<(u64, u64)>| store.is_none_or(|(from, to)| from <= at && at < to);
        if !state.stores.iter().any(within) {
            return Some(format!("memory changed at {at:#x}, in none of {:x?}", state.stores));
        }
    }
    None
}

fn check(encoding: Encoding, seed: u64) {
    let isa = isa(encoding.machine());
    let mut random = Random(seed);
    let mut cases = Vec::new();
    while cases.len() < CASES {
        let case = case(encoding, &mut random);
        let bytes = &case.bytes[case.before..];
        let Some(Inst { insn, .. }) = isa.decode(bytes, case.at) else { continue };
        if insn.flow == Flow::Next
            && !insn.system_call
            && usize::from(insn.len) == bytes.len()
            && insn.predicates.conditions().is_empty()
        {
            cases.push(case);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let (program, emulator) = encoding.harness(directory.path());
    let (mut finished, mut known, mut effects) = (0, 0, Vec::new());
    let mut errors = Vec::new();
    let outcomes = cases.chunks(CHUNK).flat_map(|cases| {
        let outcomes = execute(encoding, (&program, emulator), cases);
        cases.iter().zip(outcomes)
    });
    for (case, outcome) in outcomes.filter(|(_, outcome)| outcome.finished) {
        finished += 1;
        effects.clear();
        let inst = isa.decode(&case.bytes[case.before..], case.at).expect("it was decoded before");
        isa.effects(&inst, &mut effects);
        let registers = std::array::from_fn(|number| case.registers.get(number).map(|&value| vec![value]));
        let state = State { registers, stores: Vec::new(), flags: Flags::Unchanged };
        let mut model = Model { mask: encoding.mask(), state, skipped: None };
        effects.iter().for_each(|effect| model.apply(effect));
        model.state.registers[usize::from(TEMPORARY.0)] = None;
        let written = |effect: &Effect| matches!(effect, Effect::Set { .. } | Effect::Binary { .. });
        known += usize::from(effects.iter().any(written));
        let count = encoding.registers();
        let executed = wrong(&model.state, case, &outcome, count);
        let skipped = model.skipped.as_ref().map(|state| wrong(state, case, &outcome, count));
        if let (Some(error), Some(Some(_)) | None) = (executed, skipped) {
            errors.push(format!("{:02x?}: {error}; {effects:x?}", case.bytes));
        }
    }
    assert!(
        errors.is_empty(),
        "{} of {finished} are wrong:\n{}",
        errors.len(),
        errors[..errors.len().min(20)].join("\n")
    );
    assert!(finished > CASES / 5, "only {finished} instructions got to their end");
    assert!(known > CASES / 20, "only {known} instructions are followed");
}

#[test]
fn a64() {
    check(Encoding::A64, 64);
}

#[test]
fn a32() {
    check(Encoding::A32, 32);
}

#[test]
fn t32() {
    check(Encoding::T32, 16);
}
