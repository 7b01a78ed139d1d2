/*!
The graph as one JSON document, written record by record.

The whole document is valid JSON, and at the same time a text of lines: each function and each chunk is one line. A
reader may parse it, stream it (`jq --stream`), or search for lines (`grep '"name":"vfs_read"'`, cut off the comma, and
parse that). The writer holds one record at a time.

`docs/kcfg-json.md` describes every field.
*/

use std::io::{self, Write};

use kelf::Machine;
use serde::Serialize;

use super::record::OpaqueRecord;
use super::scope::Scope;
use super::{Printer, Selection};
use crate::graph::Graph;
use crate::summary::Summary;

/// The version of the document. Fields and values may be added under the same number; existing ones keep their meaning.
pub const SCHEMA: &str = "kshrink-cfg/1";

/// The version of the counts.
pub const SUMMARY_SCHEMA: &str = "kshrink-cfg-summary/1";

/// The header of a document, which describes its origin.
pub struct Header<'h> {
    /// The machine of the code.
    pub machine: Machine,
    /// The files from the command line.
    pub input: &'h [String],
    /// The names of the selected functions, if not everything is printed.
    pub selected: &'h [String],
    /// Whether to print the text of instructions.
    pub instructions: bool,
}

/// Writes the document.
///
/// # Errors
/// Errors of `out`.
pub fn write(
    printer: &Printer<'_>,
    header: &Header<'_>,
    selection: &Selection,
    out: &mut impl Write,
) -> io::Result<()> {
    let (graph, text) = (printer.graph, header.instructions);
    let scope = Scope::of(printer, selection);
    write_preamble(header, out)?;
    write_array(out, "functions", scope.functions.iter().map(|&id| printer.function_record(id, text)))?;
    write_array(out, "chunks", scope.chunks.iter().filter_map(|&id| printer.chunk_record(id, text)))?;
    write_array(out, "tables", scope.tables.iter().map(|&id| printer.table_record(id)))?;
    let opaque = graph.opaque_functions();
    let opaque = opaque.iter().filter(|opaque| scope.has(opaque.node));
    write_array(out, "opaque", opaque.map(OpaqueRecord::of))?;
    write_array(out, "outside", scope.outside.iter().filter_map(|&id| printer.outside_record(id)))?;
    write_array(out, "elsewhere", scope.elsewhere.iter().map(|&node| printer.node_record(node)))?;
    out.write_all(b"}\n")
}

/// Writes a document with only the list of opaque code.
///
/// # Errors
/// Errors of `out`.
pub fn write_opaque(graph: &Graph, header: &Header<'_>, out: &mut impl Write) -> io::Result<()> {
    write_preamble(header, out)?;
    write_array(out, "opaque", graph.opaque_functions().iter().map(OpaqueRecord::of))?;
    out.write_all(b"}\n")
}

/// Writes counts.
///
/// # Errors
/// Errors of `out`.
pub fn write_summary(summary: &Summary, header: &Header<'_>, out: &mut impl Write) -> io::Result<()> {
    #[derive(Serialize)]
    struct Document<'d> {
        schema: &'static str,
        machine: Machine,
        input: &'d [String],
        #[serde(flatten)]
        summary: &'d Summary,
    }
    let Header { machine, input, .. } = *header;
    serde_json::to_writer_pretty(&mut *out, &Document { schema: SUMMARY_SCHEMA, machine, input, summary })?;
    out.write_all(b"\n")
}

/// Writes the beginning of a document, up to its first array.
fn write_preamble(header: &Header<'_>, out: &mut impl Write) -> io::Result<()> {
    #[derive(Serialize)]
    struct Preamble<'h> {
        schema: &'static str,
        machine: Machine,
        input: &'h [String],
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        selected: &'h [String],
    }
    let Header { machine, input, selected, .. } = *header;
    let preamble = serde_json::to_string(&Preamble { schema: SCHEMA, machine, input, selected })?;
    // The arrays follow, in the same object.
    out.write_all(preamble.strip_suffix('}').unwrap_or(&preamble).as_bytes())
}

/// Writes `,"name":[…]`, with a line for each item.
fn write_array<T: Serialize>(
    out: &mut impl Write,
    name: &str,
    items: impl Iterator<Item = T>,
) -> io::Result<()> {
    write!(out, ",\n\"{name}\":")?;
    write_items(out, items)
}

fn write_items<T: Serialize>(out: &mut impl Write, items: impl Iterator<Item = T>) -> io::Result<()> {
    let mut before = "[\n";
    for item in items {
        out.write_all(before.as_bytes())?;
        serde_json::to_writer(&mut *out, &item)?;
        before = ",\n";
    }
    out.write_all(if before == ",\n" { b"\n]" } else { b"[]" })
}
