//! Compilers and their options, picked by the seed of a program.

use std::fs;
use std::path::Path;

use kshrink_tests::{Chain, Random, Run};

use crate::generator::Dialect;

/// The object of `start.S`.
const START: &str = "start.o";

/// Options of which one is picked, each a list of words.
type Group = &'static [&'static str];

const I386_GCC: &[Group] = &[
    &["-O1", "-O2", "-O2", "-O3", "-Os", "-Os"],
    &["-fno-pie", "-fno-pie", "-fPIC", "-fPIE", "-fPIC -fno-plt"],
    &["", "-mregparm=3", "-mregparm=3 -freg-struct-return", "-mregparm=1"],
    &["", "-mpreferred-stack-boundary=2"],
    &[
        "",
        "-fno-omit-frame-pointer",
        "-maccumulate-outgoing-args",
        "-mno-push-args -maccumulate-outgoing-args",
    ],
    &["", "-msse2 -mfpmath=sse", "-march=i686", "-march=atom"],
    &["", "-fno-inline -fno-ipa-cp", "-fno-ipa-ra -fno-ipa-sra -fno-ipa-cp", "-fno-optimize-sibling-calls"],
    &["", "", "-ffunction-sections -fdata-sections", "-fno-jump-tables", "-fno-section-anchors -fcommon"],
    &[
        "",
        "",
        "-fcf-protection=branch",
        "-fno-asynchronous-unwind-tables",
        "-fno-toplevel-reorder",
        "-falign-functions=16",
    ],
    &[
        "",
        "",
        "-fno-if-conversion -fno-if-conversion2",
        "-fno-shrink-wrap",
        "-fno-reorder-blocks-and-partition",
    ],
];

const I386_CLANG: &[Group] = &[
    &["-O1", "-O2", "-O2", "-O3", "-Os", "-Oz"],
    &["-fno-pie", "-fno-pie", "-fPIC", "-fPIE"],
    &["", "-mregparm=3", "-mregparm=2"],
    &["", "-fno-omit-frame-pointer", "-mstack-alignment=4"],
    &["", "-mno-sse", "-march=i486"],
    &[
        "",
        "-fno-inline",
        "-fno-optimize-sibling-calls",
        "-ffunction-sections -fdata-sections",
        "-fno-jump-tables",
    ],
];

const ARM_GCC: &[Group] = &[
    &["-O1", "-O2", "-O2", "-O3", "-Os", "-Os"],
    &["-marm", "-marm -mapcs-frame", "-mthumb", "-mthumb", "-marm -mflip-thumb", "-mthumb -mflip-thumb"],
    &["-fno-pie", "-fno-pie", "-fPIC", "-fPIE"],
    &["", "-mfpu=neon", "-march=armv7-a -mfloat-abi=soft", "-mfloat-abi=softfp", "-march=armv7ve+fp"],
    &[
        "",
        "-fno-omit-frame-pointer",
        "-mword-relocations",
        "-mlong-calls",
        "-mno-unaligned-access",
        "-mcpu=cortex-a15 -mno-thumb-interwork",
    ],
    &["", "-fno-inline -fno-ipa-cp", "-fno-ipa-ra -fno-ipa-sra -fno-ipa-cp", "-fno-optimize-sibling-calls"],
    &[
        "",
        "",
        "-ffunction-sections -fdata-sections",
        "-fno-jump-tables",
        "-fno-section-anchors",
        "-fno-asynchronous-unwind-tables -fno-unwind-tables",
    ],
    &["", "", "-fno-if-conversion -fno-if-conversion2", "-fno-shrink-wrap", "-mrestrict-it"],
];

const ARM_CLANG: &[Group] = &[
    &["-O1", "-O2", "-O2", "-O3", "-Os", "-Oz"],
    &["-marm", "-mthumb", "-mthumb"],
    &["-fno-pic", "-fno-pic", "-fPIC", "-fPIE"],
    &["", "-mfpu=neon", "-mfloat-abi=soft", "-mfloat-abi=softfp"],
    &["", "-fno-omit-frame-pointer", "-mlong-calls", "-mno-unaligned-access", "-mno-movt"],
    &[
        "",
        "-fno-inline",
        "-fno-optimize-sibling-calls",
        "-ffunction-sections -fdata-sections",
        "-fno-jump-tables",
    ],
];

