//! The part of a graph to print: everything, or functions by name.

use rustc_hash::FxHashSet;

use super::Printer;
use crate::index::{FunctionId, NodeId};

/// The part to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The whole graph.
    All,
    /// Some functions.
    Functions {
        /// The compiler-made functions, in the graph's order.
        functions: Vec<FunctionId>,
        /// Chunks of opaque code with a selected function in them, in the graph's order.
        chunks: Vec<NodeId>,
    },
}

/// The reason why nothing can be selected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No function has this name.
    #[error("no function is called {name}{}", did_you_mean(.near))]
    NoFunction {
        /// The name.
        name: String,
        /// Similar names.
        near: Vec<String>,
    },
    /// The symbol names data.
    #[error("{0} is data; --function takes the name of a function, and the whole document has the data")]
    Data(String),
}

fn did_you_mean(near: &[String]) -> String {
    match near {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        [most @ .., last] => format!("; did you mean {} or {last}?", most.join(", ")),
    }
}

impl Printer<'_> {
    /// Selects all functions with one of these names; local functions may share a name. The aliases of a function
    /// select it as well. For hand-written and other opaque code, selects the whole chunk.
    ///
    /// # Errors
    /// If a name matches no function.
    pub fn select(&self, names: &[String]) -> Result<Selection, Error> {
        let mut functions = Vec::new();
        let mut chunks = Vec::new();
        for name in names {
            let before = functions.len() + chunks.len();
            self.select_one(name, &mut functions, &mut chunks);
            if functions.len() + chunks.len() == before {
                return Err(self.not_found(name));
            }
        }
        functions.sort_unstable();
        functions.dedup();
        chunks.sort_unstable();
        chunks.dedup();
        Ok(Selection::Functions { functions, chunks })
    }

    fn select_one(&self, name: &str, functions: &mut Vec<FunctionId>, chunks: &mut Vec<NodeId>) {
        let named = self.graph.functions.iter_enumerated().filter(|(_, function)| function.name == name);
        functions.extend(named.map(|(id, _)| id));
        for &(node, offset, symbol) in &self.symbols {
            if self.graph.symbols[symbol].name != name {
                continue;
            }
            match (self.graph.block(node), self.graph.chunk(node)) {
                (Some(block), _) if offset == 0 && self.graph.function(block.function).entry() == node => {
                    functions.push(block.function);
                }
                (_, Some(chunk)) if chunk.code => chunks.push(node),
                _ => {}
            }
        }
    }

    fn not_found(&self, name: &str) -> Error {
        let is_data = |&(node, _, symbol): &(NodeId, u32, crate::index::SymbolId)| {
            self.graph.symbols[symbol].name == name && self.graph.chunk(node).is_some_and(|chunk| !chunk.code)
        };
        if self.symbols.iter().any(is_data) {
            return Error::Data(name.to_owned());
        }
        Error::NoFunction { name: name.to_owned(), near: self.near(name) }
    }

    /// Returns the names of functions that are most similar to `name`, at most three.
    fn near(&self, name: &str) -> Vec<String> {
        let functions = self.graph.functions.iter().map(|function| function.name.as_str());
        let opaque = self.opaque.keys().flat_map(|&node| self.symbols_in(node));
        let names: FxHashSet<&str> =
            functions.chain(opaque.map(|(_, symbol)| symbol.name.as_str())).collect();
        let most = name.chars().count() / 3 + 1;
        let mut near: Vec<(usize, &str)> = names
            .into_iter()
            .filter(|other| !other.contains(':'))
            .filter_map(|other| {
                let around = name.len() >= 4 && other.contains(name);
                let distance = distance(name, other);
                (around || distance <= most).then_some((distance, other))
            })
            .collect();
        near.sort_unstable();
        near.into_iter().take(3).map(|(_, name)| name.to_owned()).collect()
    }
}

/// Returns the edit distance of two names (Levenshtein): letters inserted, removed or replaced.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.chars().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[row.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("vfs_read", "vfs_read"), 0);
        assert_eq!(distance("vfs_raed", "vfs_read"), 2);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn suggestions() {
        let names = |n: usize| ["a", "b", "c"][..n].iter().map(|s| s.to_string()).collect::<Vec<_>>();
        assert_eq!(did_you_mean(&[]), "");
        assert_eq!(did_you_mean(&names(1)), "; did you mean a?");
        assert_eq!(did_you_mean(&names(3)), "; did you mean a, b or c?");
    }
}
