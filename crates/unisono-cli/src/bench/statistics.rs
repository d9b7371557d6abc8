//! Quantiles of times, and the ratio of two sides that were measured in alternating rounds.

use crate::output::rounded;

/// Returns the value below which this fraction of the values lies; 0 if there are none.
pub(crate) fn quantile(values: &mut [u64], fraction: f64) -> u64 {
    if values.is_empty() {
        return 0;
    }
    let at = (((values.len() - 1) as f64) * fraction).round() as usize;
    *values.select_nth_unstable(at).1
}

/// Returns the median; 0 if there are no values.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// A ratio taken once per round: its median, and its lowest and highest value.
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) spread: [f64; 2],
}

impl Ratio {
    /// Computes the ratio of two sides from one value of each per round.
    pub(crate) fn of(ours: &[f64], floor: &[f64]) -> Ratio {
        let mut rounds: Vec<f64> = ours
            .iter()
            .zip(floor)
            .filter(|(_, floor)| **floor > 0.0)
            .map(|(ours, floor)| ours / floor)
            .collect();
        let median = rounded(median(&mut rounds));
        let end = |at: Option<&f64>| rounded(at.copied().unwrap_or(0.0));
        Ratio { median, spread: [end(rounds.first()), end(rounds.last())] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_few_values() {
        assert_eq!(quantile(&mut [], 0.5), 0);
        assert_eq!(quantile(&mut [7], 0.99), 7);
        assert_eq!(quantile(&mut [3, 1, 2], 0.5), 2);
        assert_eq!(quantile(&mut (0..=1000).collect::<Vec<_>>(), 0.99), 990);
    }

    #[test]
    fn a_ratio_is_the_median_over_the_rounds() {
        let ratio = Ratio::of(&[2.0, 30.0, 3.0], &[1.0, 10.0, 2.0]);
        assert_eq!(ratio.median, 2.0);
        assert_eq!(ratio.spread, [1.5, 3.0]);
        assert_eq!(Ratio::of(&[1.0], &[0.0]).median, 0.0);
    }
}
