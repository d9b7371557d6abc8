//! `unisono send --outside`: sends texts to a group without joining it.

use super::Send;
use crate::connection;
use crate::lines::{self, Lines};
use crate::output::{Output, several, tell, visible};
use crate::problem::Problem;
use crate::settings::Settings;
use crate::signals;
use crate::threads;
use anyhow::Context;
use serde_json::json;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use unisono::{OutsideError, OutsideOptions, OutsideSender, Quality, SenderError};

/// Time for which the command waits for answers after a signal: 1.5 s.
const ANSWERS_WITHIN: Duration = Duration::from_millis(1500);
/// Time without an answer, 2 s, after which the command says so.
const SILENCE: Duration = Duration::from_secs(2);
/// Interval at which it looks for answers: 100 ms.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

/// True once the sender was given up because no member answered for the time that the user gave.
static HAS_TIMED_OUT: AtomicBool = AtomicBool::new(false);

/// Sends the texts, or the lines of standard input, and says what became of them.
pub(super) fn run(command: Send, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let Send { group, text, quality, unconfirmed, wishes, timeout, .. } = command;
    let mut options = connection::options(settings, None)?;
    options.settings.hops = wishes.scope.hops;
    let mut how = OutsideOptions::default();
    how.unconfirmed = unconfirmed;
    let sender = Arc::new(OutsideSender::new(&group, how, &options)?);
    if text.is_empty() && std::io::stdin().is_terminal() {
        tell("each line is a message; ctrl-d ends");
    }
    let lines = lines::read(text)?;
    let end = lines.ender();
    let interrupted = sender.clone();
    signals::on_interrupt(move |_| {
        end();
        thread::sleep(ANSWERS_WITHIN);
        interrupted.give_up();
    })?;
    let silence = Silence {
        group: visible(&group).into_owned(),
        why: connection::typed("why", &group, settings),
        timeout,
    };
    let (watched, end) = (sender.clone(), lines.ender());
    threads::start("answers", move || silence.watch(&watched, end))?;
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
    let given_up = match sent.and(flushed) {
        Err(OutsideError::Ended(SenderError::GivenUp)) => true,
        outcome => {
            outcome?;
            false
        }
    };
    match signals::interrupt() {
        Some(signal) => Err(Problem::interrupted(signal)),
        None if given_up && HAS_TIMED_OUT.load(Ordering::Relaxed) => {
            let silence = humantime::format_duration(timeout.unwrap_or_default());
            Err(Problem::not_primary(format!("no member of {} answered for {silence}", visible(&group))))
        }
        None if tally.unknown > 0 => Err(Problem::failed(
            "the member that sent them on died, and no other one knows what became of some messages",
        )),
        None => Ok(end.context("cannot read standard input")?),
    }
}

/// Reports that no member answers, and ends the sender if that lasts too long.
struct Silence {
    group: String,
    /// The command that shows more.
    why: String,
    timeout: Option<Duration>,
}

impl Silence {
    /// Watches a sender. Ends it, and with `end` the lines, if that lasts too long.
    fn watch(&self, sender: &OutsideSender, end: impl FnOnce()) {
        let (mut since, mut seen, mut is_told) = (Instant::now(), sender.tally(), false);
        loop {
            thread::sleep(LOOKS_EVERY);
            let (tally, open) = (sender.tally(), sender.open());
            let silence = since.elapsed();
            if open == 0 || tally != seen {
                if std::mem::take(&mut is_told) && tally.accepted > seen.accepted {
                    tell(format_args!("{} goes on", self.group));
                }
                (since, seen) = (Instant::now(), tally);
            } else if self.timeout.is_some_and(|timeout| silence >= timeout) {
                HAS_TIMED_OUT.store(true, Ordering::Relaxed);
                sender.give_up();
                return end();
            } else if silence >= SILENCE && !is_told {
                is_told = true;
                tell(format_args!(
                    "no member of {} has answered for {} s, with {} under way; `{}` shows whether it stands still",
                    self.group,
                    SILENCE.as_secs(),
                    several(open as u64, "message"),
                    self.why
                ));
            }
        }
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
