//! Events on standard error, for people who change kshrink.

use std::env;
use std::io;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::fmt::time::uptime;

/// The variable that selects events.
const VARIABLE: &str = "KSHRINK_LOG";

/// The levels, for the message.
const LEVELS: &str = "error, warn, info, debug, trace";

/// Prints the events that `KSHRINK_LOG` selects, and the duration of each step. Prints nothing by default.
///
/// # Errors
/// A message if the variable is not a filter ([`EnvFilter`]).
pub(crate) fn start() -> Result<(), String> {
    let Some(value) = env::var_os(VARIABLE).filter(|value| !value.is_empty()) else { return Ok(()) };
    // The parser takes a word that is no level for the name of a crate.
    let is_known = |item: &str| item.contains('=') || item.parse::<LevelFilter>().is_ok();
    let value_text = value.to_str().filter(|value| value.split(',').all(|item| is_known(item.trim())));
    let filter = value_text.and_then(|value| EnvFilter::builder().parse(value).ok());
    let filter = filter.ok_or_else(|| {
        let value = value.to_string_lossy();
        format!("{VARIABLE}={value} selects no events; expected levels ({LEVELS}) or CRATE=LEVEL, with commas between")
    })?;
    let events = tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false).with_timer(uptime());
    events.with_env_filter(filter).with_span_events(FmtSpan::CLOSE).init();
    Ok(())
}
