//! How a plan is laid out: indented, and one line to each entry of its long lists, so that a person can
//! read it, and `diff` and `grep` can work on it.

use std::io::{self, Write};

use serde_json::ser::{Formatter, PrettyFormatter};

/// Values that are nested deeper than this go on one line. A system call is at depth 5: document,
/// section, ABI, list, entry.
const INDENTED_DEPTH: usize = 4;

/// [`PrettyFormatter`] down to a depth, one line from there.
#[derive(Default)]
pub(crate) struct Layout {
    pretty: PrettyFormatter<'static>,
    depth: usize,
}

impl Layout {
    fn is_indented(&self) -> bool {
        self.depth <= INDENTED_DEPTH
    }

    fn separator<W: ?Sized + Write>(writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }
}

impl Formatter for Layout {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        if self.is_indented() { self.pretty.begin_array(writer) } else { writer.write_all(b"[") }
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        let indented = self.is_indented();
        self.depth -= 1;
        if indented { self.pretty.end_array(writer) } else { writer.write_all(b"]") }
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if self.is_indented() {
            self.pretty.begin_array_value(writer, first)
        } else {
            Layout::separator(writer, first)
        }
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.is_indented() { self.pretty.end_array_value(writer) } else { Ok(()) }
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        if self.is_indented() { self.pretty.begin_object(writer) } else { writer.write_all(b"{") }
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        let indented = self.is_indented();
        self.depth -= 1;
        if indented { self.pretty.end_object(writer) } else { writer.write_all(b"}") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if self.is_indented() {
            self.pretty.begin_object_key(writer, first)
        } else {
            Layout::separator(writer, first)
        }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.is_indented() { self.pretty.end_object_value(writer) } else { Ok(()) }
    }
}
