//! Results of x86 instructions, in the language of [`crate::semantics`].
//!
//! The instructions that compilers use to move constants, addresses and switch indices are modelled below. [`forget`]
//! handles all others: it asks iced-x86 for the registers and memory that an instruction reads and writes, lets the
//! reads escape, and makes the writes unknown.
//!
//! Three conventions matter to a reader of the effects:
//!
//! - A choice between two known values (`setcc`, `sbb %eax,%eax`, `adc $0,%eax`) is a definite [`Effect::Set`] followed
//!   by an [`Effect::MaybeSet`].
//! - A call only pushes its return address and moves the stack pointer: the reader supplies the effects of the callee.
//!   `ret` pops the return address.
//! - A system call, including `call *%gs:0x10`, returns with another `%eax` and changed memory, and keeps the stack
//!   pointer.

use iced_x86::{Code, ConditionCode, Instruction, Mnemonic, OpAccess, OpKind, Register};

mod arithmetic;
mod escape;
mod stack;

use super::decode::Decoded;
use super::info::with_info;
use crate::RelocatedField;
use crate::semantics::{Address, BinaryOp, Condition, Effect, Reg, Segment, Value, low_bytes};

/// The general registers, by the numbers that instructions encode them with. `EAX` is also `RAX`.
pub mod registers {
    use crate::Reg;

    /// `%eax`, `%rax`
    pub const EAX: Reg = Reg(0);
    /// `%ecx`, `%rcx`
    pub const ECX: Reg = Reg(1);
    /// `%edx`, `%rdx`
    pub const EDX: Reg = Reg(2);
    /// `%ebx`, `%rbx`
    pub const EBX: Reg = Reg(3);
    /// `%esp`, `%rsp`
    pub const ESP: Reg = Reg(4);
    /// `%ebp`, `%rbp`
    pub const EBP: Reg = Reg(5);
    /// `%esi`, `%rsi`
    pub const ESI: Reg = Reg(6);
    /// `%edi`, `%rdi`
    pub const EDI: Reg = Reg(7);
    /// `%r8`
    pub const R8: Reg = Reg(8);
    /// `%r9`
    pub const R9: Reg = Reg(9);
    /// `%r10`
    pub const R10: Reg = Reg(10);
    /// `%r11`
    pub const R11: Reg = Reg(11);
    /// `%r12`
    pub const R12: Reg = Reg(12);
    /// `%r13`
    pub const R13: Reg = Reg(13);
    /// `%r14`
    pub const R14: Reg = Reg(14);
    /// `%r15`
    pub const R15: Reg = Reg(15);
}

use registers::{EAX, ECX, EDI, EDX, R11};

/// See [`crate::Isa::effects`].
pub(super) fn effects_of(decoded: &Decoded, out: &mut Vec<Effect>) {
    let Decoded { bits, ref instruction, .. } = *decoded;
    Model { bits, word: (bits / 8) as u8, instruction, relocated: None, has_escaped: false, out }.run();
}

/// See [`crate::Rewritable::relocated_effects`].
pub(super) fn relocated_effects(
    decoded: &Decoded,
    bytes: &[u8],
    fields: &[RelocatedField],
    out: &mut Vec<Effect>,
) {
    let Decoded { bits, ref instruction, .. } = *decoded;
    let mut relocated = Relocated::default();
    if !fields.is_empty() {
        let constants = decoded.all_constants(bytes);
        let field = |has: bool, offset: usize| {
            fields.iter().copied().find(|field| has && usize::from(field.offset) == offset)
        };
        relocated.displacement = field(constants.has_displacement(), constants.displacement_offset());
        relocated.immediate = field(constants.has_immediate(), constants.immediate_offset());
    }
    let (word, relocated) = ((bits / 8) as u8, Some(relocated));
    Model { bits, word, instruction, relocated, has_escaped: false, out }.run();
}

/// The constants of an instruction that the linker fills in.
#[derive(Clone, Copy, Default)]
struct Relocated {
    displacement: Option<RelocatedField>,
    immediate: Option<RelocatedField>,
}

/// Turns one instruction into effects.
struct Model<'a> {
    bits: u32,
    /// Width of an address and of a stack slot in bytes.
    word: u8,
    instruction: &'a Instruction,
    /// `None` for linked code, whose fields are all final.
    relocated: Option<Relocated>,
    /// Whether its reads have been recorded as [`Effect::Escape`].
    has_escaped: bool,
    out: &'a mut Vec<Effect>,
}

