//! `--report DIR`: one page with a plot for each figure.

use super::here::SLOW;
use super::tables;
use crate::bench::report::{Curve, Look, draw, escaped, head};
use crate::output::Output;
use crate::problem::Problem;
use anyhow::Context;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use unisono_sim::papers::{Costs, Row, Use};

const TITLE: &str = "The papers, re-run";

/// What the horizontal axis of a figure can be: the first of these that varies within it. Members often follow another one.
const AXES: [&str; 6] = ["groups", "r", "senders", "clients", "members", "destinations"];
/// An exception that is farther out on the axis than this multiple of all other rows would squeeze them.
const FAR_OUT: f64 = 3.0;

/// Name of the page in its folder.
const PAGE: &str = "papers.html";

/// Makes the folder and refuses a page that cannot be written, before anything is measured.
pub(super) fn prepare(folder: &Path) -> Result<(), Problem> {
    let page = folder.join(PAGE);
    let unwritable = |error| Problem::usage(format!("--report: cannot write {}: {error}", page.display()));
    fs::create_dir_all(folder).map_err(unwritable)?;
    let is_new = !page.exists();
    fs::OpenOptions::new().append(true).create(true).open(&page).map_err(unwritable)?;
    if is_new { fs::remove_file(&page).map_err(unwritable) } else { Ok(()) }
}

/// Writes the page.
pub(super) fn write(folder: &Path, rows: &[Row], costs: &Costs, output: &Output) -> Result<(), Problem> {
    let mut page = head(TITLE);
    page.push_str(
        "<p>Dots: the paper, whose figures are lost where there are none. Lines: its protocol on a simulated testbed of its \
         time. Dashed: our own protocol on the same testbed; in WMK94's figures, as a ring.</p>\n\
         <p>Plots that end in <i>here</i> show real processes on this machine, as ratios to the figure's first row. Absolute \
         times of today's machines mean nothing beside those of 1990. Lines: loopback. Dashed: hosts of their own on a \
         shared segment of 10 Mbit/s. Grey: the paper, or the testbed where the paper's numbers are lost.</p>\n\
         <h2>Figures</h2>\n",
    );
    for (figure, rows) in by_figure(rows) {
        for (number, (caption, svg)) in plots(&figure, &rows).into_iter().enumerate() {
            // Plots use the same names inside, which would clash in one page.
            let svg = svg.replace("kuva-", &format!("{figure}-{number}-"));
            let _ = writeln!(page, "<figure><figcaption>{}</figcaption>{svg}</figure>", escaped(&caption));
        }
    }
    for (title, table) in [
        ("Exceptions", tables::exceptions(rows)),
        ("The ring in RMP's place", tables::ring(rows)),
        ("All points", tables::all_points(rows)),
        ("How near a constant comes", tables::constants(rows)),
        ("Costs", tables::costs(costs)),
    ] {
        if !table.is_empty() {
            let _ = writeln!(page, "<h2>{title}</h2>\n{}", table.html());
        }
    }
    let path = folder.join(PAGE);
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    output.say(format_args!("the report: {}", path.display()))?;
    Ok(output.object(&json!({"command": "papers", "report": path.display().to_string()}))?)
}

fn by_figure(rows: &[Row]) -> Vec<(String, Vec<&Row>)> {
    let mut figures: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in rows {
        match figures.iter_mut().find(|(figure, _)| *figure == row.figure) {
            Some((_, of_figure)) => of_figure.push(row),
            None => figures.push((row.figure.clone(), vec![row])),
        }
    }
    figures
}

/// Draws the plots of each quantity of a figure that has a curve: the testbed's numbers beside the paper's, and how those of
/// real processes grow.
fn plots(figure: &str, rows: &[&Row]) -> Vec<(String, String)> {
    let mut quantities: BTreeMap<(&str, &str), Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.simulated.is_some()) {
        quantities.entry((row.what.name(), &row.unit)).or_default().push(row);
    }
    let mut found = Vec::new();
    for ((what, unit), rows) in quantities {
        let Some(axis) = AXES.into_iter().find(|axis| varies(&rows, axis)) else { continue };
        let rows = without_far_exceptions(rows, axis);
        if let Some(svg) = draw(&on_testbed(&rows, axis), axis, unit) {
            found.push((format!("{figure}: {what}"), svg));
        }
        let here = here(&rows, axis);
        if here.iter().any(|curve| curve.look != Look::Floor && !curve.points.is_empty())
            && let Some(svg) = draw(&here, axis, "times the first row")
        {
            found.push((format!("{figure}: {what}, here"), svg));
        }
    }
    found
}

