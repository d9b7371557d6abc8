//! Ending: a life that ends at once, and is silent from then on.
//!
//! A member that leaves serves the group for a while, acknowledges and answers. That is wrong for a member whose state
//! is about to go on in another life: two such members could still confirm a read of a third one, although their new
//! lives have founded the group anew. `end` stops this life as a crash would, except that its application still gets
//! what the life held. The other members exclude it by a reset.

use crate::event::{Event, Outcome};
use crate::group::{Group, Phase};
use crate::planted::{Planted, Probe};
use crate::time::Time;
use core::net::SocketAddr;

/// Whether this life has ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ending {
    ended: bool,
    /// True if nothing is sent any more; false only if a bug is planted.
    silent: bool,
    /// True if the application may have the entries that are not known to be accepted.
    hands_out: bool,
}

impl Ending {
    /// True if this life takes no input and sends nothing any more.
    #[inline]
    pub(crate) fn is_silent(self) -> bool {
        self.silent
    }
}

impl Group {
    /// Gives this member another address, if it is alone: the only member, and no joiner listens to it. Returns whether it
    /// did; otherwise other members know it at its former address, and its life has to [end](Group::end).
    pub fn move_alone(&mut self, now: Time, address: SocketAddr) -> bool {
        let may = self.phase == Phase::Member && self.peers.iter().next().is_none();
        if !may || !self.log.readdress(address) {
            return false;
        }
        self.me.address = address;
        self.settle(now);
        true
    }

    /// Ends this life at once. From here on it sends no datagram: it acknowledges, votes, confirms and serves nothing,
    /// and [`Group::poll_transmit`] returns `None` for ever. The other members exclude it by a reset, as if it had
    /// crashed. Messages under way get [`Outcome::Unknown`].
    ///
    /// [`Group::poll_event`] returns what was accepted and not yet taken, then [`Event::Gone`] (or the last event that
    /// was already due). After that [`Group::poll_undelivered`] returns what this life held besides. Calling `end` again
    /// changes nothing.
    pub fn end(&mut self, now: Time) {
        if self.ending.ended {
            return;
        }
        self.probe(Probe::EndedAtOnce);
        let was_in = matches!(self.phase, Phase::Member | Phase::Resetting | Phase::Leaving);
        self.ending = Ending { ended: true, silent: false, hands_out: was_in };
        self.confirming.give_up();
        if self.broken(Planted::EndedAcknowledges) {
            return;
        }
        self.ending.silent = true;
        if !was_in && self.phase != Phase::Excluded {
            // It was never a member: its application gets nothing of what it received.
            self.log.skip_through(self.log.accepted());
        }
        let cut_off = self.outbox.fail_rest();
        self.sent.extend(cut_off.into_iter().map(|number| (number, Outcome::Unknown)));
        (self.mail, self.serves) = Default::default();
        self.order.stop();
        self.detector.stop();
        self.recovery.stop();
        (self.halt, self.force) = Default::default();
        (self.leaving, self.joining, self.forming, self.formed) = (None, None, None, None);
        (self.seek, self.previous) = (None, None);
        self.phase = Phase::Gone;
        self.closing.get_or_insert(Event::Gone);
        self.settle(now);
    }

    /// True if [`Group::end`] was called.
    pub fn has_ended(&self) -> bool {
        self.ending.ended
    }

    /// Returns the next entry that this life held when it ended and does not know to be accepted, once
    /// [`Group::poll_event`] has returned the last event. The other members may have accepted these entries, or may
    /// give their seqnos to others: a state that goes on in another life has to agree on them with the others.
    pub fn poll_undelivered(&mut self) -> Option<Event> {
        if !self.ending.hands_out || !self.ending.silent || self.may_have_events() {
            return None;
        }
        while self.log.delivered() < self.log.received() {
            let seqno = self.log.delivered() + 1;
            self.log.history().get(seqno)?;
            let event = self.event_at(seqno);
            self.log.hand_out_next();
            if event.is_some() {
                return event;
            }
        }
        None
    }
}
