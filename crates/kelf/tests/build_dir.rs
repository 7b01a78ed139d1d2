//! Finding the inputs of a kernel build, in a small build directory made for the test.

mod common;

use std::fs;
use std::path::PathBuf;

use common::Dir;
use kelf::{Definition, Error, InputFiles, KernelBuild, Machine, Program};

const MACHINE: Machine = Machine::I386;

/// Creates a build directory like Kbuild's: objects, thin archives and recorded commands.
fn build(config: &str) -> Dir {
    let dir = Dir::new();
    let sources = [
        ("link/main.c", "init/main.o"),
        ("link/strong.c", "kernel/strong.o"),
        ("link/comdat.S", "arch/x86/entry.o"),
        ("link/needed.c", "lib/needed.o"),
        ("link/further.c", "lib/further.o"),
        ("link/unneeded.c", "lib/unneeded.o"),
        ("link/back.c", "arch/x86/lib/back.o"),
        ("link/timestamp.c", "init/version-timestamp.o"),
    ];
    for (source, object) in sources {
        dir.compile_with(MACHINE, source, object, &["-DNAME=entry"]);
        let (directory, name) = object.rsplit_once('/').unwrap();
        let record = format!(
            "savedcmd_{object} := gcc -c -o {object}\n\nsource_{object} := /src/{source}\n\n\
             deps_{object} := \\\n  /src/include/a.h \\\n"
        );
        dir.write(&format!("{directory}/.{name}.cmd"), record);
    }
    dir.ar(&["cDPrST", "vmlinux.a", "kernel/strong.o", "init/main.o", "arch/x86/entry.o"]);
    // Like Kbuild, bring head objects to the front.
    dir.ar(&["mPiT", "kernel/strong.o", "vmlinux.a", "init/main.o"]);
    dir.ar(&["cDPrsT", "lib/lib.a", "lib/needed.o", "lib/further.o", "lib/unneeded.o"]);
    dir.ar(&["cDPrsT", "arch/x86/lib/lib.a", "arch/x86/lib/back.o"]);
    dir.write("include/config/auto.conf", config);
    dir.write("arch/x86/kernel/vmlinux.lds", "SECTIONS { }");
    dir.write(
        ".vmlinux.o.cmd",
        "savedcmd_vmlinux.o := ld -m elf_i386 -r -o vmlinux.o --whole-archive vmlinux.a \
         --no-whole-archive --start-group lib/lib.a arch/x86/lib/lib.a --end-group ; true\n",
    );
    let group = "--whole-archive vmlinux.a init/version-timestamp.o --no-whole-archive \
                 --start-group lib/lib.a arch/x86/lib/lib.a --end-group \
                 --defsym script_symbol=0 -e main -o vmlinux";
    let arguments: Vec<&str> = group.split_whitespace().collect();
    dir.ld(MACHINE, &arguments);
    dir
}

fn find(dir: &Dir) -> Result<KernelBuild, Error> {
    KernelBuild::find(&dir.path("vmlinux"))
}

/// Returns the error for a directory, which must be bad input.
fn refused(dir: &Dir) -> String {
    let error = find(dir).unwrap_err();
    assert!(error.is_bad_input(), "{error}");
    error.to_string()
}

fn relative(build: &KernelBuild, paths: &[PathBuf]) -> Vec<String> {
    let relative = |path: &PathBuf| path.strip_prefix(&build.dir).unwrap().display().to_string();
    paths.iter().map(relative).collect()
}

#[test]
fn inputs_are_found_and_linked() {
    let dir = build("CONFIG_HZ=100\nCONFIG_NAME=\"small\"\n# CONFIG_SMP is not set\n");
    let build = find(&dir).unwrap();
    assert_eq!(build.machine, MACHINE);
    assert_eq!(relative(&build, &build.libraries), ["lib/lib.a", "arch/x86/lib/lib.a"]);
    assert_eq!(relative(&build, &build.beside), ["init/version-timestamp.o"]);
    assert!(build.archive.ends_with("vmlinux.a") && !build.links_vmlinux_o());
    assert!(build.linker_script.ends_with("arch/x86/kernel/vmlinux.lds"));
    assert_eq!(build.config("CONFIG_HZ"), Some("100"));
    assert_eq!(build.config("CONFIG_NAME"), Some("small"));
    assert!(!build.is_enabled("CONFIG_SMP"));

    let inputs = InputFiles::of_kernel(&build).unwrap();
    assert!(inputs.total_size() > 0);
    let program = Program::link(&inputs).unwrap();
    let objects: Vec<_> = program.objects.iter().map(|input| &input.object.name[..]).collect();
    let expected = [
        "init/main.o",
        "kernel/strong.o",
        "arch/x86/entry.o",
        "lib/needed.o",
        "lib/further.o",
        "arch/x86/lib/back.o",
    ];
    assert_eq!(objects, expected);
    let [main, _, entry, needed, ..] = &program.objects[..] else { panic!() };
    assert_eq!(main.source.as_deref(), Some("/src/link/main.c"));
    assert!(!main.hand_written && entry.hand_written);
    assert!(needed.from_library && !entry.from_library);
    assert_eq!(program.beside.len(), 1);
    let banner = program.global(program.find("banner").unwrap());
    assert_eq!(banner.definition, Definition::Beside);
    assert!(program.global(program.find("strong").unwrap()).used_beside);
    assert!(!program.global(program.find("main").unwrap()).used_beside);
}

