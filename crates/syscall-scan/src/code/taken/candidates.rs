//! Constants that may be addresses of code, or distances to it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rustc_hash::FxHashMap;

use crate::image::{Addr, Image, Loaded, ObjectIndex};

/// Constants that may be addresses of code.
pub(in crate::code) struct Candidates {
    /// Whether addresses may be distances from the global offset table.
    pub(super) relative: bool,
    /// Distances, with the instructions that add them.
    pub(super) distances: Vec<(Addr, i64)>,
    /// An instruction of each object that loads a distance as in the large code model of x86-64.
    pub(super) large: BTreeMap<ObjectIndex, Addr>,
    /// The address of the global offset table of each object.
    pub(super) bases: Vec<Option<Addr>>,
    /// The instructions of functions that were swept on demand, by the function's first address.
    pub(super) swept: Mutex<FxHashMap<Addr, Arc<[Addr]>>>,
}

impl Candidates {
    pub(in crate::code) fn new(image: &Image) -> Candidates {
        Candidates {
            relative: image.machine.target().has_got_register,
            distances: Vec::new(),
            large: BTreeMap::new(),
            bases: image.objects.iter().map(Loaded::global_offset_table).collect(),
            swept: Mutex::default(),
        }
    }
}
