//! Effects of instructions, given by their bytes.

use super::registers::*;
use super::*;
use crate::Memory;
use crate::x86::decode;

fn model(bits: u32, bytes: &[u8]) -> Vec<Effect> {
    let mut out = Vec::new();
    effects_of(&decode::Decoded::new(bits, bytes, 0x1000).unwrap(), &mut out);
    out
}

fn reg(reg: Reg, width: u8) -> Value {
    Value::Reg { reg, width }
}

fn at(base: Reg, displacement: i64) -> Address {
    Address { base: Some(base), displacement, ..Address::default() }
}

#[test]
fn moves() {
    let set = |value, width| vec![Effect::Set { dst: EAX, value, width }];
    assert_eq!(model(32, b"\xb8\x04\x00\x00\x00"), set(Value::Const(4), 4));
    assert_eq!(model(32, b"\xb0\x04"), set(Value::Const(4), 1));
    assert_eq!(model(64, b"\x48\xc7\xc0\xff\xff\xff\xff"), set(Value::Const(u64::MAX), 8));
    let load = Value::Load { from: at(ESP, 8), width: 4 };
    assert_eq!(model(32, b"\x8b\x44\x24\x08"), set(load, 4));
    // movzbl %al,%eax
    assert_eq!(model(32, b"\x0f\xb6\xc0"), set(reg(EAX, 1), 4));
    // mov $1,%ah
    assert_eq!(model(32, b"\xb4\x01"), [Effect::Clobber(EAX)]);
    // lea -0x10(%ebx,%ecx,4),%eax
    let address = Address { index: Some((ECX, 4)), ..at(EBX, -16) };
    assert_eq!(model(32, b"\x8d\x44\x8b\xf0"), set(Value::Address(address), 4));
    // lea 0x10(%rip),%rax
    let address = Address { displacement: 0x1017, ..Address::default() };
    assert_eq!(model(64, b"\x48\x8d\x05\x10\0\0\0"), set(Value::Address(address), 8));
    // mov %gs:0x10,%eax
    let from = Address { displacement: 16, segment: Some(crate::Segment::Gs), ..Address::default() };
    let load = Value::Load { from, width: 4 };
    assert_eq!(model(32, b"\x65\xa1\x10\0\0\0"), set(load, 4));
    // xchg %edi,%ebx
    assert_eq!(model(32, b"\x87\xfb"), [Effect::Swap(EBX, EDI)]);
    // movslq (%rdx,%rax,4),%rax
    let from = Address { index: Some((EAX, 4)), ..at(EDX, 0) };
    let value = Value::Load { from, width: 4 };
    let signed = Effect::SetSigned { dst: EAX, value, from: 4, width: 8 };
    assert_eq!(model(64, b"\x48\x63\x04\x82"), [signed]);
}

#[test]
fn stack() {
    let moved = |op, width, by| Effect::Binary {
        op,
        dst: ESP,
        left: reg(ESP, width),
        right: Value::Const(by),
        width,
    };
    let push = Effect::Store { to: at(ESP, -4), value: Value::Const(20), width: 4 };
    assert_eq!(model(32, b"\x6a\x14"), [push, moved(BinaryOp::Sub, 4, 4)]);
    let load = Value::Load { from: at(ESP, 0), width: 8 };
    let pop = Effect::Set { dst: EAX, value: load, width: 8 };
    assert_eq!(model(64, b"\x58"), [pop, moved(BinaryOp::Add, 8, 8)]);
    assert_eq!(model(32, b"\xc3"), [moved(BinaryOp::Add, 4, 4)]);
    assert_eq!(model(32, b"\xc2\x08\0"), [moved(BinaryOp::Add, 4, 12)]);
    // call .+5
    let back = Value::Address(Address { displacement: 0x1005, ..Address::default() });
    let push = Effect::Store { to: at(ESP, -4), value: back, width: 4 };
    assert_eq!(model(32, b"\xe8\0\0\0\0"), [push, moved(BinaryOp::Sub, 4, 4)]);
}

