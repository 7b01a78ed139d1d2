//! The report, as JSON and as a table.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use kcfg::graph::Graph;
use kcli::{Failure, Table, human, percent};
use kopt::{Assumption, Kept, PassReport, assumptions};
use ksize::SizeTable;
use serde::{Deserialize, Serialize};

use crate::freeze::Counts;
use crate::orc;
use crate::phases::Phase;
use crate::rewrite::RewriteInput;

/// The version of the document.
const SCHEMA: &str = "kshrink-report/1";
/// Maximum number of kept things that the table shows for one pass.
const SHOWN: usize = 8;

/// The report of a run.
#[derive(Serialize)]
pub struct Report {
    schema: &'static str,
    version: &'static str,
    input: String,
    /// Sizes before and after, if the kernel was relinked.
    sizes: Option<Sizes>,
    /// Sizes of frozen code and data, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    frozen: Option<Counts>,
    /// Sizes of packed tables for unwinding, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    unwinding: Option<orc::Sizes>,
    /// Passes, in order.
    passes: Vec<PassReport>,
    /// The assumptions that the removals depend on and that the objects do not prove.
    assumptions: Vec<&'static Assumption>,
    /// Opaque code.
    opaque: Vec<Kept>,
    /// Objects whose exception handlers and cleanups were left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub handlers_left_out: Vec<String>,
    /// Times and peak memory.
    phases: Vec<Phase>,
}

/// What a link did.
pub struct Linked {
    /// Sizes before and after.
    pub sizes: Sizes,
    /// Sizes of frozen code and data, if any.
    pub frozen: Option<Counts>,
    /// Sizes of packed tables for unwinding, if any.
    pub unwinding: Option<orc::Sizes>,
}

/// Sizes in bytes before and after.
#[derive(Serialize)]
pub struct Sizes {
    before: SizeTable,
    after: SizeTable,
}

impl Sizes {
    /// Measures two kernels.
    pub fn of(before: &Path, after: &Path) -> Result<Sizes, Failure> {
        let (before, after) = rayon::join(|| SizeTable::of(before), || SizeTable::of(after));
        Ok(Sizes { before: before.map_err(Failure::of)?, after: after.map_err(Failure::of)? })
    }
}

/// Checks that a file is a report of this version.
///
/// # Errors
/// Bad input, with the path.
pub fn check_schema(report: &[u8], path: &Path) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct Head {
        schema: String,
    }
    let path = path.display();
    match serde_json::from_slice(report) {
        Ok(Head { schema }) if schema == SCHEMA => Ok(()),
        Ok(Head { schema }) => {
            Err(Failure::bad_input(format!("{path}: expected schema {SCHEMA}, found {schema}")))
        }
        Err(error) => Err(Failure::bad_input(format!("{path}: not a report of kshrink-spec: {error}"))),
    }
}

impl Report {
    /// Assembles a report.
    pub fn new(
        input: &RewriteInput,
        graph: &Graph,
        passes: Vec<PassReport>,
        phases: Vec<Phase>,
        linked: Option<Linked>,
    ) -> Report {
        let (sizes, frozen, unwinding) = match linked {
            Some(Linked { sizes, frozen, unwinding }) => (Some(sizes), frozen, unwinding),
            None => (None, None, None),
        };
        let input = match input {
            RewriteInput::Kernel { build, .. } => build.vmlinux.display().to_string(),
            RewriteInput::Objects { entries, .. } => format!("objects, entered by {}", entries.join(", ")),
        };
        let mut opaque = graph.opaque_functions();
        opaque.retain(|opaque| graph.node(opaque.node).live);
        Report {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            input,
            sizes,
            frozen,
            unwinding,
            assumptions: assumptions::of(graph, &passes),
            passes,
            opaque: opaque.into_iter().map(|o| Kept { what: o.name, why: o.reason.to_owned() }).collect(),
            handlers_left_out: Vec::new(),
            phases,
        }
    }

    /// Returns the document.
    pub fn json(&self) -> Result<Vec<u8>, Failure> {
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(sizes) = &self.sizes {
            let mut table = Table::new(["bytes", "before", "after", ""]);
            for ((name, before), (_, after)) in sizes.before.columns().into_iter().zip(sizes.after.columns())
            {
                match (before, after) {
                    (Some(before), Some(after)) => {
                        table.row([name.to_owned(), human(before), human(after), percent(before, after)]);
                    }
                    (None, Some(after)) => table.row([name.to_owned(), String::new(), human(after)]),
                    (_, None) => {}
                }
            }
            writeln!(f, "{table}")?;
        }
        let mut table = Table::new([
            "pass",
            "functions",
            "blocks",
            "code bytes",
            "data chunks",
            "data bytes",
            "redirected",
        ]);
        for pass in &self.passes {
            let removed = &pass.removed;
            table.row([
                pass.pass.to_owned(),
                human(removed.functions as u64),
                human(removed.blocks as u64),
                human(removed.code_bytes),
                human(removed.data_chunks as u64),
                human(removed.data_bytes),
                human(pass.redirected as u64),
            ]);
        }
        writeln!(f, "{table}")?;
        if let Some(frozen) = &self.frozen {
            writeln!(f, "{frozen}")?;
        }
        if let Some(unwinding) = &self.unwinding {
            writeln!(f, "{unwinding}")?;
        }
        for pass in &self.passes {
            for (what, number) in &pass.counts {
                writeln!(f, "{}: {} {what}", pass.pass, human(*number))?;
            }
        }
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for opaque in &self.opaque {
            *reasons.entry(&opaque.why).or_default() += 1;
        }
        for (why, count) in reasons {
            writeln!(f, "opaque: {count} × {why}")?;
        }
        if !self.handlers_left_out.is_empty() {
            let objects = self.handlers_left_out.join(", ");
            writeln!(f, "left out: exception handlers and cleanups of {objects}, which will not run")?;
        }
        for pass in self.passes.iter().filter(|pass| pass.pass != "reach") {
            for kept in pass.kept.iter().take(SHOWN) {
                writeln!(f, "{}: {kept}", pass.pass)?;
            }
            if pass.kept.len() > SHOWN {
                writeln!(f, "{}: kept {} more; see report.json", pass.pass, pass.kept.len() - SHOWN)?;
            }
        }
        if !self.assumptions.is_empty() {
            let names: Vec<&str> = self.assumptions.iter().map(|assumption| assumption.name).collect();
            writeln!(f, "assumptions: {}", names.join(", "))?;
        }
        let mut table = Table::new(["phase", "seconds", "peak MiB"]);
        for phase in &self.phases {
            let memory = phase.peak_memory_kib.map_or_else(String::new, |kib| human(kib / 1024));
            table.row([phase.name.clone(), format!("{:.2}", phase.seconds), memory]);
        }
        write!(f, "\n{table}")
    }
}
