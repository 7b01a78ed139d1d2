//! `--modules`: the loadable modules that ship with a kernel, and the symbols that they need.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use kcli::Failure;
use kelf::{KernelBuild, Object, Place, Program};
use kopt::exports::names_in;
use kplan::{Exports, Module};
use liblzma::read::XzDecoder;

/// The section that makes an object a module: its `struct module` (scripts/mod/modpost.c).
const THIS_MODULE: &str = ".gnu.linkonce.this_module";
/// The largest size in bytes of a module, decompressed. More is a damaged file.
const LARGEST: u64 = 1 << 30;
/// The name that stands for no directory: no module ships with the kernel.
const NONE: &str = "none";

/// The modules in a directory and below it, as read.
pub struct Modules {
    dir: PathBuf,
    modules: Vec<ModuleFile>,
}

struct ModuleFile {
    /// The path below the directory.
    name: String,
    /// Undefined symbols that it requires.
    required: BTreeSet<String>,
    /// Undefined symbols that it can do without (`STB_WEAK`).
    optional: BTreeSet<String>,
    /// Global symbols that it defines.
    defined: BTreeSet<String>,
    /// Names in its data.
    names: BTreeSet<String>,
}

impl Modules {
    /// Reads the files `*.ko`, `*.ko.gz`, `*.ko.xz` and `*.ko.zst`. Links to directories, as `build` in
    /// `/lib/modules/VERSION`, are not followed. `none` has no files.
    ///
    /// # Errors
    /// A failed job if something cannot be read; bad input if a file is no module for this kernel, if there is none, or
    /// if the kernel has no loadable modules.
    pub fn read(dir: &Path, build: &KernelBuild) -> Result<Modules, Failure> {
        if dir == Path::new(NONE) {
            return Ok(Modules { dir: dir.to_path_buf(), modules: Vec::new() });
        }
        let mut paths = Vec::new();
        find(dir, &mut paths)?;
        if paths.is_empty() {
            return Err(Failure::bad_input(format!(
                "{}: there is no module (*.ko, *.ko.gz, *.ko.xz, *.ko.zst) in it; name the directory of the modules that \
                 ship with the kernel, or pass --modules none if none ships",
                dir.display()
            )));
        }
        paths.sort_unstable();
        let modules =
            paths.iter().map(|path| ModuleFile::read(dir, path, build)).collect::<Result<_, _>>()?;
        if !build.is_enabled("CONFIG_MODULES") {
            return Err(Failure::bad_input(format!(
                "{}: the kernel has no loadable modules (CONFIG_MODULES is not set), so it exports nothing; leave \
                 out --modules",
                build.vmlinux.display()
            )));
        }
        Ok(Modules { dir: dir.to_path_buf(), modules })
    }

    /// Prints a note if the exports of a kernel stay because nothing tells which modules ship.
    pub fn note_missing(build: &KernelBuild) {
        if build.is_enabled("CONFIG_MODULES") {
            eprintln!(
                "kshrink-spec: note: the kernel keeps all exported symbols and what they reach, because any module may \
                 use them; --modules DIR keeps only the exports that the modules in DIR use, --modules none keeps none"
            );
        }
    }

    /// Returns the section of the plan.
    ///
    /// # Errors
    /// Bad input if a module requires a symbol that neither the kernel nor another module defines.
    pub fn exports(self, program: &Program<'_>) -> Result<Exports, Failure> {
        let is_known = |name: &String| {
            program.find(name).is_some() || self.modules.iter().any(|module| module.defined.contains(name))
        };
        for module in &self.modules {
            if let Some(name) = module.required.iter().find(|name| !is_known(name)) {
                return Err(Failure::bad_input(format!(
                    "{}: it imports `{name}`, which neither the kernel nor another module defines; give the \
                     modules that were built with this kernel",
                    self.dir.join(&module.name).display()
                )));
            }
        }
        let modules = self.modules.into_iter().map(|module| Module {
            name: module.name,
            imports: module.required.union(&module.optional).cloned().collect(),
            strings: module.names.into_iter().filter(|name| program.find(name).is_some()).collect(),
        });
        Ok(Exports { modules: modules.collect() })
    }
}

