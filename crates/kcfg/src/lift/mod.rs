/*!
Lifting: a linked program's objects become one graph.

1. *Plan* (`plan`), object by object: decode the code sections, read the weak tables, collect the places
   at which blocks have to begin, cut the data into chunks, and find out what is opaque.
2. *Nodes* (`nodes`): the plans become nodes, so that any place of the program is a node and an offset in it.
3. *References* (`references`): relocations and branches become references and terminators; symbols get
   their places.
4. *Switches* (`switches`): indirect jumps are matched with their jump tables. Functions with any other pointer into
   their middle become opaque (`pointers`), and steps 2 to 4 are repeated.
5. *Variables* (`variables`): with all references known, data sections are cut at their variables where that is
   proved right. References from code that a pass has removed need no proof, so that more is cut after passes have
   run ([`Lifter::refine`]).

What is not understood is carried whole and listed in [`Graph::opaque`].
*/

mod bounds;
mod decode;
mod instructions;
pub(crate) mod mapping;
mod names;
mod nodes;
mod plan;
mod pointers;
mod references;
mod sites;
mod switches;
mod tags;
mod variables;

use std::ops::Range;
use std::path::{Path, PathBuf};

use kelf::{Attributes, KernelBuild, KernelVersion, Machine, Program};
use rustc_hash::FxHashSet;

use crate::graph::{Graph, Life, Root};
use crate::index::InputId;

use crate::roots::Roots;
use crate::script::LinkerScript;
use crate::special::{RootReason, World};
use plan::{Plans, SectionPlan};
use pointers::Pointed;

/// Knowledge that lifting needs besides the objects.
#[derive(Clone, Debug)]
pub struct Options {
    /// Kernel or user program, which decides what the names of sections mean and which the link discards.
    pub world: World,
    /// Carry `.export_symbol`: the kernel has loadable modules, and its build reads the exports from the
    /// objects.
    pub keep_exports: bool,
}

/// Why a program cannot be lifted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no decoder for the machine.
    #[error("cannot lift {0} code yet; kshrink decodes i386, x86_64 and 32-bit ARM")]
    Machine(kelf::Machine),
    /// A weak table whose size or relocations fit no known layout.
    #[error("{object}: section {section}: {problem}; expected the layout of Linux 6.1 to 6.12")]
    Table {
        /// The object.
        object: String,
        /// The section.
        section: String,
        /// What is wrong.
        problem: String,
    },
    /// The list of what was carried whole is damaged.
    #[error(
        "{object}: section .comment.kshrink: {problem}; the object is damaged, make it again with kshrink-spec"
    )]
    Carried {
        /// The object.
        object: String,
        /// What is wrong.
        problem: String,
    },
    /// The attributes of an ARM object are damaged.
    #[error("{object}: {problem}; the object is damaged, or made by a compiler that kshrink does not know")]
    Attributes {
        /// The object.
        object: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// The linker script cannot be read.
    #[error("{path}: cannot read the linker script: {source}", path = path.display())]
    Script {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// An entry point is not defined.
    #[error("no object defines the entry point {0}; name a global function of the objects")]
    NoEntry(String),
    /// The field of a relocation does not lie within one instruction or entry.
    #[error(
        "{object}: section {section}: the field of the relocation at {offset:#x} does not lie within one instruction or \
         table entry; the object is damaged, or made by a compiler that kshrink does not know"
    )]
    Straddling {
        /// The object.
        object: String,
        /// The section.
        section: String,
        /// Where in it.
        offset: u64,
    },
    /// A section ends with a conditional branch, which falls through.
    #[error(
        "{object}: section {section}: the conditional branch at {offset:#x} falls through into whatever the linker \
         places behind the section, which kshrink cannot keep there; end the function with a jump, a return or a trap"
    )]
    RunsOff {
        /// The object.
        object: String,
        /// The section.
        section: String,
        /// Where in it.
        offset: u32,
    },
    /// A relocation for which the linker makes a table entry (global offset table, thread-local storage) refers to a
    /// place outside of every variable.
    #[error(
        "{object}: section {section}: the relocation at {offset:#x} refers to a place outside of every variable of \
         section {target}; the object is damaged, build it again"
    )]
    Outside {
        /// The object.
        object: String,
        /// The section that refers.
        section: String,
        /// Where in it.
        offset: u64,
        /// The section that the place should lie in.
        target: String,
    },
    /// A reference to a section that is not part of the program.
    #[error(
        "{object}: section {section}: the relocation at {offset:#x} refers to section {target}, which is not \
         part of the program; was the object built for another linker script?"
    )]
    Discarded {
        /// The object.
        object: String,
        /// The section that refers.
        section: String,
        /// Where in it.
        offset: u64,
        /// The section that is missing.
        target: String,
    },
}

