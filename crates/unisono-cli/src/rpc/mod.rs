//! `unisono rpc`: serves ports and calls them.

mod call;
mod counter;
mod execute;
mod newport;
mod serve;

pub(crate) use counter::{durability, words as notice_words};

use crate::arguments::Common;
use crate::output::{Output, tell};
use crate::problem::Problem;
use crate::settings::Settings;
use crate::signals;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::str::FromStr;
use unisono::replica::{NotServed, ReplicaEnd, ReplicaError, StopReason};
use unisono::rpc::{Port, PrivatePort, ServiceError, Wishes};

/// Maximum length of a request or reply: 16 MiB.
const MESSAGE_BYTES_MAX: u64 = 16 << 20;

/// Serve a port, or call one
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono rpc serve upper --exec 'tr a-z A-Z'   in one terminal\n  \
                  unisono rpc call upper hello                  in another")]
pub(crate) struct Rpc {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Serve(serve::Serve),
    Call(call::Call),
    Newport(newport::Newport),
    Counter(counter::Counter),
}

impl Rpc {
    /// Returns the common flags.
    pub(crate) fn common(&self) -> &Common {
        match &self.what {
            What::Serve(command) => &command.common,
            What::Call(command) => &command.common,
            What::Newport(command) => &command.common,
            What::Counter(command) => &command.common,
        }
    }
}

pub(crate) fn run(command: Rpc, settings: &Settings, output: &Output) -> Result<(), Problem> {
    match command.what {
        What::Serve(command) => serve::run(command, settings, output),
        What::Call(command) => call::run(&command, settings, output),
        What::Newport(command) => newport::run(&command, output),
        What::Counter(command) => counter::run(&command, settings, output),
    }
}

/// The argument of a server: a private port, or a name.
#[derive(Clone, Debug)]
struct Served {
    port: PrivatePort,
    /// The name, or the public port.
    name: String,
    /// True if it was given as the digits of a private port, which other users of the machine can read.
    is_exposed: bool,
}

/// What a server serves.
#[derive(Args, Debug)]
struct Serving {
    /// Name of the service, or its private port, which every user of this machine can then read: see --port-file
    #[arg(value_name = "PORT", required_unless_present = "port_file")]
    port: Option<Served>,

    /// File with the private port, as `unisono rpc newport --out FILE` writes it
    #[arg(long, value_name = "FILE", conflicts_with = "port")]
    port_file: Option<PathBuf>,
}

impl Serving {
    /// Returns the private port, and a name for it.
    fn served(&self) -> Result<Served, Problem> {
        if let Some(path) = &self.port_file {
            signals::leave_no_core();
            let port = PrivatePort::load(path)?;
            return Ok(Served { name: port.public().to_string(), port, is_exposed: false });
        }
        let served = self.port.clone();
        let served =
            served.ok_or_else(|| Problem::usage("name a service, or the file of its private port"))?;
        if served.is_exposed {
            signals::leave_no_core();
            tell(
                "every user of this machine can read the private port in this command line: keep it in a file (--port-file)",
            );
        }
        Ok(served)
    }
}

impl FromStr for Served {
    type Err = String;
    fn from_str(text: &str) -> Result<Served, String> {
        if let Ok(port) = PrivatePort::parse(text) {
            return Ok(Served { name: port.public().to_string(), port, is_exposed: true });
        }
        Ok(Served { port: PrivatePort::from_name(name(text)?), name: text.into(), is_exposed: false })
    }
}

/// The argument of a client: a public port, or a name.
#[derive(Clone, Debug)]
struct Called {
    port: Port,
    name: String,
}

impl FromStr for Called {
    type Err = String;
    fn from_str(text: &str) -> Result<Called, String> {
        let port = match text.parse() {
            Ok(port) => port,
            Err(_) => Port::from_name(name(text)?),
        };
        Ok(Called { port, name: text.into() })
    }
}

/// Parses the name of a handler.
fn handler(text: &str) -> Result<String, String> {
    match Wishes::is_handler(text) {
        true => Ok(text.into()),
        false => Err("the name of a handler has 1 to 255 bytes and no control characters".into()),
    }
}

fn name(text: &str) -> Result<&str, String> {
    match text.is_empty() || text.contains(char::is_control) {
        true => Err("a port is 32 hexadecimal digits, or a name without control characters".into()),
        false => Ok(text),
    }
}

impl From<ServiceError> for Problem {
    fn from(error: ServiceError) -> Problem {
        match error {
            ServiceError::Open(error) => error.into(),
            error => Problem::failed(error),
        }
    }
}

impl From<ReplicaError> for Problem {
    fn from(error: ReplicaError) -> Problem {
        match &error {
            ReplicaError::Disk(reason) if reason.is_wrong_use() => Problem::usage(error),
            ReplicaError::Ended(ReplicaEnd::Stopped(
                StopReason::OtherServers
                | StopReason::OtherDurability
                | StopReason::NothingLost
                | StopReason::RunsAlready { .. },
            )) => Problem::usage(error),
            _ => Problem::failed(error),
        }
    }
}

impl From<NotServed> for Problem {
    fn from(error: NotServed) -> Problem {
        match error {
            NotServed::Service(error) => error.into(),
            error => Problem::failed(error),
        }
    }
}
