//! Running the decoders in C and in Rust on packed files.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use frozen_pack::codec::code::InstructionSet;
use frozen_pack::codec::format::Packed;
use frozen_pack::codec::pack::Piece;
use kshrink_tests::process::run;

use crate::common::runtime;

/// Compiles the decoder and a driver, with sanitizers that stop it at the first error.
pub fn decoder(directory: &Path) -> PathBuf {
    let program = directory.join("pages");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]);
    gcc.args(["-fsanitize=address,undefined", "-fno-sanitize-recover"]);
    run(gcc.args(["decode.c", "open.c", "test/pages.c"].map(runtime)).arg("-o").arg(&program));
    program
}

/// Compiles the decoder for a kernel of 32-bit ARM, in Thumb-2 code, with a script that runs it.
pub fn decoder_for_arm(directory: &Path) -> PathBuf {
    let (program, script) = (directory.join("pages-arm"), directory.join("pages-arm.sh"));
    let mut gcc = Command::new("arm-linux-gnueabihf-gcc");
    gcc.args(["-std=c11", "-O2", "-mthumb", "-static", "-Wall", "-Wextra", "-Werror", "-DFROZEN_ARM=1"]);
    run(gcc.args(["decode.c", "open.c", "test/pages.c"].map(runtime)).arg("-o").arg(&program));
    std::fs::write(&script, format!("#!/bin/sh\nexec qemu-arm {} \"$@\"\n", program.display())).unwrap();
    run(Command::new("chmod").arg("+x").arg(&script));
    script
}

/// The result of a decoder for a packed file: its pages, `None` for a damaged page; `None` if the whole file is
/// damaged.
pub type Decoded = Option<Vec<Option<Vec<u8>>>>;

/// Decodes packed files with the decoder in C.
pub fn decode_in_c(decoder: &Path, files: &[Vec<u8>]) -> Vec<Decoded> {
    let mut child = Command::new(decoder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            for file in files {
                // A sanitizer that stops the decoder closes the pipe; its message is in the output.
                let size = (file.len() as u32).to_le_bytes();
                if input.write_all(&size).and_then(|()| input.write_all(file)).is_err() {
                    break;
                }
            }
        });
        child.wait_with_output().unwrap()
    });
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut rest = &output.stdout[..];
    let decoded = files.iter().map(|file| read_decoded(&mut rest, file)).collect();
    assert!(rest.is_empty());
    decoded
}

fn read_decoded(rest: &mut &[u8], file: &[u8]) -> Decoded {
    let number = |rest: &mut &[u8]| {
        let (number, behind) = rest.split_first_chunk().expect("4 bytes of output");
        *rest = behind;
        i32::from_le_bytes(*number)
    };
    if number(rest) != 0 {
        return None;
    }
    let pages = u32::from_le_bytes(file[20..24].try_into().unwrap());
    let page = |_| {
        let size = usize::try_from(number(rest)).ok()?;
        let (page, behind) = rest.split_at(size);
        *rest = behind;
        Some(page.to_vec())
    };
    Some((0..pages).map(page).collect())
}

/// Decodes the pages of a packed file that run elsewhere with the decoder in C: each at the first address, a page after
/// the previous one.
pub fn decode_in_c_at(decoder: &Path, file: &[u8], runs_at: u32) -> Decoded {
    let mut child = Command::new(decoder)
        .args(["0", "0xffffffff", "1", &runs_at.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            input.write_all(&(file.len() as u32).to_le_bytes()).unwrap();
            input.write_all(file).unwrap();
        });
        child.wait_with_output().unwrap()
    });
    assert!(output.status.success());
    read_decoded(&mut &output.stdout[..], file)
}

/// Decodes a packed file with the decoder in Rust.
pub fn decode_in_rust(file: &[u8]) -> Decoded {
    let packed = Packed::read(file).ok()?;
    Some((0..packed.index.len() as u32).map(|page| packed.page(page).ok()).collect())
}

/// Returns a piece to pack, as data or as code.
pub fn piece(address: u32, bytes: &[u8], code: Option<InstructionSet>) -> Piece {
    Piece { name: "test".into(), address, bytes: bytes.to_vec(), code, leaving: None }
}

/// Pseudo-random numbers that are the same in each run (xorshift, Marsaglia 2003).
pub struct Random(pub u64);

impl Random {
    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns the next number below a limit.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Returns this many bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}
