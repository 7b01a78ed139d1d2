//! A whole program: the objects of a link, and the meaning of each of their symbols.
//!
//! [`Program::link`] does the first half of `ld`'s work. Its result must agree with `ld`, which does the second half.
//! If it misses an object, `ld` links that object anyway, with code that a pass has removed. If a symbol resolves
//! differently, the graph describes another program. The rules are GNU ld's, from `bfd/linker.c` and `bfd/elflink.c`:
//!
//! - Objects are entered in link order: the section groups of an object first, then its symbols (`resolve.rs`).
//! - Then the libraries are searched in turn, repeatedly, until a round adds nothing. A member is added if it defines a
//!   symbol that is still undefined (not only weakly), or a common symbol that the member properly defines.
//!
//! All objects, including library members, are parsed in parallel before: there are few of them, and the symbol map of
//! the archive, `ld`'s own shortcut, contains the same symbols as the members.

use indexmap::IndexMap;
use rayon::prelude::*;
use rustc_hash::FxBuildHasher;

use goblin::elf::sym::{STB_GLOBAL, STB_WEAK, STT_FILE};

use crate::error::{Error, Result};
use crate::index::{GlobalIndex, ObjectIndex, SectionIndex, SymbolIndex};
use crate::inputs::{InputFiles, Role, Wrap};
use crate::machine::Machine;
use crate::object::{Object, Symbol};
use crate::resolve::{Definer, Definition, Entered, Global, Resolver};

/// A linked set of objects.
#[derive(Debug)]
pub struct Program<'a> {
    /// The machine of all objects.
    pub machine: Machine,
    /// Objects in link order; those from libraries follow in the order in which `ld` takes them.
    pub objects: Vec<Input<'a>>,
    /// Objects that the final link adds itself; they are not rewritten.
    pub beside: Vec<Object<'a>>,
    /// The functions that are wrapped also in the object that defines them: the name, which is the wrapper's, and the
    /// definition's.
    pub wrapped: Vec<(&'a str, &'a str)>,
    globals: IndexMap<&'a str, Global, FxBuildHasher>,
}

/// An object of a program.
#[derive(Debug)]
pub struct Input<'a> {
    /// The object.
    pub object: Object<'a>,
    /// Path of its source, if the build recorded it.
    pub source: Option<String>,
    /// Whether its source is hand-written assembly: its recorded source ends with `.S` or `.s`, or no source is
    /// recorded and no symbol names one (`STT_FILE`), as compilers emit.
    pub hand_written: bool,
    /// Whether it is a needed library member.
    pub from_library: bool,
    /// The global of each symbol; `None` for local symbols.
    globals: Vec<Option<GlobalIndex>>,
    /// Sections of groups that an earlier object already holds, in ascending order.
    discarded: Vec<SectionIndex>,
}

impl Input<'_> {
    /// Whether `ld` drops this section because an earlier object holds the same section group
    /// (COMDAT).
    pub fn is_discarded(&self, section: SectionIndex) -> bool {
        self.discarded.binary_search(&section).is_ok()
    }

    /// Returns the sections that `ld` drops because an earlier object holds the same section group, in ascending order.
    pub fn discarded(&self) -> &[SectionIndex] {
        &self.discarded
    }
}

/// The meaning of an object's symbol in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resolved {
    /// A local symbol: itself.
    Local(ObjectIndex, SymbolIndex),
    /// A global symbol.
    Global(GlobalIndex),
}

