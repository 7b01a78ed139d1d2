//! The work that waits, with its conditions.

use kisa::Addressing;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::code::rules::{Rule, Rules};
use crate::code::run::ExitId;
use crate::code::services::{SERVICE_FUNCTIONS, is_service, service_function};
use crate::code::work::Work;
use crate::image::{Addr, Image, Loaded};

/// A function that only glibc has.
const GNU: &str = "gnu_get_libc_version";

/// The condition of a deferral.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// A request for the name.
    Named(&'static str),
    /// A condition of the rule may hold.
    Rule(&'static Rule),
}

/// The deferred work.
#[derive(Default)]
pub(in crate::code) struct Deferred {
    /// The functions of services, with the names that select them.
    pub(super) services: FxHashMap<Addr, &'static str>,
    /// The names that have been requested.
    pub(super) named: FxHashSet<&'static str>,
    /// The number of strings of the C library that have been processed.
    pub(super) strings: usize,
    /// Whether the C library is glibc, and references to its strings are recognised.
    pub(super) is_gnu: bool,
    /// The optional features of the C library.
    pub(super) rules: Rules,
    /// The interpreter's entry.
    pub(in crate::code) entry: Option<Addr>,
    /// The deferred work with its conditions.
    pub(super) work: Vec<(Until, Work)>,
    /// The branches that are taken only if the interpreter is run as a program: the first instruction of the
    /// comparison, and the successor for that case.
    pub(super) branches: FxHashMap<ExitId, (Addr, Addr)>,
}

impl Deferred {
    pub(in crate::code) fn new(image: &Image) -> Deferred {
        let mut deferred =
            Deferred { entry: image.interpreter().map(|_| image.entry), ..Deferred::default() };
        let is_gnu = |loaded: &Loaded| loaded.functions_named(GNU).next().is_some();
        let sees_strings = kisa::isa(image.machine).addressing() == Addressing::Whole;
        if !sees_strings || !image.objects.iter().any(is_gnu) {
            return deferred;
        }
        deferred.is_gnu = true;
        for loaded in image.objects.iter().filter(|loaded| is_service(loaded)) {
            for symbol in loaded.object.exported_functions() {
                if let Some(name) = service_function(&symbol.name) {
                    deferred.services.insert(loaded.address(symbol.value), name);
                }
            }
            for &(_, string) in &loaded.data_pointers {
                deferred.name(image, string);
            }
        }
        deferred
    }

    /// Records that code refers to a string.
    pub(super) fn name(&mut self, image: &Image, string: Addr) {
        let name = image.string(string).and_then(|name| std::str::from_utf8(name).ok());
        self.named.extend(name.and_then(|name| SERVICE_FUNCTIONS.get(name)));
    }
}
