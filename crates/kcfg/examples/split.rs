#![allow(missing_docs)]
// optimistic experiment: what would splitting give
use kelf::{InputFiles, KernelBuild, Program};
use kcfg::graph::*;
use kcfg::edges::*;
use kcfg::index::*;
use std::collections::*;
use iced_x86::*;
fn main() {
    let path = std::env::args().nth(1).unwrap();
    let mode = std::env::args().nth(2).unwrap();
    let plan = kplan::Plan::read(&std::fs::read(std::env::args().nth(3).unwrap()).unwrap()[..], "plan").unwrap();
    let build = KernelBuild::find(path.as_ref()).unwrap();
    let files = InputFiles::of_kernel(&build).unwrap();
    let program = Program::link(&files).unwrap();
    let mut graph = kcfg::roots::lift_kernel(&build, &program).unwrap();
    kopt::Pass::Syscalls.run(&mut graph, &plan, kopt::Options::default());
    // variables per chunk
    let mut vars: HashMap<u32, Vec<(u32,u32)>> = HashMap::new();
    for s in &graph.symbols { if let SymbolPlace::Node(n, off) = s.place { if graph.chunk(n).is_some() && s.size > 0 { vars.entry(n.0).or_default().push((off, off + s.size as u32)); } } }
    for v in vars.values_mut() { v.sort(); v.dedup_by_key(|x| x.0); }
    let ctx = |n: NodeId, r: &Ref| -> String {
        if graph.block(n).is_none() { return if graph.chunk(n).unwrap().code { "hard".into() } else { "data".into() } }
        let bytes = graph.bytes_of(n);
        let mut d = Decoder::with_ip(32, bytes, 0, 0);
        while d.can_decode() {
            let at = d.position() as u32; let i = d.decode();
            if at <= r.offset && r.offset < d.position() as u32 {
                let co = d.get_constant_offsets(&i);
                let rel = (r.offset - at) as usize;
                return if co.has_displacement() && co.displacement_offset() == rel {
                    if i.memory_base()==Register::None && i.memory_index()==Register::None && i.mnemonic()!=Mnemonic::Lea { "abs".into() }
                    else if i.mnemonic()==Mnemonic::Jmp { "table".into() } else if i.mnemonic()==Mnemonic::Lea {"lea".into()} else { "memreg".into() }
                } else { match i.mnemonic() { Mnemonic::Mov => if i.op0_kind()==OpKind::Memory {"store".into()} else {"movreg".into()}, Mnemonic::Push => "store".into(), Mnemonic::Cmp => "cmp".into(), _ => "hard".into() } };
            }
        }
        "hard".into()
    };
    let splittable = |n: NodeId| { let c = graph.chunk(n); c.is_some_and(|c| !c.code && c.life==Life::Referenced) && { let s = graph.section_of(n); s.flags & 0x10 == 0 && s.flags & 2 != 0 && (s.name.starts_with(".data")||s.name.starts_with(".rodata")||s.name.starts_with(".bss")) } };
    let mut spoiled: HashSet<u32> = HashSet::new();
    let mut why: HashMap<u32, usize> = HashMap::new();
    if mode != "faith" { for n in graph.node_ids() { for r in graph.refs_of(n) { if let Target::Node(to) = r.target { if splittable(to) {
        let c = ctx(n, r);
        let bad = mode.split(',').any(|m| m == c);
        if bad { spoiled.insert(to.0); *why.entry(to.0).or_default() += 1; }
    }}}}}
    // piece-level reach: pieces keyed by (node, start)
    let find = |n: NodeId, a: i64| -> Vec<(u32,u32)> {
        let Some(v) = vars.get(&n.0) else { return vec![(0, graph.node(n).size)] };
        let i = v.partition_point(|x| (x.0 as i64) <= a);
        let mut out = vec![];
        if i > 0 && a <= v[i-1].1 as i64 { if a < v[i-1].1 as i64 { out.push(v[i-1]); if mode.contains("glue") && i > 1 && v[i-1].0 as i64 == a && v[i-2].1 as i64 == a { out.push(v[i-2]); } return out; } }
        // gap
        let s = if i>0 { v[i-1].1 } else {0}; let e = if i < v.len() { v[i].0 } else { graph.node(n).size };
        out.push((s,e)); out
    };
    let edges = Edges::of(&graph);
    let run = |spoiled: &HashSet<u32>| {
    let mut seen: HashSet<(u32,u32)> = HashSet::new();
    let mut work: Vec<(NodeId,(u32,u32))> = vec![];
    let whole = |n: NodeId| (0u32, u32::MAX);
    for r in &graph.roots { if seen.insert((r.node.0, 0)) { work.push((r.node, whole(r.node))); } }
    while let Some((n, (s,e))) = work.pop() {
        let mut go = |work: &mut Vec<(NodeId,(u32,u32))>, t: Target, add: i64| {
            let Some((to, off)) = graph.resolve(t) else { return };
            if splittable(to) && !spoiled.contains(&to.0) {
                let list = match t { Target::Symbol(_) => find(to, off as i64), Target::Node(_) => find(to, off as i64 + add) };
                for p in list { if seen.insert((to.0, p.0)) { work.push((to, p)); } }
            } else if seen.insert((to.0, 0)) { work.push((to, whole(to))); }
        };
        if splittable(n) { for r in graph.refs_of(n) { if r.slot_of.is_none() && r.offset >= s && r.offset < e { go(&mut work, r.target, r.addend); } } continue; }
        let mut nodes = vec![];
        edges.for_each(n, |ed| if let Destination::Node(to) = ed.to { if ed.kind != EdgeKind::Data { nodes.push(to) } });
        for to in nodes { go(&mut work, Target::Node(to), 0); }
        let skip = if matches!(graph.chunk(n), Some(c) if matches!(c.life, Life::Site(_))) {1} else {0};
        for r in graph.refs_of(n).iter().skip(skip) { if r.slot_of.is_none() { go(&mut work, r.target, r.addend); } }
    }
    let mut code=0u64; let mut data=0u64; let mut per: BTreeMap<String,(u64,u64)> = BTreeMap::new();
    for n in graph.node_ids() { let node = graph.node(n);
        if splittable(n) {
            let alive: u64 = if seen.contains(&(n.0,0)) && (spoiled.contains(&n.0) || !vars.contains_key(&n.0)) { node.size as u64 } else { 
               seen.iter().filter(|x| x.0==n.0).map(|x| { let l = find(n, x.1 as i64)[0]; (l.1-l.0) as u64 }).sum::<u64>().min(node.size as u64) };
            data += node.size as u64 - alive; let p = per.entry(graph.section_of(n).name.clone()).or_default(); p.0 += node.size as u64 - alive; p.1 += node.size as u64;
        } else if !seen.contains(&(n.0,0)) { if graph.block(n).is_some() || graph.chunk(n).unwrap().code { code += node.size as u64 } else { data += node.size as u64 } }
    }
    (code, data)
    };
    let (code, data) = run(&spoiled);
    println!("{mode}: dead code {code} data {data} spoiled {}", spoiled.len());
    if mode.contains("each") {
        let mut gains = vec![];
        for &x in &spoiled { let mut s2 = spoiled.clone(); s2.remove(&x); let (c2, d2) = run(&s2); gains.push((c2 - code + d2 - data.min(d2), c2-code, d2 as i64 -data as i64, x)); }
        gains.sort(); gains.reverse();
        for g in gains.iter().take(40) { println!("{g:?} {} {:?}", graph.name_of(NodeId(g.3)), why.get(&g.3)); }
    }
}
