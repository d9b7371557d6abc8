//! `unisono send --outside`: sends texts to a group without joining it.

use super::Send;
use crate::connection;
use crate::lines::{self, Lines};
use crate::output::{Output, several, tell};
use crate::problem::Problem;
use crate::settings::Settings;
use crate::signals;
use anyhow::Context;
use serde_json::json;
use std::io::IsTerminal;
use std::time::Duration;
use unisono::{OutsideError, OutsideOptions, OutsideSender, Quality};

/// Sends the texts, or the lines of standard input, and says what became of them.
pub(super) fn run(command: Send, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let Send { group, text, quality, unconfirmed, wishes, .. } = command;
    let mut options = connection::options(settings, None)?;
    options.settings.hops = wishes.scope.hops;
    let mut how = OutsideOptions::default();
    how.unconfirmed = unconfirmed;
    let sender = OutsideSender::new(&group, how, &options)?;
    if text.is_empty() && std::io::stdin().is_terminal() {
        tell("each line is a message; ctrl-d ends");
    }
    let lines = lines::read(text)?;
    let end = lines.ender();
    signals::on_interrupt(move |_| end())?;
    let (end, sent) = send_all(&sender, &lines, quality);
    let flushed = sender.flush().map(drop);
    let tally = sender.tally();
    let mut said = format!("{} accepted", several(tally.accepted, "message"));
    if tally.unknown > 0 {
        said += &format!("; {} may have arrived or not", several(tally.unknown, "message"));
    }
    if tally.not_sent > 0 {
        said += &format!("; {} not sent", several(tally.not_sent, "message"));
    }
    output.say(said)?;
    output.object(&json!({
        "command": "send", "group": group, "outside": true, "accepted": tally.accepted, "unknown": tally.unknown,
        "not_sent": tally.not_sent, "last": tally.last,
    }))?;
    sent.and(flushed)?;
    match signals::interrupt() {
        Some(signal) => Err(Problem::interrupted(signal)),
        None if tally.unknown > 0 => Err(Problem::failed(
            "the member that sent them on died, and no other one knows what became of some messages",
        )),
        None => Ok(end.context("cannot read standard input")?),
    }
}

/// Sends all lines. Returns how the input ended, and why not all lines were sent.
fn send_all(
    sender: &OutsideSender,
    lines: &Lines,
    quality: Quality,
) -> (std::io::Result<()>, Result<(), OutsideError>) {
    let mut sent = Ok(());
    loop {
        let end = lines.take(Duration::MAX, |line| {
            if sent.is_ok() {
                sent = sender.send(line, quality);
            }
        });
        match end {
            Some(end) => return (end, sent),
            None if sent.is_err() => return (Ok(()), sent),
            None => {}
        }
    }
}

impl From<OutsideError> for Problem {
    fn from(error: OutsideError) -> Problem {
        match error {
            OutsideError::Open(error) => error.into(),
            error => Problem::failed(error),
        }
    }
}
