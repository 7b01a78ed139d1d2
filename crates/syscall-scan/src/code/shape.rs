//! What functions look like, as hashes that tell whether something has changed.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use super::{Block, Code, ExitKind, Function};

/// A hash of blocks and of the ways between them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape(u64);

impl Shape {
    fn of(what: impl Hash) -> Shape {
        let mut hasher = FxHasher::default();
        what.hash(&mut hasher);
        Shape(hasher.finish())
    }

    /// That of several things together.
    pub fn of_all(shapes: impl Iterator<Item = Shape>) -> Shape {
        Shape::of(shapes.collect::<Vec<_>>())
    }
}

impl Function {
    /// The shape of its blocks.
    pub fn shape(&self) -> Shape {
        Shape::of_all(self.blocks.iter().map(|block| Shape::of((block.start, &block.successors))))
    }

    /// The shape of its blocks, with wherever control can go from them, unless by a computed jump.
    pub fn shape_with_exits(&self, code: &Code) -> Shape {
        let shape = |block: &Block| {
            let exit = block.exit.map(|id| code.exit(id));
            let exit = exit.filter(|exit| exit.kind != ExitKind::IndirectJump);
            Shape::of((block.start, block.end, exit.map(|exit| &exit.successors)))
        };
        Shape::of_all(self.blocks.iter().map(shape))
    }
}
