//! `unisono lab`: hosts on one machine, to play with and to measure between.
//!
//! Each host is a network namespace of the kernel's, joined to the others by a bridge that stands in a namespace of
//! its own. So a lab touches nothing of the machine's own network, and no traffic leaves it.

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

/// The lab of a command that names none.
const NAME: &str = "lab";

/// Hosts on this machine, joined by a network that can be slow and lose datagrams (Linux, root)
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

/// Set hosts up; they stay until `lab down`, or until the machine is started anew
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono lab up --hosts 3 --rate 10mbit --loss 1%")]
struct Up {
    /// How many hosts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = arguments::within::<u16>(1..=HOSTS_MAX))]
    hosts: u16,

    /// Let them share one segment of this speed, as hosts on a hub do: 10mbit, 512kbit
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,

    /// Let each host lose this part of what it receives, at random: 1%
    #[arg(long, value_name = "PERCENT")]
    loss: Option<Loss>,

    #[command(flatten)]
    common: CommonOfLab,
}

/// Run a command on one of the hosts
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono lab exec 1 -- unisono listen news --insecure")]
struct Exec {
    /// The host, counted from 1
    #[arg(value_parser = arguments::within::<u16>(1..=HOSTS_MAX))]
    host: u16,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,

    #[command(flatten)]
    common: CommonOfLab,
}

/// Let nothing from one host reach another any more; the other way stays open
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono lab cut 1 3")]
struct Cut {
    /// The host that is not heard
    #[arg(value_parser = arguments::within::<u16>(1..=HOSTS_MAX))]
    from: u16,

    /// The host that does not hear it
    #[arg(value_parser = arguments::within::<u16>(1..=HOSTS_MAX))]
    to: u16,

    #[command(flatten)]
    common: CommonOfLab,
}

/// Undo `lab cut`
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono lab mend 1 3")]
struct Mend {
    /// The host that was not heard
    #[arg(value_parser = arguments::within::<u16>(1..=HOSTS_MAX))]
    from: u16,

    /// The host that did not hear it
    #[arg(value_parser = arguments::within::<u16>(1..=HOSTS_MAX))]
    to: u16,

    #[command(flatten)]
    common: CommonOfLab,
}

/// Say which labs there are, and which hosts
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono lab status --json")]
struct Status {
    #[command(flatten)]
    common: Common,
}

/// Take the hosts away
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono lab down")]
struct Down {
    #[command(flatten)]
    common: CommonOfLab,
}

/// Which lab, and the flags that all commands have.
#[derive(Args, Debug)]
struct CommonOfLab {
    /// The lab, where there are several
    #[arg(long, value_name = "NAME", default_value = NAME)]
    name: String,

    #[command(flatten)]
    common: Common,
}

impl Command {
    /// The flags that all commands have.
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
    output.say(format_args!("type for example: unisono lab exec {exec}1 -- ping {}", Host::address(2)))?;
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
        output.say("no lab is up: unisono lab up --hosts 3")?;
    }
    let labs: Vec<Value> = labs.iter().map(|lab| told("lab", lab)).collect();
    output.object(&json!({"command": "lab status", "labs": labs}))?;
    Ok(())
}

fn down(command: &Down, output: &Output) -> Result<(), Problem> {
    let lab = Lab::find(&command.common.name)?;
    let running = lab.processes()?;
    lab.remove()?;
    output.say(format_args!("{}: gone", lab.name()))?;
    if !running.is_empty() {
        tell(format_args!("still running, without a network: processes {}", running.join(", ")));
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
