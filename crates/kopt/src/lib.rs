/*!
The passes of kshrink.

A pass is a module with one function that takes a graph and a plan, changes the graph, and reports its changes. Passes
are free functions called in the order that the user gives ([`Pass::ALL`] lists them), and do not depend on ELF. They
keep everything that they cannot prove to be removable, and list it in [`PassReport::kept`].
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
mod options;
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
pub use options::{OptimizeFor, Options, Scope};
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

/// The fixed properties of a pass.
struct Facts {
    name: &'static str,
    summary: &'static str,
    removes: bool,
    runs: Runs,
}

/// The condition for a pass to run by default.
enum Runs {
    Always,
    WithPlan(fn(&Plan) -> bool),
    IfNamed,
}

impl Pass {
    /// Every pass, in the order in which they are most effective.
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

    /// Its effect, in one sentence without a subject and without a full stop.
    pub fn summary(self) -> &'static str {
        self.facts().summary
    }

    /// Whether it removes code or data, or references to them.
    pub fn removes(self) -> bool {
        self.facts().removes
    }

    /// Whether it supports code of a machine.
    pub fn knows(self, machine: Machine) -> bool {
        match machine {
            Machine::I386 | Machine::Arm => true,
            Machine::X86_64 | Machine::Aarch64 => matches!(self, Pass::Syscalls | Pass::Reach),
        }
    }

    /// Whether it runs by default with this plan.
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
                facts("syscalls", "redirects unused system calls to `sys_ni_syscall`", true, Runs::Always)
            }
            Pass::SysArgs => facts(
                "sysargs",
                "refuses unused operations of system calls, so that `fold` removes their code",
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
                "fixes the state of static keys and static calls that nothing switches",
                true,
                Runs::Always,
            ),
            Pass::Reach => facts("reach", "removes unreachable code and data", true, Runs::Always),
            Pass::Fold => facts(
                "fold",
                "propagates constants through the whole program, decides branches on them, and removes dead instructions",
                true,
                Runs::Always,
            ),
            Pass::Icf => facts(
                "icf",
                "merges identical functions, except where their addresses may be compared",
                true,
                Runs::Always,
            ),
            Pass::InitMotion => facts(
                "initmotion",
                "moves code and data that only initialization uses to memory that the kernel frees",
                false,
                Runs::Always,
            ),
            Pass::Merge => facts(
                "merge",
                "merges identical blocks, tails and sequences of code that did not run, or of all code with --merge all",
                false,
                Runs::WithPlan(|plan| plan.coverage.is_some()),
            ),
            Pass::Instrument => facts(
                "instrument",
                "instruments every block to record that it ran, for `coverage kcore`",
                false,
                Runs::IfNamed,
            ),
            Pass::Exercise => facts(
                "exercise",
                "edits all code without changing its behaviour, to test kshrink",
                false,
                Runs::IfNamed,
            ),
            Pass::Freeze => facts(
                "freeze",
                "moves the code and data listed under `frozen` in the plan to sections of their own",
                false,
                Runs::WithPlan(|plan| plan.frozen.is_some()),
            ),
            Pass::Layout => facts(
                "layout",
                "places code in the order that `reorder` decided",
                false,
                Runs::WithPlan(|plan| plan.order.is_some()),
            ),
        }
    }

    /// Runs the pass. Its findings about functions are remembered for the next round.
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
