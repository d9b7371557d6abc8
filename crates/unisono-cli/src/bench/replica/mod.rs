//! `unisono bench replica`: measures a replicated state in memory or on disk, and compares it with null calls, with messages
//! that all members hold, and with syncs of as many disks, in the same run.
//!
//! | module | subject |
//! |---|---|
//! | here | commands and reads |
//! | `transfer`, `start`, `returning`, `snapshot`, `failover` | what is measured once or a few times |
//! | `disks` | the folders of servers with disks; the floor of syncs |
//! | `crew`, `worker` | the processes, seen from the measuring process and from inside |

pub(in crate::bench) mod crew;
pub(in crate::bench) mod disks;
mod failover;
mod returning;
mod snapshot;
mod start;
mod transfer;
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
use disks::{Disks, Syncs};
use serde_json::{Value, json};
use std::rc::Rc;
use std::time::Duration;
use unisono::replica::DISK_SERVERS_MAX;
use worker::Asks;

/// Number of rounds under load.
const LOAD_ROUNDS: u32 = 5;
/// Time at the beginning of a load that is not measured, 200 ms, until it is steady.
const UNTIMED_REPLICA_LOAD: Duration = Duration::from_millis(200);
/// Parts that change between two snapshots.
const PARTS: u64 = 2000;
/// Commands that are timed one at a time, in memory and on disk.
const COMMANDS: u64 = 5000;
const COMMANDS_ON_DISK: u64 = 1250;

/// Measure a replicated state: commands, calls, reads, the transfer to a newcomer, the start, the death of a server
///
/// Each server is a process with a copy of the state. Null commands, null calls, null messages that all members hold, and
/// on disk syncs of as many processes as there are servers, are measured in alternating short blocks; the ratios are medians
/// over the rounds. Servers on disk keep their files where temporary files are kept (TMPDIR).
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

    /// With --op snapshot: number of parts of 32 KiB that change between two snapshots
    #[arg(long, value_name = "P", value_parser = arguments::within::<u64>(0..=100_000))]
    parts: Option<u64>,

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
pub(in crate::bench) enum DurabilityChoice {
    /// The memory of all members
    #[default]
    Memory,
    /// The disks of a majority of the servers
    Majority,
    /// One disk
    One,
}

impl DurabilityChoice {
    pub(in crate::bench) fn name(self) -> &'static str {
        match self {
            DurabilityChoice::Memory => "memory",
            DurabilityChoice::Majority => "majority",
            DurabilityChoice::One => "one",
        }
    }

    fn words(self) -> &'static str {
        match self {
            DurabilityChoice::Memory => "held by all",
            DurabilityChoice::Majority => "on the disks of a majority",
            DurabilityChoice::One => "on one disk",
        }
    }
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
    /// The transfer of 256 MiB to a newcomer, in memory
    Transfer,
    /// The start of servers with 1,000,000 entries on disk
    Start,
    /// The slowest update beside a snapshot that the servers write, on disk, with 16 in flight
    Snapshot,
    /// The commands per second beside a server with 1,000,000 entries on disk that comes back, with 64 in flight or more
    Return,
    /// The pause of a caller when a server is killed
    Failover,
}

/// How a read is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(in crate::bench) enum Consistency {
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
            Op::Start => "start",
            Op::Snapshot => "snapshot",
            Op::Return => "return",
            Op::Failover => "failover",
        }
    }
}

impl Consistency {
    pub(in crate::bench) fn name(self) -> &'static str {
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
    let in_memory = command.durability == DurabilityChoice::Memory;
    match command.op {
        Op::Transfer if !in_memory => {
            return Err(Problem::usage("a transfer is measured in memory: add --durability memory"));
        }
        Op::Start if in_memory => {
            return Err(Problem::usage("a start is measured on disk: add --durability majority"));
        }
        Op::Snapshot if in_memory => {
            return Err(Problem::usage("a snapshot is measured on disk: add --durability majority"));
        }
        Op::Return if in_memory => {
            return Err(Problem::usage("a return is measured on disk: add --durability majority"));
        }
        Op::Return if servers < 3 => {
            return Err(Problem::usage(
                "without one of them the others must have a majority: --op return needs --servers 3 or more",
            ));
        }
        op if command.parts.is_some() && op != Op::Snapshot => {
            return Err(Problem::usage("--parts is for --op snapshot"));
        }
        _ if !in_memory && servers > usize::from(DISK_SERVERS_MAX) => {
            return Err(Problem::usage(format!("a service on disk has at most {DISK_SERVERS_MAX} servers")));
        }
        _ => {}
    }
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
        Op::Start => bench.start()?,
        Op::Snapshot => bench.snapshot(command.parts.unwrap_or(PARTS) as u32)?,
        Op::Return => bench.come_back()?,
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
    /// Returns a service without processes; if its servers have disks, with an empty folder for each.
    fn staff(&self) -> Result<Staff, Problem> {
        self.staff_with(self.bytes())
    }

