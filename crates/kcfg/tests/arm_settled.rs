//! Distances between functions of 32-bit ARM that the assembler has filled in, without a relocation; and literals out
//! of reach of code that moved.

mod common;

use std::path::PathBuf;

use common::{Dir, assemble, lift, lift_reachable};
use goblin::elf::reloc::{R_ARM_CALL, R_ARM_THM_PC22};
use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_PROGBITS};
use kcfg::graph::{Editor, Graph, Section};
use kcfg::index::{FunctionId, NodeId};
use kcfg::lower::{Relax, bring_near, lower};
use kisa::Encoding;

/// Assembles functions, each with its name, its encoding, and its instructions; the first one is global.
fn functions(dir: &Dir, functions: &[(&str, Encoding, &str)]) -> PathBuf {
    let mut text = format!(".text\n.global {}\n", functions[0].0);
    for (name, encoding, body) in functions {
        let (mode, align) = match encoding {
            Encoding::Main => (".arm", 2),
            Encoding::Thumb => (".thumb", 1),
        };
        text += &format!(
            "{mode}\n.align {align}\n.type {name}, %function\n{name}:\n{body}\n.size {name}, . - {name}\n"
        );
    }
    assemble(dir, "settled", &text)
}

fn opaque(graph: &Graph) -> Vec<(&str, &str)> {
    graph.opaque().iter().map(|opaque| (opaque.name.as_str(), opaque.reason)).collect()
}

/// Returns the first block of a function.
fn entry(graph: &Graph, name: &str) -> NodeId {
    graph.functions().iter().find(|function| function.name == name).expect(name).blocks[0]
}

#[test]
fn settled_calls_of_the_other_encoding_name_their_callee() {
    for (own, other, r_type) in
        [(Encoding::Main, Encoding::Thumb, R_ARM_CALL), (Encoding::Thumb, Encoding::Main, R_ARM_THM_PC22)]
    {
        let dir = Dir::new();
        let object = functions(
            &dir,
            &[
                ("caller", own, "push {r4, lr}\nblx callee\npop {r4, pc}"),
                ("between", own, "bx lr"),
                ("callee", other, "movs r0, #1\nbx lr"),
            ],
        );
        let graph = lift_reachable(&[object], "caller");
        let callee = entry(&graph, "callee");
        assert!(graph.node(callee).live && !graph.node(entry(&graph, "between")).live);
        let caller = graph.opaque().iter().find(|opaque| opaque.name == "caller").unwrap().node;
        let [call] = graph.refs_of(caller) else { panic!("{:?}", graph.refs_of(caller)) };
        assert_eq!((call.r_type, call.addend, graph.resolve(call.target)), (r_type, 0, Some((callee, 0))));
        // The linker uses the encoding in the symbol of a function.
        let object = lower(&graph, Relax::Shortest).unwrap().object;
        let text = object.sections.iter().find(|section| section.name == ".text").unwrap();
        let symbol = object.symbol(text.relocs[0].symbol);
        assert_eq!((symbol.name, symbol.thumb), ("callee", other == Encoding::Thumb));
    }
}

#[test]
fn a_branch_into_code_of_the_other_encoding_keeps_its_section_whole() {
    let dir = Dir::new();
    // 0xeb000001 is `bl` to three instructions further, which is Thumb code.
    let object = functions(
        &dir,
        &[
            ("caller", Encoding::Main, ".inst 0xeb000001\nbx lr"),
            ("between", Encoding::Main, "bx lr"),
            ("callee", Encoding::Thumb, "movs r0, #1\nbx lr"),
        ],
    );
    let graph = lift(&[object]);
    let [(_, reason)] = opaque(&graph)[..] else { panic!("{:?}", opaque(&graph)) };
    assert_eq!(reason, "a branch with the wrong encoding for its target");
}

