//! The debugging information of a program whose code is cut into pieces and placed anew.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use addr2line::Loader;
use addr2line::fallible_iterator::FallibleIterator;
use gimli::LittleEndian;
use gimli::read::{BaseAddresses, DebugFrame, EndianSlice, UnwindContext, UnwindSection};
use kdebug::debug_file;
use kelf::Functions;
use kplan::{Block, BlockFunction, BlockMap, FunctionName, MovedInstruction};
use kshrink_tests::Random;
use kshrink_tests::process::run;
use object::{Object, ObjectSection};
use tempfile::TempDir;

/// Functions with loops, inlined functions and saved registers.
const SOURCE: &str = r#"
    static int table[16];
    int kept = 3;
    static inline int scale(int value, int by) {
        if (value > 40)
            return value * by - 7;
        return value * by;
    }
    __attribute__((noinline)) int work(int count, int *values) {
        int sum = 0;
        for (int i = 0; i < count; i++) {
            values[i] += scale(i, count);
            sum ^= values[i] + table[i & 15];
        }
        return sum;
    }
    __attribute__((noinline)) int removed(int a) { return work(a, table) + 1; }
    __attribute__((noinline)) int both(int a, int b, int c) {
        int first = work(a, table);
        int second = work(b, table) * first;
        if (c)
            second += scale(first, kept);
        return second + removed(c);
    }
    int gone(int a) { return table[a] + 5; }
    void _start(void) { kept = both(1, 2, 3); for (;;); }
"#;

/// The program, and its copy without debugging information, whose code counts as rewritten.
struct Program {
    dir: TempDir,
    original: PathBuf,
    rewritten: PathBuf,
}

impl Program {
    /// Compiles the source with debugging information of a version of DWARF.
    fn compile(version: &str) -> Program {
        let dir = TempDir::new().unwrap();
        let (source, original, rewritten) =
            (dir.path().join("a.c"), dir.path().join("original"), dir.path().join("rewritten"));
        std::fs::write(&source, SOURCE).unwrap();
        let flags = [
            "-m32",
            "-O2",
            "-fno-pic",
            "-ffreestanding",
            "-nostdlib",
            "-static",
            "-fno-asynchronous-unwind-tables",
        ];
        run(Command::new("gcc").args(flags).arg(version).args(["-no-pie", "-o"]).arg(&original).arg(&source));
        run(Command::new("objcopy").arg("--remove-section=.debug_*").arg(&original).arg(&rewritten));
        Program { dir, original, rewritten }
    }

    /// Converts by a map, and returns the file.
    fn convert(&self, map: &BlockMap) -> PathBuf {
        let file = self.dir.path().join("debug");
        std::fs::write(&file, debug_file(&self.original, &self.rewritten, map).unwrap()).unwrap();
        file
    }
}

/// Functions that the rewritten program lacks. A call of the first one is kept.
const REMOVED: [&str; 2] = ["removed", "gone"];

/// Cuts the other functions into pieces at random places, and places them in a random order.
fn cut(functions: &Functions, random: &mut Random) -> BlockMap {
    let mut map = BlockMap::default();
    let mut pieces = Vec::new();
    for function in functions.functions.iter().filter(|function| !REMOVED.contains(&&*function.name)) {
        let name =
            FunctionName { name: function.name.clone(), file: function.file.clone(), nth: function.nth };
        map.functions.push(BlockFunction { function: name, size: function.size });
        let mut offset = 0;
        while offset < function.size {
            let size = u64::from(random.range(1, 24)).min(function.size - offset);
            // Some pieces are gone.
            if !random.once_in(8) {
                pieces.push((map.functions.len() - 1, offset, size));
            }
            offset += size;
        }
    }
    let mut address = 0x40_0000;
    while !pieces.is_empty() {
        let picked = random.range(0, pieces.len() as u32 - 1) as usize;
        let (function, original_offset, original_size) = pieces.remove(picked);
        // Some pieces lose their third byte.
        let shorter = original_size > 4 && random.once_in(4);
        let size = original_size - u64::from(shorter);
        map.blocks.push(Block { address, size, function, original_offset, original_size });
        if shorter {
            map.moved.push(MovedInstruction { address: address + 2, original_offset: original_offset + 3 });
        }
        address += size + u64::from(random.range(0, 1)) * 16;
    }
    map
}

