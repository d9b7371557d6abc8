//! One member of one group in a slot of an engine: the core's state, and the threads and tasks that wait for it.

use super::outcomes::Outcomes;
use super::park::{Listed, WaitList};
use super::send_queue::{Reach, SendQueue, Source};
use super::slot::{Occupant, Slot};
use crate::error::Ended;
use crate::log::Label;
use bytes::Bytes;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use unisono_core::outside::{Answer, Relay, Ticket};
use unisono_core::{
    ConfirmNumber, Destination, Event, Group, LeaveError, MessageNumber, Phase, Seqno, Standing, Time, Uid,
};

/// Maximum time for a leave.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// Time for which the order may stand still because no thread of this process receives. After that, waiting senders get
/// an error.
const STANDSTILL_MAX: Duration = Duration::from_secs(5);

/// Something that a thread or a task can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// An event, or the end of the events.
    Event,
    /// Capacity in the window, or another phase.
    Progress,
    /// Another standing.
    Standing,
    /// The result of a confirmation.
    Confirmation,
    /// The outcome of the messages that end with this number.
    Outcome(MessageNumber),
}

/// The member and its waiters.
pub(crate) struct Membership {
    pub(crate) group: Group,
    pub(crate) reach: Reach,
    /// Names of the group and of this member, for the log.
    pub(crate) label: Arc<Label>,
    /// Events taken from the core to see whether there are any; at most two.
    peeked: VecDeque<Event>,
    ended: Option<Ended>,
    /// Time since which events that this process does not take have held up the order.
    stops_order: Option<Time>,
    not_receiving: bool,
    pub(crate) outcomes: Outcomes,
    events: WaitList,
    progress: WaitList,
    standings: WaitList,
    confirmations: WaitList,
    /// Number and result of the last confirmation that ended. It serves all callers with that number or a lower one.
    confirmed: Option<(ConfirmNumber, Seqno)>,
    standing: Standing,
    phase: Phase,
    /// First address of the last query for the group, if the system refused to send that query to every address.
    refused: Option<SocketAddr>,
    /// A query for the group was sent, or there was no address to send it to.
    asked: bool,
    /// When it was last served, there was something for waiters for anything but events.
    progressed: bool,
    /// Bytes submitted and not yet sent, so that more messages can share their datagrams.
    pub(crate) gathered_bytes: usize,
    /// Sends for processes outside, once this member is open.
    relay: Option<Box<Relay>>,
    /// A thread that waits for progress is to look again.
    pub(crate) look_again: bool,
    /// The application wants no events.
    pub(crate) ignoring: bool,
    /// No handle is left: the member leaves.
    abandoned: bool,
    /// Time by which it is out at the latest, once it leaves.
    out_by: Option<Time>,
    overdue: bool,
    /// Neither handles nor tickets are left.
    pub(crate) unreferenced: bool,
}

impl Membership {
    pub(crate) fn new(group: Group, reach: Reach, label: Label) -> Membership {
        Membership {
            phase: group.phase(),
            group,
            reach,
            label: Arc::new(label),
            peeked: VecDeque::new(),
            ended: None,
            stops_order: None,
            not_receiving: false,
            outcomes: Outcomes::default(),
            events: WaitList::default(),
            progress: WaitList::default(),
            standings: WaitList::default(),
            confirmations: WaitList::default(),
            confirmed: None,
            standing: Standing::Out,
            refused: None,
            asked: false,
            progressed: false,
            gathered_bytes: 0,
            relay: None,
            look_again: false,
            ignoring: false,
            abandoned: false,
            out_by: None,
            overdue: false,
            unreferenced: false,
        }
    }

    /// Returns the next event, if there is one now, and notes why the events end. `Gone` is not handed on.
    pub(crate) fn event(&mut self) -> Option<Event> {
        let event = self.peeked.pop_front().or_else(|| self.poll())?;
        (self.stops_order, self.not_receiving) = (None, false);
        match event {
            Event::Gone => {
                self.ended.get_or_insert(Ended::Left);
                return None;
            }
            Event::Excluded { epoch } => {
                self.ended.get_or_insert(Ended::Excluded { epoch });
            }
            // It had founded a group and gave way to another one, which did not admit it.
            Event::JoinFailed { .. } => {
                self.ended.get_or_insert(Ended::Excluded { epoch: None });
            }
            _ => {}
        }
        Some(event)
    }

