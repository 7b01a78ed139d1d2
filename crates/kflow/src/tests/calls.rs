//! Calls: the known facts about callees, and their influence on callers.

use super::*;

/// Returns a function that calls another, and then stores `%ebx` and `%ecx`.
fn with_callee(callee: Block) -> Test {
    let mut test = Test::default();
    // call 1  |  mov %ebx,(%ecx); ret
    let caller = block(b"\xe8\0\0\0\0", [call(1, Then::Block(BlockIndex(1)))]);
    test.function([caller, block(b"\x89\x19\xc3", [RETURN])]).function([callee]);
    test
}

#[test]
fn callees_are_known_by_their_code() {
    // mov %eax,%edx; ret
    let test = with_callee(block(b"\x89\xc2\xc3", [RETURN]));
    assert_eq!(test.summary(1).changes, bit(EDX) | FLAGS);
    assert_eq!(test.summary(1).reads, bit(EAX) | bit(ESP));
    assert_eq!(test.summary(1).overwrites & 0xff, bit(EDX));
    assert_eq!(test.before(0), set(&[EAX, EBX, ECX, ESP]), "a scratch register that it leaves alone");
    // mov $1,%ecx; ret
    let test = with_callee(block(b"\xb9\x01\0\0\0\xc3", [RETURN]));
    assert_eq!(test.before(0), set(&[EBX, ESP]));
    // hand-written: mov $1,%ebx; ret
    let test = with_callee(block(b"\xbb\x01\0\0\0\xc3", [RETURN]));
    assert_eq!(test.before(0), set(&[ECX, ESP]), "it does not keep what others do");
}

#[test]
fn what_is_restored_is_neither_read_nor_changed() {
    // push %ebx; mov %eax,%ebx; mov %ebx,%edx; pop %ebx; ret
    let saves = b"\x53\x89\xc3\x89\xda\x5b\xc3";
    let test = with_callee(block(saves, [RETURN]));
    let summary = test.summary(1);
    assert_eq!(summary.changes, bit(EDX) | FLAGS);
    assert_eq!(summary.reads, set(&[EAX, ESP]));
    assert_eq!(summary.overwrites & bit(EBX), 0);
    assert_eq!(test.before(0), set(&[EAX, EBX, ECX, ESP]));
    // The registers that the caller uses matter where they are restored.
    assert_eq!(test.before(2), set(&[EAX, EBX, ECX, ESP]));
    // push %ebp; mov %esp,%ebp; push %ebx; sub $8,%esp; mov $1,%ebx; mov %ebx,-8(%ebp); lea -4(%ebp),%esp; pop %ebx;
    // pop %ebp; ret
    let frame = b"\x55\x89\xe5\x53\x83\xec\x08\xbb\x01\0\0\0\x89\x5d\xf8\x8d\x65\xfc\x5b\x5d\xc3";
    let summary = with_callee(block(frame, [RETURN])).summary(1);
    assert_eq!((summary.changes & 0xff, summary.writes_frame), (0, false));
    assert_eq!(summary.reads & set(&[EBX, EBP]), 0);
}

#[test]
fn what_is_saved_and_used_is_read() {
    // push %ebx; mov %ebx,%eax; pop %ebx; ret
    let summary = with_callee(block(b"\x53\x89\xd8\x5b\xc3", [RETURN])).summary(1);
    assert_eq!((summary.reads & bit(EBX), summary.changes & bit(EBX)), (bit(EBX), 0));
    // push %ebx; mov (%esp),%eax; pop %ebx; ret: from where it was saved
    let summary = with_callee(block(b"\x53\x8b\x04\x24\x5b\xc3", [RETURN])).summary(1);
    assert_eq!((summary.reads & bit(EBX), summary.changes & bit(EBX)), (bit(EBX), 0));
    // push %ebx; movzbl 1(%esp),%eax; pop %ebx; ret: a part of it
    let summary = with_callee(block(b"\x53\x0f\xb6\x44\x24\x01\x5b\xc3", [RETURN])).summary(1);
    assert_eq!(summary.reads & bit(EBX), bit(EBX));
    // push %ebx; movd (%esp),%mm0; pop %ebx; ret: a read that the model does not support
    let summary = with_callee(block(b"\x53\x0f\x6e\x04\x24\x5b\xc3", [RETURN])).summary(1);
    assert_eq!(summary.reads & bit(EBX), bit(EBX));
}

