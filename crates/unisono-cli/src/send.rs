//! `unisono send`: texts into a group, in their order, each exactly once.

use crate::arguments::{self, Common, OrderChoice};
use crate::connection;
use crate::gathering::{self, Gathering};
use crate::listen::{RESILIENCE, leave};
use crate::outbox::{Outbox, PULSE, Stuck};
use crate::output::{Output, tell};
use crate::problem::Problem;
use crate::settings::Settings;
use crate::signals;
use anyhow::Context;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::json;
use std::io::{BufRead, IsTerminal, Read};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};
use unisono::{Bytes, LookError, Options};

/// Lines read ahead of the group.
const LINES_AHEAD: usize = 4096;
/// The longest line: as long as a message may be in any group.
const LINE_BYTES_MAX: usize = 16 << 20;
/// How long a member may take to answer whether the group is large enough yet.
const LOOK: Duration = Duration::from_millis(300);
/// The same before its silence is taken for that of somebody with another key.
const LONG_LOOK: Duration = Duration::from_secs(2);

/// Send texts to a group: each argument, or each line of standard input, is one message
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  unisono send news 'hello, everybody'\n  tail -f log | unisono send news --min-members 3\n\n\
                        Exit status 1 if a message could not be sent or nobody knows what became of it."
)]
pub(crate) struct Send {
    /// Name of the group
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    group: String,

    /// What to send; without any, the lines of standard input as they come
    text: Vec<String>,

    /// How many crashes at once the group is to survive without loss, if this founds it [default: 1]
    #[arg(long, value_name = "K", value_parser = arguments::resilience)]
    resilience: Option<u8>,

    /// Who gives the messages their places, if this founds the group
    #[arg(long, value_enum, default_value_t)]
    order: OrderChoice,

    /// Wait until the group has so many members, this one not counted
    #[arg(long, value_name = "N", value_parser = gathering::members)]
    min_members: Option<usize>,

