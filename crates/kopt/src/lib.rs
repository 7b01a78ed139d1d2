/*!
The passes of kshrink.

A pass is a module with a [`Pass`], which changes a graph as a plan requires, and reports its changes. [`PASSES`] lists
the passes, and [`rounds`] runs the ones that the user selects. Passes do not depend on ELF. They keep everything that
they cannot prove to be removable, and list it in [`PassReport::kept`].
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
pub mod inline;
pub mod instrument;
mod internal;
pub mod keys;
pub mod layout;
pub mod merge;
pub mod names;
mod near;
mod options;
pub mod params;
mod pass;
mod ran;
pub mod reach;
pub mod report;
pub mod retained;
pub mod rounds;
pub mod specialize;
mod switches;
pub mod sysargs;
pub mod syscalls;
mod unwinding;
pub mod uses;

pub use assumptions::Assumption;
pub use options::{OptimizeFor, Options, Scope};
pub use pass::{Context, Facts, Pass, PassRef, Phase, Runs};
pub use report::{Kept, PassReport, Removed};

/// The passes that users select, in the order in which they are most effective.
pub const PASSES: &[PassRef] = &[
    &exports::Exports,
    &syscalls::Syscalls,
    &sysargs::SysArgs,
    &params::Params,
    &keys::Keys,
    &reach::Reach,
    &fold::Fold,
    &icf::Icf,
    &initmotion::InitMotion,
    &specialize::Specialize,
    &inline::Inline,
    &merge::Merge,
    &instrument::Instrument,
    &exercise::Exercise,
    &freeze::Freeze,
    &layout::Layout,
];

/// The passes of every run, which users do not select.
const INTERNAL: &[PassRef] = &[&internal::Refine, &unwinding::Unwinding, &internal::Literals];

/// Returns the pass with this name.
///
/// # Errors
/// The names of all passes, if there is none.
pub fn pass(name: &str) -> Result<PassRef, String> {
    PASSES.iter().copied().find(|pass| pass.name() == name).ok_or_else(|| {
        let names: Vec<&str> = PASSES.iter().map(|pass| pass.name()).collect();
        format!("there is no pass `{name}`; expected `none` or a list of {}", names.join(", "))
    })
}