    /// The same, with commands of this size.
    fn staff_with(&self, bytes: usize) -> Result<Staff, Problem> {
        let disks = match self.command.durability {
            DurabilityChoice::Memory => None,
            durability => Some(Rc::new(Disks::new(self.servers as u8, durability)?)),
        };
        Staff::new(bytes, disks, &self.ground.settings)
    }

    fn bytes(&self) -> usize {
        self.command.bytes as usize
    }

    /// Returns the summary for programs.
    fn object(&self, figures: &Value) -> Value {
        let command = self.command;
        let mut object = json!({
            "bench": "replica",
            "op": command.op.name(),
            "servers": command.servers,
            "durability": command.durability.name(),
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
        let Replica { servers, bytes, in_flight, ground, durability, .. } = self.command;
        format!(
            "{servers} servers, {bytes} bytes, {in_flight} in flight, {}{sealed}{}",
            durability.words(),
            ground.words()
        )
    }

    /// Measures commands, one outstanding, beside null calls, null messages that all hold, and syncs; then under load.
    fn commands(&self) -> Result<(Vec<String>, Value), Problem> {
        let is_on_disk = self.command.durability != DurabilityChoice::Memory;
        let mut staff = self.staff()?;
        let caller = staff.start_service(self.servers, &self.locations)?;
        // Not the founder, which is the sequencer.
        let subject = if self.command.op == Op::Execute { 1 } else { caller };
        let [mut ours, mut call, mut send, mut sync] = [(); 4].map(|()| Side::default());
        let mut calling = Calling::start(&self.locations[..2], 1, 0, &self.ground.settings)?;
        let held =
            Protocol { resilience: u8::try_from(self.servers - 1).unwrap_or(u8::MAX), ..Protocol::default() };
        let wanted = Wanted { protocol: held, bytes: 0 };
        let mut group = Measured::start(&wanted, &self.locations[..self.servers], &self.ground.settings)?;
        let mut syncs = if is_on_disk {
            Some(Syncs::start(self.bytes(), &self.locations[..self.servers], &self.ground.settings)?)
        } else {
            None
        };
        let (rounds, block) = blocks(if is_on_disk { COMMANDS_ON_DISK } else { COMMANDS });
        let bar = progress::bar(rounds as u64, "rounds");
        for round in 0..rounds {
            for turn in 0..4 {
                match (turn + round) % 4 {
                    0 => ours.turn(
                        &mut staff,
                        |_| Ok(Usage::default()),
                        |staff| staff.one_by_one(subject, Asks::Command, (UNTIMED, block)),
                    )?,
                    1 => call.turn(&mut calling, Calling::usage, |calling| calling.call(block))?,
                    2 => send.turn(&mut group, Measured::usage, |group| group.measure(block))?,
                    _ => syncs.iter_mut().try_for_each(|syncs| syncs.turn(&mut sync, block))?,
                }
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        drop((calling, group, syncs));
        let both = sums(&call.rounds, &send.rounds);
        let all = sums(&both, &sync.rounds);
        let [to_call, to_send, to_both, to_all] =
            [&call.rounds, &send.rounds, &both, &all].map(|floor| Ratio::of(&ours.rounds, floor));
        let spread = match self.command.op {
            _ if is_on_disk => to_all.spread,
            Op::Execute => to_send.spread,
            _ => to_both.spread,
        };
        let Load { per_s, p50: loaded_p50, datagrams, switches } =
            self.load(&mut staff, subject, Asks::Command)?;
        let [p50, p99] = [0.5, 0.99].map(|part| ours.us(part));
        let [call_us, send_us, sync_us] = [&mut call, &mut send, &mut sync].map(|side| side.us(0.5));
        let single_syncs = rounded(per_s * sync_us / 1e6);
        let mut lines = vec![
            self.title(),
            format!("  one command    p50 {p50} us, p99 {p99}"),
            format!(
                "  null message   p50 {send_us} us, held by all: a command takes {} times as long",
                to_send.median
            ),
            format!("  null call      p50 {call_us} us: a command takes {} times as long", to_call.median),
            format!("  both together  a command takes {} times as long", to_both.median),
        ];
        if is_on_disk {
            lines.push(format!(
                "  sync           p50 {sync_us} us: a command takes {} times as long as call, message and sync",
                to_all.median
            ));
        }
        lines.push(format!("  under load     {per_s} commands/s, p50 {loaded_p50} us"));
        lines.push(format!("  one costs      {datagrams} datagrams, {switches} context switches"));
        if is_on_disk {
            lines.push(format!("                 {single_syncs} times as many as single syncs"));
        }
        let on_disk = |figure: f64| is_on_disk.then_some(figure);
        let figures = json!({
            "ops_per_s": per_s,
            "p50_us": p50,
            "p99_us": p99,
            "loaded_p50_us": loaded_p50,
            "datagrams_per_op": datagrams,
            "switches_per_op": switches,
            "call_p50_us": call_us,
            "send_p50_us": send_us,
            "fdatasync_p50_us": on_disk(sync_us),
            "ratio_call": to_call.median,
            "ratio_send": to_send.median,
            "ratio_call_send": to_both.median,
            "ratio_sync": on_disk(to_all.median),
            "single_syncs": on_disk(single_syncs),
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
        let Load { per_s, p50: loaded_p50, datagrams, switches } = self.load(&mut staff, caller, asks)?;
        let lines = vec![
            format!("{}, {} reads", self.title(), self.command.consistency.name()),
            format!("  one read       p50 {p50} us, p99 {p99}"),
            format!("  under load     {per_s} reads/s, p50 {loaded_p50} us"),
            format!("  one costs      {datagrams} datagrams, {switches} context switches"),
        ];
        let figures = json!({
            "ops_per_s": per_s,
            "p50_us": p50,
            "p99_us": p99,
            "loaded_p50_us": loaded_p50,
            "datagrams_per_op": datagrams,
            "switches_per_op": switches,
        });
        Ok((lines, figures))
    }

    /// Measures operations under load.
    fn load(&self, staff: &mut Staff, subject: usize, asks: Asks) -> Result<Load, Problem> {
        let timed = Duration::from_secs(self.command.seconds) / LOAD_ROUNDS;
        let (mut rounds, mut took, mut all) = (Vec::new(), Vec::new(), 0);
        let before = staff.used()?;
        let bar = progress::bar(u64::from(LOAD_ROUNDS), "rounds");
        for _ in 0..LOAD_ROUNDS {
            let times = [UNTIMED_REPLICA_LOAD, timed];
            staff.load(subject, asks, self.command.in_flight as usize, times)?;
            let (mut loaded, count) = staff.loaded(subject, UNTIMED_REPLICA_LOAD + timed)?;
            all += count;
            rounds.push(loaded.len() as f64 / timed.as_secs_f64());
            took.append(&mut loaded);
            bar.inc(1);
        }
        bar.finish_and_clear();
        let after = staff.used()?;
        let per_op = |count: u64| rounded(count as f64 / all.max(1) as f64);
        Ok(Load {
            per_s: median(&mut rounds).round(),
            p50: rounded(quantile(&mut took, 0.5) as f64 / 1000.0),
            datagrams: per_op(after.datagrams.saturating_sub(before.datagrams)),
            switches: per_op(after.switches.saturating_sub(before.switches)),
        })
    }
}

/// What a load came to.
struct Load {
    /// Median number per second.
    per_s: f64,
    /// Median time in microseconds.
    p50: f64,
    /// Datagrams and context switches of the servers and the caller for each operation.
    datagrams: f64,
    switches: f64,
}

/// Returns the sum of two sides in each round.
fn sums(one: &[f64], other: &[f64]) -> Vec<f64> {
    one.iter().zip(other).map(|(one, other)| one + other).collect()
}