    /// Takes the next event for the application from the core.
    fn poll(&mut self) -> Option<Event> {
        loop {
            let event = self.group.poll_event()?;
            if let Some(relay) = &mut self.relay {
                relay.note(&event);
                self.look_again |= relay.has_answers() || relay.has_to_send();
            }
            if !event.is_between_relays() {
                return Some(event);
            }
        }
    }

    /// Returns what a receiver waits for, if there is neither an event to take nor the end of the events.
    pub(crate) fn lacks_events(&self) -> Option<Interest> {
        let lacks = self.peeked.is_empty() && !self.group.may_have_events() && self.end().is_none();
        lacks.then_some(Interest::Event)
    }

    /// Returns why there are no more events, if there are none.
    pub(crate) fn end(&self) -> Option<Ended> {
        self.ended.or((self.phase == Phase::Gone || self.overdue).then_some(Ended::Left))
    }

    /// Returns the next event and keeps it.
    pub(crate) fn peek(&mut self) -> Option<&Event> {
        if self.peeked.is_empty() {
            let event = self.poll();
            self.peeked.extend(event);
        }
        self.peeked.front()
    }

    /// Sends what there is to send, and collects the wakers of those that need not wait any longer.
    pub(crate) fn serve(&mut self, now: Time, send_queue: &mut SendQueue, wakes: &mut Vec<Waker>) {
        self.gathered_bytes = 0;
        send_queue.drain(self, now);
        let mut progress = std::mem::take(&mut self.look_again) | self.take_outcomes(wakes);
        // A member that is alone learns at once what became of what it sends here.
        while self.advance_relay(now, send_queue) && self.take_outcomes(wakes) {
            progress = true;
        }
        progress |= self.relay.as_ref().is_some_and(|relay| relay.has_answers());
        let confirms = self.note_confirmed();
        let is_another = self.note_phase(now, wakes);
        if confirms || is_another {
            self.confirmations.wake(wakes);
            progress |= is_another;
        }
        if self.note_standstill(now) {
            self.outcomes.wake_all(wakes);
            progress = true;
        }
        if self.take_for_others(now, wakes) {
            send_queue.drain(self, now);
            // An abandoned member that is alone is out at once.
            progress |= self.note_phase(now, wakes);
        }
        if progress {
            self.progress.wake(wakes);
        }
        let standing = self.standing();
        if standing != std::mem::replace(&mut self.standing, standing) {
            self.standings.wake(wakes);
            progress = true;
        }
        self.progressed = progress || confirms;
    }

    /// Makes this member send for processes outside, at `address`.
    pub(crate) fn open(&mut self, address: SocketAddr) {
        let me = self.group.info().me;
        self.relay.get_or_insert_with(|| Box::new(Relay::new(me, address, self.group.delivered_view())));
    }

    /// True if this member sends for processes outside.
    pub(crate) fn is_open(&self) -> bool {
        self.relay.is_some()
    }

    /// Gives a request of a process outside to the relay of this member, which is open.
    pub(crate) fn take_from_outside(&mut self, ticket: Ticket, client: Uid, request: Bytes) {
        if let Some(relay) = &mut self.relay {
            relay.request(ticket, client, request);
        }
    }

    /// Returns an answer to a process outside.
    pub(crate) fn answer_outside(&mut self) -> Option<(Ticket, Answer)> {
        self.relay.as_mut()?.poll_answer()
    }

    /// Takes the outcomes of this member's messages from the core. Returns whether there were any.
    fn take_outcomes(&mut self, wakes: &mut Vec<Waker>) -> bool {
        let mut any = false;
        while let Some((number, outcome)) = self.group.poll_sent() {
            if let Some(relay) = &mut self.relay {
                relay.outcome(number, outcome);
            }
            wakes.extend(self.outcomes.resolve(number, outcome));
            any = true;
        }
        any
    }

    /// Sends what waits for processes outside, as far as there is room. Returns whether anything waited.
    fn advance_relay(&mut self, now: Time, send_queue: &mut SendQueue) -> bool {
        let Some(relay) = self.relay.as_mut().filter(|relay| relay.has_to_send()) else { return false };
        relay.advance(now, &mut self.group);
        send_queue.drain(self, now);
        true
    }

    /// Takes the results of confirmations from the core. Returns whether there was one.
    fn note_confirmed(&mut self) -> bool {
        let last = std::iter::from_fn(|| self.group.poll_confirmed()).last();
        self.confirmed = last.or(self.confirmed);
        last.is_some()
    }

