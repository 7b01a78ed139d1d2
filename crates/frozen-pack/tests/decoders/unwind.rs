//! The decoder in C finds the states that were packed in tables for unwinding.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use frozen_pack::codec::unwind::{Entry, REGIONS, Region, pack};
use kshrink_tests::process::run;

use crate::both::Random;
use crate::common::runtime;

/// Compiles the decoder and a driver, with sanitizers that stop it at the first error.
fn decoder(directory: &Path) -> PathBuf {
    let program = directory.join("unwind");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]);
    gcc.args(["-fsanitize=address,undefined", "-fno-sanitize-recover"]);
    run(gcc.args(["unwind.c", "test/unwind.c"].map(runtime)).arg("-o").arg(&program));
    program
}

/// Returns the state of each byte of all regions.
fn decode(decoder: &Path, tables: &[u8], sizes: [usize; REGIONS]) -> Vec<u32> {
    let mut child =
        Command::new(decoder).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the decoder");
    let mut input = Vec::new();
    for number in [tables.len()].iter().chain(&sizes) {
        input.extend((*number as u32).to_le_bytes());
    }
    input.extend(tables);
    let mut pipe = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || pipe.write_all(&input).unwrap());
        child.wait_with_output().unwrap()
    });
    assert!(output.status.success());
    output.stdout.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Entries like those of code: often short distances, and a few states after each state.
fn entries(random: &mut Random, size: usize, states: usize) -> Vec<Entry> {
    let mut entries = vec![Entry { distance: 0, state: random.below(states) as u16 }];
    loop {
        let last = entries[entries.len() - 1];
        let most = [4, 40, 3000][random.below(60) / 29];
        let distance = last.distance + random.below(most) as u32;
        if distance as usize >= size {
            return entries;
        }
        let next = (usize::from(last.state) * 7 + random.below(3)) % states;
        let state = [next, random.below(states)][random.below(20) / 19];
        entries.push(Entry { distance, state: state as u16 });
    }
}

/// The state of each byte.
fn expected(entries: &[Entry], size: usize) -> Vec<u32> {
    let mut states = vec![0; size];
    for entry in entries {
        states[entry.distance as usize..].fill(u32::from(entry.state));
    }
    states
}

#[test]
fn every_state_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let decoder = decoder(dir.path());
    let mut random = Random(7);
    for states in [1, 2, 20, 400] {
        for sizes in [[1, 0, 2], [80_000, 9_000, 0], [5_000, 129, 30_000]] {
            let mut wanted = Vec::new();
            let regions = sizes.map(|size| {
                if size == 0 {
                    return Region::default();
                }
                let entries = entries(&mut random, size, states);
                wanted.extend(expected(&entries, size));
                Region::new(&entries, size as u32).unwrap()
            });
            let tables = pack(states, &regions).unwrap();
            assert!(decode(&decoder, &tables, sizes) == wanted, "{states} states, {sizes:?}");
        }
    }
}

#[test]
fn an_empty_region_has_no_state() {
    let dir = tempfile::tempdir().unwrap();
    let tables = pack(0, &Default::default()).unwrap();
    assert_eq!(decode(&decoder(dir.path()), &tables, [1, 0, 1]), [u32::MAX; 2]);
}

#[test]
fn entries_in_no_order_are_refused() {
    let entry = |distance| Entry { distance, state: 1 };
    assert!(Region::new(&[entry(0), entry(9), entry(8)], 20).is_err());
    assert!(Region::new(&[entry(1)], 20).is_err());
    assert!(Region::new(&[], 20).is_err());
}
