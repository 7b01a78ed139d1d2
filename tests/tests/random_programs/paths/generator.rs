/*!
Random programs whose functions decide by the words of objects, with a path through them.

The last function is the path's entry. Its first argument points to an object, which points to another one, and so on.
Facts are about members of these objects and of a variable. Members with an even number never change while a path runs,
and some facts about them are called stable; functions, others that stay calls, and a signal handler change those with an
odd number. `main` calls the entry with the objects as the facts say, and then with members that differ, a chain that is
a cycle, or one that ends.
*/

use std::fmt::Write;

use kshrink_tests::Random;
use serde_json::{Value, json};

/// Number of functions; the first of them call no others, and pointers in objects lead to them.
const FUNCTIONS: u32 = 6;
const LEAVES: u32 = 2;
/// Number of objects in the chain.
const OBJECTS: u32 = 3;
/// Number of words, of half-words and of bytes of an object, which come in this order; a pointer to the next object and one to
/// a function follow.
const MEMBERS: u32 = 6;
/// Number of calls of the entry.
const ROUNDS: u32 = 240;

/// The kinds of members: the name, its width in bytes, and its offset.
const KINDS: [(&str, u32, u32); 3] = [("w", 4, 0), ("h", 2, 4 * MEMBERS), ("b", 1, 6 * MEMBERS)];
const NEXT: u32 = (7 * MEMBERS).next_multiple_of(4);
const CALL: u32 = NEXT + 4;

/// A program and its path.
pub struct Program {
    /// The source.
    pub text: String,
    /// The section `paths` of a plan.
    pub paths: Value,
    /// The names of the functions that a path may copy.
    pub functions: [String; FUNCTIONS as usize],
}

/// Returns the program for a number.
pub fn generate(seed: u64) -> Program {
    let mut random = Random::new(seed);
    let small =
        |random: &mut Random| *random.pick(&[0, 0, 1, 1, 2, 3, 4, 6, 0x80, 0xFF, 0x41, 0x1234, 0xDEAD_BEEF]);
    let objects =
        (0..=OBJECTS).map(|_| [0; 3].map(|_| [0; MEMBERS as usize].map(|_: u32| small(&mut random))));
    let mut objects: Vec<_> = objects.collect();
    let mut calls: Vec<u32> = objects.iter().map(|_| random.range(0, LEAVES - 1)).collect();
    // The facts about two objects may hold for one.
    for number in 1..OBJECTS as usize {
        if random.once_in(2) {
            (objects[number], calls[number]) = (objects[0], calls[0]);
        }
    }
    let (counts, addresses) = (random.once_in(3), random.once_in(2));
    let mut writer = Writer {
        objects,
        calls,
        counts,
        addresses,
        loops: 0,
        text: HEAD.to_owned(),
        at: 0,
        depth: 0,
        random,
    };
    for number in 0..FUNCTIONS {
        writer.function(number);
    }
    writer.main();
    let paths = writer.paths();
    Program { text: writer.text, paths, functions: std::array::from_fn(|number| format!("f{number}")) }
}

const HEAD: &str = "\
#include <signal.h>
#include <stdio.h>
#include <string.h>
typedef unsigned u32;
#define REG __attribute__((regparm(3)))
#define FUNCTION REG __attribute__((noinline, noclone)) u32
struct object {
	u32 w[6];
	unsigned short h[6];
	unsigned char b[6];
	struct object *next;
	REG u32 (*call)(struct object *, u32, u32);
};
static struct object objects[3];
struct object config;
static u32 fuel, sum;

static void change(u32 x)
{
	struct object *o = x & 8 ? &config : &objects[x % 3];

	o->w[x >> 4 & 4 | 1] += x >> 7;
	o->h[3] ^= x >> 3;
	o->b[x >> 5 & 2 | 1] = x;
}
static void handler(int signal) { change(sum * signal); }
/* Stays a call. It reads and changes the variable of its caller, and members. */
FUNCTION outside(u32 *at, u32 x, u32 y)
{
	sum = sum * 31 + *at + x;
	if (sum & 1)
		raise(SIGUSR1);
	else if (sum & 2)
		change(sum);
	*at += y;
	return sum >> 3;
}
";

