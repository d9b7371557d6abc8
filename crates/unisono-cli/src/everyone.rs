//! Asks all members of a group, and says why a group stands still and what to type then.

use crate::connection;
use crate::output::{Output, Tone, quoted, several, visible};
use crate::roster::{self, words_of_floor};
use crate::settings::Settings;
use std::thread::Builder;
use std::time::Duration;
use unisono::{Member, Options, Report, Uid, WaitReason, Waiting};

/// Time for a member to answer: 2 s.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// The same where another member's report can serve instead: 500 ms.
pub(crate) const SHORT_PATIENCE: Duration = Duration::from_millis(500);
/// A reset that has taken this long, 3 s, finds no quorum.
const STANDS_STILL: Duration = Duration::from_secs(3);

/// The reports of all members of a group, and the members that did not answer.
pub(crate) struct Everyone {
    pub(crate) reports: Vec<Report>,
    /// Which key of the key file each member that answered seals with.
    keys: Vec<(Uid, Option<usize>)>,
    pub(crate) silent: Vec<Member>,
    pub(crate) first: Report,
}

/// Queries each member that the first report names: in parallel, as far as the system grants threads.
pub(crate) fn everyone(group: &str, first: &Report, options: &Options, patience: Duration) -> Everyone {
    let ask = |Member { uid, address, .. }: &Member| {
        let answer = unisono::look_with_key_at(group, *address, options, patience).ok();
        answer.filter(|(report, _)| report.reporter == *uid)
    };
    let answers: Vec<Option<(Report, Option<usize>)>> = std::thread::scope(|scope| {
        let begin = |member| (member, Builder::new().spawn_scoped(scope, move || ask(member)));
        let asking: Vec<_> = first.members.iter().map(|report| begin(&report.member)).collect();
        let answers = asking.into_iter().map(|(member, asking)| match asking {
            Ok(asking) => asking.join().ok().flatten(),
            Err(_) => ask(member),
        });
        answers.collect()
    });
    let unanswered = first.members.iter().zip(&answers).filter(|(_, answer)| answer.is_none());
    let silent = unanswered.map(|(member, _)| member.member.clone()).collect();
    let answers = answers.into_iter().flatten();
    let (reports, keys) = answers.map(|(report, key)| (report.clone(), (report.reporter, key))).unzip();
    Everyone { reports, keys, silent, first: first.clone() }
}

impl Everyone {
    /// Returns the first report with the marks that each member reports of itself: those are the latest.
    pub(crate) fn with_own_marks(&self) -> Report {
        let mut report = self.first.clone();
        for member in &mut report.members {
            let uid = member.member.uid;
            let own = self.reports.iter().find(|report| report.reporter == uid);
            if let Some(own) = own.and_then(|own| own.members.iter().find(|member| member.member.uid == uid))
            {
                (member.received, member.delivered) = (own.received, own.delivered);
            }
        }
        report
    }

    /// Returns which key of the key file a member seals with, if it answered and there is a key.
    pub(crate) fn key_of(&self, uid: Uid) -> Option<usize> {
        self.keys.iter().find(|(known, _)| *known == uid)?.1
    }

    /// Prints which members did not answer, and how many were not asked.
    pub(crate) fn tell_silent(&self, output: &Output) -> std::io::Result<()> {
        for member in &self.silent {
            let words = format!("{} ({}) does not answer", called(&self.first, member.uid), member.address);
            output.say(output.tone(Tone::Bad, words))?;
        }
        tell_omitted(&self.first, " members, which were not asked", output)
    }

    /// Returns the command that lets a group without a quorum go on without the members that do not answer, if there are any.
    pub(crate) fn force(&self, group: &str, settings: &Settings) -> Option<String> {
        // A group below its minimum has its quorum: it needs more members, not fewer.
        if self.first.primary || missing_members(&self.first) > 0 || self.silent.is_empty() {
            return None;
        }
        let force = connection::typed("force", group, settings);
        Some(format!("{force} --without {}", quoted(&self.silent_names().join(","))))
    }

    /// Returns the number of members that one of them asks for, if fewer answer and the group stands still.
    pub(crate) fn floor(&self) -> Option<usize> {
        let floor = floor(&self.first);
        let left = self.first.members.len() + self.first.members_omitted - self.silent.len();
        (!self.first.primary && floor > left).then_some(floor)
    }

    pub(crate) fn silent_names(&self) -> Vec<String> {
        self.silent.iter().map(|member| name(&self.first, member.uid)).collect()
    }
}

pub(crate) fn name(report: &Report, uid: Uid) -> String {
    let found = report.members.iter().find(|member| member.member.uid == uid);
    match found.map(|member| member.member.name.as_str()) {
        Some(name) if !name.is_empty() => visible(name).into_owned(),
        _ => uid.to_string(),
    }
}

/// Returns a member's name for people, distinct from that of other members.
pub(crate) fn called(report: &Report, uid: Uid) -> String {
    roster::distinct(&roster_of(report), uid)
}

