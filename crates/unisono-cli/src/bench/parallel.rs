//! `unisono bench parallel`: measures the throughput of several groups that have no member in common.

use super::ground::{self, Ground};
use super::placement::Placement;
use super::report::{self, Chart, Column, Page, Series};
use super::throughput::loaded::{Counted, Load, Loaded};
use super::throughput::{BYTES_MAX, ROUNDS, UNTIMED, UNTIMED_SLOW};
use super::{Protocol, Summary};
use crate::arguments::{self, Common};
use crate::location::Location;
use crate::output::{Output, rounded};
use crate::problem::Problem;
use crate::progress;
use crate::settings::Settings;
use crate::units;
use clap::Args;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of processes, all groups together.
const PROCESSES_MAX: u64 = 250;

/// Measure the total throughput of a growing number of disjoint groups
///
/// By default all members but the sequencer send, each with one message under way, as in the papers. Then one group
/// does not use the whole machine, and further groups add throughput until the processors are busy. Prints a row for 1,
/// 2, 4, … groups.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  unisono bench parallel --groups 8 --members 2")]
pub(crate) struct Parallel {
    /// Maximum number of groups
    #[arg(long, value_name = "G", default_value_t = 4, value_parser = arguments::within::<u64>(1..=125))]
    groups: u64,

    /// Members of each group, one process each
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = arguments::within::<u64>(2..=64))]
    members: u64,

    /// How many of them send [default: all but the sequencer, whose own messages need no datagram to be numbered]
    #[arg(long, value_name = "S", value_parser = arguments::within::<u64>(1..=64))]
    senders: Option<u64>,

    /// Size of a message, such as 512 or 4KiB
    #[arg(long, value_name = "SIZE", default_value_t = 0, value_parser = units::bytes(0..=BYTES_MAX))]
    bytes: u64,

    /// Maximum number of messages of a member under way
    #[arg(long, value_name = "W", default_value_t = 1, value_parser = arguments::within::<u32>(1..=65_536))]
    window: u32,

    /// Seconds for each number of groups, such as 90 or 2m
    #[arg(long, value_name = "TIME", default_value_t = 5, value_parser = units::whole_seconds(1..=3600))]
    seconds: u64,

    #[command(flatten)]
    protocol: Protocol,

    /// On which processors the processes run
    #[arg(long, value_enum, default_value_t)]
    placement: Placement,

    /// Measure variations of this, and write a page with plots of them, parallel.html
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,

    #[command(flatten)]
    ground: ground::Choice,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: Parallel, settings: &Settings, output: &Output) -> Result<(), Problem> {
    if let Some(folder) = &command.report {
        return report(&command, folder, settings, output);
    }
    let bar = progress::bar(0, "rounds");
    measure(&command, settings, &bar, |summary| bar.suspend(|| summary.tell(output)))?;
    bar.finish_and_clear();
    Ok(())
}

/// Measures each number of groups, and gives each result to `row`.
fn measure(
    command: &Parallel,
    settings: &Settings,
    bar: &ProgressBar,
    mut row: impl FnMut(Summary) -> Result<(), Problem>,
) -> Result<(), Problem> {
    Problem::beyond(command.protocol.resilience, command.members)?;
    let senders = command.senders.unwrap_or(command.members - 1);
    if senders > command.members {
        return Err(Problem::usage("there cannot be more senders than members: use a lower --senders"));
    }
    let processes = command.groups * command.members;
    if processes > PROCESSES_MAX {
        return Err(Problem::usage(format!(
            "these are {processes} processes, and at most {PROCESSES_MAX} are allowed: use fewer groups or members"
        )));
    }
    let members = usize::try_from(command.members).unwrap_or(usize::MAX);
    let ground = Ground::prepare(&command.ground, processes as usize, false, settings)?;
    let locations = ground.locations(command.placement, processes as usize);
    let places: Vec<&[Location]> = locations.chunks(members).collect();
    let load = Load {
        senders: usize::try_from(senders).unwrap_or(usize::MAX),
        bytes: usize::try_from(command.bytes).unwrap_or(usize::MAX),
        window: command.window,
        protocol: command.protocol,
    };
    let untimed = if command.ground.rate.is_some() { UNTIMED_SLOW } else { UNTIMED };
    let timed = Duration::from_secs(command.seconds) / ROUNDS;
    let steps = steps(command.groups);
    bar.set_length(steps.len() as u64 * u64::from(ROUNDS));
    let mut groups: Vec<Loaded> = Vec::new();
    let mut one = None;
    for step in steps {
        while groups.len() < step {
            groups.push(Loaded::start(&load, places[groups.len()], &ground.settings)?);
        }
        Loaded::load_all(&mut groups, untimed, UNTIMED)?;
        let multicast = groups[0].by_multicast()?;
        let mut counted = Counted::new(timed)?;
        for _ in 0..ROUNDS {
            counted.round(&Loaded::load_all(&mut groups, untimed, timed)?);
            bar.inc(1);
        }
        let one = *one.get_or_insert(counted.ordered_per_s());
        let transport = if multicast { "multicast" } else { "unicast" };
        row(summary(command, step, senders, &counted, one, transport, ground.is_sealed()))?;
    }
    Ok(())
}

