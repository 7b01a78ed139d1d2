//! The range of a numeric option in a given configuration.

use crate::expression::{Values, number};
use crate::kconfig::{Definition, Kind, Range};

impl Definition {
    /// Returns the range that counts, with numbers instead of options; `None` if none does.
    ///
    /// # Errors
    /// The reason why this is not known, for people.
    pub fn range(&self, values: Values<'_>) -> Result<Option<Range>, String> {
        for range in &self.ranges {
            let truth = match &range.condition {
                None => 2,
                Some(condition) => values
                    .truth(condition)
                    .ok_or_else(|| format!("the condition of its range, {condition}, cannot be evaluated"))?,
            };
            if truth == 0 {
                continue;
            }
            let (low, high) = (values.of(&range.low), values.of(&range.high));
            if self.is_defined_again {
                return Err("it is defined more than once, so any of its ranges may count".to_owned());
            }
            let is_number = |text: &str| match self.kind {
                Some(Kind::Hex) => text.starts_with("0x") && number(text).is_some(),
                _ => number(text).is_some(),
            };
            if !is_number(&low) || !is_number(&high) {
                return Err(format!("its range {} {} is no pair of numbers", range.low, range.high));
            }
            return Ok(Some(Range { low, high, condition: None }));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::Config;
    use crate::kconfig::Definitions;
    use crate::kconfig::tests::tree;

    #[test]
    fn first_range_with_a_true_condition_counts() {
        let main = "config BIG\n\tbool\nconfig LEAST\n\tint\n\tdefault 3\nconfig ORDER\n\tint \"Order\" if EXPERT\n\trange 8 10 if BIG\n\
                    \trange 2 LEAST if \\\n\t  !BIG && LEAST=3\n\trange 1 64\nconfig BASE\n\thex \"Base\"\n\trange 0x10 0x20\n\
                    config ODD\n\tint \"Odd\"\n\trange 1 2 if $(success,true)\nconfig TWICE\n\tint \"Twice\"\n\trange 1 2\n\
                    config TWICE\n\trange 5 6\nconfig FREE\n\tint \"Free\"\n\trange 1 2 if BIG\nconfig WRONG\n\tint \"Wrong\"\n\
                    \trange BIG 4\n";
        let source = tempfile::tempdir().unwrap();
        fs::write(source.path().join("Kconfig"), main).unwrap();
        let tree = tree(source.path());
        let found = Definitions::read(&tree);
        let low = |option: &str, config: &str| {
            let config = Config::parse(config);
            let values = Values { config: &config, definitions: &found };
            found.options[option].range(values).map(|range| range.map(|range| (range.low, range.high)))
        };
        let pair = |low: &str, high: &str| Ok(Some((low.to_owned(), high.to_owned())));
        assert_eq!(low("ORDER", "CONFIG_BIG=y\nCONFIG_LEAST=3\n"), pair("8", "10"));
        assert_eq!(low("ORDER", "CONFIG_LEAST=3\n"), pair("2", "3"));
        assert_eq!(low("ORDER", "CONFIG_LEAST=4\n"), pair("1", "64"));
        assert_eq!((low("BASE", ""), low("FREE", "")), (pair("0x10", "0x20"), Ok(None)));
        for option in ["ODD", "TWICE", "WRONG"] {
            assert!(low(option, "").is_err(), "{option}");
        }
        assert!(found.options["BASE"].is_number() && !found.options["BIG"].is_number());
    }
}
