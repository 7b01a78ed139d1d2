/*!
The boot parameters of a kernel: the entries of its two tables.

`.init.setup` has a `struct obs_kernel_param` (include/linux/init.h) for each `early_param` and `__setup`: the text
that words of the command line are compared with, and a handler. `__param` has a `struct kernel_param`
(include/linux/moduleparam.h) for each `core_param` and `module_param`: a name, operations, and usually the variable
that they set. The linker script bounds both, and loops walk them entry by entry (`obsolete_checksetup`,
`do_early_param` in init/main.c; `parse_args`, `param_sysfs_builtin` in kernel/params.c). An entry can therefore be
removed; but `obsolete_checksetup` reads the first entry of `.init.setup` without a check that there is one.

Lifting makes one node of each input section. [`cut`] makes one of each entry.
*/

use std::fmt;

use goblin::elf::sym::{STT_FILE, STT_SECTION};
use rustc_hash::FxHashMap;

use crate::graph::{Editor, Graph, Ref, SymbolPlace, Target};
use crate::index::{NodeId, SymbolId};

/// The section of `early_param` and `__setup`.
pub const SETUP_SECTION: &str = ".init.setup";
/// The section of `core_param` and `module_param`.
pub const PARAM_SECTION: &str = "__param";

/// Write permissions for a file of sysfs: the bits 0222 of its mode.
const WRITABLE: u16 = 0o222;

/// An entry of a table of boot parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The node of the entry.
    pub node: NodeId,
    /// The text that words of the command line are compared with.
    pub name: String,
    /// The rest of the entry.
    pub kind: ParameterKind,
}

/// The contents of an entry of a table of boot parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum ParameterKind {
    /// An `early_param` or `__setup`.
    Handler {
        /// Whether it is an `early_param`: called before the others, for a word with exactly this name. A `__setup` is
        /// called for every word with this prefix that no other parameter has consumed.
        early: bool,
        /// The handler; `None` for a parameter that the kernel ignores.
        handler: Option<Place>,
    },
    /// A `core_param` or `module_param`.
    Variable {
        /// The operations: `param_ops_int`.
        operations: Option<Place>,
        /// The argument of the operations: the variable, or a description of it.
        variable: Option<Place>,
        /// The mode of its file in `/sys/module/*/parameters`; 0 if there is none.
        mode: u16,
        /// The time of parsing: -1 before initcalls, else with the initcalls of this level.
        level: i8,
        /// `KERNEL_PARAM_FL_*`: 1 if setting it taints the kernel, 2 if lockdown forbids it.
        flags: u8,
    },
}

/// A place in the program to which an entry refers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The human-readable name: the symbol or the function there.
    pub name: String,
    /// The node, and the offset in bytes in it; `None` if it is not part of the program.
    pub node: Option<(NodeId, u32)>,
}

impl Parameter {
    /// Whether its file in sysfs can be written to.
    pub fn is_writable(&self) -> bool {
        matches!(self.kind, ParameterKind::Variable { mode, .. } if mode & WRITABLE != 0)
    }

    /// Whether it has a file in sysfs.
    pub fn is_visible(&self) -> bool {
        matches!(self.kind, ParameterKind::Variable { mode, .. } if mode != 0)
    }

    /// Returns the name of the macro that makes such an entry.
    pub fn table(&self) -> &'static str {
        match self.kind {
            ParameterKind::Handler { early: true, .. } => "early",
            ParameterKind::Handler { early: false, .. } => "setup",
            ParameterKind::Variable { .. } if self.name.contains('.') => "module",
            ParameterKind::Variable { .. } => "core",
        }
    }
}

/// The offsets of the fields, in bytes from the start of an entry.
struct Layout {
    setup_size: u32,
    param_size: u32,
    word: u32,
}

impl Layout {
    fn of(graph: &Graph) -> Layout {
        let word = u32::from(graph.machine.word_size());
        // struct obs_kernel_param: two pointers, an int. struct kernel_param: three pointers, u16, s8, u8, a pointer.
        Layout { setup_size: 3 * word, param_size: (4 * word + 4).next_multiple_of(word), word }
    }

    /// Returns the size of an entry of a table, by the name of its section; `None` for other sections.
    fn size(&self, section: &str) -> Option<u32> {
        match section {
            SETUP_SECTION => Some(self.setup_size),
            PARAM_SECTION => Some(self.param_size),
            _ => None,
        }
    }
}

