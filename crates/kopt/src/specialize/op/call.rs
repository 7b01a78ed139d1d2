//! Operations of calls of original code.

use kcfg::graph::{Contents, Ref, Target};
use kcfg::index::NodeId;
use kcfg::instructions::Instruction;
use kisa::specializing::{Place, Simple};
use kisa::{Effect, Value as Operand};

use super::super::explore::{Call, Why};
use super::super::state::{REGISTERS, State, WORD};
use super::super::value::Base;
use super::{Code, ENCODING, Maker, Op, bit, plain, reference};

impl<'g> Maker<'_, 'g> {
    /// Returns the operation of a call of original code.
    ///
    /// # Errors
    /// The reason why it cannot be copied.
    pub fn call(
        &self,
        before: &State,
        last: &Instruction<'g>,
        call: &Call,
        callee: Option<Ref>,
    ) -> Result<Op, Why> {
        let graph = self.explorer.original.graph;
        let all = ((1 << REGISTERS) - 1) & !bit(self.stack_pointer());
        let direct = call.target.or(callee.map(|callee| callee.target));
        let (contents, reads) = match direct {
            Some(target) => (Contents::call(graph, ENCODING, target), 0),
            None => {
                let op = self.general_call(before, last)?;
                (op.0, op.1)
            }
        };
        let on_stack = call.summary.reads_stack != 0 || call.summary.writes_frame;
        let mut op = Op::new(Code::Call(contents, on_stack.then_some(call.stack)));
        op.reads = (call.summary.reads | reads) & all;
        op.writes = call.summary.changes & all;
        op.kills = call.summary.overwrites & all;
        (op.reads_flags, op.writes_flags) = (call.summary.reads & kflow::FLAGS != 0, true);
        op.kills_flags = true;
        op.loads = call.reads.clone();
        op.removable = false;
        Ok(op)
    }

    /// Returns the comparison of the target of a computed call with a function.
    ///
    /// # Errors
    /// If there is no encoding for it.
    pub fn compare_target(&self, before: &State, last: &Instruction<'g>, callee: NodeId) -> Result<Op, Why> {
        let (simple, reads) = match Effect::target(&last.effects) {
            Some(Operand::Reg { reg, width: 4 }) => (Simple::CompareRegister(reg, 0), bit(reg)),
            Some(Operand::Load { from, width: 4 })
                if from.symbol.is_none() && from.index.is_none() && from.segment.is_none() =>
            {
                if matches!(self.explorer.place(before, &from), Some((Base::Stack, _))) {
                    return Err("it calls through a pointer on the stack");
                }
                let place = Place { base: from.base, displacement: from.displacement as i32 };
                (Simple::Compare(place, 0, WORD as u8), from.base.map_or(0, bit))
            }
            _ => return Err("it calls through a pointer that cannot be compared"),
        };
        let encoded =
            self.explorer.original.specialize.encode(simple, true).ok_or("an operation has no encoding")?;
        let at = encoded.number.ok_or("an operation has no field for an address")?;
        let address = (Target::Node(callee), 0);
        let refs = vec![reference(self.explorer.original.graph, at.into(), address)];
        let code = Code::Plain(Contents { bytes: encoded.bytes, refs });
        Ok(Op { reads, writes_flags: true, kills_flags: true, ..Op::new(code) })
    }

    /// Returns the code of a computed call, and the registers that it reads.
    fn general_call(&self, before: &State, last: &Instruction<'g>) -> Result<(Contents, u64), Why> {
        if let Some(((Base::Stack, _), _)) = self.explorer.operand_place(before, last) {
            return Err("it calls through a pointer on the stack");
        }
        let reads = self.explorer.original.isa.reads(&last.inst).registers;
        Ok((
            plain(self.explorer.original.graph, last)?,
            reads & ((1 << REGISTERS) - 1) & !bit(self.stack_pointer()),
        ))
    }
}
