//! Values after a few instructions, given by their bytes.

use kisa::x86::I386;
use kisa::x86::registers::{EAX, EBX, ECX, EDX, ESI, ESP};
use kisa::{Condition, Encoding, Isa, Reg, RelocatedField, Rewritable, Symbol};

use super::*;

struct Machine {
    names: Names,
    state: State,
    number: u32,
}

impl Machine {
    fn new(is_function: bool) -> Machine {
        let mut names = Names::new(4, I386.registers(), I386.convention().stack_pointer);
        let state = State::begin(&mut names, is_function);
        Machine { names, state, number: 0 }
    }

    /// Runs instructions, none of which has a relocated field.
    fn run(&mut self, mut bytes: &[u8]) -> &mut Machine {
        while !bytes.is_empty() {
            let length = I386.decode(bytes, Encoding::Main.at(0)).unwrap().bytes.len();
            self.run_one(&bytes[..length], &[]);
            bytes = &bytes[length..];
        }
        self
    }

    fn run_one(&mut self, bytes: &[u8], fields: &[RelocatedField]) -> &mut Machine {
        let mut effects = Vec::new();
        I386.relocated_effects(&I386.decode(bytes, Encoding::Main.at(0)).unwrap(), fields, &mut effects);
        self.number += 1;
        self.state.apply(&mut self.names, Site { block: 0, number: self.number }, &effects);
        self
    }

    fn assume(&mut self, condition: Condition) -> &mut Machine {
        assert!(self.state.assume(condition, &self.names));
        self
    }

    fn range(&self, reg: Reg) -> (u64, u64) {
        let Span { low, high, .. } = self.state.range(reg, &self.names);
        (low, high)
    }

    fn number(&self, reg: Reg) -> Option<u64> {
        self.state.number(reg, &self.names)
    }
}

const ALL: (u64, u64) = (0, 0xffff_ffff);

fn symbol(number: u32) -> Symbol {
    Symbol(number.try_into().unwrap())
}

fn field(offset: u8, number: u32, addend: i64) -> RelocatedField {
    RelocatedField { offset, width: 4, symbol: symbol(number), addend }
}

#[test]
fn numbers_are_computed() {
    let mut machine = Machine::new(true);
    // mov $6,%eax; lea 2(%eax,%eax,2),%ecx; shr $2,%ecx; sub %ecx,%eax
    machine.run(b"\xb8\x06\0\0\0\x8d\x4c\x40\x02\xc1\xe9\x02\x29\xc8");
    assert_eq!((machine.number(EAX), machine.number(ECX)), (Some(1), Some(5)));
    // mov $0x12,%al writes the low byte only.
    machine.run(b"\xb8\xff\xff\0\0\xb0\x12");
    assert_eq!(machine.number(EAX), Some(0xff12));
    // cmove %ecx,%eax: one of two.
    machine.run(b"\x0f\x44\xc1");
    assert_eq!((machine.number(EAX), machine.range(EAX)), (None, (5, 0xff12)));
}

#[test]
fn what_was_compared_and_is_loaded_then_is_bounded() {
    let compare = b"\x83\x7e\x08\x04"; // cmpl $4,8(%esi)
    let load = b"\x8b\x46\x08"; // mov 8(%esi),%eax
    let bound = |between: &[u8]| {
        let mut machine = Machine::new(false);
        machine.run(compare).assume(Condition::BelowOrEqual).run(between).run(load).range(EAX)
    };
    assert_eq!(bound(b""), (0, 4));
    assert_eq!(bound(b"\x89\x4e\x0c"), (0, 4), "a store beside it");
    assert_eq!(bound(b"\x89\x4e\x0a"), ALL, "a store into it");
    assert_eq!(bound(b"\x89\x0b"), ALL, "a store to somewhere");
    assert_eq!(bound(b"\x46"), ALL, "another address");
    assert_eq!(bound(b"\xf3\xab"), ALL, "memory is filled");
}

#[test]
fn symbols_are_places() {
    let mut machine = Machine::new(false);
    // cmpl $4,symbol+8
    machine.run_one(b"\x83\x3d\0\0\0\0\x04", &[field(2, 1, 8)]).assume(Condition::Below);
    // mov %ecx,symbol+12; push %ecx: neither writes symbol+8.
    machine.run_one(b"\x89\x0d\0\0\0\0", &[field(2, 1, 12)]).run(b"\x51");
    // mov symbol+8,%eax
    machine.run_one(b"\xa1\0\0\0\0", &[field(1, 1, 8)]);
    assert_eq!(machine.range(EAX), (0, 3));
    // mov %ecx,other: it may be the same place under another name.
    machine.run_one(b"\x89\x0d\0\0\0\0", &[field(2, 2, 0)]).run_one(b"\xa1\0\0\0\0", &[field(1, 1, 8)]);
    assert_eq!(machine.range(EAX), ALL);
    // mov $symbol+8,%eax; add $4,%eax
    machine.run_one(b"\xb8\0\0\0\0", &[field(1, 1, 8)]).run(b"\x83\xc0\x04");
    let term = machine.state.register(EAX).single().unwrap();
    assert_eq!(machine.names.as_symbol(term), Some((symbol(1), 12)));
    assert_eq!(machine.number(EAX), None);
}

