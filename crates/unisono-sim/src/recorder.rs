//! The recorder receives every record of a run. It passes the records to the checkers, adds them to the fingerprint,
//! counts them, and writes the trace if there is one.

use crate::properties::{Checkers, Violation};
use crate::record::{CallOutcome, End, Fingerprint, Life, Names, Record, Reset, What};
use std::io::Write;
use unisono_core::{Destination, EpochId, Event, Info, Instance, Outcome, Seqno, Time, Uid};

/// Totals of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Messages whose senders learned their seqno.
    pub(crate) messages: u64,
    /// Messages that applications received before their seqno.
    pub(crate) early: u64,
    /// Messages that members put before a reset event because one had delivered them early, each counted at every member.
    pub(crate) tails: u64,
    /// Unreliable messages that applications received.
    pub(crate) unreliable: u64,
    /// Calls that were answered.
    pub(crate) calls: u64,
    /// Epochs that began with a reset.
    pub(crate) resets: u64,
    /// Switches of the order that the member which numbered them received.
    pub(crate) switches: u64,
    /// Times that a member passed its group's token on.
    pub(crate) passes: u64,
    /// Locks that members of replicated services got.
    pub(crate) locks: u64,
    /// Members and joiners that crashed.
    pub(crate) crashes: u64,
    /// Number of partitions.
    pub(crate) partitions: u64,
    /// Datagrams sent; a multicast counts once.
    pub(crate) datagrams: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Totals) {
        self.messages += other.messages;
        self.early += other.early;
        self.tails += other.tails;
        self.unreliable += other.unreliable;
        self.calls += other.calls;
        self.resets += other.resets;
        self.switches += other.switches;
        self.passes += other.passes;
        self.locks += other.locks;
        self.crashes += other.crashes;
        self.partitions += other.partitions;
        self.datagrams += other.datagrams;
    }
}

/// The latest view of each group that any member was in, including members that crashed before they could report it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LatestViews(Vec<LatestView>);

#[derive(Clone, Debug)]
struct LatestView {
    group: Instance,
    /// Counter of the view's epoch, and the seqno from which the view holds; `None` before the first view.
    since: Option<(u64, Seqno)>,
    members: Vec<Uid>,
}

impl LatestViews {
    fn of(&mut self, group: Instance) -> &mut LatestView {
        let place = self.0.iter().position(|view| view.group == group).unwrap_or_else(|| {
            self.0.push(LatestView { group, since: None, members: Vec::new() });
            self.0.len() - 1
        });
        &mut self.0[place]
    }

    /// Returns the views of groups that have not been given up and whose last member has not left.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[Uid]> {
        self.0.iter().map(|view| &*view.members).filter(|members| !members.is_empty())
    }

    /// True if the last member of this group has left. Members that lag behind receive nothing more from it.
    pub(crate) fn has_ended(&self, group: Instance) -> bool {
        self.0.iter().any(|view| view.group == group && view.since.is_some() && view.members.is_empty())
    }

    /// Notes that a member has entered an epoch.
    pub(crate) fn enter(&mut self, info: &Info) {
        let since = Some((info.epoch.counter, info.unstable.saturating_sub(1)));
        let latest = self.of(info.instance);
        if since > latest.since {
            latest.since = since;
            latest.members = info.members.iter().map(|member| member.uid).collect();
        }
    }

    /// Notes that a founder that was alone in this group has given it up.
    pub(crate) fn give_up(&mut self, group: Instance) {
        self.of(group).members.clear();
    }

    /// Notes a join or leave that was delivered to a member whose epoch has this counter.
    pub(crate) fn change(&mut self, group: Instance, counter: u64, event: &Event) {
        let (Event::Joined { seqno, member, .. } | Event::Left { seqno, member, .. }) = event else { return };
        let since = Some((counter, *seqno));
        let latest = self.of(group);
        if since > latest.since {
            latest.since = since;
            latest.members.retain(|uid| *uid != member.uid);
            if matches!(event, Event::Joined { .. }) {
                latest.members.push(member.uid);
            }
        }
    }
}

/// Receives all records of a run.
pub(crate) struct Recorder {
    pub(crate) names: Names,
    pub(crate) totals: Totals,
    pub(crate) latest_views: LatestViews,
    /// Members that crashed, or were stopped while other members still needed them.
    pub(crate) crashed: Vec<Uid>,
    /// Joiners that gave up, and when. A sequencer that has not noticed it may still number them in.
    joins_failed: Vec<(Uid, u64)>,
    checkers: Checkers,
    fingerprint: Fingerprint,
    violation: Option<Violation>,
    /// Epochs that at least one member has entered, by index.
    entered: Vec<bool>,
    trace: Option<Box<dyn Write>>,
}

impl Recorder {
    pub(crate) fn new(mut checkers: Checkers, trace: Option<Box<dyn Write>>) -> Recorder {
        if trace.is_some() {
            // In a trace each violation must follow the record that shows it.
            checkers.check_at_once();
        }
        Recorder {
            names: Names::default(),
            totals: Totals::default(),
            latest_views: LatestViews::default(),
            crashed: Vec::new(),
            joins_failed: Vec::new(),
            checkers,
            fingerprint: Fingerprint::default(),
            violation: None,
            entered: Vec::new(),
            trace,
        }
    }