/// Returns each kept byte of the original with its place.
fn kept(functions: &Functions, map: &BlockMap) -> Vec<(u64, u64)> {
    let mut kept = Vec::new();
    for block in &map.blocks {
        let FunctionName { name, file, nth } = &map.functions[block.function].function;
        let (index, _) = functions.find(name, file.as_deref(), *nth).unwrap();
        let start = functions.function(index).address + block.original_offset;
        let is_moved = map.moved.iter().any(|moved| moved.address == block.address + 2);
        for offset in 0..block.size {
            kept.push((start + offset + u64::from(is_moved && offset >= 2), block.address + offset));
        }
    }
    kept
}

/// Returns the functions and lines of an address: the code's own, and those into which it is inlined.
fn frames(loader: &Loader, address: u64) -> Vec<(Option<String>, Option<u32>)> {
    let frames = loader.find_frames(address).unwrap().map(|frame| {
        let name = frame.function.map(|function| function.raw_name().unwrap().into_owned());
        Ok((name, frame.location.and_then(|location| location.line)))
    });
    frames.collect().unwrap()
}

/// Returns the rules by which a debugger finds the caller, in words.
fn rules(file: &Path, addresses: impl Iterator<Item = u64>) -> Vec<String> {
    let bytes = std::fs::read(file).unwrap();
    let file = object::File::parse(&bytes[..]).unwrap();
    let section = file.section_by_name(".debug_frame").unwrap();
    let mut frame = DebugFrame::from(EndianSlice::new(section.data().unwrap(), LittleEndian));
    frame.set_address_size(4);
    let bases = BaseAddresses::default();
    let mut rule = |address| {
        let mut context = UnwindContext::new();
        let row = frame.unwind_info_for_address(&bases, &mut context, address, DebugFrame::cie_from_offset);
        let row = row.unwrap();
        let mut registers: Vec<_> =
            row.registers().map(|(register, rule)| format!("{register:?} {rule:?}")).collect();
        registers.retain(|rule| !rule.ends_with("SameValue"));
        registers.sort();
        format!("{:?} {registers:?}", row.cfa())
    };
    addresses.map(&mut rule).collect()
}

#[test]
fn every_kept_byte_has_the_lines_and_functions_of_the_original() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let program = Program::compile(version);
        let functions = Functions::read(&program.original).unwrap();
        let original = Loader::new(&program.original).unwrap();
        for seed in 0..40 {
            let map = cut(&functions, &mut Random::new(seed));
            let file = program.convert(&map);
            let converted = Loader::new(&file).unwrap();
            let kept = kept(&functions, &map);
            for &(before, now) in &kept {
                let (expected, found) = (frames(&original, before), frames(&converted, now));
                assert_eq!(expected, found, "{version}, seed {seed}, {before:#x} is now {now:#x}");
            }
            let expected = rules(&program.original, kept.iter().map(|&(before, _)| before));
            assert_eq!(expected, rules(&file, kept.iter().map(|&(_, now)| now)), "{version}, seed {seed}");
        }
    }
}

#[test]
fn what_was_removed_has_no_entry() {
    let program = Program::compile("-gdwarf-5");
    let functions = Functions::read(&program.original).unwrap();
    let file = program.convert(&cut(&functions, &mut Random::new(1)));
    let dump = run(Command::new("readelf").arg("--debug-dump=info").arg(file));
    let named =
        |name: &str| dump.lines().any(|line| line.contains("DW_AT_name") && line.trim_end().ends_with(name));
    for (name, expected) in [("work", true), ("both", true), ("table", true), ("gone", false)] {
        assert_eq!(named(name), expected, "{name} in\n{dump}");
    }
}

#[test]
fn the_copy_keeps_its_code_and_data() {
    let program = Program::compile("-gdwarf-5");
    let functions = Functions::read(&program.original).unwrap();
    let file = program.convert(&cut(&functions, &mut Random::new(1)));
    let sections = |path: &Path| -> Vec<(String, Range<u64>, Vec<u8>)> {
        let bytes = std::fs::read(path).unwrap();
        let file = object::File::parse(&bytes[..]).unwrap();
        let sections = file.sections().filter(|section| section.address() > 0);
        let section = |section: object::Section<'_, '_>| {
            let addresses = section.address()..section.address() + section.size();
            (section.name().unwrap().to_owned(), addresses, section.data().unwrap().to_vec())
        };
        sections.map(section).collect()
    };
    assert_eq!(sections(&program.rewritten), sections(&file));
}

#[test]
fn without_debugging_information_there_is_an_error() {
    let program = Program::compile("-gdwarf-5");
    let error =
        debug_file(&program.rewritten, &program.rewritten, &BlockMap::default()).unwrap_err().to_string();
    assert!(error.contains("rewritten: it has no debugging information; expected"), "{error}");
    assert_eq!(kdebug::check(&program.rewritten).unwrap_err().to_string(), error);
    kdebug::check(&program.original).unwrap();
}
