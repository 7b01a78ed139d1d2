/*!
Pass `keys`: static keys and static calls that no live code can switch.

A *static key* is a variable with sites in the code. Each site is a `nop` or a `jmp`, which the kernel replaces by the
other when the key is switched (`__jump_table`, include/linux/jump_label.h). A key is never switched if only the
entries of its sites name it and only loads read it, because switching takes its address. Its sites then keep their
initial state for good: a `nop` is removed, and a `jmp` becomes an ordinary jump. The entries are removed, and so is
the other path unless something else leads there.

A *static call* is a call of a trampoline that jumps to its present target (`.static_call.text`,
arch/x86/include/asm/static_call.h). The kernel finds the trampoline to change by its address. If nothing has that
address, the target never changes, and the calls become calls of the target. A trampoline that returns at once, for a
target of NULL, is kept.

If pass `reach` removes the code that switches a key, the next round finds the key. Alternatives are kept, because they
are chosen at boot by the features of the processor.
*/

use kcfg::graph::{Dest, Editor, Graph, Life, Ref, Role, SymbolPlace, Terminator};
use kcfg::index::NodeId;
use kcfg::special::TableKind;
use kelf::RelocClass;
use kisa::{BranchKind, Flow, Inst};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::pass::{Context, Facts, Pass, Phase, Runs};
use crate::report::PassReport;
use crate::uses::{How, Use, Uses};

/// The section of the trampolines of static calls.
const TRAMPOLINES: &str = ".static_call.text";

/// The low bits of an entry's reference to its key, which describe the site (include/linux/jump_label.h). Bit 0: the
/// code after the branch runs while the key is off.
const BRANCH_BIT: i64 = 1;
const LOW_BITS: i64 = 3;

/// An entry of `__jump_table` whose key is a node of its own.
struct Entry {
    node: NodeId,
    site: NodeId,
    /// The low bit of the reference to the key.
    branch: bool,
}

/// Pass `keys`: settles the sites of keys, and redirects static calls.
pub struct Keys;

impl Pass for Keys {
    fn facts(&self) -> Facts {
        Facts {
            name: "keys",
            summary: "fixes the state of static keys and static calls that nothing switches",
            phase: Phase::Removes,
            runs: Runs::Always,
            on_64_bits: true,
        }
    }

    fn run(&self, graph: &mut Graph, _: &mut Context<'_>) -> PassReport {
        let mut report = PassReport::new(self.name());
        settle_keys(graph, &mut report);
        redirect_calls(graph, &mut report);
        report
    }
}

fn settle_keys(graph: &mut Graph, report: &mut PassReport) {
    let keys = keys(graph);
    let uses = Uses::of(graph);
    let about = entries_about(graph);
    let roots: FxHashSet<NodeId> = graph.roots().iter().map(|root| root.node).collect();
    let mut settled: Vec<(NodeId, Terminator, NodeId)> = Vec::new();
    let mut order: Vec<&NodeId> = keys.keys().collect();
    order.sort_unstable();
    for key in order {
        let entries = &keys[key];
        if roots.contains(key) || !is_key(graph, *key) {
            continue;
        }
        let own: FxHashSet<NodeId> = entries.iter().map(|entry| entry.node).collect();
        let switches = |one: &Use| !own.contains(&one.from) && !matches!(one.how, How::Reads);
        if let Some(user) = uses.of_node(*key).into_iter().find(switches) {
            let why = format!("{} may switch it", graph.name_of(user.from));
            report.keep(format!("static key {}", name(graph, *key)), why);
            continue;
        }
        let is_on = graph.bytes_of(*key).iter().take(4).any(|&byte| byte != 0);
        let ends: Option<Vec<_>> = entries
            .iter()
            .map(|entry| {
                let is_alone = about.get(&entry.site) == Some(&1);
                Some((entry.site, end(graph, entry, is_on).filter(|_| is_alone)?, entry.node))
            })
            .collect();
        match ends {
            Some(ends) => {
                report.count("static keys that are never switched", 1);
                settled.extend(ends);
            }
            None => report.keep(graph.name_of(*key), "the code at one of its sites does not match its state"),
        }
    }
    report.redirected += settled.len();
    let mut editor = Editor::new(graph, "keys");
    for (site, end, _) in &settled {
        editor.settle_site(*site, end.clone());
    }
    editor.finish();
    for (_, _, entry) in settled {
        report.removed.remove(graph, entry);
    }
}

