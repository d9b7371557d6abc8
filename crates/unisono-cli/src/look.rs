//! Shows a group without joining it: `members`, `status`, `why`, `stats`, `links`. Any member answers.

use crate::arguments::{Common, order_name};
use crate::claims::Claims;
use crate::connection;
use crate::copies::{self, Copies};
use crate::everyone::{
    Everyone, PATIENCE, SHORT_PATIENCE, below_minimum, called, everyone, floor, missing_members, name,
    roster_of, stands_still,
};
use crate::output::{Output, Tone, rounded, visible};
use crate::problem::Problem;
use crate::progress;
use crate::roster::{self, words_of_floor};
use crate::seeds;
use crate::settings::Settings;
use crate::units;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::{Value, json};
use std::thread::Builder;
use std::time::Duration;
use unisono::rpc::Client;
use unisono::{Counters, Floor, LookError, MemberReport, Options, Order, Report, WaitReason, Waiting};

/// A query that takes less than this, 1 s, prints no progress.
const SHORT_LOOK: Duration = Duration::from_secs(1);
/// Senders that have waited this long for room, 1 s, are reported.
const STALL: Duration = Duration::from_secs(1);

/// Which group to look at, and how often.
#[derive(Args, Debug)]
pub(crate) struct Look {
    /// Name of the group
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    group: String,

    /// Repeat at this interval, such as 500ms or 2s, or a number of seconds, until ctrl-c
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    watch: Option<Duration>,

    #[command(flatten)]
    pub(crate) common: Common,
}

const MEMBERS_HELP: &str = "\
What is shown:
  [ann|2.1f3a90bc] (3) […]  the sequencer and the epoch; the number of members; the members
  rank                      position in the order in which the members joined, from 0
  received                  the member holds everything through this sequence number
  delivered                 its application has received everything through this sequence number
  sequencer                 it assigns the sequence numbers
  token                     the same in a ring (--order token), where the token goes from member to member
  suspected                 it does not answer, or holds the other members up
  floor N                   it asks for at least N members, for the group to go on after a crash (listen --floor)

Example:
  unisono members news --watch 1";

/// List the members of a group, their addresses, and how far each is
#[derive(Args, Debug)]
#[command(after_help = MEMBERS_HELP)]
pub(crate) struct Members {
    #[command(flatten)]
    pub(crate) look: Look,
}

const STATUS_HELP: &str = "\
Exit status:
  0  a member answered, and its group is primary (if senders wait for a slow member, the output says so)
  1  no member answered
  3  a member answered, and its group is not primary

What the words mean:
  [ann|2.1f3a90bc]    the sequencer and the epoch; then the number of members, and the members
  a ring              the members assign the sequence numbers in turn (--order token); the token goes round while
                      there are messages, and rests otherwise
  primary             this part of the group has its quorum, is in no reset and has as many members as its
                      minimum: it orders what is sent here
  accepted through    everything through this sequence number (seqno) survives the loss of as many members as
                      the resilience says
  stable through      every member holds everything through this seqno, as far as the sequencer knows
  resilience          how many members may crash at once without loss: as the founder chose, but not all; to go on,
                      the group needs a quorum besides, by default more than half of its members
  expects seqno       the seqno that the answering member delivers next
  unstable from       the first seqno that it has not received itself
  keeps … entries     messages and membership changes in its history, for retransmission
  under way (window)  its own messages that are not accepted yet, and how many there may be
  locks               of a group that keeps locks (unisono lock): who has each, with its fence, and who is in line
  in this epoch       time since the last reset, or since the member joined

Example:
  unisono status news || echo 'news takes no messages'";

/// Show whether a group has its quorum: exit status 0 if it has, 3 if not
#[derive(Args, Debug)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) look: Look,
}

const WHY_HELP: &str = "\
What members wait for, as text and with --json:
  room in the history     window  senders wait until the application of the named member receives older messages
  an acknowledgement      ack     the message is accepted once the named member acknowledges that it holds it
  missing messages        flush   they were lost on the way, and their retransmission is requested
  the sequencer's role    token   the named member is the new sequencer, and has not begun to act as such; in a ring
                                  it is the next to have the token
  the end of what keeps   rest    in a ring the token rests while the named member joins, leaves, listens or is
  the token at rest               suspected
  the end of a reset      reset   the group goes on once a quorum of its members has agreed on a view
  a lock                  locks   another member has it (unisono lock)
  one more member         minimum the group orders nothing below its minimum; a line for each member that is missing

