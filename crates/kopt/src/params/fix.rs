/*!
Variables that are fixed to a value.

This is the paper's test of mutability (end of section 3.3) on the graph. A variable is fixed if every live reference
to it is a plain read by an instruction, not counting entries that are removed. So nothing writes to it, and nothing
holds its address: no sysctl table entry, no sysfs file. The variable has to be a node of its own. Otherwise a
reference to its neighbours might mean it.

A writer that only a removed parameter needs disappears in pass `reach`. Such a variable is fixed in a later round.
*/

use goblin::elf::section_header::{SHT_NOBITS, SHT_PROGBITS};
use goblin::elf::sym::STB_LOCAL;
use kcfg::graph::{Editor, Graph, Section, SymbolPlace};
use kcfg::index::NodeId;
use kcfg::parameters::{Parameter, ParameterKind};
use kplan::{FixedVariable, Params};
use rustc_hash::FxHashSet;

use super::records::PASS;
use crate::report::PassReport;
use crate::uses::{How, Uses};

/// A variable that can be fixed.
pub struct Fixed<'p> {
    /// The plan's entry.
    pub what: &'p FixedVariable,
    /// The variable.
    pub node: NodeId,
}

/// Whether a variable is fixed to the value that a word of the command line gives to this parameter.
pub fn sets(fixed: &FixedVariable, parameter: &Parameter) -> bool {
    fixed.parameter.as_ref().is_some_and(|word| word.name == parameter.name)
}

/// Returns the variables of the plan that can be fixed and are not yet, and reports the reasons for the others. Entries
/// that set these variables are added to `gone`.
pub fn fixed<'p>(
    graph: &Graph,
    uses: &Uses<'_>,
    params: &'p Params,
    all: &[Parameter],
    gone: &mut FxHashSet<NodeId>,
    report: &mut PassReport,
) -> Vec<Fixed<'p>> {
    let mut found = Vec::new();
    for what in &params.fixed {
        let entries: Vec<&Parameter> = all.iter().filter(|parameter| sets(what, parameter)).collect();
        match node(graph, what).and_then(|node| check(graph, uses, what, node, &entries, gone)) {
            Ok(node) => {
                gone.extend(entries.iter().map(|entry| entry.node));
                let is_new = !entries.is_empty() || !has_value(graph, node, what);
                found.extend(is_new.then_some(Fixed { what, node }));
            }
            Err(why) => report.keep(format!("variable {}", what.variable), why),
        }
    }
    found
}

/// Returns the node of the variable.
fn node(graph: &Graph, what: &FixedVariable) -> Result<NodeId, String> {
    let is_meant = |symbol: &&kcfg::graph::Symbol| {
        symbol.name == what.variable
            && match &what.file {
                Some(file) => symbol.binding == STB_LOCAL && symbol.file.as_deref() == Some(file),
                None => symbol.binding != STB_LOCAL,
            }
    };
    let mut symbols = graph.symbols().iter().filter(is_meant);
    let (Some(symbol), None) = (symbols.next(), symbols.next()) else {
        return Err("the program does not define exactly one such symbol".to_owned());
    };
    let SymbolPlace::Node(node, offset) = symbol.place else {
        return Err("the program does not define it".to_owned());
    };
    if !graph.node(node).live {
        return Err("it was removed, because nothing uses it".to_owned());
    }
    if offset != 0
        || graph.node(node).size != u32::from(what.size)
        || graph.chunk(node).is_none_or(|c| c.code)
    {
        return Err(format!(
            "it is not a separate variable of {} bytes: its section could not be cut there",
            what.size
        ));
    }
    Ok(node)
}

/// Checks that nothing changes the variable, except entries that are removed.
fn check(
    graph: &Graph,
    uses: &Uses<'_>,
    what: &FixedVariable,
    node: NodeId,
    entries: &[&Parameter],
    gone: &FxHashSet<NodeId>,
) -> Result<NodeId, String> {
    let is_own = |from: NodeId| gone.contains(&from) || entries.iter().any(|entry| entry.node == from);
    for entry in entries {
        let ParameterKind::Variable { variable: Some(place), mode, .. } = &entry.kind else {
            return Err(format!("parameter {entry} does not set a variable"));
        };
        if place.node != Some((node, 0)) {
            return Err(format!("parameter {entry} sets another variable, {}", place.name));
        }
        if entry.is_writable() && !what.forced {
            return Err(format!("its file in sysfs can be written to (mode {mode:04o})"));
        }
    }
    let is_glued = graph.node(node).glued_to.is_some()
        || graph.section_of(node).nodes.iter().any(|&other| graph.node(other).glued_to == Some(node));
    if is_glued && graph.section_of(node).kind == SHT_NOBITS {
        return Err("it cannot be moved out of its zero-initialized section".to_owned());
    }
    let others = uses.of_node(node).into_iter().filter(|one| one.how != How::Reads && !is_own(one.from));
    for one in others.filter(|_| !what.forced) {
        let from = graph.name_of(one.from);
        return Err(match one.how {
            How::Writes => format!("{from} writes to it"),
            How::TakesAddress => format!("{from} takes its address"),
            How::HoldsAddress => format!("{from} holds its address"),
            How::Reads => continue,
        });
    }
    Ok(node)
}

/// The bytes of the value.
fn bytes(what: &FixedVariable) -> Vec<u8> {
    what.value.to_le_bytes()[..usize::from(what.size)].to_vec()
}

fn has_value(graph: &Graph, node: NodeId, what: &FixedVariable) -> bool {
    let bytes = bytes(what);
    match graph.bytes_of(node) {
        [] => bytes.iter().all(|&byte| byte == 0),
        present => present == bytes,
    }
}

/// Sets variables to their values. A zero-initialized variable with a nonzero value moves to data with bytes.
pub fn set(graph: &mut Graph, fixed: &[Fixed<'_>], report: &mut PassReport) {
    let changed: Vec<&Fixed<'_>> =
        fixed.iter().filter(|fixed| !has_value(graph, fixed.node, fixed.what)).collect();
    report.count("variables set to the value that they are fixed to", changed.len() as u64);
    let mut editor = Editor::new(graph, PASS);
    for fixed in changed {
        if editor.graph().section_of(fixed.node).kind == SHT_NOBITS {
            let section = editor.add_section(Section::writable(".data", SHT_PROGBITS));
            editor.place(&[fixed.node], section);
        }
        editor.set_data(fixed.node, bytes(fixed.what));
    }
    editor.finish();
}
