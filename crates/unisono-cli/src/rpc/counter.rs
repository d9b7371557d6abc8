//! `unisono rpc counter`: a counter of which every process that runs this command keeps a copy.

use super::{Served, Serving};
use crate::arguments::{Common, OrderChoice, Scope};
use crate::connection;
use crate::copies;
use crate::form::{FormOptions, SlowOption};
use crate::opening::{LOOKS_EVERY, Opening, SHORT_OPENING, WhileHalted};
use crate::output::{self, Output, several, tell, visible};
use crate::problem::Problem;
use crate::settings::Settings;
use crate::signals;
use crate::threads;
use crate::watch;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use unisono::replica::{
    Block, Command, Created, DiskDurability, DiskOptions, Durability, Kind, NotRestored, NotServed, Notice,
    Outcome, Replica, ReplicaEnd, ReplicaError, ReplicaOptions, Server, StateMachine,
};
use unisono::{Bytes, GroupConfig, Options, SlowMember};

/// Time to answer accepted requests after a signal, and for another member to get the state: 3 s.
const FAREWELL: Duration = Duration::from_secs(3);

/// Keep a counter together with all other processes that run this: each call counts once, even if members crash
///
/// It takes three calls. `add` adds one, or the number after it (`add 5`), and answers the sum. `get` answers the sum.
/// `where` is forwarded to another member, and answers which member received it and which answered. With `unisono rpc call
/// --handler H` the member answers that holds handler H.
///
/// A copy never begins a counter by accident: with --form it joins the counter or founds it together with the other
/// members of the list, with --create it founds it alone, and without either it only joins.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  unisono rpc counter votes --form a,b,c --name a   in three terminals, as a, b and c\n  \
                  unisono rpc call votes add                        in another; kill one of the three and call again"
)]
pub(crate) struct Counter {
    #[command(flatten)]
    serving: Serving,

    /// Name of this member, which `where` answers [default: the host and the process number]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Found the counter alone, at zero: for the first member of all, or after all copies were lost
    #[arg(long, conflicts_with = "form")]
    create: bool,

    #[command(flatten)]
    form: FormOptions,

    /// Which member assigns the sequence numbers, if this command founds the counter's group
    #[arg(long, value_enum, default_value_t)]
    order: OrderChoice,

    /// How many members hold an addition before it is answered, if this command founds the counter in memory. With
    /// majority no answer waits for a member that stands still; with all none is lost while one member lives
    #[arg(long, value_name = "MEMBERS", value_enum, default_value_t, conflicts_with = "id")]
    held_by: HeldBy,

    /// Claim this handler: the first member that claims it answers calls with `--handler`; when it ends, the next in line.
    /// May be given several times
    #[arg(long, value_name = "HANDLER", value_parser = super::handler)]
    handle: Vec<String>,

    #[command(flatten)]
    slow: SlowOption,

    #[command(flatten)]
    scope: Scope,

    #[command(flatten)]
    disk: OnDisk,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// The members that hold an addition.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum HeldBy {
    /// All of them
    #[default]
    All,
    /// More than half of them
    Majority,
}

impl HeldBy {
    fn durability(self) -> Durability {
        match self {
            HeldBy::All => Durability::HeldByAll,
            HeldBy::Majority => Durability::HeldByMajority,
        }
    }
}

/// Keep the counter on disk.
#[derive(Args, Debug)]
struct OnDisk {
    /// Keep the counter on disk, as the server with this id, from 1 to the number of servers
    #[arg(long, value_name = "ID", requires = "data", conflicts_with_all = ["create", "form", "name"])]
    id: Option<u8>,

    /// Number of servers with a disk, 1 to 9, fixed when they create the counter: a majority of them serves
    #[arg(long, value_name = "N", default_value_t = 3, requires = "id")]
    servers: u8,

    /// Folder in which this server keeps its state
    #[arg(long, value_name = "DIR", requires = "id")]
    data: Option<PathBuf>,

    /// Folder for the log, if it is to lie on another device
    #[arg(long, value_name = "DIR", requires = "id")]
    log_dir: Option<PathBuf>,

    /// How many disks have an addition before it is answered: majority or one; fixed when the counter is created
    #[arg(long, value_name = "DISKS", default_value = "majority", value_parser = durability, requires = "id")]
    durability: DiskDurability,

    /// Let this empty folder take the place of the one that this server had
    #[arg(long, requires = "id", conflicts_with = "begin_anew")]
    replace: bool,

    /// Give up the disks of all other servers for ever and go on from this one, once enough others were started with
    /// empty folders and --replace to make a majority. Answers that only the other disks had are lost. Leave it out of
    /// later starts
    #[arg(long, requires = "id")]
    begin_anew: bool,

    /// Refuse an empty folder: after the first start it is a disk that is not mounted, or the wrong folder. For service
    /// files, once the counter is created
    #[arg(long, requires = "id", conflicts_with = "replace")]
    existing: bool,
}

