/*!
The part of a boot configuration that becomes a command line (lib/bootconfig.c,
Documentation/admin-guide/bootconfig.rst): the values of keys below `kernel`.

A key is a chain of words separated by dots. Braces prefix all keys within them. Values are words or quoted strings,
and lists have commas. Anything that the kernel would refuse is an error here.
*/

use crate::line::Word;

/// The largest boot configuration that the kernel reads, in bytes (`XBC_DATA_MAX`).
const MAX_SIZE: usize = 32 * 1024 - 1;
/// Maximum number of open braces (`XBC_DEPTH_MAX` is one more).
const MAX_BRACES: usize = 15;

/// A key and its values.
type Entry = (String, Vec<String>);

/// Returns the words that a boot configuration adds to the front of the command line: one for each value.
///
/// # Errors
/// The line, counted from 1, and what was expected there.
pub fn words(text: &str) -> Result<Vec<Word>, String> {
    if text.len() > MAX_SIZE {
        return Err(format!(
            "{} bytes; expected at most {MAX_SIZE}, which is all that a kernel reads",
            text.len()
        ));
    }
    let mut parser = Parser { rest: text, line: 1, entries: Vec::new() };
    parser.block("", 0)?;
    let mut words = Vec::new();
    for (key, values) in parser.entries {
        let Some(name) = key.strip_prefix("kernel.") else { continue };
        match values.is_empty() {
            true => words.push(Word { name: name.to_owned(), value: None }),
            false => words
                .extend(values.into_iter().map(|value| Word { name: name.to_owned(), value: Some(value) })),
        }
    }
    Ok(words)
}

struct Parser<'t> {
    rest: &'t str,
    line: usize,
    entries: Vec<Entry>,
}

impl<'t> Parser<'t> {
    /// Parses statements up to the closing brace of the innermost of `braces` open ones, or to the end of the text.
    fn block(&mut self, prefix: &str, braces: usize) -> Result<(), String> {
        loop {
            self.skip(true);
            match self.rest.chars().next() {
                None if braces == 0 => return Ok(()),
                None => return Err(self.problem("`}`")),
                Some('}') if braces > 0 => {
                    self.advance(1);
                    return Ok(());
                }
                Some(';') => self.advance(1),
                Some(_) => self.statement(prefix, braces)?,
            }
        }
    }

    fn statement(&mut self, prefix: &str, braces: usize) -> Result<(), String> {
        let key = self.key()?;
        let key = if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
        self.skip(false);
        for (operator, keeps, must_be_new) in [("+=", true, false), (":=", false, false), ("=", true, true)] {
            if self.rest.starts_with(operator) {
                self.advance(operator.len());
                let values = self.values()?;
                return self.assign(key, values, keeps, must_be_new);
            }
        }
        if self.rest.starts_with('{') {
            if braces == MAX_BRACES {
                return Err(self.problem("at most 15 open braces, which is all that a kernel allows"));
            }
            self.advance(1);
            return self.block(&key, braces + 1);
        }
        self.end()?;
        self.assign(key, Vec::new(), true, true)
    }

    fn assign(
        &mut self,
        key: String,
        values: Vec<String>,
        keeps: bool,
        must_be_new: bool,
    ) -> Result<(), String> {
        let line = self.line;
        match self.entries.iter_mut().find(|entry| entry.0 == key) {
            Some(_) if must_be_new => Err(format!("line {line}: {key} already has a value; use += or :=")),
            Some((_, old)) if keeps => {
                old.extend(values);
                Ok(())
            }
            Some((_, old)) => {
                *old = values;
                Ok(())
            }
            None => {
                self.entries.push((key, values));
                Ok(())
            }
        }
    }

