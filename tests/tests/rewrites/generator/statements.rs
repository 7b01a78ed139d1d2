//! Statements. Each is text that ends with a newline.

use super::kinds::Kind;
use super::{Variable, Writer};

/// Maximum number of iterations of a loop.
const TURNS: u32 = 4;
/// Number of statements about globals only that are remembered.
const REPEATED: usize = 12;

impl Writer {
    /// Returns some statements in a row.
    pub(super) fn statements(&mut self, most: u32, depth: u32) -> String {
        let count = self.random.range(1, most);
        (0..count).map(|_| self.statement(depth)).collect()
    }

    /// Returns a statement, with others nested in it up to this depth.
    pub(super) fn statement(&mut self, depth: u32) -> String {
        if depth == 0 {
            return self.simple();
        }
        match self.random.range(0, 20) {
            0 => self.choice(depth),
            1 | 2 => self.alternatives(depth),
            3 => self.cases(depth),
            4 => self.turns(depth),
            5 => self.volatile(depth),
            6 => self.cell(depth),
            7 => self.settled(depth),
            8 => self.real(),
            9 | 10 => self.repetition(),
            11 | 12 => self.assembly(),
            13 => self.atomic(),
            14 => self.memory(),
            _ => self.simple(),
        }
    }

    fn simple(&mut self) -> String {
        match self.random.range(0, 5) {
            0 => format!("out({});\n", self.word(3)),
            1 | 2 => format!("out({});\n", self.called_word()),
            3 => self.local_assignment(),
            _ => self.assignment(),
        }
    }

    /// Returns statements within braces, with a scope of their own.
    fn block(&mut self, most: u32, depth: u32) -> String {
        let outer = self.locals.len();
        let statements = self.statements(most, depth - 1);
        self.locals.truncate(outer);
        format!("{{\n{statements}}}\n")
    }

    fn local_assignment(&mut self) -> String {
        let writable = self.locals.iter().filter(|local| local.writable && local.kind == Kind::Word);
        let writable: Vec<String> = writable.map(|local| local.name.clone()).collect();
        if writable.is_empty() {
            return self.assignment();
        }
        let (local, word) = (self.random.pick(&writable).clone(), self.word(2));
        let operator = self.operator();
        format!("{local} {operator} {word};\n")
    }

