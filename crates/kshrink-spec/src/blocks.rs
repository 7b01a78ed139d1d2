//! The map of the rewritten kernel, from addresses to blocks of the original.

use std::collections::BTreeMap;

use kcfg::graph::{CodeName, Graph, Origin, Provenance};
use kcfg::index::{FunctionId, InputId, NodeId};
use kcfg::lower::PlacedCode;
use kcli::Failure;
use kplan::{Block, BlockFunction, BlockMap, Counters, FunctionName, MadeBlock, MovedInstruction};
use rustc_hash::{FxHashMap, FxHashSet};

/// Makes the map of the lowered code, given the addresses of the object's sections. Code in sections without an address,
/// which the link has dropped (`--gc-sections`, `/DISCARD/`), is excluded. If several sections run at the same address
/// (the vectors of ARM kernels, one of which is chosen at boot), the first is used, as in [`kelf::Functions`].
pub fn map(graph: &Graph, code: &[PlacedCode], bases: &[Option<u64>]) -> Result<BlockMap, Failure> {
    let mut functions = OriginalFunctions::of(graph);
    let mut map = BlockMap::default();
    let mut nodes = Vec::new();
    let mut dropped = FxHashSet::default();
    let mut first_at = FxHashMap::default();
    for placed in code {
        let Some(base) = bases[placed.section.get()] else {
            dropped.insert(placed.node);
            continue;
        };
        if placed.size > 0 && *first_at.entry(base).or_insert(placed.section) != placed.section {
            continue;
        }
        let address = base + u64::from(placed.offset);
        if let Provenance::Made(pass) = graph.node(placed.node).provenance {
            map.made.push(MadeBlock { address, size: placed.size.into(), made_by: pass.to_owned() });
        }
        for piece in functions.pieces(graph, placed.node, placed.size) {
            nodes.push(placed.node);
            map.blocks.push(piece.at(address));
        }
        for code in graph.sources().merged(placed.node) {
            let piece = functions.piece_of(graph, code.function, &code.origin, placed.size);
            map.merged.extend(piece.map(|piece| piece.at(address)));
        }
        let start = graph.home_of(placed.node).and_then(|home| graph.start_of(home));
        map.moved.extend(graph.sources().moved(placed.node).iter().filter_map(|&(offset, input)| {
            let original_offset = u64::from(input.checked_sub(start?.offset)?);
            Some(MovedInstruction { address: address + u64::from(offset), original_offset })
        }));
    }
    map.functions = functions.all;
    map.made.sort_by_key(|made| made.address);
    map.merged.sort_by_key(|block| block.address);
    map.moved.sort_by_key(|moved| moved.address);
    let mut order: Vec<usize> = (0..map.blocks.len()).collect();
    order.sort_by_key(|&i| map.blocks[i].address);
    let (blocks, nodes): (Vec<Block>, Vec<NodeId>) =
        order.into_iter().map(|i| (map.blocks[i], nodes[i])).unzip();
    map.blocks = blocks;
    map.counters = counters(graph, &nodes, &dropped)?;
    Ok(map)
}

/// Returns the block of each counter of an instrumented kernel. `dropped` is the code that the link has dropped.
fn counters(
    graph: &Graph,
    nodes: &[NodeId],
    dropped: &FxHashSet<NodeId>,
) -> Result<Option<Counters>, Failure> {
    let Some(counted) = graph.counters() else { return Ok(None) };
    let blocks: FxHashMap<NodeId, usize> = nodes.iter().enumerate().map(|(i, &node)| (node, i)).collect();
    let symbol = graph.symbols()[counted.symbol].name.clone();
    let index = |node: &NodeId| match blocks.get(node) {
        Some(&index) => Ok(Some(index)),
        None if dropped.contains(node) => Ok(None),
        None => {
            let name = graph.name_of(*node);
            Err(Failure::job(format!("{name}: the link's address for it is not known")))
        }
    };
    Ok(Some(Counters { symbol, blocks: counted.blocks.iter().map(index).collect::<Result<_, _>>()? }))
}

/// A piece of a node that belongs to one function.
struct Piece {
    offset: u32,
    size: u32,
    function: usize,
    original_offset: u32,
    original_size: u32,
}