    /// Returns the result of the confirmation with this number, or of a later one, once there is one.
    pub(crate) fn confirmed(&mut self, number: ConfirmNumber) -> Option<Seqno> {
        self.note_confirmed();
        self.confirmed.filter(|(last, _)| *last >= number).map(|(_, seqno)| seqno)
    }

    /// Ends the member's life at once. An event that was taken only to look at it is still handed out.
    pub(crate) fn end_life(&mut self, now: Time) {
        self.group.end(now);
    }

    /// Returns the other members of the view and the seeds; none if it is no member, or alone.
    pub(crate) fn peers(&self) -> Vec<SocketAddr> {
        if self.end().is_some() || !matches!(self.phase, Phase::Member | Phase::Resetting | Phase::Leaving) {
            return Vec::new();
        }
        let info = self.group.info();
        let others = info.members.iter().filter(|member| member.uid != info.me);
        let mut peers: Vec<SocketAddr> = others.map(|member| member.address).collect();
        if !peers.is_empty() {
            peers.extend(self.reach.seeds.without_look_up());
        }
        peers
    }

    /// Notes that this engine has another address. A member that is alone goes on there. The life of any other one ends,
    /// because the group knows it at its former address.
    pub(crate) fn move_to(&mut self, now: Time, address: SocketAddr) {
        if self.group.move_alone(now, address) {
            return;
        }
        if self.end().is_none() {
            self.ended = Some(Ended::Moved);
        }
        self.end_life(now);
    }

    /// Returns the next entry that the member held when its life ended and that was not known to be accepted.
    pub(crate) fn undelivered(&mut self) -> Option<Event> {
        if !self.peeked.is_empty() {
            return None;
        }
        std::iter::from_fn(|| self.group.poll_undelivered()).find(|event| !event.is_between_relays())
    }

    /// Returns the member's part in the group; none if it wanted to leave and no member confirmed that in time.
    pub(crate) fn standing(&self) -> Standing {
        if self.overdue { Standing::Out } else { self.group.standing() }
    }

    /// Notes the core's phase, and whether a leave took too long. Returns whether either changed.
    fn note_phase(&mut self, now: Time, wakes: &mut Vec<Waker>) -> bool {
        let phase = self.group.phase();
        let overdue = phase != Phase::Gone && self.out_by.is_some_and(|limit| limit <= now);
        let is_another = phase != self.phase || overdue != self.overdue;
        (self.phase, self.overdue) = (phase, overdue);
        if is_another && (phase == Phase::Gone || overdue) {
            self.relay.iter_mut().for_each(|relay| relay.end());
            self.outcomes.give_up(wakes);
            self.events.wake(wakes);
        }
        is_another
    }

    /// True if there may be something for the lease holder, which is on no list while it waits.
    pub(crate) fn has_news(&mut self) -> bool {
        self.progressed || self.peek().is_some()
    }

    /// Notes how long the order has been held up here. Returns whether that has just become too long.
    fn note_standstill(&mut self, now: Time) -> bool {
        if !self.group.own_events_stop_the_order() {
            (self.stops_order, self.not_receiving) = (None, false);
            return false;
        }
        let since = *self.stops_order.get_or_insert(now);
        let before = std::mem::replace(&mut self.not_receiving, since + STANDSTILL_MAX <= now);
        self.not_receiving && !before
    }

    /// True if events that this process does not take have held up the order for [`STANDSTILL_MAX`].
    pub(crate) fn is_not_receiving(&self) -> bool {
        self.not_receiving
    }

    /// Takes from the core what no thread takes at present: the first event, for those that wait for one; for an
    /// abandoned member all events, and the leave. Returns whether there was anything.
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

    /// Begins to leave. It is out after [`LEAVE_MAX`] at the latest, even if it is a founder on its way to an older
    /// group.
    pub(crate) fn leave(&mut self, now: Time, goodbye: Bytes) -> Result<(), LeaveError> {
        let begun = self.group.leave(now, goodbye);
        if matches!(begun, Ok(()) | Err(LeaveError::NotMember)) {
            self.out_by.get_or_insert(now + LEAVE_MAX);
        }
        begun
    }

    /// Leaves as soon as possible, because no handle is left.
    pub(crate) fn abandon(&mut self, now: Time) {
        self.abandoned = true;
        self.out_by.get_or_insert(now + LEAVE_MAX);
    }

