//! Boot parameters that may do the same as turning off an option: those that only the code of a proposed option has.

use kcli::Failure;
use kplan::{OptionAdvice, OptionValue, Plan};

use crate::table::Row;
use crate::types::SimpleType;

/// Returns a word of the command line for each parameter of the proposed options in the plan's section `config`, with
/// the reason. A number becomes 0, a switch off. Parameters that are 0 or off already, or of another type, are left out.
///
/// # Errors
/// Bad input if the plan, read from `name`, has no such section.
pub fn words(plan: &Plan, name: &str, rows: &[Row]) -> Result<Vec<String>, Failure> {
    let advice = plan.config.as_ref().ok_or_else(|| {
        Failure::bad_input(format!(
            "{name}: the plan has no section `config`; expected the output of `config-spec VMLINUX --advise`"
        ))
    })?;
    let off = || advice.options.iter().filter(|option| option.set == OptionValue::No);
    // The parameter of several options is that of the last one, which keeps the fewest bytes.
    let owner = |row: &Row| off().rfind(|option| option.parameters.contains(&row.name));
    Ok(rows.iter().filter_map(|row| word(owner(row)?, row)).collect())
}

fn word(option: &OptionAdvice, row: &Row) -> Option<String> {
    let simple = SimpleType::of_operations(&format!("param_ops_{}", row.kind.as_deref()?))?;
    let value = row.value.as_deref()?;
    let off = match simple {
        SimpleType::Bool | SimpleType::InvertedBool => "N",
        SimpleType::Integer { .. } => "0",
    };
    if simple.parse(Some(value), 8) == simple.parse(Some(off), 8) {
        return None;
    }
    let class = option.class;
    let name: String = option.name.chars().filter(|c| !c.is_control()).collect();
    Some(format!("{}={off}  # is {value}; only the code of {name} has it, which is {class}", row.name))
}
