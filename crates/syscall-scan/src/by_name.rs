//! Libraries (`dlopen`) and functions (`dlsym`) that code requests by name at run time.
//!
//! The names that a program passes are found like system call numbers: by constant propagation, continued in the
//! callers if a wrapper passes the name on. An unknown name is reported and makes the result incomplete; the user
//! resolves it by naming libraries for the place (`--dlopen LIB@PLACE`, `--plugin-dir DIR@PLACE`). The same holds for a
//! name that was not searched for: one that does not end in `.so` or a version, or is relative to the working
//! directory. A library that does not exist cannot be loaded, and is listed.
//!
//! The C library does not call its own `dlopen`. It loads a few libraries of its own accord: to unwind, to convert
//! characters, to look up hosts and users. A string constant in it that names a library of the root file system counts
//! as a request once live code refers to the string. A function of such a library counts as requested once live code of
//! the C library refers to its name. The C library composes two kinds of names at run time. For services in
//! `/etc/nsswitch.conf`, all functions count. Character conversion modules are treated together: every function that
//! any module imports counts for all.

use std::collections::BTreeSet;

use kisa::{Address, Addressing, Value};
use rustc_hash::FxHashSet;

use crate::code::{Code, ExitKind, References, Taken};
use crate::image::{Addr, Image, Loaded, ObjectIndex, SymbolKind};
use crate::resolve::Resolver;

/// The requesting functions, each with the index of the argument that is the name. Older C libraries use those with
/// underscores for their own libraries.
const ASKING: [(&str, usize, What); 6] = [
    ("dlopen", 0, What::Library),
    ("dlmopen", 1, What::Library),
    ("__libc_dlopen_mode", 0, What::Library),
    ("dlsym", 1, What::Function),
    ("dlvsym", 1, What::Function),
    ("__libc_dlsym", 1, What::Function),
];

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Library,
    Function,
}

/// The requests so far.
pub struct ByName<'a> {
    image: &'a Image,
    /// The requesting functions.
    asking: Vec<(Addr, usize, What)>,
    /// Whether each of the image's named objects has been requested.
    asked: Vec<bool>,
    /// The number of strings of the C library that have been processed.
    strings: usize,
    /// The functions that have been requested.
    functions: FxHashSet<Addr>,
    /// The instructions with an unknown request, and the reason.
    pub lost: Vec<(Addr, String)>,
    /// Requested libraries that the root file system does not contain, and the requesting instructions.
    pub absent: BTreeSet<(Addr, String)>,
}

