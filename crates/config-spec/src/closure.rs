//! The options that change when one option is set to `n`.
//!
//! The results of Kconfig are kept in a cache.

use std::collections::BTreeMap;
use std::sync::Mutex;

use kcli::{Failure, Progress};
use rayon::prelude::*;

use crate::cache::Cache;
use crate::conf::Conf;
use crate::config::Closure;

/// Number of results after which the cache is written.
const SAVE_EVERY: usize = 16;

/// The closures of options, by name. `None`: the option cannot be set to `n`.
pub type Closures = BTreeMap<String, Option<Closure>>;

/// Returns the closures of `options`, from the cache or from Kconfig. `kconfig` is the text of all Kconfig files.
///
/// # Errors
/// Bad input if Kconfig rejects its files, or if it changes the configuration as it is.
pub fn find(conf: &Conf<'_>, kconfig: &str, options: &[&str]) -> Result<Closures, Failure> {
    let cache = cache_of(conf, kconfig);
    let mut known: Closures = cache.as_ref().and_then(Cache::load).unwrap_or_default();
    let missing: Vec<&str> = options.iter().copied().filter(|option| !known.contains_key(*option)).collect();
    if !missing.is_empty() {
        let progress = Progress::bar(missing.len() as u64, "asking Kconfig what goes with each option");
        conf.check()?;
        let shared = Mutex::new((std::mem::take(&mut known), 0));
        missing.par_iter().try_for_each(|option| {
            let closure = conf.closure(option)?;
            progress.advance(1);
            if let Ok(mut shared) = shared.lock() {
                let (known, count) = &mut *shared;
                known.insert((*option).to_owned(), closure);
                *count += 1;
                if *count % SAVE_EVERY == 0 || *count == missing.len() {
                    cache.iter().for_each(|cache| cache.save(known));
                }
            }
            Ok::<_, Failure>(())
        })?;
        known = shared.into_inner().map_err(|_| Failure::job("a thread that ran conf failed"))?.0;
    }
    known.retain(|option, _| options.contains(&option.as_str()));
    Ok(known)
}

/// Returns the cache for a configuration; `None` if there is no directory for caches.
fn cache_of(conf: &Conf<'_>, kconfig: &str) -> Option<Cache> {
    let variables: String =
        conf.environment().iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    Cache::file(
        "closures",
        &[conf.text().as_bytes(), conf.program(), kconfig.as_bytes(), variables.as_bytes()],
    )
}
