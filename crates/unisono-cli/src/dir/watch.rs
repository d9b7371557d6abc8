//! `unisono dir watch`: the changes of a directory as they happen.

use super::session::{At, Session};
use crate::arguments;
use crate::output::{Output, quoted, tell, visible};
use crate::problem::Problem;
use crate::settings::Settings;
use clap::Args;
use serde_json::json;
use unisono_dir::{ClientError, Reason, operation};

/// Print every change of a directory's rows, none twice and none missing, whichever servers fail meanwhile
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  unisono dir watch home\n  unisono dir watch home --from 18   go on after change 17"
)]
pub(crate) struct Watch {
    /// Path of the directory [default: that of --cap]
    #[arg(default_value = "")]
    path: String,

    /// Number of the first command of interest [default: the next one]
    #[arg(long, value_name = "SEQNO", value_parser = arguments::number)]
    from: Option<u64>,

    #[command(flatten)]
    pub(crate) at: At,
}

pub(crate) fn run(command: &Watch, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let session = Session::begin(&command.at, settings)?;
    let place = session.place(&command.path)?;
    let mut watch = session.client.watch(place, command.from).or_else(|error| refused(error, output))?;
    loop {
        match watch.next() {
            Ok(change) => {
                let (number, event, name) = (change.number, change.event.word(), change.name.as_str());
                output.say(format_args!("{number}  {event}  {}", visible(name)))?;
                output.object(&json!({"seqno": number, "event": event, "name": name}))?;
            }
            Err(error) if passes(&error) => {
                tell(format_args!("{error}; the watch goes on when the service does"));
                wait(&session);
            }
            Err(ClientError::OtherInstance) => {
                return Err(began_anew(&session, &command.path, watch.from(), output));
            }
            Err(error) => return refused(error, output),
        }
    }
}

/// True if the service may answer later.
fn passes(error: &ClientError) -> bool {
    matches!(error, ClientError::NoMajority { .. } | ClientError::NoServer { .. } | ClientError::Late { .. })
}

/// Waits until the service answers, and says so. Any other error comes again from the watch.
fn wait(session: &Session) {
    loop {
        match session.client.run(&operation::info(session.at.port)) {
            Ok(_) => return tell("the watch goes on"),
            Err(error) if passes(&error) => {}
            Err(_) => return,
        }
    }
}

/// Says from where to watch a service that began anew. `from` is where this watch would have gone on.
fn began_anew(session: &Session, path: &str, from: u64, output: &Output) -> Problem {
    // The service may have lost its last commands, and gives their numbers to others.
    let info = session.client.accept_instance(session.at.port);
    let info = info.and_then(|()| session.client.run(&operation::info(session.at.port)));
    let from = info.map_or(from, |info| from.min(info.number + 1));
    if let Err(error) = output.object(&json!({"event": "began-anew", "seqno": from})) {
        return error.into();
    }
    let path = if path.is_empty() { String::new() } else { format!(" {}", quoted(path)) };
    Problem::failed(format!(
        "the service began anew, and what was changed last may be missing: list the directory, then type `unisono dir \
         watch{path} --from {from}`"
    ))
}

/// Says from where changes are kept, if that is why the watch ends.
fn refused<T>(error: ClientError, output: &Output) -> Result<T, Problem> {
    if let ClientError::Refused(refusal) = &error
        && let Reason::NoLongerKept { kept_from } = refusal.reason
    {
        output.object(&json!({"event": "kept-from", "seqno": kept_from}))?;
        let again = "list the directory, and watch it from there on with --from";
        return Err(Problem::failed(format!("{error}; {again} {kept_from}")));
    }
    Err(error.into())
}