impl Model<'_> {
    fn run(&mut self) {
        use Mnemonic::*;
        if self.has_unnamed_operand() {
            self.escape();
        }
        match self.instruction.mnemonic() {
            Nop | Endbr32 | Endbr64 | Pause | Prefetcht0 | Prefetchw => {}
            Mov => self.assign(0, self.operand(1)),
            Movzx => self.assign(0, self.operand(1)),
            Movsx | Movsxd => self.sign_extend(),
            Cwde => self.widen(EAX, 2, 4),
            Cdqe => self.widen(EAX, 4, 8),
            Lea => self.assign(0, self.lea()),
            Xchg => self.exchange(),
            Push => self.push(self.operand(0)),
            Pushf | Pushfd | Pushfq => self.push(Value::Unknown),
            Pop => self.pop(),
            Popf | Popfd | Popfq => {
                self.add_to_stack_pointer(i64::from(self.instruction.stack_pointer_increment()));
                self.out.push(Effect::ClobberFlags);
            }
            Leave if self.instruction.code() != Code::Leavew => self.leave(),
            Call => self.call(),
            Ret => self.ret(),
            Jmp => self.transfer(),
            Add => self.binary(BinaryOp::Add),
            Sub => self.sub(),
            And => self.and(),
            Or => self.or(),
            Xor => self.xor(),
            Shl | Sal => self.shift(BinaryOp::Shl),
            Shr => self.shift(BinaryOp::Shr),
            Inc => self.step(BinaryOp::Add),
            Dec => self.step(BinaryOp::Sub),
            Adc => self.with_carry(BinaryOp::Add, 1),
            Sbb => self.subtract_with_borrow(),
            Neg => self.negate(),
            Not => self.arithmetic(BinaryOp::Xor, Value::Const(low_bytes(u64::MAX, self.width(0)))),
            Sar if self.spreads_sign() => self.spread_sign(),
            Cdq => self.choose(EDX, 0, u64::MAX, 4),
            Cqo => self.choose(EDX, 0, u64::MAX, 8),
            Cmp => self.compare(),
            Test => self.test(),
            Vmcall | Vmmcall => self.hypercall(),
            Int if self.instruction.immediate8() == 0x80 => self.system_call(&[]),
            Syscall if self.bits == 32 => self.system_call(&[ECX]),
            Syscall => self.system_call(&[ECX, R11]),
            Sysenter => self.system_call(&[ECX, EDX]),
            _ if self.instruction.is_jcc_short_or_near() => {
                self.out.push(Effect::BranchIf(condition(self.instruction.condition_code())));
            }
            _ if is_set_on_condition(self.instruction) => self.set_on_condition(),
            _ if is_move_on_condition(self.instruction) => self.move_on_condition(),
            Stosb | Stosw | Stosd | Stosq | Movsb | Movsw | Movsd | Movsq | Insb | Insw | Insd
                if self.instruction.is_string_instruction() =>
            {
                self.string_store()
            }
            _ => self.forget(),
        }
    }

    // Operands.

    fn width(&self, operand: u32) -> u8 {
        match self.instruction.op_kind(operand) {
            OpKind::Register => self.instruction.op_register(operand).size() as u8,
            OpKind::Memory => self.instruction.memory_size().size() as u8,
            _ => self.width_of_immediate(),
        }
    }

    /// Returns the width of an immediate: that of the other operand, or of a stack slot if there is none (`push`).
    fn width_of_immediate(&self) -> u8 {
        match self.instruction.op0_kind() {
            OpKind::Register | OpKind::Memory => self.width(0),
            _ => self.word,
        }
    }

    fn operand(&self, operand: u32) -> Value {
        match self.instruction.op_kind(operand) {
            OpKind::Register => {
                let register = self.instruction.op_register(operand);
                match general(register) {
                    Some(reg) if !is_high_byte(register) => Value::Reg { reg, width: register.size() as u8 },
                    _ => Value::Unknown,
                }
            }
            OpKind::Memory => match self.address() {
                Some(from) if self.width(operand) <= 8 => Value::Load { from, width: self.width(operand) },
                _ => Value::Unknown,
            },
            _ if self.relocated.is_some_and(|relocated| relocated.immediate.is_some()) => self.symbol(),
            _ => match self.instruction.try_immediate(operand) {
                Ok(value) => Value::Const(low_bytes(value, self.width_of_immediate())),
                Err(_) => Value::Unknown,
            },
        }
    }

    /// Returns the immediate that the linker fills in.
    fn symbol(&self) -> Value {
        match self.relocated.and_then(|relocated| relocated.immediate).filter(is_whole) {
            Some(field) => Value::Symbol { symbol: field.symbol, addend: field.addend },
            None => Value::Unknown,
        }
    }

    fn address(&self) -> Option<Address> {
        let address = address(self.bits, self.instruction)?;
        let Some(relocated) = self.relocated else { return Some(address) };
        match relocated.displacement {
            Some(field) => is_whole(&field).then_some(Address {
                symbol: Some(field.symbol),
                displacement: field.addend,
                ..address
            }),
            None => (!self.instruction.is_ip_rel_memory_operand()).then_some(address),
        }
    }

    /// `lea` computes an address and ignores segments.
    fn lea(&self) -> Value {
        match self.address() {
            Some(address) => Value::Address(Address { segment: None, ..address }),
            None => Value::Unknown,
        }
    }

    /// Assigns `value` to the destination with the number `operand`.
    fn assign(&mut self, operand: u32, value: Value) {
        let width = self.width(operand);
        match self.instruction.op_kind(operand) {
            OpKind::Register => {
                let register = self.instruction.op_register(operand);
                match general(register) {
                    Some(dst) if is_high_byte(register) => self.out.push(Effect::Clobber(dst)),
                    Some(dst) => self.out.push(Effect::Set { dst, value, width }),
                    None => {}
                }
            }
            OpKind::Memory => self.store(value, width),
            _ => {}
        }
    }

    fn store(&mut self, value: Value, width: u8) {
        self.out.push(match self.address() {
            Some(to) => Effect::Store { to, value, width },
            None => Effect::ClobberMemory,
        });
    }

    /// Returns the destination as a register that the language can name.
    fn destination(&self) -> Option<Reg> {
        let register = self.instruction.op0_register();
        if self.instruction.op0_kind() != OpKind::Register || is_high_byte(register) {
            return None;
        }
        general(register)
    }

    // Moves.

    fn sign_extend(&mut self) {
        let (from, width) = (self.width(1), self.width(0));
        match self.destination() {
            Some(dst) => self.out.push(Effect::SetSigned { dst, value: self.operand(1), from, width }),
            None => self.forget(),
        }
    }

    fn widen(&mut self, dst: Reg, from: u8, width: u8) {
        let value = Value::Reg { reg: dst, width: from };
        self.out.push(Effect::SetSigned { dst, value, from, width });
    }

    /// `xchg`. With a memory operand it is an atomic operation, whose result the model does not follow.
    fn exchange(&mut self) {
        match (self.operand(0), self.operand(1)) {
            (Value::Reg { reg: a, width }, Value::Reg { reg: b, .. }) if width == self.word => {
                self.out.push(Effect::Swap(a, b));
            }
            _ => self.forget(),
        }
    }

    fn move_on_condition(&mut self) {
        let width = self.width(0);
        match self.destination() {
            Some(dst) => self.out.push(Effect::MaybeSet { dst, value: self.operand(1), width }),
            None => self.forget(),
        }
        // In 64-bit mode a 32-bit move clears the upper half even if the condition fails.
        if self.bits == 64 && width == 4 {
            if let Some(reg) = self.destination() {
                self.out.push(Effect::Set { dst: reg, value: Value::Reg { reg, width }, width });
            }
        }
    }

    fn set_on_condition(&mut self) {
        match (self.destination(), self.instruction.op0_kind()) {
            (Some(dst), _) => {
                self.choose(dst, 0, 1, 1);
            }
            (None, OpKind::Memory) => self.store(Value::Unknown, 1),
            _ => self.forget(),
        }
    }

    /// `stos`, `movs`, `ins`: memory at `%edi` is written, once or `%ecx` times.
    fn string_store(&mut self) {
        self.escape();
        let instruction = self.instruction;
        let to = Address { base: Some(EDI), ..Address::default() };
        let addressed = matches!(
            (instruction.op0_kind(), self.bits),
            (OpKind::MemoryESEDI, 32) | (OpKind::MemoryESRDI, 64)
        );
        let repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
        let width = instruction.memory_size().size() as u8;
        self.out.push(match (addressed, repeated) {
            (true, false) => Effect::Store { to, value: Value::Unknown, width },
            (true, true) => Effect::ClobberRange(to),
            (false, _) => Effect::ClobberMemory,
        });
        self.forget_registers();
    }

    // Comparisons.

    fn compare(&mut self) {
        let (left, right, width) = (self.operand(0), self.operand(1), self.width(0));
        self.out.push(Effect::Compare { left, right, width });
    }

    /// `test %eax,%eax` compares with 0; other masks clobber the flags.
    fn test(&mut self) {
        if self.same_register() {
            let (left, width) = (self.operand(0), self.width(0));
            self.out.push(Effect::Compare { left, right: Value::Const(0), width });
        } else {
            self.out.push(Effect::ClobberFlags);
        }
    }

    // Everything else.

    /// Forgets every general register, the memory and the flags that the instruction writes.
    fn forget(&mut self) {
        self.escape();
        let instruction = self.instruction;
        let is_there = is_operand_memory(instruction) && !is_beside_operand(instruction);
        with_info(instruction, |info| {
            for used in info.used_memory().iter().filter(|used| writes(used.access())) {
                let width = used.memory_size().size();
                let operand = is_there.then(|| self.address()).flatten();
                self.out.push(match operand {
                    Some(to) if (1..=255).contains(&width) => {
                        Effect::Store { to, value: Value::Unknown, width: width as u8 }
                    }
                    Some(to) => Effect::ClobberRange(to),
                    None => Effect::ClobberMemory,
                });
            }
        });
        self.forget_registers();
    }

    fn forget_registers(&mut self) {
        // iced lists r11 as written by `syscall`, in 32-bit code too.
        let exists = |reg: &Reg| self.bits == 64 || reg.0 < REGISTERS_32;
        with_info(self.instruction, |info| {
            let written = info.used_registers().iter().filter(|used| writes(used.access()));
            let registers = written.filter_map(|used| general(used.register())).filter(exists);
            self.out.extend(registers.map(Effect::Clobber));
        });
        // A rotation through the carry by a whole turn changes flags on some processors.
        let rotates = matches!(self.instruction.mnemonic(), Mnemonic::Rcl | Mnemonic::Rcr);
        if rotates || self.instruction.rflags_modified() != 0 {
            self.out.push(Effect::ClobberFlags);
        }
    }
}

