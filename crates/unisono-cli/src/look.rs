//! Looking at a group from outside: `members`, `status`, `why`, `stats`, `links`. Any member answers; nobody joins.

use crate::arguments::Common;
use crate::connection;
use crate::output::{Output, Tone, rounded, visible};
use crate::problem::Problem;
use crate::progress;
use crate::roster;
use crate::seeds;
use crate::settings::Settings;
use crate::units;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::{Value, json};
use std::thread::Builder;
use std::time::Duration;
use unisono::{Counters, LookError, Member, MemberReport, Options, Report, Uid, WaitReason, Waiting};

/// How long a member may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same where another one's word will do.
const SHORT_PATIENCE: Duration = Duration::from_millis(500);

/// Nobody is told of a look that takes no longer.
const SHORT_LOOK: Duration = Duration::from_secs(1);
/// Senders that wait for room so long are worth a word.
const STALL: Duration = Duration::from_secs(1);

/// Which group to look at, and how often.
#[derive(Args, Debug)]
pub(crate) struct Look {
    /// Name of the group
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    group: String,

    /// Look again and again at this interval, such as 500ms or 2s, or a number of seconds, until ctrl-c
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    watch: Option<Duration>,

    #[command(flatten)]
    pub(crate) common: Common,
}

const MEMBERS_HELP: &str = "\
What is shown:
  [ann|2.1f3a90bc] (3) […]  who orders, and in which epoch (counted by resets); how many members; who they are
  rank                      counted from 0, in the order in which they came in
  received                  the member holds everything up to this place
  delivered                 its application has taken everything up to this place
  orders                    it gives the messages their places
  suspected                 it does not answer, or holds everybody up

Example:
  unisono members news --watch 1";

/// List the members of a group: who is where, and how far
#[derive(Args, Debug)]
#[command(after_help = MEMBERS_HELP)]
pub(crate) struct Members {
    #[command(flatten)]
    pub(crate) look: Look,
}

const STATUS_HELP: &str = "\
Exit status:
  0  a member answered, and its group is primary; messages may all the same wait for a slow member, which is told of
  1  no member answered
  3  a member answered, and its group is not primary

What the words mean:
  [ann|2.1f3a90bc]    who orders, and in which epoch (counted by resets); then how many members, and who they are
  primary             this part of the group has its quorum and is in no reset: what is sent here gets its place
  accepted through    up to this place all is safe: no loss of as many members as the resilience says takes it back
  held by everybody   up to this place nobody lacks anything, as far as the sequencer knows
  resilience          how many members may crash at once without loss: as the founder chose, but not the last one
  expects place       what the member that answered delivers next
  unstable from       the first place that it has not received itself
  keeps … for others  messages and changes in its history, for whoever may still ask for them
  under way (window)  messages of its own that are not accepted yet, and how many there may be
  in this epoch       since the last reset, or since it came in

Example:
  unisono status news || echo 'news stands still'";

/// Tell whether a group has its quorum: exit status 0 if so, 3 if not
#[derive(Args, Debug)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) look: Look,
}

const WHY_HELP: &str = "\
What members wait for, in words and with --json:
  room in the history     window  senders wait until this member's application has taken older messages
  an acknowledgement      ack     the message is accepted once this member says that it holds it
  missing messages        flush   they were lost on the way, and are asked for again
  the role to be taken    token   this member has been named to order, and was not heard to do so
  the end of a reset      reset   the group goes on when enough of its members have agreed who goes on

Example:
  unisono why news";

/// Name the member and the place that anyone waits for, and since when
#[derive(Args, Debug)]
#[command(after_help = WHY_HELP)]
pub(crate) struct Why {
    #[command(flatten)]
    pub(crate) look: Look,
}

const STATS_HELP: &str = "\
What is counted, since each member began:
  datagrams sent, received   a multicast counts once, otherwise each copy
  malformed                  dropped: not ours, or damaged
  foreign                    dropped: of a group of this name, but under another key
  replayed                   dropped: came before
  stale                      dropped: of another epoch or founding, or from a stranger
  messages sent, delivered   this member's own with a place; those of all
  nacks sent                 requests for places that were lost on the way
  repairs sent               places sent again because somebody asked
  resends                    own messages sent again because no place came back
  resets, suspicions         recoveries lived through; members that this one took for dead

A few replayed and stale datagrams are no trouble.

Example:
  unisono stats news --json --watch 10";

/// Show what each member has counted
#[derive(Args, Debug)]
#[command(after_help = STATS_HELP)]
pub(crate) struct Stats {
    #[command(flatten)]
    pub(crate) look: Look,
}

const LINKS_HELP: &str = "\
A line for each member and each other one: by multicast if the other is seen to hear it, by unicast
if it gets a datagram of its own.

Example:
  unisono links news";

/// Show how each member reaches each other one, and when it last heard it
#[derive(Args, Debug)]
#[command(after_help = LINKS_HELP)]
pub(crate) struct Links {
    #[command(flatten)]
    pub(crate) look: Look,
}

