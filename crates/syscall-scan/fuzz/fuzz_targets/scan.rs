//! Any bytes as a program: the scan ends, with a result or with an error.
//!
//! `seeds.sh` beside this folder makes small programs to begin with; docs/scan.md has the command and the
//! last run.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = syscall_scan::scan(bytes);
});
