//! `unisono bench locks`: measures how long a process waits for a free lock, and compares it with a message that a majority
//! of the members holds, in the same run.

use super::Protocol;
use super::Summary;
use super::ground::{self, Ground};
use super::latency::member::Usage;
use super::latency::{Measured, Wanted};
use super::placement::Placement;
use super::replica::crew::Staff;
use super::replica::worker::{Asks, Part};
use super::side::{Side, UNTIMED, blocks};
use super::statistics::Ratio;
use crate::arguments::{self, Common};
use crate::output::Output;
use crate::problem::Problem;
use crate::progress;
use crate::settings::Settings;
use clap::Args;
use serde_json::json;
use unisono::Quality;

/// Measure a free lock: the time until a process has it, beside a message that a majority holds
///
/// Each member is a process that keeps the locks. One that is not the sequencer acquires a free lock and releases it, again
/// and again; the time of the acquisition counts. Blocks of it alternate with blocks of null messages that a majority of as
/// many members holds; the ratio is the median over the rounds.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  unisono bench locks --members 5")]
pub(crate) struct Locks {
    /// Number of members, one process each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = arguments::within::<u64>(2..=16))]
    members: u64,

    /// Number of acquisitions that are timed
    #[arg(long, value_name = "M", default_value_t = 5000, value_parser = arguments::within::<u64>(1..=10_000_000))]
    locks: u64,

    /// On which processors the processes of both sides run
    #[arg(long, value_enum, default_value_t)]
    placement: Placement,

    #[command(flatten)]
    ground: ground::Choice,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// The process that acquires and releases: not the founder, which is the sequencer.
const HOLDER: usize = 1;

pub(crate) fn run(command: &Locks, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let members = command.members as usize;
    let ground = Ground::prepare(&command.ground, members, false, settings)?;
    let locations = ground.locations(command.placement, members);
    let mut staff = Staff::new(0, None, &ground.settings)?;
    for (index, location) in locations.iter().enumerate() {
        staff.start(if index == 0 { Part::LockFounder } else { Part::LockJoiner }, location)?;
    }
    let protocol = Protocol { quality: Quality::MAJORITY, ..Protocol::default() };
    let mut group = Measured::start(&Wanted { protocol, bytes: 0 }, &locations, &ground.settings)?;
    let [mut lock, mut send] = [Side::default(), Side::default()];
    let (rounds, block) = blocks(command.locks);
    let bar = progress::bar(rounds as u64, "rounds");
    for round in 0..rounds {
        for turn in 0..2 {
            match (turn + round) % 2 {
                0 => lock.turn(
                    &mut staff,
                    |_| Ok(Usage::default()),
                    |staff| staff.one_by_one(HOLDER, Asks::Command, (UNTIMED, block)),
                )?,
                _ => send.turn(&mut group, Measured::usage, |group| group.measure(block))?,
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let ratio = Ratio::of(&lock.rounds, &send.rounds);
    let [p50, p99] = [0.5, 0.99].map(|part| lock.us(part));
    let send_us = send.us(0.5);
    let sealed = if ground.is_sealed() { ", sealed" } else { "" };
    let lines = vec![
        format!("{members} members that keep locks{sealed}{}", command.ground.words()),
        format!("  a free lock      p50 {p50} us, p99 {p99}"),
        format!("  majority message p50 {send_us} us: a lock takes {} times as long", ratio.median),
    ];
    let object = command.ground.tell(json!({
        "bench": "locks",
        "members": command.members,
        "locks": rounds * block,
        "sealed": ground.is_sealed(),
        "placement": command.placement.name(),
        "p50_us": p50,
        "p99_us": p99,
        "majority_send_p50_us": send_us,
        "ratio_majority": ratio.median,
        "ratio_spread": ratio.spread,
    }));
    Summary::new(lines, object).tell(output)
}