Example:
  unisono why news";

/// Show which member waits for which, for what, at which sequence number, and for how long
#[derive(Args, Debug)]
#[command(after_help = WHY_HELP)]
pub(crate) struct Why {
    #[command(flatten)]
    pub(crate) look: Look,
}

const STATS_HELP: &str = "\
What each member has counted since it started:
  datagrams sent, received   a multicast counts once, otherwise each copy counts
  malformed                  dropped: not a datagram of this protocol, or damaged
  foreign                    dropped: of a group of this name, but under another key
  replayed                   dropped: received before
  stale                      dropped: of another epoch or founding, or not from a member
  messages sent, delivered   this member's numbered messages; messages of all members
  early                      messages among them that it received before their sequence number was known
  unreliable                 messages without a sequence number that it received (send --quality unreliable)
  nacks sent                 retransmission requests for missing sequence numbers
  repairs sent               sequence numbers retransmitted on request
  resends                    own messages sent again because they got no sequence number
  resets, suspicions         resets survived; members that this one suspected
In a ring (--order token) also:
  passes, null passes        times that it passed the token on; those of a term in which it numbered no message
  rests                      terms in which the token rested at it

A few replayed and stale datagrams are normal.

Example:
  unisono stats news --json --watch 10";

/// Show the counters of each member
#[derive(Args, Debug)]
#[command(after_help = STATS_HELP)]
pub(crate) struct Stats {
    #[command(flatten)]
    pub(crate) look: Look,
}

const LINKS_HELP: &str = "\
One line for each pair of members, in each direction: by multicast if the other member is known to
receive it, otherwise by unicast.

Example:
  unisono links news";

/// Show how each member reaches every other, and when it last received from it
#[derive(Args, Debug)]
#[command(after_help = LINKS_HELP)]
pub(crate) struct Links {
    #[command(flatten)]
    pub(crate) look: Look,
}

/// What to show of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Members,
    Status,
    Why,
    Stats,
    Links,
}

pub(crate) fn run(view: View, look: Look, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let options = connection::options(settings, None)?;
    seeds::warn_of_unresolved(&settings.seeds);
    let Some(interval) = look.watch else {
        let group = look.group.clone();
        let _asking = progress::tell_if_long(SHORT_LOOK, move || format!("asking {} …", visible(&group)));
        return once(view, &look.group, settings, &options, output);
    };
    loop {
        match once(view, &look.group, settings, &options, output) {
            Ok(()) => {}
            Err(unprinted) if unprinted.is::<std::io::Error>() => return Err(unprinted),
            // The group may come back, so keep watching.
            Err(problem) => {
                problem.report();
            }
        }
        std::thread::sleep(interval);
        output.say("")?;
    }
}

