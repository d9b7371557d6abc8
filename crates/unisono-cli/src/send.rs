//! `unisono send`: sends texts to a group, with the quality asked for; ordered ones in order, each exactly once.

mod outside;

use crate::arguments::{self, Common, OrderChoice, Wishes};
use crate::connection;
use crate::form::{FormOptions, SlowOption};
use crate::gathering::{self, Gathering};
use crate::lines::{self, Lines};
use crate::listen::{RESILIENCE, leave};
use crate::output::{Output, several, tell, visible};
use crate::problem::Problem;
use crate::progress;
use crate::resender::{PULSE, Resender, Stuck};
use crate::settings::Settings;
use crate::signals;
use crate::units;
use anyhow::Context;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use indicatif::ProgressBar;
use serde_json::json;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use unisono::{Group, LookError, Options, Quality, SendError, Uid, WaitReason};

/// Time for a member to answer how many members the group has: 300 ms.
const LOOK: Duration = Duration::from_millis(300);
/// The same for a second query, 2 s, before datagrams under another key are reported as an error.
const LONG_LOOK: Duration = Duration::from_secs(2);

/// Send messages to a group: each argument, or each line of standard input, is one message
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  unisono send news 'hello, everybody'\n  tail -f log | unisono send news --min-members 3\n\n\
                        Exit status 1 if a message could not be sent or its outcome is unknown; 3 if the group was halted for longer\nthan --timeout, or with --outside no member answered for so long; 128 + N if signal N ended the command (130 for ctrl-c)."
)]
pub(crate) struct Send {
    /// Name of the group
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    group: String,

    /// Messages to send [default: the lines of standard input as they come]
    text: Vec<String>,

    /// Number of simultaneous crashes that the group survives without losing a message, if this command founds it
    /// [default: 1]
    #[arg(long, value_name = "R", value_parser = arguments::resilience)]
    resilience: Option<u8>,

    /// What each message asks for: unreliable, unordered, source, ordered, resilient=K, majority or total
    #[arg(long, value_name = "Q", default_value_t, value_parser = arguments::quality)]
    quality: Quality,

    /// Send without joining: an open member (`unisono listen --open`) sends each message on
    #[arg(long, conflicts_with_all = ["resilience", "min_members", "name", "floor", "form", "slow_member"])]
    outside: bool,

    /// With --outside: a message counts as accepted as soon as the open member has sent it, and not only when it has its place
    #[arg(long, requires = "outside")]
    unconfirmed: bool,

    /// Which member assigns the sequence numbers, if this command founds the group
    #[arg(long, value_enum, default_value_t)]
    order: OrderChoice,

    #[command(flatten)]
    slow: SlowOption,

    /// Wait until the group has N members, this one not counted
    #[arg(long, value_name = "N", value_parser = gathering::members)]
    min_members: Option<usize>,

    /// Name of this member [default: the host and the process number]
    #[arg(long, value_name = "ME")]
    name: Option<String>,

    /// Give up when the group has been halted for this time; with --outside, when no member has answered for this time
    /// [default: wait without limit]
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    timeout: Option<Duration>,

    #[command(flatten)]
    wishes: Wishes,

