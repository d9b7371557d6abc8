//! `unisono bench rpc`: measures calls, and compares them with a bare UDP request and reply and with a group's message.

pub(in crate::bench) mod crew;
pub(crate) mod worker;

use super::floor::{self, Floor, Path};
use super::ground::{self, Ground};
use super::latency::member::Usage;
use super::latency::{Measured, Wanted};
use super::placement::Placement;
use super::reset::undisturbed;
use super::side::{Side, UNTIMED, blocks};
use super::statistics::{Ratio, median};
use super::{Protocol, Summary};
use crate::arguments::{self, Common};
use crate::location::Location;
use crate::output::{Output, rounded, several};
use crate::problem::Problem;
use crate::progress;
use crate::settings::Settings;
use crate::units;
use clap::Args;
use crew::{Calling, Load};
use serde_json::json;
use std::time::Duration;

/// Number of rounds under load.
const ROUNDS: u32 = 5;
/// Time at the beginning of a round that is not measured, 100 ms, until the load is steady.
const UNTIMED_LOAD: Duration = Duration::from_millis(100);

/// Measure the time of a call, one outstanding, and the number of calls per second under load
///
/// A server replies with the request. Single calls, the same over bare UDP, and null messages of a group of two members
/// are measured in alternating short blocks; the ratios are medians over the rounds. Then all clients call at once,
/// each with several calls in flight.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  unisono bench rpc --bytes 0 --in-flight 64")]
pub(crate) struct Rpc {
    /// Size of a request and of its reply, such as 512 or 4KiB
    #[arg(long, value_name = "SIZE", default_value_t = 0, value_parser = units::bytes(0..=floor::BYTES_MAX as u64))]
    bytes: u64,

    /// Number of calls that each client has in flight under load
    #[arg(long, value_name = "F", default_value_t = 1, value_parser = arguments::within::<u64>(1..=16_384))]
    in_flight: u64,

    /// Number of clients under load, one process each
    #[arg(long, value_name = "C", default_value_t = 1, value_parser = arguments::within::<u64>(1..=64))]
    clients: u64,

    /// Number of servers under load, one process each
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = arguments::within::<u64>(1..=64))]
    servers: u64,

    /// Number of calls that are timed one at a time
    #[arg(long, value_name = "M", default_value_t = 10_000, value_parser = arguments::within::<u64>(100..=10_000_000))]
    calls: u64,

    /// Seconds under load, such as 90 or 2m, all rounds together
    #[arg(long, value_name = "TIME", default_value_t = 5, value_parser = units::whole_seconds(1..=3600))]
    seconds: u64,

    /// Also time messages that a process sends to a group from outside, and compare one with a call and a message of a member
    #[arg(long)]
    outside: bool,

    /// On which processors the processes of all sides run
    #[arg(long, value_enum, default_value_t)]
    placement: Placement,

    #[command(flatten)]
    ground: ground::Choice,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: Rpc, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let [servers, clients] = [command.servers, command.clients].map(|count| count as usize);
    let ground = Ground::prepare(&command.ground, servers + clients, false, settings)?;
    let locations = ground.locations(command.placement, servers + clients);
    let bytes = usize::try_from(command.bytes).unwrap_or(floor::BYTES_MAX);
    let (mut single, resets) = undisturbed(|| one_at_a_time(&command, bytes, &ground))?;
    let bar = progress::bar(u64::from(ROUNDS), "rounds");
    let mut calling = Calling::start(&locations, servers, bytes, &ground.settings)?;
    let mut load = Load::new(Duration::from_secs(command.seconds) / ROUNDS, command.in_flight as usize)?;
    for _ in 0..ROUNDS {
        load.round(&mut calling, UNTIMED_LOAD)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let shares = calling.shares()?;
    summary(&command, &mut single, &load, &shares, ground.is_sealed()).after_resets(resets).tell(output)
}

/// The sides that are compared, each with one call or message outstanding.
#[derive(Default)]
struct Single {
    call: Side,
    rpc: Side,
    /// A message of a group.
    group: Side,
    /// Empty calls, to compare with the group's messages, which are empty.
    null: Side,
    /// Empty messages from outside of a group.
    outside: Side,
}