fn once(
    view: View,
    group: &str,
    settings: &Settings,
    options: &Options,
    output: &Output,
) -> Result<(), Problem> {
    let report = unisono::look(group, options, PATIENCE).map_err(|error| match error {
        LookError::NoAnswer => {
            // A server of a service on disk may wait in no group.
            if matches!(view, View::Status)
                && let Some(missing) =
                    Client::new(options).ok().and_then(|client| copies::missing(group, &client))
            {
                return Problem::not_primary(copies::waits(group, &missing));
            }
            let asked = connection::asked(settings);
            Problem::failed(format!("{}: {error} (asked {asked})", visible(group)))
        }
        LookError::OtherKey { .. } => Problem::failed(format!("{}: {error}", visible(group))),
        error => error.into(),
    })?;
    match view {
        View::Members => members(group, &everyone(group, &report, options, SHORT_PATIENCE), output)?,
        View::Status => {
            let stall = stall(group, &report, options);
            let why = connection::typed("why", group, settings);
            let copies = Copies::of(group, &roster_of(&report), options);
            let report = with_reason(group, report, options);
            let claims = Claims::of(group, copies.with_state(), options);
            status(group, &report, stall, (&why, &copies, &claims), output)?;
            copies.tell(output)?;
            claims.tell(&|uid| called(&report, uid), output)?;
            if let Some(missing) = copies.missing() {
                return Err(Problem::not_primary(copies::waits(group, &missing)));
            }
            if let Some(words) = below_minimum(&report) {
                return Err(Problem::not_primary(format!("{} stands still: {words}", visible(group))));
            }
            if !report.primary {
                let silent = everyone(group, &report, options, SHORT_PATIENCE);
                return Err(Problem::not_primary(stands_still(group, &silent, &why, settings)));
            }
        }
        View::Why => {
            let (everyone, claims) = std::thread::scope(|scope| {
                let addresses = report.members.iter().map(|member| member.member.address);
                let ask = move || Claims::of(group, addresses, options);
                let asking = Builder::new().spawn_scoped(scope, ask);
                let everyone = everyone(group, &report, options, PATIENCE);
                (everyone, asking.map_or(Claims::None, |asking| asking.join().unwrap_or(Claims::None)))
            });
            why(group, &everyone, &claims, connection::unseen(settings), output)?;
            if let Some(force) = everyone.force(group, settings) {
                let are = if everyone.silent.len() == 1 { "it is" } else { "they are" };
                output.say(format_args!("if {are} dead for ever: `{force}`"))?;
            }
        }
        View::Stats => stats(group, &everyone(group, &report, options, PATIENCE), output)?,
        View::Links => links(group, &everyone(group, &report, options, PATIENCE), output)?,
    }
    Ok(())
}

/// Adds the reason of the last reset to the report, if another member knows it: the members that began the reset do.
fn with_reason(group: &str, mut report: Report, options: &Options) -> Report {
    if let Some(reset) = report.last_reset.filter(|reset| reset.reason.is_none()) {
        let everyone = everyone(group, &report, options, SHORT_PATIENCE);
        let resets = everyone.reports.iter().filter_map(|report| report.last_reset);
        let known = resets.filter(|other| other.seqno == reset.seqno).find(|other| other.reason.is_some());
        report.last_reset = known.or(report.last_reset);
    }
    report
}

/// Returns the wait of senders for room, if it has taken long. Asks the sequencer, which knows.
fn stall(group: &str, report: &Report, options: &Options) -> Option<Waiting> {
    let asked = match report.reporter == report.sequencer {
        true => None,
        false => {
            let sequencer = report.members.iter().find(|member| member.member.uid == report.sequencer)?;
            let address = sequencer.member.address;
            Some(unisono::look_at(group, address, options, SHORT_PATIENCE).ok()?)
        }
    };
    let waiting = &asked.as_ref().unwrap_or(report).waiting;
    let long = |waiting: &&Waiting| waiting.reason == WaitReason::Window && waiting.since >= STALL;
    waiting.iter().find(long).copied()
}

fn view(report: &Report) -> String {
    roster::view(&report.epoch, report.sequencer, &roster_of(report), report.members_omitted)
}

/// Returns the duration for people, with about three digits.
fn words(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1000.0;
    match ms {
        ..10.0 => format!("{ms:.1} ms"),
        ..10_000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.0} s", ms / 1000.0),
    }
}

fn milliseconds(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64() * 1000.0)
}

/// Returns the fields that `members` and `status` have in common.
fn object(group: &str, report: &Report) -> Value {
    let member = |(rank, member): (usize, &MemberReport)| {
        json!({
            "name": member.member.name.as_str(),
            "uid": member.member.uid.to_string(),
            "rank": rank,
            "address": member.member.address.to_string(),
            "received": member.received,
            "delivered": member.delivered,
            "suspected": member.suspected,
            "silent_ms": milliseconds(member.silent),
            "floor": member.member.floor.to_string(),
            "hops": member.member.hops,
        })
    };
    let own = own(report);
    json!({
        "group": group,
        "view": view(report),
        "epoch": report.epoch.to_string(),
        "primary": report.primary,
        "order": order_name(report.order),
        "order_since": report.order_since,
        "orderer": name(report, report.sequencer),
        "term": report.term,
        "resilience": report.resilience,
        "resilience_founded": report.resilience_founded,
        "end": report.end,
        "accepted": report.accepted,
        "stable": report.stable,
        "reporter": name(report, report.reporter),
        "expected": own.map(|own| own.delivered + 1),
        "unstable": own.map(|own| own.received + 1),
        "buffered": report.buffered,
        "window": report.window,
        "under_way": report.under_way,
        "in_epoch_ms": milliseconds(report.in_epoch),
        "last_reset": report.last_reset.map(|reset| json!({
            "seq": reset.seqno,
            "excluded": reset.excluded,
            "degraded": reset.degraded, "forced": reset.forced,
            "reason": reset.reason.map(|reason| format!("{reason:?}").to_lowercase()),
        })),
        "members": report.members.iter().enumerate().map(member).collect::<Vec<_>>(),
        "members_omitted": report.members_omitted,
    })
}

