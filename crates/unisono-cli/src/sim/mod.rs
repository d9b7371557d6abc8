//! `unisono sim`: runs the protocols in a simulated world, in which a seed determines everything.

mod enumerate;

use crate::arguments::{self, Common};
use crate::log;
use crate::output::{Output, Tone, several};
use crate::problem::Problem;
use crate::progress;
use crate::text_file;
use crate::units;
use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use unisono_sim::growth::{self, Cost, Growth, GrowthOptions};
use unisono_sim::run::{Progress, Summary};
use unisono_sim::{Planted, Profile, RunOptions, Scenario};

/// Maximum number of threads, a sanity limit.
const THREADS_MAX: usize = 1024;

/// Test the protocols in a simulated world that tries to break them
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono sim run --seeds 1..1000 --profile swarm")]
pub(crate) struct Sim {
    #[command(subcommand)]
    what: What,

    #[command(flatten)]
    manner: Manner,
}

/// The common flags of these commands. They send nothing, so the flags of the network are missing.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Manner {
    /// Settings file in TOML
    #[arg(long, global = true, value_name = "FILE", env = "UNISONO_CONFIG")]
    config: Option<PathBuf>,

    /// Print one JSON object per line
    #[arg(long, global = true, env = "UNISONO_JSON")]
    json: bool,

    #[command(flatten)]
    log: log::LogOptions,
}

#[derive(Debug, Subcommand)]
enum What {
    Run(Run),
    Replay(Replay),
    Scenario(Scenarios),
    Mutants(Mutants),
    Enumerate(enumerate::Enumerate),
    Growth(Sizes),
}

const RUN_HELP: &str = "\
A seed is 30 simulated seconds. The profile selects the kind of world:
  swarm      any faults, in any combination
  lossy      a network that loses, delays, repeats and damages datagrams; no crashes
  partition  a network that is partitioned again and again
  crash      members that crash, at every step of the protocol
  reset      unnecessary resets, several at a time, whose votes and proposals are lost or late
  perf       no faults: five members, 500 messages a second
  calls      clients and servers instead of a group, any faults
  reach      any faults, and members that can never send multicasts, or never receive them
  crowd      any faults, and groups of 12 to 40 members
  token      any faults, and groups in which the token goes round
  replica    any faults, and replicated states in memory or on disk, with their callers and holders of locks
  directory  any faults, and the directory service on disk with its clients

Example:
  unisono sim run --seeds 1..1000 --profile swarm";

/// Run many seeds, with faults and all checkers: exit status 1 if a seed fails
#[derive(Args, Debug)]
#[command(after_help = RUN_HELP)]
struct Run {
    /// The seeds, from the first to the last
    #[arg(long, value_name = "A..B", default_value = "1..100", value_parser = seeds)]
    seeds: RangeInclusive<u64>,

    /// Kind of world: swarm, lossy, partition, crash, reset, perf, calls, reach, crowd, token, replica, directory
    #[arg(long, value_name = "PROFILE", default_value = "swarm")]
    profile: Profile,

    /// Start no further seed after this time, such as 90m or 2h, or a number of minutes
    #[arg(long, value_name = "TIME", value_parser = units::whole_minutes(1..=100_000))]
    minutes: Option<u64>,

    /// Number of threads [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = arguments::within::<usize>(1..=THREADS_MAX))]
    threads: Option<usize>,
}

/// Print what happens under one seed, line by line: the same lines every time
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono sim replay 17 --profile swarm")]
struct Replay {
    /// The seed
    #[arg(value_parser = arguments::within::<u64>(0..=u64::MAX))]
    seed: u64,

    /// Kind of world: swarm, lossy, partition, crash, reset, perf, calls, reach, crowd, token, replica, directory
    #[arg(long, value_name = "PROFILE", default_value = "swarm")]
    profile: Profile,

    /// Write the lines to a file, and print only their number
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Switch on this planted bug, one of those that `unisono sim mutants` names
    #[arg(long, value_name = "NAME", value_parser = planted)]
    planted: Option<Planted>,
}

const SCENARIO_HELP: &str = "\
A script describes a group, what happens to it and when, and the events that its processes must have
received at the end:

  members 3
  resilience 1
  at 10ms crash 0
  until 2s
  expect 1 2:
    3 reset [1 2] sequencer 1 without [0]

