//! The walk through the syntax tree of a file.

use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use clang::source::Location;
use clang::{Entity, EntityKind, Type, TypeKind};
use rustc_hash::{FxHashMap, FxHashSet};

use super::facts::{Facts, Form, Member, MemberKind, Use, Whole, WholeForm};
use super::form::form;
use super::record::{fields, kind, owner, pointee, record_name};

/// Functions that read or write the bytes of an object. `memset` is one of them if it does not write zeros.
const BYTES: [&str; 9] = [
    "memcpy",
    "memmove",
    "memcmp",
    "memset",
    "memchr",
    "kmemdup",
    "copy_to_user",
    "copy_from_user",
    "crc32_le",
];

/// Collects the uses of some structures.
pub struct Visitor<'a> {
    /// The source tree.
    root: &'a Path,
    types: &'a FxHashSet<String>,
    /// The names of members that the plan changes.
    names: &'a FxHashSet<String>,
    /// The text of the files, by path.
    texts: FxHashMap<PathBuf, Rc<str>>,
    /// Declarations of headers that were visited in another file, by file and offset.
    visited: FxHashSet<(PathBuf, u32)>,
    uses: FxHashSet<Use>,
    wholes: FxHashSet<Whole>,
    members: FxHashSet<Member>,
}

/// A place in a file of the source tree.
struct Place {
    file: String,
    text: Rc<str>,
    offset: usize,
    line: usize,
}

impl<'a> Visitor<'a> {
    /// A visitor for structures of a source tree, and for the names of their members.
    pub fn new(root: &'a Path, types: &'a FxHashSet<String>, names: &'a FxHashSet<String>) -> Visitor<'a> {
        Visitor {
            root,
            types,
            names,
            texts: FxHashMap::default(),
            visited: FxHashSet::default(),
            uses: FxHashSet::default(),
            wholes: FxHashSet::default(),
            members: FxHashSet::default(),
        }
    }

    /// Visits all declarations of a file, and of the headers that no file before it included. A macro may make several
    /// declarations at one place.
    pub fn visit(&mut self, unit: Entity<'_>, main: &Path) {
        let mut seen = Vec::new();
        for entity in unit.get_children() {
            let Some(location) = entity.get_location() else { continue };
            let Location { file: Some(file), offset, .. } = location.get_file_location() else { continue };
            let place = (file.get_path(), offset);
            if place.0 == main || !self.visited.contains(&place) {
                self.walk(entity, &mut vec![unit]);
                seen.push(place);
            }
        }
        self.visited.extend(seen);
    }

    /// Returns the facts.
    pub fn into_facts(self) -> Facts {
        Facts {
            uses: self.uses.into_iter().collect(),
            wholes: self.wholes.into_iter().collect(),
            members: self.members.into_iter().collect(),
            ..Facts::default()
        }
    }

    fn walk<'tu>(&mut self, entity: Entity<'tu>, ancestors: &mut Vec<Entity<'tu>>) {
        self.inspect(entity, ancestors);
        ancestors.push(entity);
        for child in entity.get_children() {
            self.walk(child, ancestors);
        }
        ancestors.pop();
    }