struct Writer {
    /// The members as the facts say: words, half-words and bytes of each object, and of the variable `config`.
    objects: Vec<[[u32; MEMBERS as usize]; 3]>,
    /// The numbers of the functions to which they point.
    calls: Vec<u32>,
    text: String,
    /// The function that is being written.
    at: u32,
    /// The number of statements around the current one, and of loops among them.
    depth: u32,
    loops: u32,
    /// Whether every function counts its calls, and so stores to a variable.
    counts: bool,
    /// Whether variables in frames have addresses.
    addresses: bool,
    random: Random,
}

impl Writer {
    fn function(&mut self, number: u32) {
        self.at = number;
        let body: String = (0..self.random.range(3, 7)).map(|_| self.statement()).collect();
        let count = if self.counts { "\tif (!fuel)\n\t\treturn x;\n\tfuel--;\n" } else { "" };
        let _ = write!(
            self.text,
            "\nFUNCTION f{number}(struct object *o, u32 x, u32 y)\n{{\n\tu32 a = y, v[4] = {{ x, 1, y, 2 }};\n\n{count}{body}\treturn x + a + v[1];\n}}\n"
        );
    }

    /// A member of an object. Only an odd one may be stored to.
    fn member(&mut self, stored: bool) -> String {
        let object = *self.random.pick(&["o->", "o->", "o->", "config."]);
        let (name, ..) = *self.random.pick(&KINDS);
        let number = self.random.range(0, MEMBERS / 2 - 1) * 2 + u32::from(stored || self.random.once_in(3));
        format!("{object}{name}[{number}]")
    }

    fn value(&mut self, depth: u32) -> String {
        if depth == 0 || self.random.once_in(3) {
            return match self.random.range(0, 7) {
                0 => "x".into(),
                1 => "y".into(),
                2 => "a".into(),
                3 => format!("v[{}]", self.random.range(0, 3)),
                4 => format!("{}u", self.random.next() >> self.random.range(0, 31)),
                _ => self.member(false),
            };
        }
        let (one, other) = (self.value(depth - 1), self.value(depth - 1));
        match self.random.range(0, 9) {
            0 => format!("({one} << ({other} & 31))"),
            1 => format!("({one} >> ({other} & 31))"),
            2 => format!("({one} / ({other} | 1))"),
            3 => format!("(u32)(((unsigned long long){one} * {other}) >> 13)"),
            4 => format!("(u32)((int){one} >> 3)"),
            5 => format!("({one} < {other})"),
            _ => format!("({one} {} {other})", self.random.pick(&["+", "-", "*", "&", "|", "^"])),
        }
    }

    fn condition(&mut self) -> String {
        let member = self.member(false);
        match self.random.range(0, 7) {
            0 => member,
            1 => format!("!{member}"),
            2 => format!("{member} & {}", 1 << self.random.range(0, 7)),
            3 => format!("(int){member} < {}", self.random.range(0, 5) as i32 - 1),
            4 => format!("{member} >= {}", self.random.range(0, 9)),
            5 => format!("{member} == {}", self.random.range(0, 4)),
            6 => format!("{} == {}", self.value(1), self.value(1)),
            _ => format!("{member} && {} != {}", self.member(false), self.value(0)),
        }
    }

    fn block(&mut self) -> String {
        self.depth += 1;
        let statements: String = (0..self.random.range(1, 2)).map(|_| self.statement()).collect();
        self.depth -= 1;
        let tabs = "\t".repeat(self.depth as usize + 1);
        format!("{{\n{statements}{tabs}}}")
    }

