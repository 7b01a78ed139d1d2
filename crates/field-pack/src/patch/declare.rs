//! The changes of a structure's declaration.

use super::accessors::Compressed;
use super::edit::Edit;
use super::make::{Edits, Structures};
use super::runtime;
use super::structure::Stored;
use super::text::SourceFile;
use crate::document::{Scheme, TypePlan, Value};
use crate::scan::{Facts, MemberKind};

/// A structure, and the members of it that have another form.
pub struct Declaration<'a> {
    /// The facts about the source.
    pub facts: &'a Facts,
    /// The plan for it.
    pub of: &'a TypePlan,
    /// The members.
    pub own: Vec<&'a Compressed>,
    /// All declarations.
    pub structures: &'a Structures<'a>,
    /// Whether the plan's order is possible.
    pub is_ordered: bool,
}

impl Declaration<'_> {
    /// Returns the order of the members. A member of the plan that keeps its old form could cause a hole; the members with
    /// the largest alignment then come first.
    fn order(&self) -> Vec<String> {
        if !self.is_ordered {
            return Vec::new();
        }
        let (of, own) = (self.of, &self.own);
        let mut order = of.order.clone();
        if of.members.iter().any(|member| !own.iter().any(|found| found.name == member.name)) {
            let alignment = |name: &String| -> u64 {
                let width =
                    own.iter().find(|member| member.name == *name).map(|member| member.scheme.width());
                let declared =
                    self.facts.members.iter().find(|found| found.of == of.name && found.name == *name);
                match (width, declared.map_or(0, |found| found.bytes)) {
                    (Some(0), _) | (None, 1) => 1,
                    (Some(width), _) => width,
                    (None, 2) => 2,
                    _ => self.facts.word,
                }
            };
            order.sort_by_key(|name| std::cmp::Reverse(alignment(name)));
        }
        order
    }

    /// Adds the edits of the declaration, and the accessors.
    pub fn change(&self, edits: &mut Edits) {
        let Some((file, structure)) = self.structures.get(self.of.name.as_str()) else { return };
        let (of, own, order) = (self.of, &self.own, self.order());
        if own.is_empty() && order.is_empty() {
            return;
        }
        let stored = |name: &str| {
            let member = own.iter().find(|member| member.name == name)?;
            Some(match (&member.scheme, member.code()) {
                (Scheme::Absent { value }, _) => Stored::Absent(match value {
                    Value::Number(0) if member.kind == MemberKind::Pointer => "NULL".to_owned(),
                    Value::Number(number) => number.to_string(),
                    Value::Symbol(symbol) => format!("&{symbol}"),
                }),
                (_, Ok(Some(code))) => Stored::Code(code, member.field.clone()),
                _ => return None,
            })
        };
        let edits = edits.entry(file.name.clone()).or_default();
        let body = structure.print(&order, &stored);
        edits.push(Edit::new(structure.body, structure.end, body));
        if own.is_empty() {
            return;
        }
        for member in own {
            let later = member.later(member.code().unwrap_or_default());
            if let Some((container, text)) = later
                && let Some((_, structure)) = self.structures.get(container)
            {
                edits.push(Edit::new(structure.after, structure.after, text));
            }
        }
        let mut text = format!(
            "\n/* Members of struct {} that are stored as codes: see kshrink_fields.h. */\n",
            of.name
        );
        for member in own {
            text += &member.accessors(member.code().unwrap_or_default());
            text.push('\n');
        }
        edits.push(Edit::new(structure.after, structure.after, text.trim_end().to_owned() + "\n"));
        if !edits.iter().any(|edit| edit.text == runtime::INCLUDE) {
            let place = include_place(file, structure.body);
            edits.push(Edit::new(place, place, runtime::INCLUDE.to_owned()));
        }
    }
}

/// Returns the place after the last `#include` before an offset that is under no condition other than the header's own.
fn include_place(file: &SourceFile, before: usize) -> usize {
    let mut depth = 0_usize;
    let (mut place, mut guard) = (0, None);
    for at in 0..file.tokens.len() {
        let token = file.tokens[at];
        if token.start >= before {
            break;
        }
        if file.word(at) != "#" || token.directive == 0 {
            continue;
        }
        let line = file.text[token.end..].find('\n').map_or(file.text.len(), |length| token.end + length + 1);
        match file.word(at + 1) {
            "if" | "ifdef" | "ifndef" => {
                depth += 1;
                if guard.is_none() && file.word(at + 1) == "ifndef" {
                    guard = Some(depth);
                }
            }
            "endif" => depth = depth.saturating_sub(1),
            "include" if depth <= guard.unwrap_or(0) => place = line,
            _ => {}
        }
    }
    place
}