#[test]
fn parts_of_registers() {
    let mut machine = Machine::new(false);
    // mov 10(%esi),%al; dec %al; cmp $6,%al; movzbl %al,%eax
    machine.run(b"\x8a\x46\x0a\xfe\xc8\x3c\x06").assume(Condition::BelowOrEqual).run(b"\x0f\xb6\xc0");
    assert_eq!(machine.range(EAX), (0, 6));
    // movzwl %cx,%edx; shr $12,%edx; and $3,%ecx
    machine.run(b"\x0f\xb7\xd1\xc1\xea\x0c\x83\xe1\x03");
    assert_eq!((machine.range(EDX), machine.range(ECX)), ((0, 15), (0, 3)));
    // movzbl (%esi),%ebx; cmp $9,%bl restricts all of %ebx; movsbl %bl,%eax does not change a small number.
    machine.run(b"\x0f\xb6\x1e\x80\xfb\x09").assume(Condition::Below).run(b"\x0f\xbe\xc3");
    assert_eq!((machine.range(EBX), machine.range(EAX)), ((0, 8), (0, 8)));
}

#[test]
fn conditions_decide() {
    let mut machine = Machine::new(false);
    let holds = |machine: &Machine, condition| machine.state.holds(condition, &machine.names);
    // cmp $4,%eax, which was above; then cmp $4,%eax once more
    machine.run(b"\x83\xf8\x04").assume(Condition::Above).run(b"\x83\xf8\x04");
    assert_eq!(holds(&machine, Condition::Equal), Some(false));
    assert_eq!(holds(&machine, Condition::AboveOrEqual), Some(true));
    assert_eq!(holds(&machine, Condition::Less), None, "it may be negative");
    // cmp $9,%eax
    machine.run(b"\x83\xf8\x09");
    assert_eq!(holds(&machine, Condition::Equal), None);
    let mut below = machine.state.clone();
    assert!(below.assume(Condition::Below, &machine.names));
    assert_eq!(below.range(EAX, &machine.names), Span::new(5, 8));
    assert!(!below.assume(Condition::Above, &machine.names));
    // inc %eax changes the flags.
    machine.run(b"\x40");
    assert_eq!(holds(&machine, Condition::Equal), None);
}

#[test]
fn the_frame_is_known_until_others_know_it() {
    // push %ebx; mov %ecx,(%eax); mov (%esp),%edx
    let restored = |is_function: bool, between: &[u8]| {
        let mut machine = Machine::new(is_function);
        machine.run(b"\x53").run(between).run(b"\x8b\x14\x24");
        let entry = machine.names.entry(EBX);
        machine.state.register(EDX).single() == Some(entry)
    };
    assert!(restored(true, b"\x89\x08"), "nobody knows where it is");
    assert!(!restored(false, b"\x89\x08"), "somebody may");
    // mov %esp,%edx; mov %edx,(%esi); mov %ecx,(%eax)
    assert!(!restored(true, b"\x89\xe2\x89\x16\x89\x08"), "somebody does");
    // movd %esp,%xmm0; mov %ecx,(%eax)
    assert!(!restored(true, b"\x66\x0f\x6e\xc4\x89\x08"), "somebody may have got it from a vector");
    // mov %esp,%edx; xadd %edx,(%esi); mov %ecx,(%eax)
    assert!(!restored(true, b"\x89\xe2\x0f\xc1\x16\x89\x08"), "somebody has got it in exchange");
    // movd 4(%esp),%xmm0; mov %ecx,(%eax)
    assert!(restored(true, b"\x66\x0f\x6e\x44\x24\x04\x89\x08"), "an address is no value");
    assert!(!restored(true, b"\x89\x4c\x24\x03"), "written over");
    // lea (%esp,%ecx,4),%edx: somewhere in the frame
    assert!(!restored(true, b"\x8d\x14\x8c\x89\x02"), "perhaps written over");
}

