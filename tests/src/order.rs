//! Orders of code that no trace would give: random functions in random order, with random parts of them hot.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use goblin::elf::Elf;
use goblin::elf::sym::{STB_LOCAL, STT_FILE, STT_FUNC};
use serde_json::{Value, json};

use crate::random::Random;

/// The largest size in bytes of a random part of a function.
const PART: u32 = 24;

/// A plan with a random order by block for the functions of some objects; what is no object is left out.
pub fn random<'p>(objects: impl IntoIterator<Item = &'p Path>, seed: u64) -> String {
    let mut random = Random::new(seed);
    let mut functions: Vec<Value> = Vec::new();
    let mut counts: BTreeMap<(String, Option<String>), u32> = BTreeMap::new();
    for path in objects {
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let Ok(elf) = Elf::parse(&bytes) else { continue };
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
            if !random.once_in(3) {
                let mut function =
                    json!({ "name": name, "nth": *nth, "ranges": parts(&mut random, symbol.st_size) });
                if let Some(file) = file {
                    function["file"] = file.into();
                }
                let place = random.range(0, functions.len() as u32) as usize;
                functions.insert(place, function);
            }
            *nth += 1;
        }
    }
    let order = json!({ "granularity": "block", "algorithm": "random", "functions": functions });
    json!({ "schema": "kshrink/1", "order": order }).to_string()
}

/// Random parts of a function of some bytes, by rising offset; none for one that is hot as a whole.
fn parts(random: &mut Random, size: u64) -> Vec<Value> {
    let mut parts = Vec::new();
    let mut at = u64::from(random.range(0, PART));
    while at < size {
        let part = u64::from(random.range(1, PART)).min(size - at);
        parts.push(json!({ "offset": at, "size": part }));
        at += part + u64::from(random.range(1, PART));
    }
    parts
}
