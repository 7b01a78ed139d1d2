//! Live registers within one function.

use super::*;

#[test]
fn what_is_overwritten_does_not_matter() {
    let mut test = Test::default();
    // mov %eax,%ecx; add %esi,%ecx; ret
    test.function([block(b"\x89\xc1\x01\xf1\xc3", [RETURN])]);
    assert_eq!(test.before(0), set(&[EAX, ESI, ESP]), "nobody looks at what it returns");
    test.called_by_others.push(0);
    assert_eq!(test.before(0), EVERYTHING & !bit(ECX));
    let summaries = Summaries::of(&test, MACHINE, ConstantMemory::default());
    let within = Liveness::of(&test, &summaries).within(&test, &summaries, FunctionIndex(0), BlockIndex(0));
    assert_eq!(within, [EVERYTHING, EVERYTHING, EVERYTHING]);
}

#[test]
fn parts_and_conditions_overwrite_nothing() {
    let before = |code| {
        let mut test = Test::default();
        test.function([block(code, [RETURN])]).called_by_others.push(0);
        test.before(0)
    };
    // mov $1,%ecx; mov $1,%cl; mov $1,%ch; cmove %eax,%ecx
    assert_eq!(before(b"\xb9\x01\0\0\0\xc3"), EVERYTHING & !bit(ECX));
    assert_eq!(before(b"\xb1\x01\xc3"), EVERYTHING);
    assert_eq!(before(b"\xb5\x01\xc3"), EVERYTHING);
    assert_eq!(before(b"\x0f\x44\xc8\xc3"), EVERYTHING);
    // xor %ecx,%ecx reads nothing; the model treats its flags as changed, not as overwritten.
    assert_eq!(before(b"\x31\xc9\xc3"), EVERYTHING & !bit(ECX));
}

#[test]
fn flags_matter_until_they_are_overwritten() {
    let before = |code| {
        let mut test = Test::default();
        test.function([
            branch(code, Condition::Below, 1, 2),
            block(b"\xc3", [RETURN]),
            block(b"\xc3", [RETURN]),
        ]);
        test.before(0) & FLAGS
    };
    // cmp %eax,%ecx; mov %eax,%ecx; inc %ecx, which leaves the carry; adc %eax,%ecx; cmp and adc
    assert_eq!(before(b"\x39\xc1"), 0);
    assert_eq!(before(b"\x89\xc1"), FLAGS);
    assert_eq!(before(b"\x41"), FLAGS);
    assert_eq!(before(b"\x11\xc1"), FLAGS);
    assert_eq!(before(b"\x11\xc1\x39\xc1"), FLAGS);
    assert_eq!(before(b"\x39\xc1\x11\xc1"), 0);
}

#[test]
fn ways_are_joined() {
    let mut test = Test::default();
    // test %eax,%eax; je 2  |  mov %ebx,%ecx; jmp 3  |  mov %esi,%ecx  |  mov %ecx,(%edx); ret
    test.function([
        branch(b"\x85\xc0", Condition::Equal, 2, 1),
        block(b"\x89\xd9", [to(3)]),
        block(b"\x89\xf1", [to(3)]),
        block(b"\x89\x0a\xc3", [RETURN]),
    ]);
    assert_eq!(test.before(0), set(&[EAX, EBX, ESI, EDX, ESP]));
    assert_eq!(test.before(1), set(&[EBX, EDX, ESP]));
    assert_eq!(test.before(3), set(&[ECX, EDX, ESP]));
}

#[test]
fn loops_settle() {
    let mut test = Test::default();
    // mov $9,%ecx  |  add %ebx,%eax; dec %ecx; jne 1  |  mov %eax,(%edx); ret
    test.function([
        block(b"\xb9\x09\0\0\0", [to(1)]),
        branch(b"\x01\xd8\x49", Condition::NotEqual, 1, 2),
        block(b"\x89\x02\xc3", [RETURN]),
    ]);
    // `add` and `dec` overwrite none of the flags for sure.
    assert_eq!(test.before(0), set(&[EAX, EBX, EDX, ESP]) | FLAGS);
    assert_eq!(test.before(1), set(&[EAX, EBX, ECX, EDX, ESP]) | FLAGS);
}
