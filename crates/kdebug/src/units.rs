//! Units of source code: functions, variables and types.

use std::ops::Range as Addresses;

use gimli::constants as dw;
use gimli::read::{self, Attribute, AttributeValue, DebuggingInformationEntry, Reader, UnitRef};
use gimli::write::{
    self, Address, ConvertError, ConvertResult, ConvertUnit, ConvertUnitEntry, Dwarf, Expression,
    FilterUnitSection, Location, LocationList, Range, RangeList, UnitEntryId,
};

use crate::lines;
use crate::places::Places;

/// Converts all units. Leaves out what was removed.
pub fn convert<R: Reader<Offset = usize>>(read: &read::Dwarf<R>, places: &Places) -> ConvertResult<Dwarf> {
    let mut dwarf = Dwarf::new();
    let mut units = dwarf.convert_with_filter(kept(read, places)?)?;
    while let Some((mut unit, root)) = units.read_unit()? {
        lines::convert(&mut unit, places)?;
        let id = unit.unit.root();
        convert_entry(&mut unit, id, &root, places)?;
        let mut entry = unit.null_entry();
        while let Some(id) = unit.read_entry(&mut entry)? {
            if id.is_some() {
                let id = unit.add_entry(id, &entry);
                convert_entry(&mut unit, id, &entry, places)?;
            }
        }
    }
    Ok(dwarf)
}

/// Finds the functions and variables that the rewritten kernel has, and what they need.
fn kept<'a, R: Reader<Offset = usize>>(
    read: &'a read::Dwarf<R>,
    places: &Places,
) -> ConvertResult<FilterUnitSection<'a, R>> {
    let mut units = FilterUnitSection::new(read)?;
    while let Some(mut unit) = units.read_unit()? {
        let mut entry = unit.null_entry();
        while unit.read_entry(&mut entry)? {
            let is_kept = match entry.tag() {
                dw::DW_TAG_subprogram => !pieces_of(entry.read_unit, &entry, places)?.is_empty(),
                dw::DW_TAG_variable => is_variable_kept(entry.read_unit, &entry, places)?,
                _ => false,
            };
            if is_kept {
                unit.require_entry(entry.offset);
            }
        }
    }
    Ok(units)
}

/// Whether the address of a variable is known.
fn is_variable_kept<R: Reader<Offset = usize>>(
    unit: UnitRef<'_, R>,
    entry: &DebuggingInformationEntry<R>,
    places: &Places,
) -> ConvertResult<bool> {
    let Some(AttributeValue::Exprloc(expression)) = entry.attr_value(dw::DW_AT_location) else {
        return Ok(false);
    };
    let mut operations = expression.operations(unit.encoding());
    Ok(match operations.next()? {
        Some(read::Operation::Address { address }) => places.address(address).is_some(),
        _ => false,
    })
}

/// Returns the present pieces of an entry's code.
fn pieces_of<R: Reader<Offset = usize>>(
    unit: UnitRef<'_, R>,
    entry: &DebuggingInformationEntry<R>,
    places: &Places,
) -> ConvertResult<Vec<Addresses<u64>>> {
    let mut ranges = unit.die_ranges(entry)?;
    let mut all = Vec::new();
    while let Some(range) = ranges.next()? {
        all.push(range.begin..range.end);
    }
    Ok(places.pieces(all))
}

/// Converts the attributes of an entry. An attribute with an address that exists no longer is left out.
fn convert_entry<R: Reader<Offset = usize>>(
    unit: &mut ConvertUnit<'_, R>,
    id: UnitEntryId,
    entry: &ConvertUnitEntry<'_, R>,
    places: &Places,
) -> ConvertResult<()> {
    let tag = entry.tag();
    if entry.attr(dw::DW_AT_high_pc).is_some() || entry.attr(dw::DW_AT_ranges).is_some() {
        let pieces = pieces_of(entry.read_unit, entry, places)?;
        set_pieces(unit, id, &pieces);
    }
    for attribute in &entry.attrs {
        let name = attribute.name();
        let is_return = name == dw::DW_AT_call_return_pc || tag == dw::DW_TAG_GNU_call_site;
        let value = match (name, attribute.value()) {
            (dw::DW_AT_low_pc, _)
                if tag == dw::DW_TAG_compile_unit || entry.attr(dw::DW_AT_high_pc).is_some() =>
            {
                None
            }
            (dw::DW_AT_high_pc | dw::DW_AT_ranges, _) => None,
            // These refer to sections that are not converted.
            (dw::DW_AT_macros | dw::DW_AT_GNU_macros | dw::DW_AT_macro_info, _) => None,
            (dw::DW_AT_GNU_locviews | dw::DW_AT_GNU_entry_view, _) => None,
            (dw::DW_AT_low_pc | dw::DW_AT_entry_pc | dw::DW_AT_call_pc | dw::DW_AT_call_return_pc, value) => {
                let address = entry.read_unit.attr_address(value)?;
                let now = address.and_then(|a| if is_return { places.after(a) } else { places.code(a) });
                now.map(|now| write::AttributeValue::Address(Address::Constant(now)))
            }
            _ => convert_attribute(unit, entry.read_unit, attribute, places)?,
        };
        if let Some(value) = value {
            unit.unit.get_mut(id).set(name, value);
        }
    }
    Ok(())
}

