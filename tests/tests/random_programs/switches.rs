/*!
Random C functions around `switch`, which csmith does not make: the statement that gives a graph its jump
tables, and so most of what is hard about lifting.

One file is made for each number. Its functions take two words and return one. Each has a shape from [`SHAPES`], and
its cases contain small random statements: some fall through to the next case, some share labels, some call functions
above them. A counter limits the depth of calls. A few functions are never called, and name data and functions that
nothing else names: pass `reach` has to remove all of them.

`kshrink_switches` calls every live function with many values.
*/

use std::fmt::Write;

use kshrink_tests::Random;

/// The prefix of functions that are never called.
pub const DEAD_PREFIX: &str = "never_called_";

/// Live functions in a file.
const LIVE: u32 = 14;
/// Functions that are never called.
const DEAD: u32 = 4;
/// Number of calls of each function by `kshrink_switches`.
const ROUNDS: u32 = 60;

/// Ways to write a function around a `switch`.
const SHAPES: &[fn(&mut Writer)] = &[
    Writer::dense,
    Writer::dense,
    Writer::complete,
    Writer::narrow,
    Writer::wide,
    Writer::unreachable_default,
    Writer::sparse,
    Writer::machine,
    Writer::nested,
    Writer::labels,
    Writer::functions,
    Writer::strings,
];

const HEAD: &str = "\
#include <stdint.h>
typedef uint32_t u32;
#define FUNCTION static __attribute__((noinline)) u32
u32 kshrink_switches(u32 x);
u32 kshrink_state[16];
static u32 fuel;
static __attribute__((noreturn, noinline, cold)) void give_up(u32 x)
{
	kshrink_state[15] = x;
	__builtin_trap();
}
static inline u32 rotate(u32 x, u32 by) { return x << (by & 31) | x >> (-by & 31); }
";

/// Returns the file for a number.
pub fn generate(seed: u64) -> String {
    let mut writer =
        Writer { random: Random::new(seed), text: HEAD.to_owned(), functions: Vec::new(), count: 0 };
    for _ in 0..LIVE {
        let shape = *writer.random.pick(SHAPES);
        shape(&mut writer);
    }
    let live = writer.functions.len();
    for number in 0..DEAD {
        writer.dead(number);
    }
    let calls: String =
        (0..live).map(|i| format!("\t\tx = {}(x + i, i * 7);\n", writer.functions[i])).collect();
    let _ = write!(
        writer.text,
        "u32 kshrink_switches(u32 x)\n{{\n\tfor (u32 i = 0; i < {ROUNDS}; i++) {{\n\t\tfuel = 50;\n{calls}\t}}\n\
         \treturn x;\n}}\n"
    );
    writer.text
}

/// Returns the functions that pass `reach` has to remove from the file's code.
pub fn dead_functions() -> impl Iterator<Item = String> {
    (0..DEAD).map(|number| format!("{DEAD_PREFIX}{number}"))
}

struct Writer {
    random: Random,
    text: String,
    /// Functions that later functions may call.
    functions: Vec<String>,
    count: u32,
}

impl Writer {
    /// Adds a function with this body, which returns a value.
    fn function(&mut self, body: &str) {
        let name = format!("switch_{}", self.count);
        self.count += 1;
        let cold = if self.random.once_in(3) { "\tif (fuel > 50)\n\t\tgive_up(x);\n" } else { "" };
        let _ = write!(
            self.text,
            "\nFUNCTION {name}(u32 x, u32 y)\n{{\n{cold}\tif (fuel == 0)\n\t\treturn x ^ y;\n\tfuel--;\n{body}}}\n"
        );
        self.functions.push(name);
    }

    /// Adds `switch (selector)` with cases for these values, followed by `return`.
    fn switch(&mut self, selector: &str, values: &[i64], default: &str) {
        let cases = self.cases(values);
        self.function(&format!("\tswitch ({selector}) {{\n{cases}{default}\t}}\n\treturn x + y;\n"));
    }