#[test]
fn the_stack_pointer_comes_back() {
    let mut machine = Machine::new(true);
    // push %ebx; sub $8,%esp; call *%eax; add $8,%esp; pop %ebx; ret
    machine.run(b"\x53\x83\xec\x08\x83\xc4\x08\x5b\xc3");
    let (stack, ebx) = (machine.names.entry(ESP), machine.names.entry(EBX));
    assert_eq!(machine.state.register(EBX).single(), Some(ebx));
    let top = machine.state.register(ESP).single().unwrap();
    assert_eq!(machine.names.as_entry(top), Some((ESP, 4)));
    assert_ne!(top, stack);
}

#[test]
fn what_is_made_anew_is_another_unknown() {
    let mut machine = Machine::new(false);
    let at = Site { block: 1, number: 0 };
    let mut effects = Vec::new();
    let load = I386.decode(b"\x8b\x06", Encoding::Main.at(0)).unwrap(); // mov (%esi),%eax
    I386.relocated_effects(&load, &[], &mut effects);
    machine.state.apply(&mut machine.names, at, &effects);
    // mov %eax,%ecx; cmp $3,%eax; then memory changes, and the load runs once more.
    machine.run(b"\x89\xc1\x83\xf8\x03").assume(Condition::Below).run(b"\x89\x0b");
    assert_eq!(machine.range(ECX), (0, 2));
    machine.state.apply(&mut machine.names, at, &effects);
    assert_eq!((machine.range(EAX), machine.range(ECX)), (ALL, ALL));
    assert_ne!(machine.state.register(EAX), machine.state.register(ECX));
}

#[test]
fn joins_hold_for_both() {
    let (mut one, mut names) = {
        let machine = Machine::new(false);
        (machine.state, machine.names)
    };
    let mut other = one.clone();
    one.set_register(EAX, TermSet::number(1));
    other.set_register(EAX, TermSet::number(3));
    let (before, at) = (one.clone(), Site { block: 7, number: 0 });
    one.join(&other, None, &mut names);
    assert_eq!(one.register(EAX).elements(), [Term::number(1), Term::number(3)]);
    assert_eq!(one.register(ESI), other.register(ESI));
    // At the head of a loop, every difference becomes one unknown.
    let mut head = before;
    head.join(&other, Some(at), &mut names);
    assert_eq!(head.range(EAX, &names), Span::new(0, 0xffff_ffff));
    assert!(head.register(EAX).single().is_some());
}

#[test]
fn operands_of_one_instruction_are_told_apart() {
    let mut machine = Machine::new(false);
    // add (%esi),%ecx: it is unknown, and without a name.
    machine.run(b"\x03\x0e");
    // mov (%eax,%ecx),%edx; mov %ecx,%eax; add (%esi),%ecx: in a loop, %eax is the previous %ecx.
    let body = b"\x8b\x14\x08\x89\xc8\x03\x0e";
    for _ in 0..2 {
        machine.number = 1;
        machine.run(body);
    }
    machine.number = 1;
    machine.run(&body[..3]);
    // mov (%ecx,%ecx),%ebx; sub %ebx,%edx: the difference of two places
    machine.run(b"\x8b\x1c\x09\x29\xda");
    assert_eq!(machine.number(EDX), None);
    // sub (%ecx),%eax; mov (%ecx),%eax; mov %edx,%ecx: in a loop, %eax holds the previously loaded value.
    let mut machine = Machine::new(false);
    let body = b"\x2b\x01\x8b\x01\x89\xd1";
    machine.run(body);
    machine.number = 0;
    machine.run(&body[..2]);
    assert_eq!(machine.number(EAX), None);
}

#[test]
fn counts_of_shifts_are_those_of_the_processor() {
    let mut machine = Machine::new(true);
    // mov $3,%eax; mov $33,%ecx; shl %cl,%eax: by 1
    machine.run(b"\xb8\x03\0\0\0\xb9\x21\0\0\0\xd3\xe0");
    assert_ne!(machine.number(EAX), Some(0));
    // mov $3,%eax; shl $33,%eax; mov $6,%edx; shr $33,%edx
    machine.run(b"\xb8\x03\0\0\0\xc1\xe0\x21\xba\x06\0\0\0\xc1\xea\x21");
    assert_eq!((machine.number(EAX), machine.number(EDX)), (Some(6), Some(3)));
}

#[test]
fn segments_are_told_apart() {
    let mut machine = Machine::new(true);
    // cmpl $4,%fs:8; mov %gs:8,%eax; mov %fs:8,%ecx
    machine.run(b"\x64\x83\x3d\x08\0\0\0\x04").assume(Condition::Below);
    machine.run(b"\x65\xa1\x08\0\0\0\x64\x8b\x0d\x08\0\0\0");
    assert_eq!((machine.range(EAX), machine.range(ECX)), (ALL, (0, 3)));
}
