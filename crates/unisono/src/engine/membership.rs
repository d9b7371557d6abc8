//! One member of one group, as the engine holds it: the core's state, and who in this process waits for what.

use super::outbox::{Outbox, Reach, Source};
use super::outcomes::Outcomes;
use super::park::WaitList;
use super::slot::{Occupant, Slot};
use crate::error::Ended;
use bytes::Bytes;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::task::Waker;
use std::time::Duration;
use unisono_core::{Destination, Event, Group, LeaveError, MessageNumber, Phase, Time};

/// How long a leave may take.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// How long the order may stand still because nobody here receives, until those who wait to send are told.
const STANDSTILL_MAX: Duration = Duration::from_secs(5);

/// Something a thread or a task can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// An event, or the end of them.
    Event,
    /// Room in the window, or another phase.
    Progress,
    /// What became of the messages that end with this number.
    Outcome(MessageNumber),
}

/// See the module.
pub(crate) struct Membership {
    pub(crate) group: Group,
    pub(crate) reach: Reach,
    /// Events taken from the core to see whether there are any; at most two.
    peeked: VecDeque<Event>,
    ended: Option<Ended>,
    /// Since when the events that nobody here takes have kept the order from going on.
    stops_order: Option<Time>,
    not_receiving: bool,
    pub(crate) outcomes: Outcomes,
    events: WaitList,
    progress: WaitList,
    phase: Phase,
    /// When it was last served there was something for those who wait for anything but events.
    progressed: bool,
    /// Bytes submitted and not yet sent, so that more may go along.
    pub(crate) gathered_bytes: usize,
    /// Nobody here wants events.
    pub(crate) ignoring: bool,
    /// No handle is left: the member leaves.
    abandoned: bool,
    /// When it is out at the latest, once it leaves.
    out_by: Option<Time>,
    overdue: bool,
    /// Neither handles nor tickets are left.
    pub(crate) unreferenced: bool,
}

impl Membership {
    pub(crate) fn new(group: Group, reach: Reach) -> Membership {
        Membership {
            phase: group.phase(),
            group,
            reach,
            peeked: VecDeque::new(),
            ended: None,
            stops_order: None,
            not_receiving: false,
            outcomes: Outcomes::default(),
            events: WaitList::default(),
            progress: WaitList::default(),
            progressed: false,
            gathered_bytes: 0,
            ignoring: false,
            abandoned: false,
            out_by: None,
            overdue: false,
            unreferenced: false,
        }
    }

    /// The next event; nothing if there is none now. What the core says beside the stream is noted here.
    pub(crate) fn event(&mut self) -> Option<Event> {
        let event = self.peeked.pop_front().or_else(|| self.group.poll_event())?;
        (self.stops_order, self.not_receiving) = (None, false);
        match event {
            Event::Gone => {
                self.ended.get_or_insert(Ended::Left);
                return None;
            }
            Event::Excluded { epoch } => {
                self.ended.get_or_insert(Ended::Excluded { epoch });
            }
            _ => {}
        }
        Some(event)
    }

    /// Why there are no more events, if there are none.
    pub(crate) fn end(&self) -> Option<Ended> {
        self.ended.or((self.phase == Phase::Gone || self.overdue).then_some(Ended::Left))
    }

    /// The next event, which stays where it is.
    pub(crate) fn peek(&mut self) -> Option<&Event> {
        if self.peeked.is_empty() {
            self.peeked.extend(self.group.poll_event());
        }
        self.peeked.front()
    }

    /// Sends what there is to send, and finds out who need not wait any longer.
    pub(crate) fn serve(&mut self, now: Time, outbox: &mut Outbox, wakes: &mut Vec<Waker>) {
        self.gathered_bytes = 0;
        outbox.drain(self, now);
        let mut progress = false;
        while let Some((number, outcome)) = self.group.poll_sent() {
            wakes.extend(self.outcomes.resolve(number, outcome));
            progress = true;
        }
        let phase = self.group.phase();
        let overdue = phase != Phase::Gone && self.out_by.is_some_and(|limit| limit <= now);
        if phase != self.phase || overdue != self.overdue {
            (self.phase, self.overdue) = (phase, overdue);
            progress = true;
            if phase == Phase::Gone || overdue {
                self.outcomes.give_up(wakes);
                self.events.wake(wakes);
            }
        }
        if self.note_standstill(now) {
            self.outcomes.wake_all(wakes);
            progress = true;
        }
        if progress {
            self.progress.wake(wakes);
        }
        self.progressed = progress;
        if self.take_for_others(now, wakes) {
            outbox.drain(self, now);
        }
    }

