//! The effect of a change of the configuration on a file: the lines that the kernel loses, and what about it is unclear.

use std::ops::Range;

use super::{Mention, Region, SourceFile, directive, words};
use crate::config::Config;

/// The effect of a change of the configuration on a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// The lines that the kernel loses, as ascending ranges.
    pub lines: Vec<Range<u32>>,
    /// A line whose effect is not known, with the reason, for people.
    pub unclear: Option<(u32, String)>,
    /// The first lost line of the body of a function.
    pub body: Option<u32>,
    /// Statements in bodies and initializers that stay, and functions. One line of each has to make code or data; else
    /// the option may have more code than is known.
    pub visible: Vec<Range<u32>>,
    /// The functions that other lines stand for then: stubs and macros.
    pub replaced: Vec<String>,
}

/// The braces around lines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Around {
    Nothing,
    /// A structure, a union or an enumeration.
    Type,
    /// The body of a function, or an initializer.
    Code,
}

impl SourceFile {
    /// Returns the effect on the file if `options` change, and with them the configuration from `now` to `then`.
    pub fn lost(&self, options: &[&str], now: &Config, then: &Config, is_header: bool) -> Lost {
        let absent = |line: u32, config: &Config| {
            let around = |region: &&Region| region.lines.contains(&line);
            self.regions.iter().filter(around).any(|region| region.condition.holds(config) == Some(false))
        };
        let is_lost = |line: u32| absent(line, then) && !absent(line, now);
        let is_gained = |line: u32| absent(line, now) && !absent(line, then);
        let lines = self.ranges(&is_lost);
        let gained = self.ranges(&is_gained);
        let unclear = self
            .unclear(options, then, &|line| absent(line, then) || absent(line, now))
            .or_else(|| self.unclear_directive(&lines, is_header, &|line| absent(line, then)))
            .or_else(|| self.unclear_gain(&gained, &lines))
            .or_else(|| lines.iter().filter(|_| is_header).find_map(|lines| self.macro_call(lines)));
        let code = |lines: &&Range<u32>| self.around(lines) == Around::Code;
        let body =
            lines.iter().find_map(|lines| if code(&lines) { Some(lines.start) } else { self.body(lines) });
        let visible = lines.iter().flat_map(|lines| match self.around(lines) {
            Around::Nothing => self.functions(lines),
            Around::Type => Vec::new(),
            Around::Code => self.statements(lines),
        });
        let (visible, replaced) = (visible.collect(), self.replaced(&gained));
        Lost { lines, unclear, body, visible, replaced }
    }

    /// Returns the lines for which something holds, as ascending ranges.
    fn ranges(&self, holds: &dyn Fn(u32) -> bool) -> Vec<Range<u32>> {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for line in (1..=self.lines.len() as u32).filter(|&line| holds(line)) {
            match ranges.last_mut() {
                Some(last) if last.end == line => last.end += 1,
                _ => ranges.push(line..line + 1),
            }
        }
        ranges
    }

    /// Returns the text of a line.
    fn text(&self, line: u32) -> &str {
        &self.lines[line as usize - 1]
    }

    /// Returns the name of the directive in a line, and the text behind it.
    fn directive_in(&self, line: u32) -> Option<(&str, &str)> {
        directive(self.text(line))
    }

    /// Returns a line that mentions an option outside of conditions that are known.
    fn unclear(
        &self,
        options: &[&str],
        then: &Config,
        is_absent: &dyn Fn(u32) -> bool,
    ) -> Option<(u32, String)> {
        let of_option = |mention: &&Mention| options.contains(&mention.option.as_str());
        let mut mentions = self.mentions.iter().filter(of_option).filter(|mention| !is_absent(mention.line));
        mentions.find_map(|mention| {
            if !mention.in_condition {
                return Some((mention.line, format!("uses CONFIG_{} outside of #if", mention.option)));
            }
            let own = self.regions.iter().find(|region| region.directive == mention.line)?;
            own.condition.holds(then).is_none().then(|| {
                (mention.line, format!("has a condition on CONFIG_{} that cannot be decided", mention.option))
            })
        })
    }

