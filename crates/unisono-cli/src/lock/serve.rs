//! `unisono lock GROUP --serve`: keeps the locks of a group together with other processes.

use super::{FAREWELL, Lock, Present};
use crate::connection;
use crate::form;
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
use unisono::{GroupConfig, Name, Options, Quorum, Report, SlowMember};

/// What happens to a slow member by default: after 10 s the others go on without it.
const SLOW_MEMBER: SlowMember = SlowMember::ExcludeAfter(Duration::from_secs(10));

pub(super) fn run(
    command: &Lock,
    settings: &Settings,
    options: &Options,
    output: &Output,
) -> Result<(), Problem> {
    let group = &*command.group;
    check(command, settings)?;
    let formation = match command.form.is_given() {
        true => command.form.founding(GroupConfig::default(), command.name.as_deref())?.formation,
        false => None,
    };
    connection::warn_of_no_key(options);
    connection::tell_of_no_address(options);
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
    let lasting = with_lasting_name(command, options);
    let (founding, members_min) = opening.founding_unless_there(&lasting)?;
    let options = match founding {
        Founding::Join if has_live_namesake(group, &lasting, settings) => options,
        _ => &lasting,
    };
    let config = config(command, &options.name, members_min);
    let leaves = Arc::new(AtomicBool::new(false));
    let begin = |founding| {
        let how = ReplicaOptions { config: config.clone(), ..ReplicaOptions::default() };
        LockService::begin(group, founding, how, options, notices(&leaves))
            .map_err(|error| opening.problem(error, options))
    };
    let service = enter(&opening, options, founding, begin, &leaves)?;
    let foreign = service.clone();
    watch::watch_for_strangers(group, options.key.is_some(), move || foreign.replica().foreign())?;
    introduce(&service, group, options, output);
    match service.replica().wait() {
        ReplicaEnd::Closed => Ok(()),
        end => Err(Problem::failed(end)),
    }
}

fn check(command: &Lock, settings: &Settings) -> Result<(), Problem> {
    if !command.create && !command.form.is_given() {
        return Err(Problem::usage(format!(
            "--serve needs --form or --create: {}",
            super::advice(&command.group, settings)
        )));
    }
    if command.slow_member == Some(SlowMember::Wait) {
        return Err(Problem::usage("locks do not wait for a slow member: give --slow-member a time"));
    }
    Ok(())
}

/// Returns the properties of the group if this process, with this name, founds it. Only processes that keep the locks count in a
/// quorum: processes that hold locks come and go.
fn config(command: &Lock, name: &Name, members_min: u16) -> GroupConfig {
    let quorum = match command.create {
        true => Quorum::MajorityOfNamed(vec![name.clone()]),
        false => Quorum::MajorityOfView,
    };
    let order = command.order.unwrap_or_default().order();
    let slow_member = command.slow_member.unwrap_or(SLOW_MEMBER);
    GroupConfig { slow_member, order, members_min, quorum, ..GroupConfig::default() }
}

/// Begins to keep the locks, and waits until they are here. A process of `--create` that entered a group without its founder leaves it:
/// it has no vote there, or is not admitted, for ever.
fn enter(
    opening: &Opening<'_>,
    options: &Options,
    founding: Founding,
    begin: impl Fn(Founding) -> Result<LockService, Problem>,
    leaves: &Arc<AtomicBool>,
) -> Result<LockService, Problem> {
    let present = Present::new(begin(founding.clone())?);
    end_on_interrupt(&present, leaves)?;
    let opened = opening.wait(present.get().replica(), options);
    let may_found = opening.create && founding == Founding::Join && !leaves.load(Ordering::Relaxed);
    let founding = match opened {
        Err(_) if may_found => opening.founding_alone(options)?,
        Ok(()) if may_found && stays_halted(&present.get(), opening.name, options) => {
            present.get().end(FAREWELL);
            opening.founding_after_leavers(options)?
        }
        opened => return opened.map(|()| present.get()),
    };
    present.set(begin(founding)?);
    opening.wait(present.get().replica(), options)?;
    Ok(present.get())
}

/// Gives a process that may found the locks alone the name of its host, if the user gives none: when it is started again its
/// former vote is its own.
fn with_lasting_name(command: &Lock, options: &Options) -> Options {
    let host = Name::new(&rustix::system::uname().nodename().to_string_lossy());
    let lasting = host.filter(|_| command.create && command.name.is_none());
    Options { name: lasting.unwrap_or_else(|| options.name.clone()), ..options.clone() }
}

/// True if the group of this copy carries out no commands for [`RESET_WITHIN`]. A member that is asked tells it a moment before the
/// copy that has just entered learns it.
fn stays_halted(service: &LockService, group: &str, options: &Options) -> bool {
    let until = Instant::now() + RESET_WITHIN;
    loop {
        let replica = service.replica();
        let is_own =
            |report: &Report| report.members.iter().any(|report| Some(report.member.uid) == replica.me());
        let asked = unisono::look(group, options, LOOK).ok().filter(is_own);
        let is_halted = replica.status().state == ReplicaState::Halted;
        match is_halted || asked.is_some_and(|report| !report.primary) {
            false => return false,
            true if Instant::now() >= until => return true,
            true => thread::sleep(LOOKS_EVERY),
        }
    }
}

/// True if a process that has the name of this host already answers in the group.
fn has_live_namesake(group: &str, options: &Options, settings: &Settings) -> bool {
    form::namesake(group, options, settings).is_some_and(|namesake| !namesake.is_of_halted)
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
