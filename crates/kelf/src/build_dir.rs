//! Finds the link inputs of a kernel in its build directory.
//!
//! Kbuild records every command that it runs, in `.target.cmd` next to the target. The inputs of the final link are
//! therefore taken from this record and the generated configuration, as in `scripts/link-vmlinux.sh`, and not guessed
//! from the tree: the whole `vmlinux.a`, the needed members of the libraries in `.vmlinux.o.cmd`, and the few objects
//! that the final link makes itself. This works for kernels from 6.1 on.

use std::path::{Path, PathBuf};
use std::{fmt, fs};

use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::headers::{ElfFile, read_linked};
use crate::machine::Machine;

/// A kernel build directory after `make vmlinux`.
#[derive(Clone, Debug)]
pub struct KernelBuild {
    /// The build directory.
    pub dir: PathBuf,
    /// The linked kernel.
    pub vmlinux: PathBuf,
    /// Its machine.
    pub machine: Machine,
    /// The file that is linked whole: `vmlinux.a`, or `vmlinux.o` if its members are no objects (`CONFIG_LTO_CLANG`).
    pub archive: PathBuf,
    /// Libraries from which the link takes the needed members, in order. Empty if `archive` is `vmlinux.o`, which
    /// already contains these.
    pub libraries: Vec<PathBuf>,
    /// Objects that the final link adds: `.vmlinux.export.o` with `CONFIG_MODULES`, and `init/version-timestamp.o`, in
    /// link order. They exclude the symbol table object of `CONFIG_KALLSYMS`, because the link makes a new one.
    pub beside: Vec<PathBuf>,
    /// The preprocessed linker script, `arch/*/kernel/vmlinux.lds`.
    pub linker_script: PathBuf,
    /// The version of Linux from `include/config/kernel.release`, if that file has one.
    pub version: Option<KernelVersion>,
    config: FxHashMap<String, String>,
}

/// A version of Linux, without its patch level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion {
    major: u32,
    minor: u32,
}

impl KernelVersion {
    /// Creates the version Linux `major.minor`.
    pub const fn new(major: u32, minor: u32) -> KernelVersion {
        KernelVersion { major, minor }
    }

