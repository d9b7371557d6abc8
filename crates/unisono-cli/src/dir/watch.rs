//! `unisono dir watch`: the changes of a directory as they happen.

use super::session::{At, Session};
use crate::output::{Output, quoted, tell, visible};
use crate::problem::Problem;
use crate::settings::Settings;
use clap::Args;
use serde_json::{Value, json};
use std::str::FromStr;
use unisono_dir::{ClientError, Position, Reason, operation};

/// Print every change of a directory's rows, none twice and none missing, whichever servers fail meanwhile
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  unisono dir watch home\n  unisono dir watch home --json   each line has in `next` what --from takes\n  \
                        unisono dir watch home --from 94a30bb2c81f6ed0:18   go on after change 17"
)]
pub(crate) struct Watch {
    /// Path of the directory [default: that of --cap]
    #[arg(default_value = "")]
    path: String,

    /// Position of the first command of interest [default: the next one]: INSTANCE:NUMBER, as `next` in the JSON
    /// output; `dir status` shows the instance. Or a NUMBER alone, as long as the service has never begun anew
    #[arg(long, value_name = "POSITION")]
    from: Option<Start>,

    #[command(flatten)]
    pub(crate) at: At,
}

/// From where a watch goes on.
#[derive(Clone, Copy, Debug)]
enum Start {
    Position(Position),
    /// The instance that gave this number is not known.
    Number(u64),
}

impl FromStr for Start {
    type Err = String;

    fn from_str(text: &str) -> Result<Start, String> {
        match text.parse() {
            Ok(number) => Ok(Start::Number(number)),
            Err(_) => text.parse().map(Start::Position).map_err(|reason| format!("{reason}, or a number")),
        }
    }
}

pub(crate) fn run(command: &Watch, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let session = Session::begin(&command.at, settings)?;
    let place = session.place(&command.path)?;
    let begun = position(&session, command.from).and_then(|from| session.client.watch(place, from));
    let mut watch = match begun {
        Ok(watch) => watch,
        Err(error) => return Err(end(error, &session, &command.path, output)?),
    };
    loop {
        match watch.next() {
            Ok(change) => {
                let (number, event, name) = (change.number, change.event.word(), change.name.as_str());
                let mut object = at(watch.position());
                (object["seqno"], object["event"], object["name"]) =
                    (number.into(), event.into(), name.into());
                output.say(format_args!("{number}  {event}  {}", visible(name)))?;
                output.object(&object)?;
            }
            Err(error) if passes(&error) => {
                tell(format_args!("{error}; the watch goes on when the service does"));
                wait(&session);
            }
            Err(error) => return Err(end(error, &session, &command.path, output)?),
        }
    }
}

/// Returns the position that the user has named.
fn position(session: &Session, from: Option<Start>) -> Result<Option<Position>, ClientError> {
    match from {
        None => Ok(None),
        Some(Start::Position(position)) => Ok(Some(position)),
        Some(Start::Number(number)) => session.client.position_of(session.at.port, number).map(Some),
    }
}

/// Returns what programs need to go on from a position.
fn at(position: Position) -> Value {
    json!({"seqno": position.number, "instance": format!("{:016x}", position.instance), "next": position.to_string()})
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

/// Says why a watch ends, and from where to go on.
fn end(error: ClientError, session: &Session, path: &str, output: &Output) -> Result<Problem, Problem> {
    match &error {
        ClientError::OtherInstance | ClientError::WhichInstance { .. } => {
            began_anew(&error, session, path, output)
        }
        ClientError::Refused(refusal) => match refusal.reason {
            Reason::NoLongerKept { kept_from } => {
                let now = session.client.now(session.at.port)?;
                let kept = Position { number: kept_from, ..now };
                let mut object = at(kept);
                object["event"] = "kept-from".into();
                output.object(&object)?;
                let again = "list the directory, and watch it from there on with --from";
                Ok(Problem::failed(format!("{error}; {again} {kept}")))
            }
            _ => Ok(error.into()),
        },
        _ => Ok(error.into()),
    }
}

/// Says from where to watch a service that began anew. It may have lost its last commands, and gives their numbers to others.
fn began_anew(
    error: &ClientError,
    session: &Session,
    path: &str,
    output: &Output,
) -> Result<Problem, Problem> {
    let port = session.at.port;
    let now = session.client.accept_instance(port).and_then(|()| session.client.now(port));
    let path = if path.is_empty() { String::new() } else { format!(" {}", quoted(path)) };
    let mut object = json!({"event": "began-anew"});
    let from = match now {
        Ok(now) => {
            object = at(now);
            object["event"] = "began-anew".into();
            format!(" --from {now}")
        }
        Err(_) => String::new(),
    };
    output.object(&object)?;
    let why = match error {
        ClientError::WhichInstance { number } => format!(
            "the service has begun anew since it was created, and number {number} does not say whether it is of before"
        ),
        _ => "the service began anew, and what was changed last may be missing".to_owned(),
    };
    Ok(Problem::failed(format!("{why}: list the directory, then type `unisono dir watch{path}{from}`")))
}
