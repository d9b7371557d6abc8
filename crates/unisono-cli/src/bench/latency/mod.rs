//! `unisono bench latency`: measures the time of a message to its sender's own delivery, and compares it with the bare
//! path. A message that may be delivered before its seqno is timed at a receiver, beside ordered ones there.

mod measured;
pub(crate) mod member;
mod sweep;

pub(super) use measured::{Measured, Wanted};

use super::floor::{self, Floor, Path};
use super::ground::{self, Ground};
use super::placement::Placement;
use super::reset::undisturbed;
use super::side::{Side, UNTIMED, blocks};
use super::statistics::Ratio;
use super::{Protocol, Summary};
use crate::arguments::{self, Common};
use crate::output::Output;
use crate::problem::Problem;
use crate::progress;
use crate::settings::Settings;
use crate::units;
use clap::Args;
use indicatif::ProgressBar;
use member::Usage;
use serde_json::json;
use std::path::PathBuf;
use unisono::Quality;

/// Measure the time from sending a message to its delivery at the sender, one message outstanding
///
/// One member that is not the sequencer (with --order migrating or token: not at the beginning) sends, and all receive.
/// Messages of the qualities unordered and source are timed at a receiver, and ordered ones beside them there too.
/// The group and the same paths over bare UDP are measured in alternating short blocks; the ratios are medians over the
/// rounds.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  unisono bench latency --members 3 --bytes 0")]
pub(crate) struct Latency {
    /// Members, one process each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = arguments::within::<u64>(2..=64))]
    members: u64,

    /// Size of a message, such as 512 or 4KiB
    #[arg(long, value_name = "SIZE", default_value_t = 0, value_parser = units::bytes(0..=floor::BYTES_MAX as u64))]
    bytes: u64,

    #[command(flatten)]
    protocol: Protocol,

    /// Number of timed messages
    #[arg(long, value_name = "M", default_value_t = 10_000, value_parser = arguments::within::<u64>(100..=10_000_000))]
    messages: u64,

    /// On which processors the processes of both sides run
    #[arg(long, value_enum, default_value_t)]
    placement: Placement,

    /// Measure variations of this, and write a page with plots of them, latency.html
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,

    #[command(flatten)]
    ground: ground::Choice,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: Latency, settings: &Settings, output: &Output) -> Result<(), Problem> {
    if let Some(folder) = &command.report {
        return sweep::report(&command, folder, settings, output);
    }
    let bar = progress::bar(0, "rounds");
    let summary = measure(&command, settings, &bar)?;
    bar.finish_and_clear();
    summary.tell(output)
}

/// Takes one measurement. The bar counts its rounds.
fn measure(command: &Latency, settings: &Settings, bar: &ProgressBar) -> Result<Summary, Problem> {
    let (summary, resets) = undisturbed(|| attempt(command, settings, bar))?;
    Ok(summary.after_resets(resets))
}

fn attempt(command: &Latency, settings: &Settings, bar: &ProgressBar) -> Result<Summary, Problem> {
    bar.reset();
    Problem::beyond(command.protocol.resilience, command.members)?;
    let members = usize::try_from(command.members).unwrap_or(usize::MAX);
    let ground = Ground::prepare(&command.ground, members, false, settings)?;
    let mut locations = ground.locations(command.placement, members);
    if command.protocol.quality.may_be_early() {
        measured::part_receiver_from_sequencer(&mut locations);
    }
    let bytes = usize::try_from(command.bytes).unwrap_or(floor::BYTES_MAX);
    let start = |protocol| Measured::start(&Wanted { protocol, bytes }, &locations, &ground.settings);
    let mut group = start(command.protocol)?;
    let mut plain = match command.protocol.resilience {
        0 => None,
        _ => Some(start(Protocol { resilience: 0, ..command.protocol })?),
    };
    let measure_group = match command.protocol.quality.may_be_early() {
        false => Measured::measure,
        true => Measured::measure_at_receiver,
    };
    let mut ordered = match command.protocol.quality.may_be_early() {
        false => None,
        true => Some(start(Protocol { quality: Quality::ORDERED, ..command.protocol })?),
    };
    // The floor uses multicast if the group does.
    measure_group(&mut group, UNTIMED)?;
    let multicast = group.usage()?.by_multicast;
    let address = if multicast { Some(floor::multicast_address()?) } else { None };
    let mut floor = Floor::start(&locations, bytes, address)?;

    let (rounds, block) = blocks(command.messages);
    let mut sides = Sides::default();
    bar.set_length(rounds as u64);
    for round in 0..rounds {
        // The order of the sides rotates from round to round.
        for turn in 0..5 {
            match (turn + round) % 5 {
                0 => sides.group.turn(&mut group, Measured::usage, |group| measure_group(group, block))?,
                1 => sides
                    .path
                    .turn(&mut floor, Usage::of, |floor| floor.measure(Path::Relay, UNTIMED, block))?,
                2 => {
                    sides.rpc.turn(&mut floor, Usage::of, |floor| floor.measure(Path::Rpc, UNTIMED, block))?
                }
                3 => {
                    if let Some(plain) = &mut plain {
                        sides.plain.turn(plain, Measured::usage, |plain| measure_group(plain, block))?;
                    }
                }
                _ => {
                    if let Some(ordered) = &mut ordered {
                        sides.ordered.turn(ordered, Measured::usage, |group| measure_group(group, block))?;
                    }
                }
            }
        }
        bar.inc(1);
    }
    let transport = if multicast { "multicast" } else { "unicast" };
    Ok(summary(command, &mut sides, transport, ground.is_sealed()))
}

