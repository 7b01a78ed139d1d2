//! The command `frozen-pack`, run as a process.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::program;
use kshrink_tests::process::{fails, finish, parse};

fn frozen_pack() -> Command {
    Command::new(env!("CARGO_BIN_EXE_frozen-pack"))
}

/// Runs a command, which has to succeed.
#[track_caller]
fn succeeds(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Returns the bytes of a section, as found by binutils.
fn section(program: &Path, name: &str) -> Vec<u8> {
    let out = program.with_extension("section");
    succeeds(Command::new("objcopy").args(["-O", "binary", "-j", name]).arg(program).arg(&out));
    fs::read(out).unwrap()
}

#[test]
fn sections_are_packed_and_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    let program = program(dir.path());
    let packed = dir.path().join("packed");
    succeeds(frozen_pack().arg("pack").arg(&program).arg("-o").arg(&packed));
    let both = [section(&program, ".text"), section(&program, ".rodata")].concat();
    assert!(fs::metadata(&packed).unwrap().len() < both.len() as u64);
    assert_eq!(succeeds(frozen_pack().arg("unpack").arg(&packed)), both);
    let page = succeeds(frozen_pack().args(["unpack", "--page", "3"]).arg(&packed));
    assert_eq!(page, both[3 * 4096..4 * 4096]);

    let input = || Stdio::from(fs::File::open(&program).unwrap());
    let stream = succeeds(frozen_pack().args(["pack", "-"]).stdin(input()));
    assert_eq!(stream, fs::read(&packed).unwrap());
    let input = Stdio::from(fs::File::open(&packed).unwrap());
    assert_eq!(succeeds(frozen_pack().args(["unpack", "-"]).stdin(input)), both);
}

