//! From a rewritten graph to files.

use std::path::Path;

use kcfg::graph::Graph;
use kcli::{Failure, Output};
use kopt::{Pass, PassReport};

use crate::phases::Phases;
use crate::report::{Report, Sizes};
use crate::rewrite::{self, RewriteInput};
use crate::{blocks, relink};

/// Writes graphs of one program.
pub struct Writer<'a> {
    /// What was rewritten.
    pub input: &'a RewriteInput,
    /// The passes that ran.
    pub passes: &'a [Pass],
    /// Variables for the kernel's build.
    pub make: &'a [String],
}

impl Writer<'_> {
    /// Writes one relocatable object.
    pub fn object(
        &self,
        graph: &Graph,
        reports: Vec<PassReport>,
        mut phases: Phases,
        path: &Path,
    ) -> Result<Report, Failure> {
        phases.next("emit");
        let object = rewrite::lower(graph, self.passes)?.object.write().map_err(rewrite::of_elf)?;
        let mut output = Output::create(path)?;
        std::io::Write::write_all(&mut output, &object)?;
        output.commit()?;
        Ok(Report::new(self.input, graph, reports, phases.finish(), None))
    }

    /// Relinks a kernel, and leaves it and all that belongs to it in a directory.
    pub fn kernel(
        &self,
        graph: &Graph,
        reports: Vec<PassReport>,
        mut phases: Phases,
        out: &Path,
    ) -> Result<Report, Failure> {
        let RewriteInput::Kernel { build, .. } = self.input else {
            return Err(Failure::bad_input("-o relinks a kernel; with --objects, use --emit-object"));
        };
        phases.next("emit");
        let lowered = rewrite::lower(graph, self.passes)?;
        let object = lowered.object.write().map_err(rewrite::of_elf)?;
        phases.next("relink");
        let staged = relink::relink(build, &object, self.make, out)?;
        let sizes = Sizes::of(&build.vmlinux, &staged.vmlinux())?;
        let report = Report::new(self.input, graph, reports, phases.finish(), Some(sizes));
        let blocks = blocks::map(graph, &lowered, &staged.vmlinux())?;
        staged.publish(out, &report.json()?, &blocks)?;
        Ok(report)
    }
}
