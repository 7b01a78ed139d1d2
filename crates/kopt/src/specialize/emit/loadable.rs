//! A path as code that a running kernel can load at any address.

use kcfg::graph::{Graph, Target};
use kelf::RelocClass;
use kisa::specializing::{Place, Simple};
use kisa::{Branch, BranchForm};

use super::super::guard::ENCODING;
use super::{Finish, Path, branch};

/// A path as code for address 0, and what changes when it has an address. All fields have 4 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loadable {
    /// The code. Its size is a multiple of 4.
    pub code: Vec<u8>,
    /// The offsets of fields with the distance to an address of the kernel.
    pub calls: Vec<u32>,
    /// The offsets of fields for the address of the pointer to what runs if a fact does not hold.
    pub nexts: Vec<u32>,
    /// The offsets of fields for the address of a counter of the calls for which all facts hold.
    pub counts: Vec<u32>,
}

/// The destination of a branch.
#[derive(Clone, Copy)]
enum To {
    /// A block.
    Block(usize),
    /// An address of the kernel.
    Kernel(u32),
}

/// A branch or call at the end of a block.
#[derive(Clone, Copy)]
struct Tail {
    /// The branch; `None` for a call.
    branch: Option<Branch>,
    form: BranchForm,
    to: To,
}

impl Path {
    /// Lays out the path by itself. `address` returns the address of code or data in the kernel.
    ///
    /// # Errors
    /// The reason why it has no such form.
    pub fn loadable(
        self,
        graph: &Graph,
        address: &dyn Fn(Target) -> Option<u64>,
    ) -> Result<Loadable, String> {
        let isa = graph.isa();
        let address = |target: Target, addend: i64| {
            let found = address(target).ok_or("something that it uses has no known address in the kernel");
            found.map(|found| found.wrapping_add_signed(addend) as u32)
        };
        let own = |simple: Simple| {
            let encode = isa.specialize().and_then(|specialize| specialize.encode(simple, true));
            let encoded = encode.ok_or("an operation has no encoding")?;
            let field = encoded.displacement.ok_or("an operation has no field for an address")?;
            Ok::<_, String>((encoded.bytes, u32::from(field)))
        };
        let at_zero = Place { base: None, displacement: 0 };
        let jump = |to: To| {
            let branch = isa.jump(ENCODING);
            Tail { branch: Some(branch), form: shortest(isa, branch, to), to }
        };
        let blocks = self.blocks.len();
        let mut parts = Vec::with_capacity(blocks + self.shared.len());
        for (number, block) in self.blocks.into_iter().enumerate() {
            let mut part = Part { bytes: block.contents.bytes, refs: block.contents.refs, ..Part::default() };
            if number == self.hit {
                let (bytes, field) = own(Simple::Count(at_zero))?;
                part.refs.iter_mut().for_each(|reference| reference.offset += bytes.len() as u32);
                part.bytes.splice(0..0, bytes);
                part.counts.push(field);
            }
            // The way to the next block needs no branch.
            let go = |part: &mut Part, to: usize| {
                if to != number + 1 {
                    part.tails.push(jump(To::Block(to)));
                }
            };
            match block.end {
                _ if Some(number) == self.miss => {
                    let (bytes, field) = own(Simple::JumpThrough(at_zero))?;
                    part.nexts.push(part.bytes.len() as u32 + field);
                    part.bytes.extend(bytes);
                }
                Finish::Go(to) | Finish::Call(_, to) => go(&mut part, to),
                Finish::Branch(condition, taken, next) => {
                    let (branch, taken, next) = branch(graph, condition, taken, next, number + 1);
                    let to = To::Block(taken);
                    part.tails.push(Tail { branch: Some(branch), form: shortest(isa, branch, to), to });
                    go(&mut part, next);
                }
                Finish::Return => {}
                Finish::Jump(dest) => part.tails.push(jump(To::Kernel(address(dest.target, dest.offset)?))),
                Finish::Shared(code, next) => {
                    let form = call_form(isa);
                    part.tails.push(Tail { branch: None, form, to: To::Block(blocks + code) });
                    go(&mut part, next);
                }
            }
            parts.push(part);
        }
        for (number, (code, next)) in self.shared.into_iter().enumerate() {
            let far = next.filter(|&next| next != number + 1);
            let tails = far.map(|next| jump(To::Block(blocks + next))).into_iter().collect();
            parts.push(Part { bytes: code.bytes, refs: code.refs, tails, ..Part::default() });
        }
        let starts = relax(isa, &mut parts);
        let mut made = Loadable::default();
        for part in &parts {
            let start = made.code.len() as u32;
            made.nexts.extend(part.nexts.iter().map(|field| start + field));
            made.counts.extend(part.counts.iter().map(|field| start + field));
            made.code.extend(&part.bytes);
            for reference in &part.refs {
                let place = start + reference.offset;
                let value = address(reference.target, reference.addend - i64::from(reference.bias))?;
                let value = match (reference.class, reference.width) {
                    (RelocClass::Absolute, 4) => value,
                    (RelocClass::Relative | RelocClass::Branch, 4) => {
                        made.calls.push(place);
                        value.wrapping_sub(place)
                    }
                    _ => return Err("a reference of the copied code has another form than an address".into()),
                };
                made.code[place as usize..][..4].copy_from_slice(&value.to_le_bytes());
            }
            for tail in &part.tails {
                let at = made.code.len() as u32;
                let end = at + u32::from(tail.form.len);
                let displacement = match tail.to {
                    To::Block(block) => i64::from(starts[block]) - i64::from(end),
                    To::Kernel(address) => {
                        made.calls.push(at + u32::from(tail.form.field_offset));
                        i64::from(address.wrapping_sub(end) as i32)
                    }
                };
                match tail.branch {
                    Some(branch) => isa.encode_branch(branch, tail.form, displacement, &mut made.code),
                    None => {
                        let field = isa.encode_call(ENCODING, &mut made.code);
                        let place = (at + u32::from(field.offset)) as usize;
                        made.code[place..][..4].copy_from_slice(&(displacement as i32).to_le_bytes());
                    }
                }
            }
        }
        let padding = made.code.len().next_multiple_of(4) - made.code.len();
        isa.encode_nops(ENCODING, padding, &mut made.code);
        Ok(made)
    }
}