/// What of a group to show.
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
        let _asking = progress::tell_if_long(SHORT_LOOK, format!("asking {} …", visible(&look.group)));
        return once(view, &look.group, settings, &options, output);
    };
    loop {
        match once(view, &look.group, settings, &options, output) {
            Ok(()) => {}
            Err(unprinted) if unprinted.is::<std::io::Error>() => return Err(unprinted),
            // The group may come back: a person who watches wants to see that, too.
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
            status(group, &with_reason(group, report.clone(), options), stall, &why, output)?;
            if !report.primary {
                return Err(Problem::not_primary(format!(
                    "{group} stands still: too few of its members reach each other; `{why}` names who is waited for"
                )));
            }
        }
        View::Why => {
            why(group, &everyone(group, &report, options, PATIENCE), connection::unseen(settings), output)?;
        }
        View::Stats => stats(group, &everyone(group, &report, options, PATIENCE), output)?,
        View::Links => links(group, &everyone(group, &report, options, PATIENCE), output)?,
    }
    Ok(())
}

/// The report with the reason of its last reset, if another member knows it: those who began it do.
fn with_reason(group: &str, mut report: Report, options: &Options) -> Report {
    if let Some(reset) = report.last_reset.filter(|reset| reset.reason.is_none()) {
        let everyone = everyone(group, &report, options, SHORT_PATIENCE);
        let told = everyone.reports.iter().filter_map(|report| report.last_reset);
        let known = told.filter(|told| told.seqno == reset.seqno).find(|told| told.reason.is_some());
        report.last_reset = known.or(report.last_reset);
    }
    report
}

/// For whom senders have been waiting for a while. The sequencer knows.
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

/// What every member of a group says, and who did not answer.
struct Everyone {
    reports: Vec<Report>,
    silent: Vec<Member>,
    first: Report,
}

