//! All code that the program can reach: exploration and the targets of computed jumps, in turn.
//!
//! A computed jump needs the values of its function, and the values of a function need all of its code, so
//! that the two alternate until a fixed point is reached. Words of data that point to code come last: by then most
//! jump tables are known to be that, and are not mistaken for tables of functions.

use kplan::UnresolvedKind;

use crate::by_name::ByName;
use crate::code::Code;
use crate::image::{Addr, Image, Loaded};
use crate::jumps::Jumps;

/// Places that lead to code which has not been seen, and what is not known there.
pub type LostPlaces = Vec<(Addr, UnresolvedKind, String)>;

/// What is known of all code that can run.
pub struct Reached<'i> {
    /// The code.
    pub code: Code<'i>,
    /// The places that lead to code which has not been seen.
    pub lost: LostPlaces,
    /// The libraries that are loaded by name and that are not there, and where they are loaded.
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
    let jump = "a jump whose targets are not known, so that not all code was seen";
    let large = "addresses are made of distances here (the large code model), which are not followed";
    let lost = jumps.lost().map(|id| code.exit(id).at);
    let lost = lost.map(|at| (at, UnresolvedKind::Jump, jump.to_owned()));
    let large = code.large_distances().map(|at| (at, UnresolvedKind::Code, large.to_owned()));
    let go = "made by the Go compiler: methods that types refer to by distances are not followed";
    let go_code = image.objects.iter().filter_map(Loaded::code_of_go);
    let methods = go_code.map(|at| (at, UnresolvedKind::Code, go.to_owned()));
    let names_lost = names.lost.into_iter().map(|(at, reason)| (at, UnresolvedKind::Name, reason));
    let mut lost: LostPlaces = lost.chain(large).chain(methods).chain(names_lost).collect();
    lost.sort_unstable_by_key(|&(at, ..)| at);
    Reached { code, lost, absent: names.absent.into_iter().collect() }
}