    /// Returns a lost line that includes a file, or that defines or undefines a macro which other lines use.
    fn unclear_directive(
        &self,
        lost: &[Range<u32>],
        is_header: bool,
        is_absent: &dyn Fn(u32) -> bool,
    ) -> Option<(u32, String)> {
        let is_used = |name: &str| {
            (1..=self.lines.len() as u32).filter(|&line| !is_absent(line)).any(|line| {
                let text = match self.directive_in(line) {
                    Some(("define" | "undef", rest)) => rest.strip_prefix(name).unwrap_or(rest),
                    _ => self.text(line),
                };
                words(text).any(|word| word == name)
            })
        };
        lost.iter().flat_map(Range::clone).find_map(|line| {
            let (directive, rest) = self.directive_in(line)?;
            let name = words(rest).next().unwrap_or_default();
            match directive {
                "include" => Some((line, "includes a file".to_owned())),
                "define" | "undef" if is_header => Some((line, format!("has #{directive} {name}"))),
                "define" | "undef" if is_used(name) => {
                    Some((line, format!("has #{directive} {name}, which code outside uses")))
                }
                _ => None,
            }
        })
    }

    /// Returns a line that comes instead, and that may keep code from running which stays.
    fn unclear_gain(&self, gained: &[Range<u32>], lost: &[Range<u32>]) -> Option<(u32, String)> {
        let in_lost = |name: &str| {
            lost.iter().flat_map(Range::clone).any(|line| words(self.text(line)).any(|word| word == name))
        };
        let is_beside = |gained: &Range<u32>| {
            lost.iter().any(|lost| lost.end + 1 == gained.start || gained.end + 1 == lost.start)
        };
        let leaves = |line: u32| {
            let mut words = words(self.text(line));
            words.any(|word| matches!(word, "return" | "goto" | "break" | "continue"))
        };
        gained.iter().find_map(|lines| {
            let is_code = self.around(lines) == Around::Code;
            let mut numbers = lines.clone();
            let line = numbers.find(|&line| match self.directive_in(line) {
                Some(("undef" | "include", _)) => true,
                Some(("define", rest)) => !words(rest).next().is_some_and(in_lost),
                _ => is_code && (leaves(line) || !is_beside(lines) && !self.text(line).trim().is_empty()),
            })?;
            Some((line, "comes instead, and may change what else runs".to_owned()))
        })
    }

    /// Returns a line that begins with what may be a macro: a name with parentheses, without a type before.
    fn macro_call(&self, lines: &Range<u32>) -> Option<(u32, String)> {
        let is_call = |&line: &u32| {
            let text = self.text(line);
            let before = text.split_once('(').map_or("", |(before, _)| before);
            self.directive_in(line).is_none()
                && !text.starts_with(char::is_whitespace)
                && words(before).count() == 1
        };
        let line = lines.clone().filter(|_| self.around(lines) == Around::Nothing).find(is_call)?;
        Some((line, "may use a macro".to_owned()))
    }

    /// Returns the functions and macros that some lines define, as far as the text shows: the name before the first
    /// parenthesis of a line that begins at the margin, and the name of each macro.
    fn replaced(&self, gained: &[Range<u32>]) -> Vec<String> {
        let name = |line: u32| match self.directive_in(line) {
            Some(("define", rest)) => words(rest).next(),
            Some(_) => None,
            None if self.text(line).starts_with(char::is_whitespace) => None,
            None => words(self.text(line).split_once('(')?.0).last(),
        };
        gained.iter().flat_map(Range::clone).filter_map(name).map(str::to_owned).collect()
    }

    /// Returns the braces around lines with code: the line before them that begins at the margin opens them, unless it
    /// closes braces or ends a declaration.
    fn around(&self, lines: &Range<u32>) -> Around {
        let is_code = |line: u32| !self.text(line).trim().is_empty() && self.directive_in(line).is_none();
        let at_margin = |line: &u32| is_code(*line) && !self.text(*line).starts_with(char::is_whitespace);
        let before = (1..lines.start).rev().find(at_margin).map(|line| self.text(line)).unwrap_or_default();
        if before.is_empty() || before.starts_with('}') || before.trim_end().ends_with([';', ')']) {
            return Around::Nothing;
        }
        if !lines.clone().any(is_code) {
            return Around::Nothing;
        }
        let is_type = matches!(words(before).next(), Some("struct" | "union" | "enum" | "typedef"));
        if is_type && !before.contains(['=', '(']) { Around::Type } else { Around::Code }
    }