/// True if the token goes round in the group.
fn is_ring(report: &Report) -> bool {
    report.order == Order::Token
}

/// Returns what the reporter says of itself; none if the report had no room for that.
fn own(report: &Report) -> Option<&MemberReport> {
    report.members.iter().find(|member| member.member.uid == report.reporter)
}

/// True if the reporter is the only member.
fn is_of_one(report: &Report) -> bool {
    report.members.len() == 1 && report.members_omitted == 0
}

fn members(group: &str, everyone: &Everyone, output: &Output) -> std::io::Result<()> {
    let report = &everyone.with_own_marks();
    let mut object = object(group, report);
    object["silent"] = everyone.silent_names().into();
    for (shown, member) in object["members"].as_array_mut().into_iter().flatten().zip(&report.members) {
        shown["key"] = everyone.key_of(member.member.uid).into();
    }
    output.object(&object)?;
    output.say(output.tone(Tone::Strong, view(report)))?;
    output.say(format_args!(
        "{:>4}  {:24} {:22} {:>12} {:>12}",
        "rank", "name", "address", "received", "delivered"
    ))?;
    for (rank, member) in report.members.iter().enumerate() {
        let mut remarks = String::new();
        if member.member.uid == report.sequencer {
            remarks += if is_ring(report) { "  token" } else { "  sequencer" };
        }
        if member.suspected {
            remarks += &output.tone(Tone::Bad, "  suspected");
        }
        if member.member.floor != Floor::None {
            remarks += &format!("  floor {}", member.member.floor);
        }
        if let Some(key) = everyone.key_of(member.member.uid).filter(|key| *key > 1) {
            remarks += &format!("  key {key}");
        }
        output.say(format_args!(
            "{rank:>4}  {:24} {:22} {:>12} {:>12}{remarks}",
            called(report, member.member.uid),
            member.member.address.to_string(),
            member.received,
            member.delivered
        ))?;
    }
    everyone.tell_silent(output)
}

fn status(
    group: &str,
    report: &Report,
    stall: Option<Waiting>,
    (why, copies, claims): (&str, &Copies, &Claims),
    output: &Output,
) -> std::io::Result<()> {
    let mut object = object(group, report);
    object["copies"] = copies.object();
    object["locks"] = claims.object(&|uid| name(report, uid));
    object["members_missing"] = missing_members(report).into();
    object["stalled_ms"] = stall.map(|stall| milliseconds(stall.since)).into();
    object["stalled_by"] = stall.and_then(|stall| stall.member).map(|uid| name(report, uid)).into();
    output.object(&object)?;
    let (tone, standing) = if report.primary { (Tone::Good, "primary") } else { (Tone::Bad, "not primary") };
    output.say(format_args!("{}  {}", output.tone(tone, standing), view(report)))?;
    if is_ring(report) {
        output.say(format_args!("a ring: {} has the token", called(report, report.sequencer)))?;
    }
    if let Some(words) = below_minimum(report) {
        output.say(output.tone(Tone::Bad, format_args!("orders nothing: {words}")))?;
    }
    if floor(report) > 0 {
        output
            .say(format_args!("{}, for the group to go on after a crash", words_of_floor(floor(report))))?;
    }
    if let Some(stall) = stall {
        let slow = stall.member.map_or_else(|| "a member".into(), |uid| called(report, uid));
        let words =
            format!("senders have waited {} for room in the history, because of {slow}", words(stall.since));
        output.say(format_args!("{}: see `{why}`", output.tone(Tone::Bad, words)))?;
    }
    output.say(format_args!(
        "accepted through {}, stable through {}, {}",
        report.accepted,
        report.stable,
        resilience(report, copies.servers())
    ))?;
    let next = own(report).map_or_else(String::new, |own| {
        format!("expects seqno {}, unstable from {}, ", own.delivered + 1, own.received + 1)
    });
    output.say(format_args!(
        "{} {next}keeps {} entries, has {} messages of its own under way (window {})",
        called(report, report.reporter),
        report.buffered,
        report.under_way,
        report.window
    ))?;
    let epoch = words(report.in_epoch);
    match report.last_reset {
        None => output.say(format_args!("in this epoch for {epoch}, no reset since it joined")),
        Some(reset) => output.say(format_args!("in this epoch for {epoch}; last reset {reset}")),
    }
}

