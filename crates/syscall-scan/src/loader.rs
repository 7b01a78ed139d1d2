//! Loading: from a program in a root file system to all files of its process.
//!
//! The files that a program needs are loaded as the dynamic linker loads them. Libraries that it may load later, by a
//! name in its data, are added to the process as well. They count once code requests them ([`crate::by_name`]), so that
//! nothing has to be loaded, linked and explored again.
//!
//! Libraries are read once and shared by all processes.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use indexmap::IndexSet;
use kelf::Machine;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Error;
use crate::image::{Asker, Dynamic, Member, MemberIndex, Named, Object, Process};
use crate::search::{Asking, Directories, candidates};
use crate::sysroot::Sysroot;

/// Maximum number of files in a process. Desktop programs have some hundred.
const MAX_MEMBERS: usize = 4096;

/// Patterns of glibc for the names of name service switch modules. It composes the names at run time, so that no other
/// string names them.
const NSS_PATTERNS: [&str; 2] = ["libnss_%s.so%s", "libnss_"];

/// The services of the name service switch that are tried if `/etc/nsswitch.conf` names none.
const NSS_DEFAULTS: [&str; 6] = ["files", "dns", "compat", "nis", "nisplus", "db"];

/// The function that glibc looks up first in a character conversion module.
const GCONV_INIT: &str = "gconv_init";

/// Libraries that the user names because the program's code does not reveal them.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// Libraries that every program may load, by name or path.
    pub libraries: Vec<Given>,
    /// Directories whose shared objects every program may load.
    pub directories: Vec<Given>,
}

/// A library or a directory of libraries that the user names, and optionally the place that loads it by an unknown
/// name: `plugin.so`, or `plugin.so@/usr/bin/program:0x1234`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// The library or the directory.
    pub name: String,
    /// The place that loads it.
    pub asker: Option<Asker>,
}

impl FromStr for Given {
    type Err = String;

    fn from_str(text: &str) -> Result<Given, String> {
        let (name, asker) = match text.rsplit_once('@') {
            Some((name, place)) => (name, Some(Asker::read(place))),
            None => (text, None),
        };
        match asker {
            _ if name.is_empty() => Err("expected a name before @".to_owned()),
            Some(None) => Err("expected @FILE, @0xADDRESS or @FILE:0xADDRESS after the name".to_owned()),
            asker => Ok(Given { name: name.to_owned(), asker: asker.flatten() }),
        }
    }
}

/// Loads programs from one root file system.
#[derive(Debug)]
pub struct Loader {
    root: Sysroot,
    directories: Directories,
    extra: Extra,
    /// Libraries by path with links resolved; `None` if a library cannot be read.
    libraries: Mutex<FxHashMap<PathBuf, Option<Arc<Object>>>>,
    /// The imports of the character conversion modules of a directory; see [`Loader::conversions`].
    conversions: Mutex<FxHashMap<(PathBuf, Machine), Arc<Conversions>>>,
}

/// The character conversion modules of glibc.
#[derive(Debug, Default)]
struct Conversions {
    /// The functions that they call.
    imports: Vec<Box<[u8]>>,
    /// The modules that may enter the kernel themselves.
    suspicious: Vec<PathBuf>,
}

/// A process under construction.
struct Assembly<'l> {
    loader: &'l Loader,
    process: Process,
    /// The load of each member.
    loads: Vec<Load>,
    by_path: FxHashMap<PathBuf, MemberIndex>,
    musl: bool,
    machine: Machine,
}

/// The circumstances of a member's load.
struct Load {
    /// Its directory, with links resolved.
    origin: PathBuf,
    /// The member that first requested it.
    by: Option<MemberIndex>,
    /// Whether its dependencies have been loaded.
    is_complete: bool,
}

impl Load {
    fn new(path: &Path, by: Option<MemberIndex>) -> Load {
        Load { origin: path.parent().unwrap_or(Path::new("/")).to_owned(), by, is_complete: false }
    }
}

