/*!
The graph as a program for the analyses of [`kflow`].

One function there consists of everything that belongs together: a function and its cold part, and code that jumps into
its middle. Opaque code is a callee about which nothing is known, except that in a kernel it returns with the stack
unchanged. Computed calls and opaque compiled code follow the calling convention, unless a function of the program pops
its arguments. Outlined code, which works on the frames of its callers, has no convention. Code that is patched at run
time, or that may fault and continue at a fixup, may leave from the middle of a block.

A trap handler that only prints the registers (`ud2` of `BUG`) does not use them here.
*/

mod decoded;
mod groups;
mod memory;

use goblin::elf::sym::STT_GNU_IFUNC;
use kflow::{
    BlockIndex, Callee, Convention, FLAGS, Fingerprint, FunctionIndex, Instruction, Machine, Program, Then,
    Way,
};
use kisa::{BinaryOp, BranchKind, Effect, Flow, Reg, Value};
use rayon::prelude::*;
use rustc_hash::FxHashSet;
use smallvec::{SmallVec, smallvec};
use typed_index_collections::{TiVec, ti_vec};

use crate::graph::{
    Block, Dest, Graph, InputSection, Life, Ref, Role, SiteIndex, SymbolPlace, Target, Terminator,
    for_each_successor,
};
use crate::index::{FunctionId, IdSet, NodeId, NodeMap};
use crate::special::TableKind;

use decoded::Decoded;
pub use groups::is_cold;
use groups::{Groups, compiled, hand_written};
pub use memory::DataUses;

/// The live blocks of a graph, as a program.
pub struct GraphProgram<'g> {
    graph: &'g Graph,
    /// The node of each block.
    nodes: TiVec<BlockIndex, NodeId>,
    /// The block of each node.
    blocks: NodeMap<Option<BlockIndex>>,
    functions: TiVec<FunctionIndex, Vec<BlockIndex>>,
    /// The function of each block.
    function_of: TiVec<BlockIndex, FunctionIndex>,
    /// For each function, whether unknown code may enter it at the start (`unknown_callers`) or elsewhere
    /// (`other_entries`).
    unknown_callers: IdSet<FunctionIndex>,
    other_entries: IdSet<FunctionIndex>,
    /// For each function, whether opaque compiled code refers to it.
    opaque_callers: IdSet<FunctionIndex>,
    /// For each block.
    leaves_early: IdSet<BlockIndex>,
    /// Opaque code made by compilers.
    compiled: FxHashSet<NodeId>,
    /// Hand-written code.
    hand_written: FxHashSet<NodeId>,
    decoded: Decoded,
    /// The edges out of each block.
    ways: TiVec<BlockIndex, SmallVec<[Way; 2]>>,
}