    /// Returns the statements in some lines of a body, and the entries of an initializer as one, without those that make
    /// no code.
    fn statements(&self, lines: &Range<u32>) -> Vec<Range<u32>> {
        let makes_code = |lines: &Range<u32>| {
            lines.clone().filter(|&line| self.directive_in(line).is_none()).any(|line| {
                let text = self.text(line).trim();
                let is_label = text.ends_with(':');
                let acts = text.contains(['(', '=', ',', '.']) || text.contains("++") || text.contains("--");
                !is_label && (acts || words(text).any(|word| matches!(word, "return" | "goto")))
            })
        };
        let mut statements = Vec::new();
        let mut start = lines.start;
        for line in lines.clone() {
            if self.text(line).trim_end().ends_with([';', ':', '{', '}']) || line + 1 == lines.end {
                statements.push(start..line + 1);
                start = line + 1;
            }
        }
        statements.retain(makes_code);
        statements
    }

    /// Returns the functions whose bodies begin in some lines.
    fn functions(&self, lines: &Range<u32>) -> Vec<Range<u32>> {
        let mut functions = Vec::new();
        let mut rest = lines.clone();
        while let Some(start) = self.body(&rest) {
            let is_end = |&line: &u32| {
                self.text(line).starts_with('}') || line == start && self.text(line).contains('}')
            };
            let end = (start..lines.end).find(is_end).map_or(lines.end, |line| line + 1);
            functions.push(start..end);
            rest = end..lines.end;
        }
        functions
    }