/// Sizes of groups that a report compares, besides the requested one.
const COMPARED: [u64; 3] = [2, 4, 8];
/// Maximum number of processes in such a comparison: more say little about a machine of a few processors.
const COMPARED_PROCESSES_MAX: u64 = 40;

const COLUMNS: [Column; 10] = [
    Column { heading: "groups", field: "groups" },
    Column { heading: "members each", field: "members" },
    Column { heading: "senders each", field: "senders" },
    Column { heading: "bytes", field: "bytes" },
    Column { heading: "ordered/s in all", field: "ordered_per_s" },
    Column { heading: "rounds", field: "ordered_per_s_spread" },
    Column { heading: "times one group's", field: "ratio_one_group" },
    Column { heading: "own delivery p50 µs", field: "send_p50_us" },
    Column { heading: "p99 µs", field: "send_p99_us" },
    Column { heading: "processors busy", field: "processors_busy" },
];

fn report(command: &Parallel, folder: &Path, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let mut report = Page::new("parallel", "Disjoint groups in parallel", folder)?;
    let compared = report::with(COMPARED, command.members);
    let fits =
        |members: &u64| *members == command.members || command.groups * members <= COMPARED_PROCESSES_MAX;
    let sizes: Vec<u64> = compared.into_iter().filter(fits).collect();
    let names: Vec<String> = sizes.iter().map(|members| format!("{members} members each")).collect();
    let varied = |members: &u64| {
        let senders = command.senders.map(|senders| senders.min(*members));
        let protocol = command.protocol.among(*members);
        Parallel { members: *members, senders, protocol, ..command.clone() }
    };
    let variations: Vec<(&str, Parallel)> =
        names.iter().map(String::as_str).zip(sizes.iter().map(varied)).collect();
    report.measure(&variations, output, |command, bar| {
        let mut rows = Vec::new();
        measure(command, settings, bar, |row| {
            rows.push(row);
            Ok(())
        })?;
        Ok(rows)
    })?;
    let groups = |object: &Value| object["groups"].as_f64();
    let ordered = |object: &Value| Some(object["ordered_per_s"].as_f64()? / 1e3);
    let busy = |object: &Value| object["processors_busy"].as_f64();
    let chart = |name, title, y_label, y: fn(&Value) -> Option<f64>| Chart {
        name,
        title,
        x_label: "groups",
        y_label,
        series: names.iter().map(|name| Series::plain(name, name, groups, y)).collect(),
    };
    let charts = [
        chart("groups", "All groups together", "thousand messages/s", ordered),
        chart("processors", "Processors used", "processors busy", busy),
    ];
    report.write(&charts, &COLUMNS, output)
}

/// Returns the numbers of groups to measure: doubled from 1 up to the requested number.
fn steps(groups: u64) -> Vec<usize> {
    let doubled = std::iter::successors(Some(1), |groups| Some(groups * 2)).take_while(|step| *step < groups);
    doubled.chain([groups]).map(|step| step as usize).collect()
}

fn summary(
    command: &Parallel,
    groups: usize,
    senders: u64,
    counted: &Counted,
    one: f64,
    transport: &str,
    sealed: bool,
) -> Summary {
    let ordered = counted.ordered_per_s();
    let growth = rounded(ordered / one.max(1.0));
    let (p50, p99) = (counted.us(0.5), counted.us(0.99));
    let [lowest, highest] =
        [f64::min, f64::max].map(|end| counted.rounds.iter().copied().reduce(end).unwrap_or(0.0).round());
    let lines = vec![
        format!(
            "{groups} groups of {} members, {senders} send {} bytes, window {}, {}, {}, {transport}{}{}",
            command.members,
            command.bytes,
            command.window,
            command.protocol.method.name(),
            command.protocol.safety(),
            if sealed { ", sealed" } else { "" },
            command.ground.words()
        ),
        format!(
            "  ordered        {ordered} messages/s in all (rounds {lowest} to {highest}), {growth} times one group's"
        ),
        format!("  own delivery   p50 {p50} us, p99 {p99}"),
        format!("  processors     {} busy", counted.processors()),
    ];
    let object = json!({
        "bench": "parallel",
        "groups": groups,
        "members": command.members,
        "senders": senders,
        "bytes": command.bytes,
        "window": command.window,
        "method": command.protocol.method.name(),
        "resilience": command.protocol.resilience,
        "quality": command.protocol.quality.to_string(),
        "order": command.protocol.order.name(),
        "transport": transport,
        "sealed": sealed,
        "placement": command.placement.name(),
        "seconds": command.seconds,
        "ordered_per_s": ordered,
        "ordered_per_s_spread": [lowest, highest],
        "mb_per_s": rounded(ordered * command.bytes as f64 / 1e6),
        "ratio_one_group": growth,
        "send_p50_us": p50,
        "send_p99_us": p99,
        "datagrams_per_message": counted.datagrams(),
        "cpu_us_per_message": counted.processor_us(),
        "processors_busy": counted.processors(),
        "hand_overs": counted.hand_overs,
        "passes": counted.passes.all,
        "null_passes": counted.passes.null,
    });
    Summary::new(lines, command.ground.tell(object)).of_deliveries(command.protocol.quality, counted.alike)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_groups_doubles_up_to_the_requested_one() {
        assert_eq!(steps(1), [1]);
        assert_eq!(steps(4), [1, 2, 4]);
        assert_eq!(steps(6), [1, 2, 4, 6]);
    }
}