    fn cases(&mut self, values: &[i64]) -> String {
        let mut text = String::new();
        for value in values {
            let _ = writeln!(text, "\tcase {value}:");
            if self.random.once_in(8) {
                continue;
            }
            let statement = self.statement();
            let _ = writeln!(text, "\t\t{statement}");
            let end = *self.random.pick(&["break;", "break;", "break;", "return x - y;", "/* on */"]);
            let _ = writeln!(text, "\t\t{end}");
        }
        text + "\t\tbreak;\n"
    }

    fn default_case(&mut self) -> String {
        let statement = self.statement();
        format!("\tdefault:\n\t\t{statement}\n")
    }

    fn statement(&mut self) -> String {
        let value = self.expression(2);
        match self.random.range(0, 5) {
            0 => format!("x = {value};"),
            1 => format!("y ^= {value};"),
            2 => format!("kshrink_state[x & 7] += {value};"),
            3 => format!("if ({value} & {}) y++;", 1 << self.random.range(0, 4)),
            4 => format!("x -= kshrink_state[{}];", self.random.range(0, 7)),
            _ => format!("if (__builtin_expect(x == {}u, 0)) give_up({value});", self.random.next()),
        }
    }

    fn expression(&mut self, depth: u32) -> String {
        if depth == 0 {
            let constant = format!("{}u", self.random.next() >> self.random.range(0, 31));
            return self.random.pick(&["x".to_owned(), "y".to_owned(), constant]).clone();
        }
        let (a, b) = (self.expression(depth - 1), self.expression(depth - 1));
        if !self.functions.is_empty() && self.random.once_in(4) {
            let function = self.random.pick(&self.functions).clone();
            return format!("{function}({a}, {b})");
        }
        match *self.random.pick(&["+", "-", "*", "&", "|", "^", "rotate", "/"]) {
            "rotate" => format!("rotate({a}, {b})"),
            "/" => format!("({a} / ({b} | 1))"),
            operator => format!("({a} {operator} {b})"),
        }
    }

    /// Returns rising values from `first` on, with occasional gaps.
    fn values(&mut self, first: i64, count: u32) -> Vec<i64> {
        (first..first + i64::from(count)).filter(|_| !self.random.once_in(7)).collect()
    }

    /// Values close together, around zero.
    fn dense(&mut self) {
        let (count, first) = (self.random.range(6, 40), self.random.range(0, 12));
        let values = self.values(-i64::from(first), count);
        let default = self.default_case();
        self.switch(&format!("(int32_t)(x % {}) - {}", count + 4, first + 2), &values, &default);
    }

    /// A case for every value of a few bits, which needs no comparison.
    fn complete(&mut self) {
        let bits = self.random.range(3, 5);
        let values: Vec<i64> = (0..1 << bits).collect();
        let selector = *self.random.pick(&["x", "y", "x >> 7"]);
        self.switch(&format!("({selector}) & {}", (1 << bits) - 1), &values, "");
    }

    /// A selector of eight bits.
    fn narrow(&mut self) {
        let first = self.random.range(0, 60);
        let values = self.values(i64::from(first), 30);
        let default = self.default_case();
        let selector = *self.random.pick(&["(uint8_t)(x % 96)", "(uint8_t)(y & 63)"]);
        self.switch(selector, &values, &default);
    }

    /// A selector of 64 bits.
    fn wide(&mut self) {
        let count = self.random.range(8, 24);
        let values = self.values(0, count);
        let default = self.default_case();
        self.switch(&format!("((uint64_t)x * y) % {}", count + 3), &values, &default);
    }

    /// A default declared unreachable to the compiler, so that nothing bounds the selector.
    fn unreachable_default(&mut self) {
        let count = self.random.range(6, 20);
        let values: Vec<i64> = (0..i64::from(count)).collect();
        self.switch(&format!("x % {count}"), &values, "\tdefault:\n\t\t__builtin_unreachable();\n");
    }

    /// Values far apart: a tree of comparisons.
    fn sparse(&mut self) {
        let mut values: Vec<i64> =
            (0..self.random.range(6, 16)).map(|_| i64::from(self.random.next())).collect();
        values.sort_unstable();
        values.dedup();
        let keys: String = values.iter().map(|value| format!("{value}u, ")).collect();
        let cases = self.cases(&values);
        let default = self.default_case();
        self.function(&format!(
            "\tstatic const u32 keys[] = {{ {keys}0 }};\n\n\tswitch (keys[x % {}]) {{\n{cases}{default}\t}}\n\
             \treturn x + y;\n",
            values.len() + 1
        ));
    }

