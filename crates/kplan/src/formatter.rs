//! The layout of documents: indented JSON with each list entry on one line, readable for people, `diff` and `grep`.

use std::io::{self, Write};

use serde_json::ser::{Formatter, PrettyFormatter};

/// A [`PrettyFormatter`] that puts an entry of a list, with all that it contains, on one line.
#[derive(Default)]
pub(crate) struct EntryPerLine {
    pretty: PrettyFormatter<'static>,
    /// Whether each enclosing value is a list, from the document inwards.
    open: Vec<bool>,
}

impl EntryPerLine {
    /// Returns whether the innermost open value is, or is inside, an entry of a list.
    fn is_entry(&self) -> bool {
        self.open[..self.open.len() - 1].contains(&true)
    }

    fn separator<W: ?Sized + Write>(writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }
}

impl Formatter for EntryPerLine {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open.push(true);
        if self.is_entry() { writer.write_all(b"[") } else { self.pretty.begin_array(writer) }
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        let is_entry = self.is_entry();
        self.open.pop();
        if is_entry { writer.write_all(b"]") } else { self.pretty.end_array(writer) }
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if self.is_entry() {
            EntryPerLine::separator(writer, first)
        } else {
            self.pretty.begin_array_value(writer, first)
        }
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.is_entry() { Ok(()) } else { self.pretty.end_array_value(writer) }
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open.push(false);
        if self.is_entry() { writer.write_all(b"{") } else { self.pretty.begin_object(writer) }
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        let is_entry = self.is_entry();
        self.open.pop();
        if is_entry { writer.write_all(b"}") } else { self.pretty.end_object(writer) }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if self.is_entry() {
            EntryPerLine::separator(writer, first)
        } else {
            self.pretty.begin_object_key(writer, first)
        }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.is_entry() { Ok(()) } else { self.pretty.end_object_value(writer) }
    }
}
