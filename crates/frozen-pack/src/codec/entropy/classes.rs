//! Compact frequencies: symbols with about the same frequency share one.
//!
//! A distribution is a list of *classes*. All symbols of a class have the same frequency, one of the numbers of
//! [`frequency`], about four to an octave. Frequencies are out of 4096; the remainder is the frequency of the *escape*,
//! which means that the symbol is not listed.

/// The sum of the frequencies of a distribution and its escape.
pub const TOTAL: u32 = 1 << TOTAL_BITS;

/// Its logarithm.
pub const TOTAL_BITS: u32 = 12;

/// Number of frequency codes. Code 0 is not used.
pub const CODES: usize = 54;

/// The frequency of a code: 1 to 7, then 8, 10, 12, 14, 16, 20, ... 3584, and for almost certain symbols 3840, 3968,
/// 4032, ... 4094, 4095, 4096.
pub fn frequency(code: u8) -> u32 {
    match code {
        0..8 => u32::from(code),
        44.. => TOTAL - (256 >> (code - 44)),
        _ => (4 + u32::from(code & 3)) << ((code >> 2) - 1),
    }
}

/// Successive symbols of the list that share a frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// The code of the frequency of each symbol.
    pub code: u8,
    /// Number of symbols, 1 to 255.
    pub count: u8,
}

impl Class {
    /// Its part of [`TOTAL`].
    pub fn weight(&self) -> u32 {
        frequency(self.code) * u32::from(self.count)
    }
}

/// Cost of one more class, in bits of table.
pub const CLASS_BITS: f64 = 32.0;

/// Returns classes for symbols that occur `counts` times, in falling order, with an escape that occurs `escapes` times.
/// Minimizes the cost of the symbols and the table in bits, as far as it can be found quickly; examining a class costs
/// `price` bits.
///
/// There are at most 256 symbols, and no count is 0.
pub fn classes(counts: &[u32], escapes: u32, price: f64) -> Vec<Class> {
    let sum: u64 = counts.iter().map(|&count| u64::from(count)).sum::<u64>() + u64::from(escapes);
    let scale = f64::from(TOTAL) / sum as f64;
    let count = counts.len();
    let mut before = vec![0u64; count + 1];
    for (index, &c) in counts.iter().enumerate() {
        before[index + 1] = before[index] + u64::from(c);
    }
    // Shortest path over the boundaries between symbols: an edge is a class.
    let mut best = vec![(f64::INFINITY, 0usize, 0u8); count + 1];
    best[0].0 = 0.0;
    for start in 0..count {
        // The number of searches that reach this class.
        let behind = (sum - before[start]) as f64;
        for end in start + 1..=count.min(start + 255) {
            let occurrences = (before[end] - before[start]) as f64;
            let code = nearest(occurrences * scale / (end - start) as f64);
            let bits = -occurrences * (f64::from(frequency(code)) / f64::from(TOTAL)).log2();
            let cost = best[start].0 + bits + CLASS_BITS + price * behind;
            if cost < best[end].0 {
                best[end] = (cost, start, code);
            }
            // A class that spans two octaves is never best.
            if u64::from(counts[end - 1]) * 4 < u64::from(counts[start]) {
                break;
            }
        }
    }
    let mut classes = Vec::new();
    let mut occurrences = Vec::new();
    let mut end = count;
    while end > 0 {
        let (_, start, code) = best[end];
        classes.push(Class { code, count: (end - start) as u8 });
        occurrences.push((before[end] - before[start]) as f64);
        end = start;
    }
    classes.reverse();
    occurrences.reverse();
    fit(&mut classes, &occurrences, escapes);
    classes
}

/// The code of the frequency that is closest to `wanted`, by its logarithm.
fn nearest(wanted: f64) -> u8 {
    let distance = |code: u8| (f64::from(frequency(code)) / wanted).log2().abs();
    let above =
        (1..CODES as u8).find(|&code| f64::from(frequency(code)) >= wanted).unwrap_or(CODES as u8 - 1);
    if above > 1 && distance(above - 1) < distance(above) { above - 1 } else { above }
}

/// Adjusts frequencies until the remainder is sufficient for the escape, and not larger than useful.
fn fit(classes: &mut [Class], occurrences: &[f64], escapes: u32) {
    let reserve = u32::from(escapes > 0);
    let bits = |class: &Class, code: u8, occurrences: f64| {
        occurrences * (f64::from(frequency(class.code)) / f64::from(frequency(code))).log2()
    };
    loop {
        let weight: u32 = classes.iter().map(Class::weight).sum();
        if weight + reserve <= TOTAL {
            break;
        }
        // The loss relative to the freed part of the total.
        let loss = |index: &usize| {
            let class = &classes[*index];
            let code = class.code - 1;
            let freed = class.weight() - Class { code, ..*class }.weight();
            bits(class, code, occurrences[*index]) / f64::from(freed)
        };
        let shrinks = (0..classes.len()).filter(|&index| classes[index].code > 1);
        let Some(index) = shrinks.min_by(|a, b| loss(a).total_cmp(&loss(b))) else { break };
        classes[index].code -= 1;
    }
    loop {
        let weight: u32 = classes.iter().map(Class::weight).sum();
        let escape = TOTAL - weight;
        let gain = |index: usize| {
            let class = &classes[index];
            let code = class.code + 1;
            if usize::from(code) >= CODES {
                return f64::NEG_INFINITY;
            }
            let taken = Class { code, ..*class }.weight() - class.weight();
            if taken + reserve > escape {
                return f64::NEG_INFINITY;
            }
            let left = f64::from(escape - taken) / f64::from(escape);
            let lost = if escapes > 0 { -f64::from(escapes) * left.log2() } else { 0.0 };
            (-bits(class, code, occurrences[index]) - lost) / f64::from(taken)
        };
        let Some(index) = (0..classes.len()).max_by(|&a, &b| gain(a).total_cmp(&gain(b))) else { break };
        if gain(index) <= 0.0 {
            break;
        }
        classes[index].code += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_rise_and_end_at_the_total() {
        let all: Vec<u32> = (1..CODES as u8).map(frequency).collect();
        assert!(all.is_sorted_by(|a, b| a < b));
        assert_eq!((all[0], all[7], all[8], all[CODES - 2]), (1, 8, 10, TOTAL));
    }

    #[test]
    fn classes_hold_all_symbols_and_leave_room_for_the_escape() {
        let cases: [&[u32]; 6] =
            [&[1], &[1_000_000], &[900, 90, 9, 1], &[5; 256], &[1 << 20, 1, 1, 1], &[7, 6, 5, 4, 3, 2, 1]];
        for counts in cases {
            for escapes in [0, 1, 50, 1 << 20] {
                let classes = classes(counts, escapes, 0.0);
                let symbols: usize = classes.iter().map(|class| usize::from(class.count)).sum();
                let weight: u32 = classes.iter().map(Class::weight).sum();
                assert_eq!(symbols, counts.len());
                assert!(weight <= TOTAL - u32::from(escapes > 0), "{counts:?} {escapes}: {weight}");
                assert!(classes.iter().all(|class| class.weight() > 0));
            }
        }
    }
}