/// The distance is a literal, or a number made by two instructions. Other code may be separate.
#[test]
fn functions_at_a_settled_distance_stay_together() {
    let main = "ldr r0, .L1\n.Lpc: add r0, pc, r0\nbx lr\n.L1: .word callee - (.Lpc + 8)";
    // `movw`, with `movt` some instructions further, of a distance backward.
    let halves = "movw r0, #0xffec\nmovs r1, #1\nmovt r0, #0xffff\nadd r0, pc\nbx lr";
    for (encoding, body, front) in [(Encoding::Main, main, false), (Encoding::Thumb, halves, true)] {
        let dir = Dir::new();
        let others = [("callee", encoding, "movs r0, #1\nbx lr"), ("between", encoding, "bx lr")];
        let mut all = vec![("caller", encoding, body)];
        let at = if front { 0 } else { 1 };
        all.splice(at..at, others).for_each(drop);
        all.push(("apart", encoding, "movs r0, #2\nbx lr"));
        let graph = lift(&[functions(&dir, &all)]);
        let [_] = opaque(&graph)[..] else { panic!("{:?}", opaque(&graph)) };
        let names: Vec<&str> = graph.functions().iter().map(|function| function.name.as_str()).collect();
        // `between` is after `callee` in one case, and before `caller` in the other.
        let expected: &[&str] = if front { &["apart"] } else { &["between", "apart"] };
        assert_eq!(names, expected);
    }
}

/// A number that leads nowhere, or is relocated, keeps nothing together.
#[test]
fn other_numbers_beside_the_program_counter_are_no_distances() {
    let body = "ldr r0, .L1\n.Lpc: add r0, pc\nldr r1, .L2\nbx lr\n.align 2
        .L1: .word outside - (.Lpc + 4)\n.L2: .word 0x12345678";
    let dir = Dir::new();
    let object = functions(&dir, &[("f", Encoding::Thumb, body), ("g", Encoding::Thumb, "bx lr")]);
    let graph = lift(&[object]);
    assert_eq!(opaque(&graph), [("f", "a branch or an address that compilers do not emit")]);
}

/// Callers of a function find the word before it, whatever it looks like.
#[test]
fn data_in_front_of_a_function_stays_there() {
    for encoding in [Encoding::Thumb, Encoding::Main] {
        for word in ["0x12345678", "0", "0xbf00bf00", "0xe320f000"] {
            let dir = Dir::new();
            let mode = if encoding == Encoding::Main { ".arm" } else { ".thumb" };
            let function = |name: &str| {
                format!(
                    "{mode}\n.align 2\n.type {name}, %function\n{name}: bx lr\n.size {name}, . - {name}\n"
                )
            };
            let [f, g, h] = ["f", "g", "h"].map(function);
            let text = format!(".text\n.global f, g\n{f}.align 2\n.word {word}\n{g}{h}");
            let object = assemble(&dir, "settled", &text);
            let graph = lift(&[object]);
            let [(_, reason)] = opaque(&graph)[..] else { panic!("{word}: {:?}", opaque(&graph)) };
            assert_eq!(reason, "data or code without a name before the function");
            // It is alive like the function, and is data again in the object.
            let emitted = lower(&graph, Relax::Shortest).unwrap().object.write().unwrap();
            let path = dir.path("emitted.o");
            std::fs::write(&path, &emitted).unwrap();
            let again = lift_reachable(&[path], "g");
            let [whole] = again.opaque() else { panic!("{:?}", again.opaque()) };
            assert!(again.node(whole.node).live);
            let number = u32::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
            // After padding.
            let data = again.bytes_of(whole.node).windows(4).position(|word| word == number.to_le_bytes());
            assert!(data.is_some_and(|at| at <= 2), "{word}: {data:?}");
        }
    }
}

/// Moves nodes after all other code, as passes do with cold blocks.
fn move_away(graph: &mut Graph, nodes: &[NodeId]) {
    let mut editor = Editor::new(graph, "test");
    let flags = u64::from(SHF_ALLOC | SHF_EXECINSTR);
    let section = editor.add_section(Section { flags, ..Section::writable(".text.cold", SHT_PROGBITS) });
    editor.place(nodes, section);
    editor.finish();
}

