//! `unisono bench throughput`: how many messages a second a group orders, beside what one process can send to all.

pub(crate) mod member;

use super::Method;
use super::fanout::Fanout;
use super::floor;
use super::ground::{self, Ground};
use super::placement::Placement;
use super::statistics::Ratio;
use crate::arguments::{Common, OrderChoice};
use crate::location::Location;
use crate::output::{Output, Tone, rounded};
use crate::problem::Problem;
use crate::processes::{Crew, monotonic_ns};
use crate::progress;
use crate::settings::Settings;
use crate::trial::lot;
use crate::worker;
use clap::Args;
use hdrhistogram::Histogram;
use member::{Order, Report, Tally};
use serde_json::json;
use std::time::{Duration, Instant};

/// How long a join, or the end of a block, may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Rounds over which the ratio is taken.
const ROUNDS: u32 = 5;
/// From the order to the block's beginning: time for it to reach every member.
const LEAD: Duration = Duration::from_millis(20);
/// Measured only once the load is steady.
const UNTIMED: Duration = Duration::from_millis(100);
/// The same where a slow segment fills slowly.
const UNTIMED_SLOW: Duration = Duration::from_millis(500);
/// The largest message.
const BYTES_MAX: u64 = 1 << 20;

/// Count the messages a second that a group orders, beside bare fan-out
///
/// Some members send as fast as their windows allow; all receive. The group and a process that sends the same bytes
/// to as many others without any protocol take turns, and the ratio is the median over the rounds.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono bench throughput --members 3 --senders 3 --bytes 64")]
pub(crate) struct Throughput {
    /// Members, one process each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(2..=64))]
    members: u64,

    /// How many of them send [default: all]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=64))]
    senders: Option<u64>,

    /// Size of a message
    #[arg(long, value_name = "B", default_value_t = 64, value_parser = clap::value_parser!(u64).range(0..=BYTES_MAX))]
    bytes: u64,

    /// Messages of a sender that may be under way
    #[arg(long, value_name = "W", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    window: u32,

    /// Seconds to measure, all rounds together
    #[arg(long, value_name = "T", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,

    /// Whether messages travel by way of the orderer (pb), to all at once (bb), or as their size suggests
    #[arg(long, value_enum, default_value_t)]
    method: Method,

    /// How many crashes at once the group survives without loss
    #[arg(long, value_name = "R", default_value_t = 0)]
    resilience: u8,

    /// Who gives the messages their places
    #[arg(long, value_enum, default_value_t)]
    order: OrderChoice,

    /// On which processors the processes run, on both sides
    #[arg(long, value_enum, default_value_t)]
    placement: Placement,

