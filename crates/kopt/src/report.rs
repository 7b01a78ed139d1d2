//! The reports of passes.

use std::fmt;

use indexmap::IndexMap;
use serde::Serialize;

use kcfg::graph::{Graph, NodeKind};
use kcfg::index::NodeId;
use tracing::debug;

/// The report of one pass.
#[derive(Clone, Debug, Serialize)]
pub struct PassReport {
    /// Its name.
    pub pass: &'static str,
    /// The code and data that it removed.
    pub removed: Removed,
    /// Number of branches, calls and references that it redirected.
    pub redirected: usize,
    /// Other counts.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub counts: IndexMap<&'static str, u64>,
    /// Its figures for each round, if it runs in rounds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<Round>,
    /// The things that it could not change, with reasons.
    pub kept: Vec<Kept>,
}

/// The figures of a pass for one round.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// See [`PassReport::removed`].
    pub removed: Removed,
    /// See [`PassReport::redirected`].
    pub redirected: usize,
    /// See [`PassReport::counts`].
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub counts: IndexMap<&'static str, u64>,
}

/// Nodes that were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// Functions that were removed completely.
    pub functions: usize,
    /// Basic blocks.
    pub blocks: usize,
    /// Bytes of code, in blocks and chunks, without the branches that lowering encodes.
    pub code_bytes: u64,
    /// Chunks of data, including entries of weak tables.
    pub data_chunks: usize,
    /// Bytes of data, including zero-initialised data.
    pub data_bytes: u64,
}

/// Something that was kept, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Its name.
    pub what: String,
    /// The reason.
    pub why: String,
}

impl PassReport {
    /// An empty report.
    pub fn new(pass: &'static str) -> PassReport {
        PassReport {
            pass,
            removed: Removed::default(),
            redirected: 0,
            counts: IndexMap::new(),
            rounds: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// Whether the pass changed the graph in a way that may help another pass.
    pub fn changed(&self) -> bool {
        self.removed != Removed::default() || self.redirected > 0
    }

    /// Adds the report of a later round, whose list of kept things replaces the present one.
    pub fn add(&mut self, later: PassReport) {
        let round =
            Round { removed: later.removed, redirected: later.redirected, counts: later.counts.clone() };
        self.rounds.push(round);
        let (removed, more) = (&mut self.removed, later.removed);
        removed.functions += more.functions;
        removed.blocks += more.blocks;
        removed.code_bytes += more.code_bytes;
        removed.data_chunks += more.data_chunks;
        removed.data_bytes += more.data_bytes;
        self.redirected += later.redirected;
        for (what, number) in later.counts {
            self.count(what, number);
        }
        self.kept = later.kept;
    }

    /// Whether the pass has a count besides its removals and redirections.
    pub fn counted(&self) -> bool {
        self.counts.values().any(|&number| number > 0)
    }

    /// Adds to a count.
    pub fn count(&mut self, what: &'static str, number: u64) {
        *self.counts.entry(what).or_default() += number;
    }

    /// Adds something that was kept, and the reason.
    pub fn keep(&mut self, what: impl Into<String>, why: impl Into<String>) {
        let kept = Kept { what: what.into(), why: why.into() };
        debug!("{}: {kept}", self.pass);
        self.kept.push(kept);
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kept {}: {}", self.what, self.why)
    }
}

impl Removed {
    /// Removes a node from the graph and counts it.
    pub fn remove(&mut self, graph: &mut Graph, id: NodeId) {
        graph.remove(id);
        let node = graph.node(id);
        let bytes = u64::from(node.size);
        match &node.kind {
            NodeKind::Block(_) => {
                self.blocks += 1;
                self.code_bytes += bytes;
            }
            NodeKind::Chunk(chunk) if chunk.code => self.code_bytes += bytes,
            NodeKind::Chunk(_) => {
                self.data_chunks += 1;
                self.data_bytes += bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_told_one_by_one_and_together() {
        let mut all = PassReport::new("reach");
        for blocks in [3, 1] {
            let mut round = PassReport::new("reach");
            round.removed.blocks = blocks;
            round.count("branches", blocks as u64);
            all.add(round);
        }
        let rounds: Vec<(usize, u64)> =
            all.rounds.iter().map(|round| (round.removed.blocks, round.counts["branches"])).collect();
        assert_eq!((all.removed.blocks, all.counts["branches"], rounds), (4, 4, vec![(3, 3), (1, 1)]));
    }
}
