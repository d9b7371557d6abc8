//! `unisono bench replica`: measures a replicated state in memory, and compares it with null calls and with messages that
//! all members hold, in the same run.

mod crew;
pub(crate) mod worker;

use super::ground::{self, Ground};
use super::latency::member::Usage;
use super::latency::{Measured, Wanted};
use super::placement::Placement;
use super::rpc::crew::Calling;
use super::side::{Side, UNTIMED, blocks};
use super::statistics::{Ratio, median, quantile};
use super::{Protocol, Summary};
use crate::arguments::{self, Common};
use crate::location::Location;
use crate::output::{Output, rounded};
use crate::problem::Problem;
use crate::progress;
use crate::settings::Settings;
use crate::units;
use clap::{Args, ValueEnum};
use crew::Staff;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use worker::{Asks, PAGE_BYTES, Part};

/// Number of rounds under load.
const LOAD_ROUNDS: u32 = 5;
/// Time at the beginning of a load that is not measured, 200 ms, until it is steady.
const UNTIMED_REPLICA_LOAD: Duration = Duration::from_millis(200);
/// Large replies under way at once, as many as a transfer has.
const PAGES_IN_FLIGHT: usize = 8;
/// Size of the state that is transferred, in pages: 256 MiB.
const STATE_PAGES: u32 = 256;
/// Trials of a failover, and the time for which each is watched.
const FAILOVERS: usize = 8;
const WATCHED: Duration = Duration::from_secs(2);

/// Measure a replicated state: commands, calls, reads, the transfer to a newcomer, the death of a server
///
/// Each server is a process with a copy of the state. Null commands, null calls and null messages that all members hold
/// are measured in alternating short blocks; the ratios are medians over the rounds.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example:\n  unisono bench replica --op read --consistency linearizable --in-flight 64"
)]
pub(crate) struct Replica {
    /// Number of servers, one process each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = arguments::within::<u64>(2..=16))]
    servers: u64,

    /// What holds a command before it is answered
    #[arg(long, value_enum, default_value_t)]
    durability: DurabilityChoice,

    /// What is measured
    #[arg(long, value_enum, default_value_t)]
    op: Op,

    /// How a read is answered
    #[arg(long, value_enum, default_value_t)]
    consistency: Consistency,

    /// Number of calls that the caller has in flight
    #[arg(long, value_name = "F", default_value_t = 1, value_parser = arguments::within::<u64>(1..=16_384))]
    in_flight: u64,

    /// Size of a command, such as 64 or 4KiB
    #[arg(long, value_name = "SIZE", default_value_t = 0, value_parser = units::bytes(0..=1 << 20))]
    bytes: u64,

    /// Seconds under load, such as 90 or 2m, all rounds together
    #[arg(long, value_name = "TIME", default_value_t = 5, value_parser = units::whole_seconds(1..=3600))]
    seconds: u64,

    /// On which processors the processes of all sides run
    #[arg(long, value_enum, default_value_t)]
    placement: Placement,

    #[command(flatten)]
    ground: ground::Choice,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// What holds a command before it is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum DurabilityChoice {
    /// The memory of all members
    #[default]
    Memory,
}

/// What is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Op {
    /// A command that a server's own process gives
    #[default]
    Execute,
    /// A command that another process gives by a call
    Call,
    /// A read by a call
    Read,
    /// The transfer of 256 MiB to a newcomer
    Transfer,
    /// The pause of a caller when a server is killed
    Failover,
}

/// How a read is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Consistency {
    /// From a state with everything in it that was answered before
    #[default]
    Linearizable,
    /// From the state of the server that gets the call
    Local,
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Op::Execute => "execute",
            Op::Call => "call",
            Op::Read => "read",
            Op::Transfer => "transfer",
            Op::Failover => "failover",
        }
    }
}

impl Consistency {
    fn name(self) -> &'static str {
        match self {
            Consistency::Linearizable => "linearizable",
            Consistency::Local => "local",
        }
    }

    fn read(self) -> Asks {
        match self {
            Consistency::Linearizable => Asks::LinearizableRead,
            Consistency::Local => Asks::LocalRead,
        }
    }
}

