//! What functions look like, as hashes that tell whether something has changed.

use std::hash::{Hash, Hasher};

use petgraph::algo::kosaraju_scc;
use petgraph::graph::DiGraph;
use rustc_hash::FxHasher;

use super::{Block, BlockIndex, Code, ExitKind, Function};
use crate::image::Addr;

/// A hash of blocks and of the ways between them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Shape(u64);

impl Shape {
    fn of(what: impl Hash) -> Shape {
        let mut hasher = FxHasher::default();
        what.hash(&mut hasher);
        Shape(hasher.finish())
    }
}

impl FromIterator<Shape> for Shape {
    /// That of several, which are all the same only if this is.
    fn from_iter<I: IntoIterator<Item = Shape>>(shapes: I) -> Shape {
        Shape::of(shapes.into_iter().collect::<Vec<_>>())
    }
}

impl Function {
    /// The shape of all of it.
    pub fn shape(&self) -> Shape {
        self.blocks.iter().map(|block| Shape::of((block.start, &block.successors))).collect()
    }

    /// By block, the shape of the block and of all that control can come through on its way there, with where else
    /// it can go from those blocks, unless by a computed jump.
    pub fn ways(&self, code: &Code) -> Vec<Shape> {
        self.add_ways(|block| {
            let exit = block.exit.map(|id| code.exit(id));
            let exit = exit.filter(|exit| exit.kind != ExitKind::IndirectJump);
            Shape::of((block.start, block.end, exit.map(|exit| &exit.successors)))
        })
    }

    /// The same, given what a block is by itself.
    fn add_ways(&self, own: impl Fn(&Block) -> Shape) -> Vec<Shape> {
        let predecessors = self.predecessors();
        let start = |block: BlockIndex| self.blocks[block.get()].start;
        let mut graph = DiGraph::<(), ()>::with_capacity(self.blocks.len(), 2 * self.blocks.len());
        self.blocks.iter().for_each(|_| _ = graph.add_node(()));
        for (to, from) in predecessors.iter().enumerate() {
            graph.extend_with_edges(from.iter().map(|from| (from.0, to as u32)));
        }
        let mut ways = vec![Shape(0); self.blocks.len()];
        // Those come first that nothing leads to but themselves.
        for group in kosaraju_scc(&graph).into_iter().rev() {
            let mut group: Vec<BlockIndex> =
                group.into_iter().map(|node| BlockIndex(node.index() as u32)).collect();
            group.sort_unstable_by_key(|&block| start(block));
            let mut parts = Vec::new();
            for &block in &group {
                let mut before: Vec<(Addr, Shape)> =
                    predecessors[block.get()].iter().map(|&from| (start(from), ways[from.get()])).collect();
                before.sort_unstable();
                parts.extend([own(&self.blocks[block.get()]), Shape::of(before)]);
            }
            let shape: Shape = parts.into_iter().collect();
            group.into_iter().for_each(|block| ways[block.get()] = shape);
        }
        ways
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ways of blocks, given their successors.
    fn ways(successors: &[&[u32]]) -> Vec<Shape> {
        let blocks = successors.iter().enumerate().map(|(index, next)| Block {
            start: Addr(index as u64),
            end: Addr(index as u64 + 1),
            exit: None,
            successors: next.iter().map(|&next| BlockIndex(next)).collect(),
        });
        let function = Function { entry: Addr(0), blocks: blocks.collect() };
        function.add_ways(|block| Shape::of(block.start))
    }

    #[test]
    fn what_lies_behind_does_not_matter() {
        let (few, more) = (ways(&[&[1, 2], &[2], &[], &[]]), ways(&[&[1, 2], &[2], &[3], &[]]));
        assert_eq!(few[..3], more[..3]);
        assert_ne!(few[3], more[3]);
    }

    #[test]
    fn what_comes_from_behind_does() {
        let (straight, again) = (ways(&[&[1], &[2], &[3], &[]]), ways(&[&[1], &[2], &[1, 3], &[]]));
        assert_eq!(straight[0], again[0]);
        for block in 1..4 {
            assert_ne!(straight[block], again[block]);
        }
    }
}
