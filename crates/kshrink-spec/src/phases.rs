//! Time and memory by phase.

use std::time::Instant;

use kcli::Progress;
use serde::Serialize;

/// One phase of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// Its name: `read`, `graph`, a pass, `emit`, `relink`.
    pub name: String,
    /// Wall-clock time in seconds, over all rounds.
    pub seconds: f64,
    /// Peak resident memory of the process at its end, in KiB; absent if `/proc` lacks it.
    pub peak_memory_kib: Option<u64>,
}

/// A stopwatch with a progress line.
pub struct Phases {
    progress: Progress,
    done: Vec<Phase>,
    current: String,
    since: Instant,
}

impl Phases {
    /// Starts with the phase `read`.
    pub fn start(progress: Progress) -> Phases {
        Phases { progress, done: Vec::new(), current: "read".to_owned(), since: Instant::now() }
    }

    /// Ends the current phase and begins another.
    pub fn next(&mut self, name: &str) {
        self.progress.message(name.to_owned());
        self.end();
        name.clone_into(&mut self.current);
        self.since = Instant::now();
    }

    /// Ends the last phase.
    pub fn finish(mut self) -> Vec<Phase> {
        self.end();
        self.done
    }

    fn end(&mut self) {
        let name = std::mem::take(&mut self.current);
        let seconds = self.since.elapsed().as_secs_f64();
        let peak_memory_kib = peak_memory_kib();
        match self.done.iter_mut().find(|phase| phase.name == name) {
            Some(phase) => {
                phase.seconds += seconds;
                phase.peak_memory_kib = peak_memory_kib;
            }
            None => self.done.push(Phase { name, seconds, peak_memory_kib }),
        }
    }
}

/// `VmHWM` of /proc/self/status.
fn peak_memory_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}