#[test]
fn choices() {
    let sbb = [
        Effect::Set { dst: EAX, value: Value::Const(0), width: 4 },
        Effect::MaybeSet { dst: EAX, value: Value::Const(0xffff_ffff), width: 4 },
        Effect::ClobberFlags,
    ];
    assert_eq!(model(32, b"\x19\xc0"), sbb);
    // sete %al
    let sete = [
        Effect::Set { dst: EAX, value: Value::Const(0), width: 1 },
        Effect::MaybeSet { dst: EAX, value: Value::Const(1), width: 1 },
    ];
    assert_eq!(model(32, b"\x0f\x94\xc0"), sete);
    // sar $31,%eax; cltd
    assert_eq!(model(32, b"\xc1\xf8\x1f"), sbb);
    let value = Value::Const(0xffff_ffff);
    assert_eq!(model(32, b"\x99")[1], Effect::MaybeSet { dst: EDX, value, width: 4 });
    assert!(model(32, b"\xc1\xf8\x1e").contains(&Effect::Clobber(EAX)));
    // cmovne %ecx,%eax
    let cmov = Effect::MaybeSet { dst: EAX, value: reg(ECX, 4), width: 4 };
    assert_eq!(model(32, b"\x0f\x45\xc1"), [cmov]);
    assert_eq!(model(32, b"\x77\x02"), [Effect::BranchIf(Condition::Above)]);
}

#[test]
fn arithmetic() {
    // or $-1,%eax; andl $0,(%eax); xor %eax,%eax
    let set = Effect::Set { dst: EAX, value: Value::Const(0xffff_ffff), width: 4 };
    assert_eq!(model(32, b"\x83\xc8\xff"), [set, Effect::ClobberFlags]);
    let store = Effect::Store { to: at(EAX, 0), value: Value::Const(0), width: 4 };
    assert_eq!(model(32, b"\x83\x20\x00"), [store, Effect::ClobberFlags]);
    let set = Effect::Set { dst: EAX, value: Value::Const(0), width: 4 };
    assert_eq!(model(64, b"\x31\xc0"), [set, Effect::ClobberFlags]);
    // cmp $0x14,%eax; test %eax,%eax
    let compare = |right| Effect::Compare { left: reg(EAX, 4), right, width: 4 };
    assert_eq!(model(32, b"\x83\xf8\x14"), [compare(Value::Const(20))]);
    assert_eq!(model(32, b"\x85\xc0"), [compare(Value::Const(0))]);
    // and $7,%eax
    let and = model(32, b"\x83\xe0\x07");
    assert!(matches!(and[0], Effect::Binary { op: BinaryOp::And, dst: EAX, .. }));
    assert_eq!(and[1], compare(Value::Const(0)));
    // neg %eax
    let negated =
        Effect::Binary { op: BinaryOp::Sub, dst: EAX, left: Value::Const(0), right: reg(EAX, 4), width: 4 };
    assert_eq!(model(32, b"\xf7\xd8")[1], negated);
    // imul $3,%ecx,%eax has no model
    assert!(model(32, b"\x6b\xc1\x03").contains(&Effect::Clobber(EAX)));
}

/// Processors do not agree about the flags after a whole turn: nine bits, for a byte with its carry.
#[test]
fn rotations_through_the_carry_change_flags() {
    for count in [1, 9, 18] {
        assert_eq!(model(64, &[0xc0, 0xda, count]).last(), Some(&Effect::ClobberFlags));
    }
}

#[test]
fn transfers() {
    // jmp *0x1000(,%eax,4)
    let from = Address { index: Some((EAX, 4)), displacement: 0x1000, ..Address::default() };
    let transfer = Effect::Transfer(Value::Load { from, width: 4 });
    assert_eq!(model(32, b"\xff\x24\x85\0\x10\0\0"), [transfer]);
    // notrack jmp *%rax
    assert_eq!(model(64, b"\x3e\xff\xe0"), [Effect::Transfer(reg(EAX, 8))]);
    // call *%gs:0x10
    let entered =
        |compat| [Effect::SystemCall { compat, number: None }, Effect::Clobber(EAX), Effect::ClobberMemory];
    assert_eq!(model(32, b"\x65\xff\x15\x10\0\0\0"), entered(false));
    assert_eq!(model(32, b"\xcd\x80"), entered(false));
    assert_eq!(model(64, b"\xcd\x80"), entered(true));
    assert!(model(64, b"\x0f\x05").contains(&Effect::Clobber(R11)));
}