fn summary(command: &Latency, sides: &mut Sides, transport: &str, sealed: bool) -> Summary {
    let to_path = Ratio::of(&sides.group.rounds, &sides.path.rounds);
    let to_rpc = Ratio::of(&sides.group.rounds, &sides.rpc.rounds);
    let to_r0 =
        (command.protocol.resilience > 0).then(|| Ratio::of(&sides.group.rounds, &sides.plain.rounds));
    let to_ordered = (command.protocol.quality.may_be_early())
        .then(|| (Ratio::of(&sides.group.rounds, &sides.ordered.rounds), sides.ordered.us(0.5)));
    let [p50, p90, p99, p999, max] = [0.5, 0.9, 0.99, 0.999, 1.0].map(|part| sides.group.us(part));
    let (rpc, path) = (sides.rpc.us(0.5), sides.path.us(0.5));
    let (cpu, path_cpu) = (sides.group.processor_us(), sides.path.processor_us());
    let mut lines = vec![
        format!(
            "{} members, {} bytes, {}, {}, {transport}{}{}",
            command.members,
            command.bytes,
            command.protocol.method.name(),
            command.protocol.safety(),
            if sealed { ", sealed" } else { "" },
            command.ground.words()
        ),
        format!(
            "  {}  p50 {p50} us, p90 {p90}, p99 {p99}, p99.9 {p999}, max {max}",
            if to_ordered.is_some() { "at a receiver" } else { "own delivery " }
        ),
        format!(
            "  bare path      p50 {path} us: the group takes {} times as long (rounds {} to {})",
            to_path.median, to_path.spread[0], to_path.spread[1]
        ),
        format!(
            "  bare call      p50 {rpc} us: the group takes {} times as long (rounds {} to {})",
            to_rpc.median, to_rpc.spread[0], to_rpc.spread[1]
        ),
    ];
    lines.extend(to_ordered.as_ref().map(|(ratio, ordered)| {
        format!(
            "  ordered there  p50 {ordered} us: a message {} takes {} times as long (rounds {} to {})",
            command.protocol.quality, ratio.median, ratio.spread[0], ratio.spread[1]
        )
    }));
    lines.extend(to_r0.as_ref().map(|ratio| {
        format!(
            "  resilience 0   p50 {} us: resilience {} takes {} times as long (rounds {} to {})",
            sides.plain.us(0.5),
            command.protocol.resilience,
            ratio.median,
            ratio.spread[0],
            ratio.spread[1]
        )
    }));
    lines.push(format!(
        "  per message    {} datagrams, {cpu} us of processor time (bare path {path_cpu} us)",
        sides.group.datagrams()
    ));
    let object = json!({
        "bench": "latency",
        "members": command.members,
        "bytes": command.bytes,
        "method": command.protocol.method.name(),
        "resilience": command.protocol.resilience,
        "quality": command.protocol.quality.to_string(),
        "order": command.protocol.order.name(),
        "transport": transport,
        "sealed": sealed,
        "placement": command.placement.name(),
        "messages": sides.group.took.len(),
        "rounds": sides.group.rounds.len(),
        "p50_us": p50,
        "p90_us": p90,
        "p99_us": p99,
        "p999_us": p999,
        "max_us": max,
        "udp_rpc_p50_us": rpc,
        "udp_path_p50_us": path,
        "ratio_rpc": to_rpc.median,
        "ratio_rpc_spread": to_rpc.spread,
        "ratio_path": to_path.median,
        "ratio_spread": to_path.spread,
        "ratio_r0": to_r0.as_ref().map(|ratio| ratio.median),
        "ratio_r0_spread": to_r0.as_ref().map(|ratio| ratio.spread),
        "timed_at": if to_ordered.is_some() { "receiver" } else { "sender" },
        "ordered_p50_us": to_ordered.as_ref().map(|(_, ordered)| ordered),
        "ratio_ordered": to_ordered.as_ref().map(|(ratio, _)| ratio.median),
        "ratio_ordered_spread": to_ordered.as_ref().map(|(ratio, _)| ratio.spread),
        "datagrams_per_message": sides.group.datagrams(),
        "cpu_us_per_message": cpu,
        "udp_path_cpu_us": path_cpu,
        "hand_overs": sides.group.used.hand_overs,
        "passes": sides.group.used.passes.all,
        "null_passes": sides.group.used.passes.null,
    });
    Summary::new(lines, command.ground.tell(object))
}

/// The sides that are compared.
#[derive(Default)]
struct Sides {
    group: Side,
    /// The same group without resilience.
    plain: Side,
    /// The same group with ordered messages, if the messages may be early.
    ordered: Side,
    path: Side,
    rpc: Side,
}