impl<'a> Program<'a> {
    /// Reads the objects, selects the needed library members and resolves the symbols.
    ///
    /// # Errors
    /// All errors of [`Object::read`]; [`Error::MixedMachines`], [`Error::DuplicateSymbol`], [`Error::NoInputs`];
    /// [`Error::Build`] if a kernel and its objects are for different machines.
    pub fn link(files: &'a InputFiles) -> Result<Program<'a>> {
        let mut parsed: Vec<Object<'a>> = files
            .files
            .par_iter()
            .map(|file| Object::read(&file.name, file.bytes()))
            .collect::<Result<_>>()?;
        if !files.wraps.is_empty() {
            parsed.iter_mut().for_each(|object| wrap(object, &files.wraps));
        }
        for name in &files.overridden {
            override_definitions(&mut parsed, name);
        }
        let machine = common_machine(&parsed)?;
        if let Some((path, linked)) = files.linked.as_ref().filter(|(_, linked)| *linked != machine) {
            return Err(Error::Build {
                path: path.clone(),
                problem: format!("is for {linked}, but the objects of its build are for {machine}"),
                advice: "give the vmlinux that was linked from them, or build it there again".into(),
            });
        }
        let mut link = Link::default();
        files.entries.iter().for_each(|entry| link.resolver.need(entry));
        let mut libraries: Vec<Vec<Member<'a>>> = Vec::new();
        for (object, file) in parsed.into_iter().zip(&files.files) {
            let source = file.source.clone();
            match file.role {
                Role::Linked => link.add(object, source, false)?,
                Role::Beside => link.add_beside(object)?,
                Role::Library(number) => {
                    libraries.resize_with(libraries.len().max(number + 1), Vec::new);
                    libraries[number].push(Some((object, source)));
                }
            }
        }
        link.search(&mut libraries)?;
        if link.objects.is_empty() {
            return Err(Error::NoInputs);
        }
        let Link { resolver, objects, beside } = link;
        let wraps = files.wraps.iter().filter(|wrap| wrap.everywhere);
        let wrapped = wraps.map(|wrap| (&*wrap.name, &*wrap.real)).collect();
        Ok(Program { machine, objects, beside, wrapped, globals: resolver.globals })
    }

    /// Resolves symbol `symbol` of object `object`.
    ///
    /// # Panics
    /// If there is no such object or symbol.
    pub fn resolve(&self, object: ObjectIndex, symbol: SymbolIndex) -> Resolved {
        match self.objects[object.get()].globals[symbol.get()] {
            Some(global) => Resolved::Global(global),
            None => Resolved::Local(object, symbol),
        }
    }

    /// Returns the object and symbol that define `resolved`, unless it is undefined, common, or defined by an object
    /// that the final link adds.
    pub fn definition(&self, resolved: Resolved) -> Option<(ObjectIndex, SymbolIndex)> {
        match resolved {
            Resolved::Local(object, symbol) => Some((object, symbol)),
            Resolved::Global(global) => match self.global(global).definition {
                Definition::In(object, symbol) => Some((object, symbol)),
                _ => None,
            },
        }
    }

    /// Returns the object at `index`.
    ///
    /// # Panics
    /// If there is none.
    pub fn object(&self, index: ObjectIndex) -> &Object<'a> {
        &self.objects[index.get()].object
    }

    /// Returns the symbol at `symbol` of the object at `object`.
    ///
    /// # Panics
    /// If there is none.
    pub fn symbol(&self, object: ObjectIndex, symbol: SymbolIndex) -> &Symbol<'a> {
        self.object(object).symbol(symbol)
    }

    /// Returns the global symbol at `index`.
    ///
    /// # Panics
    /// If there is none.
    pub fn global(&self, index: GlobalIndex) -> &Global {
        &self.globals[index.get()]
    }

    /// Returns the name of the global symbol at `index`.
    ///
    /// # Panics
    /// If there is none.
    pub fn global_name(&self, index: GlobalIndex) -> &'a str {
        self.globals.get_index(index.get()).expect("an index that the program gave").0
    }

    /// Finds the global symbol with this name.
    pub fn find(&self, name: &str) -> Option<GlobalIndex> {
        self.globals.get_index_of(name).map(GlobalIndex::from)
    }

    /// Returns all global symbols in the order in which the link meets them.
    pub fn globals(&self) -> impl ExactSizeIterator<Item = (GlobalIndex, &'a str, &Global)> {
        let globals = self.globals.iter().enumerate();
        globals.map(|(index, (name, global))| (GlobalIndex::from(index), *name, global))
    }
}

/// Renames wrapped symbols: undefined ones, and weak definitions, which another object replaces. With
/// [`Wrap::everywhere`], the wrapper itself gets the name, which exports refer to as well, and the definition becomes
/// `__real_NAME`.
fn wrap<'a>(object: &mut Object<'a>, wraps: &'a [Wrap]) {
    for wrap in wraps.iter().filter(|wrap| wrap.everywhere) {
        let is_defined = |symbol: &&mut Symbol<'_>, name: &str| {
            symbol.name == name && symbol.binding == STB_GLOBAL && !symbol.is_undefined()
        };
        if let Some(symbol) = object.symbols.iter_mut().find(|symbol| is_defined(symbol, &wrap.name)) {
            let reference = Symbol { name: &wrap.name, binding: STB_GLOBAL, ..Symbol::null() };
            let definition = std::mem::replace(symbol, reference);
            object.symbols.push(Symbol { name: &wrap.real, ..definition });
        } else if let Some(symbol) =
            object.symbols.iter_mut().find(|symbol| is_defined(symbol, &wrap.wrapper))
        {
            symbol.name = &wrap.name;
        }
    }
    let is_open = |symbol: &&mut Symbol<'_>| {
        (symbol.is_undefined() || symbol.binding == STB_WEAK) && !symbol.name.is_empty()
    };
    for symbol in object.symbols.iter_mut().filter(is_open) {
        let is_reference = symbol.is_undefined();
        for wrap in wraps.iter().filter(|wrap| !wrap.everywhere && (is_reference || wrap.weak)) {
            if symbol.name == wrap.name {
                symbol.name = &wrap.wrapper;
                break;
            } else if symbol.name == wrap.real {
                symbol.name = &wrap.name;
                break;
            }
        }
    }
}