#[test]
fn the_rest_is_forgotten() {
    // cpuid
    let cpuid = model(32, b"\x0f\xa2");
    for reg in [EAX, EBX, ECX, EDX] {
        assert!(cpuid.contains(&Effect::Clobber(reg)));
    }
    // rep stosl
    let stos = model(32, b"\xf3\xab");
    assert!(stos.contains(&Effect::ClobberRange(at(EDI, 0))));
    assert!(stos.contains(&Effect::Clobber(EDI)) && stos.contains(&Effect::Clobber(ECX)));
    // movaps %xmm0,0x10(%esp)
    let store = Effect::Store { to: at(ESP, 16), value: Value::Unknown, width: 16 };
    assert_eq!(model(32, b"\x0f\x29\x44\x24\x10"), [store]);
    // popa
    assert!(model(32, b"\x61").contains(&Effect::Clobber(EAX)));
}

#[test]
fn what_becomes_of_operands_may_not_be_told() {
    let escaping = |bytes: &[u8]| {
        let all = model(32, bytes);
        let escape = |effect: &Effect| match *effect {
            Effect::Escape(value) => Some(value),
            _ => None,
        };
        all.iter().filter_map(escape).collect::<Vec<_>>()
    };
    let load = |from, width| Value::Load { from, width };
    // movd %eax,%xmm0; movd %xmm0,%eax; movd %xmm0,(%esi)
    assert_eq!(escaping(b"\x66\x0f\x6e\xc0"), [reg(EAX, 4)]);
    assert!(escaping(b"\x66\x0f\x7e\xc0").is_empty() && escaping(b"\x66\x0f\x7e\x06").is_empty());
    // movups (%esi),%xmm0; fldt (%esi); fxrstor (%esi)
    assert_eq!(escaping(b"\x0f\x10\x06"), [load(at(ESI, 0), 8), load(at(ESI, 8), 8)]);
    assert_eq!(escaping(b"\xdb\x2e"), [load(at(ESI, 0), 8), load(at(ESI, 8), 2)]);
    assert_eq!(escaping(b"\x0f\xae\x0e"), [Value::Unknown]);
    // add %ecx,4(%esp); xadd %ebx,(%esi); divl 4(%esp); lock cmpxchg %edx,(%ebx); mov %cl,%ah; mov %ah,%cl;
    // mov %eax,%cr3
    assert_eq!(escaping(b"\x01\x4c\x24\x04"), [reg(ECX, 4), load(at(ESP, 4), 4)]);
    assert_eq!(escaping(b"\x0f\xc1\x1e"), [reg(EBX, 4), load(at(ESI, 0), 4)]);
    let divided = escaping(b"\xf7\x74\x24\x04");
    assert!(divided.contains(&reg(EAX, 4)) && !divided.contains(&reg(ESP, 4)), "{divided:?}");
    assert!(!escaping(b"\xf0\x0f\xb1\x13").contains(&reg(EBX, 4)));
    assert_eq!(escaping(b"\x88\xcc"), [reg(ECX, 4)]);
    assert_eq!(escaping(b"\x88\xe1"), [reg(EAX, 4)]);
    assert_eq!(escaping(b"\x0f\x22\xd8"), [reg(EAX, 4)]);
    // movsl; btsl %eax,(%esi), which reads and writes any word around
    assert!(escaping(b"\xa5").contains(&Value::Unknown));
    assert!(escaping(b"\x0f\xab\x06").contains(&Value::Unknown));
    // mov 4(%esp),%eax; add %ecx,%eax; push %eax; test %eax,%ecx; bt %eax,(%esi)
    for bytes in [&b"\x8b\x44\x24\x04"[..], b"\x01\xc8", b"\x50", b"\x85\xc1", b"\x0f\xa3\x06"] {
        assert!(escaping(bytes).is_empty(), "{bytes:x?}");
    }
}

