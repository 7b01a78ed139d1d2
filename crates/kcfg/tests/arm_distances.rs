//! Code of 32-bit ARM with distances in addends or in the layout: literals to which an instruction adds the program
//! counter, variables of threads, and the padding after tables of distances.

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::{Dir, assemble, fixture, lift, lift_reachable};
use goblin::elf::reloc::{
    R_ARM_REL32, R_ARM_THM_JUMP19, R_ARM_THM_JUMP24, R_ARM_TLS_IE32, R_ARM_TLS_LDM32, R_ARM_TLS_LDO32,
    R_ARM_TLS_LE32,
};
use goblin::elf::sym::STT_TLS;
use kcfg::graph::{Editor, Graph, Target, Terminator};
use kcfg::lower::{Relax, lower};
use kelf::{Object, RelocClass};
use kshrink_tests::process::run;

/// Assembles a text as Thumb code.
fn thumb(dir: &Dir, text: &str) -> PathBuf {
    assemble(dir, "distances", &format!(".text\n.thumb\n{text}"))
}

fn opaque(graph: &Graph) -> Vec<(&str, &str)> {
    graph.opaque().iter().map(|opaque| (opaque.name.as_str(), opaque.reason)).collect()
}

/// Returns the thread-local relocations: their places, types, offsets in the section, and addends.
fn of_threads(object: &Object<'_>) -> Vec<(u64, u32, u64, i64)> {
    let text = object.sections.iter().find(|section| section.name == ".text").unwrap();
    let relocs = text.relocs.iter().filter(|reloc| reloc.class == RelocClass::Tls);
    let all = relocs.map(|reloc| {
        let symbol = object.symbol(reloc.symbol);
        // The linker refuses such a relocation against any other symbol.
        assert_eq!(symbol.kind, STT_TLS);
        (reloc.offset, reloc.r_type, symbol.value, reloc.addend)
    });
    all.collect()
}

#[test]
fn variables_of_threads_keep_symbol_and_addend() {
    let dir = Dir::new();
    for encoding in ["-marm", "-mthumb"] {
        for (options, types, moves) in [
            (&["-fPIC", "-ftls-model=initial-exec"][..], &[R_ARM_TLS_IE32][..], false),
            (&["-fPIC"], &[R_ARM_TLS_LDM32, R_ARM_TLS_LDO32], false),
            (&["-fno-pic"], &[R_ARM_TLS_LE32], true),
        ] {
            let object = dir.path("tls.o");
            let mut gcc = Command::new("arm-linux-gnueabihf-gcc");
            gcc.args(["-Os", "-march=armv7-a+fp", "-mtls-dialect=gnu", encoding]).args(options);
            run(gcc.arg("-c").arg(fixture("tls.c")).arg("-o").arg(&object));
            let bytes = std::fs::read(&object).unwrap();
            let before = of_threads(&Object::read("tls.o", &bytes).unwrap());
            assert!(types.iter().all(|r_type| before.iter().any(|reloc| reloc.1 == *r_type)), "{before:?}");
            let graph = lift(&[object]);
            assert_eq!(of_threads(&lower(&graph, Relax::AsAssembled).unwrap().object), before);
            // The distance from the literal to the instruction that adds the program counter is part of the addend.
            assert_eq!(graph.opaque().len(), if moves { 0 } else { 3 }, "{:?}", opaque(&graph));
        }
    }
}

/// The instruction that adds the program counter to a literal may be hard to find, so that the function is opaque.
#[test]
fn a_distance_to_an_entry_keeps_its_function_whole() {
    let text = "
    .global f
    .type f, %function
f:  ldr r0, .L1
    bx lr
    .align 2
.L1: .word x(gottpoff) + 6
    .size f, . - f
    .section .tbss, \"awT\", %nobits
x:  .space 4
";
    let dir = Dir::new();
    let graph = lift(&[thumb(&dir, text)]);
    assert_eq!(opaque(&graph), [("f", "a distance from an instruction to a literal")]);
}

/// The addend is the distance from the `add` to the literal, here 2 bytes, and not an offset in the function, where
/// another block would have to begin.
#[test]
fn the_address_of_a_function_that_is_added_to_pc_is_that_of_its_symbol() {
    for global in ["", ".global g"] {
        let text = format!(
            "
    .global f
    .type f, %function
f:  ldr r0, .L1
.Lpc: add r0, pc
    bx lr
    .align 2
.L1: .word g - (.Lpc + 4)
    .size f, . - f
    .section .text.g, \"ax\"
    {global}
    .type g, %function
g:  nop
    nop
    bx lr
    .size g, . - g
"
        );
        let dir = Dir::new();
        let graph = lift(&[thumb(&dir, &text)]);
        assert_eq!(opaque(&graph).iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["f"]);
        let g = graph.functions().iter().find(|function| function.name == "g").unwrap();
        assert_eq!(g.blocks.len(), 1);
        let reference =
            graph.refs_of(graph.opaque()[0].node).iter().find(|to| to.r_type == R_ARM_REL32).unwrap();
        assert!(matches!(reference.target, Target::Symbol(_)), "{:?}", reference.target);
        assert_eq!((reference.addend, graph.resolve_node(reference.target)), (2, Some(g.blocks[0])));
    }
}

