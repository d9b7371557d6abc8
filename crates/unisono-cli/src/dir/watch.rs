//! `unisono dir watch`: the changes of a directory as they happen.

use super::session::{At, Session};
use crate::arguments;
use crate::output::{Output, tell, visible};
use crate::problem::Problem;
use crate::settings::Settings;
use clap::Args;
use serde_json::json;
use unisono_dir::{ClientError, Reason};

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
    let mut is_waiting = false;
    loop {
        match watch.next() {
            Ok(change) => {
                is_waiting = false;
                let (number, event, name) = (change.number, change.event.word(), change.name.as_str());
                output.say(format_args!("{number}  {event}  {}", visible(name)))?;
                output.object(&json!({"seqno": number, "event": event, "name": name}))?;
            }
            Err(
                error @ (ClientError::NoMajority { .. }
                | ClientError::NoServer { .. }
                | ClientError::Late { .. }),
            ) => {
                if !std::mem::replace(&mut is_waiting, true) {
                    tell(format_args!("{error}; the watch goes on when the service does"));
                }
            }
            Err(error) => return refused(error, output),
        }
    }
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