impl<'a> ByName<'a> {
    /// Creates an empty set of requests.
    pub fn new(image: &'a Image) -> ByName<'a> {
        let mut asking = Vec::new();
        for (name, argument, what) in ASKING {
            asking.extend(functions(image, name.as_bytes()).map(|function| (function, argument, what)));
        }
        asking.sort_unstable_by_key(|&(function, ..)| function);
        asking.dedup_by_key(|&mut (function, ..)| function);
        ByName {
            image,
            asking,
            asked: vec![false; image.named.len()],
            strings: 0,
            functions: FxHashSet::default(),
            lost: Vec::new(),
            absent: BTreeSet::new(),
        }
    }

    /// Adds the requests of the code found so far. Returns whether any is new.
    pub fn follow(&mut self, code: &mut Code<'a>) -> bool {
        let mut any = match code.isa.addressing() {
            Addressing::Whole | Addressing::Pages => self.follow_strings(code),
            // References to strings are not recognised.
            Addressing::Literals => self.load_all(code),
        };
        self.lost.clear();
        let calls: Vec<(Addr, usize, What)> = self
            .asking
            .iter()
            .filter(|(function, ..)| code.entry(*function).is_some())
            .flat_map(|&(function, argument, what)| {
                calls_of(code, function).into_iter().map(move |at| (at, argument, what))
            })
            .collect();
        if calls.is_empty() {
            return any;
        }
        let references = References::new(code);
        let mut resolver = Resolver::new(code, &references);
        let names = calls.into_iter().map(|(at, argument, what)| {
            // Code that takes the address of such a function may call it with any name.
            let is_taken = code.entry(at).is_some_and(|entry| !entry.taken.is_empty());
            let anywhere = || Err("the function may be called from anywhere".to_owned());
            let found = if is_taken { anywhere() } else { find_names(&mut resolver, at, argument) };
            (at, what, found)
        });
        let names: Vec<_> = names.collect();
        drop(resolver);
        for (at, what, found) in names {
            match found {
                Ok(found) => {
                    for name in found {
                        any |= self.ask(code, at, what, &name);
                    }
                }
                Err(_) if self.image.is_settled(at) => {}
                Err(reason) => {
                    let what =
                        if what == What::Library { "a library is loaded" } else { "a function is looked up" };
                    self.lost.push((at, format!("{what} by an unknown name: {reason}")));
                }
            }
        }
        any
    }

    /// Adds every named object, with all its exports.
    fn load_all(&mut self, code: &mut Code<'a>) -> bool {
        let image = self.image;
        let mut any = false;
        for (index, named) in image.named.iter().enumerate() {
            any |= self.load(code, index, image.entry);
            let Some(library) = named.library else { continue };
            let loaded = &image.objects[library.get()];
            let exported = loaded.exported_functions();
            any |= self.take(code, exported.filter(|&address| image.is_code(address)).collect(), image.entry);
        }
        any
    }

    /// Adds the requests of the C library.
    fn follow_strings(&mut self, code: &mut Code<'a>) -> bool {
        let image = self.image;
        let new: Vec<Addr> = code.named_strings()[self.strings..].to_vec();
        self.strings += new.len();
        let mut any = false;
        for string in new {
            let Some(name) = image.string(string) else { continue };
            for index in 0..image.named.len() {
                if image.named[index].strings.iter().any(|known| known.as_bytes() == name) {
                    any |= self.load(code, index, string);
                }
            }
        }
        // Libraries and the names of their functions appear in any order.
        let libraries = image.named.iter().zip(&self.asked).filter(|(_, asked)| **asked);
        let libraries: Vec<ObjectIndex> = libraries.filter_map(|(named, _)| named.library).collect();
        for string in code.named_strings().to_vec().into_iter().filter(|_| !libraries.is_empty()) {
            let Some(name) = image.string(string).filter(|name| !name.is_empty()) else { continue };
            for &library in &libraries {
                let found: Vec<Addr> = functions_of(image, library, name).collect();
                any |= self.take(code, found, string);
            }
        }
        any
    }

    /// Adds a request by the instruction at `at`.
    fn ask(&mut self, code: &mut Code<'a>, at: Addr, what: What, name: &[u8]) -> bool {
        if what == What::Function {
            let found: Vec<Addr> = functions(self.image, name).collect();
            return self.take(code, found, at);
        }
        let mut any = false;
        let mut known = false;
        for index in 0..self.image.named.len() {
            if self.image.named[index].strings.iter().any(|known| known.as_bytes() == name) {
                known = true;
                any |= self.load(code, index, at);
            }
        }
        // A library named by the user counts from the beginning, for a request in any directory.
        let base = name.rsplit(|&byte| byte == b'/').next();
        known |= self.image.given.iter().any(|given| Some(given.as_bytes()) == base);
        // An empty name denotes the program itself.
        if !known && !name.is_empty() {
            let name = String::from_utf8_lossy(name).into_owned();
            match self.why_not_looked_for(&name) {
                None => drop(self.absent.insert((at, name))),
                Some(_) if self.image.is_settled(at) => {}
                Some(why) => self.lost.push((at, format!("{name} is loaded, {why}; name it with --dlopen"))),
            }
        }
        any
    }

    /// Returns why the process does not include a library of this name although it may exist.
    fn why_not_looked_for(&self, name: &str) -> Option<&'static str> {
        let is_relative = name.contains('/') && !name.starts_with(['/', '$']);
        if is_relative {
            return Some("from a path relative to the working directory");
        }
        let in_data = |loaded: &Loaded| loaded.object.library_names.iter().any(|known| known.ends_with(name));
        let looked_for = self.image.objects.iter().any(in_data);
        (!looked_for).then_some("whose name does not end in .so or a version")
    }

    fn load(&mut self, code: &mut Code<'a>, index: usize, at: Addr) -> bool {
        if std::mem::replace(&mut self.asked[index], true) {
            return false;
        }
        let named = &self.image.named[index];
        named.objects.iter().for_each(|object| code.activate(object.get()));
        self.take(code, named.functions.clone(), at);
        true
    }

    fn take(&mut self, code: &mut Code<'a>, found: Vec<Addr>, at: Addr) -> bool {
        let mut any = false;
        for function in found {
            if self.functions.insert(function) {
                if code.image.is_code(function) {
                    code.take(function, Taken::Named(at));
                } else {
                    code.open(function);
                }
                any = true;
            }
        }
        any
    }
}