impl Loader {
    /// Creates a loader for the programs of a root file system.
    pub fn new(root: Sysroot, extra: Extra) -> Loader {
        Loader {
            directories: Directories::of(&root),
            root,
            extra,
            libraries: Mutex::default(),
            conversions: Mutex::default(),
        }
    }

    /// Returns the root file system.
    pub fn root(&self) -> &Sysroot {
        &self.root
    }

    /// Builds the process of a program, or of a library by itself. `path` is its path in the root file system with
    /// links resolved; reports call it `file`.
    ///
    /// # Errors
    /// If a file that it needs is missing or cannot be read.
    pub fn load(&self, mut object: Object, path: &Path, file: &str) -> Result<Process, Error> {
        self.read_debugging_file(&mut object);
        let machine = object.machine;
        let interpreter = object.interpreter.clone();
        let is_dynamic =
            interpreter.is_some() || object.dynamic.as_ref().is_some_and(|d| !d.needed.is_empty());
        let process = Process::single(object, file);
        let mut assembly = Assembly {
            loader: self,
            process,
            loads: vec![Load::new(path, None)],
            by_path: FxHashMap::from_iter([(path.to_owned(), MemberIndex::FIRST)]),
            musl: interpreter.as_deref().is_some_and(is_musl),
            machine,
        };
        let given = self.extra.libraries.iter().chain(&self.extra.directories);
        assembly.process.settled = given.filter_map(|given| given.asker.clone()).collect();
        if is_dynamic {
            assembly.load_needed(interpreter.as_deref())?;
            assembly.load_extra()?;
            assembly.load_by_name();
        }
        Ok(assembly.process)
    }

    /// Returns the paths of the shared objects in a directory of the root file system.
    pub fn shared_objects(&self, directory: &Path) -> Vec<String> {
        let names = self.root.names(directory).into_iter();
        let shared = names.filter(|name| name.to_string_lossy().contains(".so"));
        shared.map(|name| directory.join(name).to_string_lossy().into_owned()).collect()
    }

    /// Returns a library, which is read once.
    fn library(&self, path: &Path) -> Option<Arc<Object>> {
        let lock = || self.libraries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(path) {
            return known.clone();
        }
        let read = || {
            let mut object = Object::read(&self.root.read_object(path).ok()?).ok()?;
            self.read_debugging_file(&mut object);
            Some(Arc::new(object))
        };
        let object = read();
        lock().entry(path.to_owned()).or_insert(object).clone()
    }

    /// Reads the debugging file of an object, which has the sizes of its variables. A file installed on this machine
    /// for the identical object serves as well as one in the root file system.
    fn read_debugging_file(&self, object: &mut Object) {
        let Some(path) = object.debugging_file() else { return };
        let here = || kelf::read_file_if(&path, Object::is_object).ok();
        if let Some(bytes) = self.root.read_object(&path).ok().or_else(here) {
            object.add_debugging_file(&bytes);
        }
    }

    /// Returns the services that `/etc/nsswitch.conf` names.
    fn services(&self) -> Vec<String> {
        let text = self.root.text("/etc/nsswitch.conf");
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or(""));
        let services = lines.filter_map(|line| line.split_once(':')).flat_map(|(_, services)| {
            services.split_whitespace().filter(|word| !word.starts_with('[') && !word.ends_with(']'))
        });
        let services = services.map(str::to_owned).chain(NSS_DEFAULTS.map(str::to_owned));
        let mut services: Vec<String> = services.collect();
        services.sort_unstable();
        services.dedup();
        services
    }

    /// Returns the character conversion modules in a directory, taken together: there are hundreds, which convert bytes
    /// in memory and call the C library for further conversions.
    fn conversions(&self, directory: &Path, machine: Machine) -> Arc<Conversions> {
        let key = (directory.to_owned(), machine);
        let lock = || self.conversions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&key) {
            return Arc::clone(known);
        }
        let mut conversions = Conversions::default();
        let mut imports = FxHashSet::default();
        for name in self.root.names(directory) {
            let Some(path) = self.root.resolve(&directory.join(name)) else { continue };
            let Some(object) = self.library(&path).filter(|object| object.machine == machine) else {
                continue;
            };
            if object.may_enter_kernel() {
                conversions.suspicious.push(path);
            }
            let called = object.dynamic_symbols().filter(|symbol| !symbol.defined && symbol.kind.is_code());
            imports.extend(called.map(|symbol| symbol.name.clone()));
        }
        conversions.imports = imports.into_iter().collect();
        conversions.imports.sort_unstable();
        Arc::clone(lock().entry(key).or_insert(Arc::new(conversions)))
    }
}

