/*!
The plan: a JSON document that describes how a system uses its kernel. The kshrink tools pipe it to one another.

A plan is an object with a version and any number of sections. Each tool reads a plan from standard input if one is
piped, adds its section, and prints the whole plan:

```json
{
  "schema": "kshrink/1",
  "syscalls": { "i386": { "complete": true, "programs": ["busybox"], "calls": [], "unresolved": [] } },
  "limits": {}
}
```

The key decision is that a tool depends only on its own section. [`Plan`] keeps unknown sections unchanged and in their
order, so that an older tool in the middle of a pipeline loses nothing. It reads the fields of a known section strictly:
a plan decides about *removal*, and a misspelt field must not be read as "nothing is used".

- [`Plan`]: reading, writing and their errors;
- [`Syscalls`]: the section `syscalls`;
- [`Coverage`]: the section `coverage`;
- [`BlockMap`]: a separate document that maps the code of a rewritten kernel to original functions and offsets;
- [`Contents`]: a separate document that lists the functions and variables of a rewritten kernel with their sizes;
- [`Order`]: the section `order`;
- [`Frozen`]: the section `frozen`;
- [`Exports`]: the section `exports`;
- [`Params`]: the section `params`;
- [`ConfigAdvice`]: the section `config`;
- [`Paths`]: the section `paths`, and a separate document with it;
- [`Declaration`]: a separate document about the objects of a path whose facts are to be observed;
- [`FunctionName`]: the name of a kernel function in every section;
- [`implicit_calls`]: the system calls that no scan of a program can find, because the kernel and its vDSO make them on
  the program's behalf. A pass that removes system calls must keep these too.

```
use kplan::{Abi, Plan};

let plan = Plan::parse(include_str!("../examples/plan.json"), "plan.json")?;
let calls = plan.syscalls.as_ref().and_then(|syscalls| syscalls.get(Abi::I386)).unwrap();
assert!(calls.complete && calls.uses(4));

let mut text = Vec::new();
plan.write(&mut text)?;
assert_eq!(Plan::read(text.as_slice(), "again")?, plan);
# Ok::<(), Box<dyn std::error::Error>>(())
```
*/

mod abi;
mod blocks;
mod call;
mod config;
mod contents;
mod coverage;
mod declaration;
mod document;
mod exports;
mod formatter;
mod frozen;
mod function;
mod implicit;
mod order;
mod params;
mod paths;
mod plan;
mod syscalls;

pub use abi::Abi;
pub use blocks::{Block, BlockFunction, BlockMap, Counters, MadeBlock, MovedInstruction};
pub use call::{ArgumentValue, Arguments, Call, MAX_VALUES, Operation, Via};
pub use config::{
    ConfigAdvice, Evidence, JointAdvice, KeptBytes, KeptOption, OptionAdvice, OptionValue, Tried, UseClass,
    ValueFacts, ValueLimit,
};
pub use contents::{ChainLink, Contents, Item, ItemKind, MemoryClass};
pub use coverage::{CallEdge, Coverage, CoveredFunction, RanRange, Reads, Run};
pub use declaration::{Declaration, DeclaredObject, DeclaredPlace, StableFacts};
pub use document::Error;
pub use exports::{Exports, Module};
pub use frozen::{Frozen, FrozenCode, FrozenData, Mechanism};
pub use function::FunctionName;
pub use implicit::{ImplicitCall, implicit_calls};
pub use order::{ByteRange, Granularity, HotFunction, Order};
pub use params::{
    FixedVariable, KeptParameter, NamedParameter, NamedWord, OnMismatch, ParameterName, ParameterTable,
    Params,
};
pub use paths::{Path, PathFact, PathObject, PathTarget, Paths, PointerPlace};
pub use plan::{Plan, SCHEMA};
pub use syscalls::{AbiCalls, Place, Site, Syscalls, Unresolved, UnresolvedKind};
