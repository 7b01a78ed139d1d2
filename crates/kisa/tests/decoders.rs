//! Compares the decoders of ARM and AArch64 with Capstone. For each of Capstone's instructions, the length, the flow
//! and the target must agree, and the effects must write every general register that Capstone lists as written.
//!
//! The input is random bytes, and the code of a static C program at every place where an instruction may begin.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use capstone::prelude::*;
use capstone::{InsnGroupType, RegId, arch};
use kelf::Machine;
use kisa::{At, Flow, Reg, isa};
use kshrink_tests::process::run;

const RANDOM_BYTES: usize = 1_000_000;
/// Minimum number of mnemonics.
const LEAST_KINDS: usize = 700;
/// Address of the bytes.
const ADDRESS: u64 = 0x10_0000;

/// The groups of instructions that transfer control.
const BRANCHES: [u32; 4] = [
    InsnGroupType::CS_GRP_JUMP,
    InsnGroupType::CS_GRP_CALL,
    InsnGroupType::CS_GRP_RET,
    InsnGroupType::CS_GRP_BRANCH_RELATIVE,
];

/// Instructions that programs do not use: those of the kernel, of the hypervisor and of other processors.
const PRIVILEGED: [&str; 8] = ["bxns", "blxns", "cps", "hlt", "hvc", "rfe", "setpan", "smc"];

/// Vector instructions that Capstone finds in meaningless T32 code: they begin with 0xee, 0xef, 0xfe or 0xff.
const NOT_THUMB: [&str; 4] = ["sha", "vmaxnm", "vminnm", "vrint"];

/// Instructions whose operands Capstone lists as written although they only read them, including hints that do not
/// change an address that was not signed.
const WRITES_LESS: [&str; 11] =
    ["svc", "cmp", "cmn", "tst", "st1", "strbt", "strht", "autia1716", "autib1716", "xpaclri", "ldrd"];

struct Encoding {
    machine: Machine,
    compiler: &'static str,
    option: &'static str,
    capstone: Capstone,
    /// Bits set in the address of each instruction.
    state: u64,
    /// Alignment of instructions.
    step: usize,
}

impl Encoding {
    fn a64() -> Encoding {
        let capstone = Capstone::new().arm64().mode(arch::arm64::ArchMode::Arm).detail(true).build();
        let (compiler, option) = ("aarch64-linux-gnu-gcc", "-O2");
        Encoding {
            machine: Machine::Aarch64,
            compiler,
            option,
            capstone: capstone.unwrap(),
            state: 0,
            step: 4,
        }
    }

    fn arm(mode: arch::arm::ArchMode, option: &'static str, state: u64, step: usize) -> Encoding {
        // Include the instructions of the processors that Debian's armhf needs, and of later ones.
        let extra = [arch::arm::ArchExtraMode::V8];
        let capstone = Capstone::new().arm().mode(mode).extra_mode(extra.into_iter()).detail(true).build();
        let compiler = "arm-linux-gnueabihf-gcc";
        Encoding { machine: Machine::Arm, compiler, option, capstone: capstone.unwrap(), state, step }
    }

    /// Returns the code of a static program.
    fn program(&self) -> Vec<u8> {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/isa/execute.c");
        let mut command = Command::new(self.compiler);
        run(command.args([self.option, "-static", "-o"]).arg(&program).arg(source));
        let bytes = std::fs::read(&program).unwrap();
        let elf = goblin::elf::Elf::parse(&bytes).unwrap();
        let text =
            |header: &&goblin::elf::SectionHeader| elf.shdr_strtab.get_at(header.sh_name) == Some(".text");
        bytes[elf.section_headers.iter().find(text).unwrap().file_range().unwrap()].to_vec()
    }

    /// Returns the general register for Capstone's number.
    fn register(&self, id: RegId) -> Option<Reg> {
        let name = self.capstone.reg_name(id)?;
        let number = match name.as_str() {
            "sp" | "wsp" if self.machine == Machine::Aarch64 => 31,
            "sp" => 13,
            "lr" if self.machine == Machine::Aarch64 => 30,
            "lr" => 14,
            "fp" if self.machine == Machine::Aarch64 => 29,
            "fp" => 11,
            "ip" => 12,
            "sl" => 10,
            "sb" => 9,
            name => name.strip_prefix(['x', 'w', 'r'])?.parse().ok()?,
        };
        Some(Reg(number))
    }

