//! `census trace` on the same memory, with recordings made by hand.

use std::process::Command;

use census::trace::document::Document;
use kshrink_tests::process::run;

use super::{MEMORY, Miniature, core};

/// The recording of a run of the kernel in miniature.
struct Recording {
    places: String,
    lines: Vec<String>,
}

impl Recording {
    /// Creates a recording in which `open_file`, `name_device` through `kstrdup`, and `make_table` call allocators.
    fn new(miniature: &Miniature) -> Recording {
        let output = miniature.census(&["places", "vmlinux"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let places = String::from_utf8(output.stdout).unwrap();
        // The return addresses: 3 bytes of code, and the call of 5 bytes.
        let address = |function: &str| miniature.address(function) + 8;
        let lines = vec![
            format!("chain 1 {:#x}", address("open_file")),
            format!("chain 2 {:#x} {:#x}", address("kstrdup"), address("name_device")),
            format!("chain 3 {:#x}", address("make_table")),
        ];
        Recording { places, lines }
    }

    /// Adds a call: the physical address that identifies its memory, the kind, the chain and the number, which is also
    /// the time of its end.
    fn call(&mut self, physical: usize, kind: &str, chain: u32, number: u32) {
        self.lines.push(format!("call {physical:#010x} {kind} {chain} {number} {number}"));
    }

    /// Adds words at a physical address with the times of their last access and their last read.
    fn touched(&mut self, physical: usize, words: u32, time: u32, read: u32) {
        self.lines.push(format!("touched {physical:#010x} {words} {time} {read}"));
    }

    fn text(&self) -> String {
        let lines = self.lines.join("\n");
        format!("allocations 1\n{}{lines}\nend {}\n", self.places, self.lines.len())
    }
}

#[test]
fn objects_have_the_sites_of_their_calls() {
    let miniature = Miniature::new();
    let mut recording = Recording::new(&miniature);
    // Object 5 is free. Call 20 is said to have allocated two objects, of which it can have got only one.
    let object = |number: usize| 0x4000 + number * 64;
    for (number, chain, call) in
        [(0, 1, 10), (1, 1, 11), (2, 2, 12), (3, 0, 13), (5, 1, 14), (6, 1, 20), (7, 1, 20)]
    {
        recording.call(object(number), "slab", chain, call);
    }
    recording.call(object(8), "bulk", 1, 21);
    recording.call(object(10), "bulk", 1, 21);
    for number in 11..64 {
        recording.call(object(number), "slab", 2, 100 + number as u32);
    }
    // The block on pages 10 and 11, by the members `private` and `_refcount`. Other kinds do not count.
    let page = |frame: usize, member: usize| miniature.offset("mem_map") - MEMORY + frame * 32 + member;
    recording.call(page(10, 20), "pages", 1, 30);
    recording.call(page(10, 28), "pages", 3, 31);
    recording.call(page(9, 20), "slab", 3, 32);
    recording.touched(object(0), 16, 9, 9);
    recording.touched(object(1), 8, 12, 9);
    recording.touched(object(2), 16, 13, 13);
    recording.touched(0xa000, 1024, 33, 0);
    miniature.write("recording", recording.text());
    let output = miniature.census(&["trace", "vmlinux", "core", "recording", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Document = serde_json::from_slice(&output.stdout).unwrap();
    let sites: Vec<_> = document
        .sites
        .iter()
        .map(|site| {
            let through = site.through.join(" ");
            let counts = [site.objects, site.bytes, site.unused_objects, site.untouched, site.unread];
            (&site.function[..], through, counts)
        })
        .collect();
    assert_eq!(
        sites,
        [
            ("make_table", String::new(), [1, 8192, 0, 4096, 8192]),
            ("name_device", "kstrdup".to_owned(), [54, 54 * 64, 53, 53 * 64, 53 * 64]),
            ("open_file", String::new(), [4, 256, 3, 224, 256]),
        ]
    );
    assert_eq!(document.sites[2].caches, ["small"]);
    assert!(document.sites[0].lines[0].contains("kernel.c:"), "{:?}", document.sites[0].lines);
    let sums: Vec<_> = document
        .memory
        .iter()
        .map(|sum| (sum.objects, sum.bytes, sum.known_objects, sum.known_bytes))
        .collect();
    // 62 objects of `small` and one of `large`; pages 9, 10 with 11, and 12; the array of `struct page`.
    assert_eq!(sums, [(63, 62 * 64 + 8192, 58, 58 * 64), (3, 4 * 4096, 1, 8192), (1, 4096, 0, 0)]);

    let table =
        String::from_utf8(miniature.census(&["trace", "vmlinux", "core", "recording"]).stdout).unwrap();
    assert!(table.contains("make_table+0x8") && table.contains("2 smaller sites"), "{table}");
    // A list of sites is no census.
    miniature.write("sites.json", &output.stdout);
    let words = ["\"kshrink-allocations/1\", not \"kshrink-census/1\"", "expected a census"];
    miniature.refuses(&["diff", "sites.json", "sites.json"], 2, &words);
}

#[test]
fn other_recordings_are_refused() {
    let miniature = Miniature::new();
    let mut recording = Recording::new(&miniature);
    let refuse = |text: &str, words: &[&str]| {
        miniature.write("recording", text);
        miniature.refuses(&["trace", "vmlinux", "core", "recording"], 2, words);
    };
    recording.call(0x4000, "slab", 1, 1);
    let whole = recording.text();
    refuse("", &["recording: line 1: the last line `end` is missing", "expected the whole recording"]);
    refuse("hello\n", &["recording: line 1: `hello`", "allocations.c"]);
    refuse(&whole[..whole.len() - 3], &["the line is truncated"]);
    refuse(&whole[..whole.len() - 6], &["the last line `end` is missing"]);
    // Of another run.
    refuse(&whole, &["recording: of another run than the core: it has the calls of 1 of 63 slab objects"]);
    // Of another kernel, or of one that ran at another address.
    miniature.build("rebuilt", &["-DMINIATURE=2"]);
    let other = String::from_utf8(miniature.census(&["places", "rebuilt"]).stdout).unwrap();
    refuse(&whole.replace(&recording.places, &other), &["of another kernel than vmlinux", "`kernel "]);
    refuse(
        &format!("allocations 1\n{}end 0\n", recording.places),
        &["no call of an allocator ran", "nokaslr"],
    );
    // The core of another kernel.
    miniature.write("recording", whole);
    miniature.write("rebuilt.core", core(&miniature.memory("rebuilt")));
    miniature.refuses(
        &["trace", "vmlinux", "rebuilt.core", "recording"],
        2,
        &["rebuilt.core: of another kernel"],
    );
    miniature.refuses(&["trace", "vmlinux", "core", "absent"], 1, &["absent"]);
    // An allocator that is not SLUB, and a machine whose calls do not write to memory.
    miniature.write(
        "arm.c",
        "const char linux_banner[] = \"Linux version 6.12.0\"; void kmem_cache_alloc(void) {}",
    );
    let mut gcc = Command::new("arm-linux-gnueabihf-gcc");
    run(gcc.args(["-nostdlib", "-static", "arm.c", "-o", "arm"]).current_dir(miniature.dir.path()));
    miniature.refuses(&["places", "arm"], 2, &["arm: a kernel for arm", "supports kernels for i386"]);
    run(Command::new("objcopy")
        .args(["-N", "kmem_cache_alloc_noprof", "vmlinux", "none"])
        .current_dir(miniature.dir.path()));
    miniature.refuses(&["places", "none"], 2, &["none: it has no function of mm/slub.c"]);
}
