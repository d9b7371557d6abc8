//! How numbers are written, and which rows make a curve.

use std::collections::BTreeMap;
use unisono_sim::papers::{OWN_TIMERS, Quantity, Row, SEQUENCER, Use};

/// Returns the number with four digits, or more before the point.
pub(super) fn number(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 + 1 };
    let text = format!("{value:.*}", usize::try_from(4 - digits).unwrap_or(0).min(4));
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// Returns the error in words: in percent, or as a difference where the point bounds that.
pub(super) fn error(row: &Row) -> String {
    let is_difference = row.what == Quantity::GroupMinusRpc;
    match row.error {
        Some(error) if is_difference => format!("{error:+.2} {}", row.unit),
        Some(error) => format!("{:+.1} %", 100.0 * error),
        None => String::new(),
    }
}

/// The conditions that tell rows of a point apart, in the order in which people name them.
const SHOWN: [&str; 14] = [
    "members",
    "members_from",
    "members_to",
    "bytes",
    "r",
    "method",
    "senders",
    "groups",
    "op",
    "service",
    "servers",
    "clients",
    "destinations",
    "load",
];

/// Returns the row's conditions in words.
pub(super) fn conditions(row: &Row) -> String {
    let word = |key: &&str| {
        let value = row.conditions.get(*key)?;
        let text = value.as_str().map_or_else(|| value.to_string(), String::from);
        Some(format!("{key} {text}"))
    };
    SHOWN.iter().filter_map(word).collect::<Vec<_>>().join(", ")
}

/// Returns what real processes gave, in words, with the ratios to the figure's first row.
pub(super) fn here(row: &Row) -> Option<String> {
    let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "–".into(), number);
    let mut words = Vec::new();
    if let (Some(here), Some(unit)) = (row.here, &row.here_unit) {
        words.push(format!("loopback {} {unit}, times the first {}", number(here), ratio(row.here_ratio)));
    }
    for (network, found) in &row.here_lab {
        words.push(format!("lab {network} {}, times the first {}", number(found.number), ratio(found.ratio)));
    }
    if words.is_empty() {
        return None;
    }
    let compared = match row.paper_ratio {
        Some(_) => format!("paper {}", ratio(row.paper_ratio)),
        None => format!("testbed {}", ratio(row.simulated_ratio)),
    };
    Some(format!("{}; {compared}", words.join("; ")))
}

/// Returns the rows that our ring measures in RMP's place, each with RMP's number, the ring's, that of the ring with its own
/// timers alone, and that of a group with a sequencer, as text.
pub(super) fn ring(rows: &[Row]) -> Vec<(&Row, [String; 4])> {
    let shown = |number: Option<&f64>| number.map_or_else(String::new, |found| self::number(*found));
    let of_ring = rows.iter().filter(|row| !row.ours_otherwise.is_empty());
    let numbers = |row: &Row| {
        let otherwise = |name| shown(row.ours_otherwise.get(name));
        [shown(row.simulated.as_ref()), shown(row.ours.as_ref()), otherwise(OWN_TIMERS), otherwise(SEQUENCER)]
    };
    of_ring.map(|row| (row, numbers(row))).collect()
}

/// Finds, for each figure with at least three of the paper's numbers of one kind, how far its first number is from the
/// farthest of the others: a constant would have come as near.
pub(super) fn constants(rows: &[Row]) -> Vec<(String, String, f64, f64)> {
    let mut curves: BTreeMap<(&str, &str), Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|row| matches!(row.use_, Use::Fit | Use::Predict) && row.paper.is_some()) {
        curves.entry((&row.figure, row.what.name())).or_default().push(row);
    }
    let far = |curve: &[&Row], of: &dyn Fn(&Row) -> Option<f64>| {
        let errors = curve.iter().filter_map(|row| Some((of(row)? / row.paper? - 1.0).abs()));
        errors.fold(0.0, f64::max)
    };
    let of_curve = |((figure, what), curve): ((&str, &str), Vec<&Row>)| {
        let first = curve.first()?.paper?;
        let (constant, ours) = (far(&curve, &|_| Some(first)), far(&curve, &|row| row.simulated));
        (curve.len() >= 3 && first != 0.0).then(|| (figure.into(), what.into(), constant, ours))
    };
    curves.into_iter().filter_map(of_curve).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_four_digits() {
        let texts = [0.0, 0.0061, 1.31642, 22.735, 815.04, 1265.82, 736_600.0, -0.0921].map(number);
        assert_eq!(texts, ["0", "0.0061", "1.316", "22.73", "815", "1266", "736600", "-0.0921"]);
    }
}