    /// A loop around a `switch` on a state, as in parsers.
    fn machine(&mut self) {
        let states = self.random.range(5, 14);
        let mut cases = String::new();
        for state in 0..states {
            let (statement, next) = (self.statement(), self.random.range(0, states));
            let condition = self.expression(1);
            let _ = write!(
                cases,
                "\t\tcase {state}:\n\t\t\t{statement}\n\t\t\tstate = {condition} & 4 ? {next} : {};\n\t\t\tbreak;\n",
                (state + 1) % states
            );
        }
        self.function(&format!(
            "\tu32 state = x % {states};\n\n\tfor (u32 steps = y & 31; steps > 0; steps--) {{\n\
             \t\tswitch (state) {{\n{cases}\t\tdefault:\n\t\t\treturn x;\n\t\t}}\n\t}}\n\treturn x + y + state;\n"
        ));
    }

    /// A `switch` within another.
    fn nested(&mut self) {
        let inner = self.values(1, 12);
        let inner = self.cases(&inner);
        let outer = self.values(2, 14);
        let outer = self.cases(&outer);
        let default = self.default_case();
        self.function(&format!(
            "\tswitch (x % 19) {{\n\tcase 0:\n\tswitch (y % 15) {{\n{inner}\tdefault:\n\t\ty = x;\n\t}}\n\t\tbreak;\n\
             {outer}{default}\t}}\n\treturn x * 3 + y;\n"
        ));
    }

    /// Labels whose address is taken, as in interpreters.
    fn labels(&mut self) {
        let count = self.random.range(4, 10);
        let table: String = (0..count).map(|label| format!("&&label_{label}, ")).collect();
        let mut code = String::new();
        for label in 0..count {
            let statement = self.statement();
            let _ = write!(
                code,
                "label_{label}:\n\t{statement}\n\tif (steps-- == 0)\n\t\treturn x + y;\n\
                 \tx += {};\n\tgoto *table[x % {count}];\n",
                self.random.range(1, 99)
            );
        }
        self.function(&format!(
            "\tstatic const void *const table[] = {{ {table}}};\n\tu32 steps = y & 15;\n\n\
             \tgoto *table[x % {count}];\n{code}"
        ));
    }

    /// Calls earlier functions through a table.
    fn functions(&mut self) {
        if self.functions.is_empty() {
            return self.dense();
        }
        let count = self.random.range(3, 9);
        let table: String = (0..count).map(|_| format!("{}, ", self.random.pick(&self.functions))).collect();
        let writable = *self.random.pick(&["const", ""]);
        self.function(&format!(
            "\tstatic u32 (*{writable} table[])(u32, u32) = {{ {table}}};\n\n\treturn table[y % {count}](y, x) + x;\n"
        ));
    }

    /// Constants chosen by a `switch`, which become a table of data.
    fn strings(&mut self) {
        let count = self.random.range(5, 12);
        let cases: String = (0..count)
            .map(|case| format!("\tcase {case}: text = \"text {} of {case}\"; break;\n", self.random.next()))
            .collect();
        self.function(&format!(
            "\tconst char *text = \"none\";\n\n\tswitch (x % {}) {{\n{cases}\t}}\n\
             \tfor (; *text; text++)\n\t\ty = y * 31 + (u32)*text;\n\treturn y;\n",
            count + 2
        ));
    }

    /// A function that nothing calls, with a `switch` and data of its own.
    fn dead(&mut self, number: u32) {
        let values: Vec<i64> = (0..12).collect();
        let cases = self.cases(&values);
        let below = if number == 0 { "y".to_owned() } else { format!("{DEAD_PREFIX}{}(y, x)", number - 1) };
        let _ = write!(
            self.text,
            "\nu32 {DEAD_PREFIX}{number}(u32 x, u32 y);\nu32 {DEAD_PREFIX}{number}(u32 x, u32 y)\n{{\n\
             \tswitch (x) {{\n{cases}\tdefault:\n\t\tx ^= {below};\n\t}}\n\treturn x + y;\n}}\n"
        );
    }
}