    /// True if no handle is left.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    fn depart(&mut self, now: Time) -> bool {
        let inside = matches!(self.phase, Phase::Member | Phase::Resetting);
        inside && self.leave(now, Bytes::new()).is_ok()
    }

    /// True if it wanted to leave and no member confirmed that in time.
    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue
    }

    /// Returns where the query for the group was refused, if none has left this machine. Then the group may exist
    /// unseen.
    pub(crate) fn could_not_ask(&self) -> Option<SocketAddr> {
        self.refused.filter(|_| !self.asked)
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns when it has to be served again.
    pub(crate) fn deadline(&self) -> Time {
        if self.is_out() {
            return Time::NEVER;
        }
        let core = self.group.poll_timeout().map_or(Time::NEVER, |(time, _)| time);
        let standstill = self.stops_order.filter(|_| !self.not_receiving).map(|since| since + STANDSTILL_MAX);
        core.min(self.out_by.unwrap_or(Time::NEVER)).min(standstill.unwrap_or(Time::NEVER))
    }

    /// True if its group does not need it any more.
    pub(crate) fn is_out(&self) -> bool {
        self.phase == Phase::Gone || self.overdue || (self.abandoned && self.phase == Phase::Locating)
    }

    /// True if no handle or ticket needs it either.
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

    fn register(&mut self, interest: Interest, waker: &Waker, listed: &mut Listed) {
        match interest {
            Interest::Event => self.events.register(waker, listed),
            Interest::Progress => self.progress.register(waker, listed),
            Interest::Standing => self.standings.register(waker, listed),
            Interest::Confirmation => self.confirmations.register(waker, listed),
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
                addresses.extend(self.reach.seeds.ask(own));
            }
        }
        // A process without the key may have told the address.
        addresses.retain(|address| self.reach.seeds.may_go_to(*address));
    }

    fn note_sent(&mut self, destination: Destination, refused: Option<SocketAddr>) {
        if destination == Destination::Rendezvous && self.phase == Phase::Locating {
            self.asked |= refused.is_none();
            self.refused = refused;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands;
    use crate::engine::Attempt;
    use crate::error::LeaveFailure;
    use bytes::BytesMut;
    use unisono_core::wire::{
        Checksum, Decoder, Frame, HEADER_BYTES, Header, KeyContext, ProtectionKind, Writer, seal,
    };
    use unisono_core::{
        EntryMode, EpochId, GroupConfig, Member, Name, Port, Random, Settings, Transport, Uid,
    };

    const LEAVER: usize = 0;
    const STAYER: usize = 1;
    const STEP: Duration = Duration::from_millis(1);
    /// More steps than any working case takes.
    const STEPS_MAX: usize = 5_000;

    /// Two members without sockets. The leaver founded the group.
    struct Pair {
        now: Time,
        cores: [Group; 2],
        /// Datagrams under way, with the index of their receiver.
        flights: Vec<(usize, BytesMut)>,
        /// The other member receives what the leaver sends.
        heard: bool,
        /// The applications take all events.
        receives: bool,
    }

    impl Pair {
        fn of(leaver: EntryMode, other: EntryMode) -> Pair {
            let now = Time::from_nanos(1);
            let core = |place: usize, entry| {
                let number = place as u64 + 1;
                let me = Member {
                    uid: Uid(number),
                    name: Name::new(&number.to_string()).unwrap(),
                    address: address(place),
                    floor: Default::default(),
                    hops: 1,
                };
                let (port, random) = (Port::from_name("pair"), Random::from_u64(number));
                let (settings, protection) =
                    (Settings { transport: Transport::Unicast, ..Settings::default() }, Box::new(Checksum));
                Group::new(now, me, port, entry, Bytes::new(), settings, protection, random).unwrap()
            };
            let cores = [core(LEAVER, leaver), core(STAYER, other)];
            Pair { now, cores, flights: Vec::new(), heard: true, receives: true }
        }

        fn new() -> Pair {
            let config = GroupConfig { resilience: 1, ..GroupConfig::default() };
            let mut pair = Pair::of(EntryMode::Found(config), EntryMode::Join);
            pair.pass_until(|pair| {
                let is_in = |core: &Group| core.phase() == Phase::Member && core.info().members.len() == 2;
                pair.cores.iter().all(is_in)
            });
            pair
        }

        /// Runs until `holds`. A datagram arrives one step later, except for one that dismisses a member.
        fn pass_until(&mut self, holds: impl Fn(&Pair) -> bool) {
            for _ in 0..STEPS_MAX {
                self.now = self.now + STEP;
                for (to, datagram) in std::mem::take(&mut self.flights) {
                    self.cores[to].handle_datagram(self.now, address(1 - to), datagram);
                    self.drain(to);
                }
                for place in [LEAVER, STAYER] {
                    self.cores[place].handle_timeout(self.now);
                    self.drain(place);
                }
                if holds(self) {
                    return;
                }
            }
            panic!("the case was not reached");
        }

        fn drain(&mut self, place: usize) {
            let core = &mut self.cores[place];
            while self.receives && core.poll_event().is_some() {}
            let mut datagram = Vec::new();
            while core.poll_transmit(self.now, &mut datagram).is_some() {
                if (self.heard || place != LEAVER) && !dismisses(&datagram) {
                    self.flights.push((1 - place, BytesMut::from(&datagram[..])));
                }
            }
        }
    }

    fn dismisses(datagram: &[u8]) -> bool {
        let mut frames = Decoder::new(Bytes::copy_from_slice(&datagram[HEADER_BYTES..])).flatten();
        frames.any(|frame| matches!(frame, Frame::Decided { entered: true, .. }))
    }

    fn address(place: usize) -> SocketAddr {
        ([127, 0, 0, 1], 1000 + place as u16).into()
    }

    #[test]
    fn a_leave_that_a_reset_keeps_is_not_reported_as_an_exclusion() {
        let mut pair = Pair::new();
        // The leave gets a seqno, the other member does not receive it, and suspects the leaver.
        pair.heard = false;
        pair.cores[LEAVER].leave(pair.now, Bytes::new()).unwrap();
        pair.pass_until(|pair| pair.cores[LEAVER].marks().promised.is_some());
        pair.heard = true;
        pair.pass_until(|pair| pair.cores[LEAVER].phase() == Phase::Excluded);
        let Pair { now, cores: [leaver, _], .. } = pair;
        let mut member =
            Membership::new(leaver, Reach { multicast: None, seeds: Default::default() }, Label::default());
        let outcome = commands::leave(&mut member, now, &Bytes::new(), &mut true);
        assert!(matches!(outcome, Attempt::Wait(Interest::Progress)), "it has left, and still serves");
    }

    #[test]
    fn an_exclusion_while_leaving_is_reported_although_the_member_is_gone() {
        let mut pair = Pair::new();
        pair.heard = false;
        let Pair { now, cores: [mut leaver, _], .. } = pair;
        leaver.leave(now, Bytes::new()).unwrap();
        let (info, sender) = (leaver.info(), Uid(STAYER as u64 + 1));
        let header = Header {
            protection: ProtectionKind::Checksum,
            group: leaver.tag(),
            epoch: leaver.marks().epoch,
            sender,
            number: 1 << 40,
            salt: 0,
        };
        let later = EpochId { counter: info.epoch.counter + 1, ..info.epoch };
        let told = Frame::Excluded { uid: Uid(LEAVER as u64 + 1), instance: info.instance, epoch: later };
        let mut datagram = Vec::new();
        header.write(&mut datagram);
        Writer::new(&mut datagram, 1000).frame(&told);
        let context = KeyContext { instance: info.instance, sender, salt: 0 };
        assert!(seal(&mut datagram, &header, &context, &mut Checksum));
        leaver.handle_datagram(now, address(STAYER), BytesMut::from(&datagram[..]));
        assert_eq!(leaver.phase(), Phase::Gone, "the case was not reached");
        let mut member =
            Membership::new(leaver, Reach { multicast: None, seeds: Default::default() }, Label::default());
        let outcome = commands::leave(&mut member, now, &Bytes::new(), &mut true);
        assert!(matches!(outcome, Attempt::Done(Err(LeaveFailure::Excluded))));
    }

    // Its application was in a group that no longer exists, and is in no other.
    #[test]
    fn a_founder_that_gave_way_and_is_not_let_in_has_not_left() {
        let full = GroupConfig { members_max: 1, ..GroupConfig::default() };
        let mut pair = Pair::of(EntryMode::Found(GroupConfig::default()), EntryMode::Found(full));
        (pair.heard, pair.receives) = (false, false);
        pair.cores[STAYER].send(pair.now, Bytes::from_static(b"in use")).unwrap();
        pair.pass_until(|pair| pair.cores[STAYER].marks().received > 0);
        pair.heard = true;
        pair.pass_until(|pair| pair.cores[LEAVER].phase() == Phase::Gone);
        let Pair { cores: [core, _], .. } = pair;
        let mut member =
            Membership::new(core, Reach { multicast: None, seeds: Default::default() }, Label::default());
        while member.event().is_some() {}
        assert_eq!(member.end(), Some(Ended::Excluded { epoch: None }));
    }
}