pub(crate) fn durability(text: &str) -> Result<DiskDurability, String> {
    match text {
        "majority" => Ok(DiskDurability::Majority),
        "one" => Ok(DiskDurability::One),
        _ => Err("it is majority or one".into()),
    }
}

impl OnDisk {
    fn options(&self) -> Option<DiskOptions> {
        Some(DiskOptions {
            id: self.id?,
            servers: self.servers,
            data: self.data.clone()?,
            log_dir: self.log_dir.clone(),
            durability: self.durability,
            replace: self.replace,
            begin_anew: self.begin_anew,
            existing: self.existing,
        })
    }
}

pub(crate) fn run(command: &Counter, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let mut options = connection::options(settings, command.name.as_deref())?;
    options.settings.hops = command.scope.hops;
    let formation = match command.form.is_given() {
        true => command.form.founding(GroupConfig::default(), command.name.as_deref())?.formation,
        false => None,
    };
    if command.slow.slow_member == SlowMember::Wait {
        return Err(Problem::usage("copies of a counter do not wait: give --slow-member a time"));
    }
    connection::warn_of_no_key(&options);
    connection::tell_of_no_address(&options);
    let served = command.serving.served()?;
    let (slow_member, order) = (command.slow.slow_member, command.order.order());
    let config = GroupConfig { slow_member, order, ..GroupConfig::default() };
    let durability = command.held_by.durability();
    let how = ReplicaOptions { config, durability, ..ReplicaOptions::default() };
    let opening = Opening {
        name: &served.name,
        create: command.create,
        formation,
        command: "rpc counter",
        advice: advice(&served.name),
        no_state: None,
        while_halted: WhileHalted::AsForState,
        settings,
    };
    let replica = match command.disk.options() {
        Some(disk) => on_disk(&served.name, disk, how, &options)?,
        None => in_memory(&opening, how, &options)?,
    };
    for handler in &command.handle {
        replica.claim_handler(handler).map_err(Problem::usage)?;
    }
    let interrupted = replica.clone();
    signals::on_interrupt(move |_| {
        interrupted.end(FAREWELL);
        output::exit(0);
    })?;
    let served = serve(&replica, &served, output);
    if served.is_err() {
        // Leave, so that the others need not suspect this member.
        replica.end(FAREWELL);
    }
    served
}

/// Opens the copy of a server without a disk; returns when it has the state.
fn in_memory(opening: &Opening<'_>, how: ReplicaOptions, options: &Options) -> Result<Replica<Sum>, Problem> {
    let (founding, members_min) = opening.founding();
    let how = ReplicaOptions { config: GroupConfig { members_min, ..how.config }, ..how };
    let replica = Replica::begin(opening.name, founding, Sum(0), how, options)
        .map_err(|error| opening.problem(error, options))?;
    opening.wait(&replica, options)?;
    Ok(replica)
}

/// Returns what to do if no member of the counter answers.
fn advice(name: &str) -> String {
    format!(
        "to found {} with others, start each with the same list, as with `--form a,b,c --name a`; to found it alone, add \
         --create",
        visible(name)
    )
}

/// Opens the copy of a server with a disk; returns when it serves, however long that takes.
fn on_disk(
    name: &str,
    disk: DiskOptions,
    how: ReplicaOptions,
    options: &Options,
) -> Result<Replica<Sum>, Problem> {
    let replaces = disk.replace;
    let replica = Replica::begin_on_disk(name, disk, Sum(0), how, options)?;
    let foreign = replica.clone();
    watch::watch_for_strangers(name, options.key.is_some(), move || foreign.foreign())?;
    let (begun, mut told) = (Instant::now(), Vec::new());
    while !replica.ready().wait(LOOKS_EVERY).map_err(ReplicaError::from)? {
        let Some((block, waits_for)) = replica.disk() else { continue };
        if begun.elapsed() > SHORT_OPENING && waits_for != told {
            if !waits_for.is_empty() {
                tell(waiting_words(name, &block, &waits_for, replaces, options));
            }
            told = waits_for;
        }
    }
    if replica.has_created() {
        let created = replica.disk().and_then(|(block, _)| block.created_at_ms());
        tell(copies::created_words(name, created));
    }
    Ok(replica)
}

/// Says which servers a server with a disk waits for, and how many of them it needs.
fn waiting_words(name: &str, block: &Block, waits_for: &[u8], replaces: bool, options: &Options) -> String {
    let name = visible(name);
    let needed = match block.created {
        Created::Done(_) => format!("a majority of the {} serves", several(block.servers.into(), "server")),
        _ if replaces => "a majority that serves gives it the state".into(),
        _ => format!("all of them to create {name}"),
    };
    let reach = match options.key {
        None if !options.insecure => "; without --key only servers on this machine are reached",
        _ => "",
    };
    let (server, at) = (block.server, connection::whereabouts(options)());
    format!("server {server} of {name}, {at}, waits for {}: {needed}{reach} …", copies::servers(waits_for))
}