    /// Compares the decoders at one place. Returns Capstone's name of the instruction, or the difference.
    fn compare(&self, bytes: &[u8], address: u64) -> Option<Result<String, String>> {
        let instructions = self.capstone.disasm_count(bytes, address, 1).unwrap();
        let theirs = instructions.first()?;
        let mnemonic = theirs.mnemonic().unwrap_or("");
        let is_any = |list: &[&str]| list.iter().any(|start| mnemonic.starts_with(start));
        if is_any(&PRIVILEGED) || is_undefined(theirs) {
            return None;
        }
        let text = format!("{mnemonic} {}", theirs.op_str().unwrap_or(""));
        let isa = isa(self.machine);
        let Some(ours) = isa.decode(bytes, At::of_pointer(self.machine, address | self.state)) else {
            if self.state == 1 && is_any(&NOT_THUMB) && bytes[1] & 0xee != 0xee {
                return None;
            }
            return Some(Err(format!("{text}: not decoded")));
        };
        let differs = |what: String| Some(Err(format!("{text}: {what}")));
        if ours.bytes.len() != theirs.len() {
            return differs(format!("{} bytes long", ours.insn.len));
        }
        let detail = self.capstone.insn_detail(theirs).unwrap();
        let branches =
            detail.regs_write().iter().any(|&id| self.capstone.reg_name(id).as_deref() == Some("pc"))
                || detail.groups().iter().any(|id| BRANCHES.contains(&u32::from(id.0)));
        match ours.insn.flow {
            Flow::Next if branches => return differs("is no branch".to_owned()),
            Flow::Next => {}
            Flow::Direct { target, .. } => {
                let named = theirs.op_str().and_then(|operands| operands.rsplit("#0x").next());
                if named.and_then(|target| u64::from_str_radix(target, 16).ok()) != Some(target & !1) {
                    return differs(format!("goes to {target:#x}"));
                }
            }
            Flow::Trap => {}
            flow if !branches => return differs(format!("{flow:?}")),
            _ => {}
        }
        let mut effects = Vec::new();
        isa.effects(&ours, &mut effects);
        if ours.insn.flow == Flow::Next && !is_any(&WRITES_LESS) {
            let written = effects.iter().fold(0, |written, effect| written | effect.registers_written());
            for register in detail.regs_write().iter().filter_map(|&id| self.register(id)) {
                if written >> register.0 & 1 == 0 {
                    return differs(format!("does not write {register:?}: {effects:?}"));
                }
            }
        }
        Some(Ok(mnemonic.to_owned()))
    }

    fn check(&self) {
        let mut random = RANDOM_BYTES.to_le_bytes().to_vec();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        random.resize_with(RANDOM_BYTES, || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        });
        let mut seen = BTreeMap::<String, usize>::new();
        let mut differences = BTreeMap::<String, (usize, String)>::new();
        for code in [random, self.program()] {
            for at in (0..code.len().saturating_sub(4)).step_by(self.step) {
                match self.compare(&code[at..at + 4], ADDRESS + at as u64) {
                    Some(Ok(mnemonic)) => *seen.entry(mnemonic).or_default() += 1,
                    Some(Err(difference)) => {
                        let key = difference.split(' ').next().unwrap().to_owned();
                        let word = u32::from_le_bytes(code[at..at + 4].try_into().unwrap());
                        differences.entry(key).or_insert((0, format!("{word:08x}: {difference}"))).0 += 1;
                    }
                    None => {}
                }
            }
        }
        assert!(seen.len() > LEAST_KINDS, "only {} kinds of instructions", seen.len());
        let differences: Vec<String> =
            differences.into_values().map(|(count, example)| format!("{example} ({count} in all)")).collect();
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }
}

/// Whether the instruction is undefined because of its use of the program counter: only some moves, additions and loads
/// may write it, and no address may update it as its base.
fn is_undefined(instruction: &capstone::Insn) -> bool {
    let mnemonic = instruction.mnemonic().unwrap_or("");
    let operands = instruction.op_str().unwrap_or("");
    let wide_only = mnemonic.contains(".w") && !["ldr.w", "ldm.w", "pop.w"].contains(&mnemonic);
    let may_write =
        ["mov", "add", "sub", "ldr", "ldm", "pop", "and", "orr", "eor", "bic", "mvn", "rsb", "adc"];
    let narrow = ["ldrb", "ldrh", "ldrs", "ldrd", "ldre", "movt", "movw", "addw", "subw"];
    let writes_it = operands.starts_with("pc")
        && (wide_only
            || !may_write.iter().any(|start| mnemonic.starts_with(start))
            || narrow.iter().any(|start| mnemonic.starts_with(start)));
    let second = operands.split(", ").skip(1).any(|operand| operand == "pc");
    let changes_base = operands.contains("pc!") || operands.contains("[pc") && !operands.ends_with(']');
    writes_it || changes_base || second
}

#[test]
fn a64() {
    Encoding::a64().check();
}

#[test]
fn a32() {
    Encoding::arm(arch::arm::ArchMode::Arm, "-marm", 0, 4).check();
}

#[test]
fn t32() {
    Encoding::arm(arch::arm::ArchMode::Thumb, "-mthumb", 1, 2).check();
}
