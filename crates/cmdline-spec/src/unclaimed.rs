//! Words of a command line that no parameter of the kernel claims.

use kplan::Params;

use crate::line::Word;

/// Minimum similarity (Jaro-Winkler, 0 to 1) of a proposed name.
const SIMILAR: f64 = 0.85;

/// Describes each word that no parameter claims, with the parameter that was probably meant. The kernel passes such a
/// word to init, as an argument or in the environment (`unknown_bootoption`, init/main.c).
pub fn describe(words: &[Word], params: &Params) -> Vec<String> {
    let names = params.named.iter().flat_map(|named| &named.parameters);
    let names: Vec<&str> = names
        .map(|parameter| parameter.name.as_str())
        .chain(params.unnamed.iter().map(|parameter| parameter.name.as_str()))
        .chain(params.kept.iter().map(|kept| kept.name.as_str()))
        .map(|name| name.trim_end_matches('='))
        .collect();
    let is_claimed =
        |word: &&Word| params.named.iter().any(|named| named.name == word.name && named.value == word.value);
    let unclaimed = words.iter().filter(|word| !is_claimed(word));
    unclaimed
        .map(|word| {
            let near = names.iter().map(|name| (strsim::jaro_winkler(name, &word.name), name));
            let near = near.max_by(|one, other| one.0.total_cmp(&other.0)).filter(|near| near.0 >= SIMILAR);
            let hint = near.map(|(_, name)| format!(" (did you mean {name}?)")).unwrap_or_default();
            format!("{word}: no parameter of this kernel has this name, so the word is passed to init{hint}")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use kplan::{NamedParameter, OnMismatch, ParameterName, ParameterTable};

    use super::*;
    use crate::line;

    #[test]
    fn a_word_without_parameter_is_named_with_what_is_similar() {
        let parameter = |name: &str| ParameterName { name: name.to_owned(), table: ParameterTable::Setup };
        let params = Params {
            command_line: String::new(),
            on_mismatch: OnMismatch::Warn,
            named: vec![NamedParameter {
                name: "panic".to_owned(),
                value: Some("-1".to_owned()),
                parameters: vec![parameter("panic")],
            }],
            unnamed: vec![parameter("console="), parameter("root=")],
            fixed: Vec::new(),
            kept: Vec::new(),
        };
        let told = describe(&line::words("panic=-1 consle=ttyS0 roto=/dev/sda xyz"), &params);
        let starts: Vec<&str> = told.iter().map(|text| text.split(':').next().unwrap()).collect();
        assert_eq!(starts, ["consle=ttyS0", "roto=/dev/sda", "xyz"]);
        assert!(told[0].ends_with("(did you mean console?)") && told[1].ends_with("(did you mean root?)"));
        assert!(told[2].ends_with("passed to init"), "{}", told[2]);
    }
}
