//! Line tables.

use gimli::read::{ColumnType, Reader};
use gimli::write::{Address, ConvertResult, ConvertUnit, FileId, LineProgram, LineRow};

use crate::places::Places;

/// Code at `start..end` of the rewritten kernel, and its row. The row's own address is not used.
struct Piece {
    start: u64,
    end: u64,
    row: LineRow,
}

/// Converts the line table of a unit.
pub fn convert<R: Reader<Offset = usize>>(
    unit: &mut ConvertUnit<'_, R>,
    places: &Places,
) -> ConvertResult<()> {
    let Some(header) = unit.read_line_program(None, None)? else { return Ok(()) };
    let (mut program, files) = header.program();
    let pieces = pieces(unit, places, &files)?;
    for sequence in pieces.chunk_by(|a, b| a.end == b.start) {
        let (start, end) = (sequence[0].start, sequence[sequence.len() - 1].end);
        program.begin_sequence(Some(Address::Constant(start)));
        for piece in sequence {
            add_row(&mut program, LineRow { address_offset: piece.start - start, ..piece.row });
        }
        program.end_sequence(end - start);
    }
    unit.set_line_program(program, files);
    Ok(())
}

fn add_row(program: &mut LineProgram, row: LineRow) {
    *program.row() = row;
    program.generate_row();
}

/// Returns the present pieces of all rows, by rising address. `files` has the new number of each file.
fn pieces<R: Reader<Offset = usize>>(
    unit: &ConvertUnit<'_, R>,
    places: &Places,
    files: &[FileId],
) -> ConvertResult<Vec<Piece>> {
    let mut pieces = Vec::new();
    // A row holds up to the address of the next one in its sequence.
    let mut before: Option<(u64, LineRow)> = None;
    let mut rows = unit.read_unit.line_program.clone().expect("the unit has lines").rows();
    while let Some((_, row)) = rows.next_row()? {
        let address = row.address();
        if let Some((start, before)) = before.take() {
            add_pieces(places, start, address, &before, &mut pieces);
        }
        let file = usize::try_from(row.file_index()).ok().and_then(|index| files.get(index));
        if let Some(&file) = file.filter(|_| !row.end_sequence()) {
            let row = LineRow {
                address_offset: 0,
                op_index: row.op_index(),
                file,
                line: row.line().map_or(0, |line| line.get()),
                column: match row.column() {
                    ColumnType::LeftEdge => 0,
                    ColumnType::Column(column) => column.get(),
                },
                discriminator: row.discriminator(),
                is_statement: row.is_stmt(),
                basic_block: row.basic_block(),
                prologue_end: row.prologue_end(),
                epilogue_begin: row.epilogue_begin(),
                isa: row.isa(),
            };
            before = Some((address, row));
        }
    }
    // Stable, so that the last of several rows at one address stays the last.
    pieces.sort_by_key(|piece| piece.start);
    Ok(pieces)
}

/// Adds the pieces of one row, which holds for `start..end` of the original.
fn add_pieces(places: &Places, start: u64, end: u64, row: &LineRow, pieces: &mut Vec<Piece>) {
    if start == end {
        // Another row at the same address follows.
        pieces.extend(places.code(start).map(|now| Piece { start: now, end: now, row: *row }));
        return;
    }
    for (number, piece) in places.pieces_in_order(&(start..end)).enumerate() {
        // A debugger stops where a line begins.
        let is_first = number == 0;
        let row = LineRow {
            is_statement: row.is_statement && is_first,
            basic_block: row.basic_block && is_first,
            prologue_end: row.prologue_end && is_first,
            epilogue_begin: row.epilogue_begin && is_first,
            ..*row
        };
        pieces.push(Piece { start: piece.start, end: piece.end, row });
    }
}
