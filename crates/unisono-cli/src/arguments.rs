//! The tree of commands, and the flags that all commands share.

use crate::force;
use crate::log;
use crate::look;
use crate::output;
use crate::problem::Problem;
use crate::units;
use clap::builder::{BoolishValueParser, Resettable};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use unisono::{Floor, FloorError, Migration, Order, Quality, QualityError};

/// The name of the program.
pub(crate) const PROGRAM: &str = "unisono";

/// Totally ordered group communication.
///
/// Every member of a group sees every message, join, leave and crash in the same order.
#[derive(Debug, Parser)]
#[command(
    name = PROGRAM,
    version,
    max_term_width = 110,
    after_help = "First steps:\n  unisono demo                          five processes, one killed, one order\n  \
                  unisono listen news                   in one terminal\n  \
                  unisono send news 'hello, everybody'  in another"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(crate::demo::Demo),
    Listen(crate::listen::Listen),
    Send(crate::send::Send),
    Chat(crate::chat::Chat),
    Members(look::Members),
    Status(look::Status),
    Why(look::Why),
    Stats(look::Stats),
    Links(look::Links),
    Order(crate::order::Order),
    Lock(crate::lock::Lock),
    Force(force::Force),
    Rpc(crate::rpc::Rpc),
    Dir(Box<crate::dir::Dir>),
    File(crate::file::File),
    Doctor(crate::doctor::Doctor),
    Bench(crate::bench::Bench),
    Lab(crate::lab::Command),
    Sim(crate::sim::Sim),
    Papers(crate::papers::Papers),
    Explain(crate::explain::Explain),
    Keygen(crate::keygen::Keygen),
    Completions(crate::completions::Completions),
    Man(crate::man::Man),
    #[command(hide = true)]
    Worker(crate::worker::Worker),
    #[command(hide = true)]
    LockGuard(crate::lock::guard::Guard),
}

impl Command {
    /// Returns the flags that all public commands have.
    pub(crate) fn common(&self) -> Common {
        match self {
            Command::Listen(command) => &command.common,
            Command::Send(command) => &command.common,
            Command::Chat(command) => &command.common,
            Command::Members(command) => &command.look.common,
            Command::Status(command) => &command.look.common,
            Command::Why(command) => &command.look.common,
            Command::Stats(command) => &command.look.common,
            Command::Links(command) => &command.look.common,
            Command::Order(command) => &command.common,
            Command::Lock(command) => &command.common,
            Command::Force(command) => &command.common,
            Command::Demo(command) => &command.common,
            Command::Rpc(command) => command.common(),
            Command::Dir(command) => command.common(),
            Command::File(command) => command.common(),
            Command::Doctor(command) => &command.common,
            Command::Bench(command) => command.common(),
            Command::Lab(command) => command.common(),
            Command::Explain(command) => &command.common,
            Command::Keygen(command) => &command.common,
            Command::Completions(command) => &command.common,
            Command::Man(command) => &command.common,
            Command::Sim(command) => return command.common(),
            Command::Papers(command) => return command.common(),
            Command::LockGuard(_) => return Common::default(),
            Command::Worker(command) => return Common { log: command.log, ..Common::default() },
        }
        .clone()
    }
}

/// Flags of every command. A flag overrides the environment, which overrides the file.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Common {
    /// File with the group's key, made by `unisono keygen`. Without a key all traffic stays on this machine
    #[arg(long, value_name = "FILE", env = "UNISONO_KEY")]
    pub(crate) key: Option<PathBuf>,

    /// Members to ask where multicast does not reach. A DNS name stands for all its addresses. The default port is 7195
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', env = "UNISONO_SEEDS")]
    pub(crate) seeds: Vec<String>,

    /// How long to wait while none of the seeds has an address, such as 30s or 500ms, or a number of milliseconds
    /// [default: 30s]
    #[arg(long, value_name = "DURATION", env = "UNISONO_SEEDS_TIMEOUT", value_parser = units::milliseconds)]
    pub(crate) seeds_timeout: Option<Duration>,

    /// Address, or address and port, to receive on. It selects the network interface
    #[arg(long, value_name = "ADDR", env = "UNISONO_BIND")]
    pub(crate) bind: Option<String>,

    /// How datagrams for the whole group are sent
    #[arg(long, value_enum, env = "UNISONO_TRANSPORT")]
    pub(crate) transport: Option<Transport>,

    /// Allow addresses beyond this machine without a key: anyone on the network can read and forge messages
    #[arg(long, env = "UNISONO_INSECURE", value_parser = BoolishValueParser::new())]
    pub(crate) insecure: bool,

    /// How long a silent member may leave queries unanswered before it is suspected, such as 150ms or 2s, or a number
    /// of milliseconds. Raise it on machines that keep processes waiting. It holds for servers of calls too, but at
    /// least 2s [default: 100ms]
    #[arg(long, value_name = "TIME", env = "UNISONO_PATIENCE", value_parser = units::milliseconds)]
    pub(crate) patience: Option<Duration>,

    /// How long to look for a group before founding it, or for the servers of a port, such as 500ms or 2s, or a number
    /// of milliseconds [default: 300ms; 2s for a port]
    #[arg(long, value_name = "TIME", env = "UNISONO_LOCATE", value_parser = units::milliseconds)]
    pub(crate) locate: Option<Duration>,

    /// Settings file in TOML with the names of these flags, such as key = "group.key" and seeds = ["192.0.2.7"]
    #[arg(long, value_name = "FILE", env = "UNISONO_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    /// Print one JSON object per line
    #[arg(long, env = "UNISONO_JSON", value_parser = BoolishValueParser::new())]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) log: log::LogOptions,
}

