//! The form in which an expression uses a member, from the expressions around it.
//!
//! In clang's tree, every use of a value goes through an implicit cast (`LValueToRValue`). Without a cast, the operator
//! around the member needs its place: it writes it, or takes its address.

use clang::{Entity, EntityKind};

use super::facts::Form;

/// Returns the form of the use by an expression with some ancestors, the outermost first.
pub fn form(expression: Entity<'_>, ancestors: &[Entity<'_>]) -> Form {
    let mut inner = expression;
    for (depth, &outer) in ancestors.iter().enumerate().rev() {
        match outer.get_kind() {
            EntityKind::ParenExpr => inner = outer,
            // `__builtin_choose_expr` and `_Generic` have more than one operand.
            EntityKind::UnexposedExpr => {
                return if outer.get_children().len() == 1 { Form::Read } else { Form::Type };
            }
            EntityKind::UnaryOperator => {
                let of = |entity: Entity<'_>| {
                    entity.get_type().map(|of| of.get_canonical_type().get_display_name())
                };
                let plain =
                    |of: Option<String>| of.map(|of| of.replace("const ", "").replace("volatile ", ""));
                return if plain(of(outer)) == plain(of(inner)) { Form::Step } else { Form::Address };
            }
            EntityKind::BinaryOperator => {
                return if outer.get_child(0) == Some(inner) { Form::Store } else { Form::Read };
            }
            EntityKind::CompoundAssignOperator => {
                return if outer.get_child(0) == Some(inner) { Form::Compound } else { Form::Read };
            }
            EntityKind::UnaryExpr => return Form::Type,
            EntityKind::AsmStmt => return Form::Assembly,
            // `inode->i_uid.val`
            EntityKind::MemberRefExpr => {
                return match form(outer, &ancestors[..depth]) {
                    form @ (Form::Read | Form::Type) => form,
                    _ => Form::Part,
                };
            }
            EntityKind::ArraySubscriptExpr => return Form::Part,
            EntityKind::VarDecl | EntityKind::TypedefDecl => return Form::Type,
            _ => return Form::Read,
        }
    }
    Form::Read
}