fn without_far_exceptions<'a>(rows: Vec<&'a Row>, axis: &str) -> Vec<&'a Row> {
    let is_exception = |row: &&Row| row.use_ == Use::Exception;
    let others = rows.iter().filter(|row| !is_exception(row)).filter_map(|row| number(row, axis));
    let most = others.fold(0.0, f64::max);
    let is_far = |row: &&Row| is_exception(row) && number(row, axis).is_some_and(|x| x > FAR_OUT * most);
    rows.into_iter().filter(|row| !is_far(row)).collect()
}

fn number(row: &Row, key: &str) -> Option<f64> {
    row.conditions.get(key)?.as_integer().map(|number| number as f64)
}

fn varies(rows: &[&Row], axis: &str) -> bool {
    let mut values = rows.iter().filter_map(|row| number(row, axis));
    values.next().is_some_and(|first| values.any(|other| other != first))
}

/// Returns the rows of each set of other conditions that varies within the figure, with these in words.
fn families<'a>(rows: &[&'a Row], axis: &str) -> Vec<(String, Vec<&'a Row>)> {
    let keys: Vec<&str> = ["members", "bytes", "method", "service", "op"]
        .into_iter()
        .filter(|key| *key != axis && has_several(rows, key) && !follows(rows, key, axis))
        .collect();
    let mut families: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in rows.iter().filter(|row| number(row, axis).is_some()) {
        let word = |key: &&str| {
            let value = row.conditions.get(*key)?;
            Some(value.as_str().map_or_else(|| format!("{key} {value}"), String::from))
        };
        let name = keys.iter().filter_map(word).collect::<Vec<_>>().join(", ");
        match families.iter_mut().find(|(known, _)| *known == name) {
            Some((_, of_family)) => of_family.push(row),
            None => families.push((name, vec![row])),
        }
    }
    families
}

fn has_several(rows: &[&Row], key: &str) -> bool {
    rows.iter().any(|row| row.conditions.get(key) != rows[0].conditions.get(key))
}

/// True if a condition has one value for each on the axis, as where all members send, or are needed for r.
fn follows(rows: &[&Row], key: &str, axis: &str) -> bool {
    rows.iter().all(|row| {
        let same = rows.iter().filter(|other| other.conditions.get(axis) == row.conditions.get(axis));
        same.into_iter().all(|other| other.conditions.get(key) == row.conditions.get(key))
    })
}

fn points(rows: &[&Row], axis: &str, of: impl Fn(&Row) -> Option<f64>) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> =
        rows.iter().filter_map(|row| Some((number(row, axis)?, of(row)?))).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}

/// Returns curves for each family: the simulated line, ours, and the paper's dots.
fn on_testbed(rows: &[&Row], axis: &str) -> Vec<Curve> {
    let mut curves = Vec::new();
    for (family, rows) in families(rows, axis) {
        let mut curve = |label: &str, look, of: fn(&Row) -> Option<f64>| {
            let points = points(&rows, axis, of);
            curves.push(Curve { label: format!("{label} {family}").trim().into(), look, points });
        };
        curve("simulated", Look::Line, |row| row.simulated);
        curve("ours", Look::Dashed, |row| row.ours);
        curve("paper", Look::Dots, |row| row.paper);
    }
    curves
}

/// Returns curves for each family: loopback, the slow segment, and grey what the paper says, or the testbed where that is
/// lost. All are ratios to the figure's first row.
fn here(rows: &[&Row], axis: &str) -> Vec<Curve> {
    let is_known = rows.iter().filter(|row| row.paper.is_some()).count() > 1;
    let mut curves = Vec::new();
    for (family, rows) in families(rows, axis) {
        let mut curve = |label: &str, look, of: &dyn Fn(&Row) -> Option<f64>| {
            let points = points(&rows, axis, of);
            curves.push(Curve { label: format!("{label} {family}").trim().into(), look, points });
        };
        curve("loopback", Look::Line, &|row| row.here_ratio);
        curve("10 Mbit/s", Look::Dashed, &|row| row.here_lab.get(SLOW)?.ratio);
        if is_known {
            curve("paper", Look::Floor, &|row| row.paper_ratio);
        } else {
            curve("testbed", Look::Floor, &|row| row.simulated_ratio);
        }
    }
    curves
}
