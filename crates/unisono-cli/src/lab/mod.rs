//! `unisono lab`: virtual hosts on one machine, for experiments and measurements.
//!
//! Each host is a network namespace of the kernel. A bridge in a namespace of its own joins the hosts. So a lab changes
//! nothing in the machine's own network, and no traffic leaves the lab.

pub(crate) mod network;
pub(crate) mod quality;
pub(crate) mod temporary;
mod tools;

use crate::arguments::{self, Common};
use crate::output::{Output, Tone, tell};
use crate::problem::Problem;
use clap::{Args, Subcommand};
use network::{HOSTS_MAX, Host, Lab, Plan};
use quality::{Loss, Rate};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;

/// Default name of a lab.
const NAME: &str = "lab";

/// Set up hosts on this machine, joined by a network that can be slow and lose datagrams (Linux, root)
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    unisono lab up --hosts 3 --rate 10mbit --loss 1%\n  \
    unisono lab exec 1 -- unisono listen news --insecure\n  \
    unisono lab exec 2 -- unisono send news --insecure 'hello, host 1'\n  \
    unisono lab down")]
pub(crate) struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Up(Up),
    Exec(Exec),
    Cut(Cut),
    Mend(Mend),
    Status(Status),
    Down(Down),
}

/// Set up hosts. They stay until `lab down` or until the machine restarts
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono lab up --hosts 3 --rate 10mbit --loss 1%")]
struct Up {
    /// Number of hosts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = arguments::within::<u16>(1..=HOSTS_MAX))]
    hosts: u16,

    /// Let the hosts share one segment of this speed, as on a hub: 10mbit, 512kbit
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,

    /// Let each host lose this part of the datagrams that it receives, at random: 1%
    #[arg(long, value_name = "PERCENT")]
    loss: Option<Loss>,

    #[command(flatten)]
    common: CommonOfLab,
}

/// Run a command on a host
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono lab exec 1 -- unisono listen news --insecure")]
struct Exec {
    /// Number of the host, from 1
    #[arg(value_parser = arguments::within::<u16>(1..=HOSTS_MAX))]
    host: u16,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,

    #[command(flatten)]
    common: CommonOfLab,
}

/// Drop all datagrams from one host to another; the other direction stays open
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono lab cut 1 3")]
struct Cut {
    /// The host whose datagrams are dropped
    #[arg(value_parser = arguments::within::<u16>(1..=HOSTS_MAX))]
    from: u16,

    /// The host that no longer receives them
    #[arg(value_parser = arguments::within::<u16>(1..=HOSTS_MAX))]
    to: u16,

    #[command(flatten)]
    common: CommonOfLab,
}

/// Undo `lab cut`
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono lab mend 1 3")]
struct Mend {
    /// The host whose datagrams were dropped
    #[arg(value_parser = arguments::within::<u16>(1..=HOSTS_MAX))]
    from: u16,

    /// The host that did not receive them
    #[arg(value_parser = arguments::within::<u16>(1..=HOSTS_MAX))]
    to: u16,

    #[command(flatten)]
    common: CommonOfLab,
}

/// List the labs and their hosts
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono lab status --json")]
struct Status {
    #[command(flatten)]
    common: Common,
}

/// Remove the hosts
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono lab down")]
struct Down {
    #[command(flatten)]
    common: CommonOfLab,
}

/// The name of the lab, and the common flags.
#[derive(Args, Debug)]
struct CommonOfLab {
    /// Name of the lab, if there are several
    #[arg(long, value_name = "NAME", default_value = NAME)]
    name: String,

    #[command(flatten)]
    common: Common,
}

impl Command {
    /// Returns the common flags.
    pub(crate) fn common(&self) -> &Common {
        match &self.what {
            What::Up(command) => &command.common.common,
            What::Exec(command) => &command.common.common,
            What::Cut(command) => &command.common.common,
            What::Mend(command) => &command.common.common,
            What::Status(command) => &command.common,
            What::Down(command) => &command.common.common,
        }
    }
}