    /// What the others call this member [default: the host and the process number]
    #[arg(long, value_name = "ME")]
    name: Option<String>,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// What wakes the sender.
pub(crate) enum Input {
    Line(Bytes),
    /// There are no more lines; or the rest cannot be read.
    End(std::io::Result<()>),
}

pub(crate) fn run(command: Send, settings: &Settings, output: &Output) -> Result<(), Problem> {
    if let Some(members) = command.min_members {
        wait_for_members(&command.group, members, settings, command.name.as_deref())?;
    }
    // The group that was waited for is there: no other is founded beside it.
    let founds = command.min_members.is_none_or(|members| members == 0);
    let config = connection::config(command.resilience.unwrap_or(RESILIENCE), command.order);
    let group =
        connection::enter(&command.group, settings, command.name.as_deref(), founds.then_some(&config))?;
    if let Ok(entered) = group.receive() {
        connection::warn_of_other_resilience(&entered, command.resilience);
    }
    if group.info().members.len() == 1 {
        tell("nobody else is there to hear it; --min-members 1 would wait for a listener");
    }
    group.ignore_events();
    signals::end_on_interrupt(&group)?;
    if command.text.is_empty() && std::io::stdin().is_terminal() {
        tell("each line is a message; ctrl-d ends");
    }
    let lines = read(command.text)?;
    let mut outbox = Outbox::new(group.clone());
    let done = send_all(&mut outbox, &lines);
    leave(&group);
    let (accepted, sent_again) = (outbox.accepted(), outbox.sent_again());
    output.say(match accepted {
        1 => "1 message accepted".to_string(),
        n => format!("{n} messages accepted"),
    })?;
    output.object(&json!({
        "command": "send", "group": command.group, "accepted": accepted, "sent_again": sent_again, "last": outbox.last(),
    }))?;
    done
}

/// Waits until any member says that the group is so large.
fn wait_for_members(
    group: &str,
    members: usize,
    settings: &Settings,
    name: Option<&str>,
) -> Result<(), Problem> {
    let options = connection::options(settings, name)?;
    let mut gathering = Gathering::of(members);
    loop {
        let asked = Instant::now();
        // What a busy member of this very group says meanwhile cannot be told from a stranger's words.
        let there = count_members(group, &options, LOOK);
        let there = there.or_else(|_| count_members(group, &options, LONG_LOOK))?;
        if gathering.is_complete(there) {
            return Ok(());
        }
        std::thread::sleep((LOOK / 3).saturating_sub(asked.elapsed()));
    }
}

/// How many members a group has; none if nobody answers.
fn count_members(group: &str, options: &Options, patience: Duration) -> Result<usize, LookError> {
    match unisono::look(group, options, patience) {
        Ok(report) => Ok(report.members.len() + report.members_omitted),
        Err(LookError::NoAnswer) => Ok(0),
        Err(error) => Err(error),
    }
}

/// The texts given, or the lines of standard input as they come.
pub(crate) fn read(texts: Vec<String>) -> Result<Receiver<Input>, Problem> {
    let (to, lines) = mpsc::sync_channel(LINES_AHEAD);
    std::thread::Builder::new().name("lines".into()).spawn(move || {
        // Nobody listens any more: the sender has given up.
        let _ = if texts.is_empty() { read_lines(&to) } else { give(&to, texts) };
    })?;
    Ok(lines)
}

fn give(to: &SyncSender<Input>, texts: Vec<String>) -> Option<()> {
    for text in texts {
        to.send(Input::Line(text.into())).ok()?;
    }
    to.send(Input::End(Ok(()))).ok()
}

fn read_lines(to: &SyncSender<Input>) -> Option<()> {
    let mut input = std::io::stdin().lock();
    for number in 1_u64.. {
        match read_line(&mut input, number) {
            Ok(Some(line)) => to.send(Input::Line(line.into())).ok()?,
            end => return to.send(Input::End(end.map(drop))).ok(),
        }
    }
    None
}

/// The next line, which has this number, without its end; nothing after the last.
fn read_line(input: &mut impl BufRead, number: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    if input.take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    match line.len() > LINE_BYTES_MAX {
        // How long it is nobody knows: it was read no further.
        true => Err(std::io::Error::other(format!(
            "line {number} has more than {LINE_BYTES_MAX} bytes, which is the most that a message has; neither it nor what \
             follows was sent"
        ))),
        false => Ok(Some(line)),
    }
}

/// Sends lines until there are no more, and sees each to its place.
fn send_all(outbox: &mut Outbox, lines: &Receiver<Input>) -> Result<(), Problem> {
    let end = loop {
        outbox.advance()?;
        if outbox.waiting() == 0 {
            if let Some(end) = take_lines(outbox, lines) {
                break end;
            }
        } else if outbox.under_way() > 0 {
            // The group takes no more at present: lines can wait where they are.
            outbox.wait()?;
        } else {
            std::thread::sleep(PULSE);
        }
    };
    outbox.flush()?;
    Ok(end.context("cannot read standard input")?)
}

/// Puts the lines that are there into the outbox; waits for one if nothing is under way. Returns how the lines
/// ended, once they have.
fn take_lines(outbox: &mut Outbox, lines: &Receiver<Input>) -> Option<std::io::Result<()>> {
    let patience = if outbox.under_way() > 0 { PULSE } else { Duration::MAX };
    let mut input = lines.recv_timeout(patience);
    loop {
        match input {
            Ok(Input::Line(line)) => outbox.push(line),
            Ok(Input::End(end)) => return Some(end),
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => return Some(Ok(())),
        }
        input = lines.recv_timeout(Duration::ZERO);
    }
}

impl From<Stuck> for Problem {
    fn from(stuck: Stuck) -> Problem {
        Problem::failed(stuck)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_may_be_as_long_as_a_message_and_no_longer() {
        let longest = vec![b'x'; LINE_BYTES_MAX];
        for end in [&b""[..], b"\n", b"\nmore"] {
            let mut input = &[&longest, end].concat()[..];
            assert_eq!(read_line(&mut input, 1).unwrap().map(|line| line.len()), Some(LINE_BYTES_MAX));
        }
        for end in [&b"x"[..], b"x\n", b"xx\nmore"] {
            let mut input = &[&longest, end].concat()[..];
            let said = read_line(&mut input, 7).unwrap_err().to_string();
            assert!(said.starts_with("line 7 has more than 16777216 bytes"), "{said}");
        }
        assert_eq!(read_line(&mut &b""[..], 1).unwrap(), None);
        assert_eq!(read_line(&mut &b"\n"[..], 1).unwrap(), Some(Vec::new()));
    }
}