    #[command(flatten)]
    form: FormOptions,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: Send, settings: &Settings, output: &Output) -> Result<(), Problem> {
    if command.outside {
        return outside::run(command, settings, output);
    }
    // A command that waited for the members of a group must not found another one.
    let founds = command.min_members.is_none_or(|members| members == 0);
    if !founds && command.form.is_given() {
        return Err(Problem::usage(
            "--min-members waits for an existing group, and --form founds one: give only one of them",
        ));
    }
    let resilience = command.resilience.unwrap_or(RESILIENCE);
    let config = connection::config(resilience, command.order, command.slow.slow_member);
    let founding = command.form.founding(config, command.name.as_deref())?;
    if let Some(members) = command.min_members {
        wait_for_members(&command.group, members, settings, command.name.as_deref())?;
    }
    let group = connection::enter(
        &command.group,
        settings,
        command.name.as_deref(),
        command.wishes,
        founds.then_some(&founding),
    )?;
    if let Ok(entered) = group.receive() {
        connection::warn_of_other_resilience(&entered, command.resilience);
    }
    if group.info().members.len() == 1 {
        tell("no other member receives this; --min-members 1 waits for one");
    }
    group.ignore_events();
    let typed = command.text.is_empty() && std::io::stdin().is_terminal();
    if typed {
        tell("each line is a message; ctrl-d ends");
    }
    let lines = lines::read(command.text)?;
    signals::leave_on_interrupt(&group, lines.ender())?;
    let mut resender = Resender::new(group.clone(), command.timeout).of_quality(command.quality);
    // A user who types needs no count.
    let bar = if typed { ProgressBar::hidden() } else { progress::count("messages accepted") };
    let sent = send_all(&mut resender, &lines, &bar);
    bar.finish_and_clear();
    if let Err(Stuck::TimedOut { .. }) = sent {
        tell_holder(&command.group, &group, settings);
    }
    leave(&group);
    // The group numbers the messages that it has taken before the leave.
    let settled = resender.settle_all();
    let (accepted, sent_again) = (resender.accepted(), resender.sent_again());
    let done = if command.quality.has_seqno() { "accepted" } else { "sent" };
    output.say(format_args!("{} {done}", several(accepted, "message")))?;
    output.object(&json!({
        "command": "send", "group": command.group, "accepted": accepted, "sent_again": sent_again, "last": resender.last(),
    }))?;
    match (sent.and_then(|end| settled.map(|()| end)), signals::interrupt()) {
        (Ok(_) | Err(Stuck::Refused { reason: SendError::Left, .. }), Some(signal)) => {
            Err(Problem::interrupted(signal))
        }
        (Ok(end), None) => Ok(end.context("cannot read standard input")?),
        (Err(stuck), _) => Err(stuck.into()),
    }
}

/// Waits until a member reports that the group has `members` members.
fn wait_for_members(
    group: &str,
    members: usize,
    settings: &Settings,
    name: Option<&str>,
) -> Result<(), Problem> {
    let options = connection::options(settings, name)?;
    let mut gathering = Gathering::of(members, connection::whereabouts(&options)());
    loop {
        let asked = Instant::now();
        // A stranger with another key may have interfered while the members were busy, so ask again, with more time.
        let there = count_members(group, &options, LOOK);
        let there = there.or_else(|_| count_members(group, &options, LONG_LOOK))?;
        if gathering.is_complete(there) {
            return Ok(());
        }
        std::thread::sleep((LOOK / 3).saturating_sub(asked.elapsed()));
    }
}

/// Returns the number of members of a group; 0 if no member answers.
fn count_members(group: &str, options: &Options, patience: Duration) -> Result<usize, LookError> {
    match unisono::look(group, options, patience) {
        Ok(report) => Ok(report.members.len() + report.members_omitted),
        Err(LookError::NoAnswer) => Ok(0),
        Err(error) => Err(error),
    }
}

/// Prints which member holds up all others, if one does: the sequencer knows it.
fn tell_holder(name: &str, group: &Group, settings: &Settings) {
    let info = group.info();
    let address =
        |uid: Uid| info.members.iter().find(|member| member.uid == uid).map(|member| member.address);
    let report = || {
        let options = connection::options(settings, None).ok()?;
        unisono::look_at(name, address(info.sequencer)?, &options, LOOK).ok()
    };
    let waiting = report().map(|report| report.waiting).unwrap_or_default();
    let held = waiting.into_iter().find(|waiting| waiting.reason == WaitReason::Window);
    let Some((member, since)) = held.and_then(|held| Some((held.member?, held.since))) else { return };
    let member = info.members.iter().find(|known| known.uid == member);
    let member = member.map_or("a member", |member| member.name.as_str());
    tell(format_args!(
        "{} takes no messages, and has held up all others for {} s",
        visible(member),
        since.as_secs()
    ));
}

/// Sends all lines and waits until each is accepted. Returns how the input ended.
fn send_all(resender: &mut Resender, lines: &Lines, bar: &ProgressBar) -> Result<std::io::Result<()>, Stuck> {
    let end = loop {
        resender.advance()?;
        bar.set_position(resender.accepted());
        if resender.waiting() == 0 {
            let patience = if resender.under_way() > 0 { PULSE } else { Duration::MAX };
            if let Some(end) = lines.take(patience, |line| resender.push(line)) {
                break end;
            }
        } else if resender.under_way() > 0 {
            // The group takes no more at present, so no more lines are read.
            resender.wait()?;
        } else {
            std::thread::sleep(PULSE);
        }
    };
    resender.flush()?;
    Ok(end)
}

impl From<Stuck> for Problem {
    fn from(stuck: Stuck) -> Problem {
        match stuck {
            Stuck::TimedOut { .. } => Problem::not_primary(stuck),
            _ => Problem::failed(stuck),
        }
    }
}
