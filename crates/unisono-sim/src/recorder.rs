//! Writes down what happens: shows it to the checkers, folds it into the run's fingerprint, counts it, and puts it into
//! words when somebody reads along.

use crate::properties::{Checkers, Violation};
use crate::record::{CallOutcome, End, Fingerprint, Life, Names, Record, Reset, What};
use std::io::Write;
use unisono_core::{Destination, Event, Info, Instance, Outcome, Seqno, Time, Uid};

/// How often things happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Messages whose senders learned their place.
    pub(crate) messages: u64,
    /// Calls that were answered.
    pub(crate) calls: u64,
    /// Epochs that began with a reset.
    pub(crate) resets: u64,
    /// Members and joiners that ended without a word.
    pub(crate) crashes: u64,
    /// Times that the network fell apart.
    pub(crate) partitions: u64,
    /// Datagrams sent; a multicast counts once.
    pub(crate) datagrams: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Totals) {
        self.messages += other.messages;
        self.calls += other.calls;
        self.resets += other.resets;
        self.crashes += other.crashes;
        self.partitions += other.partitions;
        self.datagrams += other.datagrams;
    }
}

/// The latest view of each group that any member was in, those included that crashed before they could tell anybody.
#[derive(Clone, Debug, Default)]
pub(crate) struct LatestViews(Vec<LatestView>);

#[derive(Clone, Debug)]
struct LatestView {
    group: Instance,
    /// The counter of its epoch, and from where in the order it holds.
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

    /// The views of groups that are not given up, and whose last member has not left.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[Uid]> {
        self.0.iter().map(|view| &*view.members).filter(|members| !members.is_empty())
    }

    /// The last member of this group has left: whoever lags behind in it is told nothing any more.
    pub(crate) fn has_ended(&self, group: Instance) -> bool {
        self.0.iter().any(|view| view.group == group && view.since.is_some() && view.members.is_empty())
    }

    /// Somebody has come to an epoch.
    pub(crate) fn enter(&mut self, info: &Info) {
        let since = Some((info.epoch.counter, info.unstable.saturating_sub(1)));
        let latest = self.of(info.instance);
        if since > latest.since {
            latest.since = since;
            latest.members = info.members.iter().map(|member| member.uid).collect();
        }
    }

    /// A founder alone in this group has given it up.
    pub(crate) fn give_up(&mut self, group: Instance) {
        self.of(group).members.clear();
    }

    /// A member whose epoch has this counter was told of a join or leave.
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

/// The one place where records go.
pub(crate) struct Recorder {
    pub(crate) names: Names,
    pub(crate) totals: Totals,
    pub(crate) latest_views: LatestViews,
    /// Who crashed, or was stopped before it had gone.
    pub(crate) crashed: Vec<Uid>,
    checkers: Checkers,
    fingerprint: Fingerprint,
    violation: Option<Violation>,
    /// Epochs that somebody entered, by index.
    entered: Vec<bool>,
    trace: Option<Box<dyn Write>>,
}

impl Recorder {
    pub(crate) fn new(mut checkers: Checkers, trace: Option<Box<dyn Write>>) -> Recorder {
        if trace.is_some() {
            // Whoever reads along sees an accusation where it belongs.
            checkers.check_at_once();
        }
        Recorder {
            names: Names::default(),
            totals: Totals::default(),
            latest_views: LatestViews::default(),
            crashed: Vec::new(),
            checkers,
            fingerprint: Fingerprint::default(),
            violation: None,
            entered: Vec::new(),
            trace,
        }
    }

    /// Something happened at the world's `now`. Inlined, because whoever calls it knows what kind of thing.
    #[inline(always)]
    pub(crate) fn note(&mut self, now: u64, process: usize, life: Life, what: What) {
        let record = Record { at: Time::from_nanos(now), process: process as u32, life, what };
        self.fingerprint.add(&record);
        match &record.what {
            What::SendResult { outcome: Outcome::Ok { .. }, .. } => self.totals.messages += 1,
            What::CallEnded { outcome: CallOutcome::Replied { .. }, .. } => self.totals.calls += 1,
            What::Reset(reset) => self.count_reset(reset),
            _ => {}
        }
        if self.checkers.pile_up(record) {
            self.check_pile();
        }
    }

    /// Tells the record that came last, if somebody reads along, and checkers what piled up.
    #[inline(never)]
    fn check_pile(&mut self) {
        if let Some(trace) = &mut self.trace
            && let Some(record) = self.checkers.last()
        {
            let nobody = record.life == Life::NOBODY;
            let who =
                if nobody { "world".to_string() } else { format!("m{}/{}", record.process, record.life.0) };
            write_line(trace, record.at.as_nanos(), &who, format_args!("{:?}", record.what));
        }
        self.catch_up();
    }

    /// Judges all that was noted: until then a broken promise may go unnoticed for a while.
    pub(crate) fn catch_up(&mut self) {
        if let Err(violation) = self.checkers.catch_up() {
            self.condemn(violation);
        }
    }

    /// The run is over.
    pub(crate) fn finish(&mut self, end: &End) {
        if self.violation.is_none()
            && let Err(violation) = self.checkers.finish(end)
        {
            self.condemn(violation);
        }
    }

    /// A promise is broken, as somebody else than the checkers found. The first accusation stands.
    pub(crate) fn accuse(&mut self, violation: Violation) {
        self.catch_up();
        self.condemn(violation);
    }

    #[cold]
    fn condemn(&mut self, violation: Violation) {
        if self.trace.is_some() {
            self.tell(violation.at.as_nanos(), "checker", format_args!("{violation}"));
        }
        self.violation.get_or_insert(violation);
    }

    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Each property's name, and how often it found its promise kept.
    pub(crate) fn checked(&self) -> Vec<(&'static str, u64)> {
        self.checkers.checked().collect()
    }

    /// A number that two runs share only if members did and sent the same at the same times.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint.value()
    }

    /// A process sends a datagram at the world's `now`.
    #[inline]
    pub(crate) fn note_datagram(&mut self, now: u64, from: usize, to: Destination, datagram: &[u8]) {
        self.totals.datagrams += 1;
        self.fingerprint.add_datagram(now, from, to, datagram);
    }

    /// Whether somebody reads along, so that words are worth making.
    pub(crate) fn is_traced(&self) -> bool {
        self.trace.is_some()
    }

    /// One line for whoever reads along.
    pub(crate) fn tell(&mut self, now: u64, who: &str, words: std::fmt::Arguments<'_>) {
        if let Some(trace) = &mut self.trace {
            write_line(trace, now, who, words);
        }
    }

    #[cold]
    fn count_reset(&mut self, reset: &Reset) {
        let index = reset.view.epoch.index();
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
