//! The scanner's plan for one program.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use kshrink_tests::Run;
use serde_json::Value;

/// Python with all of its modules takes the longest, half a minute on a quiet machine.
const SCAN_LIMIT: Duration = Duration::from_secs(600);

/// The system calls of one ABI of a plan.
pub struct Plan {
    /// The numbers of calls that the program's own code can make.
    pub own: BTreeSet<u32>,
    /// These, and the calls that the kernel and its vDSO make on the program's behalf.
    pub all: BTreeSet<u32>,
    /// Number of unresolved call sites.
    pub unresolved: usize,
    /// Duration of the scan.
    pub time: Duration,
}

impl Plan {
    /// Scans a program of a root.
    ///
    /// # Errors
    /// The error of the command.
    pub fn of(root: &Path, program: &Path, options: &[&str], abi: &str) -> Result<Plan, String> {
        let run = Run::kshrink("syscall-scan").arg("--root").arg(root).args(options).arg(program);
        let outcome = run.limit(SCAN_LIMIT).result()?;
        let plan: Value = serde_json::from_slice(&outcome.stdout)
            .map_err(|error| format!("{}: no plan: {error}", outcome.line))?;
        let section = &plan["syscalls"][abi];
        let calls = section["calls"].as_array().ok_or(format!("{}: no section {abi}", outcome.line))?;
        let number = |call: &Value| call["nr"].as_u64().and_then(|number| u32::try_from(number).ok());
        let own = calls.iter().filter(|call| call["via"].is_null()).filter_map(number);
        let unresolved = section["unresolved"].as_array().map_or(0, Vec::len);
        if section["complete"] != Value::Bool(unresolved == 0) {
            return Err(format!(
                "{}: complete is {}, with {unresolved} unresolved",
                outcome.line, section["complete"]
            ));
        }
        Ok(Plan {
            own: own.collect(),
            all: calls.iter().filter_map(number).collect(),
            unresolved,
            time: outcome.time,
        })
    }
}
