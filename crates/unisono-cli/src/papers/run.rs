//! `unisono papers run`: measures points and prints a row for each.

use super::{Changes, figures, here, page, report};
use crate::arguments;
use crate::output::{Output, Tone, several};
use crate::problem::Problem;
use crate::progress;
use anyhow::Context;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;
use unisono_sim::papers::{Laboratory, Row, Use, select};

/// Seed of the runs whose numbers docs/papers.md gives.
pub(super) const SEED: u64 = 1;

const HELP: &str = "\
NAME is a paper (KTHB89, KT93, KT96, KTV93, WMK94), a figure such as KT93-27, a point such as KT93-27-r1, or `all`.
Each row gives the paper's number, that of the papers' protocol on a simulated testbed of its time, and that of our own
protocol on the same testbed. Without --quick, benchmarks of real processes follow, with at most 16 members: on loopback and,
for root, in labs with a segment of 10 Mbit/s and without a limit. Theirs are ratios to the figure's first row. For all that
takes a quarter of an hour at most.

Example:
  unisono papers run KT93-27 --quick";

/// Measure points of the papers again: exit status 1 if one is farther off than its tolerance
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct Run {
    /// Papers, figures or points, or `all`
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,

    /// Only simulate: no real processes
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    changes: Changes,

    /// Seed of the collisions and draws
    #[arg(long, value_name = "N", value_parser = arguments::within::<u64>(0..=u64::MAX))]
    seed: Option<u64>,

    /// Write a page with plots into this folder
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,

    /// Write docs/papers.md, or another file
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,

    /// Fail if this file is not what --page would write
    #[arg(long, value_name = "FILE", conflicts_with = "page")]
    check_page: Option<PathBuf>,
}

pub(super) fn run(command: &Run, output: &Output) -> Result<(), Problem> {
    let began = Instant::now();
    let costs = command.changes.costs()?;
    let points = select(&command.names).map_err(|name| {
        Problem::usage(format!("no paper, figure or point is named {name}: see `unisono papers list`"))
    })?;
    if let Some(folder) = &command.report {
        report::prepare(folder)?;
    }
    let lab = Laboratory::new(costs.clone(), command.seed.unwrap_or(SEED));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let bar = progress::bar(points.len() as u64, "points");
    let mut rows = unisono_sim::papers::run(&points, &lab, threads, &|done| bar.set_position(done as u64));
    bar.finish_and_clear();
    if !command.quick {
        here::measure(&mut rows, began);
    }
    for row in &rows {
        tell(row, output)?;
    }
    if let Some(folder) = &command.report {
        report::write(folder, &rows, &costs, output)?;
    }
    let is_current = pages(command, &rows, &costs)?;
    summarize(command, &rows, began, output)?;
    is_current
}

fn tell(row: &Row, output: &Output) -> Result<(), Problem> {
    let shown = |number: Option<f64>| number.map_or_else(|| "–".into(), figures::number);
    let verdict = match row.good {
        Some(true) => output.tone(Tone::Good, "good"),
        Some(false) => output.tone(Tone::Bad, "OFF "),
        None => "    ".into(),
    };
    let here = figures::here(row);
    output.say(format_args!(
        "{verdict} {:30} {:>8} {:>8} {:>8} {:6} {:>8}  {}{}{}",
        row.point,
        shown(row.paper),
        shown(row.simulated),
        shown(row.ours),
        row.unit,
        figures::error(row),
        figures::conditions(row),
        if here.is_empty() { "" } else { "; here " },
        here
    ))?;
    Ok(output.object(row)?)
}

/// Writes or checks the page. The inner result says whether a checked page is current.
fn pages(
    command: &Run,
    rows: &[Row],
    costs: &unisono_sim::papers::Costs,
) -> Result<Result<(), Problem>, Problem> {
    if let Some(path) = &command.page {
        let text = page::page(rows, costs);
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &command.check_page {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        if text != page::page(rows, costs) {
            let path = path.display();
            return Ok(Err(Problem::failed(format!(
                "{path} gives other numbers: `unisono papers run all --quick --page {path}` writes it anew"
            ))));
        }
    }
    Ok(Ok(()))
}

fn summarize(command: &Run, rows: &[Row], began: Instant, output: &Output) -> Result<(), Problem> {
    let count = |of: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| of(row)).count();
    let uses = |of: Use| count(&|row| row.use_ == of);
    let (good, off) = (count(&|row| row.good == Some(true)), count(&|row| row.good == Some(false)));
    let (predicted, fitted, exceptions) = (uses(Use::Predict), uses(Use::Fit), uses(Use::Exception));
    let wall_s = crate::output::rounded(began.elapsed().as_secs_f64());
    output.say(format_args!(
        "{}: {predicted} predicted, {fitted} fitted, {exceptions} exceptions; {good} good, {off} off; {wall_s:.1} s",
        several(rows.len() as u64, "row")
    ))?;
    output.object(&json!({
        "command": "papers",
        "rows": rows.len(),
        "predicted": predicted,
        "good": good,
        "exceptions": exceptions,
        "fitted": fitted,
        "wall_s": wall_s,
    }))?;
    let is_judged = command.changes.are_none() && command.seed.is_none();
    let names = rows.iter().filter(|row| row.good == Some(false)).map(|row| row.point.as_str());
    match names.collect::<Vec<_>>() {
        off if is_judged && !off.is_empty() => {
            Err(Problem::failed(format!("{} off: {}", several(off.len() as u64, "row"), off.join(", "))))
        }
        _ => Ok(()),
    }
}
