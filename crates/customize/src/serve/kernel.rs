//! The kernel that the devices run: its graph, and the addresses of code and data.

use std::path::Path;

use kcfg::graph::{Graph, SymbolPlace, Target};
use kcfg::index::NodeId;
use kcfg::lift::Lifter;
use kcli::Failure;
use kelf::{ElfFile, InputFiles, KernelBuild, Object, Program};
use kopt::Options;
use kopt::specialize::{Loadable, Loader};
use kplan::{Path as PlannedPath, Plan};

use super::seal;
use crate::symbols::Symbols;

/// The prefix of the name of a function behind a gate.
const REAL: &str = "__real_";

/// The names of the files beside each other that `kshrink-spec --gate -o DIR` wrote.
const VMLINUX: &str = "vmlinux";
const OBJECT: &str = "vmlinux.o";

/// The kernel of the devices, and the path that they get.
pub struct Kernel<'g> {
    graph: &'g Graph,
    loader: Loader<'g>,
    /// The address of each input section.
    bases: Vec<Option<u64>>,
    /// Its symbols.
    pub symbols: Symbols,
    /// Its build (`struct kcustom_head`).
    pub build: [u8; 32],
    /// The path, with the names of functions behind gates.
    pub path: PlannedPath,
    /// The address of the function where the path begins.
    pub entry: u32,
}

impl Kernel<'_> {
    /// Reads the kernel that `kshrink-spec --gate -o DIR` made of a build, and passes it on.
    ///
    /// # Errors
    /// If a file cannot be read. Bad input if it is another kernel, or the path cannot be copied.
    pub fn with<R>(
        build: &KernelBuild,
        dir: &Path,
        plan: &Plan,
        path: &PlannedPath,
        work: impl FnOnce(&Kernel<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let wrong = |problem: String| Failure::bad_input(format!("{}: {problem}", dir.display()));
        let vmlinux = dir.join(VMLINUX);
        let symbols = Symbols::read(&vmlinux)?;
        let path = behind_gates(path, &symbols);
        let entry =
            symbols.address(&path.entry).filter(|_| path.entry.starts_with(REAL)).ok_or_else(|| {
                let advice = "give it to kshrink-spec as --gate";
                wrong(format!("its kernel has no gate in front of {}; {advice}", path.entry))
            })?;
        let notes = notes(&vmlinux, &symbols)?;
        let files = InputFiles::of_objects(&[dir.join(OBJECT)]).map_err(Failure::of)?;
        let program = Program::link(&files).map_err(Failure::of)?;
        let lifter = Lifter::of_kernel(build, &program).map_err(Failure::of)?;
        let (mut graph, _) =
            kopt::rounds::run(lifter, plan, &[], Options::default(), |_| ()).map_err(Failure::of)?;
        Loader::prepare(&mut graph, &path).map_err(wrong)?;
        let object = &program.objects[0].object;
        let bases = bases(&graph, object, &kelf::section_bases(object, &vmlinux).map_err(Failure::of)?);
        let loader = Loader::new(&graph, plan, &path).map_err(wrong)?;
        let build = seal::build(&notes);
        work(&Kernel { graph: &graph, loader, bases, symbols, build, path, entry: entry as u32 })
    }

    /// Copies the path with these facts.
    ///
    /// # Errors
    /// The reason why there is no copy.
    pub fn copy(&self, path: &PlannedPath) -> Result<Loadable, String> {
        self.loader.copy(path, &|target| self.address(target))
    }

    /// Returns the address of code or data.
    fn address(&self, target: Target) -> Option<u64> {
        match target {
            Target::Node(node) => self.address_of(node),
            Target::Symbol(symbol) => {
                let symbol = &self.graph.symbols()[symbol];
                match symbol.place {
                    SymbolPlace::Node(node, inside) => Some(self.address_of(node)? + u64::from(inside)),
                    _ => self.symbols.address(&symbol.name),
                }
            }
        }
    }

    fn address_of(&self, node: NodeId) -> Option<u64> {
        let origin = self.graph.node(node).origin()?;
        Some(self.bases[usize::from(origin.section)]? + u64::from(origin.offset))
    }
}

/// Returns the path with the names that functions have behind gates.
fn behind_gates(path: &PlannedPath, symbols: &Symbols) -> PlannedPath {
    let mut path = path.clone();
    let real = |name: &mut String| {
        let behind = format!("{REAL}{name}");
        if symbols.address(&behind).is_some() {
            *name = behind;
        }
    };
    real(&mut path.entry);
    path.calls.iter_mut().for_each(real);
    for target in &mut path.targets {
        real(&mut target.caller);
        real(&mut target.callee);
    }
    path
}

/// Returns the address of each input section of a graph that was made of one object.
fn bases(graph: &Graph, object: &Object<'_>, of_object: &[Option<u64>]) -> Vec<Option<u64>> {
    // Both are in the order of the object.
    let mut sections = object.sections.iter().zip(of_object);
    let base = |input: &kcfg::graph::InputSection| {
        let same = |(section, _): &(&kelf::object::Section<'_>, &Option<u64>)| {
            *section.name == *input.name && section.size == u64::from(input.size)
        };
        sections.find(same).and_then(|(_, base)| *base)
    };
    graph.inputs().iter().map(base).collect()
}

/// Returns the ELF notes of a linked kernel, as it has them in memory.
fn notes(vmlinux: &Path, symbols: &Symbols) -> Result<Vec<u8>, Failure> {
    let name = vmlinux.display().to_string();
    let missing = || Failure::bad_input(format!("{name}: it has no ELF notes; expected a linked kernel"));
    let bytes = kelf::read_linked(vmlinux).map_err(Failure::of)?;
    let file = ElfFile::parse_linked(&name, &bytes, "vmlinux, the linked kernel").map_err(Failure::of)?;
    let place = |name: &str| symbols.address(name).ok_or_else(missing);
    let (start, end) = (place("__start_notes")?, place("__stop_notes")?);
    let is_around = |at: &usize| {
        let section = &file.sections[*at];
        section.sh_addr <= start && start < end && end <= section.sh_addr + section.sh_size
    };
    let section = (0..file.sections.len()).find(is_around).ok_or_else(missing)?;
    let from = file.sections[section].sh_addr;
    let content = file.content(section).map_err(Failure::of)?;
    let notes = content.get((start - from) as usize..(end - from) as usize);
    notes.map(<[u8]>::to_vec).ok_or_else(missing)
}
