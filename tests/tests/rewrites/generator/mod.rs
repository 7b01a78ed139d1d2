/*!
C programs for the decisions of passes `fold` and `merge`: which registers and stack words a call reads, changes and
returns, which values are constant, and which code is identical.

A program is determined by its seed and its [`Dialect`]. Its behaviour is defined, and does not depend on addresses.
Functions call only functions above them, at a bounded cost, except through a table whose calls are counted. Every
operation is on unsigned words, or on small reals. `program` prints a checksum after each statement, and finally all
variables.
*/

mod assembly;
mod conventions;
mod expressions;
mod kinds;
mod shapes;
mod statements;

use std::fmt::Write;

use kshrink_tests::Random;

use kinds::Kind;

/// Number of functions of a program.
const FUNCTIONS: std::ops::RangeInclusive<u32> = 6..=18;
/// Number of statements of `program`.
const STATEMENTS: std::ops::RangeInclusive<u32> = 6..=12;
/// Maximum number of calls that one call of a function may lead to.
const MOST_CALLS: u32 = 3000;
/// The same for a function that is called through a table.
const MOST_CALLS_OF_MEMBER: u32 = 60;

/// The language of a compiler and a machine.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    /// 32-bit ARM rather than i386.
    pub arm: bool,
    /// clang, which has no nested functions, for instance.
    pub clang: bool,
    /// Position-independent code, in which gcc does not accept an address as a constant.
    pub pic: bool,
    /// Functions in the encoding that is not the default: `-mflip-thumb` and attributes.
    pub mixed: bool,
    /// Floating-point registers for arguments, or for computing at all.
    pub hard_float: bool,
}

/// An existing function.
#[derive(Clone)]
struct Function {
    name: String,
    result: Kind,
    arguments: Vec<Kind>,
    /// Whether further words follow; the first argument is their number.
    variadic: bool,
    /// Number of calls that one call leads to.
    calls: u32,
}

/// A variable of the program, or of the current function.
#[derive(Clone)]
struct Variable {
    name: String,
    kind: Kind,
    writable: bool,
}

/// An array of words, with a number of elements that is a power of two.
struct Array {
    name: String,
    length: u32,
    writable: bool,
}

struct Writer {
    random: Random,
    dialect: Dialect,
    text: String,
    functions: Vec<Function>,
    /// Functions from a word to a word with the convention of the options.
    members: Vec<String>,
    /// Functions made only of assembly.
    naked: Vec<String>,
    globals: Vec<Variable>,
    arrays: Vec<Array>,
    /// Arguments and variables of the current function.
    locals: Vec<Variable>,
    /// Statements about globals only, for repetition.
    repeated: Vec<String>,
    /// Number of further calls that the current function may lead to, and number of executions of the current
    /// statement.
    calls_left: u32,
    times: u32,
    /// Counter for unique names.
    count: u32,
}