impl kcli::Fault for Error {
    fn is_bad_input(&self) -> bool {
        !matches!(self, Error::Script { .. })
    }
}

/// Lifts one program, and cuts its data at variables, again after passes have removed references.
pub struct Lifter<'p> {
    program: &'p Program<'p>,
    world: World,
    plans: Plans,
    /// What the attributes of the objects say together.
    attributes: Option<Attributes>,
    roots: Roots,
    /// What is a root because the caller keeps it.
    kept: Vec<Part>,
    /// Sections that are not cut at their variables because the caller keeps parts of them whole.
    whole: FxHashSet<InputId>,
}

/// A part of an input section: a function, a variable, or a section of data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The section.
    pub section: InputId,
    /// Offsets in bytes in it.
    pub range: Range<u32>,
}

/// How a part is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing of it is removed.
    Alive,
    /// Nothing of it is removed, and it is carried whole; a function that cannot be moved by itself, together with its
    /// section.
    Whole,
}

impl<'p> Lifter<'p> {
    /// Plans a kernel.
    ///
    /// # Errors
    /// Whatever about the program is not understood.
    pub fn of_kernel(build: &KernelBuild, program: &'p Program<'p>) -> Result<Lifter<'p>, Error> {
        let keep_exports = build.is_enabled("CONFIG_MODULES");
        Lifter::of_version(&build.linker_script, program, keep_exports, build.version)
    }

    /// Plans objects of a kernel of any version that a linker script links; `keep_exports` as in [`Options`].
    ///
    /// # Errors
    /// Whatever about the program is not understood.
    pub fn of_kernel_objects(
        linker_script: &Path,
        program: &'p Program<'p>,
        keep_exports: bool,
    ) -> Result<Lifter<'p>, Error> {
        Lifter::of_version(linker_script, program, keep_exports, None)
    }

    fn of_version(
        linker_script: &Path,
        program: &'p Program<'p>,
        keep_exports: bool,
        version: Option<KernelVersion>,
    ) -> Result<Lifter<'p>, Error> {
        let script = LinkerScript::read(linker_script)?;
        let roots = Roots::of_kernel(&script, program);
        let world = World::kernel(script, program.machine, version);
        Lifter::new(program, Options { world, keep_exports }, roots)
    }

    /// Plans a user program that is entered by these functions.
    ///
    /// # Errors
    /// Whatever about the program is not understood.
    pub fn of_objects(program: &'p Program<'p>, entries: &[String]) -> Result<Lifter<'p>, Error> {
        let options = Options { world: World::Program, keep_exports: false };
        Lifter::new(program, options, Roots::of_entries(entries))
    }

    /// Plans a program of either world.
    ///
    /// # Errors
    /// Whatever about the program is not understood.
    pub fn new(program: &'p Program<'p>, options: Options, roots: Roots) -> Result<Lifter<'p>, Error> {
        let isa = kisa::rewritable(program.machine).ok_or(Error::Machine(program.machine))?;
        let plans = plan::plan(isa, program, &options)?;
        let objects: Vec<_> = program.objects.iter().map(|input| &input.object).collect();
        let attributes = kelf::merge_attributes(&objects)
            .map_err(|(object, problem)| Error::Attributes { object, problem })?;
        Ok(Lifter {
            program,
            world: options.world,
            plans,
            attributes,
            roots,
            kept: Vec::new(),
            whole: FxHashSet::default(),
        })
    }

    /// Keeps parts of the program, with all that they refer to. For a program that is broken after rewriting, this finds
    /// which part must not be changed.
    pub fn keep(&mut self, parts: Vec<Part>, keep: Keep) {
        if keep == Keep::Whole {
            let plans = self.plans.sections.iter_mut().flatten();
            let mut sections: Vec<_> = plans.filter(|plan| !matches!(plan, SectionPlan::Skip)).collect();
            for part in &parts {
                sections[part.section.get()].carry_whole(&part.range, "kept as it was");
            }
            sections.into_iter().for_each(SectionPlan::settle);
            self.whole.extend(parts.iter().map(|part| part.section));
        }
        self.kept.extend(parts);
    }

    /// Builds the graph: steps 2 to 4.
    ///
    /// # Errors
    /// Whatever about the program is not understood.
    pub fn graph(&mut self) -> Result<Graph, Error> {
        loop {
            let mut lifted = nodes::create(self.program, &self.world, &self.plans.sections);
            references::connect(self.program, &mut lifted)?;
            switches::resolve(&mut lifted.graph);
            for (object, section, range) in &self.plans.tables {
                switches::add_without_jump(&mut lifted, *object, *section, range);
            }
            let whole = pointers::into_functions(&lifted.graph);
            if whole.is_empty() {
                self.roots.add_to(&mut lifted.graph)?;
                lifted.graph.attributes.clone_from(&self.attributes);
                for part in &self.kept {
                    keep_alive(&mut lifted.graph, part);
                }
                lifted.graph.record_symbol_places();
                return Ok(lifted.graph);
            }
            let place = |pointed: &Pointed| match *pointed {
                Pointed::Section(section) => (lifted.origins[section.get()], None),
                Pointed::Function(entry) => {
                    let section = lifted.graph.node(entry).section;
                    (lifted.origins[section.get()], Some(lifted.origin(entry).offset))
                }
            };
            let places: Vec<_> = whole.iter().map(place).collect();
            let sections: FxHashSet<_> = places.iter().map(|&(section, _)| section).collect();
            for ((object, section), function) in places {
                let plan = &mut self.plans.sections[object.get()][section.get()];
                match function {
                    Some(start) => plan.carry_whole(&(start..start + 1), pointers::REASON),
                    None => plan.carry_section_whole(pointers::REASON),
                }
            }
            for (object, section) in sections {
                self.plans.sections[object.get()][section.get()].settle();
            }
        }
    }

    /// Step 5: cuts the data of a graph of this lifter at its variables, where the references that are alive allow it.
    /// Returns whether that changed the graph.
    pub fn refine(&self, graph: &mut Graph) -> bool {
        // On ARM, code reaches variables by literals and by anchors that several share, which is not followed.
        if self.program.machine == Machine::Arm {
            return false;
        }
        let mut cuts = variables::cuts(graph);
        cuts.retain(|section, _| !self.whole.contains(section));
        variables::apply(graph, &cuts)
    }

    /// Builds the finest graph in which everything is alive.
    ///
    /// # Errors
    /// Whatever about the program is not understood.
    pub fn fine_graph(mut self) -> Result<Graph, Error> {
        let mut graph = self.graph()?;
        self.refine(&mut graph);
        Ok(graph)
    }
}

/// The largest alignment in bytes that a function or variable at `offset` of a section may need: that of its offset, up to
/// that of the section. Objects do not record what it was, and it cannot be derived from padding, of which there is none
/// where the offset was aligned already.
fn alignment(section_align: u64, offset: u32) -> u32 {
    let section_align = section_align as u32;
    if offset == 0 { section_align } else { section_align.min(1 << offset.trailing_zeros()) }
}

/// Makes the nodes of a part roots, except for entries of weak tables.
fn keep_alive(graph: &mut Graph, part: &Part) {
    for &node in &graph.sections[part.section.get()].nodes {
        let Some(origin) = graph.node(node).origin() else { continue };
        let end = origin.offset + origin.size.max(1);
        let site = graph.chunk(node).is_some_and(|chunk| matches!(chunk.life, Life::Site(_)));
        if origin.offset < part.range.end && end > part.range.start && !site {
            let range = part.range.start.max(origin.offset)..part.range.end.min(end);
            let range = range.start - origin.offset..range.end - origin.offset;
            graph.roots.push(Root { node, range, reason: RootReason::Kept });
        }
    }
}
