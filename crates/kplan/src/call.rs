//! A system call in a plan: its number, its name, and the known values of its arguments.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Maximum number of listed values of one argument. An argument with more values is treated as unknown.
pub const MAX_VALUES: usize = 64;

/// One system call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Call {
    /// Its number in this ABI.
    pub nr: u32,
    /// Its name, as in `<asm/unistd.h>`; absent for a number that has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The maker of the call, if it is not the program's own code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<Via>,
    /// Known values of its arguments.
    #[serde(default, skip_serializing_if = "Arguments::is_empty")]
    pub args: Arguments,
    /// Known operations, for a call that multiplexes several (`socketcall`, `ipc`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<Operation>,
}

/// The maker of a system call on a program's behalf.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// The kernel, which writes the number into the program's registers.
    Kernel,
    /// The vDSO, which the kernel maps into the program.
    Vdso,
}

/// Known values of arguments, by index from 0. An unlisted argument can have any value.
///
/// A list covers every resolved place that makes the call. Values are as the kernel sees them: the low 32 bits,
/// zero-extended, of an argument declared as `int`; the low 16 bits of a `umode_t`; the whole register of any other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Arguments {
    /// Values by rising number, each once.
    pub values: BTreeMap<u8, Vec<ArgumentValue>>,
}

/// One value of an argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ArgumentValue {
    /// The value.
    pub value: u64,
    /// Its name in the kernel's headers, if any: `TCGETS`, `O_CREAT|O_TRUNC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// One operation of a system call that multiplexes several.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Operation {
    /// The first argument, which selects the operation.
    pub value: u64,
    /// Its name in the kernel's headers, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Known values of its arguments. For `socketcall`, these are the words that the second argument points to; for
    /// `ipc`, the arguments by their own index, of which the first is the operation.
    #[serde(default, skip_serializing_if = "Arguments::is_empty")]
    pub args: Arguments,
}

impl Call {
    /// Creates a call by the program itself with unknown arguments.
    pub fn new(nr: u32, name: Option<&str>) -> Call {
        let name = name.map(str::to_owned);
        Call { nr, name, via: None, args: Arguments::default(), operations: Vec::new() }
    }

    /// Joins another call of the same number into this one: its arguments and operations are then the union of both.
    /// `via` is kept only if the program's own code makes neither call.
    pub fn merge(&mut self, other: &Call) {
        self.name = self.name.take().or_else(|| other.name.clone());
        self.via = self.via.filter(|_| other.via.is_some());
        self.args.merge(&other.args);
        if self.operations.is_empty() || other.operations.is_empty() {
            return self.operations.clear();
        }
        for theirs in &other.operations {
            match self.operations.iter_mut().find(|own| own.value == theirs.value) {
                Some(own) => own.args.merge(&theirs.args),
                None => self.operations.push(theirs.clone()),
            }
        }
        self.operations.sort_by_key(|operation| operation.value);
    }
}

impl Arguments {
    /// Returns whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the possible values of an argument; `None` if it can have any value.
    pub fn get(&self, index: usize) -> Option<&[ArgumentValue]> {
        self.values.get(&u8::try_from(index).ok()?).map(Vec::as_slice)
    }

    /// Returns the arguments that always have the same value.
    pub fn constants(&self) -> impl Iterator<Item = (u8, u64)> {
        self.values.iter().filter_map(|(&index, values)| match values[..] {
            [ref only] => Some((index, only.value)),
            _ => None,
        })
    }

    /// Joins other arguments into these: each argument known on both sides gets the values of both; the rest become
    /// unknown.
    pub fn merge(&mut self, other: &Arguments) {
        self.values.retain(|index, values| {
            let Some(theirs) = other.values.get(index) else { return false };
            values.extend_from_slice(theirs);
            values.sort_by_key(|value| value.value);
            values.dedup_by_key(|value| value.value);
            values.len() <= MAX_VALUES
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(known: &[(u8, &[u64])]) -> Arguments {
        let list = |values: &[u64]| values.iter().map(|&value| ArgumentValue { value, name: None }).collect();
        Arguments { values: known.iter().map(|&(index, values)| (index, list(values))).collect() }
    }

    #[test]
    fn an_argument_is_known_where_it_is_on_both_sides() {
        let mut one = arguments(&[(0, &[1, 5]), (1, &[7]), (3, &[2])]);
        one.merge(&arguments(&[(0, &[3, 5]), (3, &[2]), (4, &[9])]));
        assert_eq!(one, arguments(&[(0, &[1, 3, 5]), (3, &[2])]));
        assert_eq!(one.constants().collect::<Vec<_>>(), [(3, 2)]);
        assert_eq!(one.get(4), None);
        let many: Vec<u64> = (0..=MAX_VALUES as u64).collect();
        one.merge(&arguments(&[(0, &many), (3, &[2])]));
        assert_eq!(one, arguments(&[(3, &[2])]));
    }

    #[test]
    fn calls_merge() {
        let operation = |value, args| Operation { value, name: None, args };
        let mut one = Call::new(102, Some("socketcall"));
        one.operations = vec![operation(3, arguments(&[(2, &[16])]))];
        let mut two = one.clone();
        two.operations = vec![operation(1, arguments(&[(0, &[2])])), operation(3, arguments(&[]))];
        one.merge(&two);
        let both = [operation(1, arguments(&[(0, &[2])])), operation(3, arguments(&[]))];
        assert_eq!(one.operations, both);
        // A caller with unknown operations.
        one.merge(&Call { via: Some(Via::Vdso), ..Call::new(102, None) });
        assert_eq!(one, Call::new(102, Some("socketcall")));
    }
}
