/*!
For any defect of its input, a command prints one clear error, exits with the status that `--help` documents, and
leaves nothing behind.

A case is a command line, the exit status, and words that the error has to contain: the file, the place in it, the
remedy. Every case also has to satisfy [`Case::check`].
*/

mod inputs;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::time::Duration;

use kshrink_tests::{Outcome, Run, command, parallel, recipe};
use tempfile::TempDir;

/// A file could not be read or written, or a step failed.
const FAILED: i32 = 1;
/// The arguments or the input are wrong.
const BAD: i32 = 2;

/// The address space of a command, in KiB: less than the size of the disk image.
const MEMORY_LIMIT_KIB: u32 = 4 << 20;

/// A command line, in words separated by spaces; its exit status; words that its error has to contain.
type Row = (&'static str, i32, &'static [&'static str]);

/// Lists of objects, with a writable output path.
const OBJECTS: &[Row] = &[
    (
        "kshrink-spec --objects truncated.o --entry main --emit-object out.o",
        BAD,
        &["truncated.o:", "damaged"],
    ),
    (
        "kshrink-spec --objects good.o mips.o --entry main --emit-object out.o",
        BAD,
        &["mips.o:", "machine", "i386"],
    ),
    (
        "kshrink-spec --objects big-endian.o --entry main --emit-object out.o",
        BAD,
        &["big-endian.o:", "big-endian;"],
    ),
    (
        "kshrink-spec --objects good.o x86_64.o --entry main --emit-object out.o",
        BAD,
        &["x86_64.o", "good.o", "i386"],
    ),
    (
        "kshrink-spec --objects text --entry main --emit-object out.o",
        BAD,
        &["text:", "not an ELF file", "(.o)"],
    ),
    (
        "kshrink-spec --objects disk.img --entry main --emit-object out.o",
        BAD,
        &["disk.img:", "not an ELF file"],
    ),
    (
        "kshrink-spec --objects slim.o --entry main --emit-object out.o",
        BAD,
        &["slim.o:", "slim LTO", "without -flto"],
    ),
    (
        "kshrink-spec --objects slim.a --entry main --emit-object out.o",
        BAD,
        &["slim.a(slim.o):", "slim LTO", "without -flto"],
    ),
    (
        "kshrink-spec --objects bitcode.o --entry main --emit-object out.o",
        BAD,
        &["bitcode.o:", "LLVM bitcode", "without -flto"],
    ),
    (
        "kshrink-spec --objects latin-1.o --entry main --emit-object out.o",
        BAD,
        &["latin-1.o:", "\"m\\xe4in\"", "not UTF-8", "rename"],
    ),
    ("kshrink-spec --objects empty --entry main --emit-object out.o", BAD, &["empty:", "empty file"]),
    ("kshrink-spec --objects program --entry main --emit-object out.o", BAD, &["program:", "before linking"]),
    (
        "kshrink-spec --objects directory --entry main --emit-object out.o",
        FAILED,
        &["directory", "Is a directory"],
    ),
    (
        "kshrink-spec --objects absent.o --entry main --emit-object out.o",
        FAILED,
        &["absent.o", "No such file"],
    ),
    (
        "kshrink-spec --objects good.o truncated.a --entry main --emit-object out.o",
        BAD,
        &["truncated.a:", "archive member"],
    ),
    (
        "kshrink-spec --objects good.o damaged.a --entry main --emit-object out.o",
        BAD,
        &["damaged.a:", "archive member"],
    ),
    ("kshrink-spec --objects good.o thin.a --entry main --emit-object out.o", FAILED, &["absent.o"]),
    (
        "kshrink-spec --objects good.o again.o --entry main --emit-object out.o",
        BAD,
        &["main", "good.o", "again.o"],
    ),
    ("kshrink-spec --objects good.o good.o --entry main --emit-object out.o", BAD, &["main", "good.o"]),
    ("kshrink-spec --objects good.o --entry absent --emit-object out.o", BAD, &["absent", "global function"]),
    ("kshrink-spec --objects library.a --entry main --emit-object out.o", BAD, &["no objects", "archives"]),
    ("kshrink-spec --objects good.o helper.o --entry main --explain absent", BAD, &["`absent`"]),
    ("kcfg --objects truncated.o", BAD, &["truncated.o:", "damaged"]),
    ("kcfg --objects mips.o", BAD, &["mips.o:", "machine", "i386"]),
    ("kcfg --objects big-endian.o", BAD, &["big-endian.o:", "big-endian;"]),
    ("kcfg --objects slim.o", BAD, &["slim.o:", "slim LTO", "without -flto"]),
    ("kcfg --objects bitcode.o", BAD, &["bitcode.o:", "LLVM bitcode", "without -flto"]),
    ("kcfg --objects latin-1.o", BAD, &["latin-1.o:", "\"m\\xe4in\"", "not UTF-8", "rename"]),
    ("kcfg --objects disk.img", BAD, &["disk.img:", "not an ELF file"]),
    ("kcfg --objects good.o damaged.a", BAD, &["damaged.a:", "archive member"]),
    ("kcfg --objects good.o again.o", BAD, &["main", "good.o", "again.o"]),
    ("kcfg --objects absent.o", FAILED, &["absent.o", "No such file"]),
    ("kcfg --objects good.o --entry absent", BAD, &["absent", "global function"]),
    ("kcfg --objects good.o --function absent", BAD, &["absent"]),
];

/// Programs and kernels without a build.
const PROGRAMS: &[Row] = &[
    (
        "kshrink-spec program -o out",
        BAD,
        &["not a kernel build directory", "include/config/auto.conf", "vmlinux"],
    ),
    ("kshrink-spec good.o -o out", BAD, &["good.o:", "relocatable", "vmlinux"]),
    ("kshrink-spec text -o out", BAD, &["text:", "not an ELF file", "vmlinux"]),
    ("kshrink-spec truncated.o -o out", BAD, &["truncated.o:", "relocatable", "vmlinux"]),
    ("kshrink-spec disk.img -o out", BAD, &["disk.img:", "not an ELF file", "vmlinux"]),
    ("kshrink-spec core.img -o out", BAD, &["core.img:", "core dump", "vmlinux"]),
    ("kshrink-spec absent -o out", FAILED, &["absent", "No such file"]),
    ("kshrink-spec directory -o out", FAILED, &["directory", "Is a directory"]),
    ("kcfg program", BAD, &["not a kernel build directory", "include/config/auto.conf"]),
    ("customize script program text", BAD, &["text:", "not JSON"]),
    ("customize script text text", BAD, &["text:"]),
    ("customize script absent absent", FAILED, &["absent", "No such file"]),
    ("customize observe program text", BAD, &["LOGS"]),
    ("kshrink-spec program --gate f -o out", BAD, &["--key"]),
    ("kshrink-spec program --gate f --key text -o out", BAD, &["text:", "a key of 32 bytes"]),
    ("cmdline-spec program", BAD, &["not a kernel build directory", "include/config/auto.conf", "vmlinux"]),
    ("cmdline-spec text", BAD, &["text:", "not an ELF file", "vmlinux"]),
    ("cmdline-spec disk.img", BAD, &["disk.img:", "not an ELF file", "vmlinux"]),
    ("cmdline-spec absent", FAILED, &["absent", "No such file"]),
    ("config-spec program", BAD, &["not a kernel build directory", "include/config/auto.conf", "vmlinux"]),
    ("config-spec text", BAD, &["text:", "not an ELF file", "vmlinux"]),
    ("config-spec disk.img", BAD, &["disk.img:", "not an ELF file", "vmlinux"]),
    ("config-spec absent", FAILED, &["absent", "No such file"]),
    ("config-spec --fragment absent", FAILED, &["absent", "No such file"]),
    ("config-spec --fragment not-json.json", BAD, &["not-json.json:", "not JSON"]),
    ("config-spec --fragment params.json", BAD, &["params.json:", "`config`", "--advise"]),
    ("cmdline-spec directory", FAILED, &["directory", "Is a directory"]),
    ("kcfg text", BAD, &["text:", "not an ELF file", "vmlinux"]),
    ("kcfg disk.img", BAD, &["disk.img:", "not an ELF file", "vmlinux"]),
    ("kcfg absent", FAILED, &["absent", "No such file"]),
    ("kelf size truncated.o", BAD, &["truncated.o:", "relocatable"]),
    ("kelf size disk.img", BAD, &["disk.img:", "not an ELF file"]),
    ("kelf size core.img", BAD, &["core.img:", "core dump"]),
    ("kelf size bitcode.o", BAD, &["bitcode.o:", "LLVM bitcode"]),
    ("census core text core.img", BAD, &["text:", "not an ELF file", "vmlinux"]),
    ("census core core.img core.img", BAD, &["core.img:", "core dump", "vmlinux"]),
    ("census core absent core.img", FAILED, &["absent", "No such file"]),
    ("census core program core.img", BAD, &["program:", "linux_banner"]),
    ("census core good.o core.img", BAD, &["good.o:", "relocatable", "vmlinux"]),
    ("census diff text text", BAD, &["text:", "not a JSON object", "census core --json"]),
    ("census diff absent text", FAILED, &["absent", "No such file"]),
    ("census diff no-schema.json no-schema.json", BAD, &["no-schema.json:", "schema", "kshrink-census/1"]),
    ("field-pack profile text core.img", BAD, &["text:", "not an ELF file"]),
    ("field-pack profile absent core.img", FAILED, &["absent", "No such file"]),
    ("field-pack show text", BAD, &["text:", "not a JSON object", "field-pack profile"]),
    ("field-pack show absent", FAILED, &["absent", "No such file"]),
    ("field-pack plan no-schema.json", BAD, &["no-schema.json:", "schema", "kshrink-field-profile/1"]),
    ("coverage qemu disk.img text", BAD, &["disk.img:", "not an ELF file"]),
    ("reorder params.json --vmlinux disk.img", BAD, &["disk.img:", "not an ELF file"]),
    ("frozen-pack plan disk.img", BAD, &["disk.img:", "not an ELF file"]),
    ("frozen-pack pack disk.img -o out", BAD, &["disk.img:", "no ELF file"]),
    ("frozen-pack show disk.img", BAD, &["disk.img:", "no ELF file"]),
    ("frozen-pack unpack disk.img -o out", BAD, &["disk.img:", "not a packed file"]),
    ("kelf size mips.o", BAD, &["mips.o:", "machine"]),
    ("kelf size big-endian.o", BAD, &["big-endian.o:", "big-endian;"]),
    ("kelf size good.o", BAD, &["good.o:", "relocatable"]),
    ("kelf size program text", BAD, &["text:", "not an ELF file"]),
    ("kelf size empty", BAD, &["empty:", "empty file"]),
    ("kelf size absent", FAILED, &["absent", "No such file"]),
    ("kelf size --json program directory", FAILED, &["directory", "Is a directory"]),
    ("syscall-scan truncated.o", BAD, &["truncated.o:"]),
    ("syscall-scan good.o", BAD, &["good.o:", "relocatable", "executable"]),
    ("syscall-scan mips.o", BAD, &["mips.o:", "MIPS", "i386"]),
    ("syscall-scan big-endian.o", BAD, &["big-endian.o:"]),
    ("syscall-scan disk.img", BAD, &["disk.img:", "not an ELF file"]),
    ("syscall-scan core.img", BAD, &["core.img:", "core dump", "executable"]),
    ("syscall-scan bitcode.o", BAD, &["bitcode.o:", "LLVM bitcode", "executable"]),
    ("syscall-scan text", BAD, &["text:", "not an ELF file"]),
    ("syscall-scan program empty", BAD, &["empty:", "not an ELF file"]),
    ("syscall-scan absent", FAILED, &["absent", "No such file"]),
    ("syscall-scan directory", FAILED, &["directory", "Is a directory"]),
    ("syscall-scan program -o directory", FAILED, &["directory"]),
    ("syscall-scan program -o text/out", FAILED, &["text/out", "Not a directory"]),
    ("syscall-scan program -o /dev/full", FAILED, &["/dev/full", "No space left"]),
    ("kcfg --objects good.o helper.o -o directory", FAILED, &["directory"]),
    ("kcfg --objects good.o helper.o -o /dev/full", FAILED, &["/dev/full", "No space left"]),
    ("kshrink-spec --objects good.o helper.o --entry main --emit-object directory", FAILED, &["directory"]),
    ("kshrink-spec --objects good.o helper.o --entry main --emit-object text/out.o", FAILED, &["text/out.o"]),
    ("kshrink-spec --objects good.o helper.o --entry main --emit-object no/out.o", FAILED, &["no/out.o"]),
    ("kshrink-spec --objects good.o helper.o --entry main --emit-object /proc/no", FAILED, &["/proc/no"]),
    (
        "kshrink-spec --objects good.o helper.o --entry main --emit-object /dev/full",
        FAILED,
        &["/dev/full", "No space"],
    ),
];

/// Misuse: errors of the argument parser, and of the commands.
const USAGE: &[Row] = &[
    (
        "kshrink-spec --objects good.o --entry main --passes shrink --emit-object out.o",
        BAD,
        &["`shrink`", "reach"],
    ),
    ("kshrink-spec --objects good.o --entry main --passes reach,none --emit-object out.o", BAD, &["`none`"]),
    (
        "kshrink-spec --objects good.o helper.o --entry main --passes reach --dump-after fold --emit-object out.o",
        BAD,
        &["`fold`", "graph, reach, refine, unwinding, literals"],
    ),
    (
        "kshrink-spec --objects good.o helper.o --entry main --passes layout --dump-after refine --emit-object out.o",
        BAD,
        &["`refine`", "graph, unwinding, layout, literals"],
    ),
    (
        "kshrink-spec --objects good.o helper.o --entry main --dump-after reach:absent --emit-object out.o",
        BAD,
        &["absent"],
    ),
    ("kshrink-spec --objects good.o --emit-object out.o", BAD, &["--entry"]),
    ("kshrink-spec program --objects good.o --entry main --emit-object out.o", BAD, &["--objects"]),
    ("kshrink-spec program -o out --emit-object out.o", BAD, &["--emit-object"]),
    ("kshrink-spec --objects good.o helper.o --entry main", BAD, &["--emit-object", "-o"]),
    ("kshrink-spec --objects good.o helper.o --entry main -o out", BAD, &["--emit-object"]),
    ("kshrink-spec -o out", BAD, &["VMLINUX"]),
    (
        "kshrink-spec --objects good.o --entry main --modules directory --emit-object out.o",
        BAD,
        &["--modules"],
    ),
    ("census core program", BAD, &["<CORE>"]),
    ("census diff text", BAD, &["<AFTER>"]),
    ("field-pack profile program", BAD, &["<CORES>"]),
    ("field-pack plan params.json --threshold 2", BAD, &["--threshold", "from 0 to 1"]),
    ("config-spec", BAD, &["VMLINUX"]),
    ("config-spec program --advise --quick", BAD, &["--advise", "--quick"]),
    ("config-spec program --advise --json", BAD, &["--advise", "--json"]),
    ("config-spec program --fragment params.json", BAD, &["--fragment", "VMLINUX"]),
    ("cmdline-spec", BAD, &["VMLINUX"]),
    ("cmdline-spec program --fix panic_timeout=5", BAD, &["--cmdline"]),
    ("cmdline-spec program --cmdline quiet --fix panic_timeout", BAD, &["VARIABLE=VALUE"]),
    ("cmdline-spec program --cmdline quiet --fix =5", BAD, &["VARIABLE=VALUE"]),
    ("cmdline-spec program --cmdline quiet --json", BAD, &["--json", "--cmdline"]),
    ("cmdline-spec program --on-mismatch panic", BAD, &["--cmdline"]),
    ("cmdline-spec program --cmdline quiet --on-mismatch stop", BAD, &["stop", "panic"]),
    ("cmdline-spec program --sort size", BAD, &["size", "keeps"]),
    ("kcfg program --dot --summary", BAD, &["--dot", "--summary"]),
    ("kelf weigh program", BAD, &["weigh"]),
    ("kelf size", BAD, &["<A>"]),
    ("syscall-scan", BAD, &["name a program"]),
    ("syscall-scan program --format yaml", BAD, &["yaml", "json"]),
];

/// Kernels with a build; made by [`inputs::kernels`].
const KERNELS: &[Row] = &[
    (
        "kshrink-spec build/stripped -o out",
        BAD,
        &["build/stripped:", "no symbol table", "before it was stripped"],
    ),
    ("kshrink-spec build/truncated -o out", BAD, &["build/truncated:", "damaged"]),
    ("kshrink-spec build/big-endian -o out", BAD, &["build/big-endian:", "big-endian;"]),
    ("kshrink-spec build/x86_64 -o out", BAD, &["build/x86_64:", "x86_64", "i386"]),
    ("kshrink-spec build/arch/x86/boot/bzImage -o out", BAD, &["bzImage:", "not an ELF file", "vmlinux"]),
    ("kshrink-spec no-archive/vmlinux -o out", BAD, &["no-archive/vmlinux.a:", "missing", "make vmlinux"]),
    ("kshrink-spec truncated-archive/vmlinux -o out", BAD, &["vmlinux.a:", "archive member"]),
    ("kshrink-spec lost-object/vmlinux -o out", FAILED, &["kernel/fork.o", "No such file"]),
    ("kshrink-spec truncated-object/vmlinux -o out", BAD, &["kernel/fork.o:", "damaged"]),
    ("kshrink-spec foreign-object/vmlinux -o out", BAD, &["kernel/fork.o", "x86_64", "i386"]),
    ("kshrink-spec no-script/vmlinux -o out", BAD, &["linker script", "make vmlinux"]),
    ("kshrink-spec build/vmlinux --explain absent", BAD, &["`absent`", "System.map"]),
    ("kshrink-spec build/vmlinux --retained absent", BAD, &["`absent`", "System.map"]),
    ("kshrink-spec build/vmlinux --retained start_kernel -o out", BAD, &["--retained", "--output"]),
    ("kshrink-spec no-record/vmlinux -p params.json -o out", BAD, &["init/.main.o.cmd", "make vmlinux"]),
    (
        "kshrink-spec build/vmlinux -p params-misspelt.json -o out",
        BAD,
        &["params-misspelt.json:", "unnamed", "line 2"],
    ),
    ("config-spec truncated-object/vmlinux --quick", BAD, &["kernel/fork.o:", "damaged"]),
    ("config-spec build/vmlinux --quick -p not-json.json", BAD, &["not-json.json:", "not JSON", "line 1"]),
    (
        "config-spec build/vmlinux --quick -p other-machine.json",
        BAD,
        &["other-machine.json:", "x86_64", "i386"],
    ),
    ("config-spec build/vmlinux --quick --explain NO_SUCH", BAD, &["--explain NO_SUCH", ".config"]),
    ("config-spec build/vmlinux --quick --hardware text", BAD, &["text:1:", "modalias"]),
    ("config-spec build/vmlinux --quick --hardware empty", BAD, &["empty:", "modalias"]),
    ("config-spec build/vmlinux --quick -o directory", FAILED, &["directory"]),
    ("config-spec build/vmlinux --quick -o /dev/full", FAILED, &["/dev/full", "No space left"]),
    ("cmdline-spec truncated-object/vmlinux", BAD, &["kernel/fork.o:", "damaged"]),
    ("cmdline-spec build/vmlinux -p not-json.json", BAD, &["not-json.json:", "not JSON", "line 1"]),
    ("cmdline-spec build/vmlinux -o directory", FAILED, &["directory"]),
    ("cmdline-spec build/vmlinux --cmdline quiet -o /dev/full", FAILED, &["/dev/full", "No space left"]),
    ("cmdline-spec build/vmlinux --cmdline quiet --fix absent=1", BAD, &["--fix absent", "System.map"]),
    (
        "cmdline-spec build/vmlinux --cmdline quiet --fix start_kernel=1",
        BAD,
        &["--fix start_kernel", "no such variable"],
    ),
    (
        "cmdline-spec build/vmlinux --cmdline quiet --fix panic_timeout=long",
        BAD,
        &["panic_timeout=long", "4 bytes"],
    ),
    (
        "cmdline-spec build/vmlinux --cmdline quiet --fix boot_command_line=1",
        BAD,
        &["2048 bytes", "1, 2, 4 or 8"],
    ),
    ("cmdline-spec build/vmlinux --cmdline quiet --force panic", BAD, &["--force panic", "--fix"]),
    (
        "cmdline-spec build/vmlinux --cmdline bootconfig --bootconfig text",
        BAD,
        &["text:", "reads no boot configuration", "CONFIG_BOOT_CONFIG"],
    ),
    ("cmdline-spec boot-config/vmlinux --cmdline bootconfig", BAD, &["--bootconfig FILE"]),
    (
        "cmdline-spec boot-config/vmlinux --cmdline bootconfig --bootconfig bad.bconf",
        BAD,
        &["bad.bconf:", "line 2"],
    ),
    (
        "cmdline-spec boot-config/vmlinux --cmdline bootconfig --bootconfig absent",
        FAILED,
        &["absent", "No such file"],
    ),
    ("kcfg build/stripped", BAD, &["build/stripped:", "no symbol table"]),
    ("kcfg build/truncated --summary", BAD, &["build/truncated:", "damaged"]),
    ("kcfg truncated-object/vmlinux", BAD, &["kernel/fork.o:", "damaged"]),
    ("kcfg build/vmlinux --function absent", BAD, &["absent"]),
    ("kcfg build/vmlinux -o directory", FAILED, &["directory"]),
    ("kelf size build/vmlinux build/stripped", BAD, &["build/stripped:", "stripped"]),
    ("kelf size build/truncated", BAD, &["build/truncated:", "damaged"]),
    ("kshrink-spec build/vmlinux -p not-json.json -o out", BAD, &["not-json.json:", "not JSON", "line 1"]),
    ("kshrink-spec build/vmlinux -p empty.json -o out", BAD, &["empty.json:", "empty", "kshrink/1"]),
    ("kshrink-spec build/vmlinux -p text -o out", BAD, &["text:", "not JSON", "line 1"]),
    ("kshrink-spec build/vmlinux -p no-schema.json -o out", BAD, &["no-schema.json:", "kshrink/1"]),
    ("kshrink-spec build/vmlinux -p other-schema.json -o out", BAD, &["other-schema.json:", "kshrink/999"]),
    (
        "kshrink-spec build/vmlinux -p other-machine.json -o out",
        BAD,
        &["other-machine.json", "x86_64", "i386"],
    ),
    ("kshrink-spec build/vmlinux -p misspelt.json -o out", BAD, &["misspelt.json:", "complete", "line 2"]),
    ("kshrink-spec build/vmlinux -p absent.json -o out", FAILED, &["absent.json", "No such file"]),
    ("kshrink-spec build/vmlinux -p directory -o out", FAILED, &["directory", "Is a directory"]),
    ("kshrink-spec build/vmlinux -o text", FAILED, &["text", "directory"]),
    ("kshrink-spec build/vmlinux -o text/out", FAILED, &["text", "directory"]),
    ("kshrink-spec build/vmlinux -o /proc/no", FAILED, &["/proc", "cannot write"]),
    ("kshrink-spec build/vmlinux -o build", BAD, &["build", "never written to", "outside"]),
    ("kshrink-spec build/vmlinux -o build/out/further", BAD, &["build/out", "never written to", "outside"]),
    ("kshrink-spec build/vmlinux -o link/out", BAD, &["link/out", "never written to", "outside"]),
    (
        "kshrink-spec victim/vmlinux --emit-object victim/out.o",
        BAD,
        &["victim/out.o", "never written to", "outside"],
    ),
    ("kshrink-spec victim/vmlinux --emit-object victim/vmlinux.a", BAD, &["vmlinux.a", "never written to"]),
    ("kshrink-spec build/vmlinux --emit-object directory", FAILED, &["directory"]),
    ("kshrink-spec build/vmlinux --modules absent -o out", FAILED, &["absent", "No such file"]),
    ("kshrink-spec build/vmlinux --modules text -o out", FAILED, &["text", "Not a directory"]),
    (
        "kshrink-spec build/vmlinux --modules modules/none -o out",
        BAD,
        &["modules/none:", "no module", "*.ko"],
    ),
    ("kshrink-spec build/vmlinux --modules modules/text -o out", BAD, &["text/a.ko:", "not an ELF file"]),
    ("kshrink-spec build/vmlinux --modules modules/truncated -o out", BAD, &["truncated/a.ko:", "damaged"]),
    ("kshrink-spec build/vmlinux --modules modules/object -o out", BAD, &["object/a.ko:", "not a module"]),
    (
        "kshrink-spec build/vmlinux --modules modules/x86_64 -o out",
        BAD,
        &["x86_64/a.ko:", "for x86_64", "i386"],
    ),
    ("kshrink-spec build/vmlinux --modules modules/gz -o out", BAD, &["gz/a.ko.gz:", "decompressed"]),
    ("kshrink-spec build/vmlinux --modules modules/xz -o out", BAD, &["xz/a.ko.xz:", "decompressed"]),
    ("kshrink-spec build/vmlinux --modules modules/zst -o out", BAD, &["zst/a.ko.zst:", "decompressed"]),
    (
        "kshrink-spec build/vmlinux --modules modules/good -o out",
        BAD,
        &["build/vmlinux:", "CONFIG_MODULES", "--modules"],
    ),
    (
        "kshrink-spec modular/vmlinux --modules modules/imports -o out",
        BAD,
        &["modules/imports/kernel/a.ko:", "`absent`", "built with this kernel"],
    ),
    (
        "kshrink-spec modular/vmlinux --modules modules/good --passes reach -o out",
        BAD,
        &["--modules", "exports", "--passes"],
    ),
    // A failing build, whose own last lines follow.
    ("kshrink-spec build/vmlinux --make LD=false -o out", FAILED, &["relinking", "failed"]),
];

/// Plans on standard input.
const PIPED: &[(Row, &str)] = &[
    (("syscall-scan program", BAD, &["standard input:", "not JSON", "line 2"]), "{\n"),
    (("syscall-scan program", BAD, &["standard input:", "kshrink/999"]), "{\"schema\": \"kshrink/999\"}\n"),
    (("kshrink-spec build/vmlinux -o out", BAD, &["standard input:", "not JSON"]), "kshrink\n"),
    (("kshrink-spec build/vmlinux -p - -o out", BAD, &["standard input:", "not JSON"]), "kshrink\n"),
];

/// Commands that print much to standard output.
const PRINTING: &[&str] = &[
    "kcfg build/vmlinux",
    "kcfg build/vmlinux --dot",
    "kcfg build/vmlinux --summary",
    "census core census/vmlinux census/core",
    "census core census/vmlinux census/core --json",
    "census diff census/before.json census/after.json",
    "kelf size build/vmlinux",
    "kelf size --json build/vmlinux",
    "syscall-scan program",
    "kshrink-spec build/vmlinux --explain start_kernel",
    "kshrink-spec build/vmlinux --retained start_kernel",
    "cmdline-spec build/vmlinux",
    "cmdline-spec build/vmlinux --json",
    "cmdline-spec build/vmlinux --cmdline quiet",
    "config-spec build/vmlinux --quick",
    "config-spec build/vmlinux --quick --json",
];

#[test]
fn objects_programs_and_usage() {
    recipe("install.sh", &["programs"]);
    let dir = directory();
    inputs::objects(dir.path());
    check_all(dir.path(), [OBJECTS, PROGRAMS, USAGE].concat().iter().map(|row| Case::new(row, "")));
}

#[test]
fn kernels_plans_and_outputs() {
    recipe("install.sh", &["programs"]);
    let dir = directory();
    inputs::objects(dir.path());
    inputs::kernels(dir.path());
    let piped = PIPED.iter().map(|(row, stdin)| Case::new(row, stdin));
    check_all(dir.path(), KERNELS.iter().map(|row| Case::new(row, "")).chain(piped));
}

#[test]
fn closed_pipes() {
    recipe("install.sh", &["programs"]);
    let dir = directory();
    inputs::objects(dir.path());
    inputs::census(dir.path());
    symlink(recipe("kernels/build.sh", &["web-i386"]), dir.path().join("build")).expect("a link");
    for line in PRINTING {
        check_closed_pipe(dir.path(), line);
    }
}

fn directory() -> TempDir {
    let dir = tempfile::Builder::new().prefix("kshrink-bad-input-").tempdir().expect("a temporary directory");
    // The directory for the commands' own temporary files, so that these are checked, too.
    fs::create_dir(dir.path().join("tmp")).expect("a directory");
    dir
}

struct Case {
    line: &'static str,
    status: i32,
    says: &'static [&'static str],
    stdin: &'static str,
}

impl Case {
    fn new(&(line, status, says): &Row, stdin: &'static str) -> Case {
        Case { line, status, says, stdin }
    }

    fn run(&self, dir: &Path) -> Outcome {
        let mut words = self.line.split(' ');
        let limited = format!("ulimit -c 0; ulimit -v {MEMORY_LIMIT_KIB}; exec \"$0\" \"$@\"");
        let run = Run::new("sh").args(["-c", &limited]).arg(command(words.next().unwrap_or_default()));
        let run = run.args(words).dir(dir).env("TMPDIR", dir.join("tmp"));
        run.stdin(self.stdin).limit(Duration::from_secs(120)).outcome()
    }

    /// Describes the problems of an outcome.
    fn check(&self, outcome: &Outcome) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut expect = |holds: bool, what: &str| {
            if !holds {
                wrong.push(what.to_owned());
            }
        };
        expect(outcome.status == Some(self.status), &format!("expected status {}", self.status));
        expect(outcome.stdout.is_empty(), "nothing should be on standard output");
        expect(!outcome.stderr.contains("panicked"), "it panicked");
        let command = self.line.split(' ').next().unwrap_or_default();
        let ours = format!("{command}: error: ");
        let lines: Vec<&str> = outcome.stderr.lines().collect();
        let errors = lines.iter().filter(|line| line.contains("error: ")).count();
        if lines.first().is_some_and(|line| line.starts_with("error: ")) {
            // The argument parser has its own style, with the usage in further lines.
            expect(outcome.status == Some(BAD), "a usage error has status 2");
        } else {
            expect(lines.first().is_some_and(|line| line.starts_with(&ours)), &format!("expected `{ours}…`"));
            // The output of a failed step of the kernel's build is quoted below, indented.
            let quoted = lines.iter().skip(1).all(|line| line.starts_with("  "));
            expect(quoted && (errors == 1 || lines.len() > 1), "expected one line");
        }
        for word in self.says {
            expect(outcome.stderr.contains(word), &format!("the error should contain `{word}`"));
        }
        // Output of make may name them: make runs in the copy of the build directory.
        for temporary in [".kshrink-", ".tmp"] {
            let named = lines.first().is_some_and(|line| line.contains(temporary));
            expect(!named, &format!("the error names a temporary file, {temporary}…"));
        }
        wrong
    }
}

