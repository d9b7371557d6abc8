//! `unisono bench dir`: measures a directory service, and compares it with what its operations are made of, and with the
//! service of two servers that KTV93 replaced, with one server, and with plain files, in the same run.
//!
//! | module | subject |
//! |---|---|
//! | here | options; operations one at a time |
//! | `load` | operations under load; growing numbers of clients and servers |
//! | `start` | a server with many rows comes back |
//! | `leftovers` | what cancelled operations leave in snapshots |
//! | `floors` | what operations are made of |
//! | `folders`, `team` | the folders and processes of a service, seen from the measuring process |
//! | `worker`, `target`, `steps` | a process from inside, what a client asks, what an operation consists of |
//! | `pair` | the service of two servers |

mod floors;
mod folders;
mod leftovers;
mod load;
mod pair;
mod start;
mod steps;
mod target;
mod team;
pub(crate) mod worker;

use super::Summary;
use super::ground::{self, Ground};
use super::latency::member::Usage;
use super::placement::Placement;
use super::replica::{Consistency, DurabilityChoice};
use super::side::{Side, blocks};
use super::statistics::Ratio;
use crate::arguments::{self, Common};
use crate::location::Location;
use crate::output::{Output, several};
use crate::problem::Problem;
use crate::progress;
use crate::settings::Settings;
use crate::units;
use clap::{Args, ValueEnum};
use floors::Floors;
use folders::{Folders, IN_MEMORY};
use load::Load;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use steps::{Kind, Work};
use team::{Plan, Team};
use unisono::replica::DISK_SERVERS_MAX;
use worker::Task;

/// Operations that are timed one at a time: lookups, and those with commands.
const LOOKUPS: u64 = 5000;
const CHANGES: u64 = 1250;

/// Measure a directory service: lookups, rows and files that come and go, the return of a server with many rows
///
/// Each server and client is a process. Operations one at a time, null calls, null messages that all servers hold, syncs by
/// as many processes as there are servers, and what --against names are measured in alternating short blocks; the ratios are
/// medians over the rounds. Then all clients ask at once. Files lie where temporary files are kept (TMPDIR).
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  unisono bench dir --op append-delete --against pair\n  \
                        unisono bench dir --op lookup --clients 16 --in-flight 4 --consistency local\n  \
                        unisono bench dir --op tmp-file --durability memory")]
pub(crate) struct Dir {
    /// What is measured
    #[arg(long, value_enum, default_value_t)]
    op: Op,

    /// Number of servers, one process each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = arguments::within::<u64>(1..=u64::from(DISK_SERVERS_MAX)))]
    servers: u64,

    /// Number of clients under load, one process each
    #[arg(long, value_name = "C", default_value_t = 1, value_parser = arguments::within::<u64>(1..=64))]
    clients: u64,

    /// Number of operations that each client has in flight under load
    #[arg(long, value_name = "F", default_value_t = 1, value_parser = arguments::within::<u64>(1..=4096))]
    in_flight: u64,

    /// What holds a change before it is answered: the logs of a majority or of one server on disk, or the logs of a majority
    /// in memory that outlives the process
    #[arg(long, value_enum, default_value_t = DurabilityChoice::Majority)]
    durability: DurabilityChoice,

    /// Folder for the logs; with --durability memory, /dev/shm unless another one is named
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,

    /// A folder for the files of each server, such as one on each of three disks; without it they lie together
    #[arg(long, value_name = "DIR,…", value_delimiter = ',')]
    disks: Vec<PathBuf>,

    /// Whether a lookup has everything in it that was answered before, or may be a little behind
    #[arg(long, value_enum, default_value_t)]
    consistency: Consistency,

    /// What the same operations are compared with
    #[arg(long, value_enum)]
    against: Option<Against>,

    /// Number of rows of the service, with --op start (1,000,000 unless given)
    #[arg(long, value_name = "N", value_parser = arguments::within::<u32>(1..=4_000_000))]
    rows: Option<u32>,

    /// Number of operations that are timed one at a time: 5,000 lookups or 1,250 others unless given
    #[arg(long, value_name = "N", value_parser = arguments::within::<u64>(10..=10_000_000))]
    operations: Option<u64>,

    /// Print a row for each number of servers up to --servers, and of clients 1, 2, 4, … up to --clients, under load alone
    #[arg(long)]
    sweep: bool,

    /// Seconds under load, such as 90 or 2m, all rounds together
    #[arg(long, value_name = "TIME", default_value_t = 5, value_parser = units::whole_seconds(1..=3600))]
    seconds: u64,

    /// On which processors the processes of all sides run: spread with one client, and none with several, unless given
    #[arg(long, value_enum)]
    placement: Option<Placement>,

