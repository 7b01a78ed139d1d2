//! Shapes of functions. Each is a different test of tracking arguments and results through calls.

use std::fmt::Write;

use super::conventions::{attributes, convention, passes};
use super::kinds::{ARGUMENTS, Kind, RESULTS};
use super::{Function, MOST_CALLS, MOST_CALLS_OF_MEMBER, Variable, Writer};

const SHAPES: &[fn(&mut Writer)] = &[
    Writer::plain,
    Writer::plain,
    Writer::plain,
    Writer::passed_on,
    Writer::passed_on,
    Writer::passed_on,
    Writer::passed_on,
    Writer::handed_on,
    Writer::handed_on,
    Writer::passed_result,
    Writer::variadic,
    Writer::variadic_list,
    Writer::recursive,
    Writer::constant_result,
    Writer::naked,
    Writer::naked,
    Writer::nested,
    Writer::labels,
    Writer::restarted,
    Writer::sized_array,
];

/// Maximum recursion depth of a function.
const DEEPEST: u32 = 7;

/// A function's type and convention.
struct Signature {
    result: Kind,
    arguments: Vec<Kind>,
    variadic: bool,
    convention: &'static str,
}

impl Writer {
    /// Adds a function.
    pub(super) fn function(&mut self) {
        let shape = *self.random.pick(SHAPES);
        shape(self);
    }

    fn signature(&mut self, arguments: std::ops::RangeInclusive<u32>) -> Signature {
        let convention = convention(self, false);
        let result = *self.random.pick(RESULTS);
        let count = self.random.range(*arguments.start(), *arguments.end());
        let all: &[Kind] = if self.random.once_in(2) { &[Kind::Word] } else { ARGUMENTS };
        let mut kinds: Vec<Kind> = (0..count).map(|_| *self.random.pick(all)).collect();
        kinds.retain(|&kind| passes(kind, convention, self.dialect));
        let result = if passes(result, convention, self.dialect) { result } else { Kind::Word };
        Signature { result, arguments: kinds, variadic: false, convention }
    }

    /// Adds a function of this type, with a body that is made while its arguments are in scope.
    fn define(&mut self, signature: Signature, body: impl FnOnce(&mut Writer, &Signature, &str) -> String) {
        let name = format!("f{}", self.unique());
        let most = *self.random.pick(&[MOST_CALLS_OF_MEMBER - 1, 300, MOST_CALLS]);
        (self.calls_left, self.times) = (most, 1);
        let argument = |(number, &kind): (usize, &Kind)| Variable {
            name: format!("p{number}"),
            kind,
            // The first argument is the number of words that follow.
            writable: kind == Kind::Word && !signature.variadic,
        };
        self.locals = signature.arguments.iter().enumerate().map(argument).collect();
        let mut arguments: Vec<String> =
            self.locals.iter().map(|local| format!("{} {}", local.kind.name(), local.name)).collect();
        if signature.variadic {
            arguments.push("...".to_owned());
        }
        if arguments.is_empty() {
            arguments.push("void".to_owned());
        }
        let body = body(self, &signature, &name);
        let (attributes, arguments) = (attributes(self, signature.convention), arguments.join(", "));
        let _ =
            writeln!(self.text, "{attributes}{} {name}({arguments})\n{{\n{body}}}", signature.result.name());
        let calls = most - self.calls_left + 1;
        self.locals.clear();
        let Signature { result, arguments, variadic, convention } = signature;
        if calls <= MOST_CALLS_OF_MEMBER
            && (result, &*arguments, variadic, convention) == (Kind::Word, &[Kind::Word], false, "")
        {
            self.members.push(name.clone());
        }
        self.functions.push(Function { name, result, arguments, variadic, calls });
    }

    /// Variables and statements.
    fn body(&mut self, statements: u32) -> String {
        let mut text = String::new();
        for _ in 0..self.random.range(0, 2) {
            let (name, value) = (format!("l{}", self.unique()), self.word(2));
            text += &format!("u {name} = {value};\n");
            self.locals.push(Variable { name, kind: Kind::Word, writable: true });
        }
        text + &self.statements(statements, 2)
    }

    fn plain(&mut self) {
        let signature = self.signature(0..=7);
        self.define(signature, |writer, signature, _| {
            let body = writer.body(3);
            format!("{body}return {};\n", writer.value(signature.result))
        });
    }