fn one_at_a_time(command: &Rpc, bytes: usize, ground: &Ground) -> Result<Single, Problem> {
    // Each side has a process at each of two locations: servers and sequencers at the first, clients and senders at the
    // other.
    let locations = ground.locations(command.placement, 2);
    let mut calling = Calling::start(&locations, 1, bytes, &ground.settings)?;
    let mut null = match bytes {
        0 => None,
        _ => Some(Calling::start(&locations, 1, 0, &ground.settings)?),
    };
    let wanted = Wanted { protocol: Protocol::default(), bytes: 0 };
    let mut group = Measured::start(&wanted, &locations, &ground.settings)?;
    let mut floor = Floor::start(&locations, bytes, None)?;
    let mut outside = match <&[Location; 2]>::try_from(&locations[..]) {
        Ok(locations) if command.outside => Some(Calling::start_outside(locations, 0, &ground.settings)?),
        _ => None,
    };
    let (rounds, block) = blocks(command.calls);
    let mut single = Single::default();
    let bar = progress::bar(rounds as u64, "rounds");
    for round in 0..rounds {
        // The order of the sides rotates from round to round.
        for turn in 0..5 {
            match (turn + round) % 5 {
                0 => single.call.turn(&mut calling, Calling::usage, |calling| calling.call(block))?,
                1 => single
                    .rpc
                    .turn(&mut floor, Usage::of, |floor| floor.measure(Path::Rpc, UNTIMED, block))?,
                2 => single.group.turn(&mut group, Measured::usage, |group| group.measure(block))?,
                3 => {
                    if let Some(null) = &mut null {
                        single.null.turn(null, Calling::usage, |null| null.call(block))?;
                    }
                }
                _ => {
                    if let Some(outside) = &mut outside {
                        let unknown = |_: &mut Calling| Ok(Usage::default());
                        single.outside.turn(outside, unknown, |outside| outside.call(block))?;
                    }
                }
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(single)
}

fn summary(command: &Rpc, single: &mut Single, load: &Load, shares: &[f64], sealed: bool) -> Summary {
    let to_rpc = Ratio::of(&single.call.rounds, &single.rpc.rounds);
    let null = if command.bytes == 0 { &single.call.rounds } else { &single.null.rounds };
    let of_group = Ratio::of(&single.group.rounds, null);
    let outside = command.outside.then(|| {
        let pairs: Vec<f64> = null.iter().zip(&single.group.rounds).map(|(call, send)| call + send).collect();
        Ratio::of(&single.outside.rounds, &pairs)
    });
    let (rpc, group) = (single.rpc.us(0.5), single.group.us(0.5));
    let alone = [0.5, 0.9, 0.99, 0.999, 1.0].map(|part| single.call.us(part));
    let loaded = [0.5, 0.9, 0.99, 0.999, 1.0].map(|part| load.us(part));
    let is_loaded = command.in_flight > 1 || command.clients > 1;
    let [p50, p90, p99, p999, max] = if is_loaded { loaded } else { alone };
    let (cpu, rpc_cpu) = (single.call.processor_us(), single.rpc.processor_us());
    let mut per_s = load.rounds.clone();
    let calls_per_s = median(&mut per_s).round();
    let (slowest, fastest) = (per_s.first().copied().unwrap_or(0.0), per_s.last().copied().unwrap_or(0.0));
    let mut lines = vec![
        format!(
            "{} bytes, {} in flight, {}, {}{}{}",
            command.bytes,
            command.in_flight,
            several(command.clients, "client"),
            several(command.servers, "server"),
            if sealed { ", sealed" } else { "" },
            command.ground.words()
        ),
        format!(
            "  one call       p50 {} us, p90 {}, p99 {}, p99.9 {}, max {}",
            alone[0], alone[1], alone[2], alone[3], alone[4]
        ),
        format!(
            "  bare call      p50 {rpc} us: a call takes {} times as long (rounds {} to {})",
            to_rpc.median, to_rpc.spread[0], to_rpc.spread[1]
        ),
        format!(
            "  group of two   p50 {group} us: a null message takes {} times as long as a null call (rounds {} to {})",
            of_group.median, of_group.spread[0], of_group.spread[1]
        ),
        format!(
            "  per call       {} datagrams, {cpu} us of processor time (bare call {rpc_cpu} us)",
            single.call.datagrams()
        ),
        format!("  under load     {calls_per_s} calls/s (rounds {} to {})", slowest.round(), fastest.round()),
        format!(
            "                 p50 {} us, p99 {}, {} us of processor time and {} datagrams each",
            loaded[0],
            loaded[2],
            load.processor_us(),
            load.datagrams()
        ),
    ];
    let outside_us = command.outside.then(|| single.outside.us(0.5));
    if let (Some(ratio), Some(us)) = (&outside, outside_us) {
        lines.push(format!(
            "  from outside   p50 {us} us: a message takes {} times as long as a null call and a member's message (rounds {} to {})",
            ratio.median, ratio.spread[0], ratio.spread[1]
        ));
    }
    if shares.len() > 1 {
        let words: Vec<String> = shares.iter().map(|share| format!("{share}")).collect();
        lines.push(format!("  by server      {}", words.join(", ")));
    }
    let mut object = json!({
        "bench": "rpc",
        "bytes": command.bytes,
        "in_flight": command.in_flight,
        "clients": command.clients,
        "servers": command.servers,
        "sealed": sealed,
        "placement": command.placement.name(),
        "calls": single.call.took.len(),
        "rounds": single.call.rounds.len(),
        "p50_us": p50,
        "p90_us": p90,
        "p99_us": p99,
        "p999_us": p999,
        "max_us": max,
        "alone_p50_us": alone[0],
        "udp_rpc_p50_us": rpc,
        "group_p50_us": group,
        "ratio_rpc": to_rpc.median,
        "ratio_spread": to_rpc.spread,
        "ratio_group": of_group.median,
        "ratio_group_spread": of_group.spread,
        "calls_per_s": calls_per_s,
        "calls_per_s_spread": [slowest.round(), fastest.round()],
        "cpu_us_per_call": if is_loaded { load.processor_us() } else { cpu },
        "udp_rpc_cpu_us": rpc_cpu,
        "datagrams_per_call": rounded(if is_loaded { load.datagrams() } else { single.call.datagrams() }),
        "server_shares": shares,
    });
    if let Some(ratio) = outside {
        object["outside_p50_us"] = json!(outside_us);
        object["ratio_call_send"] = json!(ratio.median);
        object["ratio_call_send_spread"] = json!(ratio.spread);
    }
    Summary::new(lines, command.ground.tell(object))
}
