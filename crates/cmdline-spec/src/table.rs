//! The table of all boot parameters of a kernel.

use std::cmp::Reverse;

use clap::ValueEnum;
use kcfg::graph::Graph;
use kcfg::parameters::{self, Parameter, ParameterKind, Place};
use kcli::{Table, human};
use kopt::retained::{self, Retained};
use serde::Serialize;

use crate::changes::{Change, Changes};
use crate::types::SimpleType;

/// A parameter.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Its name in the table of the kernel.
    pub name: String,
    /// The macro that makes its entry: `early`, `setup`, `core`, `module`.
    pub table: &'static str,
    /// The handler of an `early` or `setup` parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// The variables that it sets, as far as they are known.
    pub variables: Vec<String>,
    /// The type of the variable, by the operations of a `core` or `module` parameter.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The value of the variable in the image, if the type is simple.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The mode of its file in sysfs, in octal; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Other ways to change the variables.
    pub changes: Vec<Change>,
    /// The bytes that it retains.
    pub keeps: Retained,
}

/// The column to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Column {
    /// The name.
    Name,
    /// The kind of its entry, then the name.
    Table,
    /// The type, then the name.
    Type,
    /// The retained bytes, most first.
    Keeps,
}

/// Returns the parameters of a graph, in the order of the kernel's tables.
pub fn rows(graph: &Graph) -> Vec<Row> {
    let all = parameters::all(graph);
    let sets: Vec<_> = all.iter().map(|parameter| vec![parameter.node]).collect();
    let keeps = retained::of_sets(graph, &sets);
    let changes = Changes::of(graph);
    all.iter().zip(keeps).map(|(parameter, keeps)| row(graph, &changes, parameter, keeps)).collect()
}

fn row(graph: &Graph, changes: &Changes<'_>, parameter: &Parameter, keeps: Retained) -> Row {
    let mut row = Row {
        name: parameter.name.clone(),
        table: parameter.table(),
        handler: None,
        variables: Vec::new(),
        kind: None,
        value: None,
        mode: None,
        changes: changes.of_parameter(parameter),
        keeps,
    };
    match &parameter.kind {
        ParameterKind::Handler { handler, .. } => {
            row.handler = handler.as_ref().map(|place| place.name.clone());
            let variables = changes.written_by(parameter);
            row.variables =
                variables.iter().map(|&(node, offset)| changes.names().name(graph, node, offset)).collect();
        }
        ParameterKind::Variable { operations, variable, mode, .. } => {
            let operations = operations.as_ref().map_or("", |place| &place.name);
            let simple = SimpleType::of_operations(operations);
            row.kind = Some(type_name(operations));
            row.variables.extend(variable.as_ref().map(|place| place.name.clone()));
            row.value = simple.zip(variable.as_ref()).and_then(|(simple, place)| value(graph, simple, place));
            row.mode = (*mode != 0).then(|| format!("{mode:04o}"));
        }
    }
    row
}

/// Returns the type of operations: `int` for `param_ops_int`, `array` for `param_array_ops`, otherwise their own name.
fn type_name(operations: &str) -> String {
    match operations {
        "param_array_ops" => "array".to_owned(),
        _ => operations.strip_prefix("param_ops_").unwrap_or(operations).to_owned(),
    }
}

/// Returns the value of a variable in the image.
fn value(graph: &Graph, simple: SimpleType, place: &Place) -> Option<String> {
    let (node, offset) = place.node?;
    let size = usize::from(simple.size(graph.machine().word_size()));
    let bytes = match graph.bytes_of(node) {
        [] => vec![0; size],
        all => all.get(offset as usize..)?.get(..size)?.to_vec(),
    };
    Some(simple.present(&bytes))
}

/// Sorts rows.
pub fn sort(rows: &mut [Row], by: Column) {
    match by {
        Column::Name => rows.sort_by(|a, b| a.name.cmp(&b.name)),
        Column::Table => rows.sort_by(|a, b| (a.table, &a.name).cmp(&(b.table, &b.name))),
        Column::Type => rows.sort_by(|a, b| (&a.kind, &a.name).cmp(&(&b.kind, &b.name))),
        Column::Keeps => rows.sort_by_key(|row| (Reverse(row.keeps), row.name.clone())),
    }
}

/// Returns the rows as a human-readable table.
pub fn print(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "parameter",
        "table",
        "keeps",
        "init",
        "type",
        "value",
        "changed by",
        "handler or variable",
    ]);
    for row in rows {
        let sets = match (&row.handler, row.variables.as_slice()) {
            (Some(handler), _) => handler.clone(),
            (None, variables) => variables.join(", "),
        };
        let mut ways: Vec<&str> = row.changes.iter().map(Change::way).collect();
        ways.dedup();
        table.row([
            row.name.clone(),
            row.table.to_owned(),
            human(row.keeps.bytes),
            human(row.keeps.init),
            row.kind.clone().unwrap_or_default(),
            row.value.clone().unwrap_or_default(),
            if ways.is_empty() && !row.variables.is_empty() { "no".to_owned() } else { ways.join(", ") },
            sets,
        ]);
    }
    table
}
