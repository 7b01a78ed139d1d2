/*!
The relink: the kernel's own build, in a copy of its build directory, with one object in place of all objects.

`vmlinux.a` of the copy becomes an archive of the rewritten object alone. Its recorded Kbuild command and its
dependencies have not changed, so `make vmlinux` continues with the link: linker script, kallsyms, table sorting, boot
image. The user's directory is only read.
*/

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kbuild::{BuildCopy, Content, Make, Objtool, existing_ancestor, run};
use kcli::{Failure, Output};
use kelf::{KernelBuild, Object};
use kplan::{BlockMap, Contents};
use tracing::info_span;

/// A variable of make: what it makes where it otherwise descends into all directories (`single-goals` in the kernel's
/// Makefile, 6.1 to 7.3). The target `prepare` of the top directory is made by then.
const NO_DESCENT: &str = "single-goals=prepare";

/// All objects of a kernel, joined: what some builds check and link (scripts/Makefile.vmlinux_o).
const WHOLE: &str = "vmlinux.o";

/// A copy of a build directory in which the kernel is linked again; dropping this removes it.
pub struct Staged<'b> {
    build: &'b KernelBuild,
    make: Make<'b>,
    objtool: Option<Objtool>,
    boot_image: PathBuf,
    /// Whether objects take the place of `vmlinux.o`, which the build makes of `vmlinux.a`.
    replaces_whole: bool,
    /// Whether a link has found all its inputs up to date.
    is_checked: bool,
}

/// The end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// `vmlinux` and `System.map`.
    Vmlinux,
    /// `vmlinux`, `System.map` and the boot image.
    BootImage,
}

