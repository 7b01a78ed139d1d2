//! The text of a C file: the options that set the size of a variable.
//!
//! The text is split into top-level definitions and macros. It is not compiled: both sides of an `#if` count, and
//! included headers do not. A variable is linked with an option
//! - by its declaration, if the declaration uses the option: `static char log[1 << CONFIG_X];`
//! - by a function that assigns to the variable and uses the option: `table = alloc(1 << CONFIG_X);`
//!
//! A macro or an enumeration constant of the file that uses the option stands for it.

use std::collections::{BTreeMap, BTreeSet};

use crate::c_text::{Piece, pieces};

/// The place of the memory that a variable holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The variable itself; its declaration sets the size.
    Image,
    /// Memory that the variable points to; the function that allocates it sets the size.
    Allocated,
}

/// A token: an identifier, a number, or an operator. Comments and literals are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token<'t> {
    text: &'t str,
    /// Whether it is the first character of its line.
    begins_line: bool,
}

/// A top-level definition.
#[derive(Clone, Debug, Default)]
struct Definition<'t> {
    tokens: Vec<Token<'t>>,
    is_function: bool,
}

/// A C file without comments and literals.
#[derive(Clone, Debug)]
pub struct Text(String);

impl Text {
    /// Removes comments and literals from a C file, and joins continued lines.
    pub fn new(source: &str) -> Text {
        let joined = source.replace("\r\n", "\n").replace("\\\n", " ");
        let plain = |piece| match piece {
            Piece::Code(text) => text,
            Piece::Literal(_) | Piece::Comment(_) => " ",
        };
        Text(pieces(&joined).map(plain).collect())
    }
}

/// A parsed C file.
#[derive(Clone, Debug)]
pub struct Source<'t> {
    definitions: Vec<Definition<'t>>,
    /// Macros and enumeration constants, each with its body.
    names: BTreeMap<&'t str, Vec<Token<'t>>>,
    /// The options that the text mentions, also in `#if`.
    mentioned: BTreeSet<&'t str>,
}

impl<'t> Source<'t> {
    /// Parses a text. Damaged text has fewer definitions.
    pub fn parse(text: &'t Text) -> Source<'t> {
        let mut source =
            Source { definitions: Vec::new(), names: BTreeMap::new(), mentioned: BTreeSet::new() };
        let mut code = Vec::new();
        for line in text.0.lines() {
            let tokens = tokens(line);
            source.mentioned.extend(tokens.iter().filter_map(|token| token.text.strip_prefix("CONFIG_")));
            match tokens.first() {
                Some(first) if first.text == "#" => {
                    if let [_, define, name, body @ ..] = &tokens[..]
                        && define.text == "define"
                    {
                        source.names.entry(name.text).or_default().extend(body);
                    }
                }
                _ => code.extend(tokens),
            }
        }
        source.definitions = definitions(code);
        for definition in source.definitions.iter().filter(|definition| !definition.is_function) {
            for (name, body) in constants(&definition.tokens) {
                source.names.entry(name).or_default().extend(body);
            }
        }
        source
    }

    /// Returns the options that the text mentions outside of comments and literals, by name without `CONFIG_`.
    pub fn mentioned(&self) -> impl Iterator<Item = &'t str> {
        self.mentioned.iter().copied()
    }

