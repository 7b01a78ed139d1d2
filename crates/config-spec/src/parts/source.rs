//! The parts of a C file that its preprocessor includes under conditions, and the places that mention options.

use std::ops::Range;

use super::expression;
use crate::condition::Condition;
use crate::config::Config;

/// A source file with mentions of options. Lines count from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFile {
    regions: Vec<Region>,
    mentions: Vec<Mention>,
    /// The text without comments, by line.
    lines: Vec<String>,
}

/// Lines between two directives.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Region {
    lines: Range<u32>,
    /// The condition of the region, without that of the regions around it.
    condition: Condition,
    /// The first line of the directive that begins it.
    directive: u32,
}

/// A condition whose end has not been read.
struct Open {
    /// The first line of its last directive.
    directive: u32,
    /// The line behind that directive.
    behind: u32,
    /// The condition since that directive.
    condition: Condition,
    /// The condition that no branch so far has been true.
    others: Condition,
}

/// An option's name in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mention {
    line: u32,
    option: String,
    in_condition: bool,
}

/// The lines of a file that the kernel loses with a change of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// The lines, as ascending ranges.
    pub lines: Vec<Range<u32>>,
    /// A line whose effect is not known, with the reason, for people.
    pub unclear: Option<(u32, String)>,
    /// The first lost line of the body of a function.
    pub body: Option<u32>,
    /// The lines among these that are within a body or an initializer that stays, by runs.
    pub within: Vec<Range<u32>>,
}

impl SourceFile {
    /// Parses a file.
    pub fn parse(text: &str) -> SourceFile {
        let text = without_comments(text);
        let mut file =
            SourceFile { lines: text.lines().map(str::to_owned).collect(), ..SourceFile::default() };
        let mut open: Vec<Open> = Vec::new();
        let mut at = 0;
        while at < file.lines.len() {
            let directive_line = at as u32 + 1;
            let mut line = file.lines[at].clone();
            while let Some(start) = line.strip_suffix('\\') {
                at += 1;
                line = format!("{start} {}", file.lines.get(at).map_or("", String::as_str));
            }
            at += 1;
            let behind = at as u32 + 1;
            let (name, rest) = directive(&line).unwrap_or_default();
            let in_condition = matches!(name, "if" | "ifdef" | "ifndef" | "elif");
            let mention =
                |option: &str| Mention { line: directive_line, option: option.to_owned(), in_condition };
            file.mentions.extend(options(&line).map(mention));
            let condition = match name {
                "if" | "elif" => expression::parse(rest),
                "ifdef" => expression::defined(rest),
                "ifndef" => expression::defined(rest).negated(),
                "else" => Condition::Always,
                _ => Condition::never(),
            };
            let others = match name {
                "if" | "ifdef" | "ifndef" => Condition::Always,
                "elif" | "else" | "endif" => {
                    let Some(Open { directive, behind, condition, others }) = open.pop() else { continue };
                    file.regions.push(Region { lines: behind..directive_line, condition, directive });
                    others
                }
                _ => continue,
            };
            if name != "endif" {
                open.push(Open {
                    directive: directive_line,
                    behind,
                    condition: others.clone().and(condition.clone()),
                    others: others.and(condition.negated()),
                });
            }
        }
        file
    }

    /// Iterates over the options that the file mentions, each as often as it does.
    pub fn options(&self) -> impl Iterator<Item = &str> {
        self.mentions.iter().map(|mention| mention.option.as_str())
    }