impl<'b> Staged<'b> {
    /// Copies the build directory to the place of `out`. `variables` are for make.
    pub fn copy(build: &'b KernelBuild, variables: &'b [String], out: &Path) -> Result<Staged<'b>, Failure> {
        let copy = BuildCopy::make(build, &existing_ancestor(out)?, Content::Link)?;
        let make = Make::new(build, variables, copy)?;
        let boot_image = make.boot_image()?;
        let objtool = Objtool::of(build)?;
        Ok(Staged { build, make, objtool, boot_image, replaces_whole: false, is_checked: false })
    }

    /// Adds the tables that the build's own tools add. Returns the new object as a file; `None` if nothing is added. If
    /// the tools run for every object, sections and symbols begin with those of `object`, and what the tools say is
    /// printed. If they run in the link, the new object takes the place of `vmlinux.o` in all further links; this happens
    /// only if its tables are wanted.
    ///
    /// # Errors
    /// A failed job if a tool fails.
    pub fn complete(
        &mut self,
        object: &mut Object<'_>,
        wants_tables: bool,
    ) -> Result<Option<Vec<u8>>, Failure> {
        if let Some(objtool) = &self.objtool {
            let (bytes, messages) = objtool.add_tables(self.dir(), object)?;
            for message in messages {
                eprintln!("kshrink-spec: warning: {message}");
            }
            return Ok(Some(bytes));
        }
        if !wants_tables || !self.build.delays_objtool() {
            return Ok(None);
        }
        self.replace_archive(&object.write().map_err(Failure::of)?)?;
        self.make.make(&[WHOLE], &[], "making unwind tables")?;
        self.replaces_whole = true;
        Ok(Some(fs::read(self.dir().join(WHOLE))?))
    }

    /// Replaces all objects by one, and runs make. May be repeated with another object.
    pub fn link(&mut self, object: &[u8], goal: Goal) -> Result<(), Failure> {
        let _span = info_span!("link", ?goal, bytes = object.len()).entered();
        let input = match self.replaces_whole {
            true => self.replace_whole(object)?,
            false => self.replace_archive(object)?,
        };
        let before = fs::read(&input)?;
        let targets = match goal {
            Goal::Vmlinux => vec!["vmlinux"],
            Goal::BootImage => vec!["vmlinux", image_target(&self.boot_image)],
        };
        let variables: &[&str] = if self.is_checked { &[NO_DESCENT] } else { &[] };
        self.make.make(&targets, variables, "relinking the kernel")?;
        if fs::read(&input)? != before {
            let name = input.file_name().map(|name| name.to_string_lossy().into_owned());
            return Err(self.make.stale(&name.unwrap_or_default()));
        }
        self.is_checked = true;
        Ok(())
    }

    /// Replaces `vmlinux.a` of the copy by an archive of the object alone.
    fn replace_archive(&self, object: &[u8]) -> Result<PathBuf, Failure> {
        let dir = self.dir();
        let archive = dir.join(self.build.archive.file_name().expect("an archive has a name"));
        let member = dir.join("kshrink.o");
        fs::write(&member, object)?;
        fs::remove_file(&archive)?;
        let mut command = Command::new("ar");
        command.current_dir(dir).arg("cDPrS").arg(&archive).arg("kshrink.o");
        run(&mut command, "making an archive of the rewritten object")?;
        Ok(archive)
    }

    /// Replaces `vmlinux.o` of the copy by the object.
    fn replace_whole(&self, object: &[u8]) -> Result<PathBuf, Failure> {
        let path = self.dir().join(WHOLE);
        fs::write(&path, object)?;
        Ok(path)
    }

    /// The linker script of the copy. It is newer than its sources once it is changed, so make does not generate it again.
    pub fn linker_script(&self) -> PathBuf {
        let script = &self.build.linker_script;
        self.dir().join(script.strip_prefix(&self.build.dir).unwrap_or(script))
    }

    /// The build.
    pub fn build(&self) -> &'b KernelBuild {
        self.build
    }

    /// The copy.
    pub fn dir(&self) -> &Path {
        self.make.dir()
    }

    /// The relinked kernel; its boot image is where the build puts it.
    pub fn vmlinux(&self) -> PathBuf {
        self.dir().join("vmlinux")
    }

    /// Its symbols by address, as `nm -n` prints them.
    pub fn system_map(&self) -> PathBuf {
        self.dir().join("System.map")
    }

    /// Moves the results to the output directory, each one complete or not at all. The debugging information and the object
    /// from which the kernel was linked are there only if they are given.
    pub fn publish(
        self,
        out: &Path,
        report: &[u8],
        blocks: &BlockMap,
        contents: &Contents,
        (debug, object): (Option<&[u8]>, Option<&[u8]>),
    ) -> Result<(), Failure> {
        fs::create_dir_all(out).map_err(|error| Failure::job(format!("{}: {error}", out.display())))?;
        let image = self.boot_image.file_name().expect("make named a file");
        let results = [
            (self.vmlinux(), "vmlinux".into()),
            (self.system_map(), "System.map".into()),
            (self.dir().join(&self.boot_image), PathBuf::from(image)),
        ];
        for (from, name) in results {
            let to = out.join(name);
            fs::rename(&from, &to).map_err(|error| {
                Failure::job(format!("{}: cannot move it to {}: {error}", from.display(), to.display()))
            })?;
        }
        for (name, content) in [("vmlinux.debug", debug), (WHOLE, object)] {
            let file = out.join(name);
            match content {
                Some(content) => {
                    let mut output = Output::create(&file)?;
                    std::io::Write::write_all(&mut output, content)?;
                    output.commit()?;
                }
                // A file of an earlier run is about another kernel.
                None if file.exists() => fs::remove_file(&file)?,
                None => {}
            }
        }
        let mut output = Output::create(&out.join("blocks.json"))?;
        blocks.write(&mut output)?;
        output.commit()?;
        let mut output = Output::create(&out.join("contents.json"))?;
        contents.write(&mut output)?;
        output.commit()?;
        let mut output = Output::create(&out.join("report.json"))?;
        std::io::Write::write_all(&mut output, report)?;
        Ok(output.commit()?)
    }
}

fn image_target(image: &Path) -> &str {
    image.file_name().and_then(|name| name.to_str()).unwrap_or("vmlinux")
}
