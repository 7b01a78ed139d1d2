//! Figures in columns. The first column is a label, aligned left; the others are figures, aligned right, so that digits
//! of equal weight line up.
//!
//! This takes sixty lines and no table crate, because there is only one layout. It has no rules and no wrapping, so
//! `awk` and `column` can read it.

use std::fmt;

/// A text table. Rows may have different lengths; a missing cell is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with this heading.
    pub fn new<T: Into<String>>(heading: impl IntoIterator<Item = T>) -> Table {
        let mut table = Table::default();
        table.row(heading);
        table
    }

    /// Adds a row.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                if column == 0 {
                    line.push_str(&format!("{cell:<width$}"));
                } else {
                    line.push_str(&format!("  {cell:>width$}"));
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Formats a figure with thousands separators: `2,283,469`.
pub fn human(figure: u64) -> String {
    let digits = figure.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats the change from `before` to `now`, such as `-12.3 %`; as `-` if only `before` is 0.
pub fn percent(before: u64, now: u64) -> String {
    if before == 0 {
        return if now == 0 { "0.0 %".into() } else { "-".into() };
    }
    let change = (now as f64 - before as f64) / before as f64 * 100.0;
    // Round to the printed precision first, to avoid `-0.0 %`.
    let tenths = (change * 10.0).round() / 10.0;
    if tenths == 0.0 { "0.0 %".into() } else { format!("{tenths:+.1} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (123_456, "123,456"), (2_283_469, "2,283,469")];
        for (figure, text) in cases {
            assert_eq!(human(figure), text);
        }
        assert_eq!(human(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn percentages() {
        assert_eq!(percent(1000, 877), "-12.3 %");
        assert_eq!(percent(1000, 1100), "+10.0 %");
        assert_eq!(percent(100_000, 99_999), "0.0 %");
        assert_eq!(percent(0, 0), "0.0 %");
        assert_eq!(percent(0, 1), "-");
    }

    #[test]
    fn columns() {
        let mut table = Table::new(["", "before", "after"]);
        table.row(["text", "1,000", "9"]);
        table.row(["init data", "5"]);
        let expected = "           before  after\ntext        1,000      9\ninit data       5\n";
        assert_eq!(table.to_string(), expected);
    }
}
