//! The parts of a program besides nodes: sections, functions, symbols, jump tables, roots.

use std::ops::Range;
use std::sync::Arc;

use goblin::elf::section_header::{SHF_ALLOC, SHF_TLS, SHF_WRITE};
use goblin::elf::sym::{STB_LOCAL, STT_NOTYPE, STT_TLS};
use kelf::ObjectIndex;
use kisa::Encoding;

use crate::index::{NodeId, SectionId, SymbolId};
use crate::special::RootReason;

/// An input section, from which nodes come.
#[derive(Clone, Debug)]
pub struct InputSection {
    /// Name in the object.
    pub name: Arc<str>,
    /// The object: a path, or `archive(member)`.
    pub object: Arc<str>,
    /// The number of that object in the program.
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
    /// Whether it is data that is not split at its variables: hand-written, or with a label of `asm`.
    pub whole: bool,
    /// The section by which the linker orders this one (`SHF_LINK_ORDER`).
    pub order: Option<SectionId>,
    /// Its nodes in their order.
    pub nodes: Vec<NodeId>,
}

impl Section {
    /// Creates a section of writable data without nodes, with this name and `sh_type`.
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

    /// Returns the `st_type` of a symbol for a place in it: for thread-local variables, GNU ld accepts only one type.
    pub(crate) fn kind_of_place(&self) -> u8 {
        if self.flags & u64::from(SHF_TLS) != 0 { STT_TLS } else { STT_NOTYPE }
    }
}

/// A function of compiler-made code.
#[derive(Clone, Debug)]
pub struct Function {
    /// Name of the symbol that defines it, or `section+offset` if there is none.
    pub name: String,
    /// The encoding of its instructions.
    pub encoding: Encoding,
    /// Its blocks, in the order of the input; the first is the entry.
    pub blocks: Vec<NodeId>,
    /// Whether a pass made it of instructions that other functions share, and that they call instead: it works on their
    /// frames, follows no calling convention, and has no symbol.
    pub is_outlined: bool,
}

impl Function {
    /// Returns its first block.
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
    /// Its place.
    pub place: SymbolPlace,
    /// Its name is used here, but not in the link: it is a weak definition that another one overrides, or its function
    /// is now part of another one.
    pub unlinked: bool,
}

impl Symbol {
    /// Creates a local symbol without name, type, size and place.
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
            unlinked: false,
        }
    }
}

/// A symbol of code. Name, file and number identify the function in every link of the same objects.
#[derive(Clone, Copy, Debug)]
pub struct CodeName<'g> {
    /// The number of the symbol.
    pub id: SymbolId,
    /// The symbol.
    pub symbol: &'g Symbol,
    /// Number of code symbols with the same name and file that precede it.
    pub nth: u32,
    /// The node that contains it.
    pub node: NodeId,
    /// Its offset in bytes there.
    pub offset: u32,
}

/// The place of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolPlace {
    /// Outside the program: in the linker script, in an object that the final link adds, or nowhere.
    Undefined,
    /// Allocated by the linker (`SHN_COMMON`), with this alignment in bytes.
    Common(u64),
    /// A number.
    Absolute(u64),
    /// At an offset in bytes in a node; at the node's size, the symbol is at its end.
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

/// The requirement of the objects' `.note.GNU-stack` sections for the program's stack. The linker takes the least
/// strict of them (GNU ld, option `-z execstack`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StackNote {
    /// Every object has one: nothing needs an executable stack.
    NotExecutable,
    /// An object has none; the meaning of that is the linker's choice.
    Missing,
    /// An object needs an executable stack: it makes trampolines for nested functions.
    Executable,
}

/// A node that is alive by itself.
#[derive(Clone, Debug)]
pub struct Root {
    /// The node.
    pub node: NodeId,
    /// The part of the node that is needed, in bytes from its start.
    pub range: Range<u32>,
    /// The reason.
    pub reason: RootReason,
}

/// Opaque code.
#[derive(Clone, Debug)]
pub struct Opaque {
    /// The chunk that holds it.
    pub node: NodeId,
    /// Function, or section of hand-written code.
    pub name: String,
    /// A short reason.
    pub reason: &'static str,
}
