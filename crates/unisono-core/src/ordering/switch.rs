//! Switching the order while the group runs: from a sequencer to a token, and back.
//!
//! A switch is one ordered event, which any member may ask for. It is numbered and accepted as a join or leave is, is in
//! force from its seqno on, and is undone if a reset cuts it off. The member that numbers it goes on as sequencer. Buffers
//! and outboxes stay as they are: under both orders a message is numbered where it lies.
//!
//! A process outside of the group asks a member, and must meet a challenge, so a recorded request switches nothing.

use crate::challenge::Challenge;
use crate::config::Order;
use crate::error::ChangeOrderError;
use crate::group::{Group, Phase};
use crate::identity::{Seqno, Uid};
use crate::time::Time;
use crate::wire::{Change, Frame, Switching};
use core::net::SocketAddr;
use core::time::Duration;

/// Interval at which the sequencer is asked again.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// Time for which a member that was asked remembers it. The asker asks again meanwhile.
const ASKED_LASTS: Duration = Duration::from_secs(1);

/// What members of this epoch want the order to be.
#[derive(Clone, Debug, Default)]
pub(super) struct Switch {
    /// What this member's application wants, and when the sequencer is asked next.
    wanted: Option<(Order, Time)>,
    /// What another member wants, and until when that counts.
    asked: Option<(Order, Time)>,
    challenge: Challenge,
}

impl Switch {
    /// True if some member has wanted another order since the last one came into force.
    fn has_wish(&self) -> bool {
        self.wanted.is_some() || self.asked.is_some()
    }

    /// Returns the order that is wanted, if one is.
    fn wish(&self, now: Time) -> Option<Order> {
        let asked = self.asked.filter(|(_, until)| now < *until);
        self.wanted.or(asked).map(|(order, _)| order)
    }

    /// True if some member wants another order.
    pub(super) fn is_wanted(&self, now: Time) -> bool {
        self.wish(now).is_some()
    }
}

impl Group {
    /// Asks for another order, by an ordered event. The group is ordered so when
    /// [`Event::OrderChanged`](crate::Event::OrderChanged) is received. A reset drops the request: its event comes instead.
    ///
    /// # Errors
    /// See [`ChangeOrderError`]: nothing was done.
    pub fn change_order(&mut self, now: Time, order: Order) -> Result<(), ChangeOrderError> {
        match self.phase {
            Phase::Member if self.leaving.is_none() => {}
            Phase::Resetting => return Err(ChangeOrderError::Resetting),
            Phase::Locating | Phase::Joining => return Err(ChangeOrderError::NotMember),
            _ => return Err(ChangeOrderError::Left),
        }
        if self.recovery.has_promised() {
            return Err(ChangeOrderError::Resetting);
        }
        if self.order.switch.is_wanted(now) {
            return Err(ChangeOrderError::UnderWay);
        }
        if self.log.history().order() == order {
            return Err(ChangeOrderError::InForce);
        }
        self.order.switch.wanted = Some((order, now));
        self.settle(now);
        Ok(())
    }

    /// Notes that another member wants this order instead of that in force since `since`. In a ring this member keeps the
    /// token when it comes. A request from before a switch, which came late, asks for nothing any more.
    pub(crate) fn handle_switch_request(&mut self, now: Time, from: Uid, order: Order, since: Seqno) {
        let is_late = since != self.log.history().order_since();
        if !is_late && self.is_in_view(from) {
            self.order.switch.asked = Some((order, now + ASKED_LASTS));
        }
    }

    /// Notes that the log has a switch to this order. A wish for it is fulfilled, even if another switch follows at once;
    /// a member that still wants another one asks again.
    pub(crate) fn note_switched(&mut self, order: Order) {
        let known = &mut self.order.switch;
        known.asked = None;
        known.wanted = known.wanted.filter(|(wanted, _)| *wanted != order);
    }

    /// Handles a request from outside of the group.
    #[cold]
    pub(crate) fn handle_switch(
        &mut self,
        now: Time,
        from: SocketAddr,
        nonce: u64,
        challenge: u64,
        order: Order,
    ) {
        if matches!(self.phase, Phase::Locating | Phase::Joining) {
            return;
        }
        let answer = if self.order.switch.challenge.is_met(now, from.ip(), challenge) {
            match self.change_order(now, order) {
                Ok(()) => Switching::Begun,
                Err(ChangeOrderError::InForce) => Switching::InForce,
                Err(ChangeOrderError::UnderWay) => Switching::UnderWay,
                Err(ChangeOrderError::Resetting) => Switching::Resetting,
                Err(ChangeOrderError::NotMember | ChangeOrderError::Left | ChangeOrderError::Forked) => {
                    Switching::NotMember
                }
            }
        } else {
            Switching::Challenge(self.order.switch.challenge.draw(now, from.ip(), &mut self.random))
        };
        self.post_outside(from, Frame::Switching { nonce, answer });
    }

    /// Returns the switch that is to be numbered, if one is.
    pub(super) fn next_switch(&mut self, now: Time) -> Option<Change> {
        let order = self.order.switch.wish(now).filter(|order| *order != self.log.history().order())?;
        Some(Change::Order { order, sequencer: self.me.uid })
    }

    /// Goes on as sequencer after the switch just numbered, under the new order.
    pub(super) fn go_on_after_switch(&mut self, now: Time) {
        let event = self.log.received();
        self.order.end_term(event, false);
        self.enter_role(now, event);
    }

    /// Asks the sequencer for the order that this member's application wants, unless the log has it by now.
    pub(crate) fn ask_to_switch(&mut self, now: Time) {
        if !self.order.switch.has_wish() {
            return;
        }
        let in_force = self.log.history().order();
        let known = &mut self.order.switch;
        known.asked = known.asked.filter(|(order, until)| *order != in_force && now < *until);
        known.wanted = known.wanted.filter(|(order, _)| *order != in_force);
        let Some((order, at)) = known.wanted else { return };
        if at <= now
            && !self.recovery.has_promised()
            && let Some(sequencer) = self.submit_to()
        {
            self.order.switch.wanted = Some((order, now + ASK_EVERY));
            let since = self.log.history().order_since();
            self.post(sequencer, Frame::SwitchRequest { order, since });
        }
    }

    /// Returns when the sequencer is asked again.
    pub(crate) fn switch_at(&self) -> Option<Time> {
        let (_, at) = self.order.switch.wanted?;
        (self.submit_to().is_some() && !self.recovery.has_promised()).then_some(at)
    }
}