/// A compiler with options.
pub struct Way {
    pub arm: bool,
    clang: bool,
    /// The picked options.
    pub options: Vec<&'static str>,
}

impl Way {
    /// Returns the way of a seed.
    pub fn new(seed: u64) -> Way {
        // Different numbers from those that make the program.
        let mut random = Random::new(!seed);
        let (arm, clang) = (random.once_in(2), random.once_in(3));
        let groups = match (arm, clang) {
            (false, false) => I386_GCC,
            (false, true) => I386_CLANG,
            (true, false) => ARM_GCC,
            (true, true) => ARM_CLANG,
        };
        let options: Vec<&str> =
            groups.iter().flat_map(|group| random.pick(group).split_whitespace()).collect();
        Way { arm, clang, options }
    }

    /// The compiler with its target.
    fn compiler(&self) -> Run {
        match (self.arm, self.clang) {
            (false, false) => Run::new("i686-linux-gnu-gcc"),
            (true, false) => Run::new("arm-linux-gnueabihf-gcc").arg("-masm-syntax-unified"),
            (false, true) => Run::new("clang").arg("--target=i686-linux-gnu"),
            (true, true) => Run::new("clang").args(["--target=arm-linux-gnueabihf", "-march=armv7-a"]),
        }
    }

    /// Compiles a file.
    pub fn compile(&self, source: &str, object: &str) -> Run {
        let always = ["-w", "-ffreestanding", "-fno-stack-protector", "-fno-strict-aliasing"];
        self.compiler().args(always).args(&self.options).args(["-c", source, "-o", object])
    }

    /// The language of the compiler.
    pub fn dialect(&self) -> Dialect {
        let has = |option: &str| self.options.contains(&option);
        Dialect {
            arm: self.arm,
            clang: self.clang,
            pic: has("-fPIC") || has("-fPIE"),
            mixed: has("-mflip-thumb"),
            hard_float: self.arm && !has("-mfloat-abi=soft") && !has("-mfloat-abi=softfp"),
        }
    }

    /// The compiler and the options, for a message.
    pub fn name(&self) -> String {
        let compiler = if self.clang { "clang" } else { "gcc" };
        let machine = if self.arm { "arm" } else { "i386" };
        format!("{compiler} for {machine} {}", self.options.join(" "))
    }
}

/// The startup code and emulator for programs of a machine.
pub struct Runtime {
    linker: &'static [&'static str],
    start: Vec<u8>,
    libgcc: String,
    emulator: Option<&'static str>,
}

impl Runtime {
    /// Assembles `start.S`.
    pub fn new(arm: bool, dir: &Path) -> Runtime {
        let (prefix, linker): (_, &[_]) = if arm {
            ("arm-linux-gnueabihf-gcc", &["arm-linux-gnueabihf-ld", "--no-warn-mismatch"])
        } else {
            ("i686-linux-gnu-gcc", &["i686-linux-gnu-ld"])
        };
        let start = dir.join(format!("start-{prefix}.o"));
        let source = kshrink_tests::fixture("programs/rewrites/start.S");
        Run::new(prefix).arg("-c").arg(source).arg("-o").arg(&start).succeed();
        let start = fs::read(&start).expect("the object");
        let libgcc = Run::new(prefix).arg("-print-libgcc-file-name").succeed().text().trim().to_owned();
        Runtime { linker, start, libgcc, emulator: arm.then_some("qemu-arm") }
    }

    /// Puts the files for [`Runtime::link`] into the directory of a program.
    pub fn prepare(&self, chain: &Chain) {
        chain.write(START, &self.start);
    }

    /// Links a program.
    pub fn link(&self, program: &str, object: &str) -> Run {
        let run = Run::new(self.linker[0]).args(&self.linker[1..]).args(["-static", "-o", program]);
        run.args([START, object, &self.libgcc])
    }

    /// Runs a program.
    pub fn run(&self, program: &str) -> Run {
        let program = format!("./{program}");
        match self.emulator {
            None => Run::new(program),
            Some(emulator) => Run::new(emulator).arg(program),
        }
    }
}
