//! Arbitrary bytes as a program: the scan ends, with a result or with an error.
//!
//! docs/scan.md has the command, the initial programs, and the last run.

#![no_main]

use syscall_scan::image::{Object, Process};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(object) = Object::read(bytes) {
        let _ = syscall_scan::scan(&Process::single(object, "fuzz"));
    }
});
