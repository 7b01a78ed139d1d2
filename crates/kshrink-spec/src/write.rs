//! Writing rewritten graphs to files.

use std::path::Path;

use kbuild::Objtool;
use kcfg::lower::Lowered;
use kcli::{Failure, Output};
use kelf::Object;
use kopt::PassRef;
use kplan::Contents;

use crate::freeze::Counts;
use crate::phases::Phases;
use crate::relink::{Goal, Staged};
use crate::report::{Linked, Report, Sizes};
use crate::rewrite::{self, RewriteInput, Rewritten};
use crate::{blocks, freeze, html, orc, segments};

/// Writes graphs of one program.
pub struct Writer<'a> {
    /// The input of the rewrite.
    pub input: &'a RewriteInput,
    /// The passes that ran.
    pub passes: &'a [PassRef],
    /// Variables for the kernel's build.
    pub make: &'a [String],
    /// Whether to write the debugging information of a kernel.
    pub keep_debug: bool,
    /// Whether to write the object from which a kernel was linked.
    pub keep_object: bool,
}

impl Writer<'_> {
    /// Writes one relocatable object.
    pub fn object(
        &self,
        rewritten: &mut Rewritten,
        mut phases: Phases,
        path: &Path,
    ) -> Result<(Report, Contents), Failure> {
        let Rewritten { graph, passes, sizes } = rewritten;
        phases.next("emit");
        let Lowered { object, code } = rewrite::lower(graph, self.passes)?;
        sizes.place(&code);
        let object = object.write().map_err(Failure::of)?;
        let mut output = Output::create(path)?;
        std::io::Write::write_all(&mut output, &object)?;
        output.commit()?;
        let contents = html::contents(graph, sizes);
        Ok((Report::new(self.input, graph, std::mem::take(passes), phases.finish(), None), contents))
    }

    /// Relinks a kernel, and writes it and all related files to a directory.
    pub fn kernel(
        &self,
        rewritten: &mut Rewritten,
        mut phases: Phases,
        out: &Path,
    ) -> Result<(Report, Contents), Failure> {
        let RewriteInput::Kernel { build, .. } = self.input else {
            return Err(Failure::bad_input("-o relinks a kernel; with --objects, use --emit-object"));
        };
        let Rewritten { graph, passes, sizes } = rewritten;
        phases.next("emit");
        let Lowered { mut object, code } = rewrite::lower(graph, self.passes)?;
        sizes.place(&code);
        phases.next("relink");
        let mut staged = Staged::copy(build, self.make, out)?;
        if self.input.packs_segments() {
            segments::edit_script(&staged)?;
            let filled = segments::fill(&mut object, build);
            tracing::info!("{filled} bytes of text fill the large page of entry text");
        }
        let link = || self.link(&mut staged, &mut object, &mut phases);
        // A link mostly uses one processor.
        let (linked, contents) = rayon::join(link, || html::contents(graph, sizes));
        let (bases, frozen, unwinding) = linked?;
        let sizes_of_files = Sizes::of(&build.vmlinux, &staged.vmlinux())?;
        let blocks = blocks::map(graph, &code, &bases)?;
        let debug = if self.keep_debug {
            phases.next("debug");
            let debug = kdebug::debug_file(&build.vmlinux, &staged.vmlinux(), &blocks);
            Some(debug.map_err(Failure::bad_input)?)
        } else {
            None
        };
        let linked = Linked { sizes: sizes_of_files, frozen, unwinding };
        let report = Report::new(self.input, graph, std::mem::take(passes), phases.finish(), Some(linked));
        let object = self.keep_object.then(|| object.write().map_err(Failure::of)).transpose()?;
        staged.publish(out, &report.json()?, &blocks, &contents, (debug.as_deref(), object.as_deref()))?;
        Ok((report, contents))
    }

    /// Links a kernel with this object, up to the boot image. Returns the addresses of the object's sections, and the sizes
    /// of what was frozen and packed.
    fn link(
        &self,
        staged: &mut Staged<'_>,
        object: &mut Object<'_>,
        phases: &mut Phases,
    ) -> Result<LinkedParts<Bases>, Failure> {
        let (bases, frozen, unwinding) = match staged.complete(object, self.input.packs_unwind())? {
            Some(bytes) => {
                let mut whole = Object::read("kshrink.o", &bytes).map_err(Failure::of)?;
                Objtool::restore_names(&mut whole);
                self.link_whole(staged, whole, phases)?
            }
            None => self.link_whole(staged, object.clone(), phases)?,
        };
        let bases = match bases {
            Some(bases) => bases,
            None => kelf::section_bases(object, &staged.vmlinux()).map_err(Failure::of)?,
        };
        Ok((bases, frozen, unwinding))
    }

    /// The same with an object to which the build's tools added their tables. Returns addresses only if code is frozen.
    fn link_whole(
        &self,
        staged: &mut Staged<'_>,
        mut whole: Object<'_>,
        phases: &mut Phases,
    ) -> Result<LinkedParts<Option<Bases>>, Failure> {
        let packs_unwind = self.input.packs_unwind();
        if let Some(freezing) = self.input.freezing() {
            let frozen = freeze::link(staged, whole, freezing, packs_unwind, phases)?;
            return Ok((Some(frozen.bases), Some(frozen.counts), frozen.unwinding));
        }
        if packs_unwind {
            return Ok((None, None, Some(orc::link(staged, &mut whole, phases)?)));
        }
        staged.link(&whole.write().map_err(Failure::of)?, Goal::BootImage)?;
        Ok((None, None, None))
    }
}

/// The addresses of an object's sections.
type Bases = Vec<Option<u64>>;

/// Addresses, and the sizes of what was frozen and packed.
type LinkedParts<B> = (B, Option<Counts>, Option<orc::Sizes>);
