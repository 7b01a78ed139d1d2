/*!
Identical pieces of code, by partition refinement.

A piece is a list of blocks: a function, or one block. At first, pieces are in one class if they are equal except for
the pieces that they jump to and call. A class is then split by the classes of its members' targets, until nothing
splits any more. This finds the coarsest stable partition, so that recursive functions, mutually recursive functions
and loops are found identical, too. Block ends are compared on the basis of this partition ([`Partition::tails`]).
*/

mod contents;
mod tails;

use indexmap::IndexMap;
use kcfg::edges::Edges;
use kcfg::graph::Graph;
use kcfg::index::NodeId;
use rayon::prelude::*;
use rustc_hash::FxBuildHasher;

pub use contents::entries;
use contents::{Contents, Reader};
pub use tails::{End, Instruction};

/// Pieces of code, partitioned into classes of identical ones.
pub struct Partition<'g> {
    graph: &'g Graph,
    reader: Reader<'g>,
    /// The class of each piece.
    class_of: Vec<usize>,
}

impl<'g> Partition<'g> {
    /// Partitions pieces.
    pub fn of(graph: &'g Graph, edges: &'g Edges<'g>, pieces: &[&[NodeId]]) -> Partition<'g> {
        let reader = Reader::new(graph, edges, pieces);
        let all: Vec<Contents> = pieces.par_iter().map(|piece| reader.read(piece)).collect();
        let mut class_of = number(all.iter().map(|contents| (&contents.shape, contents.targets.len())));
        loop {
            let before = count(&class_of);
            let keys = all.iter().zip(&class_of).map(|(contents, &own)| {
                let targets: Vec<usize> = contents.targets.iter().map(|&target| class_of[target]).collect();
                (own, targets)
            });
            class_of = number(keys);
            if count(&class_of) == before {
                break;
            }
        }
        Partition { graph, reader, class_of }
    }

    /// The classes of more than one piece, as indices in rising order.
    pub fn classes(&self) -> Vec<Vec<usize>> {
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); count(&self.class_of)];
        for (piece, &class) in self.class_of.iter().enumerate() {
            members[class].push(piece);
        }
        members.retain(|class| class.len() > 1);
        members
    }

    /// Returns bytes that are equal if the pieces with these contents are identical.
    fn key(&self, contents: Contents) -> Vec<u8> {
        let Contents { mut shape, targets } = contents;
        targets.iter().for_each(|&target| shape.extend((self.class_of[target] as u64).to_le_bytes()));
        shape
    }
}

/// Numbers keys from 0 in order of first occurrence; equal keys get equal numbers.
fn number<K: std::hash::Hash + Eq>(keys: impl Iterator<Item = K>) -> Vec<usize> {
    let mut numbers: IndexMap<K, (), FxBuildHasher> = IndexMap::default();
    keys.map(|key| numbers.insert_full(key, ()).0).collect()
}

/// Number of classes.
fn count(classes: &[usize]) -> usize {
    classes.iter().max().map_or(0, |last| last + 1)
}
