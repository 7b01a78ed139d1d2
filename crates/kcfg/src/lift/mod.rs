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
   variables; if there are any, steps 2 to 4 are done again with these cuts.

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

use kelf::Program;

use crate::graph::Graph;
use crate::isa;

use nodes::{Cuts, Lifted};
use plan::SectionPlan;

/// What lifting needs to know besides the objects.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
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

/// Builds the graph of a program.
pub fn lift(program: &Program<'_>, options: Options) -> Result<Graph, Error> {
    let isa = isa::isa(program.machine).ok_or(Error::Machine(program.machine))?;
    let plans = plan::plan(isa, program, options)?;
    let whole = build(program, &plans, &Cuts::default())?;
    let cuts = variables::cuts(program, &whole);
    if cuts.is_empty() {
        return Ok(whole.graph);
    }
    drop(whole);
    Ok(build(program, &plans, &cuts)?.graph)
}

/// Steps 2 to 4.
fn build<'p>(
    program: &'p Program<'p>,
    plans: &'p [Vec<SectionPlan>],
    cuts: &Cuts,
) -> Result<Lifted<'p>, Error> {
    let mut lifted = nodes::create(program, plans, cuts);
    references::connect(program, &mut lifted)?;
    switches::resolve(&mut lifted.graph);
    Ok(lifted)
}