    fn operator(&mut self) -> &'static str {
        self.random.pick::<&str>(&["=", "+=", "-=", "^=", "|=", "&="])
    }

    /// Assigns a value to something in memory.
    fn assignment(&mut self) -> String {
        let (word, index, operator) = (self.word(2), self.word(1), self.operator());
        let pointers: Vec<String> = self
            .locals
            .iter()
            .filter(|local| local.kind == Kind::Pointer)
            .map(|local| local.name.clone())
            .collect();
        match self.random.range(0, 5) {
            0 => format!("shared_pair.a {operator} {word};\n"),
            1 => format!("shared_five.a[({index}) % 5] {operator} {word};\n"),
            2 => format!("shared_either.b[({index}) & 3] {operator} (byte)({word});\n"),
            3 if !pointers.is_empty() => format!("*{} {operator} {word};\n", self.random.pick(&pointers)),
            4 => match self.arrays.iter().find(|array| array.writable) {
                Some(array) => {
                    format!("{}[({index}) & {}] {operator} {word};\n", array.name, array.length - 1)
                }
                None => format!("other_five.a[2] {operator} {word};\n"),
            },
            _ => match self.globals.iter().rfind(|global| global.writable) {
                Some(global) => format!("{} {operator} {word};\n", global.name),
                None => format!("shared_pair.b {operator} {word};\n"),
            },
        }
    }

    fn choice(&mut self, depth: u32) -> String {
        format!("if ({}) {}", self.word(2), self.block(2, depth))
    }

    fn alternatives(&mut self, depth: u32) -> String {
        let (condition, yes) = (self.word(2), self.block(2, depth));
        format!("if ({condition}) {yes}else {}", self.block(2, depth))
    }

    /// A choice that whole-program analysis can decide: by a variable that is never written.
    fn settled(&mut self, depth: u32) -> String {
        let constants: Vec<String> =
            self.globals.iter().filter(|global| !global.writable).map(|global| global.name.clone()).collect();
        if constants.is_empty() {
            return self.choice(depth);
        }
        let (name, bits) = (self.random.pick(&constants).clone(), self.constant());
        format!("if ({name} & {bits}) {}else {}", self.block(2, depth), self.block(1, depth))
    }

    /// A `switch` in which some cases fall through to the next.
    fn cases(&mut self, depth: u32) -> String {
        let (count, first) = (self.random.range(3, 14), *self.random.pick(&[0, 1, 10, 1000]));
        let selector = self.word(2);
        let mut text = format!("switch (({selector}) % {} + {first}) {{\n", count + 1);
        for case in first..first + count {
            if self.random.once_in(7) {
                continue;
            }
            let body = self.block(1, depth);
            let end = if self.random.once_in(3) { "" } else { "break;\n" };
            text += &format!("case {case}: {body}{end}");
        }
        text + "default: " + &self.block(1, depth) + "}\n"
    }

    fn turns(&mut self, depth: u32) -> String {
        let (turns, name) = (self.random.range(1, TURNS), format!("turn_{}", self.unique()));
        let outer = self.locals.len();
        self.locals.push(Variable { name: name.clone(), kind: Kind::Word, writable: false });
        self.times *= turns;
        let body = self.block(2, depth);
        self.times /= turns;
        let skip =
            if self.random.once_in(4) { format!("if ({}) continue;\n", self.word(1)) } else { String::new() };
        self.locals.truncate(outer);
        format!("for (u {name} = 0; {name} < {turns}; {name}++) {{\n{skip}{body}}}\n")
    }

    fn volatile(&mut self, depth: u32) -> String {
        let (name, value) = (format!("volatile_{}", self.unique()), self.word(1));
        format!("{{ volatile u {name} = {value}; if ({name} & 1) out({name});\n{}}}\n", self.block(1, depth))
    }

    /// A variable whose address is taken.
    fn cell(&mut self, depth: u32) -> String {
        let (number, value) = (self.unique(), self.word(2));
        let outer = self.locals.len();
        self.locals.push(Variable {
            name: format!("(&cell_{number})"),
            kind: Kind::Pointer,
            writable: false,
        });
        let body = self.block(2, depth);
        self.locals.truncate(outer);
        format!("{{ u cell_{number} = {value};\n{body}out(cell_{number}); }}\n")
    }

    fn real(&mut self) -> String {
        let (a, b, kind) = (self.word(2), self.word(1), *self.random.pick(&["float", "double"]));
        let constant = self.random.pick(&["0.5", "1.25", "3", "0.1"]);
        format!(
            "{{ {kind} a = ({kind})(int)REAL({a}), b = ({kind})(int)REAL({b}); a = a * ({kind}){constant} - b;\n\
             out(a < 0 ? (u)(int)-a : (u)(int)(a * 8)); out((u)(a < b) + (u)(a == b)); }}\n"
        )
    }

    /// Repeats an earlier statement.
    fn repetition(&mut self) -> String {
        if self.repeated.len() < REPEATED {
            let locals = std::mem::take(&mut self.locals);
            let statements: String = (0..3).map(|_| self.assignment()).collect();
            self.locals = locals;
            let call = format!("out(twin_{}(shared_pair.a));\n", self.random.range(0, 1));
            self.repeated.push(statements + &call);
        }
        self.random.pick(&self.repeated).clone()
    }

    fn atomic(&mut self) -> String {
        let (a, b) = (self.word(2), self.word(1));
        match self.random.range(0, 3) {
            0 => format!("out(__atomic_fetch_add(&shared_pair.a, {a}, __ATOMIC_SEQ_CST));\n"),
            1 => format!("__atomic_store_n(&shared_pair.b, {a}, __ATOMIC_RELEASE);\n"),
            2 => format!("out(__atomic_exchange_n(&shared_five.a[1], {a}, __ATOMIC_ACQ_REL));\n"),
            _ => format!(
                "{{ u expected = {a}; out((u)__atomic_compare_exchange_n(&shared_pair.a, &expected, {b}, 0, \
                 __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)); out(expected); }}\n"
            ),
        }
    }

    fn memory(&mut self) -> String {
        let word = self.word(1);
        match self.random.range(0, 3) {
            0 => "other_five = shared_five;\n".to_owned(),
            1 => format!("memset(&other_five, (int)({word}), (({word}) & 3) * 4);\n"),
            2 => format!("memcpy(&other_five, &shared_five, (({word}) & 3) * 4);\n"),
            _ => format!("shared_pair = (struct pair){{{word}, shared_pair.a}};\n"),
        }
    }
}
