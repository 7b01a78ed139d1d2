//! One attempt to make a patch: the changed files, or more members that have to stay as they are.

use std::collections::BTreeMap;
use std::rc::Rc;

use kcli::Failure;
use rustc_hash::{FxHashMap, FxHashSet};

use super::accessors::Compressed;
use super::declare::Declaration;
use super::edit::{Edit, apply};
use super::helper::Helper;
use super::rewrite::{Name, Rewritten};
use super::structure::Structure;
use super::text::{SourceFile, Tree};
use super::{Files, Patch, exclude, rewrite, runtime};
use crate::document::{Fields, MemberPlan, Place, Scheme, TypePlan};
use crate::scan::{Facts, Member, MemberKind, Use};

/// Makes a patch.
pub struct Maker<'a> {
    /// The plan.
    pub fields: &'a Fields,
    /// The source.
    pub tree: &'a Tree,
    /// The facts about the source.
    pub facts: &'a Facts,
    /// All uses, also in the bodies of macros.
    pub uses: &'a [Use],
    /// Uses that exclude nothing, by place.
    pub harmless: &'a [String],
}

/// Edits by file.
pub type Edits = BTreeMap<String, Vec<Edit>>;

/// The declarations of structures, by name, each with its file.
pub type Structures<'a> = FxHashMap<&'a str, (Rc<SourceFile>, Structure)>;

