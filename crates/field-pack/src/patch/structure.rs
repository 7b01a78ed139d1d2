//! The declaration of a structure: its members in another order, and codes in place of members.

use super::text::SourceFile;

/// The declaration of a structure in a file.
#[derive(Debug)]
pub struct Structure {
    /// Offset of the first byte after `{` and the rest of its line.
    pub body: usize,
    /// Offset of `}`.
    pub end: usize,
    /// Offset of the line after the declaration.
    pub after: usize,
    /// The members in their order.
    pub items: Vec<Item>,
    /// Comments after the last member.
    rest: String,
}

/// A declaration in a structure: a member, or an unnamed union or structure.
#[derive(Clone, Debug)]
pub struct Item {
    /// The names of the members that it declares, in any depth.
    pub names: Vec<String>,
    /// The types of its members, as far as their declarations are simple.
    pub types: Vec<Option<Type>>,
    /// The conditions that it is under: lines of the preprocessor.
    conditions: Vec<String>,
    /// The comments before it, by line.
    lead: String,
    /// The declaration, without the tab before it.
    text: String,
    /// The rest of its last line: a comment.
    trail: String,
}

/// The type of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// A type that a name can follow: `const char *`.
    Name(String),
    /// A pointer to a function: the text before and after the name, for a `typedef`.
    Function(String, String),
}

/// The stored form of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// A code of this type, and the name of its member without `kf_`.
    Code(&'static str, String),
    /// Nothing: its value, for a comment.
    Absent(String),
}

impl Structure {
    /// Finds the declaration of a structure, whose members' names are at `members`: name and offset.
    ///
    /// # Errors
    /// The reason why it is not understood.
    pub fn parse(file: &SourceFile, name: &str, members: &[(&str, usize)]) -> Result<Structure, String> {
        let open = (2..file.tokens.len())
            .find(|&at| file.word(at) == "{" && file.word(at - 1) == name && file.word(at - 2) == "struct");
        let open = open.ok_or_else(|| format!("{}: no declaration of struct {name}", file.name))?;
        let close = file.closing(open).ok_or_else(|| format!("{}: struct {name} has no end", file.name))?;
        let end = file.tokens[close].start;
        let semicolon = (close..file.tokens.len()).find(|&at| file.word(at) == ";").unwrap_or(close);
        let parser = Parser { file, members, conditions: Vec::new(), items: Vec::new() };
        let body = line_end(&file.text, file.tokens[open].end);
        let (items, rest) = parser.run(open + 1, close, body)?;
        Ok(Structure { body, end, after: line_end(&file.text, file.tokens[semicolon].end), items, rest })
    }

    /// Returns the item that declares a member.
    pub fn item(&self, name: &str) -> Option<&Item> {
        self.items.iter().find(|item| item.names.iter().any(|found| found == name))
    }

    /// Returns the text between the brackets, with stored forms of members, and in an order of members if there is one.
    /// Members that the order does not name come last, in their old order.
    pub fn print(&self, order: &[String], stored: &dyn Fn(&str) -> Option<Stored>) -> String {
        let mut items: Vec<&Item> = self.items.iter().collect();
        if !order.is_empty() {
            let position =
                |item: &&Item| order.iter().position(|name| item.names.contains(name)).unwrap_or(order.len());
            items.sort_by_key(position);
        }
        let mut text = String::new();
        let mut conditions: &[String] = &[];
        for (number, item) in items.iter().enumerate() {
            let form = item.names.first().and_then(|name| stored(name));
            let form = form.filter(|_| item.names.iter().all(|name| stored(name).is_some()));
            let (lead, line) = item.print(form.as_ref());
            if conditions != item.conditions {
                // `#else` continues the conditions before it.
                let added = item.conditions.strip_prefix(conditions);
                if added.is_none() {
                    close(&mut text, conditions);
                }
                for line in added.unwrap_or(&item.conditions) {
                    text += line;
                    text.push('\n');
                }
                conditions = &item.conditions;
            }
            if order.is_empty() || !lead.trim().is_empty() {
                text += if order.is_empty() && number > 0 { &lead } else { lead.trim_start_matches('\n') };
            }
            text += &line;
        }
        close(&mut text, conditions);
        text + &self.rest
    }
}

