//! What the commands that ask a directory have in common: the directory of `--cap`, the client, their arguments and errors.

use crate::arguments::Common;
use crate::connection;
use crate::output::Output;
use crate::problem::Problem;
use crate::progress;
use crate::settings::Settings;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use unisono_dir::{
    Capability, CapabilityFileError, Client, ClientError, Done, Masks, ObjectNumber, Operation, Options,
    Path, Place, Reason, Rights, SET_BYTES_MAX, SET_NAMES_MAX, SET_ROWS_MAX, SaveError, random_check,
};

/// A service that answers within this time, 1 s, prints no progress.
const SHORT_ANSWER: Duration = Duration::from_secs(1);

/// Which directory a command begins at.
#[derive(Args, Debug)]
pub(crate) struct At {
    /// File with the capability of the directory where paths begin, such as the root.cap that each server has in its folder,
    /// or - for a line of standard input
    #[arg(long, value_name = "FILE", env = "UNISONO_CAP")]
    pub(crate) cap: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) common: Common,
}

impl At {
    /// Returns the capability of the directory where paths begin.
    pub(crate) fn capability(&self) -> Result<Capability, Problem> {
        let file = self.cap.as_ref().ok_or_else(|| {
            Problem::usage(
                "name the directory where paths begin: --cap FILE, or UNISONO_CAP=FILE, with the root.cap in a server's \
                 folder or a copy of it",
            )
        })?;
        super::capability::of_cap(file)
    }
}

/// How a read is answered.
#[derive(Args, Debug)]
pub(crate) struct Reads {
    /// Whether the answer contains everything that was answered anywhere before, or may be a little behind
    #[arg(long, value_enum, default_value_t)]
    pub(crate) consistency: Consistency,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Consistency {
    /// Everything that was answered anywhere before is in it
    #[default]
    Linearizable,
    /// The state of the server that gets the question, which may be behind: cheaper
    Local,
}

impl Reads {
    pub(crate) fn is_local(&self) -> bool {
        self.consistency == Consistency::Local
    }

    /// Returns the read as it was asked for.
    pub(crate) fn of<T>(&self, operation: Operation<T>) -> Operation<T> {
        if self.is_local() { operation.local() } else { operation }
    }
}

/// A client, and the directory where paths begin.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) at: Capability,
    options: Options,
}

impl Session {
    /// Returns the session of a command.
    pub(crate) fn begin(at: &At, settings: &Settings) -> Result<Session, Problem> {
        Session::of(at.capability()?, settings)
    }

    /// Returns a session at a directory.
    pub(crate) fn of(at: Capability, settings: &Settings) -> Result<Session, Problem> {
        let options = connection::options(settings, None)?;
        Ok(Session { at, client: Client::new(&options)?, options })
    }

    /// Returns the place at a path from the directory of the session.
    pub(crate) fn place(&self, path: &str) -> Result<Place, Problem> {
        Ok(Place { capability: self.at, path: parse_path(path)? })
    }

    /// Asks the service, and says so if that takes long.
    pub(crate) fn ask<T>(&self, ask: impl FnOnce(&Client) -> T) -> T {
        let at = connection::whereabouts(&self.options);
        let _waiting =
            progress::tell_if_long(SHORT_ANSWER, move || format!("waiting for the service … {}", at()));
        ask(&self.client)
    }

    /// Does an operation, and says so if that takes long.
    pub(crate) fn run<T>(&self, operation: &Operation<T>) -> Result<Done<T>, ClientError> {
        self.ask(|client| client.run(operation))
    }

    /// Does a command, and prints its number.
    pub(crate) fn change<T>(
        &self,
        what: &str,
        operation: &Operation<T>,
        output: &Output,
    ) -> Result<Done<T>, Problem> {
        let done = self.run(operation)?;
        report(what, done.number, output)?;
        Ok(done)
    }
}

/// Prints the number of a command that was done.
pub(crate) fn report(what: &str, number: u64, output: &Output) -> Result<(), Problem> {
    output.say(format_args!("done, command {number}"))?;
    output.object(&json!({"command": what, "seqno": number}))?;
    Ok(())
}

/// Returns a client of directories.
pub(crate) fn client(settings: &Settings) -> Result<Client, Problem> {
    let options = connection::options(settings, None)?;
    Ok(Client::new(&options)?)
}

/// Returns a path.
pub(crate) fn parse_path(text: &str) -> Result<Path, Problem> {
    text.parse().map_err(Problem::usage)
}

/// Says what one lookup or replacement takes.
pub(crate) fn set_too_large(what: &str) -> Problem {
    Problem::usage(format!(
        "one {what} has 1 to {SET_ROWS_MAX} rows, {SET_NAMES_MAX} names in all paths and {} KiB: divide it",
        SET_BYTES_MAX >> 10
    ))
}

/// Returns masks, such as `ff,02,04`. Errors call them `argument`.
pub(crate) fn parse_masks(argument: &str, text: &str) -> Result<Masks, Problem> {
    let masks: Result<Vec<Rights>, _> = text.split(',').map(str::parse).collect();
    let masks = masks
        .map_err(|error| Problem::usage(format!("{argument}: {error}, one for each column: ff,02,04")))?;
    Masks::new(&masks).ok_or_else(|| Problem::usage("a row has 1 to 4 masks, one for each column: ff,02,04"))
}

/// Returns a fresh secret for an object.
pub(crate) fn secret() -> Result<unisono_dir::Check, Problem> {
    Ok(random_check()?)
}

/// Returns the digits of an object's number.
pub(crate) fn object_digits(object: ObjectNumber) -> String {
    format!("{:016x}", object.0)
}

/// Returns the word for the status of a row.
pub(crate) fn status_word(reason: &Reason) -> &'static str {
    match reason {
        Reason::Denied => "denied",
        _ => "not-found",
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Problem {
        match error {
            ClientError::NoMajority { .. } | ClientError::NoServer { .. } => Problem::not_primary(error),
            error => Problem::failed(error),
        }
    }
}

impl From<SaveError> for Problem {
    fn from(error: SaveError) -> Problem {
        match error {
            SaveError::Client(error) => error.into(),
            error => Problem::failed(error),
        }
    }
}

impl From<CapabilityFileError> for Problem {
    fn from(error: CapabilityFileError) -> Problem {
        Problem::usage(error)
    }
}