/// Asks each member that the first report names: all at once, as far as the system grants threads.
fn everyone(group: &str, first: &Report, options: &Options, patience: Duration) -> Everyone {
    let ask = |Member { uid, address, .. }: &Member| {
        let report = unisono::look_at(group, *address, options, patience).ok();
        report.filter(|report| report.reporter == *uid)
    };
    let answers: Vec<Option<Report>> = std::thread::scope(|scope| {
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
    Everyone { reports: answers.into_iter().flatten().collect(), silent, first: first.clone() }
}

impl Everyone {
    /// The first report with what each member says of itself: others know only what it had to tell them.
    fn in_their_own_words(&self) -> Report {
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

    /// Tells people who did not answer, and how many were not asked.
    fn tell_silent(&self, output: &Output) -> std::io::Result<()> {
        for member in &self.silent {
            let words = format!("{} ({}) does not answer", called(&self.first, member.uid), member.address);
            output.say(output.tone(Tone::Bad, words))?;
        }
        tell_omitted(&self.first, " members, which were not asked", output)
    }

    fn silent_names(&self) -> Vec<String> {
        self.silent.iter().map(|member| name(&self.first, member.uid)).collect()
    }
}

fn name(report: &Report, uid: Uid) -> String {
    let found = report.members.iter().find(|member| member.member.uid == uid);
    match found.map(|member| member.member.name.as_str()) {
        Some(name) if !name.is_empty() => visible(name).into_owned(),
        _ => uid.to_string(),
    }
}

/// The same for people, who are to know which one of two is meant.
fn called(report: &Report, uid: Uid) -> String {
    roster::distinct(&roster_of(report), uid)
}

fn roster_of(report: &Report) -> Vec<Member> {
    report.members.iter().map(|member| member.member.clone()).collect()
}

fn view(report: &Report) -> String {
    roster::view(&report.epoch, report.sequencer, &roster_of(report), report.members_omitted)
}

/// For people: three digits say enough.
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

/// The object that `members` and `status` have in common.
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
        })
    };
    let own = own(report);
    json!({
        "group": group,
        "view": view(report),
        "epoch": report.epoch.to_string(),
        "primary": report.primary,
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

/// What the reporter says of itself, if there was room for it.
fn own(report: &Report) -> Option<&MemberReport> {
    report.members.iter().find(|member| member.member.uid == report.reporter)
}

/// The reporter is the only member.
fn is_of_one(report: &Report) -> bool {
    report.members.len() == 1 && report.members_omitted == 0
}

/// Tells people how many more members there are than a report has room for.
fn tell_omitted(report: &Report, remark: &str, output: &Output) -> std::io::Result<()> {
    if report.members_omitted > 0 {
        output.say(format_args!("and {} more{remark}", report.members_omitted))?;
    }
    Ok(())
}

fn members(group: &str, everyone: &Everyone, output: &Output) -> std::io::Result<()> {
    let report = &everyone.in_their_own_words();
    let mut object = object(group, report);
    object["silent"] = everyone.silent_names().into();
    output.object(&object)?;
    output.say(output.tone(Tone::Strong, view(report)))?;
    output.say(format_args!(
        "{:>4}  {:24} {:22} {:>12} {:>12}",
        "rank", "name", "address", "received", "delivered"
    ))?;
    for (rank, member) in report.members.iter().enumerate() {
        let mut remarks = String::new();
        if member.member.uid == report.sequencer {
            remarks += "  orders";
        }
        if member.suspected {
            remarks += &output.tone(Tone::Bad, "  suspected");
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
    why: &str,
    output: &Output,
) -> std::io::Result<()> {
    let mut object = object(group, report);
    object["stalled_ms"] = stall.map(|stall| milliseconds(stall.since)).into();
    object["stalled_by"] = stall.and_then(|stall| stall.member).map(|uid| name(report, uid)).into();
    output.object(&object)?;
    let (tone, standing) = if report.primary { (Tone::Good, "primary") } else { (Tone::Bad, "not primary") };
    output.say(format_args!("{}  {}", output.tone(tone, standing), view(report)))?;
    if let Some(stall) = stall {
        let slow = stall.member.map_or_else(|| "a member".into(), |uid| called(report, uid));
        let words = format!("senders wait for room because of {slow}, for {}", words(stall.since));
        output.say(format_args!("{}: see `{why}`", output.tone(Tone::Bad, words)))?;
    }
    output.say(format_args!(
        "accepted through {}, held by everybody through {}, {}",
        report.accepted,
        report.stable,
        resilience(report)
    ))?;
    let next = own(report).map_or_else(String::new, |own| {
        format!("expects place {}, unstable from {}, ", own.delivered + 1, own.received + 1)
    });
    output.say(format_args!(
        "{} {next}keeps {} for others, has {} messages of its own under way (window {})",
        called(report, report.reporter),
        report.buffered,
        report.under_way,
        report.window
    ))?;
    let epoch = words(report.in_epoch);
    match report.last_reset {
        None => output.say(format_args!("in this epoch for {epoch}, no reset since it is in")),
        Some(reset) => output.say(format_args!("in this epoch for {epoch}; last reset {reset}")),
    }
}

/// What the group was founded with, and what its members allow of that.
fn resilience(report: &Report) -> String {
    let (founded, now) = (report.resilience_founded, report.resilience);
    match (founded == now, report.members.len() + report.members_omitted) {
        (true, _) => format!("resilience {founded}"),
        (false, 1) => format!("resilience {founded}, {now} as long as there is 1 member"),
        (false, members) => format!("resilience {founded}, {now} as long as there are {members} members"),
    }
}

/// What is waited for, in a word.
fn word(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::Ack => "ack",
        WaitReason::Window => "window",
        WaitReason::Token => "token",
        WaitReason::Flush => "flush",
        WaitReason::Reset => "reset",
        _ => "other",
    }
}

/// The same in words.
fn phrase(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::Ack => "an acknowledgement",
        WaitReason::Window => "room in the history",
        WaitReason::Token => "the role to be taken",
        WaitReason::Flush => "missing messages",
        WaitReason::Reset => "the end of a reset",
        _ => "something that this version has no words for",
    }
}

fn why(group: &str, everyone: &Everyone, unseen: &str, output: &Output) -> std::io::Result<()> {
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
        "silent": everyone.silent_names(),
        "members_omitted": first.members_omitted,
    }))?;
    for waiting in &waiting {
        let whom = waiting.member.map_or_else(String::new, |uid| format!(" from {}", called(first, uid)));
        output.say(format_args!(
            "{} waits for {}{whom} at {}, for {}",
            called(first, waiting.who),
            phrase(waiting.reason),
            waiting.seqno,
            words(waiting.since)
        ))?;
    }
    if omitted > 0 {
        output.say(format_args!("and {omitted} more"))?;
    }
    if waiting.is_empty() {
        output.say("nobody waits for anybody")?;
    }
    if is_of_one(first) {
        output.say(format_args!("{} is alone in the group; {unseen}", called(first, first.reporter)))?;
    }
    everyone.tell_silent(output)
}

/// The counters by name.
fn counted(counters: &Counters) -> [(&'static str, u64); 13] {
    [
        ("datagrams_sent", counters.datagrams_sent),
        ("datagrams_received", counters.datagrams_received),
        ("malformed", counters.malformed),
        ("foreign", counters.foreign),
        ("replayed", counters.replayed),
        ("stale", counters.stale),
        ("messages_sent", counters.messages_sent),
        ("messages_delivered", counters.messages_delivered),
        ("nacks_sent", counters.nacks_sent),
        ("repairs_sent", counters.repairs_sent),
        ("resends", counters.resends),
        ("resets", counters.resets),
        ("suspicions", counters.suspicions),
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
    for (row, (what, _)) in counted(&Counters::default()).iter().enumerate() {
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
                "{} reaches {} ({}) by {by}, heard it {} ago{}",
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
        output.say(format_args!("{} is alone in the group", name(first, first.reporter)))?;
    }
    output.object(&json!({
        "group": group,
        "links": objects,
        "silent": everyone.silent_names(),
        "members_omitted": first.members_omitted,
    }))?;
    everyone.tell_silent(output)
}