/// Makes all global definitions of a symbol weak, except for that of the last object.
fn override_definitions(objects: &mut [Object<'_>], name: &str) {
    let symbols = objects.iter_mut().rev().flat_map(|object| &mut object.symbols);
    let is_it = |symbol: &&mut Symbol<'_>| {
        symbol.name == name && symbol.binding == STB_GLOBAL && !symbol.is_undefined()
    };
    symbols.filter(is_it).skip(1).for_each(|symbol| symbol.binding = STB_WEAK);
}

/// Returns the common machine of all objects.
fn common_machine(objects: &[Object<'_>]) -> Result<Machine> {
    let first = objects.first().ok_or(Error::NoInputs)?;
    match objects.iter().find(|object| object.machine != first.machine) {
        None => Ok(first.machine),
        Some(other) => Err(Error::MixedMachines {
            file: other.name.clone(),
            found: other.machine,
            first: first.name.clone(),
            expected: first.machine,
        }),
    }
}

/// A library member, with the path of its source; `None` once the link has taken it.
type Member<'a> = Option<(Object<'a>, Option<String>)>;

/// A link in progress.
#[derive(Default)]
struct Link<'a> {
    resolver: Resolver<'a>,
    objects: Vec<Input<'a>>,
    beside: Vec<Object<'a>>,
}

impl<'a> Link<'a> {
    fn add(&mut self, object: Object<'a>, source: Option<String>, library: bool) -> Result<()> {
        let index = ObjectIndex::from(self.objects.len());
        let entered = self.resolver.enter(&object, Definer::Object(index));
        let Entered { globals, discarded } = entered.map_err(|clash| self.explain(clash, &object))?;
        let hand_written = match &source {
            Some(path) => path.ends_with(".S") || path.ends_with(".s"),
            None => !object.symbols.iter().any(|symbol| symbol.kind == STT_FILE),
        };
        self.objects.push(Input { object, source, hand_written, from_library: library, globals, discarded });
        Ok(())
    }

    fn add_beside(&mut self, object: Object<'a>) -> Result<()> {
        let entered = self.resolver.enter(&object, Definer::Beside);
        entered.map_err(|clash| self.explain(clash, &object))?;
        self.beside.push(object);
        Ok(())
    }

    /// Adds the needed members of the libraries.
    fn search(&mut self, libraries: &mut [Vec<Member<'a>>]) -> Result<()> {
        // The contents of each archive's symbol map, in its order.
        let maps: Vec<Vec<(usize, &'a str)>> = libraries.iter().map(|members| symbol_map(members)).collect();
        loop {
            let before = self.objects.len();
            for (members, map) in libraries.iter_mut().zip(&maps) {
                while self.pass(members, map)? {}
            }
            if self.objects.len() == before {
                return Ok(());
            }
        }
    }

    /// Searches one library once, and returns whether this added an object.
    fn pass(&mut self, members: &mut [Member<'a>], map: &[(usize, &'a str)]) -> Result<bool> {
        let before = self.objects.len();
        for &(number, name) in map {
            let Some(global) = self.resolver.globals.get(name) else {
                continue;
            };
            let needed = match (global.definition, &members[number]) {
                (Definition::Undefined, Some(_)) => !global.weak,
                (Definition::Common { .. }, Some((object, _))) => {
                    object.symbols.iter().any(|symbol| symbol.name == name && symbol.is_defined())
                }
                _ => false,
            };
            if let Some((object, source)) = members[number].take_if(|_| needed) {
                self.add(object, source, true)?;
            }
        }
        Ok(self.objects.len() > before)
    }

    /// Returns the error for a second definition of a symbol in `second`.
    fn explain(&self, clash: GlobalIndex, second: &Object<'a>) -> Error {
        let (name, global) = self.resolver.globals.get_index(clash.get()).expect("just entered");
        let first = match global.definition {
            Definition::In(object, _) if object.get() < self.objects.len() => {
                &self.objects[object.get()].object
            }
            Definition::Beside => {
                let defines = |object: &&Object<'_>| {
                    object.symbols.iter().any(|symbol| symbol.name == *name && symbol.is_defined())
                };
                self.beside.iter().find(defines).unwrap_or(second)
            }
            // One object that defines a name twice.
            _ => second,
        };
        Error::DuplicateSymbol {
            symbol: (*name).into(),
            first: first.name.clone(),
            second: second.name.clone(),
        }
    }
}

/// Returns the global symbols that the members define, with the number of the member, in order.
fn symbol_map<'a>(members: &[Member<'a>]) -> Vec<(usize, &'a str)> {
    let mut map = Vec::new();
    for (number, member) in members.iter().enumerate() {
        let Some((object, _)) = member else { continue };
        let symbols = object.symbols.iter();
        let defined = symbols.filter(|symbol| !symbol.is_local() && !symbol.is_undefined());
        map.extend(defined.map(|symbol| (number, symbol.name)));
    }
    map
}