    /// Returns what the file loses if `options` change, and with them the configuration from `now` to `then`.
    pub fn lost(&self, options: &[&str], now: &Config, then: &Config) -> Lost {
        let absent = |line: u32, config: &Config| {
            let around = |region: &&Region| region.lines.contains(&line);
            self.regions.iter().filter(around).any(|region| region.condition.holds(config) == Some(false))
        };
        let is_lost = |line: u32| absent(line, then) && !absent(line, now);
        let mut lost = Lost::default();
        for line in (1..=self.lines.len() as u32).filter(|&line| is_lost(line)) {
            match lost.lines.last_mut() {
                Some(last) if last.end == line => last.end += 1,
                _ => lost.lines.push(line..line + 1),
            }
        }
        lost.unclear = self.unclear(options, then, &|line| absent(line, then) || absent(line, now));
        lost.unclear = lost.unclear.or_else(|| self.included_code(&lost.lines));
        lost.unclear = lost.unclear.or_else(|| self.used_macro(&lost.lines, &|line| absent(line, then)));
        lost.body = lost.lines.iter().find_map(|lines| self.body(lines));
        lost.within = lost.lines.iter().filter(|lines| self.is_within(lines)).cloned().collect();
        lost
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

    /// Returns a lost line that includes a file that is no header: its lines are lost as well.
    fn included_code(&self, lost: &[Range<u32>]) -> Option<(u32, String)> {
        let includes_code = |line: &u32| {
            let text = directive(&self.lines[*line as usize - 1]);
            text.is_some_and(|(name, file)| {
                name == "include" && !file.trim_end_matches(['"', '>']).ends_with(".h")
            })
        };
        let line = lost.iter().flat_map(Range::clone).find(includes_code)?;
        Some((line, "includes code".to_owned()))
    }

    /// Returns a line that defines a macro in lost lines, if the macro is used in others.
    fn used_macro(&self, lost: &[Range<u32>], is_absent: &dyn Fn(u32) -> bool) -> Option<(u32, String)> {
        let name_of = |line: u32| {
            let (name, rest) = directive(&self.lines[line as usize - 1])?;
            (name == "define").then(|| words(rest).next()).flatten()
        };
        let used = |name: &str| {
            let elsewhere = (1u32..).zip(&self.lines).filter(|(line, _)| !is_absent(*line));
            elsewhere
                .filter(|(_, text)| !matches!(directive(text), Some(("define" | "undef", _))))
                .any(|(_, text)| words(text).any(|word| word == name))
        };
        let mut defined = lost.iter().flat_map(Range::clone).filter_map(|line| Some((line, name_of(line)?)));
        defined
            .find(|(_, name)| used(name))
            .map(|(line, name)| (line, format!("defines {name}, which code outside uses")))
    }

    /// Returns whether a macro is defined in some lines.
    pub fn defines_macro(&self, lines: &Range<u32>) -> Option<u32> {
        let is_macro = |line: &u32| matches!(directive(&self.lines[*line as usize - 1]), Some(("define", _)));
        lines.clone().find(is_macro)
    }

    /// Whether some lines are within braces that open before: the line before them that begins at the margin neither
    /// closes braces nor ends a declaration. Lines without text are not.
    fn is_within(&self, lines: &Range<u32>) -> bool {
        let text = |line: u32| self.lines[line as usize - 1].as_str();
        let is_code = |line: u32| !text(line).trim().is_empty() && directive(text(line)).is_none();
        let at_margin = |line: &u32| is_code(*line) && !text(*line).starts_with(char::is_whitespace);
        let before = (1..lines.start).rev().find(at_margin).map(text);
        let is_open = |before: &str| !before.starts_with('}') && !before.trim_end().ends_with([';', ')']);
        lines.clone().any(is_code) && before.is_some_and(is_open)
    }

    /// Returns the first of some lines that begins the body of a function, as far as the text shows: `) {`.
    fn body(&self, lines: &Range<u32>) -> Option<u32> {
        let mut behind_parenthesis = false;
        for line in lines.clone() {
            for c in self.lines[line as usize - 1].chars().filter(|c| !c.is_whitespace()) {
                if c == '{' && behind_parenthesis {
                    return Some(line);
                }
                behind_parenthesis = c == ')';
            }
        }
        None
    }
}

/// Returns the name of a directive and the text behind it.
fn directive(line: &str) -> Option<(&str, &str)> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    Some((name, rest.trim()))
}

/// Iterates over the identifiers and numbers of a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Iterates over the names of options in a text. A name that `_MODULE` ends stands for the option before it.
fn options(text: &str) -> impl Iterator<Item = &str> {
    words(text)
        .filter_map(|word| word.strip_prefix("CONFIG_"))
        .map(|name| name.strip_suffix("_MODULE").unwrap_or(name))
}

/// Returns the text with a space for each comment. Lines stay where they are.
fn without_comments(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut quote = None;
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', Some(_)) => {
                result.push(c);
                result.extend(chars.next());
            }
            ('"' | '\'', None) => {
                quote = Some(c);
                result.push(c);
            }
            // A quote that is left open at the end of a line is an apostrophe of assembly or of `#error`.
            (_, Some(open)) if c == open || c == '\n' => {
                quote = None;
                result.push(c);
            }
            ('/', None) if chars.peek() == Some(&'/') => {
                while chars.peek().is_some_and(|&c| c != '\n') {
                    chars.next();
                }
            }
            ('/', None) if chars.peek() == Some(&'*') => {
                chars.next();
                result.push(' ');
                let mut last = ' ';
                for c in chars.by_ref() {
                    if c == '\n' {
                        result.push(c);
                    }
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
            }
            _ => result.push(c),
        }
    }
    result
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
        SourceFile::parse(text).lost(options, &now, &then)
    }

    fn numbers(lines: &[Range<u32>]) -> Vec<u32> {
        lines.iter().flat_map(Range::clone).collect()
    }

    #[test]
    fn lines_within_braces_are_told_from_others() {
        let within = |before: &str| {
            let text = format!("{before}\n#ifdef CONFIG_A\n\n\ta,\n#endif\n");
            !lost(&text, &["A"]).within.is_empty()
        };
        for before in
            ["int f(void)\n{", "int f(void) {\n\tg();", "struct s s = {\n\t.a = 1,", "{\n\tg();\nout:"]
        {
            assert!(within(before), "{before}");
        }
        for before in
            ["", "int f(void)\n{\n}", "struct s {\n\tint a;\n};", "int a;", "module_init(f)", "\tint a;"]
        {
            assert!(!within(before), "{before}");
        }
        assert!(lost("{\n#ifdef CONFIG_A\n\n#endif\n", &["A"]).within.is_empty());
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
        assert_eq!((numbers(&of_b.lines), of_b.unclear, of_b.within.len()), (vec![5], None, 0));
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
        assert_eq!(SourceFile::parse(text).defines_macro(&(2..4)), Some(2));
        let included =
            |file: &str| lost(&format!("#ifdef CONFIG_A\n#include {file}\n#endif\n"), &["A"]).unclear;
        assert!(included("<linux/a.h>").is_none() && included("\"a.c\"").is_some());
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
