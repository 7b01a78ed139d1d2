//! Outlining of repeated sequences of instructions into functions.
//!
//! A sequence has the same effect in a function as in place if it only computes and accesses memory. A call and a
//! return change neither registers nor flags, and accesses relative to the stack pointer are adjusted for the return
//! address ([`kisa::Rewritable::move_into_callee`]). The last instruction may also be a call: the function then jumps
//! to the callee, which finds an unchanged stack and returns to the caller of the function. Where calls leave the
//! return address in a register, that register must be dead ([`Link`]).
//!
//! Such a function takes its operands from wherever they are, so it follows no calling convention, and has no symbol
//! ([`kcfg::graph::Function::is_outlined`]). A fault in it is reported with the preceding symbol, and on x86 a
//! backtrace by frame pointers omits its caller.

use std::ops::Range;

use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_PROGBITS};
use indexmap::IndexMap;
use kcfg::edges::Edges;
use kcfg::graph::{Contents, Dest, Editor, Graph, Node, Ref, Role, Section, Target, Terminator};
use kcfg::index::{NodeId, NodeSet};
use kelf::RelocClass;
use kisa::Encoding;
use rayon::prelude::*;
use rustc_hash::FxBuildHasher;

use super::link::Link;
use super::movable::{Uses, cut, movable};
use super::sequences::{Item, Price, Repeated, repeated};
use crate::identical::{End, Instruction, Partition};
use crate::instrument::exclusive::{accesses_of, entered_between};
use crate::report::PassReport;

/// The section of outlined functions.
const SECTION: &str = ".text";

/// The byte offset of the unwind word in an entry of ARM's index, and the word of a function that has saved nothing:
/// three times "finish" (IHI 0038, section 9.3).
const SAVES_NOTHING: (usize, u32) = (4, 0x80b0_b0b0);

/// The lowest `Tag_CPU_arch` of processors with `bx` (IHI 0045, 2.3.5.2).
const V4T: u64 = 2;

/// Maximum size of the code, in bytes, at which every call is in range (16 MiB in Thumb code), with room for anything
/// in between.
const NEAR: u64 = 8 << 20;

/// Bytes added to the price of each call: in a compressed image, repeated instructions take almost nothing, but the
/// distance of each call differs and takes about a byte more.
const COMPRESSED_DISTANCE: u32 = 1;

/// Outlines the sequences that cold blocks share.
pub(super) fn run(graph: &mut Graph, is_cold: impl Fn(NodeId) -> bool, report: &mut PassReport) {
    let unwinding = Unwinding::of(graph);
    if let Some(why) = why_not(graph, unwinding) {
        report.keep("repeated sequences", why);
        return;
    }
    for encoding in [Encoding::Main, Encoding::Thumb] {
        let sequences = sequences(graph, encoding, &is_cold);
        if !sequences.is_empty() {
            report.count("sequences outlined", sequences.len() as u64);
            report.count("calls of outlined sequences", outline(graph, &sequences, unwinding));
        }
    }
}

/// The reason why nothing of a program can be outlined.
fn why_not(graph: &Graph, unwinding: Unwinding) -> Option<&'static str> {
    if let Unwinding::Unknown = unwinding {
        return Some("no unwind entry describes a function that saves nothing");
    }
    graph.isa().convention().link_register?;
    if graph.attributes().is_none_or(|attributes| attributes.architecture < V4T) {
        return Some("the processor may not support `bx`, the return of outlined functions");
    }
    let code = graph.node_ids().map(|id| graph.node(id)).filter(|node| node.live);
    let is_code = |node: &&Node| graph.sections()[node.section].flags & u64::from(SHF_EXECINSTR) != 0;
    let size: u64 = code.filter(is_code).map(|node| u64::from(node.size)).sum();
    (size > NEAR).then_some("calls may be out of range, and the linker's veneers change a register")
}

/// Unwind information for outlined functions.
#[derive(Clone, Copy)]
enum Unwinding {
    /// The program has no unwind index.
    None,
    /// Copied from this unwind entry.
    Like(NodeId),
    /// The index has no suitable entry.
    Unknown,
}

impl Unwinding {
    fn of(graph: &Graph) -> Unwinding {
        let entries =
            || graph.node_ids().filter(|&node| graph.node(node).live && graph.is_unwind_entry(node));
        let saves_nothing = |&entry: &NodeId| {
            let word = graph.bytes_of(entry).get(SAVES_NOTHING.0..).and_then(|word| word.first_chunk());
            let refs = graph.refs_of(entry);
            word.is_some_and(|word| u32::from_le_bytes(*word) == SAVES_NOTHING.1)
                && matches!(refs, [Ref { role: Role::Site, .. }])
        };
        match (entries().find(saves_nothing), entries().next()) {
            (Some(entry), _) => Unwinding::Like(entry),
            (None, Some(_)) => Unwinding::Unknown,
            (None, None) => Unwinding::None,
        }
    }
}