crates/unisono-sim/scenarios/README.md describes the language of scripts.

Example:
  unisono sim scenario crates/unisono-sim/scenarios/*.scenario";

/// Run scripts and compare their events with the expected ones: exit status 1 if a script differs
#[derive(Args, Debug)]
#[command(after_help = SCENARIO_HELP)]
struct Scenarios {
    /// Script files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Print the events of every process even if they are as expected
    #[arg(long)]
    told: bool,
}

/// Plant bugs and check that the checkers catch them: exit status 1 if a bug is not caught
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono sim mutants")]
struct Mutants {
    /// Number of threads [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = arguments::within::<usize>(1..=THREADS_MAX))]
    threads: Option<usize>,
}

/// Measure what groups of growing size cost on the network and in memory, without faults
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono sim growth --members 10,30,100")]
struct Sizes {
    /// Sizes of the groups
    #[arg(
        long, value_name = "N,...", value_delimiter = ',', default_value = "10,30,100,300,1000",
        value_parser = arguments::within::<u16>(growth::MEMBERS)
    )]
    members: Vec<u16>,

    /// Send a copy to each member instead of a multicast
    #[arg(long)]
    copies: bool,
}

impl Sim {
    /// Returns the common flags.
    pub(crate) fn common(&self) -> Common {
        self.manner.common()
    }
}

impl Manner {
    /// Returns the common flags.
    pub(crate) fn common(&self) -> Common {
        Common { config: self.config.clone(), json: self.json, log: self.log, ..Common::default() }
    }
}

pub(crate) fn run(command: Sim, output: &Output) -> Result<(), Problem> {
    match command.what {
        What::Run(command) => run_seeds(command, output),
        What::Replay(command) => replay(command, output),
        What::Scenario(command) => scenarios(&command, output),
        What::Mutants(command) => mutants(&command, output),
        What::Enumerate(command) => enumerate::run(command, output),
        What::Growth(command) => growth(&command, output),
    }
}

/// Parses `A..B`, both included; `A` alone is one seed.
fn seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let range = from.parse().and_then(|from| Ok(from..=to.trim_start_matches('=').parse()?));
    let range: RangeInclusive<u64> = range.map_err(|_| "two numbers such as 1..100".to_string())?;
    if range.is_empty() { Err("the first seed is above the last".into()) } else { Ok(range) }
}

fn planted(text: &str) -> Result<Planted, String> {
    text.parse()
}

fn run_seeds(command: Run, output: &Output) -> Result<(), Problem> {
    let total = command.seeds.end().saturating_sub(*command.seeds.start()).saturating_add(1);
    let bar = progress::bar(total, "seeds");
    let options = RunOptions {
        seeds: command.seeds,
        profile: command.profile,
        threads: command.threads,
        time_max: command.minutes.map(|minutes| Duration::from_secs(60 * minutes)),
    };
    let summary = unisono_sim::run(&options, &|progress: Progress| bar.set_position(progress.done));
    bar.finish_and_clear();
    tell(&summary, output)?;
    output.object(&summary)?;
    match summary.failed.len() {
        0 => Ok(()),
        failed => {
            Err(Problem::failed(format!("{failed} of {} seeds failed: replay them as shown", summary.seeds)))
        }
    }
}

fn tell(summary: &Summary, output: &Output) -> std::io::Result<()> {
    for failure in &summary.failures {
        let words = format!(
            "seed {}: {} at {} us: {}",
            failure.seed, failure.property, failure.at_us, failure.reason
        );
        output.say(output.tone(Tone::Bad, words))?;
        output.say(format_args!("  {}", failure.replay))?;
    }
    output.say(format_args!(
        "{} ({}), {:.0} simulated seconds in {:.1} s: {:.0} times real time per core",
        several(summary.seeds, "seed"),
        summary.profile,
        summary.simulated_s,
        summary.wall_s,
        summary.speedup
    ))?;
    let done = match summary.profile {
        Profile::Calls => format!("{} answered", several(summary.calls, "call")),
        Profile::Replica => format!(
            "{}, {}, {}",
            several(summary.messages, "message"),
            several(summary.resets, "reset"),
            several(summary.locks, "lock")
        ),
        _ => format!(
            "{}, {} early, {} kept by resets, {}, {}",
            several(summary.messages, "message"),
            summary.early,
            summary.tails,
            several(summary.unreliable, "unreliable message"),
            several(summary.resets, "reset")
        ),
    };
    output.say(format_args!(
        "{done}, {}, {}, {}; {} of {} rare states met",
        several(summary.passes, "pass"),
        several(summary.crashes, "crash"),
        several(summary.partitions, "partition"),
        summary.probes_hit,
        summary.probes
    ))?;
    output.say(format_args!("fingerprint {}", summary.fingerprint))?;
    for (property, kept) in &summary.properties {
        output.say(format_args!("  {property:32} held {kept} times"))?;
    }
    Ok(())
}

/// The output of a replay: passes on the text, and counts its lines.
struct Telling {
    to: Box<dyn Write>,
    lines: u64,
    checksum: u32,
    /// The first error of writing. The simulation does not stop for it.
    written: std::io::Result<()>,
}

/// The handle by which the simulation writes to it.
struct Shared(Rc<RefCell<Telling>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let telling = &mut *self.0.borrow_mut();
        telling.lines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        telling.checksum = crc32c::crc32c_append(telling.checksum, bytes);
        if telling.written.is_ok() {
            telling.written = telling.to.write_all(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Does something that writes a trace, to this file or to standard output. Returns the result, and the number of lines and
/// the checksum of the trace.
fn traced<T>(
    trace: Option<&Path>,
    output: &Output,
    work: impl FnOnce(Box<dyn Write>) -> T,
) -> Result<(T, u64, u32), Problem> {
    let place = trace.unwrap_or(Path::new("standard output")).display();
    let unwritten = || format!("cannot write to {place}");
    let to: Box<dyn Write> = match trace {
        Some(path) => Box::new(BufWriter::new(File::create(path).with_context(unwritten)?)),
        None if output.json() => Box::new(std::io::sink()),
        None => Box::new(BufWriter::new(std::io::stdout())),
    };
    let telling = Rc::new(RefCell::new(Telling { to, lines: 0, checksum: 0, written: Ok(()) }));
    let result = work(Box::new(Shared(telling.clone())));
    let Telling { to, lines, checksum, written } = &mut *telling.borrow_mut();
    std::mem::replace(written, Ok(())).and_then(|()| to.flush()).with_context(unwritten)?;
    Ok((result, *lines, *checksum))
}

fn replay(command: Replay, output: &Output) -> Result<(), Problem> {
    let (violation, lines, checksum) = traced(command.trace.as_deref(), output, |trace| {
        unisono_sim::replay(command.seed, command.profile, command.planted, trace)
    })?;
    output.say(format_args!("seed {}: {lines} lines, checksum {checksum:08x}", command.seed))?;
    output.object(&json!({
        "command": "replay",
        "seed": command.seed,
        "profile": command.profile,
        "lines": lines,
        "checksum": format!("{checksum:08x}"),
        "violation": violation.as_ref().map(ToString::to_string),
    }))?;
    violation.map_or(Ok(()), |violation| Err(Problem::failed(violation)))
}

fn scenarios(command: &Scenarios, output: &Output) -> Result<(), Problem> {
    let mut different = 0;
    for path in &command.files {
        let (problems, told) = scenario(path)?;
        let name = path.display();
        if problems.is_empty() {
            output.say(format_args!("{}  {name}", output.tone(Tone::Good, "as expected")))?;
        } else {
            different += 1;
            output.say(format_args!("{}  {name}", output.tone(Tone::Bad, "different  ")))?;
        }
        for problem in &problems {
            output.say(format_args!("  {problem}"))?;
        }
        if command.told || !problems.is_empty() {
            output.say(told.trim_end())?;
        }
        output.object(
            &json!({"scenario": name.to_string(), "good": problems.is_empty(), "problems": problems}),
        )?;
    }
    output
        .object(&json!({"command": "scenario", "scenarios": command.files.len(), "different": different}))?;
    match different {
        0 => Ok(()),
        _ => Err(Problem::failed(format!("{different} of {} scripts differ", command.files.len()))),
    }
}

/// Maximum length of a script: 1 MiB.
const SCENARIO_BYTES_MAX: u64 = 1 << 20;

/// Runs a script. Returns the differences from what it expects, and the events of its processes.
fn scenario(path: &Path) -> Result<(Vec<String>, String), Problem> {
    let text = text_file::read(path, SCENARIO_BYTES_MAX)
        .map_err(|error| Problem::usage(format!("cannot read {}: {error}", path.display())))?;
    let scenario: Scenario =
        text.parse().map_err(|error| Problem::usage(format!("{}: {error}", path.display())))?;
    let course = scenario.run(None);
    Ok((course.problems, course.told))
}

fn mutants(command: &Mutants, output: &Output) -> Result<(), Problem> {
    let bar = progress::bar(Planted::all().count() as u64, "planted bugs");
    let report = unisono_sim::mutants(command.threads, &mut |_, _| bar.inc(1));
    bar.finish_and_clear();
    for mutant in &report.mutants {
        match (mutant.seeds_to_catch, &mutant.by) {
            (seeds, Some(by)) => {
                let caught = output.tone(Tone::Good, "caught  ");
                let after = seeds.map_or("in its history".into(), |seeds| format!("after {seeds:>4} seeds"));
                output.say(format_args!("{caught}  {:40} {after:16}, by {by}", mutant.name))?;
            }
            _ => output.say(format_args!("{}  {}", output.tone(Tone::Bad, "survived"), mutant.name))?,
        }
    }
    let mut object: Value = serde_json::to_value(&report).map_err(std::io::Error::other)?;
    object["command"] = "mutants".into();
    output.object(&object)?;
    let survived = report.planted - report.caught;
    match survived {
        0 => Ok(()),
        _ => Err(Problem::failed(format!("{survived} of {} planted bugs were not caught", report.planted))),
    }
}

fn growth(command: &Sizes, output: &Output) -> Result<(), Problem> {
    let steps = command.members.iter().map(|&members| growth::steps(members)).sum();
    let bar = progress::bar(steps, "members");
    output.say(format_args!(
        "{:>7}  {:^28}  {:^28}  {:^28}  {:>7}",
        "", "another member", "an idle second", "a message", "history"
    ))?;
    output.say(format_args!("{:>7}  {COST_HEAD}  {COST_HEAD}  {COST_HEAD}  {:>7}", "members", "entries"))?;
    for &members in &command.members {
        let options = GrowthOptions { members, copies: command.copies };
        let growth = unisono_sim::growth(options, &mut |steps| bar.inc(steps));
        let growth = growth.map_err(|error| Problem::failed(format!("{members} members: {error}")))?;
        bar.suspend(|| tell_growth(&growth, output))?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// Column heads of a cost, as wide as [`tell_growth`] prints it.
const COST_HEAD: &str = "    sent     bytes  received";

fn tell_growth(growth: &Growth, output: &Output) -> std::io::Result<()> {
    let cost = |cost: &Cost| format!("{:>8.1} {:>9.0} {:>9.1}", cost.datagrams, cost.bytes, cost.received);
    output.say(format_args!(
        "{:>7}  {}  {}  {}  {:>7}",
        growth.members,
        cost(&growth.join),
        cost(&growth.idle_second),
        cost(&growth.message),
        growth.history_entries
    ))?;
    output.object(growth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;

    #[test]
    fn the_help_names_every_profile() {
        let names: Vec<&str> = Profile::ALL.iter().map(|profile| profile.name()).collect();
        for command in [Run::augment_args(Command::new("run")), Replay::augment_args(Command::new("replay"))]
        {
            let help = command.clone().render_long_help().to_string();
            // Long lines are broken between words.
            let words: Vec<&str> = help.split_whitespace().collect();
            assert!(words.join(" ").contains(&names.join(", ")), "{help}");
        }
        let explained = |name: &&str| RUN_HELP.lines().any(|line| line.trim_start().starts_with(*name));
        assert_eq!(names.iter().find(|name| !explained(name)), None);
    }

    #[test]
    fn seeds_from_and_to() {
        assert_eq!(seeds("1..600"), Ok(1..=600));
        assert_eq!(seeds("7"), Ok(7..=7));
        assert_eq!(seeds("3..=4"), Ok(3..=4));
        for bad in ["", "x..2", "5..1", "..3", "-1..3"] {
            assert!(seeds(bad).is_err(), "{bad}");
        }
    }
}