/// A block with its branches.
#[derive(Default)]
struct Part {
    bytes: Vec<u8>,
    refs: Vec<kcfg::graph::Ref>,
    nexts: Vec<u32>,
    counts: Vec<u32>,
    tails: Vec<Tail>,
}

fn shortest(isa: &dyn kisa::Rewritable, branch: Branch, to: To) -> BranchForm {
    match to {
        To::Block(_) => isa.branch_forms(branch)[0],
        To::Kernel(_) => isa.longest_form(branch),
    }
}

/// Returns the size of a call.
fn call_form(isa: &dyn kisa::Rewritable) -> BranchForm {
    let mut bytes = Vec::new();
    let field = isa.encode_call(ENCODING, &mut bytes);
    BranchForm {
        len: bytes.len() as u8,
        field_offset: field.offset,
        field_width: field.width,
        reach: (i64::MIN, i64::MAX),
    }
}

/// Gives branches longer forms until each reaches its destination. Returns the offset of each part.
fn relax(isa: &dyn kisa::Rewritable, parts: &mut [Part]) -> Vec<u32> {
    loop {
        let mut at = 0;
        let mut starts = Vec::with_capacity(parts.len());
        for part in &*parts {
            starts.push(at);
            at += part.bytes.len() as u32;
            at += part.tails.iter().map(|tail| u32::from(tail.form.len)).sum::<u32>();
        }
        let mut is_settled = true;
        for (part, &start) in parts.iter_mut().zip(&starts) {
            let mut end = start + part.bytes.len() as u32;
            for tail in &mut part.tails {
                end += u32::from(tail.form.len);
                let (Some(branch), To::Block(to)) = (tail.branch, tail.to) else { continue };
                if !tail.form.reaches(i64::from(starts[to]) - i64::from(end)) {
                    tail.form = isa.longest_form(branch);
                    is_settled = false;
                }
            }
        }
        if is_settled {
            return starts;
        }
    }
}
