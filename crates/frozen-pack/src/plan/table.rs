//! The table of the frozen and pinned bytes, and of the cost of pinning.

use std::fmt;

use kcfg::graph::Graph;
use kcfg::index::NodeId;
use kcli::{Table, human};
use kopt::freeze::closure::Reason;
use kopt::freeze::select::{holds_frozen_code, holds_frozen_data, size};

use super::Plan;

/// Bytes of code and of read-only data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Bytes of code.
    pub code: u64,
    /// Bytes of read-only data.
    pub data: u64,
}

impl Bytes {
    fn add(&mut self, is_code: bool, bytes: u64) {
        *(if is_code { &mut self.code } else { &mut self.data }) += bytes;
    }
}

/// Sizes in the sections that may freeze in part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// All bytes.
    pub all: Bytes,
    /// Cold bytes.
    pub cold: Bytes,
    /// Pinned bytes by reason, and the cold bytes among them, which are the cost of pinning.
    pub pinned: Vec<(Reason, Bytes, Bytes)>,
    /// Cold bytes that only the user pins.
    pub by_user: Bytes,
    /// Bytes that freeze.
    pub frozen: Bytes,
    /// Bytes of them that are used while the kernel boots.
    pub at_boot: Bytes,
    /// Number of regions, with mechanism `stub`.
    pub regions: usize,
}

impl Summary {
    /// Counts the bytes that a plan freezes and pins.
    pub fn of(plan: &Plan<'_>) -> Summary {
        let graph = plan.graph;
        let mut summary = Summary {
            pinned: Reason::ALL.iter().map(|&reason| (reason, Bytes::default(), Bytes::default())).collect(),
            frozen: Bytes { code: plan.selection.code_bytes, data: plan.selection.data_bytes },
            regions: plan.selection.regions.len(),
            ..Summary::default()
        };
        let frozen = plan.selection.code.iter().chain(&plan.selection.data);
        for &node in frozen.filter(|&&node| plan.at_boot.contains(node)) {
            if let Some((is_code, bytes)) = weigh(graph, node) {
                summary.at_boot.add(is_code, bytes);
            }
        }
        for node in graph.node_ids().filter(|&node| graph.node(node).live) {
            let Some((is_code, bytes)) = weigh(graph, node) else { continue };
            let is_cold = plan.cold.nodes.contains(node);
            summary.all.add(is_code, bytes);
            if is_cold {
                summary.cold.add(is_code, bytes);
            }
            match plan.closure.reason(node) {
                Some(reason) => {
                    let of_reason = summary.pinned.iter_mut().find(|row| row.0 == reason);
                    let (_, pinned, cost) = of_reason.expect("every reason has a row");
                    pinned.add(is_code, bytes);
                    if is_cold {
                        cost.add(is_code, bytes);
                    }
                }
                None if is_cold && plan.pinned.contains(node) => summary.by_user.add(is_code, bytes),
                None => {}
            }
        }
        summary
    }
}

/// Returns whether a node is code, and its bytes, if its section may freeze.
fn weigh(graph: &Graph, node: NodeId) -> Option<(bool, u64)> {
    let section = graph.section_of(node);
    let is_code = holds_frozen_code(graph, section);
    (is_code || holds_frozen_data(graph, section)).then(|| (is_code, size(graph, node)))
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |part: u64, all: u64| match all {
            0 => String::new(),
            _ => format!("{:.1} %", 100.0 * part as f64 / all as f64),
        };
        let all = self.all;
        let mut table = Table::new(["bytes", "code", "", "data", ""]);
        let mut row = |label: String, bytes: Bytes| {
            table.row([
                label,
                human(bytes.code),
                share(bytes.code, all.code),
                human(bytes.data),
                share(bytes.data, all.data),
            ]);
        };
        row("all".to_owned(), all);
        row("cold".to_owned(), self.cold);
        let mut sums = (Bytes::default(), Bytes::default());
        for (_, pinned, cost) in &self.pinned {
            for (sum, part) in [(&mut sums.0, pinned), (&mut sums.1, cost)] {
                sum.code += part.code;
                sum.data += part.data;
            }
        }
        row("pinned".to_owned(), sums.0);
        for &(reason, pinned, _) in &self.pinned {
            row(format!("  {reason}"), pinned);
        }
        row("cold, but pinned".to_owned(), sums.1);
        for &(reason, _, cost) in &self.pinned {
            row(format!("  {reason}"), cost);
        }
        row("cold, but pinned by --pin".to_owned(), self.by_user);
        row("frozen".to_owned(), self.frozen);
        if self.at_boot != Bytes::default() {
            row("  used while the kernel boots".to_owned(), self.at_boot);
        }
        table.fmt(f)?;
        match self.regions {
            0 => Ok(()),
            regions => writeln!(f, "{} regions", human(regions as u64)),
        }
    }
}
