//! What a program has besides nodes: sections, functions, symbols, jump tables, roots.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use goblin::elf::section_header::{SHF_ALLOC, SHF_TLS, SHF_WRITE};
use goblin::elf::sym::{STB_LOCAL, STT_FUNC, STT_NOTYPE, STT_TLS};
use kelf::ObjectIndex;
use kisa::Encoding;

use super::Graph;
use crate::carried::HAND_WRITTEN;
use crate::index::{NodeId, SectionId, SymbolId};
use crate::special::RootReason;

/// An input section: what nodes come from.
#[derive(Clone, Debug)]
pub struct InputSection {
    /// Name in the object.
    pub name: Arc<str>,
    /// The object: a path, or `archive(member)`.
    pub object: Arc<str>,
    /// Which object of the program that is.
    pub object_index: ObjectIndex,
    /// Size in bytes.
    pub size: u32,
}

/// A section of the program as it is lowered.
#[derive(Clone, Debug)]
pub struct Section {
    /// Name, by which the linker script places it ([`World::output_name`](crate::special::World::output_name)).
    pub name: Arc<str>,
    /// `sh_type`.
    pub kind: u32,
    /// `sh_flags`.
    pub flags: u64,
    /// Alignment in bytes in the input.
    pub align: u32,
    /// Size of an entry in bytes, or 0.
    pub entsize: u64,
    /// The signature of the COMDAT group that it belongs to.
    pub group: Option<SymbolId>,
    /// Whether it is data that is not cut at its variables: hand-written, or with a label of `asm`.
    pub whole: bool,
    /// The section by which the linker orders this one (`SHF_LINK_ORDER`).
    pub order: Option<SectionId>,
    /// Its nodes in their order.
    pub nodes: Vec<NodeId>,
}

impl Section {
    /// A section of writable data without nodes, given its name and `sh_type`.
    pub fn writable(name: &str, kind: u32) -> Section {
        Section {
            name: name.into(),
            kind,
            flags: u64::from(SHF_ALLOC | SHF_WRITE),
            align: 1,
            entsize: 0,
            group: None,
            whole: false,
            order: None,
            nodes: Vec::new(),
        }
    }

    /// The `st_type` of a symbol for a place in it: GNU ld takes no other for variables of threads.
    pub(crate) fn kind_of_place(&self) -> u8 {
        if self.flags & u64::from(SHF_TLS) != 0 { STT_TLS } else { STT_NOTYPE }
    }
}

/// A function of compiler-made code.
#[derive(Clone, Debug)]
pub struct Function {
    /// Name, of the symbol that defines it, or `section+offset` where there is none.
    pub name: String,
    /// How its instructions are encoded.
    pub encoding: Encoding,
    /// Its blocks, in the order of the input; the first is the entry.
    pub blocks: Vec<NodeId>,
    /// Whether a pass made it of instructions that other functions have, and that they call instead: it works on their frames,
    /// keeps to no calling convention, and has no symbol.
    pub is_outlined: bool,
}

impl Function {
    /// Its first block.
    pub fn entry(&self) -> NodeId {
        self.blocks[0]
    }
}

/// An array of one byte for each instrumented block: 0 until the block has run.
#[derive(Clone, Debug)]
pub struct Counters {
    /// The symbol at its first byte.
    pub symbol: SymbolId,
    /// The block of each byte.
    pub blocks: Vec<NodeId>,
}

/// A symbol.
#[derive(Clone, Debug)]
pub struct Symbol {
    /// Name.
    pub name: String,
    /// For a local symbol, the source file that its object names (`STT_FILE`), or the object's own name.
    pub file: Option<Arc<str>>,
    /// `STB_*`.
    pub binding: u8,
    /// `STT_*`.
    pub kind: u8,
    /// `st_other`.
    pub other: u8,
    /// Size in bytes in the input.
    pub size: u64,
    /// Whether it is a function in Thumb code.
    pub thumb: bool,
    /// Where it is.
    pub place: SymbolPlace,
    /// A weak definition that another one overrides: it is known here by its name, and in the link by none.
    pub overridden: bool,
}

impl Symbol {
    /// A local symbol without name, type and size, which lies nowhere.
    pub fn unnamed() -> Symbol {
        Symbol {
            name: String::new(),
            file: None,
            binding: STB_LOCAL,
            kind: STT_NOTYPE,
            other: 0,
            size: 0,
            thumb: false,
            place: SymbolPlace::Undefined,
            overridden: false,
        }
    }
}

/// A symbol of code. Name, file and number say which function it is in every link of the same objects.
#[derive(Clone, Copy, Debug)]
pub struct CodeName<'g> {
    /// The number of the symbol.
    pub id: SymbolId,
    /// The symbol.
    pub symbol: &'g Symbol,
    /// How many symbols of code of the same name and file come before it.
    pub nth: u32,
    /// The node that it lies in.
    pub node: NodeId,
    /// Its offset in bytes there.
    pub offset: u32,
}

/// Where a symbol is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolPlace {
    /// Outside of the program: the linker script, an object linked beside, or nowhere.
    Undefined,
    /// Wherever the linker makes room for it (`SHN_COMMON`), with this alignment in bytes.
    Common(u64),
    /// A number.
    Absolute(u64),
    /// So many bytes into a node; at a node's size, behind its end.
    Node(NodeId, u32),
}

/// A resolved jump table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JumpTable {
    /// The chunk that holds it.
    pub chunk: NodeId,
    /// Its slots, in bytes from the start of the chunk: each is one reference.
    pub range: Range<u32>,
}

/// What the section `.note.GNU-stack` of the objects says of the program's stack. The linker takes the least strict of
/// them (GNU ld, option `-z execstack`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StackNote {
    /// Every object has one: nothing needs an executable stack.
    NotExecutable,
    /// An object has none; what that means is the linker's choice.
    Missing,
    /// An object needs an executable stack: it makes trampolines for nested functions.
    Executable,
}

/// A node that is alive by itself.
#[derive(Clone, Debug)]
pub struct Root {
    /// Which node.
    pub node: NodeId,
    /// What of it is meant, in bytes from its start.
    pub range: Range<u32>,
    /// Why.
    pub reason: RootReason,
}

/// Code that is carried as it is.
#[derive(Clone, Debug)]
pub struct Opaque {
    /// The chunk that holds it.
    pub node: NodeId,
    /// Function, or section of hand-written code.
    pub name: String,
    /// Why, in a few words.
    pub reason: &'static str,
}

impl Graph {
    /// Opaque code by function: a chunk of compiled code comes once for each function in it.
    pub fn opaque_functions(&self) -> Vec<Opaque> {
        let mut functions: BTreeMap<NodeId, BTreeMap<u32, &str>> = BTreeMap::new();
        for symbol in self.symbols.iter().filter(|symbol| symbol.kind == STT_FUNC) {
            if let SymbolPlace::Node(node, offset) = symbol.place {
                functions.entry(node).or_default().entry(offset).or_insert(&symbol.name);
            }
        }
        let by_function = |opaque: &Opaque| match functions.get(&opaque.node) {
            Some(names) if opaque.reason != HAND_WRITTEN => {
                names.values().map(|&name| Opaque { name: name.to_owned(), ..opaque.clone() }).collect()
            }
            _ => vec![opaque.clone()],
        };
        self.opaque.iter().flat_map(by_function).collect()
    }
}
