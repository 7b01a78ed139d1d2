//! The table of options, for people and as JSON.

use std::io::Write;

use kcli::{Failure, Output, Table, human};
use serde::Serialize;
use serde_json::{Value, json};

use crate::gates::Gates;
use crate::survey::{Handled, Row};

/// Returns the rows with objects or parts of objects as a human-readable table. With `closures`, the column `with` has the number of other
/// options that go; without, Kconfig was not asked.
pub fn table(rows: &[Row], closures: bool) -> Table {
    let has_class = rows.iter().any(|row| row.class.is_ok());
    let has_after = rows.iter().any(|row| row.after.is_some());
    let mut heading = vec!["option"];
    heading.extend(has_class.then_some("class"));
    heading.extend(["text", "data", "init"]);
    heading.extend(has_after.then_some("after"));
    heading.extend(["with", "objects", "rebuilds", "prompt"]);
    let mut table = Table::new(heading);
    for row in rows.iter().filter(|row| row.brings_something()) {
        let mut cells = vec![row.name.clone()];
        if has_class {
            cells.push(row.class.as_ref().map_or("-".to_owned(), |class| class.to_string()));
        }
        cells.extend([row.keeps.text, row.keeps.data + row.keeps.bss, row.keeps.init].map(human));
        if has_after {
            cells.push(row.after.map_or("-".to_owned(), |after| human(after.resident())));
        }
        cells.push(if closures { row.with.len().to_string() } else { "?".to_owned() });
        cells.extend([row.objects.len().to_string(), row.rebuilds.len().to_string(), row.prompt.clone()]);
        table.row(cells);
    }
    table
}

/// Returns the rows as JSON.
pub fn document(rows: &[Row], gates: &Gates, kernel: &str, closures: bool) -> Value {
    let options: Vec<Value> = rows.iter().map(|row| option(row, gates, closures)).collect();
    json!({
        "kernel": kernel,
        "objects": { "placed": gates.placed(), "unplaced": gates.unplaced },
        "options": options,
    })
}

/// Writes a document.
///
/// # Errors
/// If `out` cannot be written to.
pub fn write(document: &impl Serialize, out: &mut Output) -> Result<(), Failure> {
    serde_json::to_writer_pretty(&mut *out, document)?;
    Ok(writeln!(out)?)
}

fn option(row: &Row, gates: &Gates, closures: bool) -> Value {
    let object = |object: &String| {
        let gates: Vec<String> = gates.of(object).iter().map(|gate| gate.condition.to_string()).collect();
        json!({ "object": object, "gates": gates })
    };
    let mut value = json!({
        "name": row.name,
        "prompt": row.prompt,
        "with": closures.then_some(&row.with),
        "instead": closures.then_some(&row.instead),
        "objects": row.objects.iter().map(object).collect::<Vec<_>>(),
        "members": row.members,
        "contents": row.contents,
        "keeps": row.keeps,
        "rebuilds": row.rebuilds.len(),
    });
    let mut set = |key: &str, field: Value| value[key] = field;
    if let Some(after) = row.after {
        set("after", json!(after));
    }
    if let Some(part) = &row.part {
        set("parts", json!(row.parts));
        part.unclear.iter().for_each(|unclear| set("unclear", json!(unclear)));
    }
    match &row.class {
        Ok(class) => {
            set("class", json!(class));
            set("ran", json!(row.ran.iter().map(|function| function.name.to_string()).collect::<Vec<_>>()));
        }
        Err(why) => set("no_class", json!(why)),
    }
    match row.handlers {
        Handled::No => {}
        Handled::Maybe => set("system_calls", json!("possible")),
        Handled::RuledOut => set("system_calls", json!("unused")),
    }
    if !row.parameters.is_empty() {
        set("parameters", json!(row.parameters));
    }
    if let Some(device) = &row.device {
        set("device", json!(device));
    }
    value
}
