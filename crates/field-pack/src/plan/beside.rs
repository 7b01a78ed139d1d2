//! The values without a code that a kernel with an earlier plan counted: an image of memory shows only the values at one
//! time.

use std::collections::BTreeMap;

use crate::document::{MemberProfile, TypeProfile};

/// The greatest number of values without a code of a member that is stored as a code: one for so many objects.
const OBJECTS: u64 = 4;

/// The number of values without a code, by `STRUCTURE.MEMBER`.
#[derive(Clone, Debug, Default)]
pub struct Beside(BTreeMap<String, u64>);

impl Beside {
    /// Reads lines `STRUCTURE.MEMBER COUNT`, as `/proc/kshrink-fields` has them. The greatest count of several lines for a
    /// member counts. Other lines of that file have no point.
    ///
    /// # Errors
    /// If a line with a point is not one of these.
    pub fn parse(text: &str, name: &str) -> Result<Beside, String> {
        let mut counts = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let mut words = line.split_whitespace();
            let Some(member) = words.next().filter(|word| word.contains('.')) else { continue };
            let count = words.next().and_then(|word| word.parse::<u64>().ok());
            let (Some(count), None) = (count, words.next()) else {
                let at = number + 1;
                return Err(format!(
                    "{name}:{at}: {line:?}; expected STRUCTURE.MEMBER and a number, as /proc/kshrink-fields of a patched \
                     kernel has them"
                ));
            };
            let known = counts.entry(member.to_owned()).or_insert(0);
            *known = count.max(*known);
        }
        Ok(Beside(counts))
    }

    /// Returns the number of values of a member without a code, if a lookup of each costs more than the member is worth.
    pub fn are_many(&self, of: &TypeProfile, member: &MemberProfile) -> Option<u64> {
        let count = *self.0.get(&format!("{}.{}", of.name, member.name))?;
        (count > of.objects / OBJECTS).then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_members_are_read() {
        let beside = Beside::parse("now 3\never 20374\nnode.a 7\r\nnode.a 5\n", "beside").unwrap();
        assert_eq!(beside.0, BTreeMap::from([("node.a".to_owned(), 7)]));
        for line in ["node.a", "node.a x", "node.a 1 2"] {
            let message = Beside::parse(line, "beside").unwrap_err();
            assert!(message.starts_with("beside:1: "), "{message}");
        }
    }
}
