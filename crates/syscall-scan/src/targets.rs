//! Scans of the files that the command line names.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kcli::{Failure, OrBadInput, Progress, read_input_if};
use kplan::{Syscalls, Unresolved, UnresolvedKind};
use syscall_scan::image::Object;
use syscall_scan::loader::{Extra, Loader};
use syscall_scan::programs::{RootContents, processes, walk};
use syscall_scan::sysroot::Sysroot;
use syscall_scan::{Error, Scan, report, scan, why};

use crate::options::Options;

/// The size of a thread's stack in bytes. Values are followed from function to function by recursion, some hundred
/// levels deep; unused stack costs nothing.
const STACK: usize = 64 << 20;

/// Gives the threads of a scan stacks that are large enough.
pub fn prepare_threads() -> Result<(), Failure> {
    Ok(rayon::ThreadPoolBuilder::new().stack_size(STACK).build_global()?)
}

/// Scans the named files, or else the whole root file system.
pub fn scan_all(options: &Options) -> Result<Syscalls, Failure> {
    let loader = loader(options)?;
    if options.files.is_empty() {
        return scan_root(options, &loader);
    }
    let notes = Notes::default();
    let mut found = Syscalls::default();
    for path in &options.files {
        let (bytes, inside) = read(options, &loader, path)?;
        let file = path.display().to_string();
        let scanned = scan_program(options, &loader, &bytes, &inside, &file, &notes);
        found.merge(scanned.map_err(|error| Failure::bad_input(format!("{file}: {error}")))?);
        notes.lock().scanned.insert(inside);
    }
    if options.with_children {
        scan_children(options, &loader, &notes, &mut found);
    }
    notes.print();
    Ok(found)
}

/// Scans the programs that the scanned ones start, until no new one is found. A program that cannot be scanned, or whose
/// path is unknown, makes the result incomplete.
fn scan_children(options: &Options, loader: &Loader, notes: &Notes, found: &mut Syscalls) {
    loop {
        let next = notes.lock().children.pop_first();
        let Some((path, parent)) = next else { break };
        if !Path::new(&path).is_absolute() {
            add_unresolved(found, &parent, &format!("it starts {path}, whose directory is unknown"));
            continue;
        }
        let Some(inside) = loader.root().resolve(Path::new(&path)) else {
            eprintln!("syscall-scan: warning: {parent}: starts {path}, which does not exist");
            continue;
        };
        if !notes.lock().scanned.insert(inside.clone()) {
            continue;
        }
        let bytes = loader.root().read_object(&inside).map_err(|error| error.to_string());
        let scanned = bytes.and_then(|bytes| {
            scan_program(options, loader, &bytes, &inside, &path, notes).map_err(|error| error.to_string())
        });
        match scanned {
            Ok(scanned) => found.merge(scanned),
            Err(reason) => {
                add_unresolved(
                    found,
                    &path,
                    &format!("{parent} starts it, but it cannot be scanned: {reason}"),
                );
            }
        }
    }
    for (parent, reason) in &notes.lock().unknown {
        add_unresolved(
            found,
            parent,
            &format!("it starts programs whose paths are unknown; name them too ({reason})"),
        );
    }
}

/// Makes the calls incomplete, for each machine: a program that was not scanned may be for any.
fn add_unresolved(found: &mut Syscalls, file: &str, reason: &str) {
    for calls in found.abis.values_mut() {
        calls.complete = false;
        calls.unresolved.push(Unresolved {
            file: file.to_owned(),
            address: "0x0".to_owned(),
            function: None,
            kind: UnresolvedKind::Code,
            reason: reason.to_owned(),
        });
    }
}

/// What scans find besides system calls.
#[derive(Default)]
struct Notes(Mutex<NotedFiles>);

#[derive(Default)]
struct NotedFiles {
    /// Libraries that programs load by name and that the root file system lacks, see [`syscall_scan::Scan`].
    absent: BTreeSet<(Arc<str>, String)>,
    /// The paths of programs to scan, each with the program that starts it.
    children: BTreeMap<String, String>,
    /// The programs that start others by unknown paths, each with one place and the reason.
    unknown: BTreeMap<String, String>,
    /// The paths of the scanned programs, with links resolved.
    scanned: BTreeSet<PathBuf>,
}

impl Notes {
    fn lock(&self) -> MutexGuard<'_, NotedFiles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the notes of a scan of `file`.
    fn add(&self, file: &str, scan: Scan, with_children: bool) {
        let mut notes = self.lock();
        notes.absent.extend(scan.absent);
        if with_children {
            let paths = scan.children.paths.into_iter().map(|path| (path, file.to_owned()));
            notes.children.extend(paths);
            if let Some((place, reason)) = scan.children.unknown.first() {
                let place = report::place(&place.file, &place.address, &place.function);
                notes.unknown.insert(file.to_owned(), format!("{place}: {reason}"));
            }
        }
    }

    /// Prints a warning for each missing library, which programs may not need.
    fn print(self) {
        let notes = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (file, name) in notes.absent {
            eprintln!("syscall-scan: warning: {file}: loads {name}, which does not exist");
        }
    }
}

/// Returns the chain to a call in each process of the named files.
pub fn why_all(options: &Options, call: &str) -> Result<Vec<(String, Option<String>)>, Failure> {
    let loader = loader(options)?;
    let mut chains = Vec::new();
    for path in &options.files {
        let (bytes, inside) = read(options, &loader, path)?;
        let file = path.display().to_string();
        let failed = |error: Error| Failure::bad_input(format!("{file}: {error}"));
        for process in processes(&loader, &bytes, &inside, &file).map_err(failed)? {
            chains.push((file.clone(), why(&process, call).map_err(failed)?));
        }
    }
    Ok(chains)
}

