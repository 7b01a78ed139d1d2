//! The output of the command `kcfg`, run as a process.

#[path = "common/command.rs"]
mod command;
mod common;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use command::{array, kcfg, on_objects, program};
use common::Dir;
use kshrink_tests::process::{fails, parse, run};
use serde_json::Value;

/// Returns every block and chunk of a document.
fn nodes(document: &Value) -> Vec<&Value> {
    let blocks = array(document, "functions").iter().flat_map(|function| array(function, "blocks"));
    blocks.chain(array(document, "chunks")).collect()
}

#[test]
fn the_document_is_whole() {
    let dir = Dir::new();
    let document = parse(&on_objects(&program(&dir), &[]));
    assert_eq!(document["schema"], "kshrink-cfg/1");
    assert_eq!(document["machine"], "i386");
    assert_eq!(array(&document, "input").len(), 5);
    let nodes = nodes(&document);
    let mut ids: Vec<u64> = nodes.iter().map(|node| node["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..nodes.len() as u64).collect::<Vec<_>>());
    // Every edge leads to something in the document.
    let outside: Vec<&Value> = array(&document, "outside").iter().map(|symbol| &symbol["name"]).collect();
    for node in &nodes {
        let refs = node["refs"].as_array().into_iter().flatten().map(|reference| &reference["to"]);
        for to in array(node, "edges").iter().map(|edge| &edge["to"]).chain(refs) {
            let known = match to {
                Value::Number(id) => (id.as_u64().unwrap() as usize) < nodes.len(),
                Value::String(text) => text == "unknown",
                other => outside.contains(&&other["symbol"]),
            };
            assert!(known, "{to} in {node}");
        }
    }
    assert_eq!(array(&document, "elsewhere").len(), 0);
}

#[test]
fn blocks_cover_their_function() {
    let dir = Dir::new();
    let document = parse(&on_objects(&program(&dir), &[]));
    for function in array(&document, "functions") {
        let mut at = function["offset"].as_u64().unwrap();
        let end = at + function["size"].as_u64().unwrap();
        for block in array(function, "blocks") {
            assert_eq!(block["offset"].as_u64(), Some(at), "{function}");
            at += block["size"].as_u64().unwrap();
        }
        assert_eq!(at, end, "{function}");
    }
}

#[test]
fn every_function_and_chunk_is_a_line() {
    let dir = Dir::new();
    let output = on_objects(&program(&dir), &[]);
    let document = parse(&output);
    let records: Vec<Value> = output
        .lines()
        .filter_map(|line| line.strip_suffix(',').or(Some(line)).filter(|line| line.starts_with("{\"id\"")))
        .map(parse)
        .collect();
    for name in ["functions", "chunks", "tables"] {
        for record in array(&document, name) {
            assert!(records.contains(record), "{record}");
        }
    }
}

#[test]
fn jump_tables_are_in_the_document() {
    let dir = Dir::new();
    let document = parse(&on_objects(&[dir.compile("switch.c", &["-Os"])], &[]));
    let function = array(&document, "functions").iter().find(|function| function["name"] == "compared");
    let blocks = array(function.unwrap(), "blocks");
    let jump = blocks.iter().find(|block| block["end"] == "switch").unwrap();
    let table = array(&document, "tables").iter().find(|table| table["id"] == jump["table"]).unwrap();
    let targets: Vec<&Value> =
        array(jump, "edges").iter().filter(|edge| edge["kind"] == "switch").map(|edge| &edge["to"]).collect();
    assert_eq!(array(table, "slots").iter().collect::<Vec<_>>(), targets);
    assert_eq!(targets.len(), 7);
}

#[test]
fn one_function() {
    let dir = Dir::new();
    let objects = program(&dir);
    let whole = parse(&on_objects(&objects, &[]));
    let one = parse(&on_objects(&objects, &["--function", "fibonacci"]));
    assert_eq!(one["selected"], serde_json::json!(["fibonacci"]));
    let find = |document: &Value| {
        array(document, "functions").iter().find(|f| f["name"] == "fibonacci").cloned().unwrap()
    };
    assert_eq!(array(&one, "functions"), [find(&whole)]);
    assert_eq!(array(&one, "chunks").len(), 0);
    // Nodes outside the selection have names.
    let elsewhere = |document: &Value| -> Vec<String> {
        array(document, "elsewhere").iter().map(|node| node["name"].as_str().unwrap().to_owned()).collect()
    };
    let one = parse(&on_objects(&objects, &["--function", "mostly", "--function", "only_weak"]));
    assert_eq!(array(&one, "functions").len(), 2);
    assert_eq!(elsewhere(&one), ["rare"]);
}

#[test]
fn all_functions_of_a_name() {
    let dir = Dir::new();
    let source = dir.path("local.c");
    fs::write(
        &source,
        "static __attribute__((noinline)) int same(int x) { return x + N; }\n\
        int NAME(int x) { return same(x) * 2; }\n",
    )
    .unwrap();
    let objects: Vec<PathBuf> = (1..3)
        .map(|n| {
            let object = dir.path(&format!("local{n}.o"));
            let defines = [format!("-DN={n}"), format!("-DNAME=outer{n}")];
            let mut gcc = Command::new("gcc");
            run(gcc
                .args(["-m32", "-Os", "-fno-pic", "-fno-inline", "-fno-ipa-cp", "-c"])
                .args(defines)
                .arg(&source)
                .arg("-o")
                .arg(&object));
            object
        })
        .collect();
    let document = parse(&on_objects(&objects, &["--function", "same"]));
    assert_eq!(array(&document, "functions").len(), 2);
}

#[test]
fn opaque_code_can_be_selected() {
    let dir = Dir::new();
    let objects = [dir.compile("opaque.c", &["-Os"]), dir.compile("hand_written.S", &[])];
    let document = parse(&on_objects(&objects, &["--function", "by_hand", "--instructions"]));
    let [chunk] = array(&document, "chunks") else { panic!("one chunk") };
    assert_eq!((&chunk["opaque"], &chunk["code"]), (&"hand-written".into(), &true.into()));
    let text: Vec<&str> = array(chunk, "text").iter().filter_map(Value::as_str).collect();
    assert_eq!(text[0], "test %eax,%eax");
    assert!(text.contains(&"jmp outside"), "{text:?}");
    assert_eq!(array(&document, "opaque").len(), 1);
}

#[test]
fn instructions_name_what_they_refer_to() {
    let dir = Dir::new();
    let objects = [dir.compile("calls.c", &["-Os"])];
    let plain = parse(&on_objects(&objects, &["--function", "loops"]));
    let text = parse(&on_objects(&objects, &["--function", "loops", "--instructions"]));
    let mut lines = Vec::new();
    for block in array(&array(&text, "functions")[0], "blocks") {
        assert_eq!(block["instructions"].as_u64(), Some(array(block, "text").len() as u64), "{block}");
        lines.extend(array(block, "text").iter().filter_map(Value::as_str));
    }
    assert!(lines.contains(&"call outside"), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("jmp loops+0x")), "{lines:?}");
    assert!(array(&array(&plain, "functions")[0], "blocks").iter().all(|block| block.get("text").is_none()));
    let spins = parse(&on_objects(&objects, &["--function", "spins", "--instructions"]));
    assert!(spins.to_string().contains("# flag"), "{spins}");
}

/// These tests show the parts of a listing; `crates/kopt/tests/filetests` shows the results of passes.
#[test]
fn listings_show_what_is_where() {
    let dir = Dir::new();
    let object = dir.compile("example.S", &[]);
    let path = object.display().to_string();
    let text = format!(
        "\
.text ({path})
hello:  # global
    push %ebx
    mov %eax,%ebx
hello+0x3:
    dec %ebx
    js hello+0x12
hello+0x6:
    mov $0,%eax  # \"hello\"
    call puts
hello+0x10:
    jmp hello+0x3
hello+0x12:
    xor %eax,%eax
    pop %ebx
    ret
"
    );
    let strings = format!(".rodata.str1.1 ({path})\n\"hello\":  # 6 bytes\n");
    let objects = [object];
    assert_eq!(on_objects(&objects, &["--listing"]), format!("{text}{strings}"));
    assert_eq!(on_objects(&objects, &["--listing", "--function", "hello"]), text);
}

#[test]
fn drawings_are_graphviz() {
    let dir = Dir::new();
    let objects = program(&dir);
    for arguments in [&["--dot", "--function", "choose", "--function", "fibonacci"][..], &["--dot"]] {
        let drawing = on_objects(&objects, arguments);
        assert!(drawing.starts_with("digraph kcfg {\n") && drawing.ends_with("}\n"));
        assert_eq!(drawing.matches('{').count(), drawing.matches('}').count());
        for kind in ["label = \"choose\"", "shape = box", "call fibonacci\\l", " -> "] {
            assert!(drawing.contains(kind), "{kind} in {drawing}");
        }
        graphviz(&drawing);
    }
}

/// Passes a drawing to Graphviz, if it is installed.
fn graphviz(drawing: &str) {
    let dot = Command::new("dot").args(["-Tcanon", "-o", "/dev/null"]).stdin(Stdio::piped()).spawn();
    let Ok(mut dot) = dot else { return };
    dot.stdin.take().unwrap().write_all(drawing.as_bytes()).unwrap();
    assert!(dot.wait().unwrap().success());
}

#[test]
fn names_do_not_break_drawings_or_documents() {
    let dir = Dir::new();
    let (object, renamed) = (dir.compile("calls.c", &["-Os"]), dir.path("renamed.o"));
    let name = "a\"b\\c d\u{e9}";
    let mut objcopy = Command::new("objcopy");
    run(objcopy.args(["--redefine-sym", &format!("spins={name}")]).arg(object).arg(&renamed));
    let objects = [renamed];
    let document = parse(&on_objects(&objects, &[]));
    assert!(array(&document, "functions").iter().any(|function| function["name"] == name));
    let document = parse(&on_objects(&objects, &["--function", name]));
    assert_eq!(array(&document, "functions").len(), 1);
    let drawing = on_objects(&objects, &["--dot", "--function", name]);
    assert!(drawing.contains("label = \"a\\\"b\\\\c d\u{e9}\""), "{drawing}");
    graphviz(&drawing);
}

#[test]
fn counts_agree_with_the_document() {
    let dir = Dir::new();
    let objects = program(&dir);
    let document = parse(&on_objects(&objects, &[]));
    let summary = parse(&on_objects(&objects, &["--summary", "--json"]));
    assert_eq!(summary["schema"], "kshrink-cfg-summary/1");
    let blocks: Vec<&Value> =
        array(&document, "functions").iter().flat_map(|function| array(function, "blocks")).collect();
    let instructions: u64 = blocks.iter().map(|block| block["instructions"].as_u64().unwrap()).sum();
    let edges = nodes(&document).iter().map(|node| array(node, "edges").len() as u64).sum::<u64>();
    let by_kind: u64 = summary["edges"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(summary["functions"], array(&document, "functions").len());
    assert_eq!(summary["blocks"], blocks.len());
    assert_eq!(summary["instructions"], instructions);
    assert_eq!(by_kind, edges);
    assert_eq!(summary["jump_tables"], array(&document, "tables").len());

    let table = on_objects(&objects, &["--summary"]);
    for (label, count) in [("functions", &summary["functions"]), ("call", &summary["edges"]["call"])] {
        let line = table.lines().find(|line| line.trim_start().starts_with(&format!("{label} "))).unwrap();
        assert_eq!(line.split_whitespace().last().unwrap().replace(',', ""), count.to_string());
    }
}

#[test]
fn opaque_code_is_listed_with_its_reason() {
    let dir = Dir::new();
    let objects = [dir.compile("opaque.c", &["-Os"]), dir.compile("hand_written.S", &[])];
    let list = on_objects(&objects, &["--opaque"]);
    assert!(list.lines().any(|line| line == "no_code\tbytes that are not instructions"), "{list}");
    assert!(list.lines().any(|line| line.ends_with("hand_written.S.o:.text\thand-written")), "{list}");
    let document = parse(&on_objects(&objects, &["--opaque", "--json"]));
    assert_eq!(document["schema"], "kshrink-cfg/1");
    assert_eq!(array(&document, "opaque").len(), list.lines().count());
    assert!(document.get("functions").is_none());
}

#[test]
fn entries_are_roots() {
    let dir = Dir::new();
    let objects = program(&dir);
    let document = parse(&on_objects(&objects, &["--entry", "_start", "--function", "_start"]));
    let entry = &array(&array(&document, "functions")[0], "blocks")[0];
    assert_eq!(entry["root"], serde_json::json!(["entry"]));
    fails(kcfg().args(["--entry", "start", "--objects"]).args(&objects), 2, "entry point start");
}

/// The example in the documentation is the command's output.
#[test]
fn the_documentation_tells_the_truth() {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/kcfg-json.md")).unwrap();
    let example = text.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    let mut documented = parse(example);
    let dir = Dir::new();
    let object = dir.compile("example.S", &[]);
    let printed = on_objects(&[object], &[]);
    let mut printed = parse(&printed);
    for document in [&mut documented, &mut printed] {
        document["input"] = Value::Null;
        drop_paths(document);
    }
    assert_eq!(documented, printed);
}

/// Removes the parts that depend on the place of the test.
fn drop_paths(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("object");
            fields.values_mut().for_each(drop_paths);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_paths),
        _ => {}
    }
}
