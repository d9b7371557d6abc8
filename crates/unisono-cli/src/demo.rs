//! `unisono demo`: member processes, one of them killed half-way, and the proof that the others agree.

use crate::arguments::{self, Common, OrderChoice};
use crate::location::Location;
use crate::output::{Output, Tone, rounded};
use crate::problem::Problem;
use crate::processes::Blow;
use crate::progress;
use crate::settings::Settings;
use crate::trial::{self, Share, Trial, Verdict, name};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::time::Instant;

/// The resilience with which the group is founded unless another is asked for.
const RESILIENCE: u8 = 2;
/// Whichever of so many is killed, the others are a majority.
const MEMBERS_MIN: usize = 3;
/// One message in so many, and one at least, is kept until the survivors have recovered, so that something shows that they
/// have.
const KEPT_PART: u64 = 10;

/// Watch a group survive the death of one of its members
///
/// Starts member processes on this machine, lets all of them send, kills one half-way with SIGKILL, waits for the
/// recovery and compares what every survivor delivered. Exit status 0 only if the orders are identical and nothing
/// that was acknowledged is lost.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  unisono demo\n  unisono demo --members 3 --resilience 1 --messages 50000"
)]
pub(crate) struct Demo {
    /// How many member processes
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = arguments::within::<u64>(1..=64))]
    members: u64,

    /// How many crashes at once the group is to survive without loss [default: 2]
    #[arg(long, value_name = "R", value_parser = arguments::resilience)]
    resilience: Option<u8>,

    /// How many messages, all members together
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = arguments::within::<u64>(1..=10_000_000))]
    messages: u64,

    /// Who gives the messages their places
    #[arg(long, value_enum, default_value_t)]
    order: OrderChoice,

    /// Whom to kill half-way
    #[arg(long, value_enum, default_value_t)]
    kill: Victim,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// Whom to kill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Victim {
    /// The member that gives the messages their places
    #[default]
    Sequencer,
    /// A member drawn by lot
    Any,
    /// Nobody
    None,
}

