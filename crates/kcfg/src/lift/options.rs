//! The choices of the lifter's caller: the world of the program, and the parts that stay.

use std::ops::Range;

use crate::index::InputId;
use crate::special::World;

/// Input of lifting besides the objects.
#[derive(Clone, Debug)]
pub struct Options {
    /// Kernel or user program, which gives section names their meaning and determines the sections that the link
    /// discards.
    pub world: World,
    /// Keep `.export_symbol`: the kernel has loadable modules, and its build reads the exports from the objects.
    pub keep_exports: bool,
}

/// A part of an input section: a function, a variable, or a section of data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The section.
    pub section: InputId,
    /// Offsets in bytes in it.
    pub range: Range<u32>,
}

/// The way in which a part is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// No part of it is removed.
    Alive,
    /// No part of it is removed, and it is opaque; a function that cannot be moved alone is kept together with its
    /// section.
    Whole,
}