impl Assembly<'_> {
    /// Loads the interpreter and everything that is needed from the start.
    fn load_needed(&mut self, interpreter: Option<&str>) -> Result<(), Error> {
        if let Some(name) = interpreter {
            let missing = || Error::Missing { name: name.to_owned(), by: "its program header".to_owned() };
            let path = self.loader.root.resolve(Path::new(name)).ok_or_else(missing)?;
            let object = self.loader.library(&path).ok_or_else(missing)?;
            if object.machine != self.machine {
                return Err(missing());
            }
            let member = self.add(path, object, None);
            self.process.members[member.get()].at_start = true;
            self.process.interpreter = Some(member);
        }
        for name in self.loader.root.text("/etc/ld.so.preload").split([' ', ':', '\t', '\n']) {
            if let Some(member) = self.find(name, MemberIndex::FIRST).filter(|_| !self.musl) {
                self.process.preloaded.push(member);
            }
        }
        let mut first = vec![MemberIndex::FIRST];
        first.extend(&self.process.preloaded);
        first.iter().try_for_each(|&member| self.load_closure(member))?;
        self.start(&first);
        Ok(())
    }

    /// Loads the libraries that the user has named.
    fn load_extra(&mut self) -> Result<(), Error> {
        let loader = self.loader;
        let mut paths: Vec<String> = loader.extra.libraries.iter().map(|given| given.name.clone()).collect();
        let named = paths.len();
        for directory in &loader.extra.directories {
            paths.extend(loader.shared_objects(Path::new(&directory.name)));
        }
        for (index, name) in paths.into_iter().enumerate() {
            let base = name.rsplit('/').next().unwrap_or(&name);
            self.process.given.push(base.to_owned());
            let Some(member) = self.find(&name, MemberIndex::FIRST) else {
                // A directory may hold libraries for several machines, but a library named by itself must match.
                if index < named && !self.exists_elsewhere(&name) {
                    return Err(Error::Missing { name, by: "--dlopen".to_owned() });
                }
                continue;
            };
            self.load_closure(member)?;
            self.process.members[member.get()].whole = true;
            self.process.named.push(Named { strings: Vec::new(), member: Some(member), imports: Vec::new() });
            self.start(&[member]);
        }
        Ok(())
    }

    /// Returns whether a library exists, possibly for another machine.
    fn exists_elsewhere(&self, name: &str) -> bool {
        name.contains('/') && self.loader.root.is_file(Path::new(name))
            || !name.contains('/')
                && self.paths(name, MemberIndex::FIRST).iter().any(|p| self.loader.root.is_file(p))
    }

    /// Adds the libraries to the process that members may request later, by names in their data.
    fn load_by_name(&mut self) {
        let mut found: FxHashSet<String> = FxHashSet::default();
        let mut tried: FxHashSet<(String, MemberIndex)> = FxHashSet::default();
        let mut next = 0;
        let (mut services, mut asks) = (false, false);
        while next < self.process.members.len() {
            let asking = MemberIndex(next as u32);
            next += 1;
            let object = Arc::clone(&self.process.members[asking.get()].object);
            if !asks && self.process.members.iter().any(|member| member.object.asks_by_name()) {
                // An earlier member may have passed the name to the requesting one.
                (asks, next) = (true, 0);
                continue;
            }
            if !asks && !object.is_c_library() {
                continue;
            }
            for name in &object.library_names {
                // Linkers merge strings: one may be the tail of another.
                let base = name.rsplit_once('/').map(|(_, base)| base);
                for name in [Some(name.as_str()), base].into_iter().flatten() {
                    let load = |assembly: &mut Self, asking| {
                        assembly.load_named(name, vec![name.to_owned()], asking).is_some()
                    };
                    if !found.contains(name) && load(self, asking) {
                        found.insert(name.to_owned());
                    }
                    for asking in self.askers(asking) {
                        if tried.insert((name.to_owned(), asking)) {
                            load(self, asking);
                        }
                    }
                }
            }
            if object.is_c_library() && !std::mem::replace(&mut services, true) && !self.musl {
                for service in self.loader.services() {
                    let strings = NSS_PATTERNS.map(str::to_owned).to_vec();
                    let name = format!("libnss_{service}.so.2");
                    if let Some(member) = self.load_named(&name, strings, asking) {
                        self.process.members[member.get()].whole = true;
                    }
                }
                self.load_conversions(&object, asking);
            }
        }
    }

    /// Returns the members that may request a name in another member's data and that have search directories of their
    /// own.
    fn askers(&self, holder: MemberIndex) -> Vec<MemberIndex> {
        let looks = |object: &Object| {
            let directories = |dynamic: &Dynamic| dynamic.runpath.is_some() || dynamic.rpath.is_some();
            object.asks_by_name() && object.dynamic.as_ref().is_some_and(directories)
        };
        let members = self.process.members.iter().enumerate();
        let others = members.filter(|(_, member)| looks(&member.object));
        let others = others.map(|(index, _)| MemberIndex(index as u32));
        others.filter(|&other| other != holder).collect()
    }

    fn load_conversions(&mut self, c_library: &Object, asking: MemberIndex) {
        for directory in &c_library.conversion_directories {
            let conversions = self.loader.conversions(Path::new(directory), self.machine);
            for path in &conversions.suspicious {
                let strings = vec![GCONV_INIT.to_owned()];
                if let Some(member) = self.load_named(&path.to_string_lossy(), strings, asking) {
                    self.process.members[member.get()].whole = true;
                }
            }
            self.process.named.push(Named {
                strings: vec![GCONV_INIT.to_owned()],
                member: None,
                imports: conversions.imports.clone(),
            });
        }
    }

    /// Adds a library and its dependencies to the process, to be requested by any of `strings`. If a dependency is
    /// missing, the library cannot be loaded, and is not added.
    fn load_named(&mut self, name: &str, strings: Vec<String>, asking: MemberIndex) -> Option<MemberIndex> {
        let (members, known) = (self.process.members.len(), self.process.members.clone());
        let member = self.find(name, asking)?;
        if self.load_closure(member).is_err() {
            // Undo the loads.
            self.by_path.retain(|_, member| member.get() < members);
            self.loads.truncate(members);
            self.process.members = known;
            self.process.variants.retain(|(member, _)| member.get() < members);
            return None;
        }
        self.process.named.push(Named { strings, member: Some(member), imports: Vec::new() });
        Some(member)
    }

    /// Loads the dependencies of a member, breadth first.
    fn load_closure(&mut self, first: MemberIndex) -> Result<(), Error> {
        let mut closure = IndexSet::from([first]);
        let mut next = 0;
        while let Some(&member) = closure.get_index(next) {
            next += 1;
            if !std::mem::replace(&mut self.loads[member.get()].is_complete, true) {
                let object = Arc::clone(&self.process.members[member.get()].object);
                let names = object.dynamic.as_ref().map_or(&[][..], |dynamic| &dynamic.needed);
                for name in names {
                    let needed = self.find(name, member).ok_or_else(|| {
                        let by = self.process.members[member.get()].file.to_string();
                        Error::Missing { name: name.clone(), by }
                    })?;
                    self.process.members[member.get()].needed.push(needed);
                }
            }
            closure.extend(&self.process.members[member.get()].needed);
        }
        Ok(())
    }

    /// Marks members and all their dependencies as loaded at program start.
    fn start(&mut self, members: &[MemberIndex]) {
        for member in self.process.closure(members) {
            self.process.members[member.get()].at_start = true;
        }
    }

    /// Returns the member that a name denotes for `asking`, added if it is new.
    fn find(&mut self, name: &str, asking: MemberIndex) -> Option<MemberIndex> {
        if name.is_empty() {
            return None;
        }
        // musl combines all its libraries in one file, which is also its interpreter.
        let builtin = ["libc.", "libpthread.", "librt.", "libm.", "libdl.", "libutil.", "libxnet."];
        if self.musl && builtin.iter().any(|prefix| name.starts_with(prefix)) {
            return self.process.interpreter;
        }
        let soname = |member: &Member| {
            let dynamic = member.object.dynamic.as_ref();
            dynamic.and_then(|dynamic| dynamic.soname.as_deref()) == Some(name)
        };
        if let Some(known) = self.process.members.iter().position(soname) {
            return Some(MemberIndex(known as u32));
        }
        for wanted in self.paths(name, asking) {
            let Some(path) = self.loader.root.resolve(&wanted) else { continue };
            if let Some(&known) = self.by_path.get(&path) {
                return Some(known);
            }
            let object = self.loader.library(&path).filter(|object| object.machine == self.machine);
            let Some(object) = object else { continue };
            if self.process.members.len() >= MAX_MEMBERS || object.fixed {
                return None;
            }
            let variants = self.variants(&wanted, name);
            let member = self.add(path, object, Some(asking));
            self.process.variants.extend(variants.into_iter().map(|variant| (member, variant)));
            return Some(member);
        }
        None
    }

    /// Returns the files that glibc uses in place of a library on some processors, such as `x86-64-v3`.
    fn variants(&self, path: &Path, name: &str) -> Vec<String> {
        let root = &self.loader.root;
        let Some(directory) = path.parent().filter(|_| !self.musl) else { return Vec::new() };
        let directory = directory.join("glibc-hwcaps");
        let kinds = root.names(&directory).into_iter();
        let paths = kinds.map(|kind| directory.join(kind).join(name));
        paths.filter(|path| root.is_file(path)).map(|path| path.display().to_string()).collect()
    }

    /// Returns the paths to try for a name.
    fn paths(&self, name: &str, asking: MemberIndex) -> Vec<PathBuf> {
        let mut chain = Vec::new();
        let mut next = Some(asking);
        while let Some(member) = next {
            let object = &*self.process.members[member.get()].object;
            let Load { origin, by, .. } = &self.loads[member.get()];
            chain.push((object, origin.as_path()));
            next = *by;
        }
        if self.loads[asking.get()].by.is_none() && asking != MemberIndex::FIRST {
            chain.push((&*self.process.members[0].object, self.loads[0].origin.as_path()));
        }
        let asking = Asking { chain, musl: self.musl };
        candidates(&self.loader.root, &self.loader.directories, name, &asking)
    }

    fn add(&mut self, path: PathBuf, object: Arc<Object>, by: Option<MemberIndex>) -> MemberIndex {
        let index = MemberIndex(self.process.members.len() as u32);
        let file = path.to_string_lossy().into();
        let member = Member { object, file, at_start: false, whole: false, needed: Vec::new() };
        self.process.members.push(member);
        self.loads.push(Load::new(&path, by));
        self.by_path.insert(path, index);
        index
    }
}

/// Returns whether an interpreter is that of musl.
fn is_musl(interpreter: &str) -> bool {
    interpreter.rsplit('/').next().is_some_and(|name| name.starts_with("ld-musl"))
}