impl<'g> GraphProgram<'g> {
    /// Creates the program of the current graph.
    pub fn of(graph: &'g Graph) -> GraphProgram<'g> {
        let is_alive = |&node: &NodeId| graph.node(node).live && graph.block(node).is_some();
        let nodes: TiVec<BlockIndex, NodeId> = graph.node_ids().filter(is_alive).collect();
        let mut blocks = ti_vec![None; graph.nodes.len()];
        for (index, &node) in nodes.iter_enumerated() {
            blocks[node] = Some(index);
        }
        let mut program = GraphProgram {
            graph,
            blocks,
            functions: TiVec::new(),
            function_of: ti_vec![FunctionIndex(0); nodes.len()],
            unknown_callers: IdSet::with_capacity(graph.functions.len()),
            other_entries: IdSet::with_capacity(graph.functions.len()),
            opaque_callers: IdSet::with_capacity(graph.functions.len()),
            leaves_early: IdSet::with_capacity(nodes.len()),
            compiled: compiled(graph),
            hand_written: hand_written(graph),
            decoded: Decoded::of(graph, &nodes.raw),
            ways: TiVec::new(),
            nodes,
        };
        program.group();
        let sites = SiteIndex::of(graph);
        program.find_entries();
        program.find_opaque_callers();
        program.find_early_exits(&sites);
        let blocks = (0..program.nodes.len()).into_par_iter();
        let ways: Vec<_> = blocks.map(|block| program.ways_of(block.into())).collect();
        program.ways = ways.into();
        program
    }

    /// Returns the machine for the analyses.
    pub fn machine(&self) -> Machine {
        let isa = self.graph.isa();
        let convention = isa.convention();
        Machine {
            word: self.graph.machine.word_size(),
            registers: isa.registers(),
            stack_pointer: convention.stack_pointer,
            link: convention.link_register,
            convention: self.callers_clean_up().then_some(Convention {
                changed: convention.call_clobbered,
                results: convention.results,
                returned: convention.returned,
            }),
        }
    }

    /// Returns the node of a block.
    pub fn node(&self, block: BlockIndex) -> NodeId {
        self.nodes[block]
    }

    /// Whether no function pops more than the return address when it returns. On machines whose calls do not push the
    /// return address, no instruction does.
    fn callers_clean_up(&self) -> bool {
        if self.graph.isa().convention().link_register.is_some() {
            return true;
        }
        let (stack, word) = (self.graph.isa().convention().stack_pointer, self.graph.machine.word_size());
        let word = Value::Const(word.into());
        let mut all = true;
        for (index, &node) in self.nodes.iter().enumerate() {
            if matches!(self.graph.block(node), Some(Block { end: Terminator::Return, .. })) {
                self.decoded.for_each(index, &mut |instruction| {
                    if let [Effect::Binary { op: BinaryOp::Add, dst, right, .. }] = instruction.effects {
                        let is_return = *dst == stack && instruction.reads == kflow::bit(stack);
                        all &= !is_return || *right == word;
                    }
                });
            }
        }
        all
    }

    /// Returns the block of a node; `None` for a chunk, or if it is not part of the program.
    pub fn block(&self, node: NodeId) -> Option<BlockIndex> {
        self.blocks[node]
    }

    /// Returns the function that contains a block.
    pub fn function_of(&self, block: BlockIndex) -> FunctionIndex {
        self.function_of[block]
    }

    /// Groups the functions that belong together.
    fn group(&mut self) {
        let graph = self.graph;
        let mut groups = Groups::of_one(graph.functions.len());
        for &node in &self.nodes {
            let Some(block) = graph.block(node) else { continue };
            for_each_successor(graph, &block.end, |to| {
                if let Some(other) = graph.function_of(to).filter(|&other| other != block.function)
                    && (graph.function(other).entry() != to || is_cold(graph, other))
                {
                    groups.join(block.function.get(), other.get());
                }
            });
        }
        let mut members: Vec<Vec<FunctionId>> = vec![Vec::new(); graph.functions.len()];
        for function in graph.functions.keys() {
            members[groups.of(function.get())].push(function);
        }
        for members in members.iter().filter(|members| !members.is_empty()) {
            let entries = members.iter().filter(|&&function| !is_cold(graph, function));
            let entries: Vec<NodeId> = entries.map(|&function| graph.function(function).entry()).collect();
            let nodes = members.iter().flat_map(|&function| &graph.function(function).blocks);
            let mut blocks: Vec<BlockIndex> = nodes.filter_map(|&node| self.block(node)).collect();
            let first = entries.first().and_then(|&node| self.block(node));
            if blocks.is_empty() {
                continue;
            }
            let function = self.functions.next_key();
            if let Some(place) = first.and_then(|first| blocks.iter().position(|&block| block == first)) {
                blocks[..=place].rotate_right(1);
            }
            if first.is_none() || entries.len() > 1 {
                self.unknown_callers.insert(function);
                self.other_entries.insert(function);
            }
            for block in &blocks {
                self.function_of[*block] = function;
            }
            self.functions.push(blocks);
        }
    }

    /// Finds the functions that unknown code may enter through addresses and names.
    fn find_entries(&mut self) {
        let graph = self.graph;
        let object = |section: &InputSection| section.object_index;
        let is_code = |node| graph.block(node).is_some() || graph.is_among_code(node);
        let mut named = IdSet::with_capacity(self.nodes.len());
        for node in graph.node_ids().filter(|&node| graph.node(node).live) {
            let site = graph.site(node).and_then(|site| graph.resolve_node(site.target));
            let end = site.and_then(|site| Some(&graph.block(site)?.end));
            for reference in graph.refs_of(node) {
                match reference.role {
                    Role::Slot(_) | Role::Site => {}
                    Role::Callee => self.note_branch(reference.target, reference.addend),
                    Role::Address => {
                        let Some((to, inside)) = graph.resolve(reference.target) else { continue };
                        // A table about a jump contains its target.
                        let mut is_successor = false;
                        if let Some(end) = end {
                            for_each_successor(graph, end, |next| is_successor |= next == to);
                        }
                        let Some(block) = self.block(to).filter(|_| !is_successor) else { continue };
                        named.insert(block);
                        if i64::from(inside) + reference.addend != 0 {
                            self.other_entries.insert(self.function_of(block));
                        }
                        // With -mlong-calls, a compiler that knows the function calls it this way.
                        if is_code(node) && graph.input_of(node).map(object) == graph.input_of(to).map(object)
                        {
                            self.opaque_callers.insert(self.function_of(block));
                        }
                    }
                }
            }
        }
        for index in self.nodes.keys() {
            let end = graph.block(self.nodes[index]).map(|block| &block.end);
            if let Some(Terminator::Jump(dest) | Terminator::Branch { taken: dest, .. }) = end {
                self.note_branch(dest.target, dest.offset);
            }
        }
        // A function at which another one continues after a call or a trap.
        for (block, &node) in self.nodes.iter_enumerated() {
            if let Some(
                Terminator::Call { next: Some(next) }
                | Terminator::IndirectCall { next: Some(next) }
                | Terminator::Trap { next: Some(next) }
                | Terminator::Patched { next: Some(next) }
                | Terminator::Conditional { next: Some(next) },
            ) = graph.block(node).map(|block| &block.end)
            {
                let own = self.function_of(block);
                let other = self.block(*next).filter(|&next| self.function_of(next) != own);
                named.extend(other);
            }
        }
        named.extend(graph.roots.iter().filter_map(|root| self.block(root.node)));
        for symbol in &graph.symbols {
            if let SymbolPlace::Node(node, inside) = symbol.place
                && let Some(block) = self.block(node)
            {
                if !self.is_entry(block) {
                    named.insert(block);
                }
                if inside != 0 {
                    self.other_entries.insert(self.function_of(block));
                }
                // A call of it calls the function whose address it returns.
                if symbol.kind == STT_GNU_IFUNC {
                    self.other_entries.insert(self.function_of(block));
                }
            }
        }
        for block in named.iter() {
            let function = self.function_of(block);
            match self.is_entry(block) {
                true => self.unknown_callers.insert(function),
                false => self.other_entries.insert(function),
            }
        }
    }

    /// Finds the functions that opaque live compiled code refers to, and outlined functions, which follow no
    /// convention.
    fn find_opaque_callers(&mut self) {
        let graph = self.graph;
        let alive = self.compiled.iter().filter(|&&node| graph.node(node).live);
        let called = alive.flat_map(|&node| graph.refs_of(node));
        let called = called.filter_map(|reference| self.block(graph.resolve_node(reference.target)?));
        let outlined = self.nodes.iter_enumerated().filter(|(_, node)| graph.is_outlined(**node));
        let outlined = outlined.map(|(block, _)| block);
        let called: Vec<FunctionIndex> =
            called.chain(outlined).map(|block| self.function_of(block)).collect();
        self.opaque_callers.extend(called);
    }

    /// Records a direct branch to `offset` bytes after a target, if it enters a function elsewhere than at its start,
    /// or may be redirected to another function by the link.
    fn note_branch(&mut self, target: Target, offset: i64) {
        let Some((to, inside)) = self.graph.resolve(target) else { return };
        let Some(block) = self.block(to) else { return };
        let function = self.function_of(block);
        if i64::from(inside) + offset != 0 {
            self.other_entries.insert(function);
        }
        // The calls go elsewhere after the link, but a compiler may still know its code (C++ templates are weak).
        if self.graph.may_be_replaced(target) {
            self.unknown_callers.insert(function);
            self.opaque_callers.insert(function);
        }
    }

    /// Finds the blocks that are patched, or that continue at a handler after a fault, and the functions that may be
    /// made to return at once.
    fn find_early_exits(&mut self, sites: &SiteIndex) {
        for (index, &node) in self.nodes.iter_enumerated() {
            let Some(block) = self.graph.block(node) else { continue };
            let entries = sites.entries(node);
            let leaves = |&entry: &NodeId| match self.graph.chunk(entry).map(|chunk| chunk.life) {
                Some(Life::Site(TableKind::StaticKey)) => !matches!(block.end, Terminator::Branch { .. }),
                Some(Life::Site(
                    TableKind::Bug
                    | TableKind::LockPrefix
                    | TableKind::FunctionList
                    | TableKind::ErrorInjection
                    | TableKind::UnwindIndex
                    | TableKind::DeadEnd
                    | TableKind::FunctionAnnotation,
                )) => false,
                _ => true,
            };
            // Error injection may make it return at once, with any result (kernel/fail_function.c).
            let may_fail = |&entry: &NodeId| {
                self.graph
                    .chunk(entry)
                    .is_some_and(|chunk| chunk.life == Life::Site(TableKind::ErrorInjection))
            };
            if entries.iter().any(may_fail) {
                self.other_entries.insert(self.function_of(index));
            }
            let is_fixed = block.is_fixed() && entries.is_empty();
            let is_unknown = self.decoded.is_unknown(index.get());
            self.leaves_early.set(index, is_fixed || is_unknown || entries.iter().any(leaves));
        }
    }

    fn is_entry(&self, block: BlockIndex) -> bool {
        self.functions[self.function_of(block)][0] == block
    }

    /// Returns the edge to a node. `behind`, if given, makes it a call with this return point.
    fn way(&self, from: BlockIndex, to: Option<NodeId>, behind: Option<Then>) -> Way {
        let block = to.and_then(|to| self.block(to));
        let own = block.filter(|&to| self.function_of(to) == self.function_of(from) && behind.is_none());
        if let Some(own) = own {
            return Way::to(own);
        }
        let callee = match block.filter(|&to| self.is_entry(to)) {
            // It uses its caller's frame as its own.
            Some(to) if self.graph.is_outlined(self.nodes[to]) => Callee::Unknown,
            Some(to) => Callee::Function(self.function_of(to)),
            None if to.is_some_and(|to| self.compiled.contains(&to)) => Callee::Conventional,
            None if to.is_some_and(|to| self.hand_written.contains(&to)) => Callee::HandWritten,
            None => Callee::Unknown,
        };
        // A jump to the start of another function is a tail call, which returns to the caller.
        let is_middle = block.is_some_and(|to| !self.is_entry(to));
        let then = behind.unwrap_or(if is_middle { Then::Anywhere } else { Then::Caller });
        Way { condition: None, callee: Some(callee), then }
    }

    /// Whether a call to the byte `inside` of a node is like a call of its start: a chunk of hand-written code holds
    /// many functions.
    fn is_beginning(&self, node: NodeId, inside: u32) -> bool {
        inside == 0 || self.hand_written.contains(&node)
    }

    fn jump(&self, from: BlockIndex, dest: &Dest) -> Way {
        match (self.graph.resolve(dest.target), dest.target) {
            _ if dest.offset == 0 && self.graph.may_be_replaced(dest.target) => {
                Way { condition: None, callee: Some(Callee::Conventional), then: Then::Caller }
            }
            (Some((to, inside)), _) if dest.offset == 0 && self.is_beginning(to, inside) => {
                self.way(from, Some(to), None)
            }
            (None, Target::Symbol(_)) if dest.offset == 0 => self.way(from, None, None),
            _ => Way { condition: None, callee: Some(Callee::Unknown), then: Then::Anywhere },
        }
    }

    /// Returns the edge of a direct call that continues at `then`.
    fn call(&self, from: BlockIndex, callee: &Ref, then: Then) -> Way {
        match self.graph.resolve(callee.target) {
            _ if callee.addend == 0 && self.graph.may_be_replaced(callee.target) => {
                Way { condition: None, callee: Some(Callee::Conventional), then }
            }
            Some((to, inside)) if callee.addend == 0 && self.is_beginning(to, inside) => {
                self.way(from, Some(to), Some(then))
            }
            _ => self.way(from, None, Some(then)),
        }
    }

    /// Returns the edges out of a block, from its terminator.
    fn ways_of(&self, block: BlockIndex) -> SmallVec<[Way; 2]> {
        let node = self.nodes[block];
        let Some(end) = self.graph.block(node).map(|block| &block.end) else { return SmallVec::new() };
        let anywhere = Way { condition: None, callee: None, then: Then::Anywhere };
        match end {
            Terminator::FallThrough(next) => smallvec![self.way(block, Some(*next), None)],
            Terminator::Jump(dest) => smallvec![self.jump(block, dest)],
            Terminator::Branch { branch, taken, next } => {
                let isa = self.graph.isa();
                let condition =
                    isa.compared(*branch).map_or(isa.condition(*branch), |(_, condition)| condition);
                let condition = Some(condition).filter(|_| branch.kind == BranchKind::Conditional);
                smallvec![
                    Way { condition, ..self.jump(block, taken) },
                    Way {
                        condition: condition.map(|condition| condition.inverse()),
                        ..self.way(block, Some(*next), None)
                    },
                ]
            }
            Terminator::Call { next } => {
                let then = self.next(block, *next);
                let callee = self.graph.callee(node);
                smallvec![callee.map_or(anywhere, |callee| self.call(block, callee, then))]
            }
            Terminator::IndirectCall { next } => {
                let callee = match self.calls_by_address(block) {
                    true => Callee::Conventional,
                    false => Callee::Unknown,
                };
                smallvec![Way { condition: None, callee: Some(callee), then: self.next(block, *next) }]
            }
            Terminator::Switch(table) => {
                let slots = self.graph.slots(*table).iter();
                slots.map(|slot| self.way(block, self.graph.resolve_node(slot.target), None)).collect()
            }
            Terminator::Return => smallvec![Way { condition: None, callee: None, then: Then::Caller }],
            Terminator::Trap { next } => {
                let then = self.next(block, *next);
                smallvec![Way { condition: None, callee: None, then }]
            }
            Terminator::Unreachable => SmallVec::new(),
            Terminator::Conditional { next } => {
                self.ways_on_condition(block, *next).unwrap_or(smallvec![anywhere])
            }
            Terminator::IndirectJump | Terminator::Patched { .. } => smallvec![anywhere],
        }
    }

    /// Returns the edges out of a block that ends with a conditional return or call.
    fn ways_on_condition(&self, block: BlockIndex, next: Option<NodeId>) -> Option<SmallVec<[Way; 2]>> {
        let node = self.nodes[block];
        let (condition, _) = self.decoded.on_condition(block.get())?;
        let last = self.graph.decode(node).last()??;
        let way = match last.insn.flow {
            Flow::Return => Way { condition: None, callee: None, then: Then::Caller },
            Flow::Direct { .. } => self.call(block, self.graph.callee(node)?, self.next(block, next)),
            _ => return None,
        };
        let skipped = self.way(block, Some(next?), None);
        Some(smallvec![
            Way { condition: Some(condition), ..way },
            Way { condition: Some(condition.inverse()), ..skipped },
        ])
    }

    /// Returns the register that the branch at the end of a block itself compares with 0.
    fn compared(&self, block: BlockIndex) -> Option<Reg> {
        match self.graph.block(self.nodes[block])?.end {
            Terminator::Branch { branch, .. } => Some(self.graph.isa().compared(branch)?.0),
            _ => None,
        }
    }

    /// Whether a block ends with a compiler-made computed call, and not one into another segment.
    fn calls_by_address(&self, block: BlockIndex) -> bool {
        let mut by_address = false;
        self.decoded.for_each(block.get(), &mut |instruction| {
            let known = |effect: &Effect| matches!(effect, Effect::Transfer(to) if *to != Value::Unknown);
            by_address = instruction.effects.iter().any(known);
        });
        by_address
    }

    /// Returns the continuation of a block at the next one, after a call or not.
    fn next(&self, from: BlockIndex, next: Option<NodeId>) -> Then {
        match next.map(|next| self.way(from, Some(next), None)) {
            None => Then::Nowhere,
            Some(Way { callee: None, then, .. }) => then,
            Some(_) => Then::Anywhere,
        }
    }
}

impl Program for GraphProgram<'_> {
    fn blocks(&self) -> usize {
        self.nodes.len()
    }