/// Serves until this copy ends.
fn serve(replica: &Replica<Sum>, served: &Served, output: &Output) -> Result<(), Problem> {
    let port = match replica.serve(&served.port) {
        Err(NotServed::Ended) => return Err(Problem::failed(replica.wait())),
        port => port?,
    };
    introduce(replica, &served.name, &port.to_string(), output);
    let noticing = replica.clone();
    threads::start("notices", move || {
        while let Some(notice) = noticing.next_notice() {
            tell(words(&notice));
        }
    })?;
    match replica.wait() {
        ReplicaEnd::Closed => Ok(()),
        end => Err(Problem::failed(end)),
    }
}

/// Announces that the service is ready.
fn introduce(replica: &Replica<Sum>, name: &str, port: &str, output: &Output) {
    let members = replica.status().members.len();
    let sum = replica.look(|sum| sum.0);
    let several = several(members as u64, "member");
    output.announce(
        format_args!("serving {}, port {port}, {several}, at {sum}", visible(name)),
        &json!({"event": "serving", "name": name, "port": port, "members": members, "value": sum.to_string()}),
    );
}

pub(crate) fn words(notice: &Notice) -> String {
    let names = |members: &[unisono::Member]| {
        let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
        visible(&names.join(", ")).into_owned()
    };
    match notice {
        Notice::Degraded { excluded } => format!(
            "more members are lost than the group's resilience covers ({}): calls that were answered may be lost",
            names(excluded)
        ),
        Notice::OtherGroup { address, gives_way: true } => format!(
            "another group with its own sum serves this port, and has a member at {address}; it has ordered more, so this \
             group gives way"
        ),
        Notice::OtherGroup { address, gives_way: false } => format!(
            "another group with its own sum serves this port, and has a member at {address}; it has ordered less, so it \
             gives way"
        ),
        Notice::Halted { missing } => {
            format!("the group is halted: {} of the members that it needs do not answer", names(missing))
        }
        Notice::BelowMinimum { members, needed } => format!(
            "no command is carried out: {} with the state, and {needed} are needed",
            several(*members as u64, "member")
        ),
        Notice::Resumed => "the group goes on".into(),
        Notice::Reentering => "this member is out of the group; it enters again".into(),
        Notice::LooksForCopy { from, is_halted } => {
            let from = from.map_or(String::new(), |from| format!(" from {from}"));
            match is_halted {
                true => format!(
                    "this machine's address changed, and the group{from} is halted: it misses the members that moved; \
                     `unisono status` names them, and `unisono force` lets the group go on without their former lives"
                ),
                false => format!(
                    "this machine's address changed; looking{from} for another copy of the service, and stopping if there \
                     is none for 30 s"
                ),
            }
        }
        other => format!("{other:?}"),
    }
}

/// How the answer to `where` begins.
const RECEIVED: &[u8] = b"received by ";

/// The counter's state.
struct Sum(i128);

impl StateMachine for Sum {
    fn kind(request: &[u8]) -> Kind {
        if request.trim_ascii() == b"get" { Kind::Read } else { Kind::Command }
    }

    fn apply(&mut self, command: &Command<'_>) -> Outcome {
        let Ok(text) = std::str::from_utf8(command.payload) else { return refuse() };
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["add"] => self.0 = self.0.wrapping_add(1),
            ["add", number] => match number.parse::<i64>() {
                Ok(number) => self.0 = self.0.wrapping_add(number.into()),
                Err(_) => return refuse(),
            },
            ["where"] => {
                let by = command
                    .received_by
                    .map_or("a member that is no longer in the group", |member| member.name.as_str());
                return Outcome::Pass([RECEIVED, by.as_bytes()].concat().into());
            }
            _ => return refuse(),
        }
        Outcome::Reply(self.0.to_string().into())
    }

    fn read(&self, _query: &Bytes) -> Outcome {
        Outcome::Reply(self.0.to_string().into())
    }

    fn snapshot(&self) -> Vec<Bytes> {
        vec![Bytes::copy_from_slice(&self.0.to_be_bytes())]
    }

    fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
        let bytes = parts.concat().try_into().map_err(|_| NotRestored("the sum has 16 bytes"))?;
        self.0 = i128::from_be_bytes(bytes);
        Ok(())
    }

    fn take_over(&self, word: &Bytes, me: &Server) -> Bytes {
        match word.starts_with(RECEIVED) {
            true => format!("{}, answered by {}", String::from_utf8_lossy(word), me.name).into(),
            // A sum, which the holder of a handler answers.
            false => word.clone(),
        }
    }
}

fn refuse() -> Outcome {
    Outcome::Refuse("this counter takes `add`, `add NUMBER`, `get` and `where`".into())
}
