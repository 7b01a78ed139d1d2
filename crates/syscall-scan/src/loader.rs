//! From a program in a root file system to all the files of its process.
//!
//! What a program needs is loaded as the dynamic linker loads it. Libraries that it may load later, by a name in its
//! data, are put into the process as well. They count once code asks for them ([`crate::by_name`]), so that nothing
//! has to be loaded, linked and explored again.
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

/// How many files a process may have. Desktop programs have some hundred.
const MAX_MEMBERS: usize = 4096;

/// How the C library of GNU names modules of the name service switch. It puts their names together when it
/// runs, so that this is the only string there is.
const NSS_PATTERNS: [&str; 2] = ["libnss_%s.so%s", "libnss_"];

/// The services of the name service switch that are tried where `/etc/nsswitch.conf` does not say.
const NSS_DEFAULTS: [&str; 6] = ["files", "dns", "compat", "nis", "nisplus", "db"];

/// The function that the C library of GNU asks a character conversion module for first.
const GCONV_INIT: &str = "gconv_init";

/// What the user says about names that the program does not tell.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// Libraries that every program may load, by name or path.
    pub libraries: Vec<Given>,
    /// Directories whose shared objects every program may load.
    pub directories: Vec<Given>,
}

/// A library or a directory of libraries that the user names, and who asks for it by a name that is not known:
/// `plugin.so`, or `plugin.so@/usr/bin/program:0x1234`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// The library or the directory.
    pub name: String,
    /// The place that asks for it.
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
            _ if name.is_empty() => Err("expected a name in front of @".to_owned()),
            Some(None) => Err("expected @FILE, @0xADDRESS or @FILE:0xADDRESS behind the name".to_owned()),
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
    /// Libraries by path, links followed; `None` if it cannot be read.
    libraries: Mutex<FxHashMap<PathBuf, Option<Arc<Object>>>>,
    /// What the character conversion modules of a directory import; see [`Loader::conversions`].
    conversions: Mutex<FxHashMap<(PathBuf, Machine), Arc<Conversions>>>,
}

/// The character conversion modules of the C library of GNU.
#[derive(Debug, Default)]
struct Conversions {
    /// The functions that they call.
    imports: Vec<Box<[u8]>>,
    /// Those that may enter the kernel themselves.
    suspicious: Vec<PathBuf>,
}

/// A process being put together.
struct Assembly<'l> {
    loader: &'l Loader,
    process: Process,
    /// By member, how it was loaded.
    loads: Vec<Load>,
    by_path: FxHashMap<PathBuf, MemberIndex>,
    musl: bool,
    machine: Machine,
}

/// How a member was loaded.
struct Load {
    /// Its directory, links followed.
    origin: PathBuf,
    /// The member that first asked for it.
    by: Option<MemberIndex>,
    /// Whether what it needs has been loaded.
    is_complete: bool,
}

impl Load {
    fn new(path: &Path, by: Option<MemberIndex>) -> Load {
        Load { origin: path.parent().unwrap_or(Path::new("/")).to_owned(), by, is_complete: false }
    }
}

impl Loader {
    /// A loader for the programs of a root file system.
    pub fn new(root: Sysroot, extra: Extra) -> Loader {
        Loader {
            directories: Directories::of(&root),
            root,
            extra,
            libraries: Mutex::default(),
            conversions: Mutex::default(),
        }
    }

    /// The root file system.
    pub fn root(&self) -> &Sysroot {
        &self.root
    }

    /// Puts together the process of a program, or of a library by itself. `path` is where it lies in the root
    /// file system, links followed; `file` is how reports name it.
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

    /// The paths of the shared objects in a directory of the root file system.
    pub fn shared_objects(&self, directory: &Path) -> Vec<String> {
        let names = self.root.names(directory).into_iter();
        let shared = names.filter(|name| name.to_string_lossy().contains(".so"));
        shared.map(|name| directory.join(name).to_string_lossy().into_owned()).collect()
    }

    /// A library, read once.
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

    /// Reads the debugging file of an object, which tells how large its variables are. One that is installed
    /// here for the very same object is as good as one in the root file system.
    fn read_debugging_file(&self, object: &mut Object) {
        let Some(path) = object.debugging_file() else { return };
        let here = || kcli::read_file_if(&path, Object::is_object).ok();
        if let Some(bytes) = self.root.read_object(&path).ok().or_else(here) {
            object.add_debugging_file(&bytes);
        }
    }

    /// The services that `/etc/nsswitch.conf` names.
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

    /// The character conversion modules in a directory, taken together: there are hundreds, which convert
    /// bytes in memory and call the C library for more of that.
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

    /// Loads what the user has named.
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
                // A directory may hold libraries of several machines; a name that is given is meant.
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

    /// Whether a library exists, if not for this machine.
    fn exists_elsewhere(&self, name: &str) -> bool {
        name.contains('/') && self.loader.root.is_file(Path::new(name))
            || !name.contains('/')
                && self.paths(name, MemberIndex::FIRST).iter().any(|p| self.loader.root.is_file(p))
    }

    /// Puts libraries into the process that members may ask for later, by names that are in their data.
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
                // Whoever asks may have been given the name by those that came before.
                (asks, next) = (true, 0);
                continue;
            }
            if !asks && !object.is_c_library() {
                continue;
            }
            for name in &object.library_names {
                // Linkers let one string be the end of another.
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

    /// Who may ask for a name that is in the data of another member, and has directories of its own to look in.
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

    /// Puts a library and what it needs into the process, to be asked for by any of these strings. Where a file
    /// is missing it cannot be loaded, and is not.
    fn load_named(&mut self, name: &str, strings: Vec<String>, asking: MemberIndex) -> Option<MemberIndex> {
        let (members, known) = (self.process.members.len(), self.process.members.clone());
        let member = self.find(name, asking)?;
        if self.load_closure(member).is_err() {
            // Take back what was loaded for nothing.
            self.by_path.retain(|_, member| member.get() < members);
            self.loads.truncate(members);
            self.process.members = known;
            self.process.variants.retain(|(member, _)| member.get() < members);
            return None;
        }
        self.process.named.push(Named { strings, member: Some(member), imports: Vec::new() });
        Some(member)
    }

    /// Loads what a member needs, breadth first.
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

    /// Says that members and all that they need are there when the program starts.
    fn start(&mut self, members: &[MemberIndex]) {
        for member in self.process.closure(members) {
            self.process.members[member.get()].at_start = true;
        }
    }

    /// The member that a name stands for when `asking` asks, added if it is new.
    fn find(&mut self, name: &str, asking: MemberIndex) -> Option<MemberIndex> {
        if name.is_empty() {
            return None;
        }
        // musl is all its libraries in one, and its own interpreter.
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

    /// The files that glibc takes in place of a library on processors of some kind, `x86-64-v3` say.
    fn variants(&self, path: &Path, name: &str) -> Vec<String> {
        let root = &self.loader.root;
        let Some(directory) = path.parent().filter(|_| !self.musl) else { return Vec::new() };
        let directory = directory.join("glibc-hwcaps");
        let kinds = root.names(&directory).into_iter();
        let paths = kinds.map(|kind| directory.join(kind).join(name));
        paths.filter(|path| root.is_file(path)).map(|path| path.display().to_string()).collect()
    }

    /// The paths to try for a name.
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

/// Whether an interpreter is that of musl.
fn is_musl(interpreter: &str) -> bool {
    interpreter.rsplit('/').next().is_some_and(|name| name.starts_with("ld-musl"))
}
