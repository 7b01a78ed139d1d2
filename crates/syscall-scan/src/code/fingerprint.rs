//! Fingerprints of functions: hashes of their control-flow graphs, to detect changes.

use std::hash::Hash;

use kflow::{Fingerprint, fingerprint};

use super::function::{Block, Function};
use super::reachable::Code;
use super::run::ExitKind;

impl Function {
    /// Returns the fingerprint of its blocks and the edges between them.
    pub fn fingerprint(&self) -> Fingerprint {
        fingerprint(|hasher| {
            self.blocks.iter().for_each(|block| (block.start, &block.successors).hash(hasher));
        })
    }

    /// Returns the fingerprint of its blocks and all their successors, except those of computed jumps.
    pub fn fingerprint_with_exits(&self, code: &Code) -> Fingerprint {
        let parts = |block: &Block| {
            let exit = block.exit.map(|id| code.exit(id));
            let exit = exit.filter(|exit| exit.kind != ExitKind::IndirectJump);
            (block.start, block.end, exit.map(|exit| &exit.successors))
        };
        fingerprint(|hasher| self.blocks.iter().for_each(|block| parts(block).hash(hasher)))
    }
}
