//! Copies of one path for many facts, which a running kernel can load.

use std::collections::BTreeMap;

use kcfg::graph::{Graph, Target};
use kcfg::index::{FunctionId, NodeId};
use kplan::{Path, Plan};

use super::emit::loadable::Loadable;
use super::known::Known;

/// Makes copies of a path for different facts, each as code that a running kernel can load.
pub struct Loader<'g> {
    known: Known<'g>,
    entry: NodeId,
    targets: BTreeMap<FunctionId, NodeId>,
}

impl<'g> Loader<'g> {
    /// Splits blocks of a graph for a path. Has to be called before [`Loader::new`].
    ///
    /// # Errors
    /// If a function that the path names does not exist, or is not unique.
    pub fn prepare(graph: &mut Graph, path: &Path) -> Result<(), String> {
        let targets = super::targets(graph, path)?;
        super::separate(graph, &targets);
        Ok(())
    }

    /// Analyses the graph, with the traces of a plan.
    ///
    /// # Errors
    /// The reason why the path cannot be copied.
    pub fn new(graph: &'g Graph, plan: &Plan, path: &Path) -> Result<Loader<'g>, String> {
        let (entry, targets) = (super::function(graph, &path.entry)?, super::targets(graph, path)?);
        Ok(Loader { known: Known::of(graph, plan)?, entry, targets })
    }

    /// Copies the path for its facts. Their values may differ from the values in [`Loader::new`].
    /// `address` returns the address of code or data in the running kernel.
    ///
    /// # Errors
    /// The reason why there is no copy.
    pub fn copy(&self, path: &Path, address: &dyn Fn(Target) -> Option<u64>) -> Result<Loadable, String> {
        let made = super::make(&self.known, path, self.entry, &self.targets)?;
        made.path.loadable(self.known.graph, address)
    }
}
