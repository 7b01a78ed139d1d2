//! A system call in a plan: its number, its name, and what is known of its arguments.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How many values of one argument are listed. An argument that has more can as well be anything.
pub const MAX_VALUES: usize = 64;

/// One system call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Call {
    /// Its number in this ABI.
    pub nr: u32,
    /// Its name, as in `<asm/unistd.h>`; absent for a number that has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Who makes it, if it is not the program's own code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<Via>,
    /// What its arguments can be.
    #[serde(default, skip_serializing_if = "Arguments::is_empty")]
    pub args: Arguments,
    /// The operations that it is asked for, if it multiplexes several (`socketcall`, `ipc`) and they are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<Operation>,
}

/// Who makes a system call on a program's behalf.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// The kernel writes the number into the program's registers.
    Kernel,
    /// The code of the vDSO, which the kernel maps into the program.
    Vdso,
}

/// What arguments can be, by index from 0. One that is not listed can be anything.
///
/// A list is all that the argument is at every place that makes the call, as far as places are resolved.
/// Values are what the kernel sees: of an argument that it declares as an `int`, the low 32 bits,
/// zero-extended (of a `umode_t`, the low 16); of others the whole register.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Arguments {
    /// Values by rising number, each once.
    pub values: BTreeMap<u8, Vec<ArgumentValue>>,
}

/// One value of an argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ArgumentValue {
    /// The number.
    pub value: u64,
    /// What the kernel's headers call it, where they do: `TCGETS`, `O_CREAT|O_TRUNC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// One operation of a system call that multiplexes several.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Operation {
    /// The first argument, which selects it.
    pub value: u64,
    /// What the kernel's headers call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The possible values of its arguments: for `socketcall` the words that the second argument points to, for `ipc`
    /// the arguments by their own index, where the first one is the operation.
    #[serde(default, skip_serializing_if = "Arguments::is_empty")]
    pub args: Arguments,
}

impl Call {
    /// A call of the program itself, of whose arguments nothing is known.
    pub fn new(nr: u32, name: Option<&str>) -> Call {
        let name = name.map(str::to_owned);
        Call { nr, name, via: None, args: Arguments::default(), operations: Vec::new() }
    }

    /// Joins another call of the same number into this one: its arguments and operations can then be what they can be in
    /// either. `via` stays only if neither is made by the program's own code.
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
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// What an argument can be; `None` if that is anything.
    pub fn get(&self, index: usize) -> Option<&[ArgumentValue]> {
        self.values.get(&u8::try_from(index).ok()?).map(Vec::as_slice)
    }

    /// The arguments that are always the same.
    pub fn constants(&self) -> impl Iterator<Item = (u8, u64)> {
        self.values.iter().filter_map(|(&index, values)| match values[..] {
            [ref only] => Some((index, only.value)),
            _ => None,
        })
    }

    /// Joins other arguments into these: an argument has the values of both, and is known where it is in both.
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
        // Somebody of whose operations nothing is known.
        one.merge(&Call { via: Some(Via::Vdso), ..Call::new(102, None) });
        assert_eq!(one, Call::new(102, Some("socketcall")));
    }
}