    /// Whether an option sets the size of what a variable holds, as far as the text shows.
    pub fn sets_size(&self, option: &str, variable: &str, place: Place) -> bool {
        let names = self.names_of(option);
        let uses = |tokens: &[Token<'_>]| tokens.iter().any(|token| names.contains(token.text));
        self.definitions.iter().any(|definition| match place {
            Place::Image => definition.declaration_of(variable).is_some_and(uses),
            Place::Allocated => definition.assigns_to(variable) && uses(&definition.tokens),
        })
    }

    /// Whether every use of an option is the exponent of a power of two: `1 << CONFIG_X` or `BIT(CONFIG_X)`.
    pub fn is_exponent(&self, option: &str) -> bool {
        let name = format!("CONFIG_{option}");
        let bodies = self.names.values().chain(self.definitions.iter().map(|definition| &definition.tokens));
        let mut uses = bodies.flat_map(|tokens| {
            let is_use = |&number: &usize| tokens[number].text == name;
            (0..tokens.len()).filter(is_use).map(|number| {
                let before = |distance: usize| number.checked_sub(distance).map(|number| tokens[number].text);
                before(1) == Some("<<") || (before(1) == Some("(") && before(2) == Some("BIT"))
            })
        });
        uses.next().is_some_and(|first| first && uses.all(|is_exponent| is_exponent))
    }

    /// Returns the identifiers that stand for an option: its own, and the macros and constants that use one of them.
    fn names_of(&self, option: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::from([format!("CONFIG_{option}")]);
        loop {
            let uses = |body: &[Token<'_>]| body.iter().any(|token| found.contains(token.text));
            let more = |(name, body): &(&&str, &Vec<Token<'_>>)| !found.contains(**name) && uses(body);
            let new: Vec<String> =
                self.names.iter().filter(more).map(|(name, _)| (*name).to_owned()).collect();
            if new.is_empty() {
                return found;
            }
            found.extend(new);
        }
    }
}

impl<'t> Definition<'t> {
    /// Returns the declaration of a variable without its initial value; `None` if this is none.
    fn declaration_of(&self, variable: &str) -> Option<&[Token<'t>]> {
        let is_other = self.tokens.first().is_some_and(|first| ["extern", "typedef"].contains(&first.text));
        if self.is_function || is_other {
            return None;
        }
        let end = self.tokens.iter().position(|token| token.text == "=").unwrap_or(self.tokens.len());
        let declaration = &self.tokens[..end];
        let mut depth = 0_usize;
        for (number, token) in declaration.iter().enumerate() {
            match token.text {
                "{" => depth += 1,
                "}" => depth = depth.saturating_sub(1),
                name if depth == 0 && name == variable => {
                    let before = number.checked_sub(1).map(|before| declaration[before].text);
                    return (before != Some("&")).then_some(declaration);
                }
                _ => {}
            }
        }
        None
    }

    /// Whether this is a function that assigns to a variable, one of its elements, or one of its members.
    fn assigns_to(&self, variable: &str) -> bool {
        const BEFORE: [&str; 9] = [";", "{", "}", ")", "(", ",", "=", "else", ":"];
        let is_assigned = |number: usize| {
            let before = number.checked_sub(1).map(|before| self.tokens[before].text);
            before.is_some_and(|before| BEFORE.contains(&before)) && {
                let rest = after_path(&self.tokens[number + 1..]);
                rest.first().is_some_and(|token| token.text == "=")
            }
        };
        self.is_function
            && (0..self.tokens.len())
                .any(|number| self.tokens[number].text == variable && is_assigned(number))
    }
}

/// Returns the tokens after members and elements: `= 0` of `.size[2] = 0`.
fn after_path<'a, 't>(mut tokens: &'a [Token<'t>]) -> &'a [Token<'t>] {
    loop {
        match tokens {
            [first, _, rest @ ..] if [".", "->"].contains(&first.text) => tokens = rest,
            [first, ..] if first.text == "[" => {
                let mut depth = 0_usize;
                let closes = |token: &Token<'_>| {
                    match token.text {
                        "[" => depth += 1,
                        "]" => depth -= 1,
                        _ => {}
                    }
                    depth == 0
                };
                let Some(end) = tokens.iter().position(closes) else { return &[] };
                tokens = &tokens[end + 1..];
            }
            _ => return tokens,
        }
    }
}