/// Returns the memory operand; `None` if the address is not computed with full-width registers.
pub(super) fn address(bits: u32, instruction: &Instruction) -> Option<Address> {
    let segment = match instruction.memory_segment() {
        Register::FS => Some(Segment::Fs),
        Register::GS => Some(Segment::Gs),
        _ => None,
    };
    if instruction.is_ip_rel_memory_operand() {
        let displacement = instruction.ip_rel_memory_address() as i64;
        return Some(Address { displacement, segment, ..Address::default() });
    }
    let part = |register: Register| match general(register) {
        _ if register == Register::None => Some(None),
        Some(reg) if register.size() == (bits / 8) as usize => Some(Some(reg)),
        _ => None,
    };
    let base = part(instruction.memory_base())?;
    let index = part(instruction.memory_index())?;
    let displacement = instruction.memory_displacement64();
    Some(Address {
        base,
        index: index.map(|reg| (reg, instruction.memory_index_scale() as u8)),
        symbol: None,
        displacement: if bits == 32 { i64::from(displacement as u32 as i32) } else { displacement as i64 },
        segment,
    })
}

/// Whether the instruction accesses only the memory of its explicit operand.
fn is_operand_memory(instruction: &Instruction) -> bool {
    let explicit = (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    explicit && !instruction.is_stack_instruction() && !instruction.is_vsib()
}

/// Whether the instruction accesses a bit whose number is in a register, anywhere before or after its operand.
fn is_beside_operand(instruction: &Instruction) -> bool {
    use Mnemonic::{Btc, Btr, Bts};
    matches!(instruction.mnemonic(), Btc | Btr | Bts) && instruction.op1_kind() == OpKind::Register
}

/// Whether a field is as wide as an address. A field that holds a part of an address is unknown.
fn is_whole(field: &RelocatedField) -> bool {
    field.width >= 4
}

fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

/// Number of general registers in 32-bit code.
pub(super) const REGISTERS_32: u8 = 8;

/// Returns the general register that contains this register, by its encoding number.
pub(super) fn general(register: Register) -> Option<Reg> {
    let full = register.full_register();
    full.is_gpr64().then(|| Reg((full as u32 - Register::RAX as u32) as u8))
}

fn is_high_byte(register: Register) -> bool {
    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH)
}

pub(super) fn is_set_on_condition(instruction: &Instruction) -> bool {
    instruction.condition_code() != ConditionCode::None
        && instruction.op_count() == 1
        && matches!(instruction.op0_kind(), OpKind::Register | OpKind::Memory)
}

pub(super) fn is_move_on_condition(instruction: &Instruction) -> bool {
    instruction.condition_code() != ConditionCode::None
        && instruction.op_count() == 2
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().is_gpr()
}

/// Returns the meaning of a condition code for the last comparison.
pub(super) fn condition(code: ConditionCode) -> Condition {
    match code {
        ConditionCode::e => Condition::Equal,
        ConditionCode::ne => Condition::NotEqual,
        ConditionCode::b => Condition::Below,
        ConditionCode::be => Condition::BelowOrEqual,
        ConditionCode::a => Condition::Above,
        ConditionCode::ae => Condition::AboveOrEqual,
        ConditionCode::l => Condition::Less,
        ConditionCode::le => Condition::LessOrEqual,
        ConditionCode::g => Condition::Greater,
        ConditionCode::ge => Condition::GreaterOrEqual,
        _ => Condition::Other,
    }
}

#[cfg(test)]
mod tests;
