//! Plans that no trace would produce: random functions in random order, with random parts of them hot, and others
//! frozen; and passes in random order.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use goblin::elf::Elf;
use goblin::elf::sym::{STB_LOCAL, STT_FILE, STT_FUNC};
use serde_json::{Value, json};

use crate::{Random, Run};

/// Maximum size of a random part of a function, in bytes.
const PART: u32 = 24;
/// Maximum size of a random frozen part, which has to contain whole blocks.
const FROZEN_PART: u32 = 400;

/// Returns a plan for some objects, each with its name for the rewriter: with a random order by block, with other
/// random functions and parts of functions frozen, and with all constant data frozen. Other files are left out.
pub fn random<'p>(objects: impl IntoIterator<Item = (&'p str, &'p Path)>, seed: u64) -> String {
    let mut random = Random::new(seed);
    let (mut ordered, mut frozen, mut data): (Vec<Value>, Vec<Value>, Vec<Value>) = Default::default();
    let mut counts: BTreeMap<(String, Option<String>), u32> = BTreeMap::new();
    for (object, path) in objects {
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let Ok(elf) = Elf::parse(&bytes) else { continue };
        let mut nth: BTreeMap<&str, u32> = BTreeMap::new();
        for section in &elf.section_headers {
            let name = elf.shdr_strtab.get_at(section.sh_name).unwrap_or_default();
            if name.starts_with(".rodata") {
                let nth = nth.entry(name).or_default();
                data.push(json!({ "object": object, "section": name, "nth": *nth }));
                *nth += 1;
            }
        }
        let mut file = None;
        for symbol in elf.syms.iter() {
            let name = elf.strtab.get_at(symbol.st_name).unwrap_or_default().to_owned();
            if symbol.st_type() == STT_FILE {
                file = Some(name);
                continue;
            }
            if symbol.st_type() != STT_FUNC || symbol.st_shndx == 0 {
                continue;
            }
            let file = file.clone().filter(|_| symbol.st_bind() == STB_LOCAL);
            let nth = counts.entry((name.clone(), file.clone())).or_default();
            let function = |ranges: Vec<Value>| {
                let mut function = json!({ "name": name, "nth": *nth, "ranges": ranges });
                if let Some(file) = &file {
                    function["file"] = file.as_str().into();
                }
                function
            };
            if !random.once_in(3) {
                let place = random.range(0, ordered.len() as u32) as usize;
                ordered.insert(place, function(parts(&mut random, symbol.st_size, PART)));
            }
            match random.range(0, 3) {
                0 => frozen.push(function(Vec::new())),
                1 => {
                    let parts = parts(&mut random, symbol.st_size, FROZEN_PART);
                    frozen.extend((!parts.is_empty()).then(|| function(parts)));
                }
                _ => {}
            }
            *nth += 1;
        }
    }
    let order = json!({ "granularity": "block", "algorithm": "random", "functions": ordered });
    let frozen = json!({ "mechanism": "page", "code": frozen, "data": data });
    json!({ "schema": "kshrink/1", "order": order, "frozen": frozen }).to_string()
}

/// Returns random parts of a function of this size, by rising offset; no parts mean the whole function.
fn parts(random: &mut Random, size: u64, longest: u32) -> Vec<Value> {
    let mut parts = Vec::new();
    let mut at = u64::from(random.range(0, PART));
    while at < size {
        let part = u64::from(random.range(1, longest)).min(size - at);
        parts.push(json!({ "offset": at, "size": part }));
        at += part + u64::from(random.range(1, longest));
    }
    parts
}

/// Returns the names of all passes, from the error for an unknown one.
pub fn all_passes() -> Vec<String> {
    let run =
        Run::kshrink("kshrink-spec").args(["--objects", "none.o", "--passes", "?", "--emit-object", "out.o"]);
    let answer = run.outcome().stderr;
    let (_, list) =
        answer.split_once("or a list of ").unwrap_or_else(|| panic!("no list of passes: {answer}"));
    let list = list.lines().next().unwrap_or_default();
    list.split(", ").map(|name| name.trim().to_owned()).collect()
}

/// Returns all passes in a random order.
pub fn shuffled(random: &mut Random, all: &[String]) -> String {
    let mut passes: Vec<&str> = all.iter().map(String::as_str).collect();
    for last in (1..passes.len()).rev() {
        passes.swap(last, random.range(0, last as u32) as usize);
    }
    passes.join(",")
}