/// Clang uses such jumps in position-independent ARM code, and GCC in Thumb code where `tbb` is missing. The numbers
/// have no relocation: nothing else shows that the blocks can be reached.
#[test]
fn jumps_by_distances_among_instructions_are_seen() {
    let cases = [
        ("add pc, r2, r0", "an unsupported table of distances"),
        ("add r0, r2, r0\n    bx r0", "an unsupported table of distances"),
        ("add r0, r2, r0\n    mov pc, r0", "an unsupported table of distances"),
        ("add r0, r2, r0\n    bx lr", ""),
    ];
    for (encoding, (jump, reason)) in [".arm", ".thumb"].into_iter().flat_map(|e| cases.map(|case| (e, case)))
    {
        if encoding == ".thumb" && jump.starts_with("add pc") {
            continue; // Thumb code lacks this instruction.
        }
        let text = format!(
            "
    .text
    .syntax unified
    {encoding}
    .global f
    .type f, %function
f:  adr r2, .Ltable
    ldr r0, [r2, r0, lsl #2]
    {jump}
    .align 2
.Ltable: .word .La - .Ltable, .Lb - .Ltable
.La: movs r0, #1
    bx lr
.Lb: movs r0, #2
    bx lr
    .size f, . - f
"
        );
        let dir = Dir::new();
        let graph = lift(&[assemble(&dir, "distances", &text)]);
        let reasons: Vec<&str> = opaque(&graph).iter().map(|(_, reason)| *reason).collect();
        assert_eq!(reasons, if reason.is_empty() { vec![] } else { vec![reason] }, "{encoding} {jump}");
    }
}

/// GNU as writes `nop`s between a table and literals. As slots, they would lead out of the function.
#[test]
fn padding_behind_a_table_stays_code() {
    let text = "
    .global f
    .type f, %function
f:  cmp r0, #2
    bhi 9f
    tbh [pc, r0, lsl #1]
.Lt: .short (1f - .Lt) / 2, (2f - .Lt) / 2, (9f - .Lt) / 2
    .thumb
    nop
    .align 2
.L1: .word one
1:  ldr r0, .L1
    bx lr
2:  movs r0, #2
9:  bx lr
    .size f, . - f
";
    let dir = Dir::new();
    let graph = lift(&[thumb(&dir, text)]);
    assert_eq!(opaque(&graph), []);
    let once = lower(&graph, Relax::AsAssembled).unwrap().object.write().unwrap();
    let emitted = dir.path("emitted.o");
    std::fs::write(&emitted, &once).unwrap();
    let again = lift(&[emitted]);
    assert_eq!(opaque(&again), []);
    assert!(lower(&again, Relax::AsAssembled).unwrap().object.write().unwrap() == once);
}

/// A symbol that is made for such a reference exists as long as the reference does.
#[test]
fn symbols_of_places_go_with_what_refers_to_them() {
    let text = "
    .global keep
    .type keep, %function
keep: ldr r0, .L1
    bx lr
    .align 2
.L1: .word x(tpoff)
    .size keep, . - keep
    .section .text.gone, \"ax\"
    .type gone, %function
gone: ldr r0, .L2
    bx lr
    .align 2
.L2: .word y(tpoff)
    .size gone, . - gone
    .section .tbss, \"awT\", %nobits
x:  .space 4
y:  .space 4
";
    let dir = Dir::new();
    let graph = lift_reachable(&[thumb(&dir, text)], "keep");
    let lowered = lower(&graph, Relax::AsAssembled).unwrap().object;
    let values =
        lowered.symbols.iter().filter(|symbol| symbol.kind == STT_TLS && symbol.name.starts_with(".L"));
    assert_eq!(values.map(|symbol| symbol.value).collect::<Vec<_>>(), [0]);
}

/// If a branch of Thumb code crosses a page after an instruction of four bytes, GNU ld leads it around an erratum of
/// Cortex-A8. It looks for the destination at the symbol, and ignores the addend in the instruction.
#[test]
fn branches_across_pages_arrive() {
    let dir = Dir::new();
    let object = thumb(
        &dir,
        "
    .p2align 12
    .type first, %function
    .global first
first:
    bx lr
    .size first, .-first
    .type second, %function
second:
    movs r0, #2
    bx lr
    .size second, .-second
    .type filling, %function
    .global filling
filling:
    .rept 0x7f9
    movs r1, #1
    .endr
    bx lr
    .size filling, .-filling
    .type caller, %function
    .global caller
caller:
    push.w {r4, lr}
    bl second
    pop {r4, pc}
    .size caller, .-caller
",
    );
    let graph = lift(&[object]);
    let lowered = lower(&graph, Relax::AsAssembled).unwrap().object;
    let (object, program) = (dir.path("lowered.o"), dir.path("program"));
    std::fs::write(&object, lowered.write().unwrap()).unwrap();
    let mut ld = Command::new("arm-linux-gnueabihf-ld");
    run(ld.args(["--fix-cortex-a8", "-e", "caller", "-Ttext=0x10000", "-o"]).arg(&program).arg(&object));
    let code = Command::new("arm-linux-gnueabihf-objdump").arg("-d").arg(&program).output().unwrap().stdout;
    let code = String::from_utf8(code).unwrap();
    let detour: Vec<&str> = code.lines().filter(|line| line.contains("\tb.w\t")).collect();
    assert_eq!(detour.len(), 1, "{code}");
    assert!(detour[0].ends_with("<second>"), "{code}");
}

/// A branch to a weak function's place that uses another symbol keeps its target, whichever object defines the function
/// in the link.
#[test]
fn branches_stay_in_their_object() {
    let dir = Dir::new();
    let text = "
    .weak f
    .type f, %function
f:
.Lf:
    movs r0, #1
    bx lr
    .size f, .-f
    .section .text.caller, \"ax\", %progbits
    .thumb
    .global caller
    .type caller, %function
caller:
    push {r4, lr}
    bl .Lf
    pop {r4, pc}
    .size caller, .-caller
";
    let graph = lift(&[thumb(&dir, text)]);
    let (object, program) = (dir.path("lowered.o"), dir.path("program"));
    std::fs::write(&object, lower(&graph, Relax::AsAssembled).unwrap().object.write().unwrap()).unwrap();
    let strong = ".text\n.thumb\n.global f\n.type f, %function\nf:\nmovs r0, #2\nbx lr\n.size f, .-f\n";
    let strong = assemble(&dir, "strong", strong);
    let mut ld = Command::new("arm-linux-gnueabihf-ld");
    run(ld.args(["-e", "caller", "-Ttext=0x10000", "-o"]).arg(&program).args([&object, &strong]));
    let code = Command::new("arm-linux-gnueabihf-objdump").arg("-d").arg(&program).output().unwrap().stdout;
    let code = String::from_utf8(code).unwrap();
    let call = code.lines().find(|line| line.contains("\tbl\t")).unwrap();
    assert!(call.contains("\t10000 <"), "{code}");
}

/// Under an `it`, `b.w` is encoded as an unconditional branch (DDI 0406C, A8.8.18, T4), which the linker must know.
#[test]
fn jumps_under_it_have_the_relocation_of_jumps() {
    let text = "
    .global f
    .type f, %function
f:  cmp r0, #3
    it eq
    beq.w g
    bne.w g
    .size f, . - f
    .global g
    .type g, %function
g:  bx lr
    .size g, . - g
";
    let dir = Dir::new();
    let graph = lift(&[thumb(&dir, text)]);
    assert_eq!(opaque(&graph), [("f", "a jump on the condition of another instruction")]);
    let whole = graph.node_ids().find(|&node| graph.chunk(node).is_some_and(|chunk| chunk.code)).unwrap();
    let types: Vec<u32> = graph.refs_of(whole).iter().map(|reference| reference.r_type).collect();
    assert_eq!(types, [R_ARM_THM_JUMP24, R_ARM_THM_JUMP19]);
}

/// Execution may continue through the padding before a function that has followed code of the other encoding.
#[test]
fn padding_is_of_the_encoding_that_runs_on() {
    let text = "
    .arm
    .type a, %function
a:  bx lr
    .size a, . - a
    .balign 8
    .thumb
    .thumb_func
    .type g, %function
g:  bx lr
    .size g, . - g
    .section .text.f, \"ax\"
    .balign 2
    .thumb_func
    .type f, %function
f:  movs r0, #1
    movs r1, #1
    b.w g
    .size f, . - f
";
    let dir = Dir::new();
    let mut graph = lift(&[thumb(&dir, text)]);
    let entry = |name: &str| graph.functions().iter().find(|function| function.name == name).unwrap().entry();
    let (f, g) = (entry("f"), entry("g"));
    let section = graph.node(f).section;
    let mut editor = Editor::new(&mut graph, "test");
    editor.place(&[f, g], section);
    editor.end_block(f, Terminator::FallThrough(g));
    editor.finish();
    let object = lower(&graph, Relax::Shortest).unwrap().object;
    let placed = object.sections.iter().find(|section| section.data.len() > 8).expect("f and g");
    assert_eq!(placed.data[4..8], [0x00, 0xbf, 0x00, 0xbf]);
}
