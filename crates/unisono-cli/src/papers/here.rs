//! The same measurements of real processes on this machine, by the benchmarks of this program.
//!
//! Times of today's machines mean nothing beside those of 1990. So a row gives both as ratios to the figure's first row:
//! whether delays grow with members, bytes and r as they did.

use crate::output::tell;
use crate::problem::Problem;
use crate::progress;
use anyhow::Context;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use unisono_sim::papers::{Row, Use};

/// Maximum number of processes: more than that on few processors measure the scheduler.
const PROCESSES_MAX: i64 = 16;
const MESSAGES: &str = "2000";
const SECONDS: &str = "1";

/// A benchmark: its arguments, the field of its last line that is wanted, and the unit of that.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Benchmark {
    arguments: Vec<String>,
    field: &'static str,
    unit: &'static str,
}

/// Adds to the rows what real processes give.
pub(super) fn measure(rows: &mut [Row]) -> Result<(), Problem> {
    let wanted: Vec<Option<Benchmark>> = rows.iter().map(benchmark).collect();
    let mut numbers: BTreeMap<Benchmark, Option<f64>> = BTreeMap::new();
    numbers.extend(wanted.iter().flatten().map(|benchmark| (benchmark.clone(), None)));
    let bar = progress::bar(numbers.len() as u64, "measurements here");
    for (benchmark, number) in &mut numbers {
        match run(benchmark) {
            Ok(found) => *number = Some(found),
            Err(error) => bar.suspend(|| tell(format_args!("{}: {error:#}", benchmark.arguments.join(" ")))),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut first: BTreeMap<(String, String), f64> = BTreeMap::new();
    for (row, benchmark) in rows.iter_mut().zip(wanted) {
        let Some(benchmark) = benchmark else { continue };
        row.here = numbers[&benchmark];
        row.here_unit = Some(benchmark.unit.into());
        if let Some(here) = row.here {
            let base = *first.entry((row.figure.clone(), row.what.clone())).or_insert(here);
            row.here_ratio = (base > 0.0).then(|| here / base);
        }
    }
    Ok(())
}

/// Returns the benchmark for a row of a group that is small enough; none for any other.
fn benchmark(row: &Row) -> Option<Benchmark> {
    let number = |key: &str| row.conditions.get(key).and_then(|value| value.as_integer());
    let text = |key: &str| row.conditions.get(key).and_then(|value| value.as_str());
    let is_group = matches!(text("machine"), Some("mc68020" | "mc68030"));
    let (members, groups) = (number("members")?, number("groups").unwrap_or(1));
    if !is_group
        || members * groups > PROCESSES_MAX
        || matches!(row.use_, Use::Given | Use::Quote | Use::Order)
    {
        return None;
    }
    let method = text("method").unwrap_or("pb");
    let mut options = vec![("--members", members), ("--bytes", number("bytes").unwrap_or(0))];
    let (bench, field, unit, last) = match row.what.as_str() {
        "delay" => {
            options.push(("--resilience", number("r").unwrap_or(0)));
            ("latency", "p50_us", "us", ["--messages", MESSAGES])
        }
        "throughput" => {
            options.extend([("--groups", groups), ("--senders", number("senders").unwrap_or(1))]);
            ("parallel", "ordered_per_s", "per s", ["--seconds", SECONDS])
        }
        _ => return None,
    };
    let options = options.iter().flat_map(|(key, value)| [key.to_string(), value.to_string()]);
    let words = ["bench", bench, "--json", "--unsealed", "--method", method].into_iter().chain(last);
    Some(Benchmark { arguments: words.map(String::from).chain(options).collect(), field, unit })
}

fn run(benchmark: &Benchmark) -> anyhow::Result<f64> {
    let program = std::env::current_exe().context("cannot find this program's own file to start it again")?;
    let output = Command::new(program)
        .args(&benchmark.arguments)
        .stdin(Stdio::null())
        .output()
        .context("cannot start a benchmark")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last: Value =
        text.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    let said = || String::from_utf8_lossy(&output.stderr).trim().to_string();
    last[benchmark.field].as_f64().with_context(said)
}