/// Returns the symbol of a node for messages.
fn name(graph: &Graph, node: NodeId) -> String {
    graph.names_in(node).next().map_or_else(|| graph.name_of(node), str::to_owned)
}

/// Whether a node is exactly a `struct static_key`: `enabled` and a pointer.
fn is_key(graph: &Graph, node: NodeId) -> bool {
    let data = graph.chunk(node).is_some_and(|chunk| !chunk.code && chunk.life == Life::Referenced);
    let node = graph.node(node);
    data && node.live && node.glued_to.is_none() && node.size == 2 * u32::from(graph.machine().word_size())
}

/// The live entries of `__jump_table`, by their keys. If an entry refers to a place inside a node, the key is a part of
/// something larger, and all of the node's entries are left out.
fn keys(graph: &Graph) -> FxHashMap<NodeId, Vec<Entry>> {
    let mut keys: FxHashMap<NodeId, Vec<Entry>> = FxHashMap::default();
    let mut parts: FxHashSet<NodeId> = FxHashSet::default();
    for node in graph.node_ids().filter(|&node| is_about(graph, node, TableKind::StaticKey)) {
        let site = graph.site(node).and_then(|site| graph.resolve(site.target));
        // Code, target, key.
        let Some(reference) = graph.refs_of(node).get(2) else { continue };
        let Some((key, inside)) = graph.resolve(reference.target) else { continue };
        let at = i64::from(inside) + reference.addend;
        match site {
            Some((site, 0)) if at & !LOW_BITS == 0 => {
                let branch = at & BRANCH_BIT != 0;
                keys.entry(key).or_default().push(Entry { node, site, branch });
            }
            _ => drop(parts.insert(key)),
        }
    }
    keys.retain(|key, _| !parts.contains(key));
    keys
}

fn is_about(graph: &Graph, node: NodeId, kind: TableKind) -> bool {
    graph.node(node).live && graph.chunk(node).is_some_and(|chunk| chunk.life == Life::Site(kind))
}

/// The number of table entries about each node.
fn entries_about(graph: &Graph) -> FxHashMap<NodeId, usize> {
    let mut about: FxHashMap<NodeId, usize> = FxHashMap::default();
    for node in graph.node_ids().filter(|&node| graph.node(node).live) {
        let is_entry = graph.chunk(node).is_some_and(|chunk| matches!(chunk.life, Life::Site(_)));
        if let Some(site) =
            graph.site(node).filter(|_| is_entry).and_then(|site| graph.resolve_node(site.target))
        {
            *about.entry(site).or_default() += 1;
        }
    }
    about
}

/// Returns the terminator of a site whose key keeps its initial state; `None` if the code there is something else. The
/// kernel jumps if either the key is on or the low bit is set, but not both (`jump_label_type` in kernel/jump_label.c).
fn end(graph: &Graph, entry: &Entry, is_on: bool) -> Option<Terminator> {
    let jumps = is_on != entry.branch;
    match (&graph.block(entry.site)?.end, jumps) {
        (Terminator::Patched { next: Some(next) }, false) if graph.refs_of(entry.site).is_empty() => {
            Some(Terminator::FallThrough(*next))
        }
        (Terminator::Branch { branch, taken, .. }, true) if branch.kind == BranchKind::Jump => {
            Some(Terminator::Jump(*taken))
        }
        // A jump of fixed length is part of the bytes.
        (Terminator::Patched { .. }, true) => jump(graph, entry.site).map(Terminator::Jump),
        _ => None,
    }
}