impl Piece {
    /// Returns the block of the map for a piece of a node at this address.
    fn at(self, address: u64) -> Block {
        Block {
            address: address + u64::from(self.offset),
            size: u64::from(self.size),
            function: self.function,
            original_offset: u64::from(self.original_offset),
            original_size: u64::from(self.original_size),
        }
    }
}

/// The original functions with code in the map.
struct OriginalFunctions<'g> {
    /// Code symbols by their places in the input, one for each place.
    symbols: BTreeMap<(InputId, u32), CodeName<'g>>,
    /// For each place in the input, the index in `all` of the function that begins there.
    indices: FxHashMap<(InputId, u32), usize>,
    all: Vec<BlockFunction>,
}

impl<'g> OriginalFunctions<'g> {
    fn of(graph: &'g Graph) -> OriginalFunctions<'g> {
        let mut symbols: BTreeMap<(InputId, u32), CodeName<'g>> = BTreeMap::new();
        for named in graph.code_names() {
            let Some(place) = graph.sources().place_of(named.id) else { continue };
            // Prefers global to local symbols, then the first, as `kelf::Functions` does.
            let picked = symbols.entry(place).or_insert(named);
            if named.symbol.file.is_none() && picked.symbol.file.is_some() {
                *picked = named;
            }
        }
        OriginalFunctions { symbols, indices: FxHashMap::default(), all: Vec::new() }
    }

    /// Splits a node, `size` bytes in the output, by the functions that it holds.
    fn pieces(&mut self, graph: &Graph, node: NodeId, size: u32) -> Vec<Piece> {
        let Some(origin) = graph.node(node).origin() else { return Vec::new() };
        match graph.home_of(node) {
            Some(home) => self.piece_of(graph, home, origin, size).into_iter().collect(),
            None => self.pieces_of_chunk(origin, size.min(origin.size)),
        }
    }

    /// Returns the original piece of a function for a block of `size` bytes in the output.
    fn piece_of(&mut self, graph: &Graph, id: FunctionId, origin: &Origin, size: u32) -> Option<Piece> {
        let start = *graph.start_of(id)?;
        let origins = graph.function(id).blocks.iter().filter_map(|&block| graph.node(block).origin());
        let whole = origins.map(Origin::end).max().unwrap_or(start.offset).saturating_sub(start.offset);
        let original_offset = origin.offset.checked_sub(start.offset)?;
        let function = self.index_of((start.section, start.offset), whole)?;
        // The padding after a function does not belong to it.
        let end = u32::try_from(self.all[function].size).unwrap_or(whole);
        let original_size = origin.size.min(end.saturating_sub(original_offset));
        Some(Piece { offset: 0, size, function, original_offset, original_size })
    }

    fn pieces_of_chunk(&mut self, origin: &Origin, size: u32) -> Vec<Piece> {
        let place = |offset: u32| (origin.section, offset);
        let named = self.symbols.range(place(origin.offset)..place(origin.offset + size));
        let starts: Vec<u32> = named.map(|(place, _)| place.1 - origin.offset).collect();
        let ends = starts.iter().copied().skip(1).chain([size]).collect::<Vec<_>>();
        let pieces = starts.into_iter().zip(ends).filter_map(|(start, end)| {
            let function = self.index_of(place(origin.offset + start), end - start)?;
            let size = (end - start).min(u32::try_from(self.all[function].size).unwrap_or(u32::MAX));
            Some(Piece { offset: start, size, function, original_offset: 0, original_size: size })
        });
        pieces.collect()
    }

    /// Returns the index of the function that begins at a place in the input, limited to `limit` bytes; `None` if it
    /// has no name.
    fn index_of(&mut self, place: (InputId, u32), limit: u32) -> Option<usize> {
        if let Some(&index) = self.indices.get(&place) {
            return Some(index);
        }
        let CodeName { symbol, nth, .. } = *self.symbols.get(&place)?;
        let file = symbol.file.as_deref().map(str::to_owned);
        let size = if symbol.size == 0 { u64::from(limit) } else { symbol.size.min(limit.into()) };
        let function = FunctionName { name: symbol.name.clone(), file, nth };
        self.all.push(BlockFunction { function, size });
        self.indices.insert(place, self.all.len() - 1);
        Some(self.all.len() - 1)
    }
}