/// Splits code into top-level definitions. A brace at the start of a line closes a definition, so that branches of `#if`
/// with unequal braces end with their function.
fn definitions(code: Vec<Token<'_>>) -> Vec<Definition<'_>> {
    let mut found = Vec::new();
    let mut current = Definition::default();
    let mut depth = 0_usize;
    for token in code {
        match token.text {
            "{" => {
                if depth == 0 && !current.is_function {
                    let has_value = current.tokens.iter().any(|token| token.text == "=");
                    let is_call = current.tokens.last().is_some_and(|token| token.text == ")");
                    current.is_function = is_call && !has_value;
                }
                depth += 1;
            }
            "}" => depth = if token.begins_line { 0 } else { depth.saturating_sub(1) },
            _ => {}
        }
        current.tokens.push(token);
        let ends = match token.text {
            "}" => current.is_function,
            ";" => true,
            _ => false,
        };
        if ends && depth == 0 {
            found.push(std::mem::take(&mut current));
        }
    }
    found
}

/// Returns the constants of an enumeration, each with the tokens of its value; none for another definition.
fn constants<'a, 't>(tokens: &'a [Token<'t>]) -> Vec<(&'t str, &'a [Token<'t>])> {
    let Some(open) = tokens.iter().position(|token| token.text == "{") else { return Vec::new() };
    if !tokens[..open].iter().any(|token| token.text == "enum") {
        return Vec::new();
    }
    let end =
        tokens[open..].iter().position(|token| token.text == "}").map_or(tokens.len(), |end| open + end);
    let entries = tokens[open + 1..end].split(|token| token.text == ",");
    entries.filter_map(|entry| Some((entry.first()?.text, &entry[1..]))).collect()
}

/// Returns the tokens of a line.
fn tokens(line: &str) -> Vec<Token<'_>> {
    /// The operators of several characters that matter here. `==` must not look like an assignment.
    const OPERATORS: [&str; 10] = ["<<=", ">>=", "<<", ">>", "==", "!=", "<=", ">=", "->", "##"];
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let length = if first.is_whitespace() {
            rest = &rest[first.len_utf8()..];
            continue;
        } else if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else {
            let operator = OPERATORS.iter().find(|operator| rest.starts_with(**operator));
            operator.map_or(first.len_utf8(), |operator| operator.len())
        };
        found.push(Token { text: &rest[..length], begins_line: rest.len() == line.len() });
        rest = &rest[length..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `CONFIG_X` sets the size of the variable `table` in a file.
    fn links(source: &str, place: Place) -> bool {
        Source::parse(&Text::new(source)).sets_size("X", "table", place)
    }

    #[test]
    fn allocating_function_links_the_option() {
        let allocated = |source: &str| links(source, Place::Allocated);
        let macros = "#define SIZE (1 << \\\n\tCONFIG_X)\n#define DOUBLE (2 * SIZE)\nstatic u32 *table;\n";
        let function =
            |body: &str| format!("{macros}void __init start(int n)\n{{\n\t{body}\n}}\nint other = SIZE;\n");
        assert!(allocated(&function("table = alloc(\"name\", DOUBLE);")));
        assert!(allocated(&function("if (n)\n\t\ttable[n].entries = alloc(1 << CONFIG_X);")));
        assert!(allocated(
            "enum {\n\tBITS = CONFIG_X,\n\tSIZE = 1 << BITS,\n};\nint f(void) { table = a(SIZE); }"
        ));
        // The function only reads it, compares it, or has a variable of the same name.
        assert!(!allocated(&function("use(table[SIZE]);")));
        assert!(!allocated(&function("if (table == SIZE) return;")));
        assert!(!allocated(&function("u32 *table = alloc(SIZE);")));
        assert!(!allocated(&function("n->table = alloc(SIZE);")));
        // Another function uses the option.
        assert!(!allocated(&function("table = alloc(n);")));
        let branches =
            "void f(void)\n{\n#ifdef A\n\tif (a) {\n#else\n\tif (b) {\n#endif\n\t\ttable = 0; }\n}\n";
        assert!(!allocated(&format!("{branches}int g(void)\n{{\n\treturn CONFIG_X;\n}}\n")));
    }

    #[test]
    fn declaration_links_the_option() {
        let image = |source: &str| links(source, Place::Image);
        assert!(image("#define LEN (1 << CONFIG_X)\nstatic char table[LEN] __aligned(4);"));
        assert!(image("static DEFINE_PER_CPU(char[CONFIG_X], table);"));
        assert!(!image("static char table[64]; static char other[CONFIG_X];"));
        assert!(!image("static int table = CONFIG_X;"));
        assert!(!image("extern char table[CONFIG_X];"));
        assert!(!image("static struct { int table; } other[CONFIG_X];"));
        assert!(!image("DEFINE_RING(ring, CONFIG_X, &table[0]);"));
        assert!(!image("static char table[64];\nvoid f(void)\n{\n\ttable[0] = CONFIG_X;\n}\n"));
    }

    #[test]
    fn comments_and_literals_mention_nothing() {
        let text = Text::new(
            "/* CONFIG_A */ // CONFIG_B\n#error can't use it\nchar *s = \"CONFIG_C \\\" /*\", c = '\"';\nint x = 6 / CONFIG_D;\n\
             #if CONFIG_E > 3\n#endif\nint CONFIGURE, NO_CONFIG_F;",
        );
        assert!(Source::parse(&text).mentioned().eq(["D", "E"]));
        assert!(!links("static char table[64 /* CONFIG_X */];", Place::Image));
    }

    #[test]
    fn exponent_is_every_use() {
        let is_exponent = |source: &str| Source::parse(&Text::new(source)).is_exponent("X");
        assert!(is_exponent("#define SIZE (1UL << CONFIG_X)\nint size = BIT(CONFIG_X);"));
        assert!(!is_exponent("#define SIZE (1UL << CONFIG_X)\nint size = 4 * CONFIG_X;"));
        assert!(!is_exponent("#define SIZE (CONFIG_X << 2)") && !is_exponent("int size;"));
    }
}