#[test]
fn configuration_decides_what_is_linked() {
    let dir = build("CONFIG_MODULES=y\n");
    let message = refused(&dir);
    assert!(message.contains(".vmlinux.export.o: is missing"), "{message}");
    fs::copy(dir.path("init/version-timestamp.o"), dir.path(".vmlinux.export.o")).unwrap();
    let build = find(&dir).unwrap();
    let beside = [".vmlinux.export.o", "init/version-timestamp.o"];
    assert_eq!(relative(&build, &build.beside), beside);

    // objtool reads vmlinux.o, but its parts are the same objects.
    dir.write("include/config/auto.conf", "CONFIG_X86_KERNEL_IBT=y\n");
    let build = find(&dir).unwrap();
    assert!(build.delays_objtool() && build.check_links_objects().is_ok());
    assert_eq!(relative(&build, &build.libraries), ["lib/lib.a", "arch/x86/lib/lib.a"]);

    dir.write("include/config/auto.conf", "CONFIG_LTO_CLANG=y\n");
    assert!(refused(&dir).contains("vmlinux.o: is missing"));
    fs::copy(dir.path("init/main.o"), dir.path("vmlinux.o")).unwrap();
    let build = find(&dir).unwrap();
    assert!(build.links_vmlinux_o() && build.libraries.is_empty());
    let inputs = InputFiles::of_kernel(&build).unwrap();
    assert_eq!(Program::link(&inputs).unwrap().objects[0].object.name, "vmlinux.o");
}

#[test]
fn incomplete_directories_say_what_is_missing() {
    let files = [
        ("include/config/auto.conf", "not a kernel build directory"),
        ("vmlinux.a", "vmlinux.a: is missing from the kernel build directory"),
        ("lib/lib.a", "lib/lib.a: is missing"),
        (".vmlinux.o.cmd", ".vmlinux.o.cmd: is missing"),
        ("init/version-timestamp.o", "version-timestamp.o: is missing"),
        ("arch/x86/kernel/vmlinux.lds", "holds 0 linker scripts"),
    ];
    let dir = build("");
    for (file, expected) in files {
        let content = fs::read(dir.path(file)).unwrap();
        fs::remove_file(dir.path(file)).unwrap();
        let message = refused(&dir);
        assert!(message.contains(expected), "{file}: {message}");
        dir.write(file, content);
    }
    dir.write(".vmlinux.o.cmd", "savedcmd_vmlinux.o := ld -r\n");
    assert!(refused(&dir).contains("records no link command"));
}

#[test]
fn missing_objects_are_read_errors() {
    let dir = build("");
    let build = find(&dir).unwrap();
    fs::remove_file(dir.path("kernel/strong.o")).unwrap();
    let error = InputFiles::of_kernel(&build).unwrap_err();
    assert!(!error.is_bad_input());
    assert!(error.to_string().ends_with("kernel/strong.o"), "{error}");
}

#[test]
fn other_files_than_vmlinux() {
    let dir = build("");
    let vmlinux = fs::read(dir.path("vmlinux")).unwrap();
    dir.write("vmlinux", "#!/bin/sh\n");
    assert!(refused(&dir).contains("this is not an ELF file; expected vmlinux, the linked kernel"));
    dir.write("vmlinux", &vmlinux[..vmlinux.len() / 2]);
    assert!(refused(&dir).contains("the file is damaged or not finished"));
    fs::copy(dir.path("init/main.o"), dir.path("vmlinux")).unwrap();
    assert!(refused(&dir).contains("a relocatable object; expected vmlinux"));
    dir.write("vmlinux", &vmlinux);
    dir.ld(MACHINE, &["-s", "init/main.o", "--unresolved-symbols=ignore-all", "-o", "vmlinux"]);
    let message = refused(&dir);
    assert!(message.contains("has no symbol table; give the vmlinux"), "{message}");
    fs::remove_file(dir.path("vmlinux")).unwrap();
    let error = find(&dir).unwrap_err();
    assert!(matches!(error, Error::Read { .. }) && !error.is_bad_input());
}