    fn key(&mut self) -> Result<&'t str, String> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let key = &self.rest[..end];
        if key.is_empty() || key.split('.').any(str::is_empty) {
            return Err(self.problem("a key (letters, digits, `-`, `_`, with dots between)"));
        }
        self.advance(end);
        Ok(key)
    }

    /// Parses a list of values up to the end of its line or statement.
    fn values(&mut self) -> Result<Vec<String>, String> {
        let mut values = Vec::new();
        loop {
            // A line may end after a comma.
            self.skip(!values.is_empty());
            values.push(self.value()?);
            self.skip(false);
            if !self.rest.starts_with(',') {
                self.end()?;
                return Ok(values);
            }
            self.advance(1);
        }
    }

    fn value(&mut self) -> Result<String, String> {
        if let Some(quote) = self.rest.chars().next().filter(|c| matches!(c, '"' | '\'')) {
            let inside = &self.rest[1..];
            let end = inside.find(quote).ok_or_else(|| self.problem("the end of a quoted value"))?;
            self.advance(end + 2);
            return Ok(inside[..end].to_owned());
        }
        let end = self.rest.find([',', ';', '\n', '#', '}']).unwrap_or(self.rest.len());
        let value = self.rest[..end].trim_end();
        self.advance(end);
        Ok(value.to_owned())
    }

    /// Checks for the end of a statement, without consuming it.
    fn end(&mut self) -> Result<(), String> {
        self.skip(false);
        match self.rest.chars().next() {
            None | Some(';' | '\n' | '}') => Ok(()),
            Some(_) => Err(self.problem("the end of the line, `;` or `}`")),
        }
    }

    /// Skips white space and comments, and also ends of lines if `lines` is true.
    fn skip(&mut self, lines: bool) {
        loop {
            let blank = |c: char| c.is_whitespace() && (lines || c != '\n');
            let end = self.rest.find(|c| !blank(c)).unwrap_or(self.rest.len());
            self.advance(end);
            if !self.rest.starts_with('#') {
                return;
            }
            self.advance(self.rest.find('\n').unwrap_or(self.rest.len()));
        }
    }

    fn advance(&mut self, bytes: usize) {
        let (passed, rest) = self.rest.split_at(bytes);
        self.line += passed.matches('\n').count();
        self.rest = rest;
    }

    fn problem(&self, expected: &str) -> String {
        format!("line {}: expected {expected}", self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<String> {
        words(text).expect("a boot configuration").iter().map(Word::to_string).collect()
    }

    #[test]
    fn keys_below_kernel_become_words() {
        let text = "# a comment\nkernel.quiet\nkernel {\n  console = \"ttyS0,9600\", tty0 # two\n  foo.bar = 1; baz = x\n}\n\
                    init.single\nftrace.tracer = function\n";
        assert_eq!(told(text), ["quiet", "console=ttyS0,9600", "console=tty0", "foo.bar=1", "baz=x"]);
    }

    #[test]
    fn values_are_added_and_replaced() {
        assert_eq!(told("kernel.a = 1\nkernel.a += 2,\n 3"), ["a=1", "a=2", "a=3"]);
        assert_eq!(told("kernel.a = 1\nkernel.a := 2"), ["a=2"]);
        assert_eq!(told("kernel { a { b = 'x y' } }"), ["a.b=x y"]);
        assert_eq!(told(""), [""; 0]);
    }

    #[test]
    fn mistakes_name_their_line() {
        let cases = [
            ("kernel.a = 1\nkernel.a = 2", "line 2: kernel.a already has a value"),
            ("kernel {\n a = 1\n", "line 3: expected `}`"),
            ("kernel.a = \"x", "line 1: expected the end of a quoted value"),
            ("\n= 1", "line 2: expected a key"),
            ("kernel..a = 1", "line 1: expected a key"),
            ("kernel.a b", "line 1: expected the end of the line"),
            (&"a {\n".repeat(16), "line 16: expected at most 15 open braces"),
            // The kernel does not read more, and a stack would not hold as many.
            (&"a {\n".repeat(8_191), "line 16: expected at most 15 open braces"),
            (&"a {\n".repeat(1_000_000), "4000000 bytes; expected at most 32767"),
        ];
        for (text, expected) in cases {
            let error = words(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
