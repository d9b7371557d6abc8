//! What is known of one peer: what it holds, when it was heard, how it is probed and whether it is suspected.
//!
//! What a peer is known to hold only rises within an epoch. [`Peer::begin_epoch`] alone lowers it, to what the reset
//! kept.

use super::deafness::Deafness;
use super::{Peer, Standing};
use crate::allowance::Allowance;
use crate::identity::{Member, MessageNumber, Seqno, Uid};
use crate::membership::INQUIRE_BYTES;
use crate::ordering::Awaited;
use crate::time::{Pace, Time};
use crate::wire::{Assembler, ReplayWindow};
use bytes::Bytes;
use core::net::SocketAddr;
use core::time::Duration;

impl Peer {
    pub(crate) fn new(now: Time, member: Member, standing: Standing, received: Seqno) -> Peer {
        Peer {
            member,
            standing,
            hears_multicast: None,
            deafness: Deafness::default(),
            received,
            accepted: received,
            delivered: received,
            entered: false,
            last_heard: now,
            heard_us: None,
            probing: None,
            suspected: None,
            awaited: Awaited::default(),
            replay: None,
            parcels: Assembler::default(),
            repeated: Pace::default(),
            asked: Pace::default(),
            wanted: (0, Time::ZERO),
            welcomed: Pace::default(),
            dismissed: Pace::default(),
            inquired: Pace::default(),
            inquiring: Allowance::of(INQUIRE_BYTES),
        }
    }

    // --- who it is ---

    pub(crate) fn member(&self) -> &Member {
        &self.member
    }

    pub(crate) fn uid(&self) -> Uid {
        self.member.uid
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.member.address
    }

    pub(crate) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// True if it is in the view.
    pub(crate) fn is_member(&self) -> bool {
        matches!(self.standing, Standing::Member)
    }

    /// True if it is an observer: it listens and waits to be numbered in.
    pub(crate) fn is_observer(&self) -> bool {
        matches!(self.standing, Standing::Observer { .. })
    }

    // --- what it holds ---

    /// Returns the seqno through which it is known to hold everything, data included.
    pub(crate) fn received(&self) -> Seqno {
        self.received
    }

    /// Returns the seqno through which it knows everything to be accepted.
    pub(crate) fn accepted(&self) -> Seqno {
        self.accepted
    }

    /// Returns the seqno through which its application has everything.
    pub(crate) fn delivered(&self) -> Seqno {
        self.delivered
    }

    /// Notes that it holds everything through `seqno`, data included.
    #[inline]
    pub(crate) fn hold_through(&mut self, seqno: Seqno) {
        raise(&mut self.received, seqno);
    }

    /// Notes watermarks that it reported.
    pub(super) fn raise_marks(&mut self, received: Seqno, accepted: Seqno, delivered: Seqno) {
        raise(&mut self.received, received);
        raise(&mut self.accepted, accepted);
        raise(&mut self.delivered, delivered);
    }

    /// Returns whether it hears the group's multicast, by its own last report; `None` before the first one.
    pub(crate) fn hears_multicast(&self) -> Option<bool> {
        self.hears_multicast
    }

    /// True if it counts as one that hears the group's multicast; a member that has not reported counts as `untold`.
    pub(super) fn is_hearer(&self, untold: bool) -> bool {
        self.hears_multicast.unwrap_or(untold && self.is_member())
    }

    /// True if it is reached by this member's multicasts, as far as that is known; `untold` if it has not reported.
    pub(super) fn is_reached_by_multicast(&self, untold: bool) -> bool {
        self.is_hearer(untold) && !self.deafness.is_deaf()
    }

    /// True if it has shown that it entered the present epoch.
    pub(crate) fn has_entered(&self) -> bool {
        self.entered
    }

    pub(crate) fn note_entered(&mut self) {
        self.entered = true;
    }

