//! The table as human-readable text.

use std::fmt::Write as _;

use kcli::{Table, human};

use super::{Area, Bytes, PageReport, TouchedPage};

/// Number of functions to name for a page.
const MAX_NAMED: usize = 3;

impl PageReport {
    /// Returns the table, and the emptiest touched pages.
    pub fn text(&self, emptiest: usize) -> String {
        let areas = [&self.text, &self.init_text];
        let mut table = Table::new(["", "text", "init text"]);
        let mut row = |name: &str, figure: &dyn Fn(&Area) -> String| {
            table.row(std::iter::once(name.to_owned()).chain(areas.map(figure)));
        };
        row("pages", &|area| human(area.pages));
        row("touched", &|area| human(area.touched));
        row("minimum by function", &|area| human(area.minimum_by_function));
        row("minimum by byte", &|area| human(area.minimum_by_byte));
        row("touched / minimum by function", &|area| ratio(area.touched, area.minimum_by_function));
        row("touched / minimum by byte", &|area| ratio(area.touched, area.minimum_by_byte));
        row("", &|_| String::new());
        row("bytes", &|area| human(area.size));
        row("of functions that ran", &|area| human(area.function_bytes));
        row("that ran", &|area| human(area.bytes_run));
        row("", &|_| String::new());
        row("bytes on touched pages", &|area| human(area.touched * self.page_size));
        row("  ran", &|area| human(area.bytes.ran));
        row("  cold parts of functions that ran", &|area| human(area.bytes.cold_parts));
        row("  functions that did not run", &|area| human(area.bytes.cold_functions));
        row("  padding, code without a name", &|area| human(area.bytes.padding));
        row("  outside of the sections", &|area| human(area.bytes.outside));
        let mut text = table.to_string();
        for (name, area) in [("text", &self.text), ("init text", &self.init_text)] {
            let pages = area.emptiest(emptiest);
            if !pages.is_empty() {
                let _ = writeln!(
                    text,
                    "\nthe emptiest touched pages of the {name}, of {} bytes:",
                    self.page_size
                );
                let _ = writeln!(text, "page        ran  why");
            }
            for page in pages {
                let _ = writeln!(text, "{:#x}  {:>5}  {}", page.address, page.bytes.ran, page.why());
            }
        }
        text
    }
}

impl Area {
    /// Returns the touched pages with the fewest executed bytes.
    pub fn emptiest(&self, count: usize) -> Vec<&TouchedPage> {
        let mut pages: Vec<&TouchedPage> = self.touched_pages.iter().collect();
        pages.sort_by_key(|page| page.bytes.ran);
        pages.truncate(count);
        pages
    }
}

impl TouchedPage {
    /// Describes why the page is not full, largest share first, and what ran on it.
    pub fn why(&self) -> String {
        let Bytes { cold_parts, cold_functions, padding, outside, .. } = self.bytes;
        let mut shares = [
            (cold_functions, "of functions that did not run"),
            (cold_parts, "of functions that ran in part"),
            (padding, "of padding or nameless code"),
            (outside, "outside of the section"),
        ];
        shares.sort_by_key(|&(size, _)| std::cmp::Reverse(size));
        let shares = shares.iter().filter(|(size, _)| *size > 0);
        let mut why: Vec<String> = shares.map(|(size, what)| format!("{} {what}", human(*size))).collect();
        if !self.borders.is_empty() {
            why.push(format!("border to {}", self.borders.join(", ")));
        }
        if self.hand_written {
            why.push("hand-written code".into());
        }
        let mut functions = self.functions[..self.functions.len().min(MAX_NAMED)].join(", ");
        if self.functions.len() > MAX_NAMED {
            let _ = write!(functions, " and {} more", self.functions.len() - MAX_NAMED);
        }
        format!("{}; ran: {functions}", why.join(", "))
    }
}

fn ratio(figure: u64, of: u64) -> String {
    if of == 0 { "-".into() } else { format!("{:.3}", figure as f64 / of as f64) }
}