pub(crate) fn run(command: Demo, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let begin = Instant::now();
    let members = usize::try_from(command.members).unwrap_or(usize::MAX);
    if command.kill != Victim::None && members < MEMBERS_MIN {
        return Err(Problem::usage(format!(
            "of {members} members those who are left when the first is killed are no majority and cannot go on: --members \
             {MEMBERS_MIN}, or --kill none"
        )));
    }
    if command.kill != Victim::None && command.messages < command.members {
        return Err(Problem::usage(format!(
            "of {} messages not every one of {members} members has one to send when the first is killed: --messages {members} \
             or more, or --kill none",
            command.messages
        )));
    }
    // By default what so few members can have.
    let default = command.members.saturating_sub(1).min(u64::from(RESILIENCE)) as u8;
    let resilience = command.resilience.unwrap_or(default);
    Problem::beyond(resilience, command.members)?;
    let mut trial = Trial::begin(&vec![Location::here(None); members], resilience, command.order, settings)?;
    introduce(&trial, &command, output)?;

    let bar = progress::bar(command.messages, "messages delivered");
    let sending = Instant::now();
    let share = |index: usize| {
        command.messages / command.members + u64::from((index as u64) < command.messages % command.members)
    };
    for index in 0..members {
        let share = share(index);
        let after_reset = if command.kill == Victim::None { 0 } else { share.div_ceil(KEPT_PART) };
        trial.send(index, Share { messages: share, after_reset, interval_us: 0 })?;
    }
    let mut recovery_ms = None;
    if command.kill != Victim::None {
        trial.until("half of everybody's messages to be accepted", |trial| {
            bar.set_position(trial.delivered());
            (0..members).all(|index| trial.accepted(index) >= share(index) / 2)
        })?;
        let sequencer = trial.sequencer();
        let victim = match command.kill {
            Victim::Any => usize::try_from(trial::lot(command.members)?).unwrap_or(0),
            _ => sequencer.unwrap_or(0),
        };
        let struck_sequencer = sequencer == Some(victim);
        let struck_ns = trial.strike(victim, Blow::Kill)?;
        let victim = name(victim);
        let whom = if struck_sequencer { format!("the sequencer, {victim},") } else { victim };
        bar.suspend(|| {
            let news = format!("Half-way: {whom} is killed (SIGKILL).");
            output.say(output.tone(Tone::Bad, news))
        })?;
        trial.until("the survivors to go on", |trial| trial.resumed_ns().is_some())?;
        let ms = rounded(trial.resumed_ns().unwrap_or(0).saturating_sub(struck_ns) as f64 / 1e6);
        recovery_ms = Some(ms);
        bar.suspend(|| {
            output.say(format_args!(
                "  The others notice, agree who goes on, and deliver the next message {ms:.0} ms after the kill."
            ))?;
            output.say(format_args!("  view {}", output.tone(Tone::Strong, trial.view())))
        })?;
    }
    trial.finish(|trial| bar.set_position(trial.delivered()))?;
    let sending = sending.elapsed().as_secs_f64();
    bar.finish_and_clear();

    let verdict = trial.judge();
    conclude(&trial, &verdict, command.messages, output)?;
    let (sent, sent_again) = trial.sent();
    output.object(&json!({
        "command": "demo",
        "members": members,
        "survivors": trial.survivors_count(),
        "resilience": resilience,
        "order": command.order.name(),
        "sent": sent,
        "sent_again": sent_again,
        "acknowledged": verdict.acknowledged,
        "delivered": verdict.delivered,
        "order_identical": verdict.order_identical,
        "lost_acknowledged": verdict.lost_acknowledged,
        "duplicates": verdict.duplicates,
        "recovery_ms": recovery_ms,
        "messages_per_s": (verdict.acknowledged as f64 / sending).round(),
        "seconds": rounded(begin.elapsed().as_secs_f64()),
    }))?;
    trial.end();
    verdict.into_result()
}

fn introduce(trial: &Trial, command: &Demo, output: &Output) -> std::io::Result<()> {
    let (group, view) = (output.tone(Tone::Strong, trial.group()), output.tone(Tone::Strong, trial.view()));
    output.say(format_args!("{} processes on this machine form the group {group}.", trial.members()))?;
    output.say(format_args!("  view {view}"))?;
    output.say("  (who orders, and in which epoch; how many members there are; who they are)")?;
    let sequencer = name(trial.sequencer().unwrap_or(0));
    output.say(format_args!(
        "{sequencer} is the sequencer: it gives every message its place in the one order."
    ))?;
    if command.order == OrderChoice::Migrating {
        output.say("Whoever sends nearly everything for a while gets its role.")?;
    }
    output.say(format_args!("All of them send, {} messages in all.", command.messages))
}

fn conclude(trial: &Trial, verdict: &Verdict, wanted: u64, output: &Output) -> std::io::Result<()> {
    let (survivors, delivered) = (trial.survivors_count(), verdict.delivered);
    if verdict.order_identical {
        let good = output.tone(Tone::Good, "in the same order");
        output
            .say(format_args!("Each of the {survivors} survivors delivered {delivered} messages {good}."))?;
    } else {
        output.say(output.tone(Tone::Bad, "The survivors delivered different orders."))?;
    }
    if verdict.good() && verdict.lost_acknowledged == 0 && delivered < wanted {
        output.say(format_args!(
            "The other {} died with the one that was killed: none of them had been acknowledged.",
            wanted - delivered
        ))?;
    }
    let (lost, excuse) = (verdict.lost_acknowledged, verdict.excuse());
    let counts = format!("{lost} lost{excuse}, {} delivered twice", verdict.duplicates);
    let counts = output.tone(if verdict.good() { Tone::Good } else { Tone::Bad }, counts);
    output.say(format_args!(
        "Of the {} that were acknowledged to their senders: {counts}.",
        verdict.acknowledged
    ))
}