    fn inspect(&mut self, entity: Entity<'_>, ancestors: &[Entity<'_>]) {
        match entity.get_kind() {
            EntityKind::MemberRefExpr | EntityKind::MemberRef => self.member_use(entity, ancestors),
            EntityKind::StructDecl if entity.is_definition() => self.declaration(entity),
            EntityKind::BinaryOperator => {
                if let Some(of) = entity.get_type().and_then(|of| self.containing(of)) {
                    self.whole(entity, of, WholeForm::Copy, String::new());
                }
            }
            EntityKind::VarDecl => {
                let is_local = ancestors.iter().any(|entity| entity.get_kind() == EntityKind::FunctionDecl);
                let is_static = entity.get_storage_class() == Some(clang::StorageClass::Static);
                if is_local
                    && !is_static
                    && let Some(of) = entity.get_type().and_then(|of| self.containing(of))
                {
                    self.whole(entity, of, WholeForm::Local, entity.get_name().unwrap_or_default());
                }
            }
            EntityKind::InitListExpr => self.initializer(entity),
            EntityKind::CallExpr => self.call(entity),
            EntityKind::CStyleCastExpr => self.cast(entity, ancestors),
            _ => {}
        }
    }

    /// Records the use of a member, if it is one of the structures'.
    fn member_use(&mut self, entity: Entity<'_>, ancestors: &[Entity<'_>]) {
        let Some(member) = entity.get_reference().filter(|found| found.get_kind() == EntityKind::FieldDecl)
        else {
            return;
        };
        let (Some((of, _)), Some(name)) = (owner(member), member.get_name()) else { return };
        let is_wanted = self.types.contains(&of);
        if !is_wanted && !self.names.contains(&name) {
            return;
        }
        let form = match entity.get_kind() {
            EntityKind::MemberRef if is_in_initializer(ancestors) => Form::Initializer,
            EntityKind::MemberRef => Form::Offset,
            _ => form(entity, ancestors),
        };
        let Some(location) = entity.get_location() else { return };
        let Some(place) = self.place(location.get_file_location()) else { return };
        let mut found = Use {
            of,
            member: name,
            file: place.file.clone(),
            offset: place.offset,
            start: place.offset,
            form,
            in_macro: false,
            is_hidden: false,
        };
        if is_at(&place, &found.member) {
            let start =
                entity.get_range().and_then(|range| self.place(range.get_start().get_file_location()));
            if let Some(start) =
                start.filter(|start| start.file == place.file && start.offset <= place.offset)
            {
                found.start = start.offset;
            }
        } else {
            match self.place(location.get_spelling_location()).filter(|body| is_at(body, &found.member)) {
                Some(body) => {
                    (found.file, found.offset, found.start) = (body.file, body.offset, body.offset);
                    found.in_macro = true;
                }
                None => found.is_hidden = true,
            }
        }
        // Other structures matter if a macro uses their members and those of the structures.
        if is_wanted || found.is_hidden || found.in_macro {
            self.uses.insert(found);
        }
    }

    /// Records the members of a structure.
    fn declaration(&mut self, entity: Entity<'_>) {
        let Some(of) = entity.get_name().filter(|name| self.types.contains(name)) else { return };
        for field in fields(entity) {
            let (Some(name), Some(of_field), Some(location)) =
                (field.get_name(), field.get_type(), field.get_location())
            else {
                continue;
            };
            let Some(place) = self.place(location.get_file_location()) else { continue };
            let parent = field.get_semantic_parent();
            let in_union = parent.is_some_and(|parent| parent.get_kind() == EntityKind::UnionDecl);
            let kind = match () {
                () if field.is_bit_field() => MemberKind::Other("it is a bit-field".into()),
                () if !in_union && parent.is_some_and(|parent| parent != entity) => {
                    MemberKind::Other("it is in an unnamed structure".into())
                }
                () => kind(of_field),
            };
            self.members.insert(Member {
                of: of.clone(),
                name,
                bytes: of_field.get_sizeof().unwrap_or(0) as u64,
                kind,
                in_union,
                is_volatile: of_field.is_volatile_qualified(),
                file: place.file,
                offset: place.offset,
            });
        }
    }

    /// Records an initializer that names no members, except `{}` and `{ 0 }`.
    fn initializer(&mut self, entity: Entity<'_>) {
        let of = entity.get_type().map(|of| of.get_canonical_type());
        let Some(of) = of.and_then(record_name).filter(|name| self.types.contains(name)) else { return };
        let children = entity.get_children();
        let names_member = |child: &Entity<'_>| {
            child.get_children().first().is_some_and(|first| first.get_kind() == EntityKind::MemberRef)
        };
        let is_zero = |child: &Entity<'_>| {
            child.get_kind() == EntityKind::IntegerLiteral
                && child.get_range().is_some_and(|range| {
                    range.tokenize().first().is_some_and(|token| token.get_spelling() == "0")
                })
        };
        if children.iter().any(|child| !names_member(child) && !is_zero(child)) {
            self.whole(entity, of, WholeForm::Positional, String::new());
        }
    }

    /// Records a call that copies the bytes of a structure.
    fn call(&mut self, entity: Entity<'_>) {
        let Some(name) = entity.get_name() else { return };
        let plain = name.trim_start_matches("__builtin_").trim_start_matches('_').trim_end_matches("_noprof");
        if !BYTES.contains(&plain) {
            return;
        }
        let arguments = entity.get_arguments().unwrap_or_default();
        if plain == "memset" && arguments.get(1).is_some_and(is_zero_literal) {
            return;
        }
        for argument in arguments {
            let pointee =
                uncast(argument).get_type().and_then(|of| of.get_canonical_type().get_pointee_type());
            if let Some(of) = pointee.and_then(|of| self.containing(of)) {
                self.whole(entity, of, WholeForm::Bytes, name.clone());
            }
        }
    }

    /// Records a cast to a pointer to another type. The distance of two pointers depends on the order of the structure
    /// from which it counts; `memset` of the members before an embedded structure computes it.
    fn cast(&mut self, entity: Entity<'_>, ancestors: &[Entity<'_>]) {
        let (Some(to), Some(operand)) = (pointee(entity.get_type()), entity.get_children().pop()) else {
            return;
        };
        let from = pointee(uncast(operand).get_type()).and_then(record_name);
        let Some(from) = from.filter(|name| self.types.contains(name)) else { return };
        if to.get_kind() == TypeKind::Void || record_name(to).as_ref() == Some(&from) {
            return;
        }
        let outer = ancestors.last().filter(|outer| outer.get_kind() == EntityKind::BinaryOperator);
        let is_distance = outer.is_some_and(|outer| outer.get_type().is_some_and(|of| of.is_integer()));
        match (is_distance, outer.and_then(|outer| outer.get_child(1)) == Some(entity)) {
            (true, false) => {}
            (true, true) => self.whole(entity, from, WholeForm::Distance, to.get_display_name()),
            (false, _) => self.whole(entity, from, WholeForm::Cast, to.get_display_name()),
        }
    }

    fn whole(&mut self, entity: Entity<'_>, of: String, form: WholeForm, by: String) {
        let Some(place) = entity.get_location().and_then(|at| self.place(at.get_file_location())) else {
            return;
        };
        self.wholes.insert(Whole { of, file: place.file, line: place.line, form, by });
    }

    /// Returns the structure that a structure is or contains.
    fn containing(&self, of: Type<'_>) -> Option<String> {
        let of = of.get_canonical_type();
        if of.get_kind() == TypeKind::ConstantArray {
            return self.containing(of.get_element_type()?);
        }
        let name = record_name(of)?;
        if self.types.contains(&name) {
            return Some(name);
        }
        of.get_fields()?.into_iter().find_map(|field| self.containing(field.get_type()?))
    }

    /// Returns a place, if it is in the source tree.
    fn place(&mut self, location: Location<'_>) -> Option<Place> {
        let path = location.file?.get_path();
        let file = normal(&std::env::current_dir().ok()?.join(&path))
            .strip_prefix(self.root)
            .ok()?
            .to_str()?
            .to_owned();
        let text = match self.texts.get(&path) {
            Some(text) => text.clone(),
            None => {
                let text: Rc<str> = std::fs::read_to_string(&path).ok()?.into();
                self.texts.insert(path, text.clone());
                text
            }
        };
        Some(Place { file, text, offset: location.offset as usize, line: location.line as usize })
    }
}