/// Sets the addresses of an entry's code.
fn set_pieces<R: Reader<Offset = usize>>(
    unit: &mut ConvertUnit<'_, R>,
    id: UnitEntryId,
    pieces: &[Addresses<u64>],
) {
    let is_root = id == unit.unit.root();
    let address = |address| write::AttributeValue::Address(Address::Constant(address));
    match pieces {
        [] => {}
        [piece] if !is_root => {
            let entry = unit.unit.get_mut(id);
            entry.set(dw::DW_AT_low_pc, address(piece.start));
            entry.set(dw::DW_AT_high_pc, write::AttributeValue::Udata(piece.end - piece.start));
        }
        _ => {
            let pieces = pieces.iter().map(|piece| Range::StartEnd {
                begin: Address::Constant(piece.start),
                end: Address::Constant(piece.end),
            });
            let list = unit.unit.ranges.add(RangeList(pieces.collect()));
            let entry = unit.unit.get_mut(id);
            entry.set(dw::DW_AT_ranges, write::AttributeValue::RangeListRef(list));
            if is_root {
                // All lists are relative to this address.
                entry.set(dw::DW_AT_low_pc, address(0));
            }
        }
    }
}

/// Converts an attribute; `None` if it cannot be expressed.
fn convert_attribute<R: Reader<Offset = usize>>(
    unit: &mut ConvertUnit<'_, R>,
    read_unit: UnitRef<'_, R>,
    attribute: &Attribute<R>,
    places: &Places,
) -> ConvertResult<Option<write::AttributeValue>> {
    if let AttributeValue::LocationListsRef(_) | AttributeValue::DebugLocListsIndex(_) = attribute.value() {
        let list = locations(unit, read_unit, attribute, places)?;
        let list = list.map(|list| unit.unit.locations.add(list));
        return Ok(list.map(write::AttributeValue::LocationListRef));
    }
    let address = |address| places.address(address).map(Address::Constant);
    match unit.convert_attribute_value(read_unit, attribute, &address) {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the places of a variable in each piece of code; `None` if no such code exists.
fn locations<R: Reader<Offset = usize>>(
    unit: &ConvertUnit<'_, R>,
    read_unit: UnitRef<'_, R>,
    attribute: &Attribute<R>,
    places: &Places,
) -> ConvertResult<Option<LocationList>> {
    let Some(mut entries) = read_unit.attr_locations(attribute.value())? else { return Ok(None) };
    let mut list = Vec::new();
    while let Some(entry) = entries.next()? {
        let Some(data) = expression(unit, read_unit, entry.data, places)? else { continue };
        for piece in places.pieces(std::iter::once(entry.range.begin..entry.range.end)) {
            list.push(Location::StartEnd {
                begin: Address::Constant(piece.start),
                end: Address::Constant(piece.end),
                data: data.clone(),
            });
        }
    }
    Ok(Some(LocationList(list)).filter(|list| !list.0.is_empty()))
}

/// Converts an expression; `None` if it needs an address that exists no longer.
fn expression<R: Reader<Offset = usize>>(
    unit: &ConvertUnit<'_, R>,
    read_unit: UnitRef<'_, R>,
    expression: read::Expression<R>,
    places: &Places,
) -> ConvertResult<Option<Expression>> {
    let address = |address| places.address(address).map(Address::Constant);
    match unit.convert_expression(read_unit, expression, &address) {
        Ok(expression) => Ok(Some(expression)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether something cannot be converted because it refers to code, data or an entry that exists no longer, or because
/// it uses an extension.
fn is_gone(error: &ConvertError) -> bool {
    matches!(
        error,
        ConvertError::InvalidAddress
            | ConvertError::InvalidDebugInfoRef
            | ConvertError::InvalidUnitRef
            | ConvertError::UnsupportedOperation
    )
}
