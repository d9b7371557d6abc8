//! `unisono demo`: starts member processes, kills one half-way, and checks that the others agree.

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

/// Default resilience of the group.
const RESILIENCE: u8 = 2;
/// Minimum number of members if one is killed: of three, the two others are a majority.
const MEMBERS_MIN: usize = 3;
/// Each member keeps one message in 10, and at least one, until the group was reset. Its delivery shows that the
/// survivors have recovered.
const KEPT_PART: u64 = 10;

/// Watch a group survive the crash of one of its members
///
/// Starts member processes on this machine, lets all of them send, kills one half-way with SIGKILL, waits for the
/// recovery and compares what every survivor delivered. The exit status is 0 only if all delivered in the same order
/// and no acknowledged message is lost.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  unisono demo\n  unisono demo --members 3 --resilience 1 --messages 50000"
)]
pub(crate) struct Demo {
    /// Number of member processes
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = arguments::within::<u64>(1..=64))]
    members: u64,

    /// Number of simultaneous crashes that the group survives without losing a message [default: 2]
    #[arg(long, value_name = "R", value_parser = arguments::resilience)]
    resilience: Option<u8>,

    /// Number of messages, all members together
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = arguments::within::<u64>(1..=10_000_000))]
    messages: u64,

    /// Which member assigns the sequence numbers
    #[arg(long, value_enum, default_value_t)]
    order: OrderChoice,

    /// Which member to kill half-way
    #[arg(long, value_enum, default_value_t)]
    kill: Victim,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// The member to kill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Victim {
    /// The member that assigns the sequence numbers
    #[default]
    Sequencer,
    /// The same, as a ring calls it: the member that has the token
    TokenSite,
    /// A member chosen at random
    Any,
    /// No member
    None,
}

pub(crate) fn run(command: Demo, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let begin = Instant::now();
    let members = usize::try_from(command.members).unwrap_or(usize::MAX);
    if command.kill != Victim::None && members < MEMBERS_MIN {
        return Err(Problem::usage(format!(
            "of {members} members, those left after the kill are no majority and cannot go on: use --members {MEMBERS_MIN} \
             or more, or --kill none"
        )));
    }
    if command.kill != Victim::None && command.messages < command.members {
        return Err(Problem::usage(format!(
            "each of {members} members must send a message after the kill, and there are only {}: use --messages {members} \
             or more, or --kill none",
            command.messages
        )));
    }
    // A group of few members gets the highest resilience that it can have.
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
        trial.until("half of each member's messages to be accepted", |trial| {
            bar.set_position(trial.delivered());
            (0..members).all(|index| trial.accepted(index) >= share(index) / 2)
        })?;
        let sequencer = trial.ask_sequencer()?;
        let victim = match command.kill {
            Victim::Any => usize::try_from(trial::lot(command.members)?).unwrap_or(0),
            _ => sequencer.unwrap_or(0),
        };
        let struck_sequencer = sequencer == Some(victim);
        let struck_ns = trial.strike(victim, Blow::Kill)?;
        let victim = name(victim);
        let killed = match (struck_sequencer, command.order) {
            (true, OrderChoice::Token) => format!("{victim}, which has the token,"),
            (true, _) => format!("the sequencer, {victim},"),
            (false, _) => victim,
        };
        bar.suspend(|| {
            let news = format!("Half-way: {killed} is killed (SIGKILL).");
            output.say(output.tone(Tone::Bad, news))
        })?;
        trial.until("the survivors to recover", |trial| trial.resumed_ns().is_some())?;
        let ms = rounded(trial.resumed_ns().unwrap_or(0).saturating_sub(struck_ns) as f64 / 1e6);
        recovery_ms = Some(ms);
        bar.suspend(|| {
            output.say(format_args!(
                "  The others suspect it, agree on a new view, and deliver the next message {ms:.0} ms after the kill."
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
    output.say("  ([sequencer|epoch] (number of members) [members])")?;
    let sequencer = name(trial.sequencer().unwrap_or(0));
    match command.order {
        OrderChoice::Token => output.say(
            "The token goes round: each member in turn gives the messages that it holds their sequence numbers.",
        )?,
        _ => output
            .say(format_args!("{sequencer} is the sequencer: it gives every message its sequence number."))?,
    }
    if command.order == OrderChoice::Migrating {
        output.say("A member that sends nearly everything for a while takes over its role.")?;
    }
    output.say(format_args!("All members send, {} messages in all.", command.messages))
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
            "The other {} were lost with the killed member: none of them had been acknowledged.",
            wanted - delivered
        ))?;
    }
    let (lost, excuse) = (verdict.lost_acknowledged, verdict.excuse());
    let counts = format!("{lost} lost{excuse}, {} delivered twice", verdict.duplicates);
    let counts = output.tone(if verdict.good() { Tone::Good } else { Tone::Bad }, counts);
    output.say(format_args!("Of {} acknowledged messages: {counts}.", verdict.acknowledged))
}
