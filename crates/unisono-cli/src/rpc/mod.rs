//! `unisono rpc`: serves ports and calls them.

mod call;
mod counter;
mod execute;
mod newport;
mod serve;

use crate::arguments::Common;
use crate::output::Output;
use crate::problem::Problem;
use crate::settings::Settings;
use clap::{Args, Subcommand};
use std::str::FromStr;
use unisono::replica::{NotServed, ReplicaEnd, ReplicaError, StopReason};
use unisono::rpc::{Port, PrivatePort, ServiceError};

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
        What::Newport(_) => newport::run(output),
        What::Counter(command) => counter::run(&command, settings, output),
    }
}

/// The argument of a server: a private port, or a name.
#[derive(Clone, Debug)]
struct Served {
    port: PrivatePort,
    /// The name, or the public port.
    name: String,
}

impl FromStr for Served {
    type Err = String;
    fn from_str(text: &str) -> Result<Served, String> {
        if let Ok(port) = PrivatePort::parse(text) {
            return Ok(Served { name: port.public().to_string(), port });
        }
        Ok(Served { port: PrivatePort::from_name(name(text)?), name: text.into() })
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
                StopReason::OtherServers | StopReason::OtherDurability | StopReason::RunsAlready { .. },
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
