//! The commands by which gdb compares the stable facts of linked paths where they end.

use kcli::Failure;
use kelf::Functions;
use kisa::{BranchKind, Encoding, Flow};
use kplan::{BlockMap, MadeBlock, Path, PathFact, Paths, PointerPlace};
use serde_json::{Value, json};

use crate::script::ARGUMENTS;
use crate::symbols::Symbols;

/// What gdb does.
const PROGRAM: &str = include_str!("compare/compare.py");

/// A kernel that `kshrink-spec --specialize -o DIR` wrote.
pub struct Kernel {
    /// Its file, for messages.
    name: String,
    functions: Functions,
    symbols: Symbols,
    blocks: BlockMap,
}

impl Kernel {
    /// Reads the kernel in a directory.
    ///
    /// # Errors
    /// If a file is missing, or not what it should be.
    pub fn read(dir: &std::path::Path) -> Result<Kernel, Failure> {
        let vmlinux = dir.join("vmlinux");
        Ok(Kernel {
            name: vmlinux.display().to_string(),
            functions: Functions::read(&vmlinux).map_err(Failure::of)?,
            symbols: Symbols::read(&vmlinux)?,
            blocks: BlockMap::open(&dir.join("blocks.json")).map_err(Failure::of)?,
        })
    }

    /// Returns a script for gdb, connected to a machine that runs this kernel. A stable fact that holds at the entry of a path has
    /// to hold at each of its ends. The script counts those that do not, until the machine ends, or after `calls` calls unless
    /// that is 0.
    ///
    /// # Errors
    /// The name of a path that is not linked, or of a variable that the kernel does not have.
    pub fn compare(&self, paths: &Paths, calls: u32) -> Result<String, Failure> {
        let described: Result<Vec<Value>, Failure> = paths.paths.iter().map(|path| self.path(path)).collect();
        // Numbers, strings, lists and objects are the same in Python.
        let described = Value::from(described?);
        Ok(format!("python\nPATHS = {described}\nCALLS = {calls}\n{PROGRAM}end\n"))
    }

    fn wrong(&self, problem: String) -> Failure {
        Failure::bad_input(format!("{}: {problem}", self.name))
    }

    fn address(&self, symbol: &str) -> Result<u64, Failure> {
        let missing = || {
            let advice = "give the directory of the kernel with these paths";
            self.wrong(format!("no function or variable {symbol}, or several; {advice}"))
        };
        self.symbols.address(symbol).ok_or_else(missing)
    }

    /// Describes a path to the script.
    fn path(&self, path: &Path) -> Result<Value, Failure> {
        let number = |name: &str| path.objects.iter().position(|object| object.name == name);
        let (mut objects, mut facts) = (Vec::new(), Vec::new());
        for object in &path.objects {
            objects.push(match &object.from {
                PointerPlace::Argument(argument) => json!({"register": ARGUMENTS[usize::from(*argument)]}),
                PointerPlace::Variable(variable) => json!({"address": self.address(variable)?}),
                PointerPlace::Member { object: outer, offset } => {
                    let outer = number(outer);
                    if object.stable.is_some() {
                        let name = format!("the pointer to {}", object.name);
                        facts.push(json!({"object": outer, "offset": offset, "width": 4, "mask": u32::MAX, "name": name}));
                    }
                    json!({"object": outer, "offset": offset})
                }
            });
        }
        for fact in path.facts.iter().filter(|fact| fact.stable.is_some()) {
            let PathFact { object, offset, width, value, symbol, member, .. } = fact;
            let value = match symbol {
                Some(symbol) => self.address(symbol)?,
                None => (*value).into(),
            };
            let name = match member {
                Some(member) => format!("{object}.{member}"),
                None => format!("{object}+{offset}"),
            };
            facts.push(json!({
                "object": number(object), "offset": offset, "width": width, "mask": fact.known(), "value": value, "name": name,
            }));
        }
        let Ways { entry, ends, branches, misses } = self.ways(path)?;
        Ok(json!({
            "name": path.entry, "entry": entry, "ends": ends, "branches": branches, "misses": misses,
            "objects": objects, "facts": facts,
        }))
    }

    /// Finds the ways out of a path.
    fn ways(&self, path: &Path) -> Result<Ways, Failure> {
        let entry = self.address(&path.entry)?;
        let is_path = |block: &MadeBlock| block.address == entry && block.made_by == "specialize";
        let is_path = self.blocks.made.iter().any(is_path);
        let function =
            self.functions.at(entry).filter(|_| is_path).map(|(index, _)| self.functions.function(index));
        let Some(function) = function else {
            let advice = "expected a kernel for which `kshrink-spec --specialize` has copied this path";
            return Err(self.wrong(format!("{} is no path; {advice}", path.entry)));
        };
        let bytes = self.functions.bytes_at(function.address, function.size as usize).unwrap_or_default();
        let mut reader = kisa::isa(self.functions.machine).reader(bytes);
        let mut ways = Ways { entry, ..Ways::default() };
        let mut at = 0;
        while at < bytes.len() {
            let address = function.address + at as u64;
            let inst = reader.decode(at, Encoding::Main.at(address));
            let inst =
                inst.ok_or_else(|| self.wrong(format!("{}: no instruction at {address:#x}", path.entry)))?;
            match inst.insn.flow {
                Flow::Return => ways.ends.push(address),
                Flow::Direct { branch, target, .. } if !function.addresses().contains(&target) => {
                    match (branch.kind, self.is_original(&path.entry, target)) {
                        (BranchKind::Jump, false) => ways.ends.push(address),
                        (BranchKind::Jump, true) => ways.misses.push(address),
                        (BranchKind::Conditional, false) => ways.branches.push(address),
                        // Only a fact that does not hold leads there.
                        (BranchKind::Conditional, true) | (BranchKind::Call, _) => {}
                    }
                }
                _ => {}
            }
            at += inst.bytes.len();
        }
        Ok(ways)
    }

    /// Whether an address is the start of the original code of a function.
    fn is_original(&self, function: &str, address: u64) -> bool {
        self.blocks.at(address).is_some_and(|(block, inside)| {
            self.blocks.functions[block.function].function.name == function
                && block.original_offset + inside == 0
        })
    }
}

/// The entry of a path, and the addresses where it ends.
#[derive(Default)]
struct Ways {
    entry: u64,
    /// Returns, and jumps to original code.
    ends: Vec<u64>,
    /// Branches to other code on a condition.
    branches: Vec<u64>,
    /// Jumps to the original function, because a fact does not hold.
    misses: Vec<u64>,
}