/// Whether a name is written at a place.
fn is_at(place: &Place, name: &str) -> bool {
    place.text.get(place.offset..).is_some_and(|rest| {
        rest.strip_prefix(name)
            .is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_'))
    })
}

/// Returns a path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut found = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(found.pop()),
            other => found.push(other),
        }
    }
    found
}

/// Whether a name of a member is part of an initializer, not of `offsetof`.
fn is_in_initializer(ancestors: &[Entity<'_>]) -> bool {
    matches!(ancestors, [.., list, _] if list.get_kind() == EntityKind::InitListExpr)
}

/// Returns an expression without casts and brackets.
fn uncast(entity: Entity<'_>) -> Entity<'_> {
    match entity.get_kind() {
        EntityKind::UnexposedExpr | EntityKind::ParenExpr | EntityKind::CStyleCastExpr => {
            let children = entity.get_children();
            let expressions: Vec<_> = children.into_iter().filter(|child| child.is_expression()).collect();
            match expressions[..] {
                [only] => uncast(only),
                _ => entity,
            }
        }
        _ => entity,
    }
}

/// Whether an expression is the literal 0.
fn is_zero_literal(entity: &Entity<'_>) -> bool {
    let entity = uncast(*entity);
    entity.get_kind() == EntityKind::IntegerLiteral
        && matches!(
            entity.evaluate(),
            Some(clang::EvaluationResult::SignedInteger(0) | clang::EvaluationResult::UnsignedInteger(0))
        )
}