/// The sequences worth outlining in code of an encoding.
fn sequences(graph: &Graph, encoding: Encoding, is_cold: impl Fn(NodeId) -> bool) -> Vec<Places> {
    let text = Text::of(graph, encoding, is_cold);
    repeated(&text.items, price(graph, encoding)).iter().map(|sequence| text.places(sequence)).collect()
}

/// Outlines sequences into functions and inserts the calls. Returns the number of calls.
fn outline(graph: &mut Graph, sequences: &[Places], unwinding: Unwinding) -> u64 {
    let cuts: Vec<End> = cuts(graph, sequences).collect();
    let parts = cut(graph, cuts);
    let mut editor = Editor::new(graph, "merge");
    let flags = u64::from(SHF_ALLOC | SHF_EXECINSTR);
    let section = editor.add_section(Section { flags, ..Section::writable(SECTION, SHT_PROGBITS) });
    let mut calls = 0;
    for sequence in sequences {
        let parts = sequence.iter().map(|(block, range)| parts[&(*block, range.start)]);
        let Some(first) = parts.clone().next() else { continue };
        let (contents, end) = body(editor.graph(), first);
        let function = editor.outline(first, section, contents, end);
        if let Unwinding::Like(entry) = unwinding {
            editor.copy_entry(entry, function);
        }
        calls += parts.len() as u64;
        for part in parts {
            editor.represent(function, part);
            call_instead(&mut editor, part, function);
        }
    }
    editor.finish();
    calls
}

/// The places of a sequence: blocks, and byte ranges in them.
type Places = Vec<(NodeId, Range<u32>)>;

/// Instructions that may be outlined, as a text.
#[derive(Default)]
struct Text {
    items: Vec<Option<Item>>,
    /// The start of each item.
    begins: Vec<End>,
}

impl Text {
    /// The text of the cold blocks in an encoding.
    fn of(graph: &Graph, encoding: Encoding, is_cold: impl Fn(NodeId) -> bool) -> Text {
        let mut text = Text::default();
        if !graph.functions().iter().any(|function| function.encoding == encoding) {
            return text;
        }
        let (edges, uses, link) = (Edges::of(graph), Uses::of(graph), Link::of(graph));
        let partition = Partition::of(graph, &edges, &[]);
        let mut blocks = movable(graph, &edges);
        // Exclusive accesses must stay together: no other store or branch may separate them.
        let has_exclusive = graph.isa().convention().link_register.is_some();
        let between = if has_exclusive { entered_between(graph) } else { NodeSet::default() };
        blocks.retain(|&block| {
            graph.encoding(block) == encoding
                && !between.contains(block)
                && (!has_exclusive || accesses_of(graph, block).is_empty())
                && !uses.inside.contains(block)
                && graph.node(block).glued_to.is_none()
                && is_cold(block)
        });
        let read = |&block: &NodeId| {
            let instructions: Vec<Instruction> = Instruction::all(graph, block).flatten().collect();
            let link_matters = link.behind(block, instructions.len());
            let key = |one: &Instruction| {
                let mut key = partition.key_of(block, one);
                key.push(is_last_call(graph, block, one).into());
                key
            };
            let keys: Vec<Vec<u8>> = instructions.iter().map(key).collect();
            (instructions, link_matters, keys)
        };
        let read: Vec<_> = blocks.par_iter().map(read).collect();
        // The item of each instruction; `None` if it cannot be outlined.
        let mut items: IndexMap<Vec<u8>, Option<Item>, FxBuildHasher> = IndexMap::default();
        for (&block, (instructions, link_matters, keys)) in blocks.iter().zip(read) {
            for ((instruction, link_matters), key) in instructions.iter().zip(link_matters).zip(keys) {
                let number = items.len() as u32;
                let item = *items.entry(key).or_insert_with(|| item(graph, block, instruction, number));
                text.items.push(item.filter(|item| item.is_last || !link_matters));
                text.begins.push((block, instruction.range.start));
            }
            text.items.push(None);
            text.begins.push((block, graph.node(block).size));
        }
        text
    }

    fn places(&self, sequence: &Repeated) -> Places {
        let place = |&start: &usize| {
            let ((block, from), (_, to)) = (self.begins[start], self.begins[start + sequence.length]);
            (block, from..to)
        };
        sequence.starts.iter().map(place).collect()
    }
}

