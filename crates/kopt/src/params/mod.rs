/*!
Pass `params`: boot parameters that the command line does not name, and variables that it fixes (Chanet et al. 2007,
section 3.3).

- The pass removes the table entries of the parameters that the plan lists as unnamed ([`kcfg::parameters`]). The
  handler of an entry is then removed unless something else needs it, and nothing writes to its variable any more.
- A variable that the plan fixes gets its value in place of the kernel's initial value (`fix`), if nothing can write to
  it.

A sysfs file that root may write to keeps its parameter, whatever the plan says.

Both changes restrict the kernel to certain command lines. So the pass does nothing unless the program has the check
that is to be linked in ([`CHECK_SYMBOL`]). The pass records the removed and fixed parameters for it (`records`), and
the check compares them with the command line at boot.
*/

mod fix;
mod records;

use kcfg::graph::Graph;
use kcfg::index::NodeId;
use kcfg::parameters::{self, Parameter};
use rustc_hash::FxHashSet;

use crate::pass::{Context, Facts, Pass, Phase, Runs};
use crate::report::PassReport;
use crate::uses::Uses;
use fix::sets;
use records::PASS;

pub use records::CHECK_SYMBOL;

/// Pass `params`: removes entries, and fixes variables.
pub struct Params;

impl Pass for Params {
    fn facts(&self) -> Facts {
        Facts {
            name: PASS,
            summary: "removes the boot parameters that the command line does not name, and sets variables that `cmdline-spec` fixed",
            phase: Phase::Removes,
            runs: Runs::WithPlan(|plan| plan.params.is_some()),
            on_64_bits: true,
        }
    }

    fn run(&self, graph: &mut Graph, context: &mut Context<'_>) -> PassReport {
        let plan = context.plan;
        let mut report = PassReport::new(self.name());
        let Some(params) = &plan.params else {
            report.keep(
                "every boot parameter",
                "the plan does not list the parameters that the command line names",
            );
            return report;
        };
        if !records::can_be_written(graph) {
            report.keep(
                "every boot parameter",
                format!(
                    "the check of the command line at boot is missing: no object refers to {CHECK_SYMBOL}"
                ),
            );
            return report;
        }
        parameters::cut(graph, PASS);
        let all = parameters::all(graph);
        let uses = Uses::of(graph);
        let mut gone = unnamed(&uses, params, &all, &mut report);
        let fixed = fix::fixed(graph, &uses, params, &all, &mut gone, &mut report);
        fix::set(graph, &fixed, &mut report);
        let mut added = Vec::new();
        for parameter in all.iter().filter(|parameter| gone.contains(&parameter.node)) {
            report.removed.remove(graph, parameter.node);
            report.count("entries of unnamed or fixed parameters removed", 1);
            if !fixed.iter().any(|fixed| sets(fixed.what, parameter)) {
                added.push(records::removed(parameter));
            }
        }
        graph.retain_roots(|_, root| !gone.contains(&root.node));
        added.extend(fixed.iter().filter_map(|fixed| records::fixed(fixed.what)));
        records::write(graph, added);
        report
    }
}

/// The entries that the plan lists as unnamed and that may be removed.
fn unnamed(
    uses: &Uses<'_>,
    params: &kplan::Params,
    all: &[Parameter],
    report: &mut PassReport,
) -> FxHashSet<NodeId> {
    let listed: FxHashSet<(&str, &str)> =
        params.unnamed.iter().map(|unnamed| (unnamed.name.as_str(), unnamed.table.as_str())).collect();
    let mut gone = FxHashSet::default();
    for parameter in all.iter().filter(|one| listed.contains(&(one.name.as_str(), one.table()))) {
        if parameter.is_writable() {
            report.keep(parameter.to_string(), "its file in sysfs can be written to");
        } else if !uses.of_node(parameter.node).is_empty() {
            report.keep(
                parameter.to_string(),
                "its entry is used by name, and not only as a part of its table",
            );
        } else {
            gone.insert(parameter.node);
        }
    }
    gone
}
