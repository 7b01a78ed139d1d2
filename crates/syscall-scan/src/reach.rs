//! All code that the program can reach: exploration alternates with finding the targets of computed jumps.
//!
//! The targets of a computed jump require the values of its function, and these values require all code of the
//! function. Both steps therefore alternate until a fixed point is reached. Words of data that point to code come last:
//! by then most jump tables are known, and are not mistaken for tables of functions.

use kplan::UnresolvedKind;

use crate::by_name::ByName;
use crate::code::Code;
use crate::image::{Addr, Image, Loaded};
use crate::jumps::Jumps;

/// Places that lead to code that was not found, and the missing fact.
pub type LostPlaces = Vec<(Addr, UnresolvedKind, String)>;

/// All code that can run.
pub struct Reached<'i> {
    /// The code.
    pub code: Code<'i>,
    /// The places that lead to code that was not found.
    pub lost: LostPlaces,
    /// The libraries that are loaded by name but do not exist, with the place that loads them.
    pub absent: Vec<(Addr, String)>,
}

/// Explores the whole program.
pub fn reach(image: &Image) -> Reached<'_> {
    let mut code = Code::new(image);
    let mut jumps = Jumps::default();
    let mut names = ByName::new(image);
    loop {
        code.explore();
        let more = jumps.follow(&mut code)
            || jumps.follow_lost(&mut code)
            || code.read_data()
            || code.take_landing_pads()
            || code.take_distances(jumps.leaving());
        if !more && !names.follow(&mut code) && !code.take_inner_pointers() {
            break;
        }
    }
    code.forget_constants();
    let jump = "the targets of this jump are unknown, so that some code may be missing";
    let large = "addresses are computed from distances here (large code model), which is not supported";
    let lost = jumps.lost().map(|id| code.exit(id).at);
    let lost = lost.map(|at| (at, UnresolvedKind::Jump, jump.to_owned()));
    let large = code.large_distances().map(|at| (at, UnresolvedKind::Code, large.to_owned()));
    let go = "compiled by Go: methods that types refer to by distance are not followed";
    let go_code = image.objects.iter().filter_map(Loaded::code_of_go);
    let methods = go_code.map(|at| (at, UnresolvedKind::Code, go.to_owned()));
    let names_lost = names.lost.into_iter().map(|(at, reason)| (at, UnresolvedKind::Name, reason));
    let mut lost: LostPlaces = lost.chain(large).chain(methods).chain(names_lost).collect();
    lost.sort_unstable_by_key(|&(at, ..)| at);
    Reached { code, lost, absent: names.absent.into_iter().collect() }
}