/// Splits the tables into their entries. A section that does not consist of whole entries is kept as it is, and has no
/// [`Parameter`]s.
pub fn cut(graph: &mut Graph, pass: &'static str) {
    let layout = Layout::of(graph);
    let mut pieces: Vec<(NodeId, Vec<(u32, u32)>)> = Vec::new();
    for section in &graph.sections {
        let Some(entry) = layout.size(&section.name) else { continue };
        for &node in section.nodes.iter().filter(|&&node| graph.node(node).live) {
            let size = graph.node(node).size;
            if size > entry && size % entry == 0 {
                let starts = (entry..size).step_by(entry as usize);
                pieces.push((node, starts.map(|at| (at, layout.word)).collect()));
            }
        }
    }
    if pieces.is_empty() {
        return;
    }
    let mut editor = Editor::new(graph, pass);
    for (node, cuts) in &pieces {
        editor.split_data(*node, cuts);
    }
    editor.finish();
}

/// Returns the live entries with a known layout, in the order of the tables, after [`cut`].
pub fn all(graph: &Graph) -> Vec<Parameter> {
    let layout = Layout::of(graph);
    let names = Names::of(graph);
    let mut found = Vec::new();
    for section in &graph.sections {
        let Some(entry) = layout.size(&section.name) else { continue };
        let nodes = section.nodes.iter().copied();
        for node in nodes.filter(|&node| graph.node(node).live && graph.node(node).size == entry) {
            found.extend(read(graph, &names, &layout, &section.name, node));
        }
    }
    found
}

fn read(graph: &Graph, names: &Names, layout: &Layout, section: &str, node: NodeId) -> Option<Parameter> {
    let bytes = graph.bytes_of(node);
    let word = layout.word;
    let field = |offset: u32| graph.refs_of(node).iter().find(|reference| reference.offset == offset);
    let place = |offset: u32| field(offset).map(|reference| names.place(graph, reference));
    let name = string(graph, field(0)?)?;
    let kind = if section == SETUP_SECTION {
        let early = bytes.get(2 * word as usize..)?.iter().take(4).any(|&byte| byte != 0);
        ParameterKind::Handler { early, handler: place(word) }
    } else {
        let at = 3 * word as usize;
        let &[low, high, level, flags] = bytes.get(at..at + 4)? else { return None };
        ParameterKind::Variable {
            operations: place(2 * word),
            variable: place((3 * word + 4).next_multiple_of(word)),
            mode: u16::from_le_bytes([low, high]),
            level: level as i8,
            flags,
        }
    };
    Some(Parameter { node, name, kind })
}

/// Returns the string that a reference is to; `None` if there is none, or it is not UTF-8.
pub fn string(graph: &Graph, reference: &Ref) -> Option<String> {
    let (node, offset) = graph.resolve(reference.target)?;
    let start = usize::try_from(i64::from(offset) + reference.addend).ok()?;
    let bytes = graph.bytes_of(node).get(start..)?;
    let end = bytes.iter().position(|&byte| byte == 0)?;
    String::from_utf8(bytes[..end].to_vec()).ok()
}

/// The symbol at each place of a graph.
pub struct Names {
    by_place: FxHashMap<(NodeId, u32), SymbolId>,
}

impl Names {
    /// Collects the names of a graph.
    pub fn of(graph: &Graph) -> Names {
        let mut by_place: FxHashMap<(NodeId, u32), SymbolId> = FxHashMap::default();
        for (id, symbol) in graph.symbols.iter_enumerated() {
            if let SymbolPlace::Node(node, offset) = symbol.place
                && !matches!(symbol.kind, STT_SECTION | STT_FILE)
                && !symbol.name.is_empty()
            {
                // An empty variable may be directly before another one.
                let first = by_place.entry((node, offset)).or_insert(id);
                if graph.symbols[*first].size == 0 && symbol.size > 0 {
                    *first = id;
                }
            }
        }
        Names { by_place }
    }

    /// Returns the symbol at a place.
    pub fn symbol(&self, node: NodeId, offset: u32) -> Option<SymbolId> {
        self.by_place.get(&(node, offset)).copied()
    }

    /// Returns the place that a reference is to.
    pub fn place(&self, graph: &Graph, reference: &Ref) -> Place {
        let resolved = graph.resolve(reference.target).and_then(|(node, offset)| {
            Some((node, u32::try_from(i64::from(offset) + reference.addend).ok()?))
        });
        let name = match (resolved, reference.target) {
            (Some((node, offset)), _) => self.name(graph, node, offset),
            (None, Target::Symbol(symbol)) => graph.symbols[symbol].name.clone(),
            (None, Target::Node(node)) => graph.name_of(node),
        };
        Place { name, node: resolved }
    }

    /// Returns the name of a place: its symbol, or its node with an offset.
    pub fn name(&self, graph: &Graph, node: NodeId, offset: u32) -> String {
        match (self.symbol(node, offset), offset) {
            (Some(symbol), _) => graph.symbols[symbol].name.clone(),
            (None, 0) => graph.name_of(node),
            (None, _) => format!("{}+{offset:#x}", graph.name_of(node)),
        }
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.table())
    }
}
