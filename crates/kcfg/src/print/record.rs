//! The objects of the JSON document, one struct each. `docs/kcfg-json.md` describes them field by field; keep it in
//! step with this file.
//!
//! A field that is `false`, zero by default, empty or unknown is omitted, to keep lines short. Arrays that nearly every
//! record fills (`blocks`, `edges`) are always present.

use serde::{Serialize, Serializer};

use crate::edges::EdgeKind;
use crate::graph::Opaque;
use crate::index::{FunctionId, NodeId, TableId};
use crate::special::{RootReason, TableKind};

/// A function with its blocks.
#[derive(Serialize)]
pub(super) struct FunctionRecord<'p> {
    pub id: FunctionId,
    pub name: &'p str,
    pub object: &'p str,
    pub section: &'p str,
    pub offset: u32,
    pub size: u32,
    #[serde(skip_serializing_if = "is_false")]
    pub global: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub symbols: Vec<SymbolRecord<'p>>,
    pub blocks: Vec<BlockRecord<'p>>,
}

/// A basic block.
#[derive(Serialize)]
pub(super) struct BlockRecord<'p> {
    pub id: NodeId,
    pub offset: u32,
    pub size: u32,
    pub instructions: usize,
    pub end: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<TableId>,
    #[serde(skip_serializing_if = "is_false")]
    pub fixed: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub root: &'p [RootReason],
    pub edges: Vec<EdgeRecord<'p>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<RefRecord<'p>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub text: Vec<String>,
}

/// A chunk of data or opaque code.
#[derive(Serialize)]
pub(super) struct ChunkRecord<'p> {
    pub id: NodeId,
    pub object: &'p str,
    pub section: &'p str,
    pub offset: u32,
    pub size: u32,
    #[serde(skip_serializing_if = "is_false")]
    pub code: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opaque: Option<&'static str>,
    pub life: LifeRecord,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<To<'p>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub root: &'p [RootReason],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub string: Option<&'p str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub symbols: Vec<SymbolRecord<'p>>,
    pub edges: Vec<EdgeRecord<'p>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<RefRecord<'p>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub text: Vec<String>,
}

/// The reason why a chunk is alive: `"referenced"`, or the kind of its weak table.
pub(super) enum LifeRecord {
    Referenced,
    Site(TableKind),
}

impl Serialize for LifeRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            LifeRecord::Referenced => serializer.serialize_str("referenced"),
            LifeRecord::Site(kind) => kind.serialize(serializer),
        }
    }
}

/// An edge.
#[derive(Serialize)]
pub(super) struct EdgeRecord<'p> {
    pub kind: EdgeKind,
    pub to: To<'p>,
}

/// The target of an edge or a reference: a node's number, `"unknown"`, or `{"symbol": name}`.
#[derive(Clone, Copy)]
pub(super) enum To<'p> {
    Node(NodeId),
    Unknown,
    Outside(&'p str),
}

impl Serialize for To<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// An object, because a symbol in a string could have the name `unknown`.
        #[derive(Serialize)]
        struct Outside<'p> {
            symbol: &'p str,
        }
        match *self {
            To::Node(node) => node.serialize(serializer),
            To::Unknown => serializer.serialize_str("unknown"),
            To::Outside(symbol) => Outside { symbol }.serialize(serializer),
        }
    }
}

/// A relocation, or a distance that the assembler had already filled in.
#[derive(Serialize)]
pub(super) struct RefRecord<'p> {
    pub at: u32,
    #[serde(rename = "type")]
    pub r_type: String,
    pub to: To<'p>,
    #[serde(skip_serializing_if = "is_zero")]
    pub offset: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symbol: Option<&'p str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<TableId>,
}

/// A symbol that the graph defines.
#[derive(Serialize)]
pub(super) struct SymbolRecord<'p> {
    pub name: &'p str,
    pub offset: u32,
    pub size: u64,
    pub kind: &'static str,
    pub binding: &'static str,
}

/// A resolved jump table.
#[derive(Serialize)]
pub(super) struct TableRecord<'p> {
    pub id: TableId,
    pub chunk: NodeId,
    pub offset: u32,
    pub slots: Vec<To<'p>>,
}

/// A referenced symbol that no object of the graph defines.
#[derive(Serialize)]
pub(super) struct OutsideRecord<'p> {
    pub name: &'p str,
    pub place: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    #[serde(skip_serializing_if = "is_false")]
    pub weak: bool,
}

/// Opaque code.
#[derive(Serialize)]
pub(super) struct OpaqueRecord<'p> {
    pub node: NodeId,
    pub name: &'p str,
    pub reason: &'static str,
}

impl<'p> OpaqueRecord<'p> {
    pub fn of(opaque: &'p Opaque) -> OpaqueRecord<'p> {
        OpaqueRecord { node: opaque.node, name: &opaque.name, reason: opaque.reason }
    }
}

/// A node by name.
#[derive(Serialize)]
pub(super) struct NodeRecord {
    pub id: NodeId,
    pub name: String,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}
