//! The reports of passes.

use std::fmt;

use indexmap::IndexMap;
use serde::Serialize;

use kcfg::graph::{Graph, NodeKind};
use kcfg::index::NodeId;

/// The report of one pass.
#[derive(Clone, Debug, Serialize)]
pub struct PassReport {
    /// Its name.
    pub pass: &'static str,
    /// What it removed from the program.
    pub removed: Removed,
    /// Branches, calls and references that it redirected.
    pub redirected: usize,
    /// Other counts.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub counts: IndexMap<&'static str, u64>,
    /// What of this it did in each round, of a pass that runs in rounds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<Round>,
    /// What it did not change, although it should have, and why.
    pub kept: Vec<Kept>,
}

/// What a pass did in one round.
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
    /// Functions of which nothing is left.
    pub functions: usize,
    /// Basic blocks.
    pub blocks: usize,
    /// Bytes of code, in blocks and chunks, without the branches that lowering encodes.
    pub code_bytes: u64,
    /// Chunks of data, entries of weak tables among them.
    pub data_chunks: usize,
    /// Bytes of data, zero-initialised data included.
    pub data_bytes: u64,
}

/// Something that was kept, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// What.
    pub what: String,
    /// Why.
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

    /// Whether the pass changed the graph so that another one may find more to do.
    pub fn changed(&self) -> bool {
        self.removed != Removed::default() || self.redirected > 0
    }

    /// Adds what the pass did in a later round. The kept things are those of the later round only.
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

    /// Whether the pass counted anything besides what it removed and redirected.
    pub fn counted(&self) -> bool {
        self.counts.values().any(|&number| number > 0)
    }

    /// Adds to a number.
    pub fn count(&mut self, what: &'static str, number: u64) {
        *self.counts.entry(what).or_default() += number;
    }

    /// Adds something that was kept.
    pub fn keep(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.kept.push(Kept { what: what.into(), why: why.into() });
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
        let node = &mut graph.nodes[id.get()];
        node.live = false;
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