const HEAD: &str = "\
#define OUTSIDE __attribute__((regparm(0)))
#ifdef __arm__
#undef OUTSIDE
#define OUTSIDE
#endif
OUTSIDE void print(const char *text, u length);
OUTSIDE int setjmp(void **buffer) __attribute__((returns_twice));
OUTSIDE void longjmp(void **buffer, int result) __attribute__((noreturn));
void program(void);
#define APART static __attribute__((noinline))
void *memset(void *to, int value, u size)
{
	for (byte *at = to; size > 0; size--) { *at++ = (byte)value; __asm__ volatile(\"\" ::: \"memory\"); }
	return to;
}
void *memcpy(void *restrict to, const void *restrict from, u size)
{
	byte *at = to;
	for (const byte *in = from; size > 0; size--) { *at++ = *in++; __asm__ volatile(\"\" ::: \"memory\"); }
	return to;
}
static u sum = 1;
APART void out(u x) { sum = sum * 2654435761u + x; sum ^= sum >> 15; }
APART void show(void)
{
	char text[9];
	for (u i = 0; i < 8; i++) text[i] = \"0123456789abcdef\"[sum >> (28 - 4 * i) & 15];
	text[8] = '\\n';
	print(text, 9);
}
static volatile u one = 1;
static struct pair shared_pair = {1, 2};
static struct five shared_five = {{3, 4, 5, 6, 7}}, other_five;
static union either shared_either = {77};
APART u twin_0(u x) { return x * 3 + 1; }
APART u twin_1(u x) { return x * 3 + 1; }
";

/// Returns the program of a seed.
pub fn program(seed: u64, dialect: Dialect) -> String {
    let mut writer = Writer::new(seed, dialect);
    writer.variables();
    for _ in 0..writer.random.range(*FUNCTIONS.start(), *FUNCTIONS.end()) {
        writer.function();
    }
    writer.end();
    writer.text
}

impl Writer {
    fn new(seed: u64, dialect: Dialect) -> Writer {
        let jumps = if dialect.arm { assembly::JUMPS_ARM } else { assembly::JUMPS_I386 };
        Writer {
            random: Random::new(seed),
            dialect,
            text: format!("{}{HEAD}{jumps}", kinds::DEFINITIONS),
            functions: Vec::new(),
            members: vec!["twin_0".to_owned(), "twin_1".to_owned()],
            naked: Vec::new(),
            globals: Vec::new(),
            arrays: Vec::new(),
            locals: Vec::new(),
            repeated: Vec::new(),
            calls_left: 0,
            times: 1,
            count: 0,
        }
    }

    /// Returns a number that no other name has.
    fn unique(&mut self) -> u32 {
        self.count += 1;
        self.count
    }

    /// Adds variables, some of which are never written, and the table of functions, which is defined at the end.
    fn variables(&mut self) {
        for number in 0..self.random.range(4, 7) {
            let kind = *self.random.pick(&[Kind::Word, Kind::Word, Kind::Byte, Kind::Short, Kind::Long]);
            let writable = !self.random.once_in(3);
            let volatile = *self.random.pick(&["", "", "volatile "]);
            let name = format!("global_{number}");
            let value = self.constant();
            let _ =
                writeln!(self.text, "static {volatile}{} {name} = ({}){value};", kind.name(), kind.name());
            self.globals.push(Variable { name, kind, writable });
        }
        for number in 0..3 {
            let (length, writable) = (*self.random.pick(&[4, 8, 16]), self.random.once_in(2));
            let values: Vec<String> = (0..length).map(|_| self.random.range(0, 255).to_string()).collect();
            let (name, constant) = (format!("array_{number}"), if writable { "" } else { "const " });
            let values = values.join(", ");
            let _ = writeln!(self.text, "static {constant}u {name}[{length}] = {{{values}}};");
            self.arrays.push(Array { name, length, writable });
        }
        let fuel = self.random.range(10, 40);
        let _ = writeln!(
            self.text,
            "extern const function table[];\nextern const u members;\nstatic u fuel = {fuel};\n\
             APART u by_table(u i, u x) {{ if (fuel == 0) return x; fuel--; return table[i % members](x); }}"
        );
        let by_table = ("by_table", vec![Kind::Word, Kind::Word], MOST_CALLS_OF_MEMBER);
        self.functions.push(Function {
            name: by_table.0.to_owned(),
            result: Kind::Word,
            arguments: by_table.1,
            variadic: false,
            calls: by_table.2,
        });
    }

    /// Adds the table of functions, comparisons of their addresses, and `program`.
    fn end(&mut self) {
        let members = self.members.join(", ");
        let _ = writeln!(
            self.text,
            "const function table[] = {{{members}}};\nconst u members = {};\n\
             static function volatile current = twin_0;\n\
             APART u which(function f) {{ return f == twin_0 ? 1 : f == twin_1 ? 2 : f == table[0] ? 3 : 4; }}\n\
             void program(void)\n{{",
            self.members.len()
        );
        self.locals = vec![Variable { name: "one".to_owned(), kind: Kind::Word, writable: false }];
        for _ in 0..self.random.range(*STATEMENTS.start(), *STATEMENTS.end()) {
            self.calls_left = MOST_CALLS;
            let statement = self.statement(3);
            let _ = writeln!(self.text, "{statement}show();");
        }
        // Every function at least once.
        for function in self.functions.clone() {
            self.calls_left = MOST_CALLS;
            if let Some(call) = self.call(&function) {
                let _ = writeln!(self.text, "out({});", function.result.word(&call));
            }
        }
        self.text.push_str(
            "show();\nout(which(twin_0)); out(which(twin_1)); out(which(current)); current = twin_1;\n\
             out(which(current)); out(current(5));\n\
             for (u i = 0; i < members; i++) out(table[i](i));\nshow();\n",
        );
        for global in &self.globals {
            let _ = writeln!(self.text, "out({});", global.kind.word(&global.name));
        }
        for Array { name, length, .. } in &self.arrays {
            let _ = writeln!(self.text, "for (u i = 0; i < {length}; i++) out({name}[i]);");
        }
        self.text.push_str(
            "out(of_pair(shared_pair)); out(of_five(shared_five)); out(of_five(other_five));\n\
             out(shared_either.a);\nshow();\n}\n",
        );
    }
}
