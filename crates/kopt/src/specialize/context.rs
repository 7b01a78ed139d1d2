//! The context of a path: its objects and facts, as what is known at its entry.

use std::collections::{BTreeMap, BTreeSet};

use kcfg::graph::{Graph, SymbolPlace, Target};
use kcfg::index::NodeId;
use kisa::specializing::Bits;
use kisa::{Reg, Symbol};
use kplan::{Path, PointerPlace};

use super::explore::Explorer;
use super::state::{REGISTERS, State, WORD, Word};
use super::value::{Base, NameId, Value};

/// The context of a path.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The objects.
    pub objects: Vec<Object>,
    /// The facts.
    pub facts: Vec<Fact>,
    /// The unknown values that are addresses of something.
    pub exists: BTreeSet<NameId>,
    /// The unknown values that are not addresses in frames of the path, because they are older.
    pub outside: BTreeSet<NameId>,
}

/// An object.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its address.
    pub base: Base,
    /// The place of the pointer to it.
    pub from: From,
    /// Whether the pointer has to be compared with 0.
    pub may_be_null: bool,
}

/// The place of a pointer to an object.
#[derive(Clone, Copy, Debug)]
pub enum From {
    /// A register at the entry.
    Register(Reg),
    /// A word of an object, given by its number.
    Member(usize, i32),
    /// It is the address of a symbol.
    Symbol,
}

/// A fact: a word of an object, or a pointer to another object.
#[derive(Clone, Copy, Debug)]
pub struct Fact {
    /// The object.
    pub object: usize,
    /// Offset in bytes of the word.
    pub offset: i32,
    /// The content; a name for a pointer to another object.
    pub value: Value,
    /// Whether it stays true by assumption.
    pub stable: bool,
}

impl Context {
    /// Adds a fact about some bytes; facts about the same word become one.
    fn add(&mut self, fact: Fact) {
        let same = |other: &&mut Fact| (other.object, other.offset) == (fact.object, fact.offset);
        match (self.facts.iter_mut().find(same), fact.value) {
            (Some(Fact { value: Value::Bits(known), stable, .. }), Value::Bits(more)) => {
                *stable &= fact.stable;
                *known = Bits::of(known.known | more.known, known.value | more.value);
            }
            _ => self.facts.push(fact),
        }
    }
}

/// Returns what is known at the entry of a path, and puts the objects and facts into the explorer's context.
///
/// # Errors
/// The name of a symbol that does not exist, or is not unique.
pub fn enter(explorer: &mut Explorer<'_>, path: &Path) -> Result<State, String> {
    let graph = explorer.original.graph;
    let convention = graph.isa().convention();
    let names: Vec<NameId> = (0..REGISTERS as u8).map(|reg| explorer.entry_name(Reg(reg))).collect();
    let mut registers = [Value::Any; REGISTERS];
    for (register, name) in registers.iter_mut().zip(&names) {
        *register = Value::Name(*name, 0);
    }
    registers[usize::from(convention.stack_pointer.0)] = Value::Stack(0);
    let mut context = Context::default();
    context.outside.extend(&names);
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    for (number, object) in path.objects.iter().enumerate() {
        let (from, base) = match &object.from {
            PointerPlace::Argument(argument) => {
                let reg = convention.arguments[usize::from(*argument)];
                (From::Register(reg), Base::Name(names[usize::from(reg.0)]))
            }
            PointerPlace::Member { object: outer, offset } => {
                let name = explorer.object_name(number);
                context.outside.insert(name);
                (From::Member(numbers[outer.as_str()], *offset as i32), Base::Name(name))
            }
            PointerPlace::Variable(name) => {
                let symbol = symbol(graph, name)?;
                (From::Symbol, Base::Symbol(symbol))
            }
        };
        if let Base::Name(name) = base {
            context.exists.insert(name);
        }
        let may_be_null = object.exists.is_none() && !matches!(from, From::Symbol);
        if let From::Member(outer, offset) = from {
            let stable = object.stable.is_some();
            context.facts.push(Fact { object: outer, offset, value: Value::at((base, 0)), stable });
        }
        context.objects.push(Object { base, from, may_be_null });
        numbers.insert(&object.name, number);
    }
    for fact in &path.facts {
        let word = fact.offset as i32 & !(WORD - 1);
        let value = match &fact.symbol {
            Some(name) => {
                let (symbol, inside) = place(graph, name)?;
                Value::Symbol(symbol, inside)
            }
            None => {
                let shift = 8 * (fact.offset % WORD as u32);
                Value::Bits(Bits::of(fact.known() << shift, fact.value << shift))
            }
        };
        let object = numbers[fact.object.as_str()];
        context.add(Fact { object, offset: word, value, stable: fact.stable.is_some() });
    }
    let words = context.facts.iter().enumerate().map(|(number, fact)| {
        let base = context.objects[fact.object].base;
        ((base, fact.offset), Word { value: fact.value, stable: fact.stable, fact: Some(number) })
    });
    let state = State {
        registers,
        temporary: Value::Any,
        flags: Bits::UNKNOWN,
        stack: BTreeMap::new(),
        exposed: BTreeSet::new(),
        pushed: BTreeSet::new(),
        nonzero: BTreeSet::new(),
        words: words.collect(),
        compared: None,
    };
    explorer.context = context;
    Ok(state)
}

/// Returns the code and data with this name, as long as they are live.
pub fn named<'a>(graph: &'a Graph, name: &'a str) -> impl Iterator<Item = NodeId> + 'a {
    graph.symbols().iter().filter_map(move |symbol| match symbol.place {
        SymbolPlace::Node(node, 0) if symbol.name == name && graph.node(node).live => Some(node),
        _ => None,
    })
}

/// Returns the symbol that stands for the address of a function or variable in instructions.
fn symbol(graph: &Graph, name: &str) -> Result<Symbol, String> {
    match place(graph, name)? {
        (symbol, 0) => Ok(symbol),
        _ => Err(format!("{name} is not apart from other variables")),
    }
}

/// Returns the symbol that stands for the code or data with a function or variable in instructions, and the offset in bytes
/// of the function or variable there.
fn place(graph: &Graph, name: &str) -> Result<(Symbol, i64), String> {
    let mut found = graph.symbols().iter().filter_map(|symbol| match symbol.place {
        SymbolPlace::Node(node, inside) if symbol.name == name && graph.node(node).live => {
            Some((node, inside))
        }
        _ => None,
    });
    let place = found.next().ok_or_else(|| format!("there is no function or variable {name}"))?;
    if found.any(|other| other != place) {
        return Err(format!("there are several functions or variables {name}"));
    }
    Ok((graph.symbol_for(place.0), place.1.into()))
}

/// Returns the target of a reference to an address, and the number added to it.
pub fn target(graph: &Graph, value: Value) -> Option<(Target, i64)> {
    match value {
        Value::Symbol(symbol, addend) => graph.target_of(symbol).map(|target| (target, addend)),
        _ => None,
    }
}
