//! Rows: each point with what the testbed says of it, and whether that is good.

use super::laboratory::{Laboratory, Side};
use super::points::{Point, Quantity, Use, points};
use super::quantities;
use super::ring::Manner;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use toml::Value;

/// A parameter that was fitted on a point makes it come out within this share.
const FITTED_WITHIN: f64 = 0.03;
/// Rounding of the numbers that are compared.
const ROUNDING: f64 = 1e-9;

/// How else than as a ring our core runs in RMP's place: with a sequencer, and with its own timers alone.
pub const SEQUENCER: &str = "sequencer";
/// See [`SEQUENCER`].
pub const OWN_TIMERS: &str = "own timers";
const OTHERWISE: [(&str, Manner); 2] = [(SEQUENCER, Manner::Sequencer), (OWN_TIMERS, Manner::OwnTimers)];

/// A point and its numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the point.
    pub point: String,
    /// Figure to which it belongs.
    pub figure: String,
    /// What it is good for.
    #[serde(rename = "use")]
    pub use_: Use,
    /// What was measured.
    pub what: Quantity,
    /// Place in the paper and conditions.
    #[serde(flatten)]
    pub conditions: BTreeMap<String, Value>,
    /// Unit of the numbers.
    pub unit: String,
    /// The paper's number.
    pub paper: Option<f64>,
    /// That of the papers' system on the testbed.
    pub simulated: Option<f64>,
    /// That of our own core on the testbed.
    pub ours: Option<f64>,
    /// The same where our core runs otherwise than for `ours`, by what differs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ours_otherwise: BTreeMap<&'static str, f64>,
    /// That of real processes on this machine.
    pub here: Option<f64>,
    /// Unit of `here`.
    pub here_unit: Option<String>,
    /// The paper's number over that of the figure's first row.
    pub paper_ratio: Option<f64>,
    /// The same of `simulated`.
    pub simulated_ratio: Option<f64>,
    /// The same of `here`.
    pub here_ratio: Option<f64>,
    /// What real processes give where each has a host of its own, by the network that joins these.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub here_lab: BTreeMap<&'static str, InLab>,
    /// Simulated over paper, less 1; the difference if the point bounds that.
    pub error: Option<f64>,
    /// Bound of the error.
    pub tolerance: Option<f64>,
    /// True if the error is within its bound, or the point's rule holds; none if nothing is to be judged.
    pub good: Option<bool>,
    /// Why it is an exception.
    pub why: Option<String>,
    /// Why our own core differs.
    pub ours_why: Option<String>,
}

/// A number of real processes on hosts of their own.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct InLab {
    /// The number, in the unit of `here`.
    pub number: f64,
    /// Its ratio to that of the figure's first row.
    pub ratio: Option<f64>,
}

/// Returns the points that one of these names means: `all`, a paper, a figure, or a point.
///
/// # Errors
/// The first name that means no point.
pub fn select(names: &[String]) -> Result<Vec<Point>, String> {
    let points = points();
    let means = |name: &str, point: &Point| {
        name == "all" || [point.paper(), point.figure(), point.id.as_str()].contains(&name)
    };
    match names.iter().find(|name| !points.iter().any(|point| means(name, point))) {
        Some(unknown) => Err(unknown.clone()),
        None => Ok(points.into_iter().filter(|point| names.iter().any(|name| means(name, point))).collect()),
    }
}

/// Measures points on this number of threads. `progress` learns how many are done.
pub fn run(
    points: &[Point],
    lab: &Laboratory,
    threads: usize,
    progress: &(dyn Fn(usize) + Sync),
) -> Vec<Row> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let rows = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(point) = points.get(index) else { break };
                    let row = row(point, lab);
                    rows.lock().unwrap_or_else(PoisonError::into_inner).insert(index, row);
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    let rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    with_ratios(rows.into_values().collect())
}