    #[command(flatten)]
    ground: ground::Choice,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: Throughput, settings: &Settings, output: &Output) -> Result<(), Problem> {
    Problem::beyond(command.resilience, command.members)?;
    let senders = command.senders.unwrap_or(command.members);
    if senders > command.members {
        return Err(Problem::usage("there cannot be more senders than members"));
    }
    let members = usize::try_from(command.members).unwrap_or(usize::MAX);
    let ground = Ground::prepare(&command.ground, members, false, settings)?;
    let locations = ground.locations(command.placement, members);
    let mut group = Loaded::start(&command, senders, &locations, &ground.settings)?;
    // Members learn how they reach each other, and the group's caches fill.
    let untimed = if command.ground.rate.is_some() { UNTIMED_SLOW } else { UNTIMED };
    group.load(untimed, UNTIMED)?;
    let multicast = group.by_multicast()?;
    let address = if multicast { Some(floor::multicast_address()?) } else { None };
    let bytes = usize::try_from(command.bytes).unwrap_or(usize::MAX);
    let mut fanout = Fanout::start(&locations, command.ground.rate, bytes, address)?;

    let timed = Duration::from_secs(command.seconds) / ROUNDS;
    let mut sides = Sides::new(timed)?;
    let bar = progress::bar(u64::from(ROUNDS), "rounds");
    for round in 0..ROUNDS {
        // Whoever comes first in a round comes last in the next.
        if round % 2 == 0 {
            sides.group(&group.load(untimed, timed)?);
            sides.fanout(fanout.measure(untimed, timed / 2)?);
        } else {
            sides.fanout(fanout.measure(untimed, timed / 2)?);
            sides.group(&group.load(untimed, timed)?);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let transport = if multicast { "multicast" } else { "unicast" };
    tell(&command, senders, &sides, transport, ground.is_sealed(), output)?;
    if sides.order_identical {
        Ok(())
    } else {
        Err(Problem::failed("the members delivered different orders"))
    }
}

fn tell(
    command: &Throughput,
    senders: u64,
    sides: &Sides,
    transport: &str,
    sealed: bool,
    output: &Output,
) -> std::io::Result<()> {
    let ordered = sides.ordered_per_s();
    let megabytes = rounded(ordered * command.bytes as f64 / 1e6);
    let fanout = (sides.fanout_rounds.iter().sum::<f64>() / f64::from(ROUNDS)).round();
    let ratio = Ratio::of(&sides.group_rounds, &sides.fanout_rounds);
    let us = |part: f64| rounded(sides.took.value_at_quantile(part) as f64 / 1000.0);
    let (p50, p99) = (us(0.5), us(0.99));
    let (datagrams, cpu) = (sides.per_message(sides.datagrams), sides.per_message(sides.processor_ns / 1000));
    output.say(format_args!(
        "{} members, {senders} send {} bytes, window {}, {}, resilience {}, {transport}{}{}",
        command.members,
        command.bytes,
        command.window,
        command.method.name(),
        command.resilience,
        if sealed { ", sealed" } else { "" },
        command.ground.words()
    ))?;
    output
        .say(format_args!("  ordered        {ordered} messages/s, {megabytes} MB/s at the slowest member"))?;
    output.say(format_args!(
        "  bare fan-out   {fanout} messages/s: the group makes {} of it (rounds {} to {})",
        ratio.median, ratio.spread[0], ratio.spread[1]
    ))?;
    output.say(format_args!("  own delivery   p50 {p50} us, p99 {p99}"))?;
    output.say(format_args!("  per message    {datagrams} datagrams, {cpu} us of processor time"))?;
    let (tone, words) = match sides.order_identical {
        true => (Tone::Good, "every member delivered the same in the same order"),
        false => (Tone::Bad, "the members delivered different orders"),
    };
    output.say(format_args!("  {}", output.tone(tone, words)))?;
    let mut object = json!({
        "bench": "throughput",
        "members": command.members,
        "senders": senders,
        "bytes": command.bytes,
        "window": command.window,
        "method": command.method.name(),
        "resilience": command.resilience,
        "order": command.order.name(),
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
        "order_identical": sides.order_identical,
    });
    object.as_object_mut().into_iter().for_each(|object| command.ground.tell(object));
    output.object(&object)
}

/// A group under load.
struct Loaded {
    crew: Crew<Order, Report>,
}

impl Loaded {
    fn start(
        command: &Throughput,
        senders: u64,
        locations: &[Location],
        settings: &Settings,
    ) -> Result<Loaded, Problem> {
        let group = format!("bench-{:08x}", lot(1 << 32)?);
        let mut loaded = Loaded { crew: Crew::new() };
        for (index, location) in locations.iter().enumerate() {
            // The orderer is the last to send: a group's work is to order what others send.
            let sender = locations.len() - index <= senders as usize;
            let role = member::Role {
                group: group.clone(),
                founder: index == 0,
                sender,
                senders: senders as usize,
                resilience: command.resilience,
                broadcast_above_bytes: command.method.broadcast_above_bytes(),
                window: command.window,
                bytes: usize::try_from(command.bytes).unwrap_or(usize::MAX),
                location: location.clone(),
                settings: settings.clone(),
            };
            loaded.crew.start(&worker::Role::Throughput(role))?;
            loaded.report("a member to join")?;
        }
        Ok(loaded)
    }

    /// One block, of which the first part is not measured: what each member counted.
    fn load(&mut self, untimed: Duration, timed: Duration) -> Result<Vec<Tally>, Problem> {
        let nanoseconds = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let from_ns = monotonic_ns() + nanoseconds(LEAD + untimed);
        let to_ns = from_ns + nanoseconds(timed);
        for index in 0..self.crew.len() {
            self.crew.order(index, &Order::Load { from_ns, to_ns })?;
        }
        let mut tallies = Vec::new();
        while tallies.len() < self.crew.len() {
            match self.report("a block to end")? {
                Report::Tally(tally) => tallies.push(tally),
                other => return Err(Problem::failed(format!("a member answered {other:?}"))),
            }
        }
        Ok(tallies)
    }

    /// Whether the orderer reaches the others by multicast.
    fn by_multicast(&mut self) -> Result<bool, Problem> {
        self.crew.order(0, &Order::Transport)?;
        match self.report("the transport")? {
            Report::ByMulticast(members) => Ok(members > 0),
            other => Err(Problem::failed(format!("a member answered {other:?}"))),
        }
    }

    fn report(&mut self, what: &str) -> Result<Report, Problem> {
        match self.crew.report(Instant::now() + PATIENCE, &[], what)? {
            (index, Report::Trouble(trouble)) => Err(Problem::failed(format!("member {index}: {trouble}"))),
            (_, report) => Ok(report),
        }
    }
}

/// What was measured on the two sides.
struct Sides {
    timed: Duration,
    /// Messages a second at the slowest member, by round.
    group_rounds: Vec<f64>,
    fanout_rounds: Vec<f64>,
    /// Messages delivered at the slowest member, all rounds together.
    delivered: u64,
    processor_ns: u64,
    datagrams: u64,
    took: Histogram<u64>,
    order_identical: bool,
}

impl Sides {
    fn new(timed: Duration) -> Result<Sides, Problem> {
        let took = Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(Problem::failed)?;
        Ok(Sides {
            timed,
            group_rounds: Vec::new(),
            fanout_rounds: Vec::new(),
            delivered: 0,
            processor_ns: 0,
            datagrams: 0,
            took,
            order_identical: true,
        })
    }

    fn group(&mut self, tallies: &[Tally]) {
        let slowest = tallies.iter().map(|tally| tally.delivered).min().unwrap_or(0);
        self.group_rounds.push(slowest as f64 / self.timed.as_secs_f64());
        self.delivered += slowest;
        for tally in tallies {
            self.processor_ns += tally.processor_ns;
            self.datagrams += tally.datagrams;
            for &(ns, count) in &tally.took {
                self.took.saturating_record_n(ns, count);
            }
            self.order_identical &= (tally.places, tally.hash) == (tallies[0].places, tallies[0].hash);
        }
    }

    fn fanout(&mut self, per_s: f64) {
        self.fanout_rounds.push(per_s);
    }

    fn ordered_per_s(&self) -> f64 {
        (self.delivered as f64 / (self.timed.as_secs_f64() * self.group_rounds.len().max(1) as f64)).round()
    }

    fn per_message(&self, sum: u64) -> f64 {
        rounded(sum as f64 / self.delivered.max(1) as f64)
    }
}