    fn functions(&self) -> usize {
        self.functions.len()
    }

    fn blocks_of(&self, function: FunctionIndex) -> &[BlockIndex] {
        &self.functions[function]
    }

    fn ways(&self, block: BlockIndex) -> &[Way] {
        &self.ways[block]
    }

    fn switch_index(&self, block: BlockIndex) -> Option<Reg> {
        let node = self.nodes[block];
        match self.graph.block(node)?.end {
            Terminator::Switch(_) => self.graph.table_index(node).or_else(|| self.graph.distance_index(node)),
            _ => None,
        }
    }

    fn compared_register(&self, block: BlockIndex) -> Option<Reg> {
        self.compared(block)
    }

    fn read_by_exit(&self, block: BlockIndex) -> u64 {
        if let Some(reg) = self.compared(block) {
            return kflow::bit(reg);
        }
        match self.graph.block(self.nodes[block]).map(|block| &block.end) {
            Some(Terminator::Branch { branch, .. }) if branch.kind == BranchKind::Conditional => FLAGS,
            _ => 0,
        }
    }

    fn may_leave_early(&self, block: BlockIndex) -> bool {
        self.leaves_early.contains(block)
    }

    fn fingerprint(&self, block: BlockIndex) -> Fingerprint {
        self.graph.fingerprint(self.nodes[block])
    }

    fn for_each_instruction(&self, block: BlockIndex, f: &mut dyn FnMut(Instruction<'_>)) {
        self.decoded.for_each(block.get(), f);
    }

    fn exit_effects(&self, block: BlockIndex) -> &[Effect] {
        self.decoded.on_condition(block.get()).map_or(&[], |(_, effects)| effects)
    }

    fn has_unknown_callers(&self, function: FunctionIndex) -> bool {
        self.unknown_callers.contains(function)
    }

    fn has_other_entries(&self, function: FunctionIndex) -> bool {
        self.other_entries.contains(function)
    }

    fn has_opaque_callers(&self, function: FunctionIndex) -> bool {
        self.opaque_callers.contains(function)
    }
}
