//! Contents for a node.

use kisa::{AddressField, Encoding, Rewritable, StoreOne};

use super::{Graph, Ref, Role, Target};

/// Bytes, and the references in them in ascending order of offset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The references.
    pub refs: Vec<Ref>,
}

impl Contents {
    /// Creates a direct call of a function.
    pub fn call(graph: &Graph, encoding: Encoding, callee: Target) -> Contents {
        let mut bytes = Vec::new();
        let field = graph.isa().encode_call(encoding, &mut bytes);
        // As in lifted calls: on i386, the relocation is one for any distance.
        let own = kelf::reloc::describe(graph.machine, field.r_type);
        let reference = Ref {
            offset: field.offset.into(),
            r_type: field.r_type,
            class: own.map_or(field.class, |(class, _)| class),
            width: field.width,
            bias: field.bias,
            target: callee,
            addend: 0,
            role: Role::Callee,
        };
        Contents { bytes, refs: vec![reference] }
    }

    /// Creates instructions in this encoding that store 1 to a byte at a distance after a target and change only
    /// registers in `free`, and returns whether they save a register on the stack ([`Rewritable::encode_store_one`]).
    pub fn store_one(
        isa: &dyn Rewritable,
        encoding: Encoding,
        free: u64,
        target: Target,
        displacement: u32,
    ) -> (Contents, bool) {
        let mut bytes = Vec::new();
        let StoreOne { fields, addend, saves } =
            isa.encode_store_one(encoding, free, displacement, &mut bytes);
        let reference = |field: AddressField| Ref {
            offset: u32::from(field.offset),
            r_type: field.r_type,
            class: field.class,
            width: field.width,
            bias: field.bias,
            target,
            addend,
            role: Role::Address,
        };
        (Contents { bytes, refs: fields.into_iter().map(reference).collect() }, saves)
    }
}