/// Calls `f` with many instructions: 32 or 64 bits, and bytes that begin with one.
fn for_random_instructions(mut f: impl FnMut(u32, &[u8], &Instruction)) {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for round in 0..200_000u32 {
        let mut bytes = [0u8; 15];
        for byte in &mut bytes {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *byte = (state >> 56) as u8;
        }
        let bits = if round % 2 == 0 { 32 } else { 64 };
        if let Some(instruction) = decode::instruction(bits, &bytes, 0x1000) {
            f(bits, &bytes, &instruction);
        }
    }
}

/// Every register that iced lists as read is in the effects, and so is the fact that memory is read, unless the results
/// are fixed numbers, or flags.
#[test]
fn no_read_is_missed() {
    use crate::x86::operands::is_read;
    let is_fixed = |effect: &Effect| match effect {
        Effect::Set { value, .. } | Effect::MaybeSet { value, .. } | Effect::Store { value, .. } => {
            matches!(value, Value::Const(_))
        }
        Effect::Compare { .. } | Effect::ClobberFlags | Effect::BranchIf(_) => true,
        _ => false,
    };
    for_random_instructions(|bits, bytes, instruction| {
        let out = model(bits, bytes);
        let mnemonic = instruction.mnemonic();
        let does_nothing = matches!(mnemonic, Mnemonic::Nop | Mnemonic::Prefetcht0 | Mnemonic::Prefetchw);
        let is_fixed = !out.is_empty() && out.iter().all(is_fixed);
        if does_nothing || is_fixed || decode::is_system_call(bits, instruction) {
            return;
        }
        let told = out.iter().fold(0, |set, effect| {
            let exchanged = if matches!(effect, Effect::Swap(..)) { effect.registers_written() } else { 0 };
            let to = match effect.memory_written() {
                Some(Memory::At(to, _) | Memory::From(to)) => to.registers(),
                _ => 0,
            };
            effect.operands().fold(set | exchanged | to, |set, value| set | value.registers())
        });
        let part = [instruction.memory_base(), instruction.memory_index()].map(general);
        let info = with_info(instruction, Clone::clone);
        for used in info.used_registers().iter().filter(|used| is_read(used.access())) {
            let Some(reg) = general(used.register()) else { continue };
            let is_address = part.contains(&Some(reg)) || reg == ESP && instruction.is_stack_instruction();
            assert!(
                told >> reg.0 & 1 != 0 || is_address,
                "{bits} {instruction}: {reg:?} missing from {out:?}"
            );
        }
        let reads = info.used_memory().iter().any(|used| is_read(used.access()));
        let says_so = |effect: &Effect| {
            effect.memory_read().next().is_some() || *effect == Effect::Escape(Value::Unknown)
        };
        let is_told = out.iter().any(says_so) || instruction.is_stack_instruction();
        assert!(!reads || is_told, "{bits} {instruction}: memory missing from {out:?}");
    });
}

/// Every register that iced lists as written is in the effects.
#[test]
fn no_write_is_missed() {
    for_random_instructions(|bits, bytes, instruction| {
        let out = model(bits, bytes);
        let written = out.iter().fold(0, |set, effect| set | effect.registers_written());
        assert!(bits == 64 || written >> REGISTERS_32 == 0, "{instruction}: no such registers: {out:?}");
        let info = with_info(instruction, Clone::clone);
        for used in info.used_registers().iter().filter(|used| writes(used.access())) {
            let Some(reg) = general(used.register()) else { continue };
            if bits == 32 && reg.0 >= REGISTERS_32 {
                continue;
            }
            let known = out.iter().any(|effect| effect.registers_written() >> reg.0 & 1 != 0);
            // Exceptions: `nop`s with a register, and calls into the kernel, which keep the stack pointer.
            let kept = decode::is_system_call(bits, instruction) && reg == ESP;
            assert!(known || kept, "{bits} {instruction}: {reg:?} missing from {out:?}");
        }
    });
}

