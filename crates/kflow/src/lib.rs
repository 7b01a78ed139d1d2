/*!
Values and liveness over control-flow graphs.

This crate depends on the effects of instructions ([`kisa::Effect`]) only, not on kernels, programs or system calls.
The owner of a graph provides its blocks and their content ([`Cfg`]). Why it is built as it is:

- *Effects are told apart once* ([`apply`]). An analysis says what the parts of the language mean to it
  ([`Transfer`]): an effect that is new does not compile before every analysis has an answer, where a `match` with an
  arm for the rest would forget what the effect writes.
- *The solver computes states anew from those behind the predecessors* ([`solve`]), in Bourdoncle's order, instead of
  only ever adding to them. A value that the first round of a loop assumes and the second disproves is gone in the end.
  A block without loops around it is visited once.
- *Relocated fields are symbols* ([`kisa::Symbol`]), so that code that is not linked yet has values like any other.
- *Conventions are shown where code can be followed* ([`Summaries`]). A register survives a call if the code of the callee
  gives it back on every way to a return, hand-written callees change everything, and what matters where a function
  returns is what matters behind the calls of it ([`Liveness`]). What is called by its address, and what cannot be
  followed, is believed to keep to a [`Convention`], if the program has one; compiled callers do so too. The pass
  `exercise` of kopt overwrites what does not matter in front of every block, and programs do what they did.
- *Memory may be written by others at any time*, except frames whose address has not escaped and memory that nothing
  writes ([`constants::ConstantMemory`]). Two loads from one place are two unknowns.
- *What has not changed is not followed again* ([`Remembered`]): what a function does is found once for each thing that is
  known of those that it calls, also where a program is analysed again that has become another one in a few places.
- *Constants go from callers to callees and back* ([`propagate`]), with the ways out of blocks that they rule out.
*/

mod cfg;
pub mod constants;
mod facts;
mod liveness;
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
pub use liveness::Liveness;
pub use program::{
    Callee, EVERYTHING, FLAGS, FunctionCfg, FunctionIndex, Instruction, Program, Then, Way, bit,
};
pub use propagate::{Guard, Guards, propagate};
pub use remembered::{Fingerprint, Remembered, fingerprint};
pub use solve::{Analysis, Head, States, solve};
pub use summary::{Convention, Machine, Summaries, Summary};
pub use transfer::{Transfer, apply};

#[cfg(test)]
mod tests;