/// Builds a function with a literal before the block that reads it, which has `before` and `behind` four-byte
/// instructions around the load.
fn literal_in_front(dir: &Dir, before: u32, behind: u32) -> PathBuf {
    let body = format!(
        "cmp r0, #0\nb.w 1f\n.align 3\n.L1: .word 1, 2\n1:\n.rept {before}\nadd.w r0, r0, #1\n.endr\nldrd r2, r3, .L1\n\
         .rept {behind}\nadd.w r0, r0, #1\n.endr\nbx lr"
    );
    functions(dir, &[("f", Encoding::Thumb, &body)])
}

/// `ldrd` reaches 1020 bytes. The end of its block is further away, and there is nothing before the block.
#[test]
fn a_block_is_split_for_a_literal_that_fits_nowhere_else() {
    let dir = Dir::new();
    let mut graph = lift(&[literal_in_front(&dir, 10, 400)]);
    assert_eq!(opaque(&graph), []);
    let blocks = graph.functions()[FunctionId(0)].blocks.clone();
    move_away(&mut graph, &blocks[1..]);
    assert!(lower(&graph, Relax::Shortest).is_err(), "the literal is in another section");
    bring_near(&mut graph);
    graph.verify().unwrap();
    lower(&graph, Relax::Shortest).unwrap();
    assert_eq!(graph.functions()[FunctionId(0)].blocks.len(), blocks.len() + 1);
}

/// Another block without a fall-through precedes the block: no jump is needed.
#[test]
fn a_literal_is_put_in_front_where_control_does_not_go_on() {
    let dir = Dir::new();
    let body = "cmp r0, #0\nbeq.w 1f\nb.w 2f\n.align 3\n.L1: .word 1, 2\n1: add.w r0, r0, #3\nbx lr\n2:\nldrd r2, r3, .L1\n\
         .rept 400\nadd.w r0, r0, #1\n.endr\nbx lr";
    let mut graph = lift(&[functions(&dir, &[("f", Encoding::Thumb, body)])]);
    assert_eq!(opaque(&graph), []);
    let blocks = graph.functions()[FunctionId(0)].blocks.clone();
    move_away(&mut graph, &blocks[2..]);
    bring_near(&mut graph);
    lower(&graph, Relax::Shortest).unwrap();
    assert_eq!(graph.functions()[FunctionId(0)].blocks.len(), blocks.len(), "no block is split");
    let cold = graph.sections().iter().find(|section| section.nodes.contains(&blocks[2])).unwrap();
    assert_eq!(cold.nodes.len(), 3);
    assert!(graph.is_among_code(cold.nodes[1]), "the literal lies between the blocks");
}

/// ARM code begins at multiples of four bytes, whatever precedes it.
#[test]
fn code_is_aligned_for_its_encoding() {
    let dir = Dir::new();
    let graph = &mut lift(&[functions(
        &dir,
        &[
            ("thumb", Encoding::Thumb, "cmp r0, #0\nbeq 1f\nmovs r0, #1\n1: bx lr"),
            ("main", Encoding::Main, "cmp r0, #0\nbeq 1f\nmov r0, #1\n1: bx lr"),
        ],
    )]);
    let (thumb, main) = (entry(graph, "thumb"), graph.functions()[FunctionId(1)].blocks.clone());
    let odd = graph.functions()[FunctionId(0)]
        .blocks
        .iter()
        .copied()
        .find(|&block| graph.node(block).size == 2)
        .unwrap();
    assert_ne!(odd, main[0]);
    move_away(graph, &[thumb, odd, main[2], main[1]]);
    let lowered = lower(graph, Relax::Shortest).unwrap();
    for placed in &lowered.code {
        let unit = if graph.encoding(placed.node) == Encoding::Main { 4 } else { 2 };
        assert_eq!(placed.offset % unit, 0, "{}", graph.name_of(placed.node));
    }
}