    #[command(flatten)]
    ground: ground::Choice,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// What is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Op {
    /// A row is looked up
    #[default]
    Lookup,
    /// A row is appended and deleted
    AppendDelete,
    /// A file of four bytes is created and entered, looked up, read and deleted
    TmpFile,
    /// 98 lookups, an append and a delete; each counts
    Mixed,
    /// A server of a service with many rows is killed and comes back
    Start,
}

/// What the operations are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Against {
    /// Two servers by RPC with intentions on disk, and a file server, as the paper had before
    Pair,
    /// One server with one disk
    Single,
    /// Entries and files of the machine's file system, each change with a sync
    Files,
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Op::Lookup => "lookup",
            Op::AppendDelete => "append-delete",
            Op::TmpFile => "tmp-file",
            Op::Mixed => "mixed",
            Op::Start => "start",
        }
    }

    /// Returns what its clients do.
    fn work(self) -> Work {
        match self {
            Op::Lookup => Work::Lookup,
            Op::AppendDelete | Op::Start => Work::AppendDelete,
            Op::TmpFile => Work::TemporaryFile,
            Op::Mixed => Work::Mixed,
        }
    }

    /// Returns the words for one operation, and for several.
    fn words(self) -> [&'static str; 2] {
        match self {
            Op::Lookup => ["one lookup", "lookups"],
            Op::AppendDelete | Op::Start => ["one pair", "pairs"],
            Op::TmpFile => ["one file", "files"],
            Op::Mixed => ["one request", "requests"],
        }
    }

    /// Returns the paper's times in milliseconds: of the group, of the pair, of NFS, and of the group with its log in memory
    /// (Fig. 7).
    fn paper(self) -> Option<[u32; 4]> {
        match self {
            Op::AppendDelete => Some([184, 192, 87, 27]),
            Op::TmpFile => Some([215, 277, 111, 52]),
            Op::Lookup => Some([5, 5, 6, 5]),
            Op::Mixed | Op::Start => None,
        }
    }
}

impl Against {
    fn name(self) -> &'static str {
        match self {
            Against::Pair => "pair",
            Against::Single => "single",
            Against::Files => "files",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Against::Pair => "pair by RPC   ",
            Against::Single => "one server    ",
            Against::Files => "files         ",
        }
    }

    fn kind(self) -> Kind {
        match self {
            Against::Pair => Kind::Pair,
            Against::Single => Kind::Directory,
            Against::Files => Kind::Files,
        }
    }
}

pub(crate) fn run(command: &Dir, settings: &Settings, output: &Output) -> Result<(), Problem> {
    command.check()?;
    if command.sweep {
        return load::sweep(command, settings, output);
    }
    let prepared = Prepared::new(command, settings)?;
    let bench = prepared.bench(command);
    let (lines, figures) = match command.op {
        Op::Start => bench.start()?,
        _ => bench.operations()?,
    };
    Summary::new(lines, bench.object(&figures)).tell(output)
}

/// The network and the places of all processes.
struct Prepared {
    ground: Ground,
    servers: Vec<Location>,
    clients: Vec<Location>,
}

impl Prepared {
    fn new(command: &Dir, settings: &Settings) -> Result<Prepared, Problem> {
        let (servers, clients) = (command.servers as usize, command.clients as usize);
        // The pair has a process for its second server even where the directory has one.
        let servers = servers.max(team::TWINS);
        let ground = Ground::prepare(&command.ground, servers + clients, false, settings)?;
        let mut locations = ground.locations(command.placement(), servers + clients);
        let clients = locations.split_off(servers);
        Ok(Prepared { ground, servers: locations, clients })
    }

    fn bench<'a>(&'a self, command: &'a Dir) -> Bench<'a> {
        Bench {
            command,
            servers: &self.servers[..command.servers as usize],
            places: &self.servers,
            clients: &self.clients,
            ground: &self.ground,
        }
    }
}

impl Dir {
    /// Refuses options that do not fit together.
    fn check(&self) -> Result<(), Problem> {
        let refuse = |words: &str| Err(Problem::usage(words));
        let has_lookups = matches!(self.op, Op::Lookup | Op::Mixed);
        match self.op {
            _ if self.consistency == Consistency::Local && !has_lookups => {
                refuse("--consistency local is for lookups: choose --op lookup or --op mixed")
            }
            Op::Start if self.against.is_some() => {
                refuse("--op start is compared with nothing: leave --against out")
            }
            Op::Start if self.servers < 3 => refuse(
                "without one of them the others must have a majority: --op start needs --servers 3 or more",
            ),
            Op::Start if self.operations.is_some() => {
                refuse("--op start times no single operations: leave --operations out")
            }
            _ if self.sweep
                && (self.op == Op::Start || self.against.is_some() || self.operations.is_some()) =>
            {
                refuse("--sweep measures under load alone: leave --against, --operations and --op start out")
            }
            _ if !self.disks.is_empty() && self.disks.len() as u64 != self.servers => {
                Err(Problem::usage(format!(
                    "--disks names {}, and there are {}: name one for each",
                    several(self.disks.len() as u64, "folder"),
                    several(self.servers, "server")
                )))
            }
            _ if !self.disks.is_empty() && self.sweep => {
                refuse("--sweep measures other numbers of servers than there are folders: leave --disks out")
            }
            op if self.rows.is_some() && op != Op::Start => refuse("--rows is for --op start"),
            _ => Ok(()),
        }
    }

