//! The objects at each call, from the output of gdb.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::layout::Object;
use crate::script::{CALL, END, OBJECT};

/// The words of objects at a call, by the number of the object. An object that did not exist is missing.
pub type Call = BTreeMap<usize, Vec<u32>>;

/// Reads the output of gdb for [`script`](crate::script::script). Messages call it `name`. A call at the end that was not
/// printed whole is left out.
///
/// # Errors
/// If it is no such output, or has other objects.
pub fn read(text: &str, name: &str, objects: &[Object]) -> Result<Vec<Call>> {
    let mut calls: Vec<Call> = Vec::new();
    let mut current = None;
    let mut is_open = false;
    for (number, line) in text.lines().enumerate() {
        let wrong = |problem: String| Error::NotALog { name: name.into(), line: number + 1, problem };
        if line == CALL {
            calls.push(Call::new());
            (current, is_open) = (None, true);
        } else if line == END {
            (current, is_open) = (None, false);
        } else if let Some(object) = line.strip_prefix(OBJECT) {
            let at = objects.iter().position(|known| known.name == object);
            let at = at.ok_or_else(|| wrong(format!("the declaration has no object {object}")))?;
            let call = calls.last_mut().ok_or_else(|| wrong("an object before the first call".into()))?;
            call.insert(at, Vec::new());
            current = Some(at);
        } else if let (Some(at), Some(words)) = (current, words(line)) {
            let of_call = calls.last_mut().and_then(|call| call.get_mut(&at));
            let known = of_call.expect("an object that was added");
            known.extend(words);
            if known.len() as u64 > objects[at].words {
                return Err(wrong(format!(
                    "object {} has more than {} words",
                    objects[at].name, objects[at].words
                )));
            }
        }
    }
    let is_whole = |call: &Call| call.iter().all(|(&at, words)| words.len() as u64 == objects[at].words);
    if is_open {
        calls.pop();
    }
    match calls.iter().position(|call| !is_whole(call)) {
        Some(at) => {
            let problem = format!("call {} has an object of another size than the declaration", at + 1);
            Err(Error::NotALog { name: name.into(), line: text.lines().count(), problem })
        }
        None => Ok(calls),
    }
}

/// Returns the words of a line `ADDRESS: WORD…`, all hexadecimal.
fn words(line: &str) -> Option<Vec<u32>> {
    let (address, words) = line.split_once(':')?;
    let number = |text: &str| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    number(address)?;
    words.split_whitespace().map(number).collect()
}
