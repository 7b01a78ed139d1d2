//! The unwind tables of linked x86-64 kernels (`struct orc_entry`, arch/x86/include/asm/orc_types.h), read without the
//! tools under test.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use goblin::elf::Elf;
use goblin::elf::sym::STT_FUNC;

/// Size in bytes of an entry of `.orc_unwind`.
const STATE: usize = 6;

/// How to find the caller's frame, as a kernel records it.
type State = [u8; STATE];

/// The state of the code after a function's end.
const UNDEFINED: State = [0; STATE];

/// Returns, for each function with a name of its own, the states in it: each change, by its offset in bytes from the
/// start of the function.
pub fn unwind_states(vmlinux: &Path) -> BTreeMap<String, Vec<(u64, State)>> {
    let bytes = fs::read(vmlinux).unwrap_or_else(|error| panic!("{}: {error}", vmlinux.display()));
    let elf = Elf::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", vmlinux.display()));
    let section = |name: &str| {
        let mut sections = elf.section_headers.iter();
        let is_it =
            |header: &&goblin::elf::SectionHeader| elf.shdr_strtab.get_at(header.sh_name) == Some(name);
        let header = sections.find(is_it).unwrap_or_else(|| panic!("{}: no {name}", vmlinux.display()));
        (header.sh_addr, &bytes[header.file_range().expect("content")])
    };
    let ((start, places), (_, states)) = (section(".orc_unwind_ip"), section(".orc_unwind"));
    let distances = places.chunks_exact(4).map(|distance| i32::from_le_bytes(distance.try_into().unwrap()));
    let address =
        |(i, distance): (usize, i32)| start.wrapping_add(4 * i as u64).wrapping_add_signed(distance.into());
    let states = states.chunks_exact(STATE).map(|state| State::try_from(state).unwrap());
    // The end of one section may be the start of the next.
    let mut table: BTreeMap<u64, State> = BTreeMap::new();
    for (address, state) in distances.enumerate().map(address).zip(states) {
        let known = table.entry(address).or_insert(state);
        if state != UNDEFINED {
            *known = state;
        }
    }
    let mut functions: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for symbol in elf.syms.iter().filter(|symbol| symbol.st_type() == STT_FUNC && symbol.st_size > 0) {
        let name = elf.strtab.get_at(symbol.st_name).unwrap_or_default();
        functions.entry(name).or_default().push((symbol.st_value, symbol.st_size));
    }
    let alone = functions.into_iter().filter(|(_, places)| places.len() == 1);
    let states = |(start, size): (u64, u64)| {
        let first = table.range(..=start).next_back().map(|(_, &state)| (0, state));
        let mut states: Vec<(u64, State)> = first.into_iter().collect();
        for (&address, &state) in table.range(start + 1..start + size) {
            if states.last().is_none_or(|&(_, before)| before != state) {
                states.push((address - start, state));
            }
        }
        states
    };
    alone.map(|(name, places)| (name.to_owned(), states(places[0]))).collect()
}
