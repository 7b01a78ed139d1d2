/*!
Values and liveness over control-flow graphs.

This crate knows what instructions compute ([`kisa::Effect`]) and nothing of kernels, programs or system calls: whoever
has a graph says what its blocks are ([`Cfg`]) and what they hold. Why it is built as it is:

- *Effects are told apart once* ([`apply`]). An analysis says what the parts of the language mean to it
  ([`Transfer`]): an effect that is new does not compile before every analysis has an answer, where a `match` with an
  arm for the rest would forget what the effect writes.
- *The solver computes states anew from those behind the predecessors* ([`solve`]), in Bourdoncle's order, instead of
  only ever adding to them. What a first round of a loop takes for a value, and the second disproves, is gone in the
  end; and a block without loops around it is visited once.
*/

mod cfg;
mod order;
mod solve;
mod transfer;
pub mod values;

pub use cfg::{BlockIndex, Cfg};
pub use solve::{Analysis, Head, States, solve};
pub use transfer::{Transfer, apply};
