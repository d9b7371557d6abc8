//! `unisono send`: texts into a group, in their order, each exactly once.

use crate::arguments::{self, Common, OrderChoice};
use crate::connection;
use crate::form::FormOptions;
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
use unisono::{Group, LookError, Options, SendError, Uid, WaitReason};

/// How long a member may take to answer whether the group is large enough yet.
const LOOK: Duration = Duration::from_millis(300);
/// The same before its silence is taken for that of somebody with another key.
const LONG_LOOK: Duration = Duration::from_secs(2);

/// Send texts to a group: each argument, or each line of standard input, is one message
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  unisono send news 'hello, everybody'\n  tail -f log | unisono send news --min-members 3\n\n\
                        Exit status 1 if a message could not be sent or nobody knows what became of it; 3 if the group stood still for\nlonger than --timeout; 128 and the signal's number if ctrl-c or a signal ended it."
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

    /// Give up when the group stands still for this long [default: wait for it]
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    timeout: Option<Duration>,

    #[command(flatten)]
    form: FormOptions,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: Send, settings: &Settings, output: &Output) -> Result<(), Problem> {
    // The group that was waited for is there: no other is founded beside it.
    let founds = command.min_members.is_none_or(|members| members == 0);
    if !founds && command.form.is_given() {
        return Err(Problem::usage(
            "--min-members waits for a group that is there, and --form founds one: give one of them",
        ));
    }
    let config = connection::config(command.resilience.unwrap_or(RESILIENCE), command.order);
    let founding = command.form.founding(config, command.name.as_deref())?;
    if let Some(members) = command.min_members {
        wait_for_members(&command.group, members, settings, command.name.as_deref())?;
    }
    let group =
        connection::enter(&command.group, settings, command.name.as_deref(), founds.then_some(&founding))?;
    if let Ok(entered) = group.receive() {
        connection::warn_of_other_resilience(&entered, command.resilience);
    }
    if group.info().members.len() == 1 {
        tell("nobody else is there to hear it; --min-members 1 would wait for a listener");
    }
    group.ignore_events();
    let typed = command.text.is_empty() && std::io::stdin().is_terminal();
    if typed {
        tell("each line is a message; ctrl-d ends");
    }
    let lines = lines::read(command.text)?;
    signals::leave_on_interrupt(&group, lines.ender())?;
    let mut resender = Resender::new(group.clone(), command.timeout);
    // Who types sees how far it is.
    let bar = if typed { ProgressBar::hidden() } else { progress::count("messages accepted") };
    let sent = send_all(&mut resender, &lines, &bar);
    bar.finish_and_clear();
    if let Err(Stuck::TimedOut { .. }) = sent {
        tell_holder(&command.group, &group, settings);
    }
    leave(&group);
    // What the group has taken it has given a place before the leave.
    let settled = resender.settle_all();
    let (accepted, sent_again) = (resender.accepted(), resender.sent_again());
    output.say(format_args!("{} accepted", several(accepted, "message")))?;
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

/// Tells which member holds all others up, if one does: the sequencer knows it.
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

/// Sends lines until there are no more, and sees each to its place. Returns how they ended.
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
            // The group takes no more at present: lines can wait where they are.
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
