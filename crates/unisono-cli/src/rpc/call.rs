//! `unisono rpc call`: makes one call and prints the reply.

use super::{Called, MESSAGE_BYTES_MAX};
use crate::arguments::{self, Common};
use crate::connection;
use crate::copies;
use crate::output::{Output, hex, quoted, rounded, visible};
use crate::problem::Problem;
use crate::progress;
use crate::settings::Settings;
use crate::threads;
use crate::units;
use clap::Args;
use serde_json::json;
use std::io::{self, IsTerminal, Read, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use unisono::rpc::{CallFailure, Client, Wishes};
use unisono::{Bytes, Quality};

/// A call that takes less than this, 1 s, prints no progress.
const SHORT_CALL: Duration = Duration::from_secs(1);
/// Share of the deadline after which a call ends if its service says that it waits for servers.
const WAITS_BLINDLY: f64 = 0.8;

/// The refusal of a replicated service whose members do not hold the handler that a call names.
const NOT_HELD: &[u8] = b"no member holds this handler; nothing happened";

/// Call a service and print the reply
///
/// The exit status is 1 if the call failed, and 3 if the service waits for servers. The message says why, and whether the
/// call may have been executed: not found, failed, busy (it was not), refused (by the service), unknown (perhaps, at most
/// once).
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  unisono rpc call upper hello\n  unisono rpc call upper < letter.txt")]
pub(crate) struct Call {
    /// Name of the service, or its public port
    port: Called,

    /// The request [default: standard input]
    text: Option<String>,

    /// How long to wait for the reply, such as 500ms or 2m, or a number of seconds
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::seconds)]
    deadline: Duration,

    /// Have the member answer that holds this handler of a replicated service (see `unisono rpc counter --handle`). Other
    /// services, such as those of `unisono rpc serve`, take no notice of it
    #[arg(long, value_name = "HANDLER", value_parser = super::handler)]
    handler: Option<String>,

    /// How many members of a replicated service hold the command before it is answered, if that is more than the service
    /// asks for: ordered, resilient=K for K more besides one, majority or total. Other services, such as those of
    /// `unisono rpc serve`, take no notice of it
    #[arg(long, value_name = "Q", default_value_t, value_parser = quality)]
    quality: Quality,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// Parses the quality of a call.
fn quality(text: &str) -> Result<Quality, String> {
    match text {
        "unreliable" | "unordered" | "source" => Err(format!(
            "a call cannot be {text}: the copies of a replicated state stay the same only because all of them apply its \
             commands in the group's order; a call is ordered, resilient=K, majority or total"
        )),
        text => arguments::quality(text),
    }
}

pub(crate) fn run(command: &Call, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let request = match &command.text {
        Some(text) => Bytes::from(text.clone()),
        None => read_request()?,
    };
    let options = connection::options(settings, None)?;
    let client = Client::new(&options)?;
    let (deadline, at) = (command.deadline, connection::whereabouts(&options));
    let words = move || format!("waiting for the reply, at most {deadline:?} … {}", at());
    let calling = progress::tell_if_long(SHORT_CALL, words);
    let begin = Instant::now();
    let answer = answer(&client, command, request)?;
    drop(calling);
    let took_us = rounded(begin.elapsed().as_secs_f64() * 1e6);
    match answer {
        Ok(reply) => {
            let mut object =
                json!({"command": "call", "outcome": "replied", "took_us": took_us, "bytes": reply.len()});
            tell(&mut object, &reply);
            output.object(&object)?;
            if !output.json() {
                print(&reply)?;
            }
            Ok(())
        }
        Err(failure) => {
            let mut object = json!({"command": "call", "outcome": outcome(&failure), "took_us": took_us});
            if let CallFailure::Refused(reason) = &failure {
                tell(&mut object, reason);
            }
            let missing = match failure {
                CallFailure::Refused(_) => None,
                _ => copies::missing(&command.port.name, &client),
            };
            if let Some(missing) = &missing {
                object["missing"] = missing.clone().into();
            }
            output.object(&object)?;
            Err(match missing {
                Some(missing) => {
                    let waits = copies::waits(&command.port.name, &missing);
                    Problem::not_primary(match failure {
                        CallFailure::NotFound => format!("{waits}; the call did not happen"),
                        failure => format!("{failure}; {waits}"),
                    })
                }
                None => match (&failure, &command.handler) {
                    (CallFailure::Refused(reason), Some(handler)) if **reason == *NOT_HELD => {
                        Problem::failed(no_holder(&command.port.name, handler, settings))
                    }
                    _ => Problem::failed(&failure),
                },
            })
        }
    }
}

/// Says that no member holds a handler, and what to do.
fn no_holder(service: &str, handler: &str, settings: &Settings) -> String {
    format!(
        "refused: no member of {} holds the handler {}, and nothing happened; a member that claims it is started with `{} \
         --handle {}` and the options of the others",
        visible(service),
        visible(handler),
        connection::typed("rpc counter", service, settings),
        quoted(handler)
    )
}

/// Waits for the reply: until the deadline, or nearly, if the service says that it waits for servers.
fn answer(client: &Client, command: &Call, request: Bytes) -> Result<Result<Bytes, CallFailure>, Problem> {
    let wishes = Wishes { handler: command.handler.as_deref().map(Into::into), quality: command.quality };
    let call = match client.start_with(command.port.port, request, wishes, command.deadline) {
        Ok(call) => call,
        Err(not_sent) => return Ok(Err(not_sent.into())),
    };
    let (sender, answer) = mpsc::channel();
    // If this process ends first, the reply is of no use.
    threads::start("call", move || drop(sender.send(call.wait())))?;
    Ok(match answer.recv_timeout(command.deadline.mul_f64(WAITS_BLINDLY)) {
        Err(RecvTimeoutError::Timeout) if copies::missing(&command.port.name, client).is_some() => {
            Err(CallFailure::Unknown)
        }
        Err(RecvTimeoutError::Timeout) => answer.recv().unwrap_or(Err(CallFailure::Unknown)),
        known => known.unwrap_or(Err(CallFailure::Unknown)),
    })
}

/// Reads the request from standard input. Refuses one that is too long without reading all of it.
fn read_request() -> Result<Bytes, Problem> {
    let mut request = Vec::new();
    io::stdin().lock().take(MESSAGE_BYTES_MAX + 1).read_to_end(&mut request)?;
    if request.len() as u64 > MESSAGE_BYTES_MAX {
        return Err(Problem::failed(format!("a request has at most {MESSAGE_BYTES_MAX} bytes")));
    }
    Ok(request.into())
}

/// Adds the bytes to an object, as `text` if they are UTF-8, otherwise as `hex`.
fn tell(object: &mut serde_json::Value, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object["text"] = text.into(),
        Err(_) => object["hex"] = hex(bytes).into(),
    }
}

/// Prints the bytes unchanged; on a terminal, with a line end.
fn print(reply: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(reply)?;
    if io::stdout().is_terminal() && !reply.ends_with(b"\n") {
        writeln!(out)?;
    }
    out.flush()
}

fn outcome(failure: &CallFailure) -> &'static str {
    match failure {
        CallFailure::NotFound => "not found",
        CallFailure::OtherInstance => "other instance",
        CallFailure::Busy => "busy",
        CallFailure::Refused(_) => "refused",
        CallFailure::Unknown => "unknown",
        _ => "failed",
    }
}