pub(crate) fn run(command: Command, output: &Output) -> Result<(), Problem> {
    match command.what {
        What::Up(command) => up(&command, output),
        What::Exec(command) => exec(command),
        What::Cut(command) => cut(&command, output),
        What::Mend(command) => mend(&command, output),
        What::Status(_) => status(output),
        What::Down(command) => down(&command, output),
    }
}

fn up(command: &Up, output: &Output) -> Result<(), Problem> {
    let plan = Plan { hosts: command.hosts, rate: command.rate, loss: command.loss, silent: false };
    let lab = Lab::named(&command.common.name, &plan)?;
    for host in lab.hosts() {
        output.say(describe(&host))?;
    }
    let exec = match lab.name() {
        NAME => String::new(),
        name => format!("--name {name} "),
    };
    output.say(format_args!("type for example `unisono lab exec {exec}1 -- ping {}`", Host::address(2)))?;
    output.object(&told("lab up", &lab))?;
    Ok(())
}

fn exec(command: Exec) -> Result<(), Problem> {
    let lab = Lab::find(&command.common.name)?;
    lab.host(command.host)?.enter()?;
    let mut words = command.command.into_iter();
    let program = words.next().unwrap_or_default();
    let error = std::process::Command::new(&program).args(words).exec();
    Err(Problem::failed(format!("cannot run {}: {error}", program.to_string_lossy())))
}

fn cut(command: &Cut, output: &Output) -> Result<(), Problem> {
    let lab = Lab::find(&command.common.name)?;
    lab.cut(command.from, command.to)?;
    output.say(format_args!("nothing from host {} reaches host {}", command.from, command.to))?;
    output
        .object(&json!({"command": "lab cut", "lab": lab.name(), "from": command.from, "to": command.to}))?;
    Ok(())
}

fn mend(command: &Mend, output: &Output) -> Result<(), Problem> {
    let lab = Lab::find(&command.common.name)?;
    lab.mend(command.from, command.to)?;
    output.say(format_args!("host {} reaches host {} again", command.from, command.to))?;
    output
        .object(&json!({"command": "lab mend", "lab": lab.name(), "from": command.from, "to": command.to}))?;
    Ok(())
}

fn status(output: &Output) -> Result<(), Problem> {
    let labs = Lab::all()?;
    for lab in &labs {
        output.say(output.tone(Tone::Strong, format_args!("{}: {}", lab.name(), lab.plan().words())))?;
        for host in lab.hosts() {
            output.say(describe(&host))?;
        }
    }
    if labs.is_empty() {
        output.say("no lab is up: type `unisono lab up --hosts 3`")?;
    }
    let labs: Vec<Value> = labs.iter().map(|lab| told("lab", lab)).collect();
    output.object(&json!({"command": "lab status", "labs": labs}))?;
    Ok(())
}

fn down(command: &Down, output: &Output) -> Result<(), Problem> {
    let lab = Lab::find(&command.common.name)?;
    let running = lab.processes()?;
    lab.remove()?;
    output.say(format_args!("{}: removed", lab.name()))?;
    if !running.is_empty() {
        tell(format_args!("these processes still run, without a network: {}", running.join(", ")));
    }
    output.object(&json!({"command": "lab down", "lab": lab.name(), "still_running": running}))?;
    Ok(())
}

fn describe(host: &Host) -> String {
    format!("  host {}  {}  (namespace {})", host.number, Host::address(host.number), host.namespace)
}

fn told(command: &str, lab: &Lab) -> Value {
    let host = |host: Host| json!({"host": host.number, "address": Host::address(host.number), "namespace": host.namespace});
    json!({
        "command": command,
        "lab": lab.name(),
        "hosts": lab.hosts().map(host).collect::<Vec<_>>(),
        "rate": lab.plan().rate.map(|rate| rate.to_string()),
        "loss": lab.plan().loss.map(|loss| loss.to_string()),
        "temporary": lab.is_temporary(),
    })
}
