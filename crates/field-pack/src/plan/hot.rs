//! The members that are used too often to be compressed (section 5.1 of the paper).

/// Returns the paper's `N` for a threshold `r`: the least number such that the members with more than `N` loads and stores
/// have at most the share `r` of all loads and stores. `costs` are the loads and stores of all compressible members.
pub fn limit(costs: impl IntoIterator<Item = u64>, r: f64) -> u64 {
    let mut costs: Vec<u64> = costs.into_iter().collect();
    costs.sort_unstable_by(|one, other| other.cmp(one));
    let all: u128 = costs.iter().map(|&cost| u128::from(cost)).sum();
    let allowed = all as f64 * r;
    // A smaller `N` adds all members with the next cost at once.
    let (mut sum, mut start) = (0u128, 0);
    while start < costs.len() {
        let cost = costs[start];
        let equal = costs[start..].iter().take_while(|&&other| other == cost).count();
        sum += u128::from(cost) * equal as u128;
        if sum as f64 > allowed {
            return cost;
        }
        start += equal;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::limit;

    /// The definition: tries every `N`.
    fn model(costs: &[u64], r: f64) -> u64 {
        let all: u64 = costs.iter().sum();
        let over = |n: u64| costs.iter().filter(|&&cost| cost > n).sum::<u64>();
        (0..).find(|&n| over(n) as f64 <= all as f64 * r).unwrap()
    }

    #[test]
    fn limit_is_the_least_number_of_the_definition() {
        let mut seed = 7u64;
        let mut next = |end: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % end
        };
        for _ in 0..500 {
            let costs: Vec<u64> = (0..next(9)).map(|_| next(20)).collect();
            for r in [0.0, 0.2, 0.4, 0.6, 0.8, 1.0] {
                let (found, expected) = (limit(costs.iter().copied(), r), model(&costs, r));
                // Between two costs, all numbers select the same members.
                assert_eq!(found, expected, "{costs:?} {r}");
            }
        }
    }

    #[test]
    fn nothing_is_hot_at_0_and_all_that_is_used_at_1() {
        assert_eq!(limit([5, 3, 3, 0], 0.0), 5);
        assert_eq!(limit([5, 3, 3, 0], 0.5), 3);
        assert_eq!(limit([5, 3, 3, 0], 1.0), 0);
        assert_eq!(limit([], 0.5), 0);
    }
}