/// Runs all cases, and fails with a list of all problems.
fn check_all(dir: &Path, cases: impl Iterator<Item = Case>) {
    let cases: Vec<Case> = cases.collect();
    let before = listing(dir);
    let mut failures: Vec<String> = parallel(cases.len(), |i| {
        let outcome = cases[i].run(dir);
        let wrong = cases[i].check(&outcome);
        (!wrong.is_empty()).then(|| format!("{}\n  {}\n  {outcome}", cases[i].line, wrong.join("\n  ")))
    })
    .into_iter()
    .flatten()
    .collect();
    failures.extend(changes(&before, &listing(dir)));
    assert!(
        failures.is_empty(),
        "{} failures of {} cases\n\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n\n")
    );
}

/// A closed pipe is not an error: nothing is printed, and the status is 0.
fn check_closed_pipe(dir: &Path, line: &str) {
    let (name, arguments) = line.split_once(' ').expect("arguments");
    // The reader has exited before the command starts.
    let script = format!("{{ sleep 0.2; \"$COMMAND\" {arguments}; echo \"status $?\" >&2; }} | true");
    let run = Run::new("sh").args(["-c", &script]).dir(dir).env("COMMAND", command(name));
    let outcome = run.limit(Duration::from_secs(120)).outcome();
    assert_eq!(outcome.stderr, "status 0\n", "{line} | true");
}

/// Size and time of modification in nanoseconds of every file below a directory.
fn listing(dir: &Path) -> BTreeMap<String, (u64, i64)> {
    let mut files = BTreeMap::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(&next).unwrap_or_else(|error| panic!("{}: {error}", next.display())) {
            let path = entry.expect("an entry").path();
            let metadata =
                path.symlink_metadata().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            if metadata.is_dir() {
                dirs.push(path);
            } else {
                let time = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
                files.insert(path.display().to_string(), (metadata.len(), time));
            }
        }
    }
    files
}

fn changes(before: &BTreeMap<String, (u64, i64)>, after: &BTreeMap<String, (u64, i64)>) -> Vec<String> {
    let appeared =
        after.keys().filter(|file| !before.contains_key(*file)).map(|file| format!("left behind: {file}"));
    let changed = before.iter().filter(|(file, was)| after.get(*file) != Some(was));
    appeared.chain(changed.map(|(file, _)| format!("changed or removed: {file}"))).collect()
}