/// Describes the resilience that the group was founded with, and the present one if too few members reduce it. Of a service
/// on disk, `servers` is the number of its servers.
fn resilience(report: &Report, servers: Option<u8>) -> String {
    let (founded, now) = (report.resilience_founded, report.resilience);
    if let Some(servers) = servers {
        let majority = servers / 2 + 1;
        let held_by = if founded == u8::MAX { "all members" } else { "a majority of the servers" };
        return format!("held by {held_by}; goes on while {majority} of {servers} servers are there");
    }
    match (founded == now, report.members.len() + report.members_omitted) {
        (false, _) if founded == u8::MAX => format!(
            "resilience {now}: held by all members, and not lost while one is left; goes on with a quorum, by default more \
             than half of them"
        ),
        (true, _) => format!("resilience {founded}"),
        (false, 1) => format!("resilience {founded}, reduced to {now} while there is 1 member"),
        (false, members) => {
            format!("resilience {founded}, reduced to {now} while there are {members} members")
        }
    }
}

/// Returns the JSON value of a reason to wait.
fn word(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::Ack => "ack",
        WaitReason::Window => "window",
        WaitReason::Token => "token",
        WaitReason::Rest => "rest",
        WaitReason::Flush => "flush",
        WaitReason::Reset => "reset",
        WaitReason::Minimum => "minimum",
        _ => "other",
    }
}

/// Returns the reason in words.
fn phrase(reason: WaitReason, is_ring: bool) -> &'static str {
    match reason {
        WaitReason::Ack => "an acknowledgement",
        WaitReason::Window => "room in the history",
        WaitReason::Token if is_ring => "the token",
        WaitReason::Token => "the sequencer's role",
        WaitReason::Rest => "the end of what keeps the token at rest",
        WaitReason::Flush => "missing messages",
        WaitReason::Reset => "the end of a reset",
        WaitReason::Minimum => "one more member",
        _ => "a reason that this version does not know",
    }
}

fn why(
    group: &str,
    everyone: &Everyone,
    claims: &Claims,
    unseen: &str,
    output: &Output,
) -> std::io::Result<()> {
    let locks = claims.waits();
    let waiting: Vec<&Waiting> = everyone.reports.iter().flat_map(|report| &report.waiting).collect();
    let omitted: usize = everyone.reports.iter().map(|report| report.waiting_omitted).sum();
    let first = &everyone.first;
    let object = |waiting: &&Waiting| {
        json!({
            "who": name(first, waiting.who),
            "for": word(waiting.reason),
            "member": waiting.member.map(|uid| name(first, uid)),
            "seq": waiting.seqno,
            "since_ms": milliseconds(waiting.since),
        })
    };
    output.object(&json!({
        "group": group,
        "waiting": waiting.iter().map(object).collect::<Vec<_>>(),
        "waiting_omitted": omitted,
        "locks": locks.iter().map(|(lock, who, holder)| {
            json!({"who": name(first, *who), "lock": lock, "holder": name(first, *holder)})
        }).collect::<Vec<_>>(),
        "silent": everyone.silent_names(),
        "members_omitted": first.members_omitted,
    }))?;
    for waiting in &waiting {
        let member = waiting.member.map_or_else(String::new, |uid| format!("{}: ", called(first, uid)));
        output.say(format_args!(
            "{} has waited {} for {member}{} (seqno {})",
            called(first, waiting.who),
            words(waiting.since),
            phrase(waiting.reason, is_ring(first)),
            waiting.seqno
        ))?;
    }
    if omitted > 0 {
        output.say(format_args!("and {omitted} more"))?;
    }
    for (lock, who, holder) in &locks {
        output.say(format_args!(
            "{} waits for the lock {}, which {} has",
            called(first, *who),
            visible(lock),
            called(first, *holder)
        ))?;
    }
    if let Some(floor) = everyone.floor() {
        output.say(words_of_floor(floor))?;
    }
    if waiting.is_empty() && locks.is_empty() {
        output.say("no member is waiting")?;
    }
    if is_of_one(first) {
        output.say(format_args!("{} is the only member; {unseen}", called(first, first.reporter)))?;
    }
    everyone.tell_silent(output)
}