#[test]
fn what_is_not_restored_is_changed() {
    let changes = |code| with_callee(block(code, [RETURN])).summary(1).changes & set(&[EBX, ESI, ESP]);
    // push %ebx; pop %esi; ret
    assert_eq!(changes(b"\x53\x5e\xc3"), bit(ESI));
    // push %ebx; mov %eax,(%esp); pop %ebx; ret
    assert_eq!(changes(b"\x53\x89\x04\x24\x5b\xc3"), bit(EBX));
    // push %ebx; push %esi; pop %ebx; pop %esi; ret
    assert_eq!(changes(b"\x53\x56\x5b\x5e\xc3"), bit(EBX) | bit(ESI));
    // push %ebx; mov $1,%ebx; mov %esp,%edx; mov %edx,(%eax); mov %ecx,(%esi); pop %ebx; ret: others have the address
    // of the frame, with the return address in it.
    assert_eq!(changes(b"\x53\xbb\x01\0\0\0\x89\xe2\x89\x10\x89\x0e\x5b\xc3"), set(&[EBX, ESI, ESP]));
    // push %ebx; mov %ecx,(%eax); pop %ebx; ret: others do not have it
    assert_eq!(changes(b"\x53\x89\x08\x5b\xc3"), 0);
    // push %eax; ret: to another place. pop %ecx; jmp *%ecx as well; only the caller of the test does not know it
    assert_eq!(with_callee(block(b"\x50\xc3", [RETURN])).summary(1), Summary::UNKNOWN);
    // mov %eax,(%esp); ret
    assert_eq!(with_callee(block(b"\x89\x04\x24\xc3", [RETURN])).summary(1), Summary::UNKNOWN);
    // ret $8 takes arguments off the stack; pop %ecx; ret returns to the caller of the caller.
    assert_eq!(with_callee(block(b"\xc2\x08\0", [RETURN])).summary(1), Summary::UNKNOWN);
    assert_eq!(with_callee(block(b"\x59\xc3", [RETURN])).summary(1), Summary::UNKNOWN);
}

#[test]
fn the_frame_of_the_caller() {
    let writes = |code| with_callee(block(code, [RETURN])).summary(1).writes_frame;
    // mov %eax,4(%esp); mov %eax,-4(%esp); mov %eax,(%esp,%ecx,4) with ret each
    assert!(writes(b"\x89\x44\x24\x04\xc3"));
    assert!(!writes(b"\x89\x44\x24\xfc\xc3"));
    // A caller that saves a register then does not find it again.
    let mut test = Test::default();
    // push %ebx; mov $1,%ebx; call 1  |  pop %ebx; ret
    let caller = || {
        let way = call(1, Then::Block(BlockIndex(1)));
        [block(b"\x53\xbb\x01\0\0\0\xe8\0\0\0\0", [way]), block(b"\x5b\xc3", [RETURN])]
    };
    test.function(caller()).function([block(b"\x89\x44\x24\x04\xc3", [RETURN])]);
    assert_eq!(test.summary(0).changes & bit(EBX), bit(EBX));
    let mut test = Test::default();
    test.function(caller()).function([block(b"\x89\x44\x24\xfc\xc3", [RETURN])]);
    assert_eq!(test.summary(0).changes & bit(EBX), 0);
}

#[test]
fn unknown_callees_read_and_change_everything() {
    let way = Way { condition: None, callee: Some(Callee::Unknown), then: Then::Block(BlockIndex(1)) };
    let mut test = Test::default();
    // push %ebx; mov $1,%ebx; call *%eax  |  pop %ebx; ret
    test.function([block(b"\x53\xbb\x01\0\0\0\xff\xd0", [way]), block(b"\x5b\xc3", [RETURN])]);
    assert_eq!(test.before(0), EVERYTHING);
    assert_eq!(test.before(1), bit(ESP));
    assert_eq!(test.summary(0), Summary::UNKNOWN, "it may have written to the return address");
}

#[test]
fn tail_calls_return_for_their_callers() {
    let mut test = Test::default();
    // call 1  |  mov %eax,(%ecx); ret
    let caller = block(b"\xe8\0\0\0\0", [call(1, Then::Block(BlockIndex(1)))]);
    test.function([caller, block(b"\x89\x01\xc3", [RETURN])]);
    // push %ebx; pop %ebx, then a jump to 2; and 2: mov %edx,%eax; ret
    test.function([block(b"\x53\x5b", [call(2, Then::Caller)])]);
    test.function([block(b"\x89\xd0\xc3", [RETURN])]);
    assert_eq!(test.summary(1).changes, bit(EAX) | FLAGS);
    assert_eq!(test.summary(1).reads & 0xff, set(&[EDX, ESP]));
    assert_eq!(test.before(0), set(&[ECX, EDX, ESP]));
    assert_eq!(test.before(3), set(&[ECX, EDX, ESP]), "what the caller of the caller needs");
    // push %ebx, and then a jump: the callee returns to another place.
    test.functions.truncate(1);
    test.blocks.truncate(2);
    test.function([block(b"\x53", [call(2, Then::Caller)])]);
    test.function([block(b"\x89\xd0\xc3", [RETURN])]);
    assert_eq!(test.summary(1), Summary::UNKNOWN);
}

