//! Why a program can make a system call: the shortest chain from its start to a site.
//!
//! A chain leads from function to function, by calls, by jumps, and by instructions that take the address of a
//! function, which may then be called from anywhere. A function whose address is in data begins a chain of its own. The
//! last part leads through the wrappers that pass the number on.

use std::collections::VecDeque;
use std::fmt::Write;

use kplan::Abi;
use rustc_hash::FxHashMap;

use crate::abi;
use crate::calls::Calls;
use crate::code::{Code, ExitKind, Function, Taken};
use crate::image::{Addr, Image};

/// A link of a chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The function.
    pub function: Addr,
    /// The way to it, possibly from the function of the previous link.
    pub by: By,
}

/// The way to a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// By a call at this instruction.
    Call(Addr),
    /// By a jump at this instruction.
    Jump(Addr),
    /// By its address, which is exposed here.
    Taken(Taken),
}

/// The chain to a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    /// The functions, from the outermost to the one that contains the site.
    pub links: Vec<Link>,
    /// The site.
    pub site: Addr,
    /// Its ABI.
    pub abi: Abi,
    /// The number.
    pub number: u32,
}

/// The shortest path to every function.
struct ShortestWays {
    reached: FxHashMap<Addr, (Option<Addr>, By)>,
}

impl ShortestWays {
    fn new(code: &Code) -> ShortestWays {
        let mut taken: Vec<(Addr, Addr)> = Vec::new();
        let mut roots: Vec<(usize, Addr, By)> = Vec::new();
        for (function, entry) in code.entries() {
            for &by in &entry.taken {
                match by {
                    Taken::Code(at) => taken.push((at, function)),
                    Taken::Start => roots.push((0, function, By::Taken(by))),
                    Taken::Data(_) | Taken::Named(_) => roots.push((1, function, By::Taken(by))),
                    Taken::Unwinder => roots.push((2, function, By::Taken(by))),
                }
            }
        }
        taken.sort_unstable();
        roots.sort_unstable_by_key(|&(rank, function, _)| (rank, function));
        let mut ways = ShortestWays { reached: FxHashMap::default() };
        // First code reachable from the start, then code reachable only from data.
        for (_, function, by) in roots {
            ways.explore(code, &taken, function, by);
        }
        ways
    }

    fn explore(&mut self, code: &Code, taken: &[(Addr, Addr)], root: Addr, by: By) {
        if self.reached.contains_key(&root) {
            return;
        }
        self.reached.insert(root, (None, by));
        let mut queue = VecDeque::from([root]);
        while let Some(function) = queue.pop_front() {
            for (next, by) in leads_to(code, taken, function) {
                self.reached.entry(next).or_insert_with(|| {
                    queue.push_back(next);
                    (Some(function), by)
                });
            }
        }
    }

    /// Returns the links to the function that contains an instruction.
    fn to(&self, code: &Code, at: Addr) -> Option<Vec<Link>> {
        let chains = code.functions_of(at).into_iter().filter_map(|function| {
            let mut links = Vec::new();
            let mut next = Some(function);
            while let Some(function) = next {
                let &(from, by) = self.reached.get(&function)?;
                links.push(Link { function, by });
                next = from;
            }
            links.reverse();
            Some(links)
        });
        chains.min_by_key(Vec::len)
    }
}

/// Returns the functions that a function leads to, and how.
fn leads_to(code: &Code, taken: &[(Addr, Addr)], entry: Addr) -> Vec<(Addr, By)> {
    let function = Function::new(code, entry);
    let mut next = Vec::new();
    for block in &function.blocks {
        let first = taken.partition_point(|&(at, _)| at < block.start);
        let here = taken[first..].iter().take_while(|&&(at, _)| at < block.end);
        next.extend(here.map(|&(at, function)| (function, By::Taken(Taken::Code(at)))));
        let Some(exit) = block.exit.map(|exit| code.exit(exit)) else {
            next.extend(code.entry(block.end).map(|_| (block.end, By::Jump(block.start))));
            continue;
        };
        if let ExitKind::Call(callee) = exit.kind {
            next.push((callee, By::Call(exit.at)));
        }
        let others = exit.successors.iter().filter(|&&to| to != entry && code.entry(to).is_some());
        next.extend(others.map(|&to| (to, By::Jump(exit.at))));
    }
    next
}

impl Chain {
    /// Returns the shortest chain to a site that makes a call. `call` is a name or number. `None` if no site makes it.
    pub fn to(code: &Code, sites: &[(Addr, Abi, Calls)], call: &str) -> Option<Chain> {
        let mut ways: Option<ShortestWays> = None;
        let mut best: Option<Chain> = None;
        for (site, abi, calls) in sites {
            let Some(number) = call.parse().ok().or_else(|| abi::number(*abi, call)) else { continue };
            let Some(made) = calls.known.get(&number) else { continue };
            let ways = ways.get_or_insert_with(|| ShortestWays::new(code));
            let outermost = made.chain.first().copied().unwrap_or(*site);
            let Some(mut links) = ways.to(code, outermost) else { continue };
            for (index, &at) in made.chain.iter().enumerate() {
                // The callee is the function that contains the next link of the chain.
                let inner = made.chain.get(index + 1).copied().unwrap_or(*site);
                links.extend(wrapper(code, at, inner));
            }
            if best.as_ref().is_none_or(|best| links.len() < best.links.len()) {
                best = Some(Chain { links, site: *site, abi: *abi, number });
            }
        }
        best
    }

    /// Returns the human-readable chain, one function per line.
    pub fn describe(&self, image: &Image) -> String {
        let mut text = String::new();
        for Link { function, by } in &self.links {
            let how = match *by {
                By::Call(at) => format!("called at {}", image.describe_data(at)),
                By::Jump(at) => format!("jumped to at {}", image.describe_data(at)),
                By::Taken(Taken::Start) => "the program starts here".to_owned(),
                By::Taken(Taken::Code(at)) => format!("its address is taken at {}", image.describe_data(at)),
                By::Taken(Taken::Data(at)) => {
                    format!("data at {} holds its address", image.describe_data(at))
                }
                By::Taken(Taken::Named(at)) => format!("looked up by name, see {}", image.describe_data(at)),
                By::Taken(Taken::Unwinder) => "an exception handler".to_owned(),
            };
            let _ = writeln!(text, "  {:<40} {how}", image.describe(*function));
        }
        let name = abi::name(self.abi, self.number).map_or_else(|| self.number.to_string(), str::to_owned);
        let site = image.describe_data(self.site);
        let _ = writeln!(text, "  {:<40} {name} ({}, {})", site, self.number, self.abi);
        text
    }
}

/// Returns the link from a call to the function that contains the instruction `inner`.
fn wrapper(code: &Code, at: Addr, inner: Addr) -> Option<Link> {
    let kind = code.exit_at(at).map(|exit| code.exit(exit).kind);
    let around = code.functions_of(inner).first().copied();
    let (function, by) = match kind {
        Some(ExitKind::Call(callee)) => (callee, By::Call(at)),
        Some(ExitKind::IndirectCall) => (around?, By::Call(at)),
        _ => (around?, By::Jump(at)),
    };
    Some(Link { function, by })
}