#[test]
fn relocated_fields_are_symbols() {
    let symbol = crate::Symbol(std::num::NonZeroU32::MIN);
    let field = |offset, width, addend| RelocatedField { offset, width, symbol, addend };
    let model = |bits, bytes: &[u8], fields: &[RelocatedField]| {
        let mut out = Vec::new();
        relocated_effects(&decode::Decoded::new(bits, bytes, 0).unwrap(), bytes, fields, &mut out);
        out
    };
    let value = Value::Symbol { symbol, addend: 8 };
    let set = |value, width| [Effect::Set { dst: EAX, value, width }];
    // mov $symbol+8,%eax: the bytes in the field are not used.
    assert_eq!(model(32, b"\xb8\x04\0\0\0", &[field(1, 4, 8)]), set(value, 4));
    // mov symbol-4(,%ecx,4),%eax
    let from =
        Address { index: Some((ECX, 4)), symbol: Some(symbol), displacement: -4, ..Address::default() };
    let load = Value::Load { from, width: 4 };
    assert_eq!(model(32, b"\x8b\x04\x8d\0\0\0\0", &[field(3, 4, -4)]), set(load, 4));
    // movl $symbol+8,symbol: two relocated fields in one instruction.
    let to = Address { symbol: Some(symbol), ..Address::default() };
    let both = [field(2, 4, 0), field(6, 4, 8)];
    assert_eq!(model(32, b"\xc7\x05\0\0\0\0\0\0\0\0", &both), [Effect::Store { to, value, width: 4 }]);
    // and $symbol,%eax does not clear the register, as `and $0,%eax` does.
    let and = model(32, b"\x25\0\0\0\0", &[field(1, 4, 8)]);
    let left = reg(EAX, 4);
    assert_eq!(and[0], Effect::Binary { op: BinaryOp::And, dst: EAX, left, right: value, width: 4 });
    // mov $symbol,%ax: a field with a part of an address
    assert_eq!(
        model(32, b"\x66\xb8\0\0", &[field(2, 2, 0)]),
        [Effect::Set { dst: EAX, value: Value::Unknown, width: 2 }]
    );
    // lea symbol(%rip),%rax; lea 0x10(%rip),%rax, which has no relocation
    assert_eq!(model(64, b"\x48\x8d\x05\0\0\0\0", &[field(3, 4, 0)]), set(Value::Address(to), 8));
    assert_eq!(model(64, b"\x48\x8d\x05\x10\0\0\0", &[]), set(Value::Unknown, 8));
    // call *%eax: the return address is unknown before the link.
    let push = Effect::Store { to: at(ESP, -4), value: Value::Unknown, width: 4 };
    assert!(model(32, b"\xff\xd0", &[]).contains(&push));
}

/// Returns the registers that an instruction overwrites completely and those that it changes, by its effects.
fn registers_of(bits: u32, bytes: &[u8]) -> [u64; 2] {
    let effects = model(bits, bytes);
    let overwritten = effects.iter().fold(0, |set, effect| set | effect.registers_overwritten());
    let written = effects.iter().fold(0, |set, effect| set | effect.registers_written());
    [overwritten, written]
}

#[test]
fn parts_of_registers_are_not_overwritten() {
    let eax = 1 << EAX.0;
    // mov $4,%eax; mov $4,%al; mov $4,%ah; cmove %ecx,%eax; bsf %ecx,%eax, which keeps it where %ecx is 0
    assert_eq!(registers_of(32, b"\xb8\x04\0\0\0"), [eax, eax]);
    assert_eq!(registers_of(32, b"\xb0\x04"), [0, eax]);
    assert_eq!(registers_of(32, b"\xb4\x04"), [0, eax]);
    assert_eq!(registers_of(32, b"\x0f\x44\xc1"), [0, eax]);
    assert_eq!(registers_of(32, b"\x0f\xbc\xc1"), [0, eax]);
    // xchg %eax,%ecx
    let both = eax | 1 << ECX.0;
    assert_eq!(registers_of(32, b"\x91"), [both, both]);
}

