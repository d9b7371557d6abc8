//! `unisono bench failover`: times the recovery from the loss of the sequencer to the next ordered message.

use super::ground::{self, Ground};
use super::placement::Placement;
use super::statistics::quantile;
use crate::arguments::{self, Common, OrderChoice};
use crate::output::{Output, Tone, rounded, several};
use crate::passes::Passes;
use crate::problem::Problem;
use crate::processes::Blow;
use crate::progress;
use crate::settings::Settings;
use crate::trial::{Share, Trial, lot};
use clap::{Args, ValueEnum};
use serde_json::json;

/// Interval between two messages of a member: 1 ms.
const INTERVAL_US: u64 = 1000;
/// Messages per member before the fault: 50, and a random number below 50 more.
const BEFORE: (u64, u64) = (50, 50);
/// Messages of a member: more than it can send at that pace before the trial ends.
const PLENTY: u64 = 1 << 32;

/// Time the recovery from the loss of the sequencer
///
/// Each trial is a new group in which every member sends a message per millisecond. The sequencer (with --order token: the
/// member that has the token) is lost, and the time is measured until the slowest survivor delivers the next message. The
/// survivors' orders are compared.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono bench failover --members 4 --resilience 1 --how pause")]
pub(crate) struct Failover {
    /// Members, one process each
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = arguments::within::<u64>(3..=64))]
    members: u64,

    /// Number of trials, in each of which the sequencer is lost
    #[arg(long, value_name = "K", default_value_t = 10, value_parser = arguments::within::<u64>(1..=1000))]
    trials: u64,

    /// Number of simultaneous crashes that the group survives without losing a message
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = arguments::resilience)]
    resilience: u8,

    /// Which member assigns the sequence numbers
    #[arg(long, value_enum, default_value_t)]
    order: OrderChoice,

    /// How the sequencer is lost
    #[arg(long, value_enum, default_value_t)]
    how: How,

    #[command(flatten)]
    ground: ground::Choice,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// How the sequencer is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum How {
    /// Killed (SIGKILL)
    #[default]
    Kill,
    /// Frozen (SIGSTOP)
    Pause,
    /// Cut off from the network, but running
    Cut,
}

impl How {
    fn name(self) -> &'static str {
        match self {
            How::Kill => "kill",
            How::Pause => "pause",
            How::Cut => "cut",
        }
    }

    fn blow(self) -> Blow {
        match self {
            How::Kill => Blow::Kill,
            How::Pause => Blow::Stop,
            How::Cut => Blow::Cut,
        }
    }
}

/// The results of the trials.
#[derive(Default)]
struct Times {
    detect_ns: Vec<u64>,
    resume_ns: Vec<u64>,
    acknowledged: u64,
    lost_acknowledged: u64,
    duplicates: u64,
    /// Of the survivors, in all trials.
    passes: Passes,
    order_identical: bool,
    /// Remark on lost messages.
    excuse: &'static str,
    /// The error of the first bad trial.
    problem: Option<Problem>,
}

pub(crate) fn run(command: Failover, settings: &Settings, output: &Output) -> Result<(), Problem> {
    Problem::beyond(command.resilience, command.members)?;
    let members = usize::try_from(command.members).unwrap_or(usize::MAX);
    // A host that crashes reports nothing, so the hosts of a lab must not report closed ports.
    let ground = Ground::prepare(&command.ground, members, true, settings)?;
    let mut times = Times { order_identical: true, ..Times::default() };
    let bar = progress::bar(command.trials, "trials");
    for _ in 0..command.trials {
        one(&command, &ground, &mut times)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let ms = |values: &mut Vec<u64>, part: f64| rounded(quantile(values, part) as f64 / 1e6);
    let (detect, resume) = (ms(&mut times.detect_ns, 0.5), ms(&mut times.resume_ns, 0.5));
    let slowest = ms(&mut times.resume_ns, 1.0);
    output.say(format_args!(
        "{} members, resilience {}, {} ({}){}",
        command.members,
        command.resilience,
        several(command.trials, "trial"),
        command.how.name(),
        command.ground.words()
    ))?;
    output.say(format_args!("  loss noticed after          p50 {detect} ms"))?;
    output.say(format_args!("  next message delivered after p50 {resume} ms, at most {slowest} ms"))?;
    output.say(output.tone(
        if times.problem.is_none() { Tone::Good } else { Tone::Bad },
        format_args!(
            "  of {} acknowledged messages {} lost{}",
            times.acknowledged, times.lost_acknowledged, times.excuse
        ),
    ))?;
    output.object(&command.ground.tell(json!({
        "bench": "failover",
        "members": command.members,
        "trials": command.trials,
        "resilience": command.resilience,
        "order": command.order.name(),
        "how": command.how.name(),
        "detect_ms_p50": detect,
        "resume_ms_p50": resume,
        "resume_ms_max": slowest,
        "acknowledged": times.acknowledged,
        "lost_acknowledged": times.lost_acknowledged,
        "duplicates": times.duplicates,
        "passes": times.passes.all,
        "null_passes": times.passes.null,
        "order_identical": times.order_identical,
        "sealed": ground.is_sealed(),
    })))?;
    times.problem.map_or(Ok(()), Err)
}

fn one(command: &Failover, ground: &Ground, times: &mut Times) -> Result<(), Problem> {
    let members = usize::try_from(command.members).unwrap_or(usize::MAX);
    let locations = ground.locations(Placement::None, members);
    let mut trial = Trial::begin(&locations, command.resilience, command.order, &ground.settings)?;
    for index in 0..members {
        trial.send(index, Share { messages: PLENTY, after_reset: 0, interval_us: INTERVAL_US })?;
    }
    let before = (BEFORE.0 + lot(BEFORE.1)?) * command.members;
    trial.until("messages to flow", |trial| trial.delivered() >= before)?;
    let sequencer = trial.ask_sequencer()?.ok_or_else(|| Problem::failed("no member knows the sequencer"))?;
    let struck_ns = trial.strike(sequencer, command.how.blow())?;
    trial.until("the survivors to recover", |trial| trial.resumed_ns().is_some())?;
    let since = |at_ns: u64| at_ns.saturating_sub(struck_ns);
    times.resume_ns.extend(trial.resumed_ns().map(since));
    // If the reset was too short for a member to see, its end counts.
    times.detect_ns.extend(trial.noticed_ns().or(trial.resumed_ns()).map(since));
    trial.stop()?;
    trial.finish(|_| {})?;
    times.passes.add(trial.passes());
    let verdict = trial.judge();
    times.acknowledged += verdict.acknowledged;
    times.lost_acknowledged += verdict.lost_acknowledged;
    times.duplicates += verdict.duplicates;
    times.order_identical &= verdict.order_identical;
    if !verdict.excuse().is_empty() {
        times.excuse = verdict.excuse();
    }
    times.problem = times.problem.take().or(verdict.into_result().err());
    trial.end();
    Ok(())
}
