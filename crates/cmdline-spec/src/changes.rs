//! Ways in which a variable may change while the kernel runs.

use std::fmt;

use kcfg::graph::{Graph, Ref};
use kcfg::index::NodeId;
use kcfg::parameters::{self, Names, Parameter, ParameterKind};
use kopt::uses::{How, Use, Uses};
use serde::Serialize;

/// One way in which a variable may change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// A writable file of sysfs, with its mode in octal.
    Sysfs(String),
    /// A file below `/proc/sys`, by its name.
    Sysctl(String),
    /// A store by this function.
    Store(String),
    /// Its address is taken by code of this function, or held by data of this name.
    Address(String),
}

impl Change {
    /// Returns the kind of change, as one word.
    pub fn way(&self) -> &'static str {
        match self {
            Change::Sysfs(_) => "sysfs",
            Change::Sysctl(_) => "sysctl",
            Change::Store(_) => "store",
            Change::Address(_) => "address",
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Sysfs(mode) => write!(f, "sysfs {mode}"),
            Change::Sysctl(name) => write!(f, "sysctl {name}"),
            Change::Store(function) => write!(f, "store in {function}"),
            Change::Address(holder) => write!(f, "address in {holder}"),
        }
    }
}

/// The uses and names in a graph.
pub struct Changes<'g> {
    graph: &'g Graph,
    uses: Uses<'g>,
    names: Names,
}

impl<'g> Changes<'g> {
    /// Collects the uses and names in a graph.
    pub fn of(graph: &'g Graph) -> Changes<'g> {
        Changes { graph, uses: Uses::of(graph), names: Names::of(graph) }
    }

    /// The names of places.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Returns the ways in which the variable of a parameter may change, besides the one assignment through its entry
    /// in the table. For a handler, considers the variables that its function stores to.
    pub fn of_parameter(&self, parameter: &Parameter) -> Vec<Change> {
        match &parameter.kind {
            ParameterKind::Variable { variable, mode, .. } => {
                let mut all = Vec::new();
                if parameter.is_writable() {
                    all.push(Change::Sysfs(format!("{mode:04o}")));
                }
                if let Some((node, offset)) = variable.as_ref().and_then(|place| place.node) {
                    all.extend(self.of_variable(node, offset, |from| from == parameter.node));
                }
                all
            }
            ParameterKind::Handler { .. } => {
                let own = self.function(parameter);
                let is_own = |from: NodeId| own.is_some() && self.graph.function_of(from) == own;
                let variables = self.written_by(parameter);
                let mut all: Vec<Change> = variables
                    .iter()
                    .flat_map(|&(node, offset)| self.of_variable(node, offset, is_own))
                    .collect();
                all.sort_unstable();
                all.dedup();
                all
            }
        }
    }

    /// Returns the ways in which a variable may change, except through the nodes `is_own`. If the variable is not a
    /// node of its own, only references to its bytes are known.
    pub fn of_variable(&self, node: NodeId, offset: u32, is_own: impl Fn(NodeId) -> bool) -> Vec<Change> {
        let size = self.names.symbol(node, offset).map_or(0, |symbol| self.graph.symbols()[symbol].size);
        let (is_whole, start) = (u64::from(self.graph.node(node).size) == size, i64::from(offset));
        let bytes = start..start + size as i64;
        let uses = self.uses.of_node(node).into_iter();
        let uses = uses.filter(|one| !is_own(one.from) && (is_whole || bytes.contains(&one.at)));
        let mut all: Vec<Change> = uses.filter_map(|one| self.change(&one)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the variables that the handler of a parameter stores to: nodes and byte offsets.
    pub fn written_by(&self, parameter: &Parameter) -> Vec<(NodeId, u32)> {
        let Some(function) = self.function(parameter) else { return Vec::new() };
        let mut written = Vec::new();
        for &block in &self.graph.function(function).blocks {
            if !self.graph.node(block).live {
                continue;
            }
            for reference in self.graph.refs_of(block) {
                if let Some((node, offset)) = self.stored_to(block, reference) {
                    written.push((node, offset));
                }
            }
        }
        written.sort_unstable();
        written.dedup();
        written
    }

    fn function(&self, parameter: &Parameter) -> Option<kcfg::index::FunctionId> {
        let ParameterKind::Handler { handler, .. } = &parameter.kind else { return None };
        self.graph.function_of(handler.as_ref()?.node?.0)
    }

    fn stored_to(&self, block: NodeId, reference: &Ref) -> Option<(NodeId, u32)> {
        let (node, offset) = self.graph.resolve(reference.target)?;
        let at = u32::try_from(i64::from(offset) + reference.addend).ok()?;
        self.graph.chunk(node).filter(|chunk| !chunk.code)?;
        let how = self.uses.of_reference(block, reference);
        (how == How::Writes && self.names.symbol(node, at).is_some()).then_some((node, at))
    }

    fn change(&self, one: &Use) -> Option<Change> {
        let holder = || match self.graph.function_of(one.from) {
            Some(function) => self.graph.function(function).name.clone(),
            None => self.names.name(self.graph, one.from, 0),
        };
        match one.how {
            How::Reads => None,
            How::Writes => Some(Change::Store(holder())),
            How::TakesAddress => Some(Change::Address(holder())),
            How::HoldsAddress => match self.sysctl(one) {
                Some(name) => Some(Change::Sysctl(name)),
                None => Some(Change::Address(holder())),
            },
        }
    }

    /// Returns the name of the sysctl table entry that contains an address. `struct ctl_table` (include/linux/sysctl.h)
    /// begins with the name and the address of the variable, and has a handler with the prefix `proc_` within the next
    /// four words.
    fn sysctl(&self, one: &Use) -> Option<String> {
        let word = u32::from(self.graph.machine().word_size());
        let refs = self.graph.refs_of(one.from);
        let name = refs.iter().find(|reference| reference.offset + word == one.offset)?;
        let is_handler = |reference: &&Ref| {
            let behind = reference.offset.saturating_sub(one.offset);
            (word..=4 * word).contains(&behind)
                && self.names.place(self.graph, reference).name.starts_with("proc_")
        };
        refs.iter().find(is_handler)?;
        parameters::string(self.graph, name)
    }
}