    /// There may be something for a thread that waits and has not left its name.
    pub(crate) fn has_news(&mut self) -> bool {
        self.progressed || self.peek().is_some()
    }

    /// Whether it has just turned out that nobody here receives.
    fn note_standstill(&mut self, now: Time) -> bool {
        if !self.group.own_events_stop_the_order() {
            (self.stops_order, self.not_receiving) = (None, false);
            return false;
        }
        let since = *self.stops_order.get_or_insert(now);
        let before = std::mem::replace(&mut self.not_receiving, since + STANDSTILL_MAX <= now);
        self.not_receiving && !before
    }

    /// The events that nobody here takes keep the order from going on, and have for long.
    pub(crate) fn is_not_receiving(&self) -> bool {
        self.not_receiving
    }

    /// Takes from the core what nobody is here to take: the first event for those who wait for one; all of
    /// them, and the leave, for a member that was abandoned. Returns whether that was anything.
    fn take_for_others(&mut self, now: Time, wakes: &mut Vec<Waker>) -> bool {
        let mut taken = self.abandoned && self.depart(now);
        if self.abandoned || self.ignoring {
            while self.event().is_some() {
                taken = true;
            }
        } else if !self.events.is_empty() && self.peeked.is_empty() && self.peek().is_some() {
            self.events.wake(wakes);
            taken = true;
        }
        taken
    }

    /// Begins to leave, which takes so long at most, and no longer for a founder that is on its way to an older group.
    pub(crate) fn leave(&mut self, now: Time, goodbye: Bytes) -> Result<(), LeaveError> {
        let begun = self.group.leave(now, goodbye);
        if matches!(begun, Ok(()) | Err(LeaveError::NotMember)) {
            self.out_by.get_or_insert(now + LEAVE_MAX);
        }
        begun
    }

    /// No handle is left: it leaves as soon as it can.
    pub(crate) fn abandon(&mut self, now: Time) {
        self.abandoned = true;
        self.out_by.get_or_insert(now + LEAVE_MAX);
    }

    fn depart(&mut self, now: Time) -> bool {
        let inside = matches!(self.phase, Phase::Member | Phase::Resetting);
        inside && self.leave(now, Bytes::new()).is_ok()
    }

    /// It wanted to leave, and nobody confirmed that in time.
    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// When it has to be looked at again.
    pub(crate) fn deadline(&self) -> Time {
        if self.is_out() {
            return Time::NEVER;
        }
        let core = self.group.poll_timeout().map_or(Time::NEVER, |(time, _)| time);
        let standstill = self.stops_order.filter(|_| !self.not_receiving).map(|since| since + STANDSTILL_MAX);
        core.min(self.out_by.unwrap_or(Time::NEVER)).min(standstill.unwrap_or(Time::NEVER))
    }

    /// It has nothing to do with its group any more.
    pub(crate) fn is_out(&self) -> bool {
        self.phase == Phase::Gone || self.overdue || (self.abandoned && self.phase == Phase::Locating)
    }

    /// Nobody here needs it either.
    pub(crate) fn is_finished(&self) -> bool {
        self.unreferenced && self.is_out()
    }
}

impl Occupant for Membership {
    type Interest = Interest;

    fn of(slot: &mut Slot) -> Option<&mut Membership> {
        match slot {
            Slot::Membership(membership) => Some(membership),
            Slot::Calls(_) => None,
        }
    }

    fn register(&mut self, interest: Interest, waker: &Waker) {
        match interest {
            Interest::Event => self.events.register(waker),
            Interest::Progress => self.progress.register(waker),
            Interest::Outcome(number) => self.outcomes.register(number, waker),
        }
    }

    fn release(&mut self, now: Time) {
        self.abandon(now);
        self.unreferenced = true;
    }
}

impl Source for Membership {
    type Destination = Destination;

    fn transmit(&mut self, now: Time, datagram: &mut Vec<u8>) -> Option<Destination> {
        self.group.poll_transmit(now, datagram)
    }

    fn resolve(&self, destination: Destination, own: SocketAddr, addresses: &mut Vec<SocketAddr>) {
        match destination {
            Destination::Address(address) => addresses.push(address),
            Destination::Everyone => {
                let audience = self.group.audience();
                addresses.extend(self.reach.multicast.filter(|_| audience.multicast));
                addresses.extend_from_slice(&audience.addresses);
            }
            Destination::Multicast => addresses.extend(self.reach.multicast),
            Destination::Rendezvous if self.reach.seeds.is_empty() => addresses.extend(self.reach.multicast),
            Destination::Rendezvous => {
                addresses.extend(self.reach.seeds.refresh().into_iter().filter(|address| *address != own));
            }
        }
    }
}