/// Ends conditions.
fn close(text: &mut String, conditions: &[String]) {
    let is_if = |line: &&String| line.trim_start_matches(['#', ' ', '\t']).starts_with("if");
    *text += &"#endif\n".repeat(conditions.iter().filter(is_if).count());
}

impl Item {
    /// Returns the comments before the item and its lines.
    fn print(&self, stored: Option<&Stored>) -> (String, String) {
        match (stored, self.names.first()) {
            (Some(Stored::Code(code, field)), Some(_)) => {
                let comment = if self.names.len() > 1 {
                    format!("\t/* {} */", self.names.join(", "))
                } else {
                    String::new()
                };
                (self.lead.clone(), format!("\t{code}\t\t\tkf_{field};{comment}{}\n", self.trail))
            }
            (Some(Stored::Absent(value)), Some(name)) => {
                (String::new(), format!("\t/* {name} is not stored: it is always {value} */\n"))
            }
            _ => (self.lead.clone(), format!("\t{}{}\n", self.text, self.trail)),
        }
    }
}

/// Returns the offset of the line after an offset.
fn line_end(text: &str, from: usize) -> usize {
    text[from..].find('\n').map_or(text.len(), |length| from + length + 1)
}

/// Splits the body of a structure into items.
struct Parser<'a> {
    file: &'a SourceFile,
    members: &'a [(&'a str, usize)],
    conditions: Vec<String>,
    items: Vec<Item>,
}

impl Parser<'_> {
    fn run(mut self, first: usize, close: usize, body: usize) -> Result<(Vec<Item>, String), String> {
        let file = self.file;
        let (mut at, mut from) = (first, body);
        while at < close {
            let token = file.tokens[at];
            if token.directive != 0 {
                let end = (at..close)
                    .find(|&other| file.tokens[other].directive != token.directive)
                    .unwrap_or(close);
                self.directive(at, end)?;
                at = end;
                from = line_end(&file.text, file.tokens[end - 1].end);
                continue;
            }
            let semicolon = self.semicolon(at, close)?;
            from = self.item(at, semicolon, from);
            at = semicolon + 1;
        }
        let end = file.tokens[close].start;
        let rest = file.text.get(from..end).unwrap_or("").to_owned();
        Ok((self.items, rest))
    }

    /// Returns the end of a declaration.
    fn semicolon(&self, first: usize, close: usize) -> Result<usize, String> {
        let mut at = first;
        while at < close {
            match self.file.word(at) {
                ";" => return Ok(at),
                "{" | "(" | "[" => at = self.file.closing(at).unwrap_or(close) + 1,
                _ => at += 1,
            }
        }
        Err(format!("{}: a member has no end", self.file.place(self.file.tokens[first].start)))
    }

    /// Reads a line of the preprocessor.
    fn directive(&mut self, first: usize, end: usize) -> Result<(), String> {
        let file = self.file;
        let line = file.text[file.tokens[first].start..file.tokens[end - 1].end].to_owned();
        match file.word(first + 1) {
            "if" | "ifdef" | "ifndef" | "else" | "elif" => self.conditions.push(line),
            "endif" => {
                while let Some(last) = self.conditions.pop() {
                    if last.trim_start_matches(['#', ' ', '\t']).starts_with("if") {
                        break;
                    }
                }
            }
            other => {
                return Err(format!(
                    "{}: the directive #{other} in a structure",
                    file.place(file.tokens[first].start)
                ));
            }
        }
        Ok(())
    }

    /// Reads a declaration. Returns the offset of the line after it.
    fn item(&mut self, first: usize, semicolon: usize, from: usize) -> usize {
        let file = self.file;
        let (start, end) = (file.tokens[first].start, file.tokens[semicolon].end);
        let is_in = |offset: usize| (start..end).contains(&offset);
        let names: Vec<(&str, usize)> =
            self.members.iter().copied().filter(|(_, offset)| is_in(*offset)).collect();
        let next = self.after_comment(end, semicolon);
        let lead = file.text.get(from..start).unwrap_or("");
        let lead = lead.trim_end_matches([' ', '\t']).to_owned();
        let declared: Vec<String> = match names.is_empty() {
            // It is not compiled in any of the builds.
            true => (first..semicolon).rev().map(|at| file.word(at).to_owned()).take(1).collect(),
            false => names.iter().map(|(name, _)| (*name).to_owned()).collect(),
        };
        let types = match names.is_empty() {
            true => vec![None],
            false => names.iter().map(|(_, offset)| self.type_of(first, semicolon, *offset)).collect(),
        };
        self.items.push(Item {
            names: declared,
            types,
            conditions: self.conditions.clone(),
            lead: without_marks(&lead),
            text: file.text[start..end].to_owned(),
            trail: file.text[end..next].trim_end_matches('\n').to_owned(),
        });
        next
    }

    /// Returns the type in the declaration of the name at an offset, within the tokens of an item.
    fn type_of(&self, first: usize, semicolon: usize, offset: usize) -> Option<Type> {
        let file = self.file;
        let name = file.token_at(offset)?;
        let start = (first..name)
            .rev()
            .find(|&at| matches!(file.word(at), ";" | "{" | "}" | ","))
            .map_or(first, |at| at + 1);
        let end = (name..=semicolon).find(|&at| file.word(at) == ";")?;
        let text = |from: usize, to: usize| {
            let written = &file.text[file.tokens[from].start..file.tokens[to].start];
            written.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        if start > first && file.word(start - 1) == "," {
            return None;
        }
        if end == name + 1 {
            let whole = text(start, name);
            // A value has no qualifiers.
            let plain = if whole.ends_with('*') { &whole } else { whole.trim_start_matches("const ") };
            return Some(Type::Name(plain.to_owned()));
        }
        let is_function =
            file.word(name - 1) == "*" && file.word(name - 2) == "(" && file.word(name + 1) == ")";
        is_function.then(|| Type::Function(text(start, name), text(name + 1, end)))
    }

    /// Returns the end of the line or comment after a declaration.
    fn after_comment(&self, end: usize, semicolon: usize) -> usize {
        let text = &self.file.text;
        let next = self.file.tokens.get(semicolon + 1).map_or(text.len(), |token| token.start);
        let line = line_end(text, end);
        let comment = text[end..line].find("/*").map(|at| end + at);
        match comment.and_then(|at| text[at..next.max(at)].find("*/").map(|length| at + length + 2)) {
            Some(close) => line_end(text, close),
            None => line,
        }
    }
}

