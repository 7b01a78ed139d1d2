/*!
Lifting: a linked program's objects become one graph.

1. *Plan* (`plan`), object by object: decode the code sections, read the weak tables, collect the starts of blocks,
   split the data into chunks, and find opaque code.
2. *Nodes* (`nodes`): the plans become nodes, so that any place of the program is a node and an offset in it.
3. *References* (`references`): relocations and branches become references and terminators; symbols get their places.
4. *Switches* (`switches`): indirect jumps are matched with their jump tables. Functions with any other pointer into
   their middle become opaque (`pointers`), and steps 2 to 4 are repeated.
5. *Variables* (`variables`): with all references known, data sections are split at their variables where that is
   proved correct. References from code that a pass has removed need no proof, so more sections can be split after
   passes have run ([`Lifter::refine`]).

Unsupported code is opaque, and listed in [`Graph::opaque`].
*/

mod bounds;
mod decode;
mod instructions;
mod names;
mod nodes;
mod options;
mod placed;
mod plan;
mod pointers;
mod references;
mod sites;
mod switches;
mod tags;
mod variables;
mod wraps;

use std::path::Path;

use kelf::{Attributes, KernelBuild, KernelVersion, Program};
use rustc_hash::FxHashSet;

use crate::error::Error;
use crate::graph::{Graph, Life, Root};
use crate::index::InputId;
use crate::roots::Roots;
use crate::script::LinkerScript;
use crate::special::{RootReason, World};
use plan::{Plans, SectionPlan};
use pointers::Pointed;

pub use options::{Keep, Options, Part};

/// Lifts one program, and splits its data at variables, again after passes have removed references.
pub struct Lifter<'p> {
    program: &'p Program<'p>,
    world: World,
    plans: Plans,
    /// The merged attributes of the objects.
    attributes: Option<Attributes>,
    roots: Roots,
    /// Parts that the caller keeps as roots.
    kept: Vec<Part>,
    /// Sections that are not split at their variables because the caller keeps parts of them whole.
    whole: FxHashSet<InputId>,
}

impl<'p> Lifter<'p> {
    /// Plans a kernel.
    ///
    /// # Errors
    /// If a part of the program is not supported.
    pub fn of_kernel(build: &KernelBuild, program: &'p Program<'p>) -> Result<Lifter<'p>, Error> {
        let keep_exports = build.is_enabled("CONFIG_MODULES");
        Lifter::of_version(&build.linker_script, program, keep_exports, build.version)
    }

    /// Plans the objects of a kernel of any version, linked by a linker script; `keep_exports` as in [`Options`].
    ///
    /// # Errors
    /// If a part of the program is not supported.
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

    /// Plans a user program with these entry functions.
    ///
    /// # Errors
    /// If a part of the program is not supported.
    pub fn of_objects(program: &'p Program<'p>, entries: &[String]) -> Result<Lifter<'p>, Error> {
        let options = Options { world: World::Program, keep_exports: false };
        Lifter::new(program, options, Roots::of_entries(entries))
    }

    /// Plans a program of either world.
    ///
    /// # Errors
    /// If a part of the program is not supported.
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

    /// Keeps parts of the program, with everything that they refer to. If a program is broken after rewriting, this
    /// finds the part that must not be changed.
    pub fn keep(&mut self, parts: Vec<Part>, keep: Keep) {
        if keep == Keep::Whole {
            let plans = self.plans.sections.iter_mut().flatten();
            let mut sections: Vec<_> = plans.filter(|plan| !matches!(plan, SectionPlan::Skip)).collect();
            for part in &parts {
                sections[part.section.get()].carry_whole(&part.range, "kept unchanged");
            }
            sections.into_iter().for_each(SectionPlan::settle);
            self.whole.extend(parts.iter().map(|part| part.section));
        }
        self.kept.extend(parts);
    }

    /// Builds the graph: steps 2 to 4.
    ///
    /// # Errors
    /// If a part of the program is not supported.
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
                wraps::redirect(&mut lifted.graph, self.program);
                self.roots.add_to(&mut lifted.graph)?;
                lifted.graph.attributes.clone_from(&self.attributes);
                for part in &self.kept {
                    keep_alive(&mut lifted.graph, part);
                }
                lifted.graph.record_symbol_places();
                return Ok(lifted.graph);
            }
            let place = |pointed: &Pointed| match *pointed {
                Pointed::Section(section) => (lifted.origins[section], None),
                Pointed::Function(entry) => {
                    let section = lifted.graph.node(entry).section;
                    (lifted.origins[section], Some(lifted.origin(entry).offset))
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

    /// Splits the data of a graph of this lifter at its variables (step 5), as far as the live references permit.
    /// Returns whether that changed the graph.
    pub fn refine(&self, graph: &mut Graph) -> bool {
        // Shared anchors are not followed.
        if self.program.machine.target().has_section_anchors {
            return false;
        }
        let mut cuts = variables::cuts(graph);
        cuts.retain(|section, _| !self.whole.contains(section));
        variables::apply(graph, &cuts)
    }

    /// Builds the finest graph in which everything is alive.
    ///
    /// # Errors
    /// If a part of the program is not supported.
    pub fn fine_graph(mut self) -> Result<Graph, Error> {
        let mut graph = self.graph()?;
        self.refine(&mut graph);
        Ok(graph)
    }
}

/// Makes the nodes of a part roots, except for entries of weak tables.
fn keep_alive(graph: &mut Graph, part: &Part) {
    for &node in &graph.sections[part.section.lifted()].nodes {
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
