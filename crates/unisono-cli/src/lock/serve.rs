//! `unisono lock GROUP --serve`: keeps the locks of a group together with other processes.

use super::{FAREWELL, Lock};
use crate::connection;
use crate::opening::{Opening, WhileHalted};
use crate::output::{self, Output, several, visible};
use crate::problem::Problem;
use crate::settings::Settings;
use crate::signals;
use crate::watch;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use unisono::locks::LockService;
use unisono::replica::{Notice, ReplicaEnd, ReplicaOptions};
use unisono::{GroupConfig, Options, Quorum, SlowMember};

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
    let how = ReplicaOptions { config, ..ReplicaOptions::default() };
    let leaves = Arc::new(AtomicBool::new(false));
    let service = LockService::begin(group, founding, how, options, notices(&leaves))
        .map_err(|error| opening.problem(error, options))?;
    let interrupted = service.clone();
    signals::on_interrupt(move |_| {
        leaves.store(true, Ordering::Relaxed);
        interrupted.end(FAREWELL);
        output::exit(0);
    })?;
    opening.wait(service.replica(), options)?;
    let foreign = service.clone();
    watch::watch_for_strangers(group, options.key.is_some(), move || foreign.replica().foreign())?;
    introduce(&service, group, options, output);
    match service.replica().wait() {
        ReplicaEnd::Closed => Ok(()),
        end => Err(Problem::failed(end)),
    }
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