    /// Begins an epoch that keeps the log through `keep`. Suspicions and probes of the previous epoch are forgotten.
    pub(super) fn begin_epoch(&mut self, now: Time, keep: Seqno) {
        (self.received, self.accepted) = (self.received.min(keep), self.accepted.min(keep));
        self.delivered = self.delivered.min(keep);
        (self.entered, self.suspected, self.probing) = (false, None, None);
        (self.last_heard, self.heard_us) = (now, self.heard_us.map(|_| now));
    }

    // --- what arrives from it ---

    /// Returns the time when it was last heard.
    pub(crate) fn last_heard(&self) -> Time {
        self.last_heard
    }

    /// Returns the time when it last showed that it receives this member's datagrams.
    pub(crate) fn heard_us(&self) -> Option<Time> {
        self.heard_us
    }

    /// Notes that a datagram of it arrived.
    #[inline]
    pub(crate) fn note_heard(&mut self, now: Time) {
        debug_assert!(now >= self.last_heard, "time goes back");
        self.last_heard = now;
    }

    /// Takes the packet number of a datagram of it. Returns false if the number was taken before. The first number
    /// begins the window.
    #[inline]
    pub(crate) fn takes_number(&mut self, number: u64) -> bool {
        self.replay.get_or_insert_with(|| ReplayWindow::starting_at(number)).fresh(number)
    }

    /// Returns the highest packet number taken; 0 if none was.
    pub(crate) fn highest_number(&self) -> u64 {
        self.replay.as_ref().map_or(0, ReplayWindow::highest)
    }

    /// Takes a parcel of a frame; returns the whole frame with its last parcel.
    pub(crate) fn take_parcel(&mut self, id: u32, index: u16, count: u16, bytes: &Bytes) -> Option<Bytes> {
        self.parcels.take(id, index, count, bytes)
    }

    // --- limits on what is sent to it: true if it may go now, which is then noted ---

    pub(crate) fn take_heartbeat(&mut self, now: Time, every: Duration) -> bool {
        self.repeated.take(now, every)
    }

    pub(crate) fn take_welcome(&mut self, now: Time, every: Duration) -> bool {
        self.welcomed.take(now, every)
    }

    pub(crate) fn take_farewell(&mut self, now: Time, every: Duration) -> bool {
        self.dismissed.take(now, every)
    }

    /// Takes an inquiry of `cost` bytes, which is paid from the bytes that arrived from it.
    pub(crate) fn take_inquiry(&mut self, now: Time, every: Duration, arrived: usize, cost: usize) -> bool {
        self.inquiring.earn(arrived);
        let goes = self.inquired.is_due(now, every) && self.inquiring.pay(cost);
        if goes {
            self.inquired.note(now);
        }
        goes
    }

    // --- its messages that are lacking here ---

    /// True if its lacking messages were not looked for within `every`.
    pub(crate) fn request_is_due(&self, now: Time, every: Duration) -> bool {
        self.asked.is_due(now, every)
    }

    pub(crate) fn note_request(&mut self, now: Time) {
        self.asked.note(now);
    }

    /// Returns the highest of its messages that was requested, and the time of the request for all through there.
    pub(crate) fn wanted(&self) -> (MessageNumber, Time) {
        self.wanted
    }

    pub(crate) fn note_wanted(&mut self, through: MessageNumber, since: Time) {
        self.wanted = (through, since);
    }

    // --- what the others wait for ---

    /// Returns the mark at which it keeps the others waiting, as the sequencer sees it.
    pub(crate) fn awaited(&self) -> Awaited {
        self.awaited
    }

    pub(crate) fn set_awaited(&mut self, awaited: Awaited) {
        self.awaited = awaited;
    }
}

/// Raises a mark; a lower report comes late and changes nothing.
#[inline]
fn raise(mark: &mut Seqno, to: Seqno) {
    let before = *mark;
    *mark = before.max(to);
    debug_assert!(*mark >= before, "a mark of a peer goes back from {before} to {mark}");
}