/// Number of counters, the last of [`counted`], that only a ring has.
const RING_COUNTERS: usize = 3;

/// Returns the counters with their names.
fn counted(counters: &Counters) -> [(&'static str, u64); 18] {
    [
        ("datagrams_sent", counters.datagrams_sent),
        ("datagrams_received", counters.datagrams_received),
        ("malformed", counters.malformed),
        ("foreign", counters.foreign),
        ("replayed", counters.replayed),
        ("stale", counters.stale),
        ("messages_sent", counters.messages_sent),
        ("messages_delivered", counters.messages_delivered),
        ("early", counters.early),
        ("unreliable", counters.unreliable),
        ("nacks_sent", counters.nacks_sent),
        ("repairs_sent", counters.repairs_sent),
        ("resends", counters.resends),
        ("resets", counters.resets),
        ("suspicions", counters.suspicions),
        ("passes", counters.passes),
        ("null_passes", counters.null_passes),
        ("rests", counters.rests),
    ]
}

fn stats(group: &str, everyone: &Everyone, output: &Output) -> std::io::Result<()> {
    let first = &everyone.first;
    let object = |report: &Report| {
        let mut object = json!({"name": name(first, report.reporter), "uid": report.reporter.to_string()});
        for (what, count) in counted(&report.counters) {
            object[what] = count.into();
        }
        object
    };
    output.object(&json!({
        "group": group,
        "members": everyone.reports.iter().map(object).collect::<Vec<_>>(),
        "silent": everyone.silent_names(),
        "members_omitted": first.members_omitted,
    }))?;
    let names = everyone.reports.iter().map(|report| format!("{:>16}", called(first, report.reporter)));
    output.say(format_args!("{:24}{}", "", names.collect::<String>()))?;
    let columns: Vec<_> = everyone.reports.iter().map(|report| counted(&report.counters)).collect();
    let rows = counted(&Counters::default());
    let shown = rows.len() - if is_ring(first) { 0 } else { RING_COUNTERS };
    for (row, (what, _)) in rows[..shown].iter().enumerate() {
        let counts = columns.iter().map(|column| format!("{:>16}", column[row].1));
        output.say(format_args!("{:24}{}", what.replace('_', " "), counts.collect::<String>()))?;
    }
    everyone.tell_silent(output)
}

fn links(group: &str, everyone: &Everyone, output: &Output) -> std::io::Result<()> {
    let first = &everyone.first;
    let mut objects = Vec::new();
    for report in &everyone.reports {
        for to in report.members.iter().filter(|member| member.member.uid != report.reporter) {
            let by = if to.multicast { "multicast" } else { "unicast" };
            output.say(format_args!(
                "{} reaches {} ({}) by {by}, last received from it {} ago{}",
                called(first, report.reporter),
                called(first, to.member.uid),
                to.member.address,
                words(to.silent),
                if to.suspected { output.tone(Tone::Bad, ", suspects it") } else { String::new() }
            ))?;
            let (from, to_name) = (name(first, report.reporter), name(first, to.member.uid));
            objects.push(json!({
                "from": from, "to": to_name, "address": to.member.address.to_string(), "by": by,
                "silent_ms": milliseconds(to.silent), "suspected": to.suspected,
            }));
        }
    }
    if is_of_one(first) {
        output.say(format_args!("{} is the only member", name(first, first.reporter)))?;
    }
    output.object(&json!({
        "group": group,
        "links": objects,
        "silent": everyone.silent_names(),
        "members_omitted": first.members_omitted,
    }))?;
    everyone.tell_silent(output)
}
