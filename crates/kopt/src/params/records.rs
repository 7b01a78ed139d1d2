/*!
Records for the check of the command line: one for each parameter that was removed or fixed.

The check (`kshrink-spec`'s `runtime/cmdline.c`) is an object of the program that refers to [`CHECK_SYMBOL`] without
defining it. This pass defines it as a sequence of records with a 0 byte after the last. A record is a letter and a
name. A record with [`FIXED`] also has the text after the name in a word of the command line (`=5`, or nothing). Each
string ends with a 0 byte.
*/

use goblin::elf::section_header::SHT_PROGBITS;
use goblin::elf::sym::STT_OBJECT;
use kcfg::graph::{Contents, Editor, Graph, Provenance, Section, SymbolPlace};
use kcfg::index::SymbolId;
use kcfg::parameters::{Parameter, ParameterKind};
use kplan::FixedVariable;

/// The name of the pass, which marks its records.
pub const PASS: &str = "params";

/// The symbol by which the check finds the records.
pub const CHECK_SYMBOL: &str = "kshrink_parameters";

/// The section of the records: data that is freed once the kernel has started. The check marks records in it.
const SECTION: &str = ".init.data";

/// A removed parameter that accepted words with exactly this name.
const EXACT: u8 = b'e';
/// A removed `__setup`, which accepted words with this prefix.
const PREFIX: u8 = b'p';
/// A parameter that sets a fixed variable.
const FIXED: u8 = b'f';

/// One encoded record.
pub type Record = Vec<u8>;

/// The record of a removed parameter.
pub fn removed(parameter: &Parameter) -> Record {
    let kind = match parameter.kind {
        ParameterKind::Handler { early: false, .. } => PREFIX,
        _ => EXACT,
    };
    [&[kind], parameter.name.as_bytes(), &[0]].concat()
}

/// The record of a fixed variable; `None` if no parameter sets it.
pub fn fixed(variable: &FixedVariable) -> Option<Record> {
    let word = variable.parameter.as_ref()?;
    let value = word.value.as_ref().map_or_else(String::new, |value| format!("={value}"));
    Some([&[FIXED], word.name.as_bytes(), &[0], value.as_bytes(), &[0]].concat())
}

/// Whether the program has the check, and this pass can write its records: the symbol is undefined, or this pass
/// defined it earlier.
pub fn can_be_written(graph: &Graph) -> bool {
    symbol(graph).is_some_and(|symbol| match graph.symbols()[symbol].place {
        SymbolPlace::Undefined => true,
        SymbolPlace::Node(node, _) => graph.node(node).provenance == Provenance::Made(PASS),
        SymbolPlace::Common(_) | SymbolPlace::Absolute(_) => false,
    })
}

/// Appends records to the existing ones.
pub fn write(graph: &mut Graph, added: Vec<Record>) {
    let Some(symbol) = symbol(graph) else { return };
    let old = match graph.symbols()[symbol].place {
        SymbolPlace::Node(node, _) => Some(node),
        _ => None,
    };
    if old.is_some() && added.is_empty() {
        return;
    }
    let mut bytes = old.map_or_else(Vec::new, |old| graph.bytes_of(old).to_vec());
    bytes.pop();
    bytes.extend(added.concat());
    bytes.push(0);
    let size = bytes.len() as u64;
    let mut editor = Editor::new(graph, PASS);
    let section = match old {
        Some(old) => editor.graph().node(old).section,
        None => editor.add_section(Section::writable(SECTION, SHT_PROGBITS)),
    };
    let node = editor.add_data(section, Contents { bytes, refs: Vec::new() }, 1);
    editor.define_symbol(symbol, node, STT_OBJECT, size);
    editor.finish();
    old.into_iter().for_each(|old| graph.remove(old));
}

fn symbol(graph: &Graph) -> Option<SymbolId> {
    graph.symbols().position(|symbol| symbol.name == CHECK_SYMBOL)
}