    /// Passes its arguments on to another function, maybe in another order, as its last action.
    fn passed_on(&mut self) {
        let callee = self.callee(None);
        let mut signature = self.signature(1..=6);
        if let Some(callee) = &callee
            && passes(callee.result, signature.convention, self.dialect)
        {
            signature.result = callee.result;
            // The arguments of the callee determine those of the function.
            if self.random.once_in(2) {
                let fits = callee.arguments.iter().copied();
                signature.arguments =
                    fits.filter(|&kind| passes(kind, signature.convention, self.dialect)).collect();
            }
        }
        self.define(signature, |writer, signature, _| {
            let before = match writer.random.range(0, 4) {
                0 => writer.statement(1),
                1 => format!("out({});\n", writer.called_word()),
                _ => String::new(),
            };
            let call = writer.callee(Some(signature.result)).and_then(|callee| writer.call(&callee));
            let functions = writer.locals.iter().filter(|local| local.kind == Kind::Function);
            let function = functions.map(|local| local.name.clone()).next();
            let value = match (call, function) {
                (None, Some(function)) if signature.result == Kind::Word && writer.calls_left > 100 => {
                    writer.calls_left -= MOST_CALLS_OF_MEMBER.min(writer.calls_left);
                    format!("{function}({})", writer.value(Kind::Word))
                }
                (Some(call), _) => call,
                (None, _) => writer.value(signature.result),
            };
            format!("{before}return {value};\n")
        });
    }

    /// Only passes its words on to another function: from registers to the stack, or back.
    fn handed_on(&mut self) {
        let convention = convention(self, false);
        let arguments = vec![Kind::Word; self.random.range(1, 4) as usize];
        let signature = Signature { result: Kind::Word, arguments, variadic: false, convention };
        self.define(signature, |writer, signature, _| {
            let Some(callee) = writer.callee(None) else { return "return p0;\n".to_owned() };
            let count = signature.arguments.len() as u32;
            let mut next = writer.random.range(0, count);
            let mut values: Vec<String> = Vec::new();
            for &kind in &callee.arguments {
                values.push(if kind == Kind::Word && !callee.variadic {
                    next = (next + 1) % count;
                    format!("p{next}")
                } else {
                    writer.locals.clear();
                    writer.value(kind)
                });
            }
            if callee.variadic {
                values[0] = format!("{count}u");
                values.extend((0..count).map(|argument| format!("p{argument}")));
            }
            writer.calls_left -= callee.calls.min(writer.calls_left);
            let call = format!("{}({})", callee.name, values.join(", "));
            format!("return {};\n", callee.result.word(&call))
        });
    }

    /// Keeps a result for a while.
    fn passed_result(&mut self) {
        let mut signature = self.signature(1..=5);
        if let Some(callee) = self.callee(None)
            && passes(callee.result, signature.convention, self.dialect)
        {
            signature.result = callee.result;
        }
        self.define(signature, |writer, signature, _| {
            let call = writer.callee(Some(signature.result)).and_then(|callee| writer.call(&callee));
            let value = call.unwrap_or_else(|| writer.value(signature.result));
            let name = format!("l{}", writer.unique());
            writer.locals.push(Variable { name: name.clone(), kind: signature.result, writable: false });
            let body = writer.statements(2, 2);
            format!(
                "{} {name} = {value};\n{body}return {};\n",
                signature.result.name(),
                writer.value(signature.result)
            )
        });
    }

    fn variadic(&mut self) {
        let mut arguments = vec![Kind::Word];
        if self.random.once_in(3) {
            arguments.extend([*self.random.pick(ARGUMENTS), Kind::Word]);
        }
        let last = arguments.len() - 1;
        let signature = Signature { result: Kind::Word, arguments, variadic: true, convention: "" };
        self.define(signature, |writer, _, _| {
            let value = writer.word(2);
            format!(
                "__builtin_va_list list;\n__builtin_va_start(list, p{last});\nu n = p0, r = {value};\n\
                 while (n-- > 0) r = r * 3 + __builtin_va_arg(list, u);\n__builtin_va_end(list);\nreturn r;\n"
            )
        });
    }

    /// Passes its arguments to another function that reads them one by one.
    fn variadic_list(&mut self) {
        let number = self.unique();
        let signature =
            Signature { result: Kind::Word, arguments: vec![Kind::Word], variadic: true, convention: "" };
        let value = self.word(1);
        let _ = writeln!(
            self.text,
            "APART u listed_{number}(u n, __builtin_va_list list)\n{{\nu r = {value};\n\
             while (n-- > 0) r = r * 5 + __builtin_va_arg(list, u);\nreturn r;\n}}"
        );
        self.define(signature, |writer, _, _| {
            let more = writer.word(1);
            format!(
                "__builtin_va_list list;\n__builtin_va_start(list, p0);\nu r = listed_{number}(p0, list);\n\
                 __builtin_va_end(list);\nreturn r + {more};\n"
            )
        });
    }

