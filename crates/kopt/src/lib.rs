/*!
The passes of kshrink.

A pass is one file and one function, from a graph and a plan to a changed graph and a report of what it did.
Passes are free functions called in the order that the user gives ([`Pass::ALL`] lists them) and know nothing of ELF.
What they cannot prove to be removable they keep, and list in [`PassReport::kept`].
*/

pub mod assumptions;
pub mod exercise;
pub mod explain;
pub mod exports;
pub mod freeze;
pub mod instrument;
pub mod layout;
pub mod names;
pub mod reach;
pub mod report;
pub mod rounds;
pub mod syscalls;

use std::fmt;
use std::str::FromStr;

use kcfg::graph::Graph;
use kplan::Plan;

pub use assumptions::Assumption;
pub use report::{Kept, PassReport, Removed};

/// A pass by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// [`exports`]
    Exports,
    /// [`syscalls`]
    Syscalls,
    /// [`reach`]
    Reach,
    /// [`layout`](mod@layout)
    Layout,
    /// [`instrument`]
    Instrument,
    /// [`exercise`]
    Exercise,
    /// [`freeze`]
    Freeze,
}

/// What passes are told besides the plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Assume that the plan lists every system call, although it says that it is incomplete.
    pub assume_complete: bool,
    /// Check the invariants of the graph after every step ([`Graph::verify`]).
    pub verify: bool,
}

impl Pass {
    /// Every pass, in the order in which they are useful.
    pub const ALL: &[Pass] = &[
        Pass::Exports,
        Pass::Syscalls,
        Pass::Reach,
        Pass::Instrument,
        Pass::Exercise,
        Pass::Freeze,
        Pass::Layout,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Pass::Exports => "exports",
            Pass::Syscalls => "syscalls",
            Pass::Reach => "reach",
            Pass::Layout => "layout",
            Pass::Instrument => "instrument",
            Pass::Exercise => "exercise",
            Pass::Freeze => "freeze",
        }
    }

    /// Whether it removes code or data, or references to them.
    pub fn removes(self) -> bool {
        match self {
            Pass::Exports | Pass::Syscalls | Pass::Reach => true,
            Pass::Instrument | Pass::Exercise | Pass::Freeze | Pass::Layout => false,
        }
    }

    /// Runs it.
    pub fn run(self, graph: &mut Graph, plan: &Plan, options: Options) -> PassReport {
        match self {
            Pass::Exports => exports::run(graph, plan),
            Pass::Syscalls => syscalls::run(graph, plan, options),
            Pass::Reach => reach::run(graph),
            Pass::Layout => layout::run(graph, plan),
            Pass::Instrument => instrument::run(graph),
            Pass::Exercise => exercise::run(graph),
            Pass::Freeze => freeze::run(graph, plan),
        }
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Pass {
    type Err = String;

    fn from_str(name: &str) -> Result<Pass, String> {
        Pass::ALL.iter().copied().find(|pass| pass.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Pass::ALL.iter().map(|pass| pass.name()).collect();
            format!("there is no pass `{name}`; expected `none` or a list of {}", names.join(", "))
        })
    }
}