/// Returns the functions of this name in all objects of an image.
fn functions<'a>(image: &'a Image, name: &'a [u8]) -> impl Iterator<Item = Addr> + 'a {
    image.indices().flat_map(move |index| functions_of(image, index, name))
}

/// Returns the functions and variables of this name in one object.
fn functions_of<'a>(
    image: &'a Image,
    object: ObjectIndex,
    name: &'a [u8],
) -> impl Iterator<Item = Addr> + 'a {
    let loaded = &image.objects[object.get()];
    let found = loaded
        .object
        .exports(name)
        .filter(|symbol| !symbol.absolute && symbol.kind != SymbolKind::ThreadLocal);
    found.filter_map(|symbol| {
        let address = loaded.address(symbol.value);
        (symbol.kind == SymbolKind::Object || image.is_code(address)).then_some(address)
    })
}

/// Returns the instructions that call or jump to a function, except procedure linkage tables, and the function itself
/// if its address is taken.
pub(crate) fn calls_of(code: &Code, function: Addr) -> Vec<Addr> {
    let mut calls = Vec::new();
    let mut seen = FxHashSet::from_iter([function]);
    let mut stack = vec![function];
    while let Some(function) = stack.pop() {
        let Some(entry) = code.entry(function) else { continue };
        if !entry.taken.is_empty() {
            calls.push(function);
        }
        calls.extend(entry.callers.iter().map(|&exit| code.exit(exit).at));
        for &exit in code.incoming(function) {
            let exit = code.exit(exit);
            if matches!(exit.kind, ExitKind::Call(_)) {
                continue;
            }
            let is_linkage =
                |at| code.image.object_at(at).is_some_and(|loaded: &Loaded| loaded.is_linkage(at));
            let functions = code.functions_of(exit.at);
            // A function that jumps to a stub, rather than calling it, contains the stub.
            if functions.iter().all(|&function| is_linkage(function)) {
                stack.extend(functions.into_iter().filter(|&stub| seen.insert(stub)));
            } else {
                calls.push(exit.at);
            }
        }
    }
    calls.sort_unstable();
    calls.dedup();
    calls
}

/// Returns the names that an argument of the call at `at` may point to. A null pointer is not a request.
fn find_names(resolver: &mut Resolver, at: Addr, argument_index: usize) -> Result<Vec<Vec<u8>>, String> {
    let code = resolver.code();
    let image = code.image;
    let operand = argument(code, at, argument_index)?;
    let pointers = resolver
        .operand(at, operand)
        .map_err(|reason| reason.describe(image).replacen("the number", "it", 1))?;
    constant_strings(image, pointers).collect()
}

/// Returns the strings at some addresses, or why one is unknown. A null pointer has none.
pub(crate) fn constant_strings(
    image: &Image,
    pointers: impl IntoIterator<Item = u64>,
) -> impl Iterator<Item = Result<Vec<u8>, String>> {
    let pointers = pointers.into_iter().filter(|&pointer| pointer != 0).map(Addr);
    pointers.map(|pointer| {
        let name = image.string(pointer).filter(|name| image.is_constant(pointer, name.len() + 1));
        name.map(<[u8]>::to_vec)
            .ok_or_else(|| format!("it is in writable memory at {}", image.describe_data(pointer)))
    })
}

/// Returns the argument of this index at the call or jump at `at`.
///
/// # Errors
/// If it is not passed in a register of the machine.
pub(crate) fn argument(code: &Code, at: Addr, index: usize) -> Result<Value, String> {
    let word = code.image.machine.word_size();
    let convention = code.isa.convention();
    Ok(match convention.passes_on_stack {
        true => {
            // At a call, the return address is not yet pushed; at a jump, the stack holds the caller's return address.
            let exit = code.exit_at(at).map(|exit| code.exit(exit).kind);
            let pushed = !matches!(exit, Some(ExitKind::Call(_) | ExitKind::IndirectCall));
            let displacement = i64::from(word) * (index as i64 + i64::from(pushed));
            let from = Address { base: Some(convention.stack_pointer), displacement, ..Address::default() };
            Value::Load { from, width: word }
        }
        false => {
            Value::Reg { reg: *convention.arguments.get(index).ok_or("too many arguments")?, width: word }
        }
    })
}