/// Removes comments on cache lines, which are wrong when members move.
fn without_marks(lead: &str) -> String {
    lead.split_inclusive('\n').filter(|line| !line.trim_start().starts_with("/* ---")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
struct a {
	/* first */
	int x;	/* of x
		 * and more */
#ifdef CONFIG_B
	struct b *y;
#else
	long z;
#endif
	union {
		int u;
		char v;
	};
	/* last */
	const char *w;
} __packed;
";

    fn parse(text: &str) -> Structure {
        let file = SourceFile::new("a.h", text.to_owned());
        let names = ["x", "y", "u", "v", "w"];
        let place = |name: &&'static str| {
            let token = file.tokens.iter().find(|token| &text[token.start..token.end] == *name);
            (*name, token.unwrap().start)
        };
        let members: Vec<(&str, usize)> = names.iter().map(place).collect();
        Structure::parse(&file, "a", &members).unwrap()
    }

    #[test]
    fn order_of_source_prints_the_source() {
        let structure = parse(TEXT);
        assert_eq!(structure.print(&[], &|_| None), TEXT[structure.body..structure.end]);
        assert_eq!(&TEXT[structure.after..], "");
        assert_eq!(structure.item("w").unwrap().types, [Some(Type::Name("const char *".into()))]);
        let char_type = Some(Type::Name("char".into()));
        assert_eq!(structure.item("v").unwrap().types[1], char_type);
    }

    #[test]
    fn members_move_with_their_comments_and_conditions() {
        let order: Vec<String> = ["w", "u", "y", "x"].map(str::to_owned).to_vec();
        let stored = |name: &str| match name {
            "w" => Some(Stored::Code("u8", name.into())),
            "x" => Some(Stored::Absent("0".into())),
            _ => None,
        };
        assert_eq!(
            parse(TEXT).print(&order, &stored),
            "	/* last */
	u8			kf_w;
	union {
		int u;
		char v;
	};
#ifdef CONFIG_B
	struct b *y;
#endif
	/* x is not stored: it is always 0 */
#ifdef CONFIG_B
#else
	long z;
#endif
"
        );
    }
}