    /// Returns the first of some lines that begins the body of a function, as far as the text shows: `) {`.
    fn body(&self, lines: &Range<u32>) -> Option<u32> {
        let mut behind_parenthesis = false;
        for line in lines.clone() {
            for c in self.text(line).chars().filter(|c| !c.is_whitespace()) {
                if c == '{' && behind_parenthesis {
                    return Some(line);
                }
                behind_parenthesis = c == ')';
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
/* CONFIG_A of a comment */
#ifdef CONFIG_A
static int a(void)
{
}
#if defined(CONFIG_B) && \\
    !defined(CONFIG_C)
int b = 1;
#else
int c = 2; // CONFIG_A
#endif
#endif /* CONFIG_A */
char quote = '\"'; /* \" */
#ifndef CONFIG_A
#define a() 0
#endif
int after = \"CONFIG_A\"[0];
";

    fn lost(text: &str, options: &[&str]) -> Lost {
        let now = Config::parse("CONFIG_A=y\nCONFIG_B=y\n");
        let mut then = now.clone();
        options.iter().for_each(|option| then.set(option, ""));
        SourceFile::parse(text).lost(options, &now, &then, false)
    }

    fn numbers(lines: &[Range<u32>]) -> Vec<u32> {
        lines.iter().flat_map(Range::clone).collect()
    }

    #[test]
    fn braces_around_lines_are_told_by_the_margin() {
        let around = |before: &str| {
            let file = SourceFile::parse(&format!("{before}\n#ifdef CONFIG_A\n\n\ta,\n#endif\n"));
            let end = file.lines.len() as u32;
            file.around(&(end - 2..end))
        };
        for before in
            ["int f(void)\n{", "int f(void) {\n\tg();", "struct s s = {\n\t.a = 1,", "{\n\tg();\nout:"]
        {
            assert!(around(before) == Around::Code, "{before}");
        }
        for before in ["struct s {\n\tint a;", "enum {\n\tB,", "typedef struct {"] {
            assert!(around(before) == Around::Type, "{before}");
        }
        for before in
            ["", "int f(void)\n{\n}", "struct s {\n\tint a;\n};", "int a;", "module_init(f)", "\tint a;"]
        {
            assert!(around(before) == Around::Nothing, "{before}");
        }
    }

    #[test]
    fn statements_that_make_code_have_to_be_seen() {
        let text = "int f(int n)\n{\n#ifdef CONFIG_A\n\tint i;\n\tcase 2:\n\tn = g(1,\n\t\t2);\n\tbreak;\n\treturn 1;\n#endif\n}\n\
                    #ifdef CONFIG_A\nint h(void)\n{\n\treturn 1;\n}\nint k(void) { return 2; }\nint v;\n#endif\n";
        assert_eq!(lost(text, &["A"]).visible, [6..8, 9..10, 14..17, 17..18]);
    }

    #[test]
    fn lines_that_come_instead_are_judged() {
        let unclear = |text: &str| lost(text, &["A"]).unclear.is_some();
        let body = |text: &str| format!("int f(int n)\n{{\n\tg();\n{text}\n\treturn n;\n}}\n");
        assert!(unclear(&body("#ifndef CONFIG_A\n\tn = 1;\n#endif")));
        assert!(unclear(&body("#ifdef CONFIG_A\n\tn = 2;\n#else\n\treturn 0;\n#endif")));
        assert!(!unclear(&body("#ifdef CONFIG_A\n\tn = 2;\n#else\n\tn = 1;\n#endif")));
        assert!(unclear("#ifndef CONFIG_A\n#define g() 0\n#endif\n"));
        assert!(unclear("#ifdef CONFIG_A\nint g;\n#else\n#undef g\n#endif\n"));
        let stub =
            "#ifdef CONFIG_A\nextern int g(void);\n#else\nstatic inline int g(void) { return 0; }\n#endif\n";
        assert!(!unclear(stub));
        assert_eq!(lost(stub, &["A"]).replaced, ["g"]);
    }

    #[test]
    fn macros_of_headers_are_unclear() {
        let config = |text: &str| Config::parse(text);
        let unclear = |text: &str| {
            let file = SourceFile::parse(&format!("#ifdef CONFIG_A\n{text}\n#endif\n"));
            file.lost(&["A"], &config("CONFIG_A=y\n"), &config(""), true).unclear.is_some()
        };
        for text in ["#define A 1", "#undef A", "#include \"a.h\"", "PAGEFLAG(Young, young, PF_ANY)"] {
            assert!(unclear(text), "{text}");
        }
        for text in ["extern int f(int);", "int f(void), g(void);", "struct s {\n\tint a;\n};"] {
            assert!(!unclear(text), "{text}");
        }
    }

    #[test]
    fn lines_between_conditions_are_lost() {
        let of_a = lost(TEXT, &["A"]);
        assert_eq!(numbers(&of_a.lines), [3, 4, 5, 6, 7, 8, 9, 11]);
        assert_eq!(of_a.body, Some(4));
        assert_eq!(of_a.unclear, Some((17, "uses CONFIG_A outside of #if".to_owned())));
        let of_b = lost(TEXT, &["B"]);
        assert_eq!((numbers(&of_b.lines), of_b.body, of_b.unclear), (vec![8], None, None));
        assert_eq!(lost(TEXT, &["C"]), Lost::default());
    }

    #[test]
    fn mentions_in_lost_lines_are_clear() {
        let text = "#ifdef CONFIG_A\nint count = CONFIG_A_COUNT;\nint also = IS_ENABLED(CONFIG_A);\n#endif\n";
        assert_eq!(lost(text, &["A", "A_COUNT"]).unclear, None);
        let text = "#if CONFIG_A + 1\nint a;\n#endif\n#if IS_ENABLED(CONFIG_B)\nint b;\n#endif\n";
        assert!(lost(text, &["A"]).unclear.unwrap().1.contains("cannot be decided"));
        let of_b = lost(text, &["B"]);
        assert_eq!((numbers(&of_b.lines), of_b.unclear), (vec![5], None));
        let chain = "#if X\nint x;\n#elif defined(CONFIG_A)\nint a;\n#else\nint b;\n#endif\n";
        assert!(lost(chain, &["A"]).unclear.is_none());
        assert_eq!(numbers(&lost(chain, &["A"]).lines), [4]);
    }

    #[test]
    fn macros_that_others_use_and_included_code_are_unclear() {
        let text = "#ifdef CONFIG_A\n#define F(x) g(x)\nint a = F(1);\n#else\n#define F(x) 0\n#endif\n";
        assert_eq!(lost(text, &["A"]).unclear, None);
        let used = format!("{text}int b = F(2);\n");
        assert_eq!(lost(&used, &["A"]).unclear.map(|(line, _)| line), Some(2));
        let wrapped = format!("{text}#define W(x) F(x)\n");
        assert_eq!(lost(&wrapped, &["A"]).unclear.map(|(line, _)| line), Some(2));
        let undefined = "#define P 1\n#ifdef CONFIG_A\n#undef P\n#endif\n#ifndef P\nint p;\n#endif\n";
        assert_eq!(lost(undefined, &["A"]).unclear.map(|(line, _)| line), Some(3));
    }

    #[test]
    fn damaged_files_have_no_regions() {
        for text in
            ["#endif\n", "#if\n", "#else", "#ifdef CONFIG_A\nint a;", "/* ", "\"", "\\", "#ifdef CONFIG_A \\"]
        {
            assert!(lost(text, &["A"]).lines.is_empty(), "{text}");
        }
    }
}
