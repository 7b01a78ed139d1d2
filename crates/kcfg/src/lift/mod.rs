/*!
Lifting: a linked program's objects become one graph.

1. *Plan* ([`plan`]), object by object: decode the code sections, read the weak tables, collect the places
   at which blocks have to begin, cut the data into chunks, and find out what has to stay whole.
2. *Nodes* ([`nodes`]): every piece of every plan becomes a node, so that any place of the program can be
   named by a node and an offset.
3. *References* ([`references`]): relocations and branches become references and terminators; symbols get
   their places.
4. *Switches* ([`switches`]): indirect jumps are matched with their jump tables.
5. *Variables* ([`variables`]): with all references known, data sections are found that may be cut at their
   variables, and steps 2 to 4 are done again with these cuts. References from code that a pass has removed
   need no proof, so that a [`Lifter`] goes round as long as that brings something.

What does not fit is carried as it is and listed in [`Graph::opaque`], never guessed.
*/

mod bounds;
mod decode;
mod nodes;
mod plan;
mod references;
mod sites;
mod switches;
mod variables;

use std::path::PathBuf;
use std::sync::Arc;

use kelf::{KernelBuild, Program};

use crate::graph::Graph;
use crate::isa;

use crate::roots::Roots;
use crate::script::LinkerScript;
use crate::special::World;
use nodes::Cuts;
use plan::SectionPlan;

/// What lifting needs to know besides the objects.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the names of sections mean, and which of them the final link leaves out.
    pub world: World,
    /// Carry `.export_symbol`: the kernel has loadable modules, and its build reads the exports from the
    /// objects.
    pub keep_exports: bool,
}

/// Why a program cannot be lifted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No decoder.
    #[error("cannot lift {0} code yet; kshrink decodes i386 and x86_64")]
    Machine(kelf::Machine),
    /// A weak table that does not look as this kernel's headers say.
    #[error("{object}: section {section}: {problem}; expected the layout of Linux 6.1 to 6.12")]
    Table {
        /// The object.
        object: String,
        /// The section.
        section: String,
        /// What is wrong.
        problem: String,
    },
    /// The linker script.
    #[error("{path}: cannot read the linker script: {source}", path = path.display())]
    Script {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// No such entry point.
    #[error("no object defines the entry point {0}; name a global function of the objects")]
    NoEntry(String),
    /// A relocated field that does not lie within one instruction or entry.
    #[error(
        "{object}: section {section}: the relocation at {offset:#x} does not fit what it is in; the object is \
         damaged, or made by a compiler that kshrink does not know"
    )]
    Straddling {
        /// The object.
        object: String,
        /// The section.
        section: String,
        /// Where in it.
        offset: u64,
    },
    /// A reference to a section that is not part of the program.
    #[error(
        "{object}: section {section}: the relocation at {offset:#x} names section {target}, which is not \
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

/// Lifts one program, as often as it takes: what passes find out about a graph can make the next one finer.
pub struct Lifter<'p> {
    program: &'p Program<'p>,
    world: World,
    plans: Vec<Vec<SectionPlan>>,
    roots: Roots,
    cuts: Cuts,
}

impl<'p> Lifter<'p> {
    /// Plans a kernel.
    ///
    /// # Errors
    /// Whatever about the program is not understood.
    pub fn of_kernel(build: &KernelBuild, program: &'p Program<'p>) -> Result<Lifter<'p>, Error> {
        let script = LinkerScript::read(&build.linker_script)?;
        let roots = Roots::of_kernel(&script, program);
        let keep_exports = build.is_enabled("CONFIG_MODULES");
        Lifter::new(program, Options { world: World::Kernel(Arc::new(script)), keep_exports }, roots)
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
        let isa = isa::rewritable(program.machine).ok_or(Error::Machine(program.machine))?;
        let plans = plan::plan(isa, program, &options)?;
        Ok(Lifter { program, world: options.world, plans, roots, cuts: Cuts::default() })
    }

    /// Builds the graph: steps 2 to 4.
    ///
    /// # Errors
    /// Whatever about the program is not understood.
    pub fn graph(&self) -> Result<Graph, Error> {
        let mut lifted = nodes::create(self.program, &self.world, &self.plans, &self.cuts);
        references::connect(self.program, &mut lifted)?;
        switches::resolve(&mut lifted.graph);
        self.roots.add_to(&mut lifted.graph)?;
        Ok(lifted.graph)
    }

    /// Step 5, with the references that are alive in a graph of this lifter. Says whether
    /// [`Lifter::graph`] would now build a finer one.
    pub fn refine(&mut self, graph: &Graph) -> bool {
        let cuts = variables::cuts(self.program, graph);
        let finer = cuts != self.cuts;
        self.cuts = cuts;
        finer
    }

    /// Builds the finest graph in which everything is alive.
    ///
    /// # Errors
    /// Whatever about the program is not understood.
    pub fn fine_graph(mut self) -> Result<Graph, Error> {
        let whole = self.graph()?;
        if self.refine(&whole) { self.graph() } else { Ok(whole) }
    }
}