/// Returns a loader for the root file system in the options.
fn loader(options: &Options) -> Result<Loader, Failure> {
    let root = match &options.root {
        Some(root) => root.canonicalize().map_err(|error| {
            Failure::bad_input(format!("{}: {error}; expected a root file system", root.display()))
        })?,
        None => PathBuf::from("/"),
    };
    if !root.is_dir() {
        return Err(Failure::bad_input(format!(
            "{}: not a directory; expected a root file system",
            root.display()
        )));
    }
    let extra = Extra { libraries: options.dlopen.clone(), directories: options.plugin_dir.clone() };
    let loader = Loader::new(Sysroot::new(root), extra);
    for directory in &options.plugin_dir {
        if loader.shared_objects(Path::new(&directory.name)).is_empty() {
            return Err(Failure::bad_input(format!(
                "--plugin-dir {}: expected a directory of shared objects (*.so), but {} has none",
                directory.name,
                loader.root().outside(Path::new(&directory.name)).display()
            )));
        }
    }
    Ok(loader)
}

/// Returns the content of a file, and its path in the root file system with links resolved.
fn read(options: &Options, loader: &Loader, path: &Path) -> Result<(Vec<u8>, PathBuf), Failure> {
    let root = loader.root();
    if let Some(directory) = options.root.as_ref().filter(|_| path != Path::new("-")) {
        // The path is in the root file system, or leads to a file in it.
        let inside = root.resolve(path).or_else(|| {
            let outside = path.canonicalize().ok()?;
            let inside = outside.strip_prefix(directory.canonicalize().ok()?).ok()?;
            Some(Path::new("/").join(inside))
        });
        let inside = inside.ok_or_else(|| {
            Failure::bad_input(format!("{}: no such file in {}", path.display(), directory.display()))
        })?;
        let bytes = root.read_object(&inside).map_err(|error| {
            Failure::job(format!("cannot read {}: {error}", root.outside(&inside).display()))
        })?;
        return Ok((bytes, inside));
    }
    let bytes = read_input_if(path, Object::is_object)?;
    let absolute = std::path::absolute(path).or_bad_input()?;
    let inside = root.resolve(&absolute).unwrap_or(absolute);
    Ok((bytes, inside))
}

/// Scans all processes of a file.
fn scan_program(
    options: &Options,
    loader: &Loader,
    bytes: &[u8],
    inside: &Path,
    file: &str,
    notes: &Notes,
) -> Result<Syscalls, Error> {
    let processes = processes(loader, bytes, inside, file)?;
    let section = |process| {
        let scan = scan(process)?;
        let section = report::section(file, &scan, options.sites);
        notes.add(file, scan, options.with_children);
        Ok(section)
    };
    processes.iter().map(section).collect()
}

/// Scans all programs of a root file system. A program that cannot be scanned makes the result incomplete.
fn scan_root(options: &Options, loader: &Loader) -> Result<Syscalls, Failure> {
    let spinner = Progress::spinner("looking for programs");
    let files = walk(loader.root());
    drop(spinner);
    let progress = Progress::bar(files.programs.len() as u64, "programs");
    let notes = Notes::default();
    let results = each(&files.programs, |path| {
        let file = path.display().to_string();
        let bytes = loader.root().read_object(path).map_err(|error| error.to_string());
        let result = bytes.and_then(|bytes| {
            scan_program(options, loader, &bytes, path, &file, &notes).map_err(|error| error.to_string())
        });
        progress.advance(1);
        result
    })?;
    drop(progress);
    notes.print();
    let mut failed: Vec<(&PathBuf, String)> =
        files.damaged.iter().map(|(path, error)| (path, error.to_string())).collect();
    let scanned = files.programs.iter().zip(results).filter_map(|(path, result)| {
        let failure = |reason| failed.push((path, reason));
        result.map_err(failure).ok()
    });
    let mut found: Syscalls = scanned.collect();
    if found.abis.is_empty() {
        return Err(Failure::bad_input(format!(
            "no program in {} could be scanned ({})",
            loader.root().outside(Path::new("/")).display(),
            summary(&files, failed.len())
        )));
    }
    for (path, reason) in &failed {
        eprintln!("syscall-scan: warning: {}: not scanned: {reason}", path.display());
        add_unresolved(&mut found, &path.display().to_string(), &format!("not scanned: {reason}"));
    }
    for path in &files.orphans {
        eprintln!("syscall-scan: warning: {}: a script whose interpreter is missing", path.display());
    }
    eprintln!("syscall-scan: {}", summary(&files, failed.len()));
    Ok(found)
}

/// Processes all paths, several at a time, and returns the results in order.
///
/// The threads are not rayon's: a rayon thread that waits for a part of a scan would start to scan another program
/// meanwhile, and so on, until its stack is full.
fn each<T: Send>(paths: &[PathBuf], work: impl Fn(&Path) -> T + Sync) -> io::Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(paths.len()));
    let lock = || done.lock().unwrap_or_else(PoisonError::into_inner);
    let take = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = paths.get(index) else { break };
            let result = work(path);
            lock().push((index, result));
        }
    };
    std::thread::scope(|scope| {
        (0..rayon::current_num_threads()).try_for_each(|_| {
            std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, take).map(drop)
        })
    })?;
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|&(index, _)| index);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

fn summary(files: &RootContents, failed: usize) -> String {
    format!(
        "{} programs scanned, {failed} failed; {} scripts, {} libraries, {} other files, {} unreadable",
        files.programs.len() + files.damaged.len() - failed,
        files.scripts,
        files.libraries,
        files.others,
        files.unreadable
    )
}