/// The target of a patch site that is a single jump; `None` for other sites.
fn jump(graph: &Graph, site: NodeId) -> Option<Dest> {
    let mut steps = graph.decode(site);
    let (Some(Some(Inst { insn, .. })), None) = (steps.next(), steps.next()) else { return None };
    let is_jump = matches!(insn.flow, Flow::Direct { branch, .. } if branch.kind == BranchKind::Jump);
    let [reference] = graph.refs_of(site) else { return None };
    let to = Dest { target: reference.target, offset: reference.addend };
    (is_jump && !insn.conditional && reference.class == RelocClass::Branch).then_some(to)
}

fn redirect_calls(graph: &mut Graph, report: &mut PassReport) {
    let trampolines: Vec<NodeId> = graph
        .sections()
        .iter()
        .filter(|section| *section.name == *TRAMPOLINES)
        .flat_map(|section| section.nodes.iter().copied())
        .filter(|&node| graph.node(node).live && graph.chunk(node).is_some_and(|chunk| chunk.code))
        .collect();
    if trampolines.is_empty() {
        return;
    }
    let roots: FxHashSet<NodeId> = graph.roots().iter().map(|root| root.node).collect();
    let mut users: FxHashMap<NodeId, Vec<bool>> =
        trampolines.iter().map(|&trampoline| (trampoline, Vec::new())).collect();
    for from in graph.node_ids().filter(|&from| graph.node(from).live) {
        for reference in graph.refs_of(from) {
            if let Some((to, inside)) = graph.resolve(reference.target)
                && let Some(users) = users.get_mut(&to)
            {
                users.push(is_branch(graph, from, reference) && inside == 0 && reference.addend == 0);
            }
        }
    }
    let mut redirected = Vec::new();
    for trampoline in trampolines {
        let is_changed = roots.contains(&trampoline) || users[&trampoline].contains(&false);
        let Some(target) = target(graph, trampoline) else { continue };
        if is_changed {
            report.keep(
                format!("static call {}", name(graph, trampoline)),
                "the address of its trampoline is taken, so it may be changed",
            );
        } else if is_entered(graph, trampoline) {
            report.count("static calls that are never changed", 1);
            report.redirected += users[&trampoline].len();
            redirected.push((trampoline, target));
        }
    }
    let mut editor = Editor::new(graph, "keys");
    for (trampoline, target) in redirected {
        editor.replace_uses(trampoline, target);
    }
    editor.finish();
}

/// Whether a reference belongs to a call or a jump: on i386, every field of code that is relative to its own end. On
/// x86-64, such a field may also be the operand of another instruction.
fn is_branch(graph: &Graph, from: NodeId, reference: &Ref) -> bool {
    let code = graph.chunk(from).is_none_or(|chunk| chunk.code);
    let branches = match reference.class {
        RelocClass::Branch => true,
        RelocClass::Relative => !graph.machine().target().has_relative_addresses,
        _ => false,
    };
    reference.role == Role::Callee || code && branches && reference.bias != 0
}

/// Whether a symbol of the trampoline remains.
fn is_entered(graph: &Graph, trampoline: NodeId) -> bool {
    graph.symbols().iter().any(|symbol| symbol.place == SymbolPlace::Node(trampoline, 0))
}

/// The target of a trampoline's jump, if it is the beginning of a node.
fn target(graph: &Graph, trampoline: NodeId) -> Option<NodeId> {
    let insn = graph.isa().decode(graph.bytes_of(trampoline), graph.encoding(trampoline).at(0))?.insn;
    let Flow::Direct { branch, field_offset, .. } = insn.flow else { return None };
    let [reference] = graph.refs_of(trampoline) else { return None };
    let is_jump = branch.kind == BranchKind::Jump && reference.offset == u32::from(field_offset);
    let (target, inside) = graph.resolve(reference.target).filter(|_| is_jump)?;
    let from_field = i64::from(inside) + reference.addend;
    (from_field == 0 && graph.node(target).live).then_some(target)
}