    /// Notes that a joiner gave up. Its join may be in the order: members that wait for it treat it as crashed.
    pub(crate) fn note_join_failed(&mut self, now: u64, joiner: Uid) {
        self.crashed.push(joiner);
        self.joins_failed.push((joiner, now));
    }

    /// Returns the joiners that gave up since this time.
    pub(crate) fn joins_failed_since(&self, since: u64) -> impl Iterator<Item = Uid> {
        self.joins_failed.iter().filter(move |(_, at)| *at >= since).map(|(uid, _)| *uid)
    }

    /// Records `what` at the world's time `now`. Inlined, so that each caller is compiled for its kind of record.
    #[inline(always)]
    pub(crate) fn note(&mut self, now: u64, process: usize, life: Life, what: What) {
        let record = Record { at: Time::from_nanos(now), process: process as u32, life, what };
        self.fingerprint.add(&record);
        self.pass(record);
    }

    /// Records something else that happened with the next record, and that the fingerprint covers with that one.
    #[inline(always)]
    pub(crate) fn note_with_next(&mut self, now: u64, process: usize, life: Life, what: What) {
        self.pass(Record { at: Time::from_nanos(now), process: process as u32, life, what });
    }

    /// Records what a checker needs and the fingerprint leaves out: it says nothing of what members sent or did.
    pub(crate) fn note_for_checkers(&mut self, now: u64, process: usize, life: Life, what: What) {
        self.pass(Record { at: Time::from_nanos(now), process: process as u32, life, what });
    }

    #[inline(always)]
    fn pass(&mut self, record: Record) {
        match &record.what {
            What::SendResult { outcome: Outcome::Ok { .. }, .. } => self.totals.messages += 1,
            What::CallEnded { outcome: CallOutcome::Replied { .. }, .. } => self.totals.calls += 1,
            What::Reset(reset) => self.count_reset(reset),
            _ => {}
        }
        if self.checkers.push(record) {
            self.check_batch();
        }
    }

    /// Traces the latest record, if there is a trace, and runs the checkers on all records not checked yet.
    #[inline(never)]
    fn check_batch(&mut self) {
        if let Some(trace) = &mut self.trace
            && let Some(record) = self.checkers.last()
        {
            let is_world = record.life == Life::WORLD;
            let who =
                if is_world { "world".to_string() } else { format!("m{}/{}", record.process, record.life.0) };
            write_line(trace, record.at.as_nanos(), &who, format_args!("{:?}", record.what));
        }
        self.catch_up();
    }

    /// Runs the checkers on all records not checked yet. Until then a violation may go unnoticed.
    pub(crate) fn catch_up(&mut self) {
        if let Err(violation) = self.checkers.catch_up() {
            self.set_violation(violation);
        }
    }

    /// Runs the checkers on the end of the run.
    pub(crate) fn finish(&mut self, end: &End) {
        if self.violation.is_none()
            && let Err(violation) = self.checkers.finish(end)
        {
            self.set_violation(violation);
        }
    }

    /// Reports a violation that the simulator itself found. The first violation stands.
    pub(crate) fn report_violation(&mut self, violation: Violation) {
        self.catch_up();
        self.set_violation(violation);
    }

    #[cold]
    fn set_violation(&mut self, violation: Violation) {
        if self.trace.is_some() {
            self.trace(violation.at.as_nanos(), "checker", format_args!("{violation}"));
        }
        self.violation.get_or_insert(violation);
    }

    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Returns each property's name, and how often its checker found the promise kept.
    pub(crate) fn checked(&self) -> Vec<(&'static str, u64)> {
        self.checkers.checked().collect()
    }

    /// Returns a number that two runs share only if members sent and did the same at the same times.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint.value()
    }

    /// Notes a datagram that a process sends at the world's time `now`.
    #[inline]
    pub(crate) fn note_datagram(&mut self, now: u64, from: usize, to: Destination, datagram: &[u8]) {
        self.totals.datagrams += 1;
        self.fingerprint.add_datagram(now, from, to, datagram);
    }

    /// True if there is a trace, so that formatting text for it is worth the time.
    pub(crate) fn is_traced(&self) -> bool {
        self.trace.is_some()
    }

    /// Writes one line to the trace, if there is one.
    pub(crate) fn trace(&mut self, now: u64, who: &str, words: std::fmt::Arguments<'_>) {
        if let Some(trace) = &mut self.trace {
            write_line(trace, now, who, words);
        }
    }

    /// Counts an epoch that began with a reset.
    pub(crate) fn count_epoch(&mut self, id: EpochId) {
        let index = self.names.epoch(id).index();
        self.count_entered(index);
    }

    #[cold]
    fn count_reset(&mut self, reset: &Reset) {
        self.count_entered(reset.view.epoch.index());
    }

    fn count_entered(&mut self, index: usize) {
        if self.entered.len() <= index {
            self.entered.resize(index + 1, false);
        }
        if !std::mem::replace(&mut self.entered[index], true) {
            self.totals.resets += 1;
        }
    }
}

fn write_line(trace: &mut dyn Write, now: u64, who: &str, words: std::fmt::Arguments<'_>) {
    // A reader that stops reading must not change the run.
    let _ = writeln!(trace, "{:>12.3} {who:<8} {words}", now as f64 / 1_000.0);
}
