//! `unisono force`: lets a group that lost its quorum go on without members that are dead.

use crate::arguments::Common;
use crate::connection;
use crate::everyone;
use crate::output::{Output, quoted, several, visible};
use crate::problem::Problem;
use crate::seeds;
use crate::settings::Settings;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::json;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use unisono::{ForceError, ForceFailure, LastReset, Options, Report, Uid};

/// How long a member may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Within 10 s the forced reset ends, or a member does not take part that is not named.
const RESET_PATIENCE: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Let a group that lost its quorum go on without members that are dead
///
/// You vouch that the named members are dead. If one of them lives on where this machine does not reach it, the group
/// may be split for ever.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit status 1 if a named member answers, if one has no such name, or if the group does not stand still; 3 if\nother members do not answer: it names them; name them too if they are dead.\n\nExample:\n  unisono force news --without bob,carol"
)]
pub(crate) struct Force {
    /// Name of the group
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    group: String,

    /// Names or uids of the members that are dead
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    without: Vec<String>,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: Force, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let options = connection::options(settings, None)?;
    seeds::warn_of_unresolved(&settings.seeds);
    let group = &*command.group;
    let report = unisono::look(group, &options, PATIENCE)?;
    let without = uids(&report, &command.without)?;
    let reporter = report.members.iter().find(|member| member.member.uid == report.reporter);
    let Some(reporter) = reporter.map(|member| member.member.address) else {
        return Err(Problem::failed("the member that answered is not in its own view: try again"));
    };
    unisono::force(group, reporter, &without, &options, PATIENCE).map_err(|failure| match failure {
        ForceFailure::Refused(ForceError::Answers(uid)) => {
            Problem::failed(answers(group, &report, uid, &options))
        }
        ForceFailure::Look(error) => error.into(),
        failure => Problem::failed(failure),
    })?;
    let Some(Forced { members, missing, reset }) = outcome(group, reporter, &report, &options)? else {
        return Err(Problem::not_primary(stands_still(&command, &report, &without, settings, &options)));
    };
    let asked = everyone::floor(&report) as u64;
    let below = match missing {
        0 if asked > members => format!(", below the floor of {asked}"),
        0 => String::new(),
        missing => format!("; it orders nothing until {} members are there", members + missing),
    };
    output.say(format_args!(
        "goes on with {} from place {} on{below}",
        several(members, "member"),
        reset.seqno
    ))?;
    output.object(&json!({
        "command": "force", "group": group, "members": members, "members_missing": missing, "seq": reset.seqno,
    }))?;
    Ok(())
}

/// Returns the uids of the members with these names. Of several of one name, those that are silent are meant.
fn uids(report: &Report, names: &[String]) -> Result<Vec<Uid>, Problem> {
    let mut uids = Vec::new();
    for name in names {
        let is_meant = |uid: Uid, its: &str| its == name || uid.to_string() == *name;
        let mut meant: Vec<_> = report
            .members
            .iter()
            .filter(|member| is_meant(member.member.uid, member.member.name.as_str()))
            .collect();
        if meant.is_empty() {
            let name = visible(name);
            return Err(Problem::failed(format!("{name} is not a member: `unisono members` lists them")));
        }
        let is_silent =
            |uid: Uid, silent: Duration| uid != report.reporter && silent >= Duration::from_secs(1);
        if meant.iter().any(|member| is_silent(member.member.uid, member.silent)) {
            meant.retain(|member| is_silent(member.member.uid, member.silent));
        }
        uids.extend(meant.iter().map(|member| member.member.uid));
    }
    uids.sort_unstable();
    uids.dedup();
    Ok(uids)
}

fn name(report: &Report, uid: Uid) -> String {
    let member = report.members.iter().find(|member| member.member.uid == uid);
    member.map_or_else(|| uid.to_string(), |member| visible(member.member.name.as_str()).into_owned())
}

/// Says that a member which is to be left out answers.
fn answers(group: &str, report: &Report, uid: Uid, options: &Options) -> String {
    let name = name(report, uid);
    // A process that is entering the group answers probes, and no questions.
    if everyone::silent(group, report, options).iter().any(|member| member.uid == uid) {
        return format!(
            "{name} was heard a moment ago, and answers no question: it died just now, or is still entering the group; try again in \
             2 s, or stop it"
        );
    }
    format!("{name} answers: a group can go on only without members that are dead")
}

/// A group that goes on after a forced reset.
struct Forced {
    members: u64,
    /// Number of members that it lacks to order anything.
    missing: u64,
    reset: LastReset,
}

/// Says which members the group still lacks, and what to type.
fn stands_still(
    command: &Force,
    report: &Report,
    without: &[Uid],
    settings: &Settings,
    options: &Options,
) -> String {
    let mut silent = everyone::silent(&command.group, report, options);
    silent.retain(|member| !without.contains(&member.uid));
    let names: Vec<String> = silent.iter().map(|member| name(report, member.uid)).collect();
    let (do_not, them, are) = match names.len() {
        0 => {
            let why = connection::typed("why", &command.group, settings);
            return format!("the group still stands still: `{why}` shows which member waits for which");
        }
        1 => ("does not", "it", "it is"),
        _ => ("do not", "them", "they are"),
    };
    let all: Vec<&str> = command.without.iter().chain(&names).map(String::as_str).collect();
    format!(
        "the group still stands still: {} {do_not} answer either; name {them} too if {are} dead or gone: `{} --without {}`",
        names.join(", "),
        connection::typed("force", &command.group, settings),
        quoted(&all.join(","))
    )
}

/// Waits for the end of the reset; `None` if it takes too long.
fn outcome(
    group: &str,
    member: SocketAddr,
    before: &Report,
    options: &Options,
) -> Result<Option<Forced>, Problem> {
    let begin = Instant::now();
    while begin.elapsed() < RESET_PATIENCE {
        if let Ok(report) = unisono::look_at(group, member, options, PATIENCE)
            && report.epoch.counter > before.epoch.counter
            && let Some(reset) = report.last_reset
        {
            if !reset.forced {
                return Err(Problem::failed(
                    "the group goes on by itself: members answered that were silent",
                ));
            }
            let members = (report.members.len() + report.members_omitted) as u64;
            return Ok(Some(Forced { members, missing: everyone::missing_members(&report), reset }));
        }
        std::thread::sleep(ASK_EVERY);
    }
    Ok(None)
}