pub(crate) fn run(command: &Replica, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let servers = command.servers as usize;
    let ground = Ground::prepare(&command.ground, servers + 2, false, settings)?;
    let bench = Bench {
        command,
        servers,
        locations: ground.locations(command.placement, servers + 2),
        ground: &ground,
    };
    let (lines, figures) = match command.op {
        Op::Execute | Op::Call => bench.commands()?,
        Op::Read => bench.reads()?,
        Op::Transfer => bench.transfer()?,
        Op::Failover => bench.failover()?,
    };
    Summary::new(lines, bench.object(&figures)).tell(output)
}

/// A measurement that is under way.
struct Bench<'a> {
    command: &'a Replica,
    servers: usize,
    /// Of the servers, the caller, and one more process.
    locations: Vec<Location>,
    ground: &'a Ground,
}

impl Bench<'_> {
    fn staff(&self) -> Result<Staff, Problem> {
        Staff::new(self.command.bytes as usize, &self.ground.settings)
    }

    /// Returns the summary for programs.
    fn object(&self, figures: &Value) -> Value {
        let command = self.command;
        let mut object = json!({
            "bench": "replica",
            "op": command.op.name(),
            "servers": command.servers,
            "durability": "memory",
            "consistency": command.consistency.name(),
            "in_flight": command.in_flight,
            "bytes": command.bytes,
            "sealed": self.ground.is_sealed(),
            "placement": command.placement.name(),
        });
        if let (Some(object), Some(figures)) = (object.as_object_mut(), figures.as_object()) {
            object.extend(figures.clone());
        }
        command.ground.tell(object)
    }

    fn title(&self) -> String {
        let sealed = if self.ground.is_sealed() { ", sealed" } else { "" };
        let Replica { servers, bytes, in_flight, ground, .. } = self.command;
        format!(
            "{servers} servers, {bytes} bytes, {in_flight} in flight, held by all{sealed}{}",
            ground.words()
        )
    }

    /// Measures commands, one outstanding, beside null calls and null messages that all hold; then under load.
    fn commands(&self) -> Result<(Vec<String>, Value), Problem> {
        let mut staff = self.staff()?;
        let caller = staff.start_service(self.servers, &self.locations)?;
        // Not the founder, which is the sequencer.
        let subject = if self.command.op == Op::Execute { 1 } else { caller };
        let [mut ours, mut call, mut send] = [Side::default(), Side::default(), Side::default()];
        let mut calling = Calling::start(&self.locations[..2], 1, 0, &self.ground.settings)?;
        let held =
            Protocol { resilience: u8::try_from(self.servers - 1).unwrap_or(u8::MAX), ..Protocol::default() };
        let wanted = Wanted { protocol: held, bytes: 0 };
        let mut group = Measured::start(&wanted, &self.locations[..self.servers], &self.ground.settings)?;
        let (rounds, block) = blocks(5000);
        let bar = progress::bar(rounds as u64, "rounds");
        for round in 0..rounds {
            for turn in 0..3 {
                match (turn + round) % 3 {
                    0 => ours.turn(
                        &mut staff,
                        |_| Ok(Usage::default()),
                        |staff| staff.one_by_one(subject, Asks::Command, (UNTIMED, block)),
                    )?,
                    1 => call.turn(&mut calling, Calling::usage, |calling| calling.call(block))?,
                    _ => send.turn(&mut group, Measured::usage, |group| group.measure(block))?,
                }
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        drop((calling, group));
        let sums: Vec<f64> = call.rounds.iter().zip(&send.rounds).map(|(call, send)| call + send).collect();
        let [to_call, to_send, to_both] =
            [&call.rounds, &send.rounds, &sums].map(|floor| Ratio::of(&ours.rounds, floor));
        let spread = if self.command.op == Op::Execute { to_send.spread } else { to_both.spread };
        let (per_s, loaded_p50) = self.load(&mut staff, subject, Asks::Command)?;
        let [p50, p99] = [0.5, 0.99].map(|part| ours.us(part));
        let (call_us, send_us) = (call.us(0.5), send.us(0.5));
        let lines = vec![
            self.title(),
            format!("  one command    p50 {p50} us, p99 {p99}"),
            format!(
                "  null message   p50 {send_us} us, held by all: a command takes {} times as long",
                to_send.median
            ),
            format!("  null call      p50 {call_us} us: a command takes {} times as long", to_call.median),
            format!("  both together  a command takes {} times as long", to_both.median),
            format!("  under load     {per_s} commands/s, p50 {loaded_p50} us"),
        ];
        let figures = json!({
            "ops_per_s": per_s,
            "p50_us": p50,
            "p99_us": p99,
            "call_p50_us": call_us,
            "send_p50_us": send_us,
            "fdatasync_p50_us": null,
            "ratio_call": to_call.median,
            "ratio_send": to_send.median,
            "ratio_call_send": to_both.median,
            "ratio_sync": null,
            "ratio_spread": spread,
        });
        Ok((lines, figures))
    }

    /// Measures reads by calls: one at a time, then under load.
    fn reads(&self) -> Result<(Vec<String>, Value), Problem> {
        let mut staff = self.staff()?;
        let caller = staff.start_service(self.servers, &self.locations)?;
        let asks = self.command.consistency.read();
        let mut took = staff.one_by_one(caller, asks, (UNTIMED, 1000))?;
        let [p50, p99] = [0.5, 0.99].map(|part| rounded(quantile(&mut took, part) as f64 / 1000.0));
        let (per_s, loaded_p50) = self.load(&mut staff, caller, asks)?;
        let lines = vec![
            format!("{}, {} reads", self.title(), self.command.consistency.name()),
            format!("  one read       p50 {p50} us, p99 {p99}"),
            format!("  under load     {per_s} reads/s, p50 {loaded_p50} us"),
        ];
        Ok((lines, json!({"ops_per_s": per_s, "p50_us": p50, "p99_us": p99, "loaded_p50_us": loaded_p50})))
    }

    /// Returns the median number per second under load, and the median time in microseconds.
    fn load(&self, staff: &mut Staff, subject: usize, asks: Asks) -> Result<(f64, f64), Problem> {
        let timed = Duration::from_secs(self.command.seconds) / LOAD_ROUNDS;
        let (mut rounds, mut took) = (Vec::new(), Vec::new());
        let bar = progress::bar(u64::from(LOAD_ROUNDS), "rounds");
        for _ in 0..LOAD_ROUNDS {
            let times = [UNTIMED_REPLICA_LOAD, timed];
            staff.load(subject, asks, self.command.in_flight as usize, times)?;
            let mut loaded = staff.loaded(subject, UNTIMED_REPLICA_LOAD + timed)?;
            rounds.push(loaded.len() as f64 / timed.as_secs_f64());
            took.append(&mut loaded);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok((median(&mut rounds).round(), rounded(quantile(&mut took, 0.5) as f64 / 1000.0)))
    }

    /// Measures the transfer of a large state to a newcomer, beside as many large replies under way, and what it costs
    /// the commands that are given meanwhile.
    fn transfer(&self) -> Result<(Vec<String>, Value), Problem> {
        let second = Duration::from_secs(1);
        // The donor is the founder, and each newcomer runs where the caller of the large calls runs.
        let [donor_at, newcomer_at] = [&self.locations[0], &self.locations[self.servers]];
        let receives = STATE_PAGES as usize * PAGE_BYTES;
        let mut shelf = self.staff()?;
        shelf.start(Part::Shelf, donor_at)?;
        shelf.receives = receives;
        let (reader, _) = shelf.start(Part::Caller, newcomer_at)?;
        let by_calls = shelf.keep(reader, STATE_PAGES, PAGES_IN_FLIGHT)?;
        drop(shelf);
        let mut staff = self.staff()?;
        for (index, location) in self.locations[..self.servers - 1].iter().enumerate() {
            staff.start(if index == 0 { Part::Founder } else { Part::Joiner }, location)?;
        }
        staff.fill(0, STATE_PAGES)?;
        staff.receives = receives;
        // A transfer without updates is timed, and another one beside updates.
        let (_, alone) = staff.start(Part::Joiner, newcomer_at)?;
        let updates = |staff: &mut Staff, timed: Duration| -> Result<(), Problem> {
            staff.load(0, Asks::Command, 1, [UNTIMED_REPLICA_LOAD, timed])
        };
        updates(&mut staff, second)?;
        let before_per_s = staff.loaded(0, 2 * second)?.len() as f64;
        let (loads_for, begun) = (3 * alone + 3 * second, Instant::now() + UNTIMED_REPLICA_LOAD);
        updates(&mut staff, loads_for)?;
        let (_, beside) = staff.start(Part::Joiner, newcomer_at)?;
        let has_state = Instant::now().saturating_duration_since(begun);
        // One update follows the other, so their times say when each was answered.
        let (mut answered, mut meanwhile) = (Duration::ZERO, Vec::new());
        for took in staff.loaded(0, loads_for)? {
            answered += Duration::from_nanos(took);
            if answered + beside >= has_state && answered <= has_state {
                meanwhile.push(took);
            }
        }
        let meanwhile_per_s = meanwhile.len() as f64 / beside.as_secs_f64();
        let longest_us = rounded(quantile(&mut meanwhile, 1.0) as f64 / 1000.0);
        let (call_s, alone_s) = (by_calls.as_secs_f64(), alone.as_secs_f64());
        let ratio = rounded(call_s / alone_s);
        let mb_per_s = rounded(f64::from(STATE_PAGES) * PAGE_BYTES as f64 / alone_s / 1e6);
        let lines = vec![
            format!("{}, a state of {STATE_PAGES} MiB", self.title()),
            format!(
                "  transfer       {:.2} s, {mb_per_s} MB/s; beside updates {:.2} s",
                alone_s,
                beside.as_secs_f64()
            ),
            format!("  large calls    the same bytes in {call_s:.2} s: a transfer is {ratio} times as fast"),
            format!(
                "  updates        {before_per_s}/s before, {meanwhile_per_s:.0}/s meanwhile; the slowest took {longest_us} us"
            ),
        ];
        let us = |seconds: f64| (seconds * 1e6).round();
        let figures = json!({
            "p50_us": us(alone_s),
            "p99_us": us(beside.as_secs_f64()),
            "call_p50_us": us(call_s),
            "mb_per_s": mb_per_s,
            "ratio_call": ratio,
            "updates_before_per_s": before_per_s.round(),
            "updates_meanwhile_per_s": meanwhile_per_s.round(),
            "update_max_us": longest_us,
        });
        Ok((lines, figures))
    }

    /// Measures how long a caller waits when a server is killed: in each trial a new service, whose founder dies.
    fn failover(&self) -> Result<(Vec<String>, Value), Problem> {
        let bar = progress::bar(FAILOVERS as u64, "trials");
        let (mut pauses, mut by_victim) = (Vec::new(), [Vec::new(), Vec::new()]);
        for trial in 0..FAILOVERS {
            let mut staff = self.staff()?;
            let caller = staff.start_service(self.servers, &self.locations)?;
            staff.one_by_one(caller, Asks::Command, (UNTIMED, 100))?;
            // Every other time a server that is not the sequencer.
            let victim = trial % 2;
            let pause = staff.kill_while_watched((caller, victim), Asks::Command, WATCHED)?;
            let pause = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
            pauses.push(pause);
            by_victim[victim].push(pause);
            bar.inc(1);
        }
        bar.finish_and_clear();
        let [of_sequencer, of_other] = by_victim.map(|mut pauses| quantile(&mut pauses, 0.5));
        let [p50, max] = [0.5, 1.0].map(|part| quantile(&mut pauses, part));
        let lines = vec![
            format!("{}, one server killed, {FAILOVERS} trials", self.title()),
            format!("  a caller waits p50 {} ms, at most {} ms", p50 / 1000, max / 1000),
            format!(
                "  by server      sequencer p50 {} ms, another p50 {} ms",
                of_sequencer / 1000,
                of_other / 1000
            ),
        ];
        Ok((
            lines,
            json!({"p50_us": p50, "p99_us": max, "max_us": max, "trials": FAILOVERS, "sequencer_p50_us": of_sequencer, "other_p50_us": of_other}),
        ))
    }
}
