//! Progress on standard error for a person who waits; nothing for a pipe, a log or a test.
//!
//! `indicatif` already draws only on a terminal. The wrapper gives every command the same line and removes it at the
//! end, before the report.

use std::borrow::Cow;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Interval between two steps of the spinner.
const TICK: Duration = Duration::from_millis(100);

/// A spinner or a bar, removed from the terminal when dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Starts a spinner, for work of unknown length.
    pub fn spinner(message: impl Into<Cow<'static, str>>) -> Progress {
        let progress = Progress::with(None, "{spinner} {msg} ({elapsed})", message);
        // Start the thread that turns the spinner only if the spinner is visible.
        if !progress.bar.is_hidden() {
            progress.bar.enable_steady_tick(TICK);
        }
        progress
    }

    /// Shows nothing, for a part of work that has a progress line of its own.
    pub fn hidden() -> Progress {
        Progress { bar: ProgressBar::hidden() }
    }

    /// Starts a bar of `length` steps.
    pub fn bar(length: u64, message: impl Into<Cow<'static, str>>) -> Progress {
        Progress::with(Some(length), "{msg} [{bar:30}] {human_pos}/{human_len}", message)
    }

    fn with(length: Option<u64>, template: &str, message: impl Into<Cow<'static, str>>) -> Progress {
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(message);
        Progress { bar }
    }

    /// Sets the text that describes the current step.
    pub fn message(&self, message: impl Into<Cow<'static, str>>) {
        self.bar.set_message(message);
    }

    /// Advances a bar by `steps`.
    pub fn advance(&self, steps: u64) {
        self.bar.inc(steps);
    }

    /// Prints a line above the progress line, on a terminal; does nothing elsewhere.
    pub fn note(&self, line: impl AsRef<str>) {
        self.bar.println(line);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_well_formed() {
        for template in ["{spinner} {msg} ({elapsed})", "{msg} [{bar:30}] {human_pos}/{human_len}"] {
            ProgressStyle::with_template(template).unwrap();
        }
    }

    #[test]
    fn steps_are_counted() {
        let progress = Progress::bar(3, "objects");
        progress.advance(2);
        assert_eq!(progress.bar.position(), 2);
        progress.message("sections");
    }
}