#[test]
fn flags_that_are_read_and_left() {
    use crate::Flags;
    let left = |bytes: &[u8]| model(32, bytes).iter().map(Effect::flags).collect::<Vec<_>>();
    let reads = |bytes: &[u8]| {
        decode::instruction(32, bytes, 0)
            .is_none_or(|instruction| crate::x86::operands::reads_flags(&instruction))
    };
    // cmp %eax,%ecx
    assert_eq!((left(b"\x39\xc1"), reads(b"\x39\xc1")), (vec![Flags::Overwritten], false));
    // inc %eax keeps the carry.
    assert!(!left(b"\x40").contains(&Flags::Overwritten) && left(b"\x40").contains(&Flags::Changed));
    // adc %eax,%ecx; sete %al; pushf; je; cmove: all read them. mov does not, nor does cld.
    for bytes in [&b"\x11\xc1"[..], b"\x0f\x94\xc0", b"\x9c", b"\x74\0", b"\x0f\x44\xc1"] {
        assert!(reads(bytes), "{bytes:x?}");
    }
    assert!(!reads(b"\x89\xc1") && !reads(b"\xfc"));
    assert!(reads(b"\xff\xff"), "no instruction");
}

#[test]
fn memory_that_is_read_and_written() {
    let only_computes = |bytes: &[u8]| model(32, bytes).iter().all(Effect::only_computes);
    // movl $1,4(%eax); rep stosl; int $0x80; mov 4(%eax),%ecx
    let store = model(32, b"\xc7\x40\x04\x01\0\0\0");
    assert_eq!(store[0].memory_written(), Some(Memory::At(at(EAX, 4), 4)));
    let fill = model(32, b"\xf3\xab");
    assert!(fill.iter().any(|effect| effect.memory_written() == Some(Memory::From(at(EDI, 0)))));
    assert!(!only_computes(b"\xcd\x80") && !only_computes(b"\xf3\xab"));
    let load = model(32, b"\x8b\x48\x04");
    assert_eq!(load[0].memory_read().collect::<Vec<_>>(), [(at(EAX, 4), 4)]);
    assert!(only_computes(b"\x8b\x48\x04") && load[0].memory_written().is_none());
    // add 4(%eax),%ecx reads its operand, and add %ecx,4(%eax) writes it.
    assert_eq!(model(32, b"\x03\x48\x04")[0].memory_read().count(), 1);
    let add = model(32, b"\x01\x48\x04");
    assert!(add.iter().any(|effect| effect.memory_written() == Some(Memory::At(at(EAX, 4), 4))));
}

#[test]
fn what_only_computes() {
    let computes =
        |bytes: &[u8]| super::super::computes::only_computes(&decode::instruction(32, bytes, 0).unwrap());
    // mov (%eax),%ecx; lea 4(%eax),%ecx; cmpl $0,(%eax); test %eax,%ecx; sete %al; cmove %ecx,%eax; nopl (%eax)
    let plain: [&[u8]; 7] = [
        b"\x8b\x08",
        b"\x8d\x48\x04",
        b"\x83\x38\0",
        b"\x85\xc1",
        b"\x0f\x94\xc0",
        b"\x0f\x44\xc1",
        b"\x0f\x1f\0",
    ];
    assert!(plain.iter().all(|bytes| computes(bytes)));
    // mov %ecx,(%eax); xchg %ecx,(%eax); lock addl $0,(%esp); sete (%eax); mov %cr3,%eax; mov %ds,%eax; div %ecx
    let others: [&[u8]; 7] = [
        b"\x89\x08",
        b"\x87\x08",
        b"\xf0\x83\x04\x24\0",
        b"\x0f\x94\0",
        b"\x0f\x20\xd8",
        b"\x8c\xd8",
        b"\xf7\xf1",
    ];
    assert!(!others.iter().any(|bytes| computes(bytes)));
    // sti; cld; rdtsc; mfence; push %eax; pop %eax; cpuid
    let others: [&[u8]; 7] = [b"\xfb", b"\xfc", b"\x0f\x31", b"\x0f\xae\xf0", b"\x50", b"\x58", b"\x0f\xa2"];
    assert!(!others.iter().any(|bytes| computes(bytes)));
}
