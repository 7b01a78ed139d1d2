//! How documents are written: indented, and each entry of a list on one line, so that a person can read them, and
//! `diff` and `grep` can work on them.

use std::io::{self, Write};

use serde_json::ser::{Formatter, PrettyFormatter};

/// [`PrettyFormatter`], but an entry of a list goes on one line with all that is in it.
#[derive(Default)]
pub(crate) struct EntryPerLine {
    pretty: PrettyFormatter<'static>,
    /// For each value that encloses the current place, from the document inwards, whether it is a list.
    open: Vec<bool>,
}

impl EntryPerLine {
    /// Whether the innermost open value is, or lies within, an entry of a list.
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