    fn statement(&mut self) -> String {
        let tabs = "\t".repeat(self.depth as usize + 1);
        let simple = self.depth >= 3;
        let statement = match self.random.range(if simple { 5 } else { 0 }, 15) {
            0 | 1 => format!("if ({}) {} else {}", self.condition(), self.block(), self.block()),
            2 => format!("if ({}) {}", self.condition(), self.block()),
            3 => {
                let (member, depth) = (self.member(false), self.depth);
                self.loops += 1;
                let block = self.block();
                self.loops -= 1;
                format!("for (u32 i{depth} = 0; i{depth} < ({member} & 7); i{depth}++) {block}")
            }
            4 => {
                let selector = self.member(false);
                let cases: String = (0..self.random.range(2, 6))
                    .map(|case| {
                        format!("{tabs}case {case}: {}{tabs}\tbreak;\n", self.statement().trim_start())
                    })
                    .collect();
                format!("switch ({selector} & 7) {{\n{cases}{tabs}}}")
            }
            5 => format!("x = {};", self.value(2)),
            6 => format!("y ^= {};", self.value(2)),
            7 => format!("a += {};", self.value(2)),
            8 | 9 => format!("{} = {};", self.member(true), self.value(2)),
            11 if self.addresses => format!("memset(v, {}, sizeof v);", self.random.range(0, 1)),
            10 | 11 => format!("v[{}] = {};", self.random.range(0, 3), self.value(1)),
            12 if !self.addresses => format!("x += outside(&sum, {}, y);", self.value(1)),
            12 => match self.random.once_in(2) {
                true => format!("x += outside(&a, {}, {});", self.value(1), self.value(1)),
                false => format!("y -= outside(v + {}, {}, x);", self.random.range(0, 3), self.value(1)),
            },
            13 => "if (o->next)\n\t\to = o->next;".into(),
            _ if self.at < LEAVES || !self.counts && self.loops > 0 => format!("x -= {};", self.value(1)),
            14 if self.random.once_in(2) => format!("x ^= o->call(o, {}, a);", self.value(1)),
            _ => {
                let callee = self.random.range(0, self.at - 1);
                format!("x ^= f{callee}(o, {}, {});", self.value(1), self.value(1))
            }
        };
        format!("{tabs}{statement}\n")
    }

    fn main(&mut self) {
        let words = |members: &[u32; MEMBERS as usize]| members.map(|member| member.to_string()).join(", ");
        let mut bases = String::new();
        for (object, call) in self.objects.iter().zip(&self.calls) {
            let [w, h, b] = object;
            let h = h.map(|member| member & 0xFFFF);
            let b = b.map(|member| member & 0xFF);
            let _ = writeln!(
                bases,
                "\t{{ {{ {} }}, {{ {} }}, {{ {} }}, 0, f{call} }},",
                words(w),
                words(&h),
                words(&b)
            );
        }
        let entry = FUNCTIONS - 1;
        let _ = write!(
            self.text,
            "\nstatic const struct object bases[] = {{\n{bases}}};\n\n\
             static u32 mix(u32 sum, const struct object *o)\n{{\n\
             \tfor (u32 i = 0; i < 6; i++)\n\t\tsum = (sum ^ o->w[i] ^ o->h[i] << 8 ^ o->b[i]) * 16777619u;\n\treturn sum;\n}}\n\n\
             int main(void)\n{{\n\tu32 seed = 1;\n\n\tsignal(SIGUSR1, handler);\n\
             \tfor (u32 round = 0; round < {ROUNDS}; round++) {{\n\
             \t\tstruct object *o = &objects[0], *other;\n\t\tu32 x;\n\n\
             \t\tseed = seed * 1103515245 + 12345;\n\t\tx = seed >> 8;\n\
             \t\tmemcpy(objects, bases, sizeof objects);\n\t\tconfig = bases[3];\n\
             \t\tobjects[0].next = &objects[1], objects[1].next = &objects[2];\n\
             \t\tother = x % 4 ? &objects[x % 3] : &config;\n\
             \t\tswitch (round % 12) {{\n\
             \t\tcase 6: other->w[x >> 4 & 3] ^= 1 << (x >> 7 & 31); break;\n\
             \t\tcase 7: other->b[x >> 4 & 3] += x >> 7; break;\n\
             \t\tcase 8: other->h[x >> 4 & 3] = x; break;\n\
             \t\tcase 5: case 9: objects[x % 3].next = &objects[x / 3 % 3]; break;\n\
             \t\tcase 10: objects[x % 3].next = 0; break;\n\
             \t\tcase 11: other->call = x & 64 ? f0 : f1; break;\n\t\t}}\n\
             \t\tfuel = 200;\n\t\tsum = round;\n\
             \t\tsum ^= f{entry}(o, round % 5, x);\n\
             \t\tfor (u32 i = 0; i < 3; i++)\n\t\t\tsum = mix(sum, &objects[i]);\n\
             \t\tprintf(\"%u %x\\n\", round, mix(sum, &config));\n\t}}\n\treturn 0;\n}}\n"
        );
    }

