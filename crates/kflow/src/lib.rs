/*!
Values and liveness over control-flow graphs.

This crate depends only on the effects of instructions ([`kisa::Effect`]), not on kernels, programs or system calls.
The owner of a graph provides its blocks and their content ([`Cfg`]). The main design decisions:

- *Effects are distinguished in one place* ([`apply`]). An analysis defines the meaning of each part of the language
  ([`Transfer`]). A new effect therefore does not compile until every analysis handles it, while a `match` with a
  wildcard arm would ignore its writes.
- *The solver recomputes states from those after the predecessors* ([`solve`]), in Bourdoncle's order, instead of only
  adding to them. A value that the first round of a loop assumes and the second disproves is absent from the result. A
  block outside loops is visited once.
- *Relocated fields are symbols* ([`kisa::Symbol`]), so code has values before it is linked.
- *Conventions are proved for code that can be analysed* ([`Summaries`]). A register survives a call if the callee's
  code restores it on every path to a return, hand-written callees change everything, and the registers that are live
  after calls of a function are live at its returns ([`Liveness`]). A function that is called by its address, or that
  cannot be analysed, is assumed to follow a [`Convention`], if the program has one; compiled callers assume the same.
  The pass `exercise` of kopt checks this: it overwrites dead registers before every block, and the programs must
  behave the same.
- *Others may write memory at any time*, except frames whose address has not escaped and memory that nothing writes
  ([`constants::ConstantMemory`]). Two loads from one place are two unknowns.
- *Unchanged functions are not analysed again* ([`Remembered`]): the result for a function is computed once for each
  set of facts about its callees, even if the program changes in a few places between analyses.
- *Constants propagate from callers to callees and back* ([`propagate`]), and so does the absence of edges that they
  rule out.
*/

mod cfg;
pub mod constants;
mod facts;
mod fingerprint;
mod liveness;
mod machine;
mod order;
mod program;
mod propagate;
mod remembered;
mod solve;
mod summary;
mod transfer;
pub mod values;
mod walk;

pub use cfg::{BlockIndex, Cfg};
pub use facts::Reached;
pub use fingerprint::{Fingerprint, fingerprint};
pub use liveness::Liveness;
pub use machine::{Convention, Machine};
pub use program::{
    Callee, EVERYTHING, FLAGS, FunctionCfg, FunctionIndex, Instruction, Program, Then, Way, bit,
};
pub use propagate::{Guard, Guards, propagate};
pub use remembered::Remembered;
pub use solve::{Analysis, Head, States, solve};
pub use summary::{Summaries, Summary};
pub use transfer::{Transfer, apply};

#[cfg(test)]
mod tests;