impl ModuleFile {
    fn read(dir: &Path, path: &Path, build: &KernelBuild) -> Result<ModuleFile, Failure> {
        let bytes = decompressed(path)?;
        let object = Object::read(&path.display().to_string(), &bytes).map_err(Failure::of)?;
        if object.sections.iter().all(|section| section.name != THIS_MODULE) {
            return Err(Failure::bad_input(format!(
                "{}: this object is not a module: it has no section {THIS_MODULE}",
                path.display()
            )));
        }
        if object.machine != build.machine {
            return Err(Failure::bad_input(format!(
                "{}: this is a module for {}, but the kernel is for {}; give the modules that were built with this kernel",
                path.display(),
                object.machine,
                build.machine
            )));
        }
        let named = object.symbols.iter().filter(|symbol| !symbol.is_local() && !symbol.name.is_empty());
        let (undefined, defined): (Vec<_>, Vec<_>) =
            named.partition(|symbol| symbol.place == Place::Undefined);
        let (optional, required): (Vec<_>, Vec<_>) =
            undefined.into_iter().partition(|symbol| symbol.is_weak());
        let set =
            |symbols: Vec<&kelf::Symbol<'_>>| symbols.iter().map(|symbol| symbol.name.to_owned()).collect();
        let data = object.sections.iter().filter(|section| section.is_allocated() && !section.is_code());
        Ok(ModuleFile {
            name: path.strip_prefix(dir).unwrap_or(path).display().to_string(),
            required: set(required),
            optional: set(optional),
            defined: set(defined),
            names: data.flat_map(|section| names_in(&section.data)).map(str::to_owned).collect(),
        })
    }
}

/// Finds the modules in a directory and below it.
fn find(dir: &Path, paths: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for entry in fs::read_dir(dir).map_err(|error| cannot_read(dir, &error))? {
        let entry = entry.map_err(|error| cannot_read(dir, &error))?;
        let path = entry.path();
        let is_link = entry.file_type().map_err(|error| cannot_read(&path, &error))?.is_symlink();
        if path.is_dir() {
            if !is_link {
                find(&path, paths)?;
            }
        } else if is_module_name(&entry.file_name().to_string_lossy()) {
            paths.push(path);
        }
    }
    Ok(())
}

fn is_module_name(name: &str) -> bool {
    ["", ".gz", ".xz", ".zst"].iter().any(|compressed| {
        name.strip_suffix(compressed).is_some_and(|name| name.len() > 3 && name.ends_with(".ko"))
    })
}

/// Returns the bytes of a module, decompressed if necessary: like the kernel's build and kmod, this goes by the file
/// name. If the file is not an object, reads only its head.
fn decompressed(path: &Path) -> Result<Vec<u8>, Failure> {
    let file = BufReader::new(File::open(path).map_err(|error| cannot_read(path, &error))?);
    let bytes = match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz") => read_all(MultiGzDecoder::new(file)),
        Some("xz") => read_all(XzDecoder::new(file)),
        Some("zst") => zstd::Decoder::with_buffer(file).and_then(read_all),
        _ => return read_all(file).map_err(|error| cannot_read(path, &error)),
    };
    bytes.map_err(|error| {
        Failure::bad_input(format!(
            "{}: it cannot be decompressed: {error}; the file is damaged, install the module again",
            path.display()
        ))
    })
}

fn read_all(from: impl Read) -> io::Result<Vec<u8>> {
    let bytes = kelf::read_if(from.take(LARGEST + 1), kelf::is_object)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::other("it has more than 1 GiB"));
    }
    Ok(bytes)
}

fn cannot_read(path: &Path, error: &io::Error) -> Failure {
    Failure::job(format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_have_names() {
        for name in ["dummy.ko", "dummy.ko.gz", "snd-ac97.ko.xz", "a.ko.zst"] {
            assert!(is_module_name(name), "{name}");
        }
        for name in [".ko", "dummy.o", "dummy.ko.bz2", "modules.dep", "ko.gz", "dummy.ko.old"] {
            assert!(!is_module_name(name), "{name}");
        }
    }
}