    /// Returns on which processors the processes run. Several clients find out how evenly servers are asked, and a server that
    /// has a processor to itself is asked more than two that share one.
    fn placement(&self) -> Placement {
        let usual = if self.clients > 1 { Placement::None } else { Placement::Spread };
        self.placement.unwrap_or(usual)
    }

    /// Returns the folder for the logs, if they lie elsewhere.
    fn logs(&self) -> Option<&Path> {
        let in_memory = self.durability == DurabilityChoice::Memory;
        self.log_dir.as_deref().or(in_memory.then_some(Path::new(IN_MEMORY)))
    }
}

/// A measurement that is under way.
struct Bench<'a> {
    command: &'a Dir,
    /// Locations of the servers of our directory.
    servers: &'a [Location],
    /// Locations of all servers.
    places: &'a [Location],
    clients: &'a [Location],
    ground: &'a Ground,
}

impl Bench<'_> {
    /// Starts a service of these servers.
    fn team(&self, kind: Kind, servers: &[Location]) -> Result<Team, Problem> {
        let plan = Plan {
            kind,
            servers,
            clients: self.clients,
            needs_one: self.command.durability == DurabilityChoice::One,
            settings: &self.ground.settings,
        };
        Team::start(&plan, Folders::new(&self.command.disks, self.command.logs())?)
    }

    fn rival(&self, against: Against) -> Result<Team, Problem> {
        let servers = match against {
            Against::Pair => &self.places[..team::TWINS],
            Against::Single | Against::Files => &self.places[..1],
        };
        self.team(against.kind(), servers)
    }

    fn task(&self) -> Task {
        Task { work: self.command.op.work(), is_local: self.command.consistency == Consistency::Local }
    }

    /// Returns the summary for programs.
    fn object(&self, figures: &Value) -> Value {
        let command = self.command;
        let mut object = json!({
            "bench": "dir",
            "op": command.op.name(),
            "servers": command.servers,
            "clients": command.clients,
            "in_flight": command.in_flight,
            "durability": command.durability.name(),
            "consistency": command.consistency.name(),
            "against": command.against.map(Against::name),
            "sealed": self.ground.is_sealed(),
            "placement": command.placement().name(),
        });
        if let (Some(object), Some(figures)) = (object.as_object_mut(), figures.as_object()) {
            object.extend(figures.clone());
        }
        command.ground.tell(object)
    }

    fn title(&self) -> String {
        let Dir { op, servers, clients, in_flight, ground, durability, consistency, .. } = self.command;
        let held = match (durability, op) {
            (_, Op::Lookup) => consistency.name(),
            (DurabilityChoice::Majority, _) => "on the disks of a majority",
            (DurabilityChoice::One, _) => "on one disk",
            (DurabilityChoice::Memory, _) => "logs of a majority in memory",
        };
        let sealed = if self.ground.is_sealed() { ", sealed" } else { "" };
        format!(
            "{}: {}, {}, {in_flight} in flight each, {held}{sealed}{}",
            op.name(),
            several(*servers, "server"),
            several(*clients, "client"),
            ground.words()
        )
    }

    /// Measures operations one at a time beside the floors and the rival, then under load.
    fn operations(&self) -> Result<(Vec<String>, Value), Problem> {
        let task = self.task();
        let mut team = self.team(Kind::Directory, self.servers)?;
        let mut rival = self.command.against.map(|against| self.rival(against)).transpose()?;
        let mut floors = Floors::start(self.servers, &self.clients[0], &self.ground.settings)?;
        let [mut ours, mut theirs] = [(); 2].map(|()| Side::default());
        let is_read = self.command.op == Op::Lookup;
        let (rounds, block) =
            blocks(self.command.operations.unwrap_or(if is_read { LOOKUPS } else { CHANGES }));
        let bar = progress::bar(rounds as u64, "rounds");
        let no_usage = |_: &mut Team| Ok(Usage::default());
        let sides = Floors::COUNT + 2;
        for round in 0..rounds {
            // The order of the sides rotates from round to round.
            for turn in 0..sides {
                match (turn + round) % sides {
                    floor if floor < Floors::COUNT => floors.turn(floor, block)?,
                    Floors::COUNT => ours.turn(&mut team, no_usage, |team| team.one_by_one(task, block))?,
                    _ => {
                        if let Some(rival) = &mut rival {
                            theirs.turn(rival, no_usage, |rival| rival.one_by_one(task, block))?;
                        }
                    }
                }
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        drop(rival);
        let load = self.load(&mut team, task)?;
        let leftovers = match self.command.durability {
            DurabilityChoice::Memory if !is_read => Some(leftovers::count(team)?),
            _ => None,
        };
        Ok(self.report(&mut ours, &mut theirs, &mut floors, &load, leftovers))
    }

    fn report(
        &self,
        ours: &mut Side,
        theirs: &mut Side,
        floors: &mut Floors,
        load: &Load,
        leftovers: Option<u64>,
    ) -> (Vec<String>, Value) {
        let command = self.command;
        let is_on_disk = command.durability != DurabilityChoice::Memory;
        let [calls, commands] = command.op.work().costs();
        let over = |cost: [f64; 3]| Ratio::of(&ours.rounds, &floors.sums(cost));
        let to_call = over([1.0, 0.0, 0.0]);
        let to_both = over([calls, commands, 0.0]);
        let to_all = over([calls, commands, commands]);
        let to_rival = command.against.map(|_| Ratio::of(&ours.rounds, &theirs.rounds));
        let [p50, p99] = [0.5, 0.99].map(|part| ours.us(part));
        let rival_us = command.against.map(|_| theirs.us(0.5));
        let [call, send, sync, udp] =
            [&mut floors.call, &mut floors.send, &mut floors.sync, &mut floors.udp].map(|side| side.us(0.5));
        let [one, many] = command.op.words();
        let mut lines = vec![
            self.title(),
            format!("  {one:14} p50 {p50} us, p99 {p99}"),
            format!("  null call      p50 {call} us: {one} takes {} times as long", to_call.median),
        ];
        if commands > 0.0 {
            lines.push(format!(
                "  null message   p50 {send} us, held by all: {} times as long as its {calls} calls and {commands} messages",
                to_both.median
            ));
        }
        if commands > 0.0 && is_on_disk {
            lines.push(format!(
                "  sync           p50 {sync} us: {} times as long as its calls, messages and {commands} syncs",
                to_all.median
            ));
        }
        if let (Some(against), Some(us), Some(ratio)) = (command.against, rival_us, &to_rival) {
            lines.push(format!(
                "  {} p50 {us} us: ours takes {} times as long (rounds {} to {})",
                against.words(),
                ratio.median,
                ratio.spread[0],
                ratio.spread[1]
            ));
        }
        lines.push(format!("  under load     {} {many}/s, p50 {} us", load.per_s, load.p50_us));
        if let (Some(calls), Some(ratio)) = (load.calls_per_s, &load.ratio_calls) {
            lines.push(format!(
                "  null calls     {calls}/s with as many in flight: {} lookups for each",
                ratio.median
            ));
        }
        lines.push(format!(
            "  by server      the busiest was asked {} times as often as the idlest",
            load.busiest_over_idlest
        ));
        if let Some(rows) = leftovers {
            lines.push(format!(
                "  on disk        {rows} rows and files of these in the snapshots of all servers"
            ));
        }
        if let Some([group, pair, nfs, memory]) = command.op.paper() {
            lines.push(format!(
                "  in the paper   group {group} ms, pair {pair} ms, NFS {nfs} ms, group with its log in memory {memory} ms"
            ));
        }
        let spread = match (&to_rival, command.op) {
            (Some(ratio), _) => ratio.spread,
            (None, Op::Lookup) => to_call.spread,
            (None, _) if is_on_disk => to_all.spread,
            (None, _) => to_both.spread,
        };
        let with_commands = |figure: f64| (commands > 0.0).then_some(figure);
        let figures = json!({
            "ops_per_s": load.per_s,
            "p50_us": p50,
            "p99_us": p99,
            "loaded_p50_us": load.p50_us,
            "call_p50_us": call,
            "send_p50_us": send,
            "fdatasync_p50_us": sync,
            "udp_rpc_p50_us": udp,
            "against_p50_us": rival_us,
            "ratio_call": to_call.median,
            "ratio_call_send": with_commands(to_both.median),
            "ratio_sync": with_commands(to_all.median).filter(|_| is_on_disk),
            "ratio_against": to_rival.map(|ratio| ratio.median),
            "ratio_spread": spread,
            "calls_per_s": load.calls_per_s,
            "ratio_calls_per_s": load.ratio_calls.as_ref().map(|ratio| ratio.median),
            "rows_written": leftovers,
            "busiest_over_idlest": load.busiest_over_idlest,
            "server_shares": load.shares,
        });
        (lines, figures)
    }
}
