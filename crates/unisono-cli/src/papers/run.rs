//! `unisono papers run`: measures points and prints a row for each.

use super::{Changes, figures, here, page, report};
use crate::arguments;
use crate::output::{Output, Tone, several};
use crate::problem::Problem;
use crate::progress;
use anyhow::Context;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;
use unisono_sim::papers::{Laboratory, Row, Use, select};

/// Seed of the runs whose numbers docs/papers.md gives.
pub(super) const SEED: u64 = 1;

const HELP: &str = "\
NAME is a paper (KTHB89, KT93, KT96, KTV93, WMK94), a figure such as KT93-27, a point such as KT93-27-r1, or `all`.
Each row gives the paper's number, that of the papers' protocol on a simulated testbed of its time, and that of our own \
protocol on the same testbed. With --set, --rate or --seed nothing is judged: the words good and OFF then show what a change does.

Without --quick, which takes less than a minute, all points take up to a quarter of an hour: benchmarks of real processes \
follow, with at most 16 members, on loopback and, for root, in labs with a segment of 10 Mbit/s and without a limit. Theirs are \
ratios to the figure's first row.

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

impl Run {
    /// True if rows that are off fail the command: the testbed is as the papers have it.
    fn is_judged(&self) -> bool {
        self.changes.are_none() && self.seed.is_none()
    }
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
    let checked = check_pages(command)?;
    let lab = Laboratory::new(costs.clone(), command.seed.unwrap_or(SEED));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let bar = progress::bar(points.len() as u64, "points");
    let mut rows = unisono_sim::papers::run(&points, &lab, threads, &|done| bar.set_position(done as u64));
    bar.finish_and_clear();
    if !command.quick {
        here::measure(&mut rows, began);
    }
    output.say(HEAD)?;
    for row in &rows {
        tell(row, output)?;
    }
    if let Some(folder) = &command.report {
        report::write(folder, &rows, &costs, output)?;
    }
    let text = page::page(&rows, &costs);
    if let Some(path) = &command.page {
        write_page(path, &text)?;
    }
    summarize(command, &rows, began, output)?;
    match (checked, &command.check_page) {
        (Some(before), Some(path)) if before != text => {
            let path = path.display();
            Err(Problem::failed(format!(
                "{path} gives other numbers: `unisono papers run all --quick --page {path}` writes it anew"
            )))
        }
        _ => Ok(()),
    }
}

/// Refuses a page that this run cannot make. Returns the text of one that is to be checked.
fn check_pages(command: &Run) -> Result<Option<String>, Problem> {
    if command.page.is_none() && command.check_page.is_none() {
        return Ok(None);
    }
    if command.names != ["all"] || !command.is_judged() {
        return Err(Problem::usage(
            "a page needs all points as they are: `unisono papers run all`, without --set, --rate and --seed",
        ));
    }
    if let Some(path) = &command.page {
        // Before a quarter of an hour is spent for it.
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
        opened.map_err(|error| Problem::usage(format!("--page {}: {error}", path.display())))?;
    }
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path)
            .map_err(|error| Problem::usage(format!("--check-page {}: {error}", path.display())))
    };
    command.check_page.as_ref().map(read).transpose()
}

fn write_page(path: &Path, text: &str) -> Result<(), Problem> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

/// What stands above the rows.
const HEAD: &str = "\
verdict   point                             paper simulated     ours unit       error  conditions, and what real processes give";

fn tell(row: &Row, output: &Output) -> Result<(), Problem> {
    let shown = |number: Option<f64>| number.map_or_else(|| "–".into(), figures::number);
    let verdict = match (row.good, row.use_) {
        (Some(true), _) => output.tone(Tone::Good, "good     "),
        (Some(false), _) => output.tone(Tone::Bad, "OFF      "),
        (None, Use::Print) => "lost     ".into(),
        (None, of) => format!("{:9}", of.name()),
    };
    let rule = row.conditions.get("rule").and_then(|rule| rule.as_str());
    let words = [
        figures::conditions(row),
        figures::here(row).map_or_else(String::new, |here| format!("here {here}")),
        rule.map_or_else(String::new, |rule| format!("rule: {rule}")),
        row.why.as_ref().map_or_else(String::new, |why| format!("why: {why}")),
    ];
    output.say(format_args!(
        "{verdict} {:30} {:>8}  {:>8} {:>8} {:8} {:>8}  {}",
        row.point,
        shown(row.paper),
        shown(row.simulated),
        shown(row.ours),
        row.unit,
        figures::error(row),
        words.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join("; ")
    ))?;
    Ok(output.object(row)?)
}

fn summarize(command: &Run, rows: &[Row], began: Instant, output: &Output) -> Result<(), Problem> {
    let count = |of: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| of(row)).count();
    let uses = |of: Use| count(&|row| row.use_ == of);
    let (good, off) = (count(&|row| row.good == Some(true)), count(&|row| row.good == Some(false)));
    let (predicted, fitted, exceptions) = (uses(Use::Predict), uses(Use::Fit), uses(Use::Exception));
    let (counts, rules) = (uses(Use::Count), uses(Use::Order));
    let wall_s = crate::output::rounded(began.elapsed().as_secs_f64());
    output.say(format_args!(
        "{}; {} judged ({predicted} predicted, {fitted} fitted, {}, {}): {good} good, {off} off; {}; {wall_s:.1} s",
        several(rows.len() as u64, "row"),
        good + off,
        several(counts as u64, "count"),
        several(rules as u64, "rule"),
        several(exceptions as u64, "exception"),
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
    let names = rows.iter().filter(|row| row.good == Some(false)).map(|row| row.point.as_str());
    match names.collect::<Vec<_>>() {
        off if command.is_judged() && !off.is_empty() => {
            Err(Problem::failed(format!("{} off: {}", several(off.len() as u64, "row"), off.join(", "))))
        }
        _ => Ok(()),
    }
}