#[test]
fn a_range_of_any_file_is_packed() {
    let dir = tempfile::tempdir().unwrap();
    let (file, packed) = (dir.path().join("file"), dir.path().join("packed"));
    let bytes: Vec<u8> = (0..3000u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
    fs::write(&file, &bytes).unwrap();
    for more in [
        &[][..],
        &["--code", "--address", "0xc1000000"],
        &["--code=thumb"],
        &["--code=arm"],
        &["--page-size", "512"],
    ] {
        let range = ["--range", "0x10-5000"];
        succeeds(frozen_pack().arg("pack").arg(&file).args(range).args(more).arg("-o").arg(&packed));
        assert_eq!(succeeds(frozen_pack().arg("unpack").arg(&packed)), bytes[0x10..5000]);
    }
}

#[test]
fn bench_prints_a_row_for_each_coder() {
    let dir = tempfile::tempdir().unwrap();
    let program = program(dir.path());
    let output = succeeds(frozen_pack().args(["bench", "--format", "json"]).arg(&program));
    let rows = parse(&String::from_utf8(output).unwrap());
    let of = |part: &str| {
        let rows = rows.as_array().unwrap().iter().filter(|row| row["part"] == part);
        rows.map(|row| row["coder"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let coders = [
        "deflate",
        "LZMA",
        "LZMA with BCJ",
        "zstd",
        "zstd, 16 KiB dictionary",
        "Huffman, split streams",
        "frozen-pack",
    ];
    assert_eq!(
        (of("code"), of("data")),
        (coders.map(String::from).to_vec(), coders.map(String::from).to_vec())
    );
    for row in rows.as_array().unwrap() {
        let figure = |name: &str| row[name].as_u64().unwrap_or(0);
        let total = figure("pages") + figure("tables") + figure("index") + figure("decoder");
        assert_eq!(figure("total"), total, "{row}");
    }
    let text = succeeds(frozen_pack().arg("bench").arg(&program).args(["--section", ".rodata"]));
    assert_eq!(String::from_utf8(text).unwrap().lines().count(), 8);
}

#[test]
fn bad_input_is_one_clear_error() {
    let dir = tempfile::tempdir().unwrap();
    let program = program(dir.path());
    let (other, missing) = (dir.path().join("other"), dir.path().join("missing"));
    let output = dir.path().join("output");
    fs::write(&other, "no kernel").unwrap();
    let pack = |file: &Path| {
        let mut command = frozen_pack();
        command.arg("pack").arg(file).arg("-o").arg(&output);
        command
    };
    fails(&mut pack(&other), 2, "is no ELF file; expected a linked ELF file of 32 bits");
    fails(&mut pack(&missing), 1, "missing");
    fails(
        pack(&program).args(["--section", ".nothing"]),
        2,
        "has no section .nothing with contents; it has ",
    );
    fails(pack(&other).args(["--range", "0-10"]), 2, "has 9 bytes; the range 0x0-0xa is not within");
    let of_stubs = ["--mechanism", "stub", "--after-boot", "later.json"];
    fails(frozen_pack().arg("plan").arg(&program).args(of_stubs), 2, "it requires --mechanism page");
    fails(frozen_pack().arg("unpack").arg(&other).arg("-o").arg(&output), 2, "is not a packed file");
    fails(frozen_pack().arg("unpack").arg(&program).arg("-o").arg(&output), 2, "is not a packed file");
    assert!(!output.exists());

    succeeds(&mut pack(&program));
    fails(
        frozen_pack().args(["unpack", "--page", "99999"]).arg(&output),
        2,
        "page 99999: there is no such page",
    );
    let mut bytes = fs::read(&output).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&output, &bytes).unwrap();
    fails(frozen_pack().arg("unpack").arg(&output), 2, "its checksum is wrong");

    let cut = fs::read(&program).unwrap();
    fs::write(&other, &cut[..cut.len() / 2]).unwrap();
    fails(&mut pack(&other), 2, "is a damaged ELF file");
    for page_size in ["0", "100", "131072", "many"] {
        let (status, _, messages) = finish(pack(&program).args(["--page-size", page_size]));
        assert_eq!(status, 2);
        assert!(messages.contains("expected a power of two from 256 to 65536"), "{messages}");
    }
}

#[test]
fn what_is_frozen_is_shown_by_page_and_by_symbol() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    // A page and a half of numbers; a symbol without a size is followed by another symbol.
    let bytes: Vec<u8> = (0..1500u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
    fs::write(path("bytes"), &bytes).unwrap();
    let range = ["--range", "0-6000", "--address", "0xff7fd000"];
    succeeds(frozen_pack().arg("pack").arg(path("bytes")).args(range).arg("-o").arg(path("packed")));
    let packed = fs::metadata(path("packed")).unwrap().len();
    let source = format!(
        ".global kshrink_frozen_text, kshrink_frozen_data, kshrink_frozen_end, kshrink_packed, _start\n\
         kshrink_frozen_text = 0xff7fd000\nkshrink_frozen_data = 0xff7fe000\nkshrink_frozen_end = 0xff7fe800\n\
         label = 0xff7fd000\ncold = 0xff7fd100\n.size cold, 0x200\n\
         table = 0xff7fdf00\n.size table, 0x200\nlast = 0xff7fe700\nhot = 0xc1000000\n\
         .section .rodata\nkshrink_packed: .long {packed}\n.incbin \"{}\"\n.size kshrink_packed, {}\n.text\n_start: ret\n",
        path("packed").display(),
        packed + 4,
    );
    fs::write(path("kernel.s"), source).unwrap();
    let link = ["-nostdlib", "-static", "-no-pie"];
    succeeds(
        Command::new("i686-linux-gnu-gcc").args(link).arg(path("kernel.s")).arg("-o").arg(path("kernel")),
    );

    let json = parse(
        &String::from_utf8(succeeds(frozen_pack().args(["show", "-f", "json"]).arg(path("kernel")))).unwrap(),
    );
    assert_eq!((&json["size"], &json["packed"]), (&6000.into(), &packed.into()));
    let pages = json["pages"].as_array().unwrap();
    let addresses: Vec<u64> = pages.iter().map(|page| page["address"].as_u64().unwrap()).collect();
    assert_eq!(addresses, [0xff7f_d000, 0xff7f_e000]);
    assert_eq!((&pages[1]["size"], &pages[1]["layout"]), (&(6000 - 4096).into(), &"data".into()));
    let streams: u64 = pages.iter().map(|page| page["packed"].as_u64().unwrap()).sum();
    assert_eq!(json["shared"].as_u64().unwrap() + streams, packed);
    let symbols: Vec<(&str, bool, u64, u64)> = json["symbols"]
        .as_array()
        .unwrap()
        .iter()
        .map(|symbol| {
            let pages = symbol["pages"].as_array().unwrap();
            let last = pages[1].as_u64().unwrap();
            (symbol["name"].as_str().unwrap(), symbol["code"] == true, symbol["size"].as_u64().unwrap(), last)
        })
        .collect();
    // Unfrozen parts are not listed, and nothing extends beyond the end.
    assert_eq!(
        symbols,
        [
            ("label", true, 0x100, 0),
            ("cold", true, 0x200, 0),
            ("table", true, 0x200, 1),
            ("last", false, 0x70, 1)
        ]
    );
    let text = String::from_utf8(succeeds(frozen_pack().arg("show").arg(path("kernel")))).unwrap();
    assert!(text.contains("table") && text.contains("0-1") && text.contains("6,000"), "{text}");

    fails(frozen_pack().arg("show").arg(program(dir.path())), 2, "has no symbol kshrink_frozen_data");
    fails(frozen_pack().arg("show").arg(path("bytes")), 2, "is no ELF file");
}
