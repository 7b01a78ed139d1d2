/*!
Pass `initmotion`: moves code and data that only initialization needs to memory that is freed (Chanet et al. 2007,
section 3.4).

The kernel frees the sections between `__init_begin` and `__init_end` once it has booted (`free_initmem()`). Functions
and variables that only the code there uses are moved to them (`late` defines this). A function moves to `.init.text`,
writable data to `.init.data` (zero-initialised data too, which then has bytes in the image), and read-only data to
`.init.rodata`.

The pass moves compiler-made code of `.text`, and data of `.data`, `.data..read_mostly`, `.bss`, `.rodata` and
`.rodata.str*`. Other sections have a second meaning: `.ref.text` has code that runs while memory is freed,
`.data..ro_after_init` has data that is writable until then, and `.data..percpu` has data with a copy for each
processor.
*/

mod late;
mod units;
mod uses;

use goblin::elf::section_header::{
    SHF_ALLOC, SHF_EXECINSTR, SHF_MERGE, SHF_STRINGS, SHF_WRITE, SHT_PROGBITS,
};
use indexmap::IndexMap;
use kcfg::graph::{Contents, Editor, Graph, Section};
use kcfg::index::NodeId;
use kcfg::special::World;

use crate::pass::{Context, Facts, Pass, Phase, Runs};
use crate::report::PassReport;
use units::Place;

/// Pass `initmotion`: moves code and data that only initialization needs.
pub struct InitMotion;

impl Pass for InitMotion {
    fn facts(&self) -> Facts {
        Facts {
            name: "initmotion",
            summary: "moves code and data that only initialization uses to memory that the kernel frees",
            phase: Phase::Finishes,
            runs: Runs::Always,
            on_64_bits: true,
        }
    }

    fn run(&self, graph: &mut Graph, _: &mut Context<'_>) -> PassReport {
        let mut report = PassReport::new(self.name());
        if !frees_init_memory(graph.world()) {
            report.keep("all code and data", "the program has no memory that is freed after initialization");
            return report;
        }
        let units = units::all(graph);
        let late = late::find(graph, &units);
        let moved = units::only_needed_early(graph, &units, &late);
        for (place, what, bytes) in [
            (Place::Text, "functions moved", "bytes of code moved"),
            (Place::Data, "variables moved", "bytes of variables moved"),
            (Place::Zeros, "zero-initialised variables moved", "bytes of zero-initialised variables moved"),
            (Place::ReadOnly, "constants moved", "bytes of constants moved"),
            (Place::String, "strings moved", "bytes of strings moved"),
        ] {
            let here = || moved.iter().filter(|unit| unit.place == place);
            report.count(what, here().count() as u64);
            report.count(bytes, here().map(|unit| unit.size(graph)).sum());
        }
        let mut editor = Editor::new(graph, "initmotion");
        for unit in moved.iter().filter(|unit| unit.place == Place::Zeros) {
            for &node in &unit.nodes {
                let size = editor.graph().node(node).size as usize;
                editor.set_bytes(node, Contents { bytes: vec![0; size], refs: Vec::new() });
            }
        }
        let mut sections: IndexMap<(&str, u32, u64), Vec<NodeId>> = IndexMap::new();
        for unit in &moved {
            let nodes = &unit.nodes;
            let string = editor.graph().section_of(nodes[0]);
            let (name, flags, entsize) = match unit.place {
                Place::Text => (".init.text", SHF_EXECINSTR, 0),
                Place::Data | Place::Zeros => (".init.data", SHF_WRITE, 0),
                Place::ReadOnly => (".init.rodata", 0, 0),
                // The linker still merges them, among themselves.
                Place::String => (".init.rodata", SHF_MERGE | SHF_STRINGS, string.entsize),
            };
            sections.entry((name, flags, entsize)).or_default().extend(nodes);
        }
        for ((name, flags, entsize), nodes) in sections {
            let flags = u64::from(SHF_ALLOC | flags);
            let section =
                editor.add_section(Section { flags, entsize, ..Section::writable(name, SHT_PROGBITS) });
            editor.place(&nodes, section);
        }
        editor.finish();
        report
    }
}

/// Whether there is memory that is freed after initialization: the linker script bounds it.
fn frees_init_memory(world: &World) -> bool {
    let World::Kernel(kernel) = world else { return false };
    ["__init_begin", "__init_end"].iter().all(|&bound| kernel.script.words().any(|word| word == bound))
}
