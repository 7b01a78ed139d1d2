//! Structures and their members in clang's tree.

use clang::{Entity, EntityKind, Type, TypeKind};

use super::facts::MemberKind;

/// Returns the structure with a name that a member belongs to, and whether the member is its own.
pub fn owner(member: Entity<'_>) -> Option<(String, bool)> {
    let mut parent = member.get_semantic_parent()?;
    let mut is_own = true;
    loop {
        match parent.get_kind() {
            EntityKind::StructDecl | EntityKind::UnionDecl => {}
            _ => return None,
        }
        match parent.get_name() {
            Some(name) if !name.is_empty() && !parent.is_anonymous() => return Some((name, is_own)),
            _ => (parent, is_own) = (parent.get_semantic_parent()?, false),
        }
    }
}

/// Returns the members of a structure, and those of its unnamed structures and unions.
pub fn fields(record: Entity<'_>) -> Vec<Entity<'_>> {
    let mut found = Vec::new();
    for child in record.get_children() {
        match child.get_kind() {
            EntityKind::FieldDecl => found.push(child),
            EntityKind::StructDecl | EntityKind::UnionDecl if child.is_anonymous_record_decl() => {
                found.extend(fields(child));
            }
            _ => {}
        }
    }
    found
}

/// Returns the kind of a member's values.
pub fn kind(of: Type<'_>) -> MemberKind {
    let of = of.get_canonical_type();
    match of.get_kind() {
        TypeKind::Pointer => MemberKind::Pointer,
        TypeKind::Enum => match of.get_declaration().and_then(|of| of.get_enum_underlying_type()) {
            Some(under) => kind(under),
            None => MemberKind::Other("its enumeration is not defined".into()),
        },
        TypeKind::Bool => MemberKind::Unsigned,
        _ if of.is_unsigned_integer() => MemberKind::Unsigned,
        _ if of.is_signed_integer() => MemberKind::Signed,
        TypeKind::Record => match of.get_fields().as_deref() {
            Some([only]) if only.get_type().is_some_and(|of| kind(of) == MemberKind::Unsigned) => {
                MemberKind::Wrapper(only.get_name().unwrap_or_default())
            }
            _ => MemberKind::Other("it is a structure".into()),
        },
        TypeKind::ConstantArray | TypeKind::IncompleteArray => MemberKind::Other("it is an array".into()),
        _ => MemberKind::Other(format!("its type is {}", of.get_display_name())),
    }
}

/// Returns the canonical type that a pointer points to.
pub fn pointee(of: Option<Type<'_>>) -> Option<Type<'_>> {
    Some(of?.get_canonical_type().get_pointee_type()?.get_canonical_type())
}

/// Returns the name of a structure's type.
pub fn record_name(of: Type<'_>) -> Option<String> {
    (of.get_kind() == TypeKind::Record).then(|| of.get_declaration()?.get_name()).flatten()
}