#[test]
fn recursion_and_endless_loops_end() {
    let mut test = Test::default();
    // test %eax,%eax; je 2  |  push %ebx; call 0  |  pop %ebx: and ret
    test.function([
        branch(b"\x85\xc0", Condition::Equal, 3, 1),
        block(b"\x53\x31\xdb\xe8\0\0\0\0", [call(0, Then::Block(BlockIndex(2)))]),
        block(b"\x5b", [to(3)]),
        block(b"\xc3", [RETURN]),
    ]);
    assert_eq!((test.summary(0).changes & 0xff, test.summary(0).reads), (0, set(&[EAX, ESP])));
    assert_eq!(test.before(0), set(&[EAX, EBX, ESP]), "saving a register reads it");
    // A function that does not return uses what it reads.
    let mut test = Test::default();
    test.function([block(b"\x89\x18", [to(0)])]);
    assert_eq!(test.before(0), set(&[EAX, EBX, ESP]), "an interrupt needs the stack");
    let mut test = Test::default();
    // call 1, which does not return
    test.function([block(b"\xe8\0\0\0\0", [call(1, Then::Nowhere)])]);
    test.function([block(b"\x89\x18", [to(1)])]);
    assert_eq!(test.before(0), set(&[EAX, EBX, ESP]));
}

#[test]
fn decided_branches_are_not_followed() {
    let mut test = Test::default();
    // xor %eax,%eax; test %eax,%eax; jne 1  |  mov $1,%ebx; jmp 2  |  ret
    test.function([
        branch(b"\x31\xc0\x85\xc0", Condition::NotEqual, 1, 2),
        block(b"\xbb\x01\0\0\0", [to(2)]),
        block(b"\xc3", [RETURN]),
    ]);
    assert_eq!(test.summary(0).changes, bit(EAX) | FLAGS);
}

#[test]
fn other_entries_make_a_function_unknown() {
    let mut test = with_callee(block(b"\xc3", [RETURN]));
    assert_eq!(test.summary(1).changes, FLAGS);
    assert_eq!(test.before(2), set(&[EBX, ECX, ESP]));
    test.entered_elsewhere.push(1);
    assert_eq!(test.summary(1), Summary::UNKNOWN);
    assert_eq!(test.before(2), EVERYTHING, "it may return to others");
}

#[test]
fn faults_need_everything() {
    let mut test = Test::default();
    // mov $1,%ecx; mov (%eax),%edx, which may fault
    let mut faults = block(b"\xb9\x01\0\0\0\x8b\x10", [to(1)]);
    faults.leaves_early = true;
    test.function([faults, block(b"\xc3", [RETURN])]);
    assert_eq!(test.before(0), EVERYTHING);
    assert_eq!(test.summary(0), Summary::UNKNOWN);
    let summaries = Summaries::of(&test, MACHINE, ConstantMemory::default());
    let within = Liveness::of(&test, &summaries).within(&test, &summaries, FunctionIndex(0), BlockIndex(0));
    assert_eq!(within, [EVERYTHING, EVERYTHING]);
}

/// Returns the convention of i386: %eax, %ecx and %edx may change, and results are in %eax and %edx.
fn with_convention() -> Machine {
    let changed = set(&[EAX, ECX, EDX]);
    Machine {
        convention: Some(Convention { changed, results: [EAX, EDX], returned: set(&[EAX, EDX]) }),
        ..MACHINE
    }
}

/// An argument in a frame whose address escapes is read, even if the function never returns.
#[test]
fn arguments_that_others_get_the_address_of() {
    let onward =
        Way { condition: None, callee: Some(Callee::Conventional), then: Then::Block(BlockIndex(1)) };
    let never = Way { then: Then::Nowhere, ..onward };
    // push %eax; mov %esp,%edx; mov $1,%eax; call *%ecx  |  call *%ecx
    let exposes = b"\x50\x89\xe2\xb8\x01\0\0\0\xff\xd1";
    for (first, second) in [(never, None), (onward, Some(block(b"\xff\xd1", [never])))] {
        let mut test = Test::default();
        let blocks = [block(exposes, [first])].into_iter().chain(second);
        test.function(blocks);
        let summaries = Summaries::of(&test, with_convention(), ConstantMemory::default());
        let reads = summaries.get(Callee::Function(FunctionIndex(0))).reads;
        assert_eq!(reads & bit(EAX), bit(EAX));
    }
}