fn row(point: &Point, lab: &Laboratory) -> Row {
    let found = quantities::measure(point, Side::Papers, lab);
    let ours = quantities::measure(point, Side::Ours, lab).number;
    let otherwise = OTHERWISE.into_iter().filter_map(|(name, manner)| {
        let number = quantities::of_ring(point, manner, lab).number?;
        Some((name, number))
    });
    let error = found.number.zip(point.value).map(|(simulated, paper)| match point.absolute {
        Some(_) => simulated - paper,
        None => simulated / paper - 1.0,
    });
    let tolerance = match point.use_ {
        Use::Fit => Some(FITTED_WITHIN),
        _ => point.absolute.or(point.tolerance),
    };
    let is_within = || Some(error?.abs() <= tolerance? + ROUNDING && ours_is_within(point, ours)?);
    let good = match point.use_ {
        Use::Fit | Use::Predict | Use::Count => Some(is_within().unwrap_or(false)),
        Use::Order => Some(found.rule.unwrap_or(false)),
        Use::Given | Use::Exception | Use::Print | Use::Quote => None,
    };
    Row {
        point: point.id.clone(),
        figure: point.figure().into(),
        use_: point.use_,
        what: point.what,
        conditions: point.conditions.clone(),
        unit: point.unit.clone(),
        paper: point.value,
        simulated: found.number,
        ours,
        ours_otherwise: otherwise.collect(),
        here: None,
        here_unit: None,
        paper_ratio: None,
        simulated_ratio: None,
        here_ratio: None,
        here_lab: BTreeMap::new(),
        error,
        tolerance,
        good,
        why: point.why.clone(),
        ours_why: point.ours_why.clone(),
    }
}

/// True if our own core gives the number that the point states for it, if it states one.
fn ours_is_within(point: &Point, ours: Option<f64>) -> Option<bool> {
    let Some(expected) = point.ours else { return Some(true) };
    Some((ours? / expected - 1.0).abs() <= point.tolerance?)
}

/// Adds the ratios to the figure's first row of the same quantity.
fn with_ratios(mut rows: Vec<Row>) -> Vec<Row> {
    for (row, ratio) in ratios(&rows, |row| row.paper) {
        rows[row].paper_ratio = Some(ratio);
    }
    for (row, ratio) in ratios(&rows, |row| row.simulated) {
        rows[row].simulated_ratio = Some(ratio);
    }
    rows
}

/// Returns the ratios of these numbers to that of the first row of the same figure and quantity that has one, with the
/// places of their rows.
pub fn ratios(rows: &[Row], number: impl Fn(&Row) -> Option<f64>) -> Vec<(usize, f64)> {
    let mut first: BTreeMap<(&str, Quantity), f64> = BTreeMap::new();
    let mut found = Vec::new();
    for (place, row) in rows.iter().enumerate() {
        let Some(number) = number(row) else { continue };
        let base = *first.entry((&row.figure, row.what)).or_insert(number);
        if base != 0.0 {
            found.push((place, number / base));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::costs::Costs;
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn a_name_is_a_paper_a_figure_or_a_point() {
        let count = |name: &str| select(&names(&[name])).unwrap().len();
        assert!(count("all") > count("KT93") && count("KT93") > count("KT93-27"));
        assert_eq!(count("KT93-27-r1"), 1);
        assert_eq!(select(&names(&["KT93", "KT94"])).unwrap_err(), "KT94");
    }

    #[test]
    fn our_own_number_is_judged_where_a_point_states_it() {
        let mut points = select(&names(&["KT93-27-packets-r1"])).unwrap();
        assert_eq!((points[0].value, points[0].ours), (Some(4.0), Some(3.0)));
        let lab = Laboratory::new(Costs::default(), 1);
        let good = |points: &[Point]| run(points, &lab, 1, &|_| {})[0].good;
        assert_eq!(good(&points), Some(true));
        points[0].ours = Some(4.0);
        assert_eq!(good(&points), Some(false));
    }

    #[test]
    fn rows_are_the_same_on_any_number_of_threads() {
        let points = select(&names(&["KTHB89-6"])).unwrap();
        let numbers = |threads| {
            let lab = Laboratory::new(Costs::default(), 1);
            let rows = run(&points, &lab, threads, &|_| {});
            rows.into_iter().map(|row| (row.simulated, row.ours)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1), numbers(2));
    }
}
