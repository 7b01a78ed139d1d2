//! Compares the models with the machine: executes random instructions with random registers (ARM and AArch64 under
//! qemu-user), and checks their changes against their effects.
//!
//! For each instruction that completes, the effects must write every register and the memory that changed, and a value
//! that the effects give for a register must be its actual value. The flags must match the last comparison of the
//! effects, be forgotten, or be unchanged.
//!
//! x86 code is executed a second time, with other contents of the registers and flags that it is said not to read. Both
//! results must be the same, except for bits that the instruction does not write.

mod model;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kelf::Machine;
use kisa::{At, Effect, Flags, Flow, Inst, TEMPORARY, isa, rewritable};
use kshrink_tests::process::{require, run};

use model::{Model, State, Status, byte, flags_agree};

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

/// The flags of x86 that conditions test.
const X86_FLAGS: u64 = 0x8d5;

/// An instruction set.
#[derive(Clone, Copy, PartialEq)]
enum Encoding {
    A64,
    A32,
    T32,
    I386,
    X86_64,
}

impl Encoding {
    fn machine(self) -> Machine {
        match self {
            Encoding::A64 => Machine::Aarch64,
            Encoding::A32 | Encoding::T32 => Machine::Arm,
            Encoding::I386 => Machine::I386,
            Encoding::X86_64 => Machine::X86_64,
        }
    }

    fn is_x86(self) -> bool {
        matches!(self, Encoding::I386 | Encoding::X86_64)
    }

    fn registers(self) -> usize {
        match self {
            Encoding::A64 => 32,
            Encoding::A32 | Encoding::T32 => 15,
            Encoding::I386 => 8,
            Encoding::X86_64 => 16,
        }
    }

    fn mask(self) -> u64 {
        if self.machine().is_64() { u64::MAX } else { 0xffff_ffff }
    }

    /// Compiles the harness for the machine.
    fn harness(self, directory: &Path) -> (PathBuf, &'static str) {
        let (compiler, emulator) = match self {
            Encoding::A64 => ("aarch64-linux-gnu-gcc", "qemu-aarch64"),
            Encoding::A32 | Encoding::T32 => ("arm-linux-gnueabihf-gcc", "qemu-arm"),
            Encoding::I386 => ("i686-linux-gnu-gcc", "env"),
            Encoding::X86_64 => ("x86_64-linux-gnu-gcc", "env"),
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
            Encoding::I386 | Encoding::X86_64 => &[0x0f, 0x0b],
        }
    }
}

/// An instruction and the state before it is executed.
#[derive(Clone)]
struct Case {
    bytes: Vec<u8>,
    /// Number of bytes before it (`it`).
    before: usize,
    at: At,
    registers: [u64; 32],
    flags: u64,
}

/// The state after execution.
#[derive(Default)]
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
    let stack_pointer = usize::from(isa(encoding.machine()).convention().stack_pointer.0);
    registers[stack_pointer] = MEMORY + MEMORY_SIZE / 2 + random.below(64) * 16;
    let flags = match encoding.is_x86() {
        true => random.next() & X86_FLAGS,
        false => random.below(16) << 28,
    };
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
        Encoding::I386 | Encoding::X86_64 => {
            bytes.extend(x86_instruction(encoding, random));
            let length = isa(encoding.machine()).decode(&bytes, at).map(|inst| inst.bytes.len());
            bytes.truncate(length.unwrap_or(0));
        }
    }
    Case { bytes, before, at, registers, flags }
}

/// Returns bytes that begin with an instruction, most of the time.
fn x86_instruction(encoding: Encoding, random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    if random.below(8) == 0 {
        bytes.push(*[0x66, 0x66, 0x67, 0xf2, 0xf3].get(random.below(5) as usize).unwrap());
    }
    if encoding == Encoding::X86_64 && random.below(2) == 0 {
        bytes.push(0x40 | random.below(16) as u8);
    }
    if random.below(4) == 0 {
        bytes.push(0x0f);
    }
    bytes.push(random.next() as u8);
    // Mostly a register, or memory near an address in one.
    let modrm = random.next() as u8;
    bytes.push(if random.below(2) == 0 { modrm | 0xc0 } else { modrm & 0x7f });
    bytes.extend(random.next().to_le_bytes());
    bytes.extend(random.next().to_le_bytes());
    bytes
}

/// Whether an instruction changes more of the harness than its registers: it writes to a segment register, or to the
/// control word of the floating-point unit. (`rdtsc`, `rdtscp` and `rdrand` have another result each time.)
fn breaks_the_harness(bytes: &[u8]) -> bool {
    let is_prefix = |byte: &u8| matches!(byte, 0x40..=0x4f | 0x66 | 0x67 | 0xf2 | 0xf3);
    let opcode = match bytes.iter().position(|byte| !is_prefix(byte)) {
        Some(at) => &bytes[at..],
        None => bytes,
    };
    matches!(opcode, [0x07 | 0x17 | 0x1f | 0x64 | 0x65 | 0x8e | 0xc4 | 0xc5, ..])
        || matches!(
            opcode,
            [0x0f, 0x01, 0xf9, ..] | [0x0f, 0x31 | 0xa1 | 0xa9 | 0xae | 0xb2 | 0xb4 | 0xb5 | 0xc7, ..]
        )
        || bytes.contains(&0x0f) && bytes.contains(&0x05)
}

/// Whether an instruction may be one of the floating-point unit. Its registers are not the same for each case of i386.
fn is_x87(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| matches!(byte, 0xd8..=0xdf))
}