#[test]
fn what_keeps_to_a_convention() {
    let way = Way { condition: None, callee: Some(Callee::Conventional), then: Then::Block(BlockIndex(1)) };
    let mut test = Test::default();
    // push %ebx; mov $1,%ebx; call *%eax  |  mov %ebx,%eax; pop %ebx; ret
    test.function([block(b"\x53\xbb\x01\0\0\0\xff\xd0", [way]), block(b"\x89\xd8\x5b\xc3", [RETURN])]);
    assert_eq!(test.summary(0), Summary::UNKNOWN, "without a convention");
    let of = |test: &Test| Summaries::of(test, with_convention(), ConstantMemory::default());
    let known = |test: &Test| of(test).get(Callee::Function(FunctionIndex(0)));
    assert_eq!(
        known(&test).changes & 0xff,
        set(&[EAX, ECX, EDX]),
        "it restores %ebx from where it has saved it"
    );
    assert_eq!(
        known(&test).reads & set(&[EBX, ESI, EBP]),
        set(&[ESI, EBP]),
        "asm may have arguments anywhere"
    );
    // Others have a pointer into the frame and write through it, but do not overwrite saved registers.
    // …; sub $4,%esp; mov %esp,%edx; mov %edx,(%esi)
    let exposes = b"\x53\xbb\x01\0\0\0\x83\xec\x04\x89\xe2\x89\x16\xff\xd0";
    let mut test = Test::default();
    test.function([block(exposes, [way]), block(b"\x58\x5b\xc3", [RETURN])]);
    assert_eq!(known(&test).changes & set(&[EBX, ESP]), 0);
    // The function itself overwrites it: mov %ecx,4(%esp)
    let mut test = Test::default();
    test.function([block(exposes, [way]), block(b"\x89\x4c\x24\x04\x58\x5b\xc3", [RETURN])]);
    assert_eq!(known(&test).changes & set(&[EBX, ESP]), bit(EBX));
    // Hand-written code called by compiled code may change everything but the stack pointer: push %ebx; call; pop %ebx;
    // ret
    let written = Way { callee: Some(Callee::HandWritten), ..way };
    let mut test = Test::default();
    test.function([block(b"\x53\xff\xd0", [written]), block(b"\x5b\xc3", [RETURN])]);
    assert_eq!(known(&test).changes & (0xff | FLAGS), (0xff | FLAGS) & !set(&[EBX, ESP]));
    assert!(of(&test).is_known(FunctionIndex(0)));
    // In a program without a known convention, nothing is known.
    let way = Way { callee: Some(Callee::Unknown), ..way };
    let mut test = Test::default();
    test.function([block(b"\xff\xd0", [way]), block(b"\xc3", [RETURN])]);
    assert!(!of(&test).is_known(FunctionIndex(0)));
    // At a return to unknown callers, results and restored registers are live.
    let mut test = Test::default();
    test.function([block(b"\xc3", [RETURN])]).called_by_others.push(0);
    let before = Liveness::of(&test, &of(&test)).before(BlockIndex(0));
    assert_eq!(before & (0xff | FLAGS), 0xff & !bit(ECX));
    // Opaque compiled code may rely on the rest as well.
    test.called_by_opaque.push(0);
    assert_eq!(Liveness::of(&test, &of(&test)).before(BlockIndex(0)), EVERYTHING);
}

/// Remembered results of one program hold for the next one, in which a called function changed.
#[test]
fn what_is_remembered_holds_where_nothing_changed() {
    let program = |callee: &'static [u8]| {
        let mut test = Test::default();
        // call 1 | mov %eax,%ebx; ret
        test.function([block(b"", [call(1, Then::Block(BlockIndex(1)))]), block(b"\x89\xc3\xc3", [RETURN])]);
        test.function([block(callee, [RETURN])]);
        test
    };
    let summaries = |test: &Test, remembered: &mut Remembered| {
        let all = Summaries::of_changed(test, with_convention(), ConstantMemory::default(), remembered);
        [0, 1].map(|function| {
            let function = FunctionIndex(function);
            let numbers = all.facts(function).map(|facts| format!("{:?}", facts.reached));
            (all.get(Callee::Function(function)), numbers)
        })
    };
    let mut remembered = Remembered::default();
    // mov $5,%eax; ret | mov $6,%eax; ret | mov %ecx,%eax; ret
    for code in [&b"\xb8\x05\0\0\0\xc3"[..], b"\xb8\x06\0\0\0\xc3", b"\x89\xc8\xc3", b"\xb8\x05\0\0\0\xc3"] {
        let test = program(code);
        let fresh = summaries(&test, &mut Remembered::default());
        assert_eq!(summaries(&test, &mut remembered), fresh, "{code:x?}");
        assert_eq!(summaries(&test, &mut remembered), fresh, "{code:x?} once more");
    }
}
