/*!
The passes of kshrink.

A pass is a module and one function of it, from a graph and a plan to a changed graph and a report of what it did.
Passes are free functions called in the order that the user gives ([`Pass::ALL`] lists them) and know nothing of ELF.
What they cannot prove to be removable they keep, and list in [`PassReport::kept`].
*/

pub mod assumptions;
pub mod exercise;
pub mod explain;
pub mod exports;
pub mod fold;
pub mod freeze;
pub mod icf;
mod identical;
pub mod initmotion;
pub mod instrument;
pub mod keys;
pub mod layout;
pub mod merge;
pub mod names;
mod near;
pub mod params;
mod ran;
pub mod reach;
pub mod report;
pub mod retained;
pub mod rounds;
mod switches;
pub mod sysargs;
pub mod syscalls;
pub mod unwinding;
pub mod uses;

use std::fmt;
use std::str::FromStr;

use kcfg::graph::Graph;
use kelf::Machine;
use kflow::Remembered;
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
    /// [`sysargs`]
    SysArgs,
    /// [`params`]
    Params,
    /// [`keys`]
    Keys,
    /// [`reach`]
    Reach,
    /// [`icf`]
    Icf,
    /// [`initmotion`]
    InitMotion,
    /// [`merge`]
    Merge,
    /// [`fold`]
    Fold,
    /// [`layout`](mod@layout)
    Layout,
    /// [`instrument`]
    Instrument,
    /// [`exercise`]
    Exercise,
    /// [`freeze`]
    Freeze,
}

/// What is fixed about a pass.
struct Facts {
    name: &'static str,
    summary: &'static str,
    removes: bool,
    runs: Runs,
}

/// When a pass runs if nobody says which passes to run.
enum Runs {
    Always,
    WithPlan(fn(&Plan) -> bool),
    IfNamed,
}

/// The options of passes besides the plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Assume that the plan lists every system call, although it says that it is incomplete.
    pub assume_complete: bool,
    /// Check the invariants of the graph after every step ([`Graph::verify`]).
    pub verify: bool,
    /// Which identical blocks pass `merge` may merge.
    pub merge: Scope,
    /// What is to be made small.
    pub optimize_for: OptimizeFor,
}

/// Which code a pass may make slower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// What did not run in the traces of the plan; nothing if it has none.
    #[default]
    Cold,
    /// All.
    All,
}

/// What is to be made small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OptimizeFor {
    /// The memory that code and data take.
    #[default]
    Memory,
    /// The compressed image.
    Image,
}

impl Pass {
    /// Every pass, in the order in which they are useful.
    pub const ALL: &[Pass] = &[
        Pass::Exports,
        Pass::Syscalls,
        Pass::SysArgs,
        Pass::Params,
        Pass::Keys,
        Pass::Reach,
        Pass::Fold,
        Pass::Icf,
        Pass::InitMotion,
        Pass::Merge,
        Pass::Instrument,
        Pass::Exercise,
        Pass::Freeze,
        Pass::Layout,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// What it does, in one sentence without its name in front and without a full stop.
    pub fn summary(self) -> &'static str {
        self.facts().summary
    }

    /// Whether it removes code or data, or references to them.
    pub fn removes(self) -> bool {
        self.facts().removes
    }

    /// Whether it knows code of a machine.
    pub fn knows(self, machine: Machine) -> bool {
        match machine {
            Machine::I386 | Machine::Arm => true,
            Machine::X86_64 | Machine::Aarch64 => matches!(self, Pass::Syscalls | Pass::Reach),
        }
    }

    /// Whether it runs by default and supports the machine.
    pub fn runs_by_default(self, plan: &Plan) -> bool {
        match self.facts().runs {
            Runs::Always => true,
            Runs::WithPlan(asked_for) => asked_for(plan),
            Runs::IfNamed => false,
        }
    }

    fn facts(self) -> Facts {
        let facts = |name, summary, removes, runs| Facts { name, summary, removes, runs };
        match self {
            Pass::Exports => facts(
                "exports",
                "removes the exports that no module of --modules uses",
                true,
                Runs::WithPlan(|plan| plan.exports.is_some()),
            ),
            Pass::Syscalls => {
                facts("syscalls", "redirects the system calls that no program makes", true, Runs::Always)
            }
            Pass::SysArgs => facts(
                "sysargs",
                "refuses operations of system calls that no program asks for, so that `fold` removes them",
                true,
                Runs::WithPlan(|plan| plan.syscalls.is_some()),
            ),
            Pass::Params => facts(
                "params",
                "removes the boot parameters that the command line does not name, and sets variables that `cmdline-spec` fixed",
                true,
                Runs::WithPlan(|plan| plan.params.is_some()),
            ),
            Pass::Keys => facts(
                "keys",
                "settles static keys and static calls that nothing switches",
                true,
                Runs::Always,
            ),
            Pass::Reach => facts("reach", "removes what nothing reaches", true, Runs::Always),
            Pass::Fold => facts(
                "fold",
                "decides branches on constants of the whole program, and removes instructions whose results nobody needs",
                true,
                Runs::Always,
            ),
            Pass::Icf => facts(
                "icf",
                "makes one of identical functions, except where addresses may be compared",
                true,
                Runs::Always,
            ),
            Pass::InitMotion => facts(
                "initmotion",
                "lets the kernel free what only its initialization uses",
                false,
                Runs::Always,
            ),
            Pass::Merge => facts(
                "merge",
                "makes one of identical blocks, ends of blocks and sequences that did not run, or of all with --merge all",
                false,
                Runs::WithPlan(|plan| plan.coverage.is_some()),
            ),
            Pass::Instrument => facts(
                "instrument",
                "makes every block record that it ran, for `coverage kcore`",
                false,
                Runs::IfNamed,
            ),
            Pass::Exercise => facts(
                "exercise",
                "edits everything and changes nothing that matters, to test kshrink",
                false,
                Runs::IfNamed,
            ),
            Pass::Freeze => facts(
                "freeze",
                "puts code and data that the plan has under `frozen` into sections of their own",
                false,
                Runs::WithPlan(|plan| plan.frozen.is_some()),
            ),
            Pass::Layout => facts(
                "layout",
                "puts code in the order that `reorder` decided",
                false,
                Runs::WithPlan(|plan| plan.order.is_some()),
            ),
        }
    }

    /// Runs it. What it finds out about functions is remembered for the next round.
    pub fn run(
        self,
        graph: &mut Graph,
        plan: &Plan,
        options: Options,
        remembered: &mut Remembered,
    ) -> PassReport {
        match self {
            Pass::Exports => exports::run(graph, plan),
            Pass::Syscalls => syscalls::run(graph, plan, options),
            Pass::SysArgs => sysargs::run(graph, plan, options),
            Pass::Params => params::run(graph, plan),
            Pass::Keys => keys::run(graph),
            Pass::Reach => reach::run(graph),
            Pass::Icf => icf::run(graph, plan),
            Pass::InitMotion => initmotion::run(graph),
            Pass::Merge => merge::run(graph, plan, options),
            Pass::Fold => fold::run(graph, remembered),
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
