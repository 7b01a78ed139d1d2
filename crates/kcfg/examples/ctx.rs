#![allow(missing_docs)]
use kelf::{InputFiles, KernelBuild, Program};
use kcfg::graph::*;
use std::collections::BTreeMap;
use iced_x86::*;
fn main() {
    let path = std::env::args().nth(1).unwrap();
    let build = KernelBuild::find(path.as_ref()).unwrap();
    let files = InputFiles::of_kernel(&build).unwrap();
    let program = Program::link(&files).unwrap();
    let graph = kcfg::roots::lift_kernel(&build, &program).unwrap();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut secs: BTreeMap<u32, BTreeMap<String,usize>> = BTreeMap::new();
    for n in graph.node_ids() {
        for r in graph.refs_of(n) {
            let Target::Node(to) = r.target else { continue };
            let Some(c) = graph.chunk(to) else { continue };
            if c.code || c.life != Life::Referenced { continue }
            let s = graph.section_of(to);
            if s.flags & 0x10 != 0 || s.flags & 2 == 0 { continue }
            if !(s.name.starts_with(".data") || s.name.starts_with(".rodata") || s.name.starts_with(".bss")) { continue }
            let cat = if graph.block(n).is_some() {
                let bytes = graph.bytes_of(n);
                let mut d = Decoder::with_ip(32, bytes, 0, 0);
                let mut cat = String::from("?");
                while d.can_decode() {
                    let at = d.position() as u32;
                    let i = d.decode();
                    if at <= r.offset && r.offset < d.position() as u32 {
                        let co = d.get_constant_offsets(&i);
                        let rel = (r.offset - at) as usize;
                        cat = if co.has_displacement() && co.displacement_offset() == rel {
                            match (i.memory_base(), i.memory_index()) {
                                (Register::None, Register::None) => "mem abs".into(),
                                (_, Register::None) => format!("mem base {}", if i.mnemonic()==Mnemonic::Lea {"lea"} else {""}),
                                (Register::None, _) => format!("mem index {}", if i.mnemonic()==Mnemonic::Lea {"lea"} else {""}),
                                _ => "mem base index".into(),
                            }
                        } else {
                            format!("imm {:?} {:?}", i.mnemonic(), i.op0_kind())
                        };
                    }
                }
                cat
            } else if graph.chunk(n).unwrap().code { "opaque".into() } else if r.slot_of.is_some() {"slot".into()} else { "data".into() };
            *counts.entry(cat.clone()).or_default() += 1;
            *secs.entry(to.0).or_default().entry(cat).or_default() += 1;
        }
    }
    println!("{counts:#?}");
    let hard = |c: &str| c.starts_with("mem base") || c.starts_with("mem index") || c.starts_with("imm Cmp") || c.starts_with("imm Add") || c.starts_with("opaque");
    let mut easy_bytes = BTreeMap::new(); let mut hard_bytes = BTreeMap::new();
    for n in graph.node_ids() {
        let Some(c) = graph.chunk(n) else { continue };
        if c.code || c.life != Life::Referenced { continue }
        let s = graph.section_of(n);
        if s.flags & 0x10 != 0 || s.flags & 2 == 0 { continue }
        if !(s.name.starts_with(".data") || s.name.starts_with(".rodata") || s.name.starts_with(".bss")) { continue }
        let h = secs.get(&n.0).is_some_and(|m| m.keys().any(|k| hard(k)));
        let e = if h { &mut hard_bytes } else { &mut easy_bytes };
        *e.entry(s.name.clone()).or_insert(0u32) += graph.node(n).size;
    }
    println!("easy {easy_bytes:#?}\nhard {hard_bytes:#?}");
}
