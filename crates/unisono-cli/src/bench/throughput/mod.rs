//! `unisono bench throughput`: measures how many messages per second a group orders, and compares that with one process
//! that sends to all.

pub(crate) mod loaded;
pub(crate) mod member;
mod sweep;

use super::fanout::Fanout;
use super::floor;
use super::ground::{self, Ground};
use super::placement::Placement;
use super::reset::undisturbed;
use super::statistics::Ratio;
use super::{Protocol, Summary};
use crate::arguments::{self, Common};
use crate::output::{Output, rounded};
use crate::problem::Problem;
use crate::progress;
use crate::settings::Settings;
use crate::units;
use clap::Args;
use indicatif::ProgressBar;
use loaded::{Counted, Load, Loaded};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// Number of rounds over which the ratio is taken.
pub(super) const ROUNDS: u32 = 5;
/// Time at the beginning of a block that is not measured, 100 ms, until the load is steady.
pub(super) const UNTIMED: Duration = Duration::from_millis(100);
/// The same on a slow segment, which fills slowly: 500 ms.
pub(super) const UNTIMED_SLOW: Duration = Duration::from_millis(500);
/// Maximum size of a message: 1 MiB.
pub(super) const BYTES_MAX: u64 = 1 << 20;

/// Measure how many messages per second a group orders
///
/// Some members send as fast as their windows allow, and all receive. The group and the bare fan-out (one process that
/// sends the same bytes to the same number of others, without a protocol) are measured in turns; the ratio is the
/// median over the rounds.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  unisono bench throughput --members 3 --senders 3 --bytes 64")]
pub(crate) struct Throughput {
    /// Members, one process each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = arguments::within::<u64>(2..=64))]
    members: u64,

    /// Number of them that send [default: all]
    #[arg(long, value_name = "S", value_parser = arguments::within::<u64>(1..=64))]
    senders: Option<u64>,

    /// Size of a message, such as 512 or 4KiB; at least 1, because bare fan-out has nothing to send for empty messages
    #[arg(long, value_name = "SIZE", default_value_t = 64, value_parser = units::bytes(1..=BYTES_MAX))]
    bytes: u64,

    /// Maximum number of messages of a sender under way
    #[arg(long, value_name = "W", default_value_t = 1024, value_parser = arguments::within::<u32>(1..=65_536))]
    window: u32,

    /// Seconds to measure, such as 90 or 2m, all rounds together
    #[arg(long, value_name = "TIME", default_value_t = 5, value_parser = units::whole_seconds(1..=3600))]
    seconds: u64,

    #[command(flatten)]
    protocol: Protocol,

    /// On which processors the processes of both sides run
    #[arg(long, value_enum, default_value_t)]
    placement: Placement,

    /// Measure variations of this, and write a page with plots of them, throughput.html
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,

    #[command(flatten)]
    ground: ground::Choice,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: Throughput, settings: &Settings, output: &Output) -> Result<(), Problem> {
    if let Some(folder) = &command.report {
        return sweep::report(&command, folder, settings, output);
    }
    let bar = progress::bar(u64::from(ROUNDS), "rounds");
    let summary = measure(&command, settings, &bar)?;
    bar.finish_and_clear();
    summary.tell(output)
}

/// Takes one measurement. The bar counts its rounds.
fn measure(command: &Throughput, settings: &Settings, bar: &ProgressBar) -> Result<Summary, Problem> {
    let (summary, resets) = undisturbed(|| attempt(command, settings, bar))?;
    Ok(summary.after_resets(resets))
}

fn attempt(command: &Throughput, settings: &Settings, bar: &ProgressBar) -> Result<Summary, Problem> {
    bar.reset();
    Problem::beyond(command.protocol.resilience, command.members)?;
    let senders = command.senders.unwrap_or(command.members);
    if senders > command.members {
        return Err(Problem::usage("there cannot be more senders than members: use a lower --senders"));
    }
    let members = usize::try_from(command.members).unwrap_or(usize::MAX);
    let bytes = usize::try_from(command.bytes).unwrap_or(usize::MAX);
    let ground = Ground::prepare(&command.ground, members, false, settings)?;
    let locations = ground.locations(command.placement, members);
    let load = Load {
        senders: usize::try_from(senders).unwrap_or(usize::MAX),
        bytes,
        window: command.window,
        protocol: command.protocol,
    };
    let mut group = Loaded::start(&load, &locations, &ground.settings)?;
    // In this block members learn how they reach each other, and caches fill.
    let untimed = if command.ground.rate.is_some() { UNTIMED_SLOW } else { UNTIMED };
    group.load(untimed, UNTIMED)?;
    let multicast = group.by_multicast()?;
    let address = if multicast { Some(floor::multicast_address()?) } else { None };
    let mut fanout = Fanout::start(&locations, command.ground.rate, bytes, address)?;

    let timed = Duration::from_secs(command.seconds) / ROUNDS;
    let mut counted = Counted::new(timed)?;
    let mut fanout_rounds = Vec::new();
    for round in 0..ROUNDS {
        // The order of the sides alternates.
        if round % 2 == 0 {
            counted.round(&[group.load(untimed, timed)?]);
            fanout_rounds.push(fanout.measure(untimed, timed / 2)?);
        } else {
            fanout_rounds.push(fanout.measure(untimed, timed / 2)?);
            counted.round(&[group.load(untimed, timed)?]);
        }
        bar.inc(1);
    }
    let transport = if multicast { "multicast" } else { "unicast" };
    Ok(summary(command, senders, &counted, &fanout_rounds, transport, ground.is_sealed()))
}

fn summary(
    command: &Throughput,
    senders: u64,
    counted: &Counted,
    fanout_rounds: &[f64],
    transport: &str,
    sealed: bool,
) -> Summary {
    let ordered = counted.ordered_per_s();
    let megabytes = rounded(ordered * command.bytes as f64 / 1e6);
    let fanout = (fanout_rounds.iter().sum::<f64>() / f64::from(ROUNDS)).round();
    let ratio = Ratio::of(&counted.rounds, fanout_rounds);
    let (p50, p99) = (counted.us(0.5), counted.us(0.99));
    let (datagrams, cpu) = (counted.datagrams(), counted.processor_us());
    let lines = vec![
        format!(
            "{} members, {senders} send {} bytes, window {}, {}, {}, {transport}{}{}",
            command.members,
            command.bytes,
            command.window,
            command.protocol.method.name(),
            command.protocol.safety(),
            if sealed { ", sealed" } else { "" },
            command.ground.words()
        ),
        format!("  ordered        {ordered} messages/s, {megabytes} MB/s at the slowest member"),
        format!(
            "  bare fan-out   {fanout} messages/s: the group reaches {} of that (rounds {} to {})",
            ratio.median, ratio.spread[0], ratio.spread[1]
        ),
        format!("  own delivery   p50 {p50} us, p99 {p99}"),
        format!("  per message    {datagrams} datagrams, {cpu} us of processor time"),
    ];
    let object = json!({
        "bench": "throughput",
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
        "mb_per_s": megabytes,
        "udp_fanout_per_s": fanout,
        "ratio_fanout": ratio.median,
        "ratio_spread": ratio.spread,
        "send_p50_us": p50,
        "send_p99_us": p99,
        "datagrams_per_message": datagrams,
        "cpu_us_per_message": cpu,
        "hand_overs": counted.hand_overs,
        "passes": counted.passes.all,
        "null_passes": counted.passes.null,
    });
    Summary::new(lines, command.ground.tell(object)).of_deliveries(command.protocol.quality, counted.alike)
}
