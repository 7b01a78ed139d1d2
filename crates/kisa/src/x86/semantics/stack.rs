//! The stack, and transfers of control.

use iced_x86::{Mnemonic, OpKind};

use super::Model;
use super::registers::{EAX, EBP, ESP};
use crate::semantics::{Address, BinaryOp, Effect, Reg, Value};
use crate::x86::{convention, decode};

impl Model<'_> {
    pub(super) fn add_to_stack_pointer(&mut self, bytes: i64) {
        let (op, count) = if bytes < 0 { (BinaryOp::Sub, -bytes) } else { (BinaryOp::Add, bytes) };
        self.out.push(Effect::Binary {
            op,
            dst: ESP,
            left: Value::Reg { reg: ESP, width: self.word },
            right: Value::Const(count as u64),
            width: self.word,
        });
    }

    fn stack(&self, displacement: i64) -> Address {
        Address { base: Some(ESP), displacement, ..Address::default() }
    }

    /// Pushes a value. It is read, and its slot written, before the stack pointer moves: `push %esp` pushes the old
    /// one.
    pub(super) fn push(&mut self, value: Value) {
        let width = self.word;
        if self.instruction.stack_pointer_increment() != -i32::from(width) {
            return self.forget(); // 16-bit pushes
        }
        self.out.push(Effect::Store { to: self.stack(-i64::from(width)), value, width });
        self.add_to_stack_pointer(-i64::from(width));
    }

    pub(super) fn pop(&mut self) {
        let word = i64::from(self.word);
        if i64::from(self.instruction.stack_pointer_increment()) != word {
            return self.forget();
        }
        let width = self.word;
        let load = |from| Value::Load { from, width };
        match (self.instruction.op0_kind(), self.destination()) {
            (OpKind::Register, Some(ESP)) => {
                let value = load(self.stack(0));
                self.out.push(Effect::Set { dst: ESP, value, width: self.word });
            }
            (OpKind::Register, Some(dst)) => {
                let value = load(self.stack(0));
                self.out.push(Effect::Set { dst, value, width: self.word });
                self.add_to_stack_pointer(word);
            }
            // The address uses the stack pointer after the pop.
            (OpKind::Memory, _) => {
                self.add_to_stack_pointer(word);
                self.store(load(self.stack(-word)), self.word);
            }
            _ => self.add_to_stack_pointer(word),
        }
    }

    pub(super) fn leave(&mut self) {
        let width = self.word;
        self.out.push(Effect::Set { dst: ESP, value: Value::Reg { reg: EBP, width }, width });
        let value = Value::Load { from: self.stack(0), width };
        self.out.push(Effect::Set { dst: EBP, value, width });
        self.add_to_stack_pointer(i64::from(width));
    }

    pub(super) fn call(&mut self) {
        if decode::is_system_call(self.bits, self.instruction) {
            return self.system_call(&[]);
        }
        self.transfer();
        if self.instruction.stack_pointer_increment() != -i32::from(self.word) {
            return self.forget(); // far calls
        }
        let displacement = self.instruction.next_ip() as i64;
        let back = match self.relocated {
            Some(_) => Value::Unknown,
            None => Value::Address(Address { displacement, ..Address::default() }),
        };
        let width = self.word;
        self.out.push(Effect::Store { to: self.stack(-i64::from(width)), value: back, width });
        self.add_to_stack_pointer(-i64::from(width));
    }

    /// Appends the target of a computed branch.
    pub(super) fn transfer(&mut self) {
        if matches!(self.instruction.op0_kind(), OpKind::Register | OpKind::Memory) {
            let target = match self.operand(0) {
                value @ (Value::Reg { width, .. } | Value::Load { width, .. }) if width == self.word => value,
                _ => {
                    self.escape();
                    Value::Unknown
                }
            };
            self.out.push(Effect::Transfer(target));
        }
    }

    pub(super) fn ret(&mut self) {
        let popped = match self.instruction.op0_kind() {
            OpKind::Immediate16 => i64::from(self.instruction.immediate16()),
            _ => 0,
        };
        let increment = i64::from(self.word) + popped;
        if i64::from(self.instruction.stack_pointer_increment()) != increment {
            return self.forget();
        }
        self.add_to_stack_pointer(increment);
    }

    pub(super) fn system_call(&mut self, clobbered: &[Reg]) {
        let compat = self.bits == 64 && self.instruction.mnemonic() == Mnemonic::Int;
        self.out.push(Effect::SystemCall { compat, number: None });
        self.out.push(Effect::Clobber(EAX));
        self.out.extend(clobbered.iter().map(|&reg| Effect::Clobber(reg)));
        self.out.push(Effect::ClobberMemory);
    }

    /// `vmcall`: the hypervisor changes registers of results, and memory.
    pub(super) fn hypercall(&mut self) {
        let convention = if self.bits == 64 { &convention::X86_64 } else { &convention::I386 };
        self.out.extend(convention.clobbered().map(Effect::Clobber));
        self.out.extend([Effect::ClobberFlags, Effect::ClobberMemory]);
    }
}