pub(crate) fn roster_of(report: &Report) -> Vec<Member> {
    report.members.iter().map(|member| member.member.clone()).collect()
}

/// Returns how many members have to go on after a crash, because one of those in the report asks for that many; 0 if none does.
pub(crate) fn floor(report: &Report) -> usize {
    let all = report.members.len() + report.members_omitted;
    report.members.iter().map(|member| member.member.floor.of(all)).max().unwrap_or(0)
}

/// Says which members a group lacks that has no quorum, and what to do.
pub(crate) fn stands_still(group: &str, everyone: &Everyone, why: &str, settings: &Settings) -> String {
    format!("{} stands still: {}", visible(group), reason_to_stand_still(everyone, why, group, settings))
}

fn reason_to_stand_still(everyone: &Everyone, why: &str, group: &str, settings: &Settings) -> String {
    let floor = everyone.floor().map_or_else(String::new, |floor| format!(", and {}", words_of_floor(floor)));
    let Some(force) = everyone.force(group, settings) else {
        return format!("too few of its members reach each other{floor}; `{why}` shows which wait for which");
    };
    let (names, them) = match &everyone.silent[..] {
        [one] => (format!("{} does not answer", called(&everyone.first, one.uid)), "it"),
        several => {
            let names: Vec<String> =
                several.iter().map(|member| called(&everyone.first, member.uid)).collect();
            (format!("{} do not answer", names.join(", ")), "them")
        }
    };
    let are = if them == "it" { "it is" } else { "they are" };
    format!("{names}{floor}: reconnect {them}, or let {them} run on; if {are} dead for ever: `{force}`")
}

/// Says that a group of a service carries out no commands at present, and why, as far as a member says.
pub(crate) fn no_commands(group: &str, options: &Options, settings: &Settings) -> String {
    let why = connection::typed("why", group, settings);
    let asked = unisono::look(group, options, PATIENCE).ok();
    let reason = asked.and_then(|report| match missing_members(&report) {
        0 if report.primary => None,
        0 => {
            let everyone = everyone(group, &report, options, SHORT_PATIENCE);
            Some(reason_to_stand_still(&everyone, &why, group, settings))
        }
        // Members without a vote are not counted, and the report does not tell which those are.
        missing => {
            let lacks = if missing == 1 { "it lacks 1 member" } else { "it lacks members" };
            Some(format!("{lacks} that it needs; start {missing} more (one without a vote does not count)"))
        }
    });
    let reason = reason.unwrap_or_else(|| format!("`{why}` shows which member waits for which"));
    format!("{} carries out no commands at present: {reason}", visible(group))
}

/// Returns the members that do not answer, if the group stands still without them, with the command that lets it go on. `None`
/// while a reset may still find its quorum.
pub(crate) fn halted_without(
    group: &str,
    options: &Options,
    settings: &Settings,
) -> Option<(Vec<Member>, String)> {
    let report = unisono::look(group, options, SHORT_PATIENCE).ok()?;
    let is_reset = |waiting: &Waiting| waiting.reason == WaitReason::Reset && waiting.since >= STANDS_STILL;
    if !report.waiting.iter().any(is_reset) {
        return None;
    }
    let everyone = everyone(group, &report, options, SHORT_PATIENCE);
    let force = everyone.force(group, settings)?;
    Some((everyone.silent, force))
}

/// True if a member of the group takes part in no reset, so that the group admits processes. The first answer may be of a
/// member that is cut off from the others.
pub(crate) fn admits(group: &str, first: &Report, options: &Options) -> bool {
    let is_in_order =
        |report: &Report| report.waiting.iter().all(|waiting| waiting.reason != WaitReason::Reset);
    is_in_order(first) || everyone(group, first, options, SHORT_PATIENCE).reports.iter().any(is_in_order)
}

/// Returns the members of this report that do not answer.
pub(crate) fn silent(group: &str, report: &Report, options: &Options) -> Vec<Member> {
    everyone(group, report, options, SHORT_PATIENCE).silent
}

/// Returns the number of members that the group's minimum lacks.
pub(crate) fn missing_members(report: &Report) -> u64 {
    let one_more = |waiting: &&Waiting| waiting.reason == WaitReason::Minimum;
    report.waiting.iter().filter(one_more).count() as u64
}

/// Says how many members are missing, if the group has fewer than its minimum.
pub(crate) fn below_minimum(report: &Report) -> Option<String> {
    let missing = missing_members(report);
    let members = (report.members.len() + report.members_omitted) as u64;
    (missing > 0).then(|| {
        let needed = members + missing;
        format!("it has {} and needs {needed}; start {missing} more", several(members, "member"))
    })
}

/// Prints how many members the report had no room for.
fn tell_omitted(report: &Report, remark: &str, output: &Output) -> std::io::Result<()> {
    if report.members_omitted > 0 {
        output.say(format_args!("and {} more{remark}", report.members_omitted))?;
    }
    Ok(())
}
