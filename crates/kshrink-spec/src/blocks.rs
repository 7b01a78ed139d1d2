//! The map of the rewritten kernel: which address holds which block of the original.

use kcfg::graph::{CodeName, Graph, Origin, Provenance};
use kcfg::index::NodeId;
use kcfg::lower::PlacedCode;
use kcli::Failure;
use kplan::{Block, BlockFunction, BlockMap, Counters, FunctionName, MadeBlock};
use rustc_hash::FxHashMap;

/// Makes the map of the lowered code, given the addresses of the object's sections. Code in sections without one is left
/// out; of sections that run at the same address (the vectors of ARM kernels, of which one is chosen at boot) the first
/// counts, as for [`kelf::Functions`].
pub fn map(graph: &Graph, code: &[PlacedCode], bases: &[Option<u64>]) -> Result<BlockMap, Failure> {
    let mut functions = OriginalFunctions::of(graph);
    let mut map = BlockMap::default();
    let mut nodes = Vec::new();
    let mut first_at = FxHashMap::default();
    for placed in code {
        let Some(base) = bases[placed.section.get()] else { continue };
        if placed.size > 0 && *first_at.entry(base).or_insert(placed.section) != placed.section {
            continue;
        }
        let address = base + u64::from(placed.offset);
        if let Provenance::Made(pass) = graph.node(placed.node).provenance {
            map.made.push(MadeBlock { address, size: placed.size.into(), made_by: pass.to_owned() });
        }
        for piece in functions.pieces(graph, placed.node, placed.size) {
            nodes.push(placed.node);
            map.blocks.push(Block {
                address: address + u64::from(piece.offset),
                size: u64::from(piece.size),
                function: piece.function,
                original_offset: u64::from(piece.original_offset),
                original_size: u64::from(piece.original_size),
            });
        }
    }
    map.functions = functions.all;
    map.made.sort_by_key(|made| made.address);
    let mut order: Vec<usize> = (0..map.blocks.len()).collect();
    order.sort_by_key(|&i| map.blocks[i].address);
    let (blocks, nodes): (Vec<Block>, Vec<NodeId>) =
        order.into_iter().map(|i| (map.blocks[i], nodes[i])).unzip();
    map.blocks = blocks;
    map.counters = counters(graph, &nodes)?;
    Ok(map)
}

/// Which block each counter of an instrumented kernel counts.
fn counters(graph: &Graph, nodes: &[NodeId]) -> Result<Option<Counters>, Failure> {
    let Some(counted) = &graph.counters else { return Ok(None) };
    let blocks: FxHashMap<NodeId, usize> = nodes.iter().enumerate().map(|(i, &node)| (node, i)).collect();
    let symbol = graph.symbols[counted.symbol.get()].name.clone();
    let index = |&node: &NodeId| {
        let index = blocks.get(&node).copied();
        let name = || graph.name_of(node);
        index.ok_or_else(|| Failure::job(format!("{}: it is not known where the link put it", name())))
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

/// The original functions of which code is in the map.
struct OriginalFunctions<'g> {
    /// For each node, the symbols in it by rising offset, one for each offset.
    symbols: FxHashMap<NodeId, Vec<CodeName<'g>>>,
    /// By node and offset, where the function that begins there is in `all`.
    indices: FxHashMap<(NodeId, u32), usize>,
    all: Vec<BlockFunction>,
}

impl<'g> OriginalFunctions<'g> {
    fn of(graph: &'g Graph) -> OriginalFunctions<'g> {
        let mut symbols: FxHashMap<NodeId, Vec<CodeName<'g>>> = FxHashMap::default();
        for named in graph.code_names() {
            symbols.entry(named.node).or_default().push(named);
        }
        for named in symbols.values_mut() {
            // Global before local, then the first, as `kelf::Functions` picks them.
            named.sort_by_key(|named| (named.offset, named.symbol.file.is_some()));
            named.dedup_by_key(|named| named.offset);
        }
        OriginalFunctions { symbols, indices: FxHashMap::default(), all: Vec::new() }
    }

    /// Cuts a node, `size` bytes in the output, along the functions that it holds.
    fn pieces(&mut self, graph: &Graph, node: NodeId, size: u32) -> Vec<Piece> {
        let original_size = graph.input_size(node);
        let Some(id) = graph.function_of(node) else {
            return self.pieces_of_chunk(node, size.min(original_size));
        };
        let function = graph.function(id);
        let entry = function.entry();
        let origins = function.blocks.iter().filter_map(|&block| graph.node(block).origin());
        let (Some(origin), Some(start)) = (graph.node(node).origin(), graph.start_of(id)) else {
            return Vec::new();
        };
        let start = start.offset;
        let whole = origins.map(Origin::end).max().unwrap_or(start) - start;
        let original_offset = origin.offset - start;
        let Some(function) = self.index_of(entry, 0, whole) else { return Vec::new() };
        // The padding behind a function does not belong to it.
        let end = u32::try_from(self.all[function].size).unwrap_or(whole);
        let original_size = original_size.min(end.saturating_sub(original_offset));
        vec![Piece { offset: 0, size, function, original_offset, original_size }]
    }

    fn pieces_of_chunk(&mut self, node: NodeId, size: u32) -> Vec<Piece> {
        let Some(named) = self.symbols.get(&node) else { return Vec::new() };
        let starts: Vec<u32> = named.iter().map(|named| named.offset).filter(|&start| start < size).collect();
        let ends = starts.iter().copied().skip(1).chain([size]).collect::<Vec<_>>();
        let pieces = starts.into_iter().zip(ends).filter_map(|(start, end)| {
            let function = self.index_of(node, start, end - start)?;
            let size = (end - start).min(u32::try_from(self.all[function].size).unwrap_or(u32::MAX));
            Some(Piece { offset: start, size, function, original_offset: 0, original_size: size })
        });
        pieces.collect()
    }

    /// The index of the function that begins at a place and is no longer than `limit` bytes; `None` if it has
    /// no name.
    fn index_of(&mut self, node: NodeId, offset: u32, limit: u32) -> Option<usize> {
        if let Some(&index) = self.indices.get(&(node, offset)) {
            return Some(index);
        }
        let named = self.symbols.get(&node)?.iter().find(|named| named.offset == offset)?;
        let CodeName { symbol, nth, .. } = *named;
        let file = symbol.file.as_deref().map(str::to_owned);
        let size = if symbol.size == 0 { u64::from(limit) } else { symbol.size.min(limit.into()) };
        let function = FunctionName { name: symbol.name.clone(), file, nth };
        self.all.push(BlockFunction { function, size });
        self.indices.insert((node, offset), self.all.len() - 1);
        Some(self.all.len() - 1)
    }
}
