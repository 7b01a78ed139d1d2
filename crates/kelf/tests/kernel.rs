//! Reads every object of a real kernel. Needs a build directory with `CONFIG_VMLINUX_MAP=y`:
//!
//! ```sh
//! KSHRINK_TEST_KERNEL=/path/to/build cargo test -p kelf --test kernel -- --ignored
//! ```

mod common;

use std::fs;
use std::path::PathBuf;

use common::{Dir, normalised};
use kelf::{InputFiles, KernelBuild, Object, Program};

fn build() -> KernelBuild {
    let dir = std::env::var_os("KSHRINK_TEST_KERNEL")
        .expect("set KSHRINK_TEST_KERNEL to the build directory of a kernel");
    KernelBuild::find(&PathBuf::from(dir).join("vmlinux")).unwrap()
}

#[test]
#[ignore = "needs a kernel build"]
fn the_program_is_the_one_that_ld_linked() {
    let build = build();
    let inputs = InputFiles::of_kernel(&build).unwrap();
    let program = Program::link(&inputs).unwrap();
    let map = fs::read_to_string(build.dir.join("vmlinux.map"))
        .expect("build the kernel with CONFIG_VMLINUX_MAP=y");
    let (_, list) = map.split_once("Archive member included to satisfy reference").unwrap();
    let members = list.split("\n\n").nth(1).unwrap().lines();
    let members = members.filter(|line| !line.starts_with(' '));
    let members: Vec<&str> = members.map(|line| line.split_whitespace().next().unwrap()).collect();
    let objects: Vec<&str> = program.objects.iter().map(|o| &o.object.name[..]).collect();
    assert_eq!(objects, members);
}

#[test]
#[ignore = "needs a kernel build"]
fn every_object_comes_back() {
    let inputs = InputFiles::of_kernel(&build()).unwrap();
    let program = Program::link(&inputs).unwrap();
    for input in &program.objects {
        let written = input.object.write().unwrap();
        let again = Object::read(&input.object.name, &written).unwrap();
        let same = normalised(&again) == normalised(&input.object);
        assert!(same, "{}", input.object.name);
    }
}

#[test]
#[ignore = "needs a kernel build"]
fn ld_sees_no_difference() {
    let build = build();
    let inputs = InputFiles::of_kernel(&build).unwrap();
    let program = Program::link(&inputs).unwrap();
    let dir = Dir::new();
    let names = program.objects.iter().map(|input| &input.object.name[..]);
    let arguments: Vec<&str> = ["-r"].into_iter().chain(names.clone()).collect();
    let link = |output| dir.ld(build.machine, &[&arguments[..], &["-o", output]].concat());
    // Use the same names both times, because `ld` writes and prints them.
    for name in names {
        dir.write(name, fs::read(build.dir.join(name)).unwrap());
    }
    let expected = link("before.o");
    for input in &program.objects {
        dir.write(&input.object.name, input.object.write().unwrap());
    }
    assert_eq!(link("after.o"), expected, "what ld prints");
    let before = fs::read(dir.path("before.o")).unwrap();
    assert!(before == fs::read(dir.path("after.o")).unwrap(), "what ld writes");
}