    /// Parses the version in a release such as `6.12.117` or `6.1.0-37-686`.
    pub fn of_release(release: &str) -> Option<KernelVersion> {
        let (major, rest) = release.split_once('.')?;
        let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        Some(KernelVersion { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl KernelBuild {
    /// Finds the build of `vmlinux` in the directory that contains it.
    ///
    /// # Errors
    /// [`Error::Read`] if a file cannot be read, [`Error::WrongKind`] or [`Error::Damaged`] if `vmlinux` is not a
    /// linked kernel or is incomplete, [`Error::Build`] if it has no symbols or the directory lacks an input of the
    /// link.
    pub fn find(vmlinux: &Path) -> Result<KernelBuild> {
        let machine = check_vmlinux(vmlinux)?;
        // A symbolic link to a vmlinux elsewhere means the build there.
        let vmlinux =
            fs::canonicalize(vmlinux).map_err(|source| Error::Read { path: vmlinux.into(), source })?;
        let dir = vmlinux.parent().unwrap_or(Path::new("/")).to_path_buf();
        let config = read_config(&dir)?;
        let is_enabled = |option: &str| config.get(option).is_some_and(|value| value == "y");

        let (archive, libraries) = if is_enabled("CONFIG_LTO_CLANG") {
            (existing(&dir, "vmlinux.o")?, Vec::new())
        } else {
            (existing(&dir, "vmlinux.a")?, recorded_libraries(&dir)?)
        };
        let mut beside = Vec::new();
        if is_enabled("CONFIG_MODULES") {
            beside.push(existing(&dir, ".vmlinux.export.o")?);
        }
        beside.push(existing(&dir, "init/version-timestamp.o")?);
        let linker_script = find_linker_script(&dir)?;
        let release = fs::read_to_string(dir.join("include/config/kernel.release")).ok();
        let version = release.and_then(|release| KernelVersion::of_release(&release));
        Ok(KernelBuild { dir, vmlinux, machine, archive, libraries, beside, linker_script, version, config })
    }

    /// Returns the value of a configuration option such as `CONFIG_MODULES`: `y`, `m`, a number, or a string without
    /// quotes and escapes. Returns `None` if it is not set.
    pub fn config(&self, option: &str) -> Option<&str> {
        self.config.get(option).map(String::as_str)
    }

    /// Whether a configuration option is `y`.
    pub fn is_enabled(&self, option: &str) -> bool {
        self.config(option) == Some("y")
    }

    /// Whether the build runs objtool once, on `vmlinux.o`, and links that file, instead of running it on every object
    /// (scripts/Makefile.lib, `delay-objtool`). The build makes `vmlinux.o` from `vmlinux.a`.
    pub fn delays_objtool(&self) -> bool {
        self.is_enabled("CONFIG_LTO_CLANG") || self.is_enabled("CONFIG_X86_KERNEL_IBT")
    }

    /// Whether only `vmlinux.o` holds the kernel's code, because the members of `vmlinux.a` are bitcode.
    pub fn links_vmlinux_o(&self) -> bool {
        self.archive.extension().is_some_and(|extension| extension == "o")
    }

    /// Refuses a build whose objects hold no machine code.
    ///
    /// # Errors
    /// [`Error::Build`], with the options to change.
    pub fn check_links_objects(&self) -> Result<()> {
        if !self.links_vmlinux_o() {
            return Ok(());
        }
        Err(Error::Build {
            path: self.vmlinux.clone(),
            problem: "the objects of this kernel are bitcode, which kshrink cannot rewrite".into(),
            advice: "build it without CONFIG_LTO_CLANG".into(),
        })
    }
}

/// Checks that `path` is a linked kernel with symbols, and returns its machine.
fn check_vmlinux(path: &Path) -> Result<Machine> {
    let bytes = read_linked(path)?;
    let expected = "vmlinux, the linked kernel as an ELF file (not bzImage or Image)";
    let file = ElfFile::parse_linked(&path.display().to_string(), &bytes, expected)?;
    for section in 0..file.sections.len() {
        file.content(section)?;
    }
    if file.symbol_table()?.is_none() {
        return Err(Error::Build {
            path: path.into(),
            problem: "has no symbol table".into(),
            advice: "give the vmlinux that the kernel build made, before it was stripped".into(),
        });
    }
    Ok(file.machine)
}

fn existing(dir: &Path, name: &str) -> Result<PathBuf> {
    let path = dir.join(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(Error::Build {
        path,
        problem: "is missing from the kernel build directory".into(),
        advice: "build the kernel (6.1 or later) there again with `make vmlinux`".into(),
    })
}

fn read_config(dir: &Path) -> Result<FxHashMap<String, String>> {
    let path = dir.join("include/config/auto.conf");
    if !path.is_file() {
        return Err(Error::Build {
            path: dir.into(),
            problem: "is not a kernel build directory: it has no include/config/auto.conf".into(),
            advice: "give the vmlinux inside the directory in which the kernel was built".into(),
        });
    }
    let text = fs::read_to_string(&path).map_err(|source| Error::Read { path, source })?;
    let options = text.lines().filter(|line| line.starts_with("CONFIG_"));
    let options = options.filter_map(|line| line.split_once('='));
    Ok(options.map(|(name, value)| (name.into(), unquoted(value))).collect())
}

/// Unquotes a value of `auto.conf`: a string is quoted, with backslashes before quotes and backslashes.
fn unquoted(value: &str) -> String {
    match value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) {
        Some(text) => text.replace("\\\"", "\"").replace("\\\\", "\\"),
        None => value.to_owned(),
    }
}

/// Returns the libraries on the recorded command line of `vmlinux.o`, which the final link also uses.
fn recorded_libraries(dir: &Path) -> Result<Vec<PathBuf>> {
    let path = existing(dir, ".vmlinux.o.cmd")?;
    let text = fs::read_to_string(&path).map_err(|source| Error::Read { path: path.clone(), source })?;
    let group = text.split_once("--start-group").and_then(|(_, rest)| rest.split_once("--end-group"));
    let Some((libraries, _)) = group else {
        return Err(Error::Build {
            path,
            problem: "records no link command with --start-group … --end-group".into(),
            advice: "build the kernel (6.1 or later) there again with `make vmlinux`".into(),
        });
    };
    libraries.split_whitespace().map(|name| existing(dir, name)).collect()
}

fn find_linker_script(dir: &Path) -> Result<PathBuf> {
    let entries =
        fs::read_dir(dir.join("arch")).map_err(|source| Error::Read { path: dir.join("arch"), source })?;
    let mut scripts: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path().join("kernel/vmlinux.lds")))
        .filter(|path| path.is_file())
        .collect();
    // If a directory built two architectures, the script is ambiguous; Kbuild refuses that as well.
    scripts.sort();
    match scripts.len() {
        1 => Ok(scripts.remove(0)),
        count => Err(Error::Build {
            path: dir.join("arch"),
            problem: format!("holds {count} linker scripts (*/kernel/vmlinux.lds); expected one"),
            advice: "build the kernel there again with `make vmlinux`, after `make mrproper` if \
                     another architecture was built there before"
                .into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_lose_their_quotes_alone() {
        assert_eq!(unquoted("y"), "y");
        assert_eq!(unquoted("\"quiet x=\\\"a b\\\"\""), "quiet x=\"a b\"");
        assert_eq!((unquoted("\"\""), unquoted("\"")), (String::new(), "\"".to_owned()));
    }

    #[test]
    fn releases_name_a_version() {
        let version = |release| KernelVersion::of_release(release).map(|version| version.to_string());
        assert_eq!(version("6.12.117\n").as_deref(), Some("6.12"));
        assert_eq!(version("6.1.0-37-686").as_deref(), Some("6.1"));
        assert_eq!(version("6.13-rc1").as_deref(), Some("6.13"));
        assert_eq!((version(""), version("6"), version("next.2")), (None, None, None));
        assert!(KernelVersion::new(6, 2) < KernelVersion::new(6, 12));
    }
}