/// Returns a case with other contents of the registers and flags that the instruction does not read.
fn with_unread_changed(encoding: Encoding, case: &Case, random: &mut Random) -> Case {
    let (isa, mut other) = (rewritable(encoding.machine()).expect("x86"), case.clone());
    let inst = isa.decode(&case.bytes, case.at).expect("it was decoded before");
    let reads = isa.reads(&inst);
    let stack_pointer = isa.convention().stack_pointer;
    for number in (0..encoding.registers()).filter(|&number| number != usize::from(stack_pointer.0)) {
        if reads.registers >> number & 1 == 0 {
            other.registers[number] = random.next() & encoding.mask();
        }
    }
    if !reads.flags {
        other.flags = random.next() & X86_FLAGS;
    }
    other
}

/// Returns the first result that depends on a register or on flags that the instruction is said not to read.
fn depends(
    cases: (&Case, &Case),
    outcomes: (&Outcome, &Outcome),
    effects: &[Effect],
    count: usize,
) -> Option<String> {
    let overwritten = effects.iter().fold(0, |set, effect| set | effect.registers_overwritten());
    let differs = |(one, other): (u64, u64), (old, older): (u64, u64), is_overwritten: bool| {
        let differences = one ^ other;
        is_overwritten && differences != 0
            || differences & (one ^ old) != 0
            || differences & (other ^ older) != 0
    };
    for number in 0..count {
        let results = (outcomes.0.registers[number], outcomes.1.registers[number]);
        let before = (cases.0.registers[number], cases.1.registers[number]);
        if differs(results, before, overwritten >> number & 1 != 0) {
            return Some(format!(
                "register {number} is {:#x} or {:#x}, from {before:#x?}",
                results.0, results.1
            ));
        }
    }
    let flags_overwritten = effects.iter().any(|effect| effect.flags() == Flags::Overwritten);
    if differs((outcomes.0.flags, outcomes.1.flags), (cases.0.flags, cases.1.flags), flags_overwritten) {
        return Some(format!("the flags are {:#x} or {:#x}", outcomes.0.flags, outcomes.1.flags));
    }
    (!outcomes.1.finished || outcomes.0.changed != outcomes.1.changed)
        .then(|| "other memory changed".to_owned())
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
        code.resize(24, 0);
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
    let mut outcomes: Vec<Outcome> = results
        .map(|bytes| Outcome {
            registers: (0..32).map(|number| word(bytes, 8 * number)).collect(),
            flags: word(bytes, 256),
            finished: half(bytes, 264) != 0,
            changed: (half(bytes, 268) <= half(bytes, 272)).then(|| (half(bytes, 268), half(bytes, 272))),
        })
        .collect();
    outcomes.resize_with(cases.len(), Outcome::default);
    outcomes
}

/// Returns the first difference between a state and what happened.
fn wrong(encoding: Encoding, state: &State, case: &Case, outcome: &Outcome) -> Option<String> {
    for number in 0..encoding.registers() {
        let actual = outcome.registers[number];
        if let Some(values) = &state.registers[number] {
            if !values.contains(&actual) {
                return Some(format!("register {number} is {actual:#x}, one of {values:x?} is expected"));
            }
        }
    }
    if !flags_agree(encoding.is_x86(), &state.flags, case.flags, outcome.flags) {
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
            && !(encoding.is_x86() && breaks_the_harness(bytes))
        {
            cases.push(case);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let (program, emulator) = encoding.harness(directory.path());
    let (mut finished, mut known, mut effects) = (0, 0, Vec::new());
    let mut errors = Vec::new();
    if encoding.is_x86() {
        let others = cases.iter().map(|case| with_unread_changed(encoding, case, &mut random));
        cases = cases.iter().cloned().zip(others).flat_map(|(case, other)| [case, other]).collect();
    }
    let outcomes: Vec<(&Case, Outcome)> = cases
        .chunks(CHUNK)
        .flat_map(|cases| cases.iter().zip(execute(encoding, (&program, emulator), cases)))
        .collect();
    for (place, (case, outcome)) in outcomes.iter().enumerate().filter(|(_, (_, outcome))| outcome.finished) {
        finished += 1;
        effects.clear();
        let inst = isa.decode(&case.bytes[case.before..], case.at).expect("it was decoded before");
        isa.effects(&inst, &mut effects);
        let registers = std::array::from_fn(|number| case.registers.get(number).map(|&value| vec![value]));
        let state = State { registers, stores: Vec::new(), flags: Status::Unchanged };
        let begin = Model { mask: encoding.mask(), state: state.clone(), skipped: None };
        let operand = isa.memory_operand(&inst).and_then(|operand| begin.addresses(&operand.address));
        let is_in_memory = operand.is_none_or(|addresses| addresses.into_iter().all(|at| byte(at).is_some()));
        let mut model = Model { mask: encoding.mask(), state, skipped: None };
        effects.iter().for_each(|effect| model.apply(effect));
        model.state.registers[usize::from(TEMPORARY.0)] = None;
        let written = |effect: &Effect| matches!(effect, Effect::Set { .. } | Effect::Binary { .. });
        known += usize::from(effects.iter().any(written));
        let executed = wrong(encoding, &model.state, case, outcome);
        let skipped = model.skipped.as_ref().map(|state| wrong(encoding, state, case, outcome));
        let mut error = executed.filter(|_| !matches!(skipped, Some(None)));
        if let Some((other, changed)) = outcomes
            .get(place + 1)
            .filter(|_| encoding.is_x86() && place % 2 == 0 && is_in_memory && !is_x87(&case.bytes))
        {
            let dependence = depends((case, other), (outcome, changed), &effects, encoding.registers());
            error = error.or(dependence);
        }
        if let Some(error) = error {
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

#[test]
fn i386() {
    check(Encoding::I386, 386);
}

#[test]
fn x86_64() {
    check(Encoding::X86_64, 8664);
}
