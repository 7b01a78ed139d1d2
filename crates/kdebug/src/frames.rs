//! The tables by which a debugger finds the callers (`.debug_frame`).

use gimli::read::{
    CfaRule, CieOrFde, DebugFrame, Reader, RegisterRule, UnwindContext, UnwindExpression, UnwindSection,
    UnwindTableRow,
};
use gimli::write::{
    Address, CallFrameInstruction, CommonInformationEntry, ConvertResult, Expression, FrameDescriptionEntry,
    FrameTable,
};
use gimli::{BaseAddresses, Register};
use rustc_hash::FxHashMap;

use crate::places::Places;

/// Code at `start..end` of the rewritten kernel, and the rules that hold there.
struct Piece {
    start: u64,
    end: u64,
    cfa: CallFrameInstruction,
    rules: Vec<(Register, CallFrameInstruction)>,
}

/// Converts the tables. A function in several pieces gets an entry for each, which repeats the rules in force.
pub fn convert<R: Reader<Offset = usize>>(
    section: &DebugFrame<R>,
    places: &Places,
) -> ConvertResult<FrameTable> {
    let bases = BaseAddresses::default();
    let mut table = FrameTable::default();
    let mut cies = FxHashMap::default();
    let mut context = UnwindContext::new();
    let mut entries = section.entries(&bases);
    while let Some(entry) = entries.next()? {
        let CieOrFde::Fde(partial) = entry else { continue };
        let entry = partial.parse(DebugFrame::cie_from_offset)?;
        let mut pieces = Vec::new();
        let mut rows = entry.rows(section, &bases, &mut context)?;
        while let Some(row) = rows.next_row()? {
            let (cfa, rules) = rules_of(section, row)?;
            for piece in places.pieces_in_order(&(row.start_address()..row.end_address())) {
                let (cfa, rules) = (cfa.clone(), rules.clone());
                pieces.push(Piece { start: piece.start, end: piece.end, cfa, rules });
            }
        }
        if pieces.is_empty() {
            continue;
        }
        let cie = entry.cie();
        let id = *cies.entry(cie.offset()).or_insert_with(|| {
            let own = CommonInformationEntry::new(
                cie.encoding(),
                cie.code_alignment_factor() as u8,
                cie.data_alignment_factor() as i8,
                cie.return_address_register(),
            );
            table.add_cie(own)
        });
        pieces.sort_by_key(|piece| piece.start);
        for run in pieces.chunk_by(|a, b| a.end == b.start) {
            table.add_fde(id, entry_of(run));
        }
    }
    Ok(table)
}

/// Returns the entry for pieces that follow one another.
fn entry_of(run: &[Piece]) -> FrameDescriptionEntry {
    let (start, end) = (run[0].start, run[run.len() - 1].end);
    let mut entry = FrameDescriptionEntry::new(Address::Constant(start), (end - start) as u32);
    let mut before: &[(Register, CallFrameInstruction)] = &[];
    for piece in run {
        let offset = (piece.start - start) as u32;
        entry.add_instruction(offset, piece.cfa.clone());
        for (_, rule) in &piece.rules {
            entry.add_instruction(offset, rule.clone());
        }
        for &(register, _) in before {
            if piece.rules.iter().all(|&(own, _)| own != register) {
                entry.add_instruction(offset, CallFrameInstruction::SameValue(register));
            }
        }
        before = &piece.rules;
    }
    entry
}

/// Returns the rules of a row as instructions that set them.
fn rules_of<R: Reader<Offset = usize>>(
    section: &DebugFrame<R>,
    row: &UnwindTableRow<usize>,
) -> ConvertResult<(CallFrameInstruction, Vec<(Register, CallFrameInstruction)>)> {
    let raw = |expression: &UnwindExpression<usize>| -> ConvertResult<Expression> {
        Ok(Expression::raw(expression.get(section)?.0.to_slice()?.into()))
    };
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            CallFrameInstruction::Cfa(*register, *offset as i32)
        }
        CfaRule::Expression(expression) => CallFrameInstruction::CfaExpression(raw(expression)?),
    };
    let mut rules = Vec::new();
    for &(register, ref rule) in row.registers() {
        let rule = match rule {
            RegisterRule::Undefined => CallFrameInstruction::Undefined(register),
            RegisterRule::SameValue => CallFrameInstruction::SameValue(register),
            RegisterRule::Offset(offset) => CallFrameInstruction::Offset(register, *offset as i32),
            RegisterRule::ValOffset(offset) => CallFrameInstruction::ValOffset(register, *offset as i32),
            RegisterRule::Register(other) => CallFrameInstruction::Register(register, *other),
            RegisterRule::Expression(expression) => {
                CallFrameInstruction::Expression(register, raw(expression)?)
            }
            RegisterRule::ValExpression(expression) => {
                CallFrameInstruction::ValExpression(register, raw(expression)?)
            }
            _ => continue,
        };
        rules.push((register, rule));
    }
    Ok((cfa, rules))
}
