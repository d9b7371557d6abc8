//! `unisono lock GROUP --serve`: keeps the locks of a group together with other processes.

use super::{FAREWELL, Lock, Present};
use crate::connection;
use crate::opening::{LOOK, LOOKS_EVERY, Opening, RESET_WITHIN, WhileHalted};
use crate::output::{self, Output, several, visible};
use crate::problem::Problem;
use crate::settings::Settings;
use crate::signals;
use crate::watch;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use unisono::locks::LockService;
use unisono::replica::{Founding, Notice, ReplicaEnd, ReplicaOptions, ReplicaState};
use unisono::{GroupConfig, Name, Options, Quorum, SlowMember};

/// What happens to a slow member by default: after 10 s the others go on without it.
const SLOW_MEMBER: SlowMember = SlowMember::ExcludeAfter(Duration::from_secs(10));

pub(super) fn run(
    command: &Lock,
    settings: &Settings,
    options: &Options,
    output: &Output,
) -> Result<(), Problem> {
    let group = &*command.group;
    if !command.create && !command.form.is_given() {
        return Err(Problem::usage(format!(
            "--serve needs --form or --create: {}",
            super::advice(group, settings)
        )));
    }
    if command.slow_member == Some(SlowMember::Wait) {
        return Err(Problem::usage("locks do not wait for a slow member: give --slow-member a time"));
    }
    let formation = match command.form.is_given() {
        true => command.form.founding(GroupConfig::default(), command.name.as_deref())?.formation,
        false => None,
    };
    connection::warn_of_no_key(options);
    connection::tell_of_no_address(options);
    let options = &with_lasting_name(command, options);
    let opening = Opening {
        name: group,
        create: command.create,
        formation,
        command: "lock --serve",
        advice: super::advice(group, settings),
        no_state: None,
        while_halted: WhileHalted::AsForState,
        settings,
    };
    let (founding, members_min) = opening.founding_unless_there(options);
    // Only processes that keep the locks count in a quorum. Processes that hold locks come and go.
    let quorum = match command.create {
        true => Quorum::MajorityOfNamed(vec![options.name.clone()]),
        false => Quorum::MajorityOfView,
    };
    let order = command.order.unwrap_or_default().order();
    let slow_member = command.slow_member.unwrap_or(SLOW_MEMBER);
    let config = GroupConfig { slow_member, order, members_min, quorum, ..GroupConfig::default() };
    let leaves = Arc::new(AtomicBool::new(false));
    let begin = |founding| {
        let how = ReplicaOptions { config: config.clone(), ..ReplicaOptions::default() };
        LockService::begin(group, founding, how, options, notices(&leaves))
            .map_err(|error| opening.problem(error, options))
    };
    let present = Present::new(begin(founding)?);
    end_on_interrupt(&present, &leaves)?;
    opening.wait(present.get().replica(), options)?;
    // The group that it joined may lack its founder, and be without a vote for ever.
    while command.create && !goes_on(&present.get(), group, options) {
        opening.tell_of_founding(options);
        present.get().end(Duration::ZERO);
        opening.wait_for_leavers(options);
        present.set(begin(Founding::Create)?);
        opening.wait(present.get().replica(), options)?;
    }
    let service = present.get();
    let foreign = service.clone();
    watch::watch_for_strangers(group, options.key.is_some(), move || foreign.replica().foreign())?;
    introduce(&service, group, options, output);
    match service.replica().wait() {
        ReplicaEnd::Closed => Ok(()),
        end => Err(Problem::failed(end)),
    }
}

/// Gives a process that may found the locks alone the name of its host, if the user gives none: when it is started again its
/// former vote is its own.
fn with_lasting_name(command: &Lock, options: &Options) -> Options {
    let host = Name::new(&rustix::system::uname().nodename().to_string_lossy());
    let lasting = host.filter(|_| command.create && command.name.is_none());
    Options { name: lasting.unwrap_or_else(|| options.name.clone()), ..options.clone() }
}

/// True if the group of this copy carries out commands, or does so within [`RESET_WITHIN`]. A copy that has just entered learns
/// of a halt a moment later than a member tells that asks.
fn goes_on(service: &LockService, group: &str, options: &Options) -> bool {
    let until = Instant::now() + RESET_WITHIN;
    loop {
        let stands_still = unisono::look(group, options, LOOK).is_ok_and(|report| !report.primary);
        match stands_still || service.replica().status().state == ReplicaState::Halted {
            false => return true,
            true if Instant::now() >= until => return false,
            true => thread::sleep(LOOKS_EVERY),
        }
    }
}

fn end_on_interrupt(present: &Present, leaves: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let (present, leaves) = (present.clone(), Arc::clone(leaves));
    signals::on_interrupt(move |_| {
        leaves.store(true, Ordering::Relaxed);
        present.get().end(FAREWELL);
        output::exit(0);
    })
}

/// Returns what prints notices. That this process is missing is none when it leaves in order.
fn notices(leaves: &Arc<AtomicBool>) -> impl Fn(Notice) + Send + use<> {
    let leaves = Arc::clone(leaves);
    move |notice| match notice {
        Notice::BelowMinimum { .. } | Notice::Halted { .. } if leaves.load(Ordering::Relaxed) => {}
        notice => super::tell_notice(&notice),
    }
}

/// Announces that this process keeps the locks.
fn introduce(service: &LockService, group: &str, options: &Options, output: &Output) {
    let (name, members) = (options.name.as_str(), service.replica().status().members.len());
    let several = several(members as u64, "member");
    output.announce(
        format_args!("{} keeps the locks of {}, {several}", visible(name), visible(group)),
        &json!({ "event": "serving", "name": name, "group": group, "members": members }),
    );
}
