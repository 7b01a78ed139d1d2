//! Conditions over the options of a configuration, as Makefiles state them.
//!
//! The value of a condition is three-valued: a Makefile may compare a variable whose value only make knows. Such a
//! condition is neither true nor false, and nothing may be concluded from it.

use std::fmt;

/// A condition under which a Makefile links an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// True in every configuration.
    Always,
    /// Both texts are equal, apart from spaces at their ends.
    Equal(Text, Text),
    /// The condition is false.
    Not(Box<Condition>),
    /// All of these are true.
    All(Vec<Condition>),
    /// At least one of these is true.
    Any(Vec<Condition>),
}

/// A text with references to options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(pub Vec<Piece>);

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// These characters.
    Literal(String),
    /// The value of the option with this name (without `CONFIG_`).
    Option(String),
    /// The result of a function of make.
    Call(String, Vec<Text>),
    /// A variable or a function that this program does not evaluate, as the Makefile has it.
    Unknown(String),
}

impl Condition {
    /// Creates a condition that is never true.
    pub fn never() -> Condition {
        Condition::Any(Vec::new())
    }

    /// Returns the condition that this one is false.
    pub fn negated(self) -> Condition {
        match self {
            Condition::Not(inner) => *inner,
            Condition::Always => Condition::never(),
            Condition::Any(all) if all.is_empty() => Condition::Always,
            other => Condition::Not(Box::new(other)),
        }
    }

    /// Returns the condition that this one and `other` are true.
    pub fn and(self, other: Condition) -> Condition {
        Condition::all([self, other])
    }

    /// Returns the condition that all of these are true.
    pub fn all(parts: impl IntoIterator<Item = Condition>) -> Condition {
        let mut flat: Vec<Condition> = Vec::new();
        for part in parts {
            match part {
                Condition::Always => {}
                Condition::All(inner) => inner.into_iter().for_each(|part| push_new(&mut flat, part)),
                Condition::Any(inner) if inner.is_empty() => return Condition::never(),
                other => push_new(&mut flat, other),
            }
        }
        match flat.len() {
            0 => Condition::Always,
            1 => flat.remove(0),
            _ => Condition::All(flat),
        }
    }

    /// Returns the condition that at least one of these is true.
    pub fn any(parts: impl IntoIterator<Item = Condition>) -> Condition {
        let mut flat: Vec<Condition> = Vec::new();
        for part in parts {
            match part {
                Condition::Always => return Condition::Always,
                Condition::Any(inner) => inner.into_iter().for_each(|part| push_new(&mut flat, part)),
                other => push_new(&mut flat, other),
            }
        }
        if flat.iter().any(|part| flat.contains(&part.clone().negated())) {
            return Condition::Always;
        }
        if flat.len() == 1 { flat.remove(0) } else { Condition::Any(flat) }
    }
}

fn push_new(parts: &mut Vec<Condition>, part: Condition) {
    if !parts.contains(&part) {
        parts.push(part);
    }
}

impl Text {
    /// Creates a text without references.
    pub fn literal(text: &str) -> Text {
        if text.is_empty() { Text::default() } else { Text(vec![Piece::Literal(text.to_owned())]) }
    }

    /// Returns its characters, if it has no references.
    pub fn as_literal(&self) -> Option<String> {
        let literal = |piece: &Piece| match piece {
            Piece::Literal(text) => Some(text.clone()),
            _ => None,
        };
        self.0.iter().map(literal).collect()
    }

    /// Adds the names of the options in it to `names`, each once.
    pub fn options(&self, names: &mut Vec<String>) {
        for piece in &self.0 {
            match piece {
                Piece::Option(name) if !names.contains(name) => names.push(name.clone()),
                Piece::Call(_, arguments) => arguments.iter().for_each(|text| text.options(names)),
                _ => {}
            }
        }
    }

    /// Returns the condition that it is equal to `literal`. Characters that both share at their ends are left out.
    pub fn equals(&self, literal: &str) -> Condition {
        let mut pieces = self.0.clone();
        let mut rest = literal;
        if let Some(Piece::Literal(prefix)) = pieces.first()
            && let Some(shorter) = rest.strip_prefix(prefix.as_str())
        {
            rest = shorter;
            pieces.remove(0);
        }
        if let Some(Piece::Literal(suffix)) = pieces.last()
            && let Some(shorter) = rest.strip_suffix(suffix.as_str())
        {
            rest = shorter;
            pieces.pop();
        }
        match (pieces.is_empty(), rest.is_empty()) {
            (true, true) => Condition::Always,
            (true, false) => Condition::never(),
            _ => Condition::Equal(Text(pieces), Text::literal(rest)),
        }
    }
}

/// `X` for `ifdef CONFIG_X`, `X=y` for `obj-$(CONFIG_X)`; `!`, `&&` and `||` as in C.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Always => f.write_str("always"),
            Condition::Equal(a, b) if b.0.is_empty() => write!(f, "!{a}"),
            Condition::Equal(a, b) => write!(f, "{a}={b}"),
            Condition::Not(inner) => match &**inner {
                Condition::Equal(a, b) if b.0.is_empty() => write!(f, "{a}"),
                Condition::Equal(a, b) => write!(f, "{a}!={b}"),
                other => write!(f, "!({other})"),
            },
            Condition::All(parts) => joined(f, parts, " && "),
            Condition::Any(parts) if parts.is_empty() => f.write_str("never"),
            Condition::Any(parts) => joined(f, parts, " || "),
        }
    }
}

fn joined(f: &mut fmt::Formatter<'_>, parts: &[Condition], operator: &str) -> fmt::Result {
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            f.write_str(operator)?;
        }
        match part {
            Condition::All(_) | Condition::Any(_) => write!(f, "({part})")?,
            _ => write!(f, "{part}")?,
        }
    }
    Ok(())
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.0 {
            match piece {
                Piece::Literal(text) | Piece::Option(text) => f.write_str(text)?,
                Piece::Call(function, arguments) => {
                    let arguments: Vec<String> = arguments.iter().map(Text::to_string).collect();
                    write!(f, "$({function} {})", arguments.join(","))?;
                }
                Piece::Unknown(text) => write!(f, "$({text})")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::config::Config;

    /// Returns the condition that an option has a value.
    pub fn is_set(option: &str) -> Condition {
        Condition::Equal(value_of(option), Text::default()).negated()
    }

    /// Returns the value of an option.
    pub fn value_of(option: &str) -> Text {
        Text(vec![Piece::Option(option.to_owned())])
    }

    #[test]
    fn module_is_set_but_not_built_in() {
        let config = Config::parse("CONFIG_A=m\n");
        let gate = Text(vec![Piece::Literal("obj-".into()), Piece::Option("A".into())]);
        assert_eq!(gate.equals("obj-y").holds(&config), Some(false));
        assert_eq!(gate.equals("obj-m").holds(&config), Some(true));
        assert_eq!(is_set("A").holds(&config), Some(true));
        assert_eq!(gate.equals("lib-y"), Condition::Equal(gate.clone(), Text::literal("lib-y")));
    }

    #[test]
    fn conditions_print_as_in_c() {
        let gate = value_of("A").equals("y");
        let nested = Condition::any([gate.clone().and(is_set("B")), is_set("C").negated()]);
        assert_eq!(nested.to_string(), "(A=y && B) || !C");
        assert_eq!(gate.negated().to_string(), "A!=y");
        assert_eq!(Condition::never().to_string(), "never");
        assert_eq!(Condition::all([]).to_string(), "always");
        assert_eq!(Condition::any([is_set("A"), is_set("B"), is_set("A").negated()]), Condition::Always);
    }
}