fn price(graph: &Graph, encoding: Encoding) -> Price {
    let (isa, mut call, mut back) = (graph.isa(), Vec::new(), Vec::new());
    isa.encode_call(encoding, &mut call);
    isa.encode_return(encoding, &mut back);
    Price { call: call.len() as u32 + COMPRESSED_DISTANCE, back: back.len() as u32 }
}

/// Returns the item of an instruction, given the number of its equals; `None` if it cannot be outlined.
fn item(graph: &Graph, block: NodeId, instruction: &Instruction, number: u32) -> Option<Item> {
    let is_last = is_last_call(graph, block, instruction);
    let size = instruction.range.len() as u32;
    (is_last || may_move(graph, block, instruction)).then_some(Item { number, size, is_last })
}

/// Whether an instruction is a call at the end of a block that a jump can replace.
fn is_last_call(graph: &Graph, block: NodeId, instruction: &Instruction) -> bool {
    is_behind_call(graph, block, instruction.range.end)
        && graph.callee(block).is_some_and(|callee| callee.addend == 0 && is_alike(graph, block, callee))
}

/// Whether a place in a block is after the call that ends the block.
fn is_behind_call(graph: &Graph, block: NodeId, at: u32) -> bool {
    let calls = matches!(graph.block(block).map(|block| &block.end), Some(Terminator::Call { .. }));
    calls && at == graph.node(block).size
}

/// Whether a callee has the encoding of a block: on ARM, a call may switch the encoding, a jump may not.
fn is_alike(graph: &Graph, block: NodeId, callee: &Ref) -> bool {
    if graph.isa().convention().link_register.is_none() {
        return true;
    }
    let is_thumb = graph.encoding(block) == Encoding::Thumb;
    match (callee.target, graph.resolve_node(callee.target)) {
        (_, Some(to)) if graph.block(to).is_some() => graph.encoding(to) == graph.encoding(block),
        (Target::Symbol(symbol), Some(_)) => graph.symbols()[symbol].thumb == is_thumb,
        _ => false,
    }
}

/// Whether an instruction has the same effect in an outlined function.
fn may_move(graph: &Graph, block: NodeId, instruction: &Instruction) -> bool {
    let Instruction { range, condition } = instruction;
    let mut bytes = graph.bytes_of(block)[range.start as usize..range.end as usize].to_vec();
    let before = bytes.clone();
    let at = graph.encoding(block).at(range.start.into()).on(*condition);
    let fields = || graph.refs_of(block).iter().filter(|reference| range.contains(&reference.offset));
    // The linker rewrites accesses to thread-local variables together with the following call.
    let is_plain =
        fields().all(|field| matches!(field.class, RelocClass::Absolute | RelocClass::Instruction));
    is_plain && graph.isa().move_into_callee(&mut bytes, at) && (bytes == before || fields().next().is_none())
}

/// The places to cut blocks: before and after sequences, except after the call that ends a block.
fn cuts<'s>(graph: &'s Graph, sequences: &'s [Places]) -> impl Iterator<Item = End> + 's {
    sequences.iter().flatten().flat_map(move |(block, range)| {
        let end = (!is_behind_call(graph, *block, range.end)).then_some((*block, range.end));
        std::iter::once((*block, range.start)).chain(end)
    })
}

/// Returns the body of the outlined function: the instructions of a block, followed by a jump to the callee of its last
/// call, or by a return.
fn body(graph: &Graph, block: NodeId) -> (Contents, Terminator) {
    let (isa, encoding) = (graph.isa(), graph.encoding(block));
    let mut contents =
        Contents { bytes: graph.bytes_of(block).to_vec(), refs: graph.refs_of(block).to_vec() };
    let mut end = Terminator::Return;
    for instruction in Instruction::all(graph, block).flatten() {
        let start = instruction.range.start;
        if is_last_call(graph, block, &instruction)
            && let Some(callee) = graph.callee(block)
        {
            end = Terminator::Jump(Dest { target: callee.target, offset: 0 });
            contents.bytes.truncate(start as usize);
            contents.refs.retain(|reference| reference.role != Role::Callee);
        } else {
            let bytes = &mut contents.bytes[start as usize..instruction.range.end as usize];
            isa.move_into_callee(bytes, encoding.at(start.into()).on(instruction.condition));
        }
    }
    if end == Terminator::Return {
        isa.encode_return(encoding, &mut contents.bytes);
    }
    (contents, end)
}

/// Replaces the contents of a block by a call of a function.
fn call_instead(editor: &mut Editor<'_>, block: NodeId, function: NodeId) {
    let graph = editor.graph();
    let contents = Contents::call(graph, graph.encoding(block), Target::Node(function));
    let next = graph.block(block).and_then(|block| block.end.next());
    editor.edit_block(block, contents, &[]);
    editor.end_block(block, Terminator::Call { next });
}
