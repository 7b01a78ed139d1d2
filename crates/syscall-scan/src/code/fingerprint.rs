//! Fingerprints of functions: hashes of their control-flow graphs, to detect changes.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use super::function::{Block, Function};
use super::reachable::Code;
use super::run::ExitKind;

/// A hash of blocks and the edges between them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fingerprint(u64);

impl Fingerprint {
    fn of(what: impl Hash) -> Fingerprint {
        let mut hasher = FxHasher::default();
        what.hash(&mut hasher);
        Fingerprint(hasher.finish())
    }

    /// Returns the joint fingerprint of several things.
    pub fn of_all(shapes: impl Iterator<Item = Fingerprint>) -> Fingerprint {
        Fingerprint::of(shapes.collect::<Vec<_>>())
    }
}

impl Function {
    /// Returns the fingerprint of its blocks.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of_all(self.blocks.iter().map(|block| Fingerprint::of((block.start, &block.successors))))
    }

    /// Returns the fingerprint of its blocks and all their successors, except those of computed jumps.
    pub fn fingerprint_with_exits(&self, code: &Code) -> Fingerprint {
        let fingerprint = |block: &Block| {
            let exit = block.exit.map(|id| code.exit(id));
            let exit = exit.filter(|exit| exit.kind != ExitKind::IndirectJump);
            Fingerprint::of((block.start, block.end, exit.map(|exit| &exit.successors)))
        };
        Fingerprint::of_all(self.blocks.iter().map(fingerprint))
    }
}
