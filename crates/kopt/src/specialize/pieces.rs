//! The blocks of a path as operations.

use std::collections::BTreeMap;

use kcfg::index::NodeId;
use kcfg::instructions::Instruction;

use super::demand::{Exit, Needs, Piece, PieceEnd, Way};
use super::explore::{Edge, End, Explorer, Key, Why};
use super::guard;
use super::op::Op;
use super::state::State;
use super::value::Value;

/// Makes operations of all blocks of a path. The first piece is the path's entry.
///
/// # Errors
/// The block that cannot be copied, and the reason.
pub fn pieces(
    explorer: &mut Explorer<'_>,
    needs: &Needs<'_, '_>,
) -> Result<(Vec<Piece>, Vec<Exit>), (NodeId, Why)> {
    let entry = explorer.first();
    let others = explorer.states.keys().copied().filter(|&key| key != entry);
    let keys: Vec<Key> = std::iter::once(entry).chain(others).collect();
    let numbers = keys.iter().enumerate().map(|(number, &key)| (key, number)).collect();
    let mut blocks = Blocks { needs, numbers, exits: Vec::new() };
    let mut pieces = Vec::with_capacity(keys.len());
    for key in keys {
        pieces.push(blocks.piece(explorer, key).map_err(|why| (key.1, why))?);
    }
    Ok((pieces, blocks.exits))
}

struct Blocks<'n, 'a, 'g> {
    needs: &'n Needs<'a, 'g>,
    /// The number of each block's piece.
    numbers: BTreeMap<Key, usize>,
    exits: Vec<Exit>,
}

impl Blocks<'_, '_, '_> {
    fn piece(&mut self, explorer: &mut Explorer<'_>, key: Key) -> Result<Piece, Why> {
        let state = explorer.states[&key].clone();
        let (mut ops, mut problem, mut last) = (Vec::new(), None, state.clone());
        let (end, state) = explorer.follow(key, state, |explorer, before, instruction, after| {
            match explorer.maker().make(before, instruction, after) {
                Ok(more) => ops.extend(more),
                Err(why) => problem = problem.or(Some(why)),
            }
            last = after.clone();
        })?;
        if let Some(why) = problem {
            return Err(why);
        }
        let end = self.end(explorer, key, &end, &last, state, &mut ops)?;
        Ok(Piece { key, ops, end })
    }

    /// Returns the end of a piece, and adds its operations. `last` is what is known before the block's transfer of control, and
    /// `state` what is known after it.
    fn end(
        &mut self,
        explorer: &Explorer<'_>,
        key: Key,
        end: &End,
        last: &State,
        state: State,
        ops: &mut Vec<Op>,
    ) -> Result<PieceEnd, Why> {
        let graph = explorer.original.graph;
        let maker = explorer.maker();
        let back = |next: &NodeId| Value::Symbol(graph.symbol_for(*next), 0);
        let stack = explorer.stack(&state)?;
        Ok(match end {
            End::Go(edge) => PieceEnd::Go(self.way(explorer, edge, state, stack)?),
            End::Branch { condition, ways: [taken, next] } => {
                let if_taken = state.after_branch(explorer.original.isa, *condition, true);
                let if_not = state.after_branch(explorer.original.isa, *condition, false);
                let taken = self.way(explorer, taken, if_taken, stack)?;
                let next = self.way(explorer, next, if_not, stack)?;
                PieceEnd::Branch(*condition, [taken, next])
            }
            End::Enter(edge, word, next) => {
                ops.push(maker.store_return(*word, back(next))?);
                PieceEnd::Go(self.way(explorer, edge, state, stack)?)
            }
            End::Expect(callee, [enter, exit], word, next) => {
                let call = transfer(explorer, key)?;
                ops.push(maker.compare_target(last, &call, *callee)?);
                ops.push(maker.store_return(*word, back(next))?);
                let equal = explorer.original.isa.branch_if_equal(guard::ENCODING);
                let equal = equal.ok_or("there is no such branch")?;
                let out = self.way(explorer, exit, last.clone(), explorer.stack(last)?)?;
                let to = self.way(explorer, enter, state, stack)?;
                PieceEnd::Branch(equal.condition, [to, out])
            }
            End::Call(call, edge) => {
                let callee = graph.callee(key.1).copied();
                ops.push(maker.call(last, &transfer(explorer, key)?, call, callee)?);
                PieceEnd::Go(self.way(explorer, edge, state, stack)?)
            }
            End::Leave => PieceEnd::Leave,
        })
    }

    /// Returns the way along an edge, on which `state` is known. `stack` is the original's stack pointer.
    fn way(&mut self, explorer: &Explorer<'_>, edge: &Edge, state: State, stack: i32) -> Result<Way, Why> {
        match edge {
            Edge::To(to) => self.numbers.get(to).copied().map(Way::To).ok_or("a block is missing"),
            Edge::Exit(dest) => {
                self.exits.push(self.needs.exit(explorer, *dest, state, stack));
                Ok(Way::Exit(self.exits.len() - 1))
            }
        }
    }
}

/// Returns the instruction at the end of a block.
fn transfer<'g>(explorer: &Explorer<'g>, key: Key) -> Result<Instruction<'g>, Why> {
    let mut instructions = explorer.original.graph.instructions(key.1).unwrap_or_default();
    instructions.pop().ok_or("a block is empty")
}
