//! Running the tools that tests need and the commands under test, and checking their output.

use std::process::{Command, Output};

use serde_json::Value;

/// Returns Debian's packages with a tool and its libraries.
fn package(tool: &str) -> &str {
    match tool {
        "gcc" => "gcc and libc6-dev",
        "i686-linux-gnu-gcc" => "gcc-i686-linux-gnu and libc6-dev-i386-cross",
        "arm-linux-gnueabihf-gcc" => "gcc-arm-linux-gnueabihf and libc6-dev-armhf-cross",
        "aarch64-linux-gnu-gcc" => "gcc-aarch64-linux-gnu and libc6-dev-arm64-cross",
        "i686-linux-gnu-ld" => "binutils-i686-linux-gnu",
        "arm-linux-gnueabihf-ld" => "binutils-arm-linux-gnueabihf",
        "aarch64-linux-gnu-ld" => "binutils-aarch64-linux-gnu",
        "qemu-arm" | "qemu-aarch64" => "qemu-user",
        _ => "binutils",
    }
}

/// Panics, with the package to install, if a tool is missing. For tools that `timeout` or another program starts, whose
/// own error would be lost.
#[track_caller]
pub fn require(tool: &str) {
    if let Err(error) = Command::new(tool).arg("--version").output() {
        panic!("{tool}: {error}; install {}", package(tool));
    }
}

/// Runs a tool that has to succeed, and returns its output.
#[track_caller]
pub fn run(tool: &mut Command) -> String {
    let name = tool.get_program().to_string_lossy().into_owned();
    let output = tool.output().unwrap_or_else(|error| panic!("{name}: {error}; install {}", package(&name)));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{tool:?}, which is in {}, failed:\n{text}", package(&name));
    text
}

/// Runs a command; returns its status, output and messages.
#[track_caller]
pub fn finish(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

/// Runs a command that has to fail with this status and one line that contains these words.
#[track_caller]
pub fn fails(command: &mut Command, status: i32, words: &str) {
    let (found, output, messages) = finish(command);
    assert_eq!((found, output.as_str()), (status, ""), "{messages}");
    let name = std::path::Path::new(command.get_program()).file_name().unwrap().to_string_lossy();
    assert!(messages.starts_with(&format!("{name}: error: ")) && messages.contains(words), "{messages}");
    assert_eq!(messages.lines().count(), 1, "{messages}");
}

/// Parses JSON.
#[track_caller]
pub fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}
