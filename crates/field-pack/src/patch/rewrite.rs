//! The uses of members, rewritten as calls of accessors.
//!
//! The syntax tree says which member a name means and whether the expression reads, writes, or needs the address. The
//! text around the name says how to rewrite it. If both do not agree, the member is excluded: for example, a macro that
//! looks like a function may take the address of its argument.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::edit::Edit;
use super::helper::{Helper, getter, setter};
use super::text::{SourceFile, Tree};
use crate::scan::{Form, Use};

/// A member: structure and name.
pub type Name = (String, String);

/// The result for the uses of all members.
#[derive(Debug, Default)]
pub struct Rewritten {
    /// The edits of each member.
    pub edits: FxHashMap<Name, Vec<(String, Edit)>>,
    /// The reasons, with places, why members have to stay as they are.
    pub excluded: FxHashMap<Name, Vec<String>>,
    /// The accessors that each member needs besides those that read and write it.
    pub helpers: FxHashMap<Name, BTreeSet<Helper>>,
    /// The values that are stored in each member, with their places: the text of the expression.
    pub stored: FxHashMap<Name, Vec<(String, String)>>,
}

/// Functions and macros whose first argument is the address of a member, with the accessors for them.
const BY_ADDRESS: [(&str, Helper); 4] = [
    ("smp_load_acquire", Helper::Acquire),
    ("smp_store_release", Helper::Release),
    ("cmpxchg", Helper::Exchange),
    ("set_mask_bits", Helper::MaskBits),
];

/// All uses of one name in a file.
struct Site<'a> {
    members: Vec<Name>,
    forms: Vec<Form>,
    first: &'a Use,
}

/// Rewrites all uses of the members that `is_wanted` selects.
///
/// `harmless` are places, `file:line`, where the address is only a name for the object.
pub fn rewrite(
    tree: &Tree,
    uses: &[Use],
    harmless: &[String],
    is_wanted: impl Fn(&str, &str) -> bool,
) -> Rewritten {
    let mut result = Rewritten::default();
    for site in sites(uses) {
        if !site.members.iter().any(|(of, member)| is_wanted(of, member)) {
            continue;
        }
        let found = match tree.file(&site.first.file) {
            Some(file) => Rewrite { harmless, file: &file, site: &site }.run(&mut result),
            None => Err(format!("{}: the file cannot be read", site.first.file)),
        };
        match found {
            Ok(edits) => {
                let member = site.members[0].clone();
                let extent = edits.iter().map(|edit| edit.end).max().unwrap_or(0);
                let edits = edits.into_iter().map(|edit| (site.first.file.clone(), Edit { extent, ..edit }));
                result.edits.entry(member).or_default().extend(edits);
            }
            Err(reason) => {
                for member in &site.members {
                    result.excluded.entry(member.clone()).or_default().push(reason.clone());
                }
            }
        }
    }
    result
}

/// Joins the uses of the same name: a macro may use its argument several times, and several files include a header.
fn sites(uses: &[Use]) -> Vec<Site<'_>> {
    let mut sites: Vec<Site<'_>> = Vec::new();
    for found in uses {
        let name = (found.of.clone(), found.member.clone());
        match sites.last_mut() {
            Some(site)
                if site.first.file == found.file
                    && site.first.offset == found.offset
                    && (!found.is_hidden || site.members == [name.clone()]) =>
            {
                if !site.members.contains(&name) {
                    site.members.push(name);
                }
                site.forms.push(found.form);
            }
            _ => sites.push(Site { members: vec![name], forms: vec![found.form], first: found }),
        }
    }
    sites
}

/// The rewriting of one site.
struct Rewrite<'a> {
    harmless: &'a [String],
    file: &'a SourceFile,
    site: &'a Site<'a>,
}

