//! `unisono sim enumerate`: every order of few crashes and returns of three servers with disks.

use super::{THREADS_MAX, planted, traced};
use crate::arguments;
use crate::output::{Output, Tone, several};
use crate::problem::Problem;
use crate::progress;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::PathBuf;
use unisono_sim::enumerate::{self, EnumerateOptions, EnumerateSummary};
use unisono_sim::{DiskDurability, History, Planted};

const HELP: &str = "\
Three servers with disks create a service, and a client gives it three commands. Up to four steps are
taken, each a crash of one server, a crash of all, or a return: at every effect (a disk begins or has done
a job, a server applies a command or begins to serve), or when nothing happens any more. With durability
majority a step may also withhold the marks of one server from another one. Then a majority comes back,
then all, and callers ask for what the service has. It takes a few minutes.

A history is written as words. `slow=2,3 crash1@14 power@quiet last=2,3`: the disks of servers 2 and 3 are
slow, server 1 crashes at the 14th effect, all crash when nothing happens any more, and 2 and 3 come back
first. `withhold1-2@append1`: from the next append of server 1 on, its marks do not reach server 2.

Examples:
  unisono sim enumerate --durability majority
  unisono sim enumerate --durability one --history 'crash1@14 return1@quiet'";

/// Try every order of up to four crashes and returns of servers with disks: exit status 1 if one fails
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct Enumerate {
    /// How many disks hold a command before it is answered
    #[arg(long, value_enum, value_name = "RULE", default_value = "majority")]
    durability: Rule,

    /// Most steps of a history
    #[arg(long, value_name = "N", default_value_t = enumerate::STEPS_MAX, value_parser = arguments::within::<usize>(1..=enumerate::STEPS_MAX))]
    steps: usize,

    /// Number of threads [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = arguments::within::<usize>(1..=THREADS_MAX))]
    threads: Option<usize>,

    /// Run this history alone, and print what happens, line by line
    #[arg(long, value_name = "WORDS")]
    history: Option<History>,

    /// Write the lines of a history to a file, and print only their number
    #[arg(long, value_name = "FILE", requires = "history")]
    trace: Option<PathBuf>,

    /// Switch on this planted bug, one of those that `unisono sim mutants` names
    #[arg(long, value_name = "NAME", value_parser = planted)]
    planted: Option<Planted>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Rule {
    /// A majority of the disks
    Majority,
    /// One disk
    One,
}

pub(super) fn run(command: Enumerate, output: &Output) -> Result<(), Problem> {
    let durability = match command.durability {
        Rule::Majority => DiskDurability::Majority,
        Rule::One => DiskDurability::One,
    };
    if let Some(history) = command.history {
        return replay(&history.with(durability), command.planted, command.trace, output);
    }
    let bar = progress::count("histories");
    let options = EnumerateOptions {
        durability,
        steps: command.steps,
        threads: command.threads,
        planted: command.planted,
    };
    let summary = unisono_sim::enumerate(&options, &|run| bar.set_position(run));
    bar.finish_and_clear();
    tell(&summary, output)?;
    output.object(&summary)?;
    match summary.failed.len() {
        0 => Ok(()),
        failed => Err(Problem::failed(format!(
            "{failed} of {} histories failed: replay them as shown",
            summary.histories
        ))),
    }
}

fn tell(summary: &EnumerateSummary, output: &Output) -> std::io::Result<()> {
    for failed in &summary.failed {
        let words = format!("{}: {}: {}", failed.history, failed.property, failed.reason);
        output.say(output.tone(Tone::Bad, words))?;
        output.say(format_args!("  {}", failed.replay))?;
    }
    let points: Vec<String> = summary.points.iter().skip(1).map(u64::to_string).collect();
    output.say(format_args!(
        "{} with durability {} in {:.1} s; first, second and later steps at {} different points",
        several(summary.histories, "history"),
        summary.durability,
        summary.wall_s,
        points.join(", ")
    ))
}

fn replay(
    history: &History,
    planted: Option<Planted>,
    trace: Option<PathBuf>,
    output: &Output,
) -> Result<(), Problem> {
    let (violation, lines, _) =
        traced(trace.as_deref(), output, |trace| enumerate::replay(history, planted, Some(trace)))?;
    output.say(format_args!("{history}: {lines} lines"))?;
    output.object(&json!({
        "command": "enumerate",
        "durability": enumerate::name(history.durability()),
        "history": history.to_string(),
        "lines": lines,
        "violation": violation.as_ref().map(ToString::to_string),
    }))?;
    violation.map_or(Ok(()), |violation| Err(Problem::failed(violation)))
}
