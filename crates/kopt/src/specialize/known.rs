//! What is known of a graph, for all copies of paths.

use kcfg::edges::Edges;
use kcfg::flow::{DataUses, GraphProgram};
use kcfg::graph::Graph;
use kflow::constants::ConstantMemory;
use kflow::{Liveness, Summaries};
use kisa::specializing::Specialize;
use kplan::Plan;

use crate::ran::Ran;

/// What is known of a graph.
pub struct Known<'g> {
    pub graph: &'g Graph,
    pub specialize: &'g dyn Specialize,
    pub program: GraphProgram<'g>,
    pub memory: ConstantMemory,
    pub summaries: Summaries,
    pub liveness: Liveness,
    pub edges: Edges<'g>,
    pub ran: Ran,
}

impl<'g> Known<'g> {
    /// Analyses a graph, with the traces of a plan.
    ///
    /// # Errors
    /// The reason why its paths cannot be copied.
    pub fn of(graph: &'g Graph, plan: &Plan) -> Result<Known<'g>, String> {
        let specialize = graph.isa().specialize().ok_or("the machine is not supported")?;
        let program = GraphProgram::of(graph);
        if program.machine().convention.is_none() {
            return Err(
                "a function pops its arguments, so that the stack pointer after calls is unknown".into()
            );
        }
        let memory = DataUses::of(graph).constant_memory(graph);
        let summaries = Summaries::of(&program, program.machine(), memory.clone());
        let liveness = Liveness::of(&program, &summaries);
        let edges = Edges::of(graph);
        let ran = Ran::of(graph, plan);
        Ok(Known { graph, specialize, program, memory, summaries, liveness, edges, ran })
    }
}