impl Rewrite<'_> {
    fn run(&self, result: &mut Rewritten) -> Result<Vec<Edit>, String> {
        let place = self.file.place(self.site.first.offset);
        let fail = |reason: &str| Err(format!("{reason} ({place})"));
        if self.site.first.is_hidden {
            return fail("a macro makes its name or uses it through another macro");
        }
        if self.site.members.len() > 1 {
            return fail("a macro uses members of several structures with its name");
        }
        for (form, reason) in [
            (Form::Offset, "its offset is used"),
            (Form::Initializer, "an initializer names it"),
            (Form::Assembly, "inline assembly uses it"),
            (Form::Part, "a part of it is written or its address is taken"),
        ] {
            if self.site.forms.contains(&form) {
                return fail(reason);
            }
        }
        let Some(member) = self.file.token_at(self.site.first.offset) else {
            return fail("its name is part of another word");
        };
        let Some(arrow) = member.checked_sub(1).filter(|&arrow| matches!(self.file.word(arrow), "->" | "."))
        else {
            return fail("a macro gets its name as an argument");
        };
        let Some(start) = self.start(arrow) else {
            return fail("the expression before its name is not understood");
        };
        match self.access(start, member) {
            Ok(access) => {
                let name = &self.site.members[0];
                if let Some(value) = access.stored {
                    result.stored.entry(name.clone()).or_default().push((value, place.clone()));
                }
                result.helpers.entry(name.clone()).or_default().extend(access.helper);
                Ok(access.edits)
            }
            Err(reason) => fail(reason),
        }
    }

    /// Returns the first token of the expression.
    fn start(&self, arrow: usize) -> Option<usize> {
        match self.site.first.in_macro {
            true => self.file.start_of_base(arrow),
            false => self.file.token_at(self.site.first.start).filter(|&start| start < arrow),
        }
    }

    fn access(&self, start: usize, member: usize) -> Result<Access, &'static str> {
        let file = self.file;
        let has = |form: Form| self.site.forms.contains(&form);
        let call = |number: usize, name: &str| {
            number >= 2 && file.word(number - 1) == "(" && file.word(number - 2) == name
        };
        let after = file.word(member + 1);
        let writes = has(Form::Store) || has(Form::Compound) || has(Form::Step);
        if has(Form::Address) {
            if call(start, "READ_ONCE") && after == ")" && !writes {
                let once = self.accessor(Helper::Once);
                let access = self.read(once, start - 2, start, member, member + 1);
                return Ok(Access { helper: Some(Helper::Once), ..access });
            }
            if call(start, "WRITE_ONCE") && after == "," && !writes {
                let close = file.closing(start - 1).ok_or("a bracket has no end")?;
                return self.write(self.setter(), start - 2, start, member, (member + 2, close), true);
            }
            // Macros use the address several times, also to write.
            if start >= 3 && file.word(start - 1) == "&" && matches!(after, "," | ")") {
                let helper =
                    BY_ADDRESS.iter().find(|(name, _)| call(start - 1, name)).map(|(_, helper)| *helper);
                if let Some(helper) = helper {
                    return Ok(self.by_address(helper, start - 3, start, member));
                }
                if let Some(access) = self.without_fault(start, member) {
                    return Ok(access);
                }
                if self.harmless.contains(&file.place(self.site.first.offset)) {
                    return Ok(self.identity(start, member));
                }
            }
            return Err("its address is taken");
        }
        if !writes {
            if start > 0 && matches!(file.word(start - 1), "++" | "--") {
                return Err("a macro hides how it is written");
            }
            return Ok(self.read(self.getter(), start, start, member, member));
        }
        if !has(Form::Read) {
            if has(Form::Store) && !has(Form::Compound) && !has(Form::Step) && after == "=" {
                let end =
                    self.end_of_value(member + 2).ok_or("the end of the assigned value is not found")?;
                return self.write(self.setter(), start, start, member, (member + 2, end), false);
            }
            if has(Form::Compound)
                && !has(Form::Store)
                && !has(Form::Step)
                && after.len() > 1
                && after.ends_with('=')
            {
                let end =
                    self.end_of_value(member + 2).ok_or("the end of the assigned value is not found")?;
                return self.compound(start, member, end);
            }
            if has(Form::Step) && !has(Form::Store) && !has(Form::Compound) {
                return self.step(start, member);
            }
        }
        Err("a macro hides how it is written")
    }

    /// The name of the accessor for reading.
    fn getter(&self) -> String {
        let (of, member) = &self.site.members[0];
        getter(of, member)
    }

    fn setter(&self) -> String {
        let (of, member) = &self.site.members[0];
        setter(of, member)
    }

    fn accessor(&self, helper: Helper) -> String {
        let (of, member) = &self.site.members[0];
        helper.accessor(of, member)
    }

    /// Returns the text of an argument: the object, without brackets around it, and its address if it is no pointer.
    fn brackets(&self, start: usize, member: usize) -> (usize, usize, &'static str) {
        let file = self.file;
        let arrow = member - 1;
        let is_object = file.word(arrow) == ".";
        let is_in_brackets = file.word(start) == "(" && file.closing(start) == Some(arrow - 1);
        match is_in_brackets && !is_object {
            true => (file.tokens[start].end, file.tokens[arrow - 1].start, ""),
            false => {
                let prefix = if is_object { "&" } else { "" };
                (file.tokens[start].start, file.tokens[arrow - 1].end, prefix)
            }
        }
    }

    /// Replaces the tokens from `first` to `last`, which read the member of the object from `start` on.
    fn read(&self, accessor: String, first: usize, start: usize, member: usize, last: usize) -> Access {
        let (from, to, prefix) = self.brackets(start, member);
        let edits = vec![
            Edit::new(self.file.tokens[first].start, from, format!("{accessor}({prefix}")),
            Edit::new(to, self.file.tokens[last].end, ")".to_owned()),
        ];
        Access { edits, stored: None, helper: None }
    }

    /// Replaces an assignment of the tokens `value`. `WRITE_ONCE` has a bracket after them.
    fn write(
        &self,
        accessor: String,
        first: usize,
        start: usize,
        member: usize,
        value: (usize, usize),
        has_bracket: bool,
    ) -> Result<Access, &'static str> {
        let (from, to, prefix) = self.brackets(start, member);
        let file = self.file;
        if self.crosses_directive(start, value.1) {
            return Err("its assignment contains a directive of the preprocessor");
        }
        let (begin, end) = (file.tokens[value.0].start, file.tokens[value.1 - 1].end);
        let mut edits = vec![
            Edit::new(file.tokens[first].start, from, format!("{accessor}({prefix}")),
            Edit::new(to, begin, ", ".to_owned()),
        ];
        if !has_bracket {
            edits.push(Edit::new(end, end, ")".to_owned()));
        }
        Ok(Access { edits, stored: Some(file.text[begin..end].to_owned()), helper: None })
    }

    /// Replaces a call, from its name `first` on, whose first argument is the member's address.
    fn by_address(&self, helper: Helper, first: usize, start: usize, member: usize) -> Access {
        let (from, to, prefix) = self.brackets(start, member);
        let edits = vec![
            Edit::new(self.file.tokens[first].start, from, format!("{}({prefix}", self.accessor(helper))),
            Edit::new(to, self.file.tokens[member].end, String::new()),
        ];
        let stored = (helper != Helper::Acquire).then(|| helper.word().to_owned());
        Access { edits, stored, helper: Some(helper) }
    }

    /// Replaces `get_kernel_nofault(value, &a->m)`.
    fn without_fault(&self, start: usize, member: usize) -> Option<Access> {
        let file = self.file;
        let comma = start.checked_sub(2).filter(|&comma| file.word(comma) == ",")?;
        let close = (member + 1..).next().filter(|&close| file.word(close) == ")")?;
        let open = file.opening(close)?;
        let name = open.checked_sub(1).filter(|&name| file.word(name) == "get_kernel_nofault")?;
        let (from, to, prefix) = self.brackets(start, member);
        let helper = Helper::NoFault;
        let edits = vec![
            Edit::new(file.tokens[name].start, file.tokens[name].end, self.accessor(helper)),
            Edit::new(file.tokens[comma].end, from, format!(" {prefix}")),
            Edit::new(to, file.tokens[member].end, String::new()),
        ];
        Some(Access { edits, stored: None, helper: Some(helper) })
    }

    /// Replaces `&a->m` by the address of the code, for code that uses the address as a name for the object.
    fn identity(&self, start: usize, member: usize) -> Access {
        let address = &self.file.tokens[start - 1];
        let (of, name) = &self.site.members[0];
        let tokens = &self.file.tokens;
        let edits = vec![
            Edit::new(address.start, address.end, format!("(typeof({}(NULL)) *)&", getter(of, name))),
            Edit::new(tokens[member].start, tokens[member].end, format!("kf_{name}")),
        ];
        Access { edits, stored: None, helper: None }
    }

    /// Replaces `a->m |= value`.
    fn compound(&self, start: usize, member: usize, end: usize) -> Result<Access, &'static str> {
        let operator = self.file.word(member + 1).trim_end_matches('=');
        let helper = Helper::of_operator(operator)?;
        let access = self.write(self.accessor(helper), start, start, member, (member + 2, end), false)?;
        let stored = access.stored.map(|value| format!("{operator}= {value}"));
        Ok(Access { stored, helper: Some(helper), ..access })
    }

    /// Replaces `a->m++`, whose value is not used, and `++a->m`.
    fn step(&self, start: usize, member: usize) -> Result<Access, &'static str> {
        let file = self.file;
        let before = start.checked_sub(1).map_or("", |before| file.word(before));
        let after = file.word(member + 1);
        let (operator, first, last) = match (before, after) {
            ("++" | "--", _) => (before, start - 1, member),
            (";" | "{" | "}" | ")" | "else" | ":", "++" | "--")
                if matches!(file.word(member + 2), ";" | ")" | ",") =>
            {
                (after, start, member + 1)
            }
            _ => return Err("its old value is used when it is incremented"),
        };
        let helper = Helper::of_operator(&operator[..1])?;
        let (from, to, prefix) = self.brackets(start, member);
        let edits = vec![
            Edit::new(file.tokens[first].start, from, format!("{}({prefix}", self.accessor(helper))),
            Edit::new(to, file.tokens[last].end, ", 1)".to_owned()),
        ];
        Ok(Access { edits, stored: Some(operator.to_owned()), helper: Some(helper) })
    }

    /// Returns the token after an assigned value.
    fn end_of_value(&self, first: usize) -> Option<usize> {
        let file = self.file;
        let directive = file.tokens.get(first)?.directive;
        let (mut at, mut questions) = (first, 0);
        loop {
            if at >= file.tokens.len() || directive != 0 && file.tokens[at].directive != directive {
                return (at > first && directive != 0).then_some(at);
            }
            match file.word(at) {
                "(" | "[" | "{" => at = file.closing(at)?,
                ";" | "," | ")" | "]" | "}" => return (at > first).then_some(at),
                "?" => questions += 1,
                ":" if questions == 0 => return (at > first).then_some(at),
                ":" => questions -= 1,
                _ => {}
            }
            at += 1;
        }
    }

    /// Whether tokens outside of a directive have one between them.
    fn crosses_directive(&self, first: usize, end: usize) -> bool {
        let tokens = &self.file.tokens;
        tokens[first..end].iter().any(|token| token.directive != tokens[first].directive)
    }
}

/// The edits for one access.
struct Access {
    edits: Vec<Edit>,
    stored: Option<String>,
    helper: Option<Helper>,
}