impl<'a> Maker<'a> {
    /// Returns the members of the plan that are not excluded.
    fn wanted<'s>(
        &'s self,
        excluded: &'s BTreeMap<Name, String>,
    ) -> impl Iterator<Item = (&'a TypePlan, &'a MemberPlan)> + 's {
        let all = self.fields.types.iter().flat_map(|of| of.members.iter().map(move |member| (of, member)));
        all.filter(|(of, member)| !excluded.contains_key(&(of.name.clone(), member.name.clone())))
    }

    /// Returns the patch with some files.
    pub fn patch(&self, files: Files, excluded: &BTreeMap<Name, String>) -> Patch {
        let members = self.wanted(excluded).map(|(of, member)| (of.name.clone(), member.name.clone()));
        let accessors = self.wanted(excluded).flat_map(|(of, member)| {
            let all = std::iter::once(&member.name).chain(&member.aliases);
            let name = |name: &String| (of.name.clone(), name.clone());
            all.map(|other| (name(other), name(&member.name))).collect::<Vec<_>>()
        });
        let ordered = self.fields.types.iter().filter(|of| self.is_ordered(of, excluded));
        Patch {
            files,
            members: members.collect(),
            accessors: accessors.collect(),
            ordered: ordered.map(|of| of.name.clone()).collect(),
            excluded: excluded.clone(),
        }
    }

    /// Returns the member with the most uses for each byte that it saves, and the number of its uses.
    pub fn longest(&self, patch: &Patch) -> Option<(Name, usize)> {
        let cost = |(of, name): &Name| {
            let plan = self.fields.types.iter().find(|found| found.name == *of)?;
            let member = plan.members.iter().find(|member| member.name == *name)?;
            let places: FxHashSet<(&str, usize)> = self
                .uses
                .iter()
                .filter(|found| {
                    found.of == *of && (found.member == *name || member.aliases.contains(&found.member))
                })
                .map(|found| (found.file.as_str(), found.offset))
                .collect();
            let saved = member.bytes.saturating_sub(member.scheme.width()).max(1);
            Some((places.len() as u64 * 100 / saved, places.len()))
        };
        let all = patch.members.iter().filter_map(|name| Some((cost(name)?, name)));
        all.max_by_key(|((cost, _), _)| *cost).map(|((_, count), name)| (name.clone(), count))
    }

    /// Whether the order of a structure may change.
    fn is_ordered(&self, of: &TypePlan, excluded: &BTreeMap<Name, String>) -> bool {
        !of.order.is_empty() && !excluded.contains_key(&(of.name.clone(), String::new()))
    }

    /// Returns the changed files, and adds excluded members. The files are right if there are no more of them than before.
    ///
    /// # Errors
    /// Bad input if the plan or the source does not fit the builds.
    pub fn run(&self, excluded: &mut BTreeMap<Name, String>) -> Result<Files, Failure> {
        exclude::by_declaration(self.fields, self.facts, self.harmless, excluded);
        let mut compressed = Vec::new();
        let mut structures = FxHashMap::default();
        for of in &self.fields.types {
            let found = self.structure(of)?;
            for member in of.members.iter() {
                let name = (of.name.clone(), member.name.clone());
                if excluded.contains_key(&name) {
                    continue;
                }
                match self.compress(of, member, &found) {
                    Ok(found) => compressed.extend(found),
                    Err(reason) => drop(excluded.insert(name, reason)),
                }
            }
            structures.insert(of.name.as_str(), found);
        }
        let is_wanted = |of: &str, member: &str| {
            compressed.iter().any(|found: &Compressed| found.of == of && found.name == member)
        };
        let rewritten = rewrite::rewrite(self.tree, self.uses, self.harmless, is_wanted);
        for member in &compressed {
            if let Some(reasons) = rewritten.excluded.get(&(member.of.clone(), member.name.clone())) {
                excluded.insert((member.of.clone(), member.field.clone()), exclude::join(reasons));
            }
        }
        for member in &mut compressed {
            let name = (member.of.clone(), member.name.clone());
            member.helpers = rewritten.helpers.get(&name).into_iter().flatten().copied().collect();
        }
        for member in &compressed {
            let is_own = matches!(member.scheme, Scheme::Own { .. });
            if is_own
                && member.helpers.iter().any(|helper| matches!(helper, Helper::Exchange | Helper::MaskBits))
            {
                let reason = "it is changed atomically, and its code depends on the object".to_owned();
                excluded.insert((member.of.clone(), member.field.clone()), reason);
            }
        }
        exclude::by_stores(&compressed, &rewritten, excluded);
        compressed.retain(|found| !excluded.contains_key(&(found.of.clone(), found.field.clone())));
        let mut edits = collect(&rewritten, &compressed);
        for of in &self.fields.types {
            let own = compressed.iter().filter(|member| member.of == of.name).collect();
            let is_ordered = self.is_ordered(of, excluded);
            Declaration { facts: self.facts, of, own, structures: &structures, is_ordered }
                .change(&mut edits);
        }
        let mut files = BTreeMap::new();
        if !compressed.is_empty() {
            runtime::add(self.tree, &compressed, self.fields.starve, &mut edits, &mut files)?;
        }
        for (name, edits) in &edits {
            let file =
                self.tree.file(name).ok_or_else(|| Failure::bad_input(format!("{name}: cannot be read")))?;
            let after = apply(&file.text, edits)
                .map_err(|offset| Failure::job(format!("{}: two changes overlap", file.place(offset))))?;
            files.insert(name.clone(), (file.text.clone(), after));
        }
        Ok(files)
    }

    /// Returns the file with the declaration of a structure, and the declaration.
    fn structure(&self, of: &TypePlan) -> Result<(Rc<SourceFile>, Structure), Failure> {
        let members: Vec<&Member> = self.facts.members.iter().filter(|member| member.of == of.name).collect();
        let Some(first) = members.first() else {
            return Err(Failure::bad_input(format!(
                "struct {}: no file of the builds declares it; expected a structure of this kernel",
                of.name
            )));
        };
        let file = self.tree.file(&first.file);
        let file = file.ok_or_else(|| Failure::bad_input(format!("{}: cannot be read", first.file)))?;
        let places: Vec<(&str, usize)> = members
            .iter()
            .filter(|member| member.file == first.file)
            .map(|member| (member.name.as_str(), member.offset))
            .collect();
        let structure = Structure::parse(&file, &of.name, &places).map_err(Failure::bad_input)?;
        Ok((file, structure))
    }

    /// Returns the new form of a member, and of the members of its union.
    fn compress(
        &self,
        of: &TypePlan,
        member: &MemberPlan,
        (file, structure): &(Rc<SourceFile>, Structure),
    ) -> Result<Vec<Compressed>, String> {
        if let Scheme::Own { place: Place::Container { container, .. }, .. } = &member.scheme {
            let is_beside = |found: &&Member| found.of == *container && found.file == file.name;
            if !self.fields.types.iter().any(|of| of.name == *container)
                || !self.facts.members.iter().any(|found| is_beside(&found))
            {
                return Err(format!("its accessors need struct {container} of the plan in the same header"));
            }
        }
        let item = structure.item(&member.name).ok_or("its declaration is not found")?;
        let names: Vec<&String> = std::iter::once(&member.name).chain(&member.aliases).collect();
        if let Some(other) = item.names.iter().find(|name| !names.contains(name)) {
            return Err(format!("it shares its bytes or its declaration with {other}"));
        }
        let mut found = Vec::new();
        for name in names {
            let declared = self.facts.members.iter().find(|found| found.of == of.name && found.name == *name);
            let declared = declared.ok_or_else(|| format!("{name} is not declared in the builds"))?;
            if let MemberKind::Other(reason) = &declared.kind {
                return Err(reason.clone());
            }
            let position = item.names.iter().position(|other| other == name);
            let of_value = position.and_then(|at| item.types[at].clone());
            let compressed = Compressed {
                of: of.name.clone(),
                name: name.clone(),
                field: member.name.clone(),
                of_value: of_value
                    .ok_or_else(|| format!("the declaration of {name} is not a type and a name"))?,
                bytes: declared.bytes,
                word: self.facts.word,
                limit: member.limit,
                helpers: Vec::new(),
                kind: declared.kind.clone(),
                scheme: member.scheme.clone(),
            };
            compressed.code()?;
            found.push(compressed);
        }
        Ok(found)
    }
}

/// Returns the edits of all members, by file.
fn collect(rewritten: &Rewritten, compressed: &[Compressed]) -> Edits {
    let mut edits = Edits::new();
    for member in compressed {
        for (file, edit) in
            rewritten.edits.get(&(member.of.clone(), member.name.clone())).into_iter().flatten()
        {
            edits.entry(file.clone()).or_default().push(edit.clone());
        }
    }
    edits
}
