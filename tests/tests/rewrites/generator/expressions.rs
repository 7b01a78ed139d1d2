//! Words, arguments and calls.

use super::kinds::Kind;
use super::{Function, Writer};

/// Maximum number of functions that are tried for a call.
const TRIES: u32 = 4;
/// Maximum number of words after the arguments of a variadic function.
const MOST_WORDS: u32 = 6;

impl Writer {
    /// Returns a constant, mostly a small one.
    pub(super) fn constant(&mut self) -> String {
        let any = self.random.next();
        let constants = [0, 0, 1, 1, 2, 3, 4, 7, 8, 15, 16, 31, 100, 255, 256, 65535, any];
        format!("{}u", self.random.pick(&constants))
    }

    /// Returns a word without calls.
    pub(super) fn word(&mut self, depth: u32) -> String {
        if depth == 0 || self.random.once_in(3) {
            return self.leaf();
        }
        let a = self.word(depth - 1);
        let b = self.word(depth - 1);
        match self.random.range(0, 17) {
            0 | 1 => format!("({a} + {b})"),
            2 => format!("({a} - {b})"),
            3 => format!("({a} * {b})"),
            4 => format!("({a} & {b})"),
            5 => format!("({a} | {b})"),
            6 => format!("({a} ^ {b})"),
            7 => format!("({a} << ({b} & 31))"),
            8 => format!("({a} >> ({b} & 31))"),
            9 => format!("({a} / (({b} & 15) + 1))"),
            10 => format!("(u)({a} < {b})"),
            11 => format!("(u)((int){a} < (int){b})"),
            12 => format!("(u)({a} == {b})"),
            13 => format!("({a} ? {b} : {})", self.leaf()),
            14 => format!("~{a}"),
            15 => format!("(u)(byte)({a})"),
            16 => format!("(u)(half)({a})"),
            _ => format!("(u)((wide){a} * {b} >> 9)"),
        }
    }

    /// Returns a constant, or the value of a variable.
    fn leaf(&mut self) -> String {
        match self.random.range(0, 9) {
            0 | 1 => self.constant(),
            2 => {
                let global = self.random.pick(&self.globals).clone();
                global.kind.word(&global.name)
            }
            3 => {
                let index = self.index();
                let array = self.random.pick(&self.arrays);
                format!("{}[{index} & {}]", array.name, array.length - 1)
            }
            4 => (*self.random.pick(&["shared_pair.a", "shared_five.a[2]", "shared_either.a", "one"]))
                .to_owned(),
            _ if self.locals.is_empty() => self.constant(),
            _ => {
                let local = self.random.pick(&self.locals).clone();
                local.kind.word(&local.name)
            }
        }
    }

    /// Returns the index of an element, before masking.
    fn index(&mut self) -> String {
        let words: Vec<String> = self
            .locals
            .iter()
            .filter(|local| local.kind == Kind::Word)
            .map(|local| local.name.clone())
            .collect();
        if words.is_empty() || self.random.once_in(3) {
            return self.constant();
        }
        self.random.pick(&words).clone()
    }

    /// Returns a value, often an argument of the function itself.
    pub(super) fn value(&mut self, kind: Kind) -> String {
        let same: Vec<String> =
            self.locals.iter().filter(|local| local.kind == kind).map(|local| local.name.clone()).collect();
        if !same.is_empty() && !self.random.once_in(3) {
            return self.random.pick(&same).clone();
        }
        if let Some(value) = kind.make(|| self.word(1)) {
            return value;
        }
        if kind == Kind::Function {
            return self.random.pick(&self.members).clone();
        }
        let writable: Vec<String> =
            self.arrays.iter().filter(|array| array.writable).map(|array| array.name.clone()).collect();
        let mut places = vec!["&shared_pair.b".to_owned(), "&shared_five.a[1]".to_owned()];
        places.extend(writable.iter().map(|array| format!("&{array}[3]")));
        self.random.pick(&places).clone()
    }

    /// Returns a call, if the limit allows all calls that it leads to.
    pub(super) fn call(&mut self, function: &Function) -> Option<String> {
        let calls = function.calls.saturating_mul(self.times);
        self.calls_left = self.calls_left.checked_sub(calls)?;
        let mut values: Vec<String> = Vec::new();
        for &kind in &function.arguments {
            values.push(self.value(kind));
        }
        if function.variadic {
            let words = self.random.range(0, MOST_WORDS);
            values[0] = format!("{words}u");
            for _ in 0..words {
                values.push(format!("(u)({})", self.value(Kind::Word)));
            }
        }
        Some(format!("{}({})", function.name, values.join(", ")))
    }

    /// Returns an existing function, with this result if one is given, preferably a recent one.
    pub(super) fn callee(&mut self, result: Option<Kind>) -> Option<Function> {
        let fits: Vec<usize> = (0..self.functions.len())
            .filter(|&at| result.is_none_or(|result| self.functions[at].result == result))
            .collect();
        for _ in 0..TRIES.min(fits.len() as u32) {
            let recent = if self.random.once_in(2) { fits.len().saturating_sub(4) } else { 0 };
            let function = self.functions[*self.random.pick(&fits[recent..])].clone();
            if function.calls.saturating_mul(self.times) <= self.calls_left {
                return Some(function);
            }
        }
        None
    }

    /// Returns a call of any function as a word; a word without a call if none may be called.
    pub(super) fn called_word(&mut self) -> String {
        let Some(function) = self.callee(None) else { return self.word(2) };
        match self.call(&function) {
            Some(call) => function.result.word(&call),
            None => self.word(2),
        }
    }
}