/// How datagrams for the whole group are sent.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Transport {
    /// Multicast where it reaches the members and is cheaper, otherwise a datagram for each member.
    #[default]
    Auto,
    /// Multicast to the members that receive it.
    Multicast,
    /// A datagram for each member.
    Unicast,
}

/// Which member assigns the sequence numbers.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderChoice {
    /// One member, until it leaves or fails
    #[default]
    Sequencer,
    /// One member; a member that sends nearly everything takes over its role
    Migrating,
    /// Each member in turn: the token goes round, and no member carries the group's load alone
    Token,
}

impl OrderChoice {
    /// Returns its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            OrderChoice::Sequencer => "sequencer",
            OrderChoice::Migrating => "migrating",
            OrderChoice::Token => "token",
        }
    }

    /// Returns the order that a founder chooses by it.
    pub(crate) fn order(self) -> Order {
        match self {
            OrderChoice::Sequencer => Order::Sequencer(Migration::OnRequest),
            OrderChoice::Migrating => Order::Sequencer(Migration::ByLoad),
            OrderChoice::Token => Order::Token,
        }
    }
}

/// Returns the name on the command line of a group's order. A sequencer whose role never moves has that of one whose role
/// moves on request.
pub(crate) fn order_name(order: Order) -> &'static str {
    match order {
        Order::Sequencer(Migration::ByLoad) => OrderChoice::Migrating.name(),
        Order::Sequencer(_) => OrderChoice::Sequencer.name(),
        Order::Token => OrderChoice::Token.name(),
        _ => "other",
    }
}

/// Reads the command line. Prints help and ends the process if it asks for help or is invalid.
pub(crate) fn read() -> Result<Arguments, Problem> {
    let matches = refuse_negative_values(Arguments::command()).try_get_matches();
    let read = matches.and_then(|matches| Arguments::from_arg_matches(&matches));
    read.or_else(|stop| match stop.use_stderr() {
        true => {
            let said = stop.render().to_string();
            let shown = output::without_checks(&said);
            if shown == said {
                stop.exit();
            }
            let _ = write!(std::io::stderr(), "{shown}");
            std::process::exit(stop.exit_code())
        }
        false => {
            stop.print().and_then(|()| std::io::stdout().flush()).map_err(output::unwritten)?;
            std::process::exit(0)
        }
    })
}

/// Returns the tree of public commands, without the hidden command of worker processes.
pub(crate) fn public_tree() -> clap::Command {
    let whole = Arguments::command();
    let public = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let tree = clap::Command::new(PROGRAM).version(env!("CARGO_PKG_VERSION")).subcommand_required(true);
    tree.about(Resettable::from(whole.get_about().cloned()))
        .long_about(Resettable::from(whole.get_long_about().cloned()))
        .after_help(Resettable::from(whole.get_after_help().cloned()))
        .subcommands(public)
}

/// Lets options take values that begin with a minus sign, so that the option's own parser refuses them and says what
/// the option takes.
fn refuse_negative_values(command: clap::Command) -> clap::Command {
    command
        .mut_args(|argument| {
            let is_option = !argument.is_positional() && argument.get_action().takes_values();
            if is_option { argument.allow_negative_numbers(true) } else { argument }
        })
        .mut_subcommands(refuse_negative_values)
}

/// Parses a resilience.
pub(crate) fn resilience(text: &str) -> Result<u8, String> {
    text.parse().map_err(|_| "a number of members, from 0 to 255".into())
}

/// Parses the quality of a message.
pub(crate) fn quality(text: &str) -> Result<Quality, String> {
    text.parse().map_err(|error: QualityError| error.to_string())
}

/// Parses the smallest view that a member lets a reset go on with.
pub(crate) fn floor(text: &str) -> Result<Floor, String> {
    text.parse().map_err(|error: FloorError| error.to_string())
}

/// What a command asks of the group that it joins.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Wishes {
    /// The smallest group that may go on after a crash, while this member is in it: a number of members (all of them while
    /// there are fewer), majority, all, or none for no more than the group's quorum. The largest that a member asks for
    /// counts [default: none]
    #[arg(long, value_name = "N|majority|all|none", default_value_t, hide_default_value = true, value_parser = floor)]
    pub(crate) floor: Floor,

    #[command(flatten)]
    pub(crate) scope: Scope,
}

/// How far a command asks multicasts to go.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Scope {
    /// How far multicasts of the group go, while this member is in it: they pass fewer than N routers. The largest number
    /// that a member asks for counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within(1..=u8::MAX))]
    pub(crate) hops: u8,
}

/// Parses the quality of messages that are timed or counted by their seqnos.
pub(crate) fn ordered_quality(text: &str) -> Result<Quality, String> {
    match quality(text)? {
        quality if quality.has_seqno() => Ok(quality),
        quality => Err(format!("a quality with seqnos, by which messages are counted: {quality} has none")),
    }
}

/// Parses a whole number.
pub(crate) fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a whole number, 0 or more".into())
}

/// Returns a parser of whole numbers in this range.
pub(crate) fn within<N>(
    range: RangeInclusive<N>,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static
where
    N: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("a whole number, from {} to {}", range.start(), range.end()))
    }
}