    fn recursive(&mut self) {
        let mut signature = self.signature(0..=4);
        signature.arguments.insert(0, Kind::Word);
        self.define(signature, |writer, signature, name| {
            writer.locals[0].writable = false;
            writer.times = DEEPEST + 1;
            let own = writer.calls_left / writer.times;
            writer.calls_left -= writer.times.min(own);
            let statement = writer.statement(1);
            let values: Vec<String> =
                signature.arguments[1..].iter().map(|&kind| writer.value(kind)).collect();
            let values: String = values.iter().map(|value| format!(", {value}")).collect();
            let end = writer.value(signature.result);
            let result = format!("{name}((p0 & {DEEPEST}) - 1{values})");
            let after = if writer.random.once_in(2) {
                format!(
                    "{} result = {result};\nout({});\nreturn result;\n",
                    signature.result.name(),
                    writer.word(1)
                )
            } else {
                format!("return {result};\n")
            };
            format!("if ((p0 & {DEEPEST}) == 0) return {end};\n{statement}{after}")
        });
    }

    fn constant_result(&mut self) {
        let mut signature = self.signature(0..=2);
        signature.result = *self.random.pick(&[Kind::Word, Kind::Word, Kind::Byte, Kind::Long]);
        self.define(signature, |writer, _, _| format!("return {};\n", writer.constant()));
    }

    /// A nested function, which accesses the outer one's variables through a register of its own. clang has none.
    fn nested(&mut self) {
        if self.dialect.clang {
            return self.plain();
        }
        let mut signature = self.signature(1..=3);
        signature.result = Kind::Word;
        self.define(signature, |writer, _, _| {
            let (value, inside) = (writer.word(1), writer.word(2));
            let (a, b) = (writer.word(1), writer.word(1));
            let number = writer.unique();
            let statement = writer.statement(2);
            format!(
                "u held = {value};\n__attribute__((noinline)) u within_{number}(u q) {{ held += q; return held * 3 ^ {inside}; }}\n\
                 u r = within_{number}({a}) + within_{number}({b});\n{statement}return r + held;\n"
            )
        });
    }

    /// Labels whose addresses are taken.
    fn labels(&mut self) {
        let mut signature = self.signature(0..=3);
        signature.arguments.insert(0, Kind::Word);
        signature.result = Kind::Word;
        self.define(signature, |writer, _, _| {
            let (count, number) = (writer.random.range(3, 6), writer.unique());
            let table: Vec<String> = (0..count).map(|label| format!("&&label_{number}_{label}")).collect();
            writer.times = 8;
            let mut text = format!(
                "static void *const labels[] = {{{}}};\nu steps = p0 & 7, r = {};\n\
                 goto *labels[steps % {count}];\n",
                table.join(", "),
                writer.word(1)
            );
            for label in 0..count {
                let statement = writer.statement(1);
                text += &format!(
                    "label_{number}_{label}:\n{statement}if (steps == 0) return r;\nsteps--; r += {};\n\
                     goto *labels[(r + steps) % {count}];\n",
                    writer.word(1)
                );
            }
            text
        });
    }

    /// A function that is reentered by `longjmp`.
    fn restarted(&mut self) {
        let number = self.unique();
        let (save, back) = *self.random.pick(&[("setjmp", "longjmp"), ("save_own", "restore_own")]);
        let _ = writeln!(
            self.text,
            "static void *buffer_{number}[12];\nAPART void leave_{number}(u x)\n{{\n\
             if (x & 1) {back}(buffer_{number}, (int)(x & 6) + 1);\nout(x);\n}}"
        );
        let mut signature = self.signature(1..=3);
        signature.result = Kind::Word;
        self.define(signature, |writer, _, _| {
            // Variables that change after `setjmp` have no defined value after `longjmp`.
            writer.locals.iter_mut().for_each(|local| local.writable = false);
            let (value, statement, after) = (writer.word(2), writer.statement(1), writer.word(2));
            format!(
                "volatile u again = 0;\nint result = {save}(buffer_{number});\n\
                 if (again++ < 2) leave_{number}({value});\n{statement}return again * 8 + (u)result + {after};\n"
            )
        });
    }

    /// An array whose size is determined at run time.
    fn sized_array(&mut self) {
        let mut signature = self.signature(0..=3);
        signature.result = Kind::Word;
        self.define(signature, |writer, _, _| {
            let (size, value, statement) = (writer.word(1), writer.word(1), writer.statement(1));
            format!(
                "u n = (({size}) & 7) + 1, a[n];\nfor (u i = 0; i < n; i++) a[i] = i * {value};\n{statement}\
                 u r = 0;\nfor (u i = 0; i < n; i++) r = r * 5 + a[i];\nreturn r;\n"
            )
        });
    }
}