    /// The path's objects, facts and calls.
    fn paths(&mut self) -> Value {
        let names = ["first", "second", "third", "config"];
        let count = self.random.range(1, OBJECTS) as usize;
        let mut objects: Vec<Value> = Vec::new();
        let mut known: Vec<usize> = Vec::new();
        for number in 0..count {
            let from = match number {
                0 => json!({"argument": 0}),
                _ => json!({"member": {"object": names[number - 1], "offset": NEXT}}),
            };
            let mut object = json!({"name": names[number], "from": from});
            // The pointers do not change while the path runs.
            if self.random.once_in(2) {
                object["stable"] = "only main stores it".into();
            }
            if number == 0 {
                object["exists"] = "it is an object of main".into();
            }
            objects.push(object);
            known.push(number);
        }
        if self.random.once_in(2) {
            objects.push(json!({"name": "config", "from": {"variable": "config"}}));
            known.push(OBJECTS as usize);
        }
        let mut facts = Vec::new();
        for number in known {
            let name = names[number.min(3)];
            for (kind, (_, width, start)) in KINDS.into_iter().enumerate() {
                for member in 0..MEMBERS {
                    if !self.random.once_in(2) {
                        continue;
                    }
                    let all = u32::MAX >> (32 - 8 * width);
                    let value = self.objects[number][kind][member as usize] & all;
                    let mut fact = json!({"object": name, "offset": start + member * width, "width": width, "value": value});
                    if self.random.once_in(4) {
                        let mask = all & *self.random.pick(&[1, 0xF0, 0xFF00, 0x8000_0001, u32::MAX]);
                        (fact["mask"], fact["value"]) = (mask.into(), (value & mask).into());
                    }
                    if member % 2 == 0 && self.random.once_in(2) {
                        fact["stable"] = "only main stores it".into();
                    }
                    facts.push(fact);
                }
            }
            if self.random.once_in(2) {
                facts.push(
                    json!({"object": name, "offset": CALL, "symbol": format!("f{}", self.calls[number])}),
                );
            }
        }
        let mut targets = Vec::new();
        let mut calls = vec![json!("outside")];
        for function in 0..FUNCTIONS {
            if self.random.once_in(2) {
                let callee = self.random.range(0, LEAVES - 1);
                targets.push(json!({"caller": format!("f{function}"), "callee": format!("f{callee}")}));
            }
            if function + 1 < FUNCTIONS && self.random.once_in(6) {
                calls.push(json!(format!("f{function}")));
            }
        }
        let entry = format!("f{}", FUNCTIONS - 1);
        json!({"paths": [{"entry": entry, "calls": calls, "targets": targets, "objects": objects, "facts": facts}]})
    }
}
