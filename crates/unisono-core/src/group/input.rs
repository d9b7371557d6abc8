//! Input: takes datagrams apart, and hands their frames to the modules that they concern.
//!
//! A datagram is taken only if it is intact (or opens under its sender's key), is not a copy of one taken before, and
//! comes from where its frames can matter: from outside of any epoch (locating, asking to join, status queries), from
//! this epoch, or from the previous one, whose stragglers receive the decision. Any other datagram is dropped and
//! counted, and never answered with more bytes than it had.

use super::{Group, Phase};
use crate::event::Suspicion;
use crate::identity::{Ballot, EpochTag, Instance, Member, Uid};
use crate::membership::{Invitation, LeaveRequest};
use crate::planted::{Planted, Probe};
use crate::time::Time;
use crate::wire::{Decoder, Frame, HEADER_BYTES, Header, HeaderError, KeyContext, ProtectionKind, open};
use bytes::{Bytes, BytesMut};
use core::net::SocketAddr;

/// A farewell is no longer than a datagram with this number of bytes in it.
const FAREWELL_BYTES: usize = 20;

impl Group {
    /// Takes a datagram that was sent to this member alone.
    pub fn handle_datagram(&mut self, now: Time, from: SocketAddr, datagram: BytesMut) {
        self.receive(now, from, datagram, false);
    }

    /// Takes a datagram that came over the group's multicast address.
    pub fn handle_multicast(&mut self, now: Time, from: SocketAddr, datagram: BytesMut) {
        self.receive(now, from, datagram, true);
    }

    /// Handles the timeout that [`Group::poll_timeout`] named. Harmless at any other time.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.ending.is_silent() {
            return;
        }
        self.notice_sleep(now);
        self.joining_timeout(now);
        self.forming_timeout(now);
        self.seek_timeout(now);
        self.leave_timeout(now);
        self.heartbeat_timeout(now);
        self.repair_timeout(now);
        if self.outbox.handle_timeout(now) {
            self.counters.resends += 1;
            self.probe(Probe::Resent);
        }
        self.detector_timeout(now);
        self.recovery_timeout(now);
        self.previous_timeout(now);
        self.say_farewells(now);
        self.forget_leavers(now);
        self.forget_stale_observers(now);
        self.settle(now);
    }

    fn receive(&mut self, now: Time, from: SocketAddr, datagram: BytesMut, multicast: bool) {
        if self.ending.is_silent() {
            return;
        }
        self.notice_sleep(now);
        let length = datagram.len();
        let header = match Header::parse(&datagram) {
            Ok(header) => header,
            Err(HeaderError::Version(version)) => {
                self.handle_other_version(now, from, &datagram, version, multicast);
                return;
            }
            Err(_) => {
                self.counters.malformed += 1;
                return;
            }
        };
        if header.group != self.tag || header.sender == self.me.uid || self.phase == Phase::Gone {
            return;
        }
        let outside = header.epoch == EpochTag::OUTSIDE;
        let instance = if outside { Instance(0) } else { self.instance };
        let context = KeyContext { instance, sender: header.sender, salt: header.salt };
        let in_epoch = header.epoch == self.epoch_tag && self.broken(Planted::WindowBeforeOpening);
        if in_epoch && !self.notes_unopened(&header) {
            return;
        }
        let Some(payload) = open(datagram, &header, &context, &mut *self.protection) else {
            self.note_unopened(now, from, &header);
            return;
        };
        if outside {
            self.receive_outside(now, from, &header, payload, multicast);
        } else if header.epoch == self.epoch_tag || self.broken(Planted::OldEpochTaken) {
            self.receive_inside(now, from, &header, payload, multicast);
        } else {
            self.receive_strange(now, from, &header, payload, length);
        }
        self.settle(now);
    }

    /// Counts a datagram that does not open: damaged, under another key, or of another founding. A datagram sealed
    /// within an epoch opens only for processes that know the founding. A process that still looks for the group counts
    /// such a datagram as under another key, because members with its own key would answer. A process that takes part in
    /// a formation does not: the others may have formed the group a moment before this process learns it.
    #[cold]
    fn note_unopened(&mut self, now: Time, from: SocketAddr, header: &Header) {
        let same_kind = header.protection == self.protection.kind();
        let looks = self.phase == Phase::Locating && self.forming.is_none();
        let opens_for_key = header.epoch == EpochTag::OUTSIDE || looks;
        if same_kind && header.protection == ProtectionKind::Checksum {
            self.counters.malformed += 1;
        } else if !same_kind || opens_for_key {
            self.counters.foreign += 1;
            self.foreign = Some(from);
            self.episodes.note_foreign(now, from);
        } else if header.epoch == self.epoch_tag {
            self.counters.malformed += 1;
        } else {
            self.counters.stale += 1;
        }
    }

    // --- outside of any epoch ---

    #[cold]
    fn receive_outside(
        &mut self,
        now: Time,
        from: SocketAddr,
        header: &Header,
        payload: Bytes,
        multicast: bool,
    ) {
        self.counters.datagrams_received += 1;
        for frame in Decoder::new(payload) {
            match frame {
                Ok(frame) => self.handle_outside(now, from, header, frame, multicast),
                Err(_) => {
                    self.counters.malformed += 1;
                    return;
                }
            }
        }
    }

    fn handle_outside(
        &mut self,
        now: Time,
        from: SocketAddr,
        header: &Header,
        frame: Frame,
        multicast: bool,
    ) {
        match frame {
            Frame::Locate { nonce } => self.handle_locate(now, from, header.sender, nonce, !multicast),
            Frame::HereIs(here) => self.handle_here_is(now, from, here),
            Frame::Met(met) if !multicast => self.handle_verdict(now, from, header.sender, met),
            Frame::JoinRequest { cookie, name, floor, hops, hello } => {
                let joiner = Member { uid: header.sender, name, address: from, floor, hops };
                self.handle_join_request(now, joiner, header.number, cookie, hello);
            }
            Frame::Welcome(welcome) if self.has_asked(from) => {
                self.handle_welcome(now, header.sender, *welcome);
            }
            Frame::Refused { cookie, reason } if self.has_asked(from) => {
                self.handle_refused(now, from, cookie, reason);
            }
            Frame::Welcome(_) | Frame::Refused { .. } => self.counters.stale += 1,
            Frame::Ask { nonce, room } => {
                self.handle_ask(now, (header.sender, from), (nonce, room), !multicast);
            }
            Frame::Force { nonce, challenge, without } if !multicast => {
                self.handle_force(now, from, nonce, challenge, &without);
            }
            Frame::Switch { nonce, challenge, order } if !multicast => {
                self.handle_switch(now, from, nonce, challenge, order);
            }
            Frame::Form { .. }
            | Frame::FormPromise(_)
            | Frame::FormRefused { .. }
            | Frame::FormPrepare { .. }
            | Frame::FormPrepared { .. }
            | Frame::FormEcho { .. }
            | Frame::Formed { .. } => self.handle_forming(now, from, header.sender, frame),
            Frame::Parcel { id, index, count, bytes } if self.phase == Phase::Locating => {
                if !self.has_asked(from) {
                    return;
                }
                if self.outside_parcels.0 != header.sender {
                    self.outside_parcels = (header.sender, Default::default());
                }
                let whole = self.outside_parcels.1.take(id, index, count, &bytes);
                if let Some(Ok(frame)) = whole.as_ref().map(Frame::decode_alone) {
                    self.probe(Probe::ParcelUsed);
                    self.handle_outside(now, from, header, frame, multicast);
                }
            }
            _ => self.counters.malformed += 1,
        }
    }

    // --- in this epoch ---

    /// Planted bug: notes the number of a datagram that may not be genuine. Returns false if it was noted before.
    fn notes_unopened(&mut self, header: &Header) -> bool {
        let Some(peer) = self.peers.get_mut(header.sender) else { return true };
        peer.takes_number(header.number)
    }

    fn receive_inside(
        &mut self,
        now: Time,
        from: SocketAddr,
        header: &Header,
        payload: Bytes,
        multicast: bool,
    ) {
        let sender = header.sender;
        let (takes_copies, is_noted) =
            (self.broken(Planted::ReplayTaken), self.broken(Planted::WindowBeforeOpening));
        let Some(peer) = self.peers.get_mut(sender) else {
            self.counters.stale += 1;
            self.receive_from_stranger(now, from, header, payload);
            return;
        };
        if !is_noted && !peer.takes_number(header.number) && !takes_copies {
            if self.broken(Planted::UnreliableTwice) {
                self.deliver_again(sender, payload);
            }
            self.counters.replayed += 1;
            self.probe(Probe::ReplayRefused);
            return;
        }
        peer.note_heard(now);
        let mut entered = peer.has_entered();
        if peer.suspected() == Some(Suspicion::Silent) {
            self.suspect_no_longer(now, sender);
        }
        self.counters.datagrams_received += 1;
        if self.phase == Phase::Excluded {
            let is_there =
                Decoder::new(payload.clone()).flatten().any(|frame| !is_told_from_elsewhere(&frame));
            self.linger_for(now, sender, is_there, HEADER_BYTES + payload.len());
        }
        if multicast {
            self.acknowledging.note_multicast(now);
        }
        let (mut level, mut heartbeat, mut alone) = (None, None, true);
        for frame in Decoder::new(payload) {
            let Ok(frame) = frame else {
                self.counters.malformed += 1;
                break;
            };
            match &frame {
                Frame::Level { ballot } => {
                    level = Some(*ballot);
                    continue;
                }
                Frame::Heartbeat(beat) if beat.acting => heartbeat = Some((beat.end, beat.asks)),
                _ => alone = false,
            }
            if !entered && !is_told_from_elsewhere(&frame) {
                entered = true;
                self.note_entered(sender);
            }
            self.handle_inside(now, sender, frame, level);
            if self.epoch_tag != header.epoch || self.phase == Phase::Gone {
                // This frame ended the epoch to which the other frames belong.
                return;
            }
        }
        if level.is_some() {
            self.log.advance();
            self.note_levelled(now);
        }
        if let Some((end, asks)) = heartbeat
            && self.heartbeat_wants_answer(now, end, alone && (asks || self.broken(Planted::AcceptAnswered)))
        {
            self.acknowledging.report_now();
        }
        if (heartbeat.is_some() && alone) || self.order.is_quiet() {
            self.look_ahead(now);
        }
    }

    fn note_entered(&mut self, sender: Uid) {
        if let Some(peer) = self.peers.get_mut(sender) {
            peer.note_entered();
        }
    }

    /// Handles a datagram of this epoch from an unknown process. It may have left and been cut off since. Or it reports
    /// that the epoch is long over, or that this member may go.
    #[cold]
    fn receive_from_stranger(&mut self, now: Time, from: SocketAddr, header: &Header, payload: Bytes) {
        let uid = header.sender;
        // An unknown process is never sent more bytes than it sent.
        let may_answer = payload.len() > FAREWELL_BYTES;
        let leave = self.departures.leave_of(uid);
        if let Some(seqno) = leave.filter(|seqno| self.leave_is_known(*seqno)) {
            if may_answer {
                self.post_under(from, self.epoch_tag, Frame::Farewell { uid, seqno });
            }
            return;
        }
        for frame in Decoder::new(payload).flatten() {
            match frame {
                // A sequencer has numbered every JOIN there is, so no unknown member coordinates.
                Frame::Invite { ballot, members_min } if !self.may_assign() => {
                    let invitation = Invitation { ballot, members_min };
                    return self.handle_invitation_of_stranger(now, from, uid, leave, invitation);
                }
                // A leaver has nothing else to report to members that have forgotten it.
                _ if leave.is_some() => {}
                Frame::Excluded { uid, instance, epoch } => {
                    return self.handle_excluded(uid, instance, epoch);
                }
                Frame::Farewell { uid: leaver, seqno } => {
                    return self.handle_farewell(now, uid, leaver, seqno);
                }
                Frame::Decided { proposal, entered } if proposal.epoch.counter == self.epoch.counter + 1 => {
                    // It may be the only process left that has what this member lacks.
                    self.take_for_member(now, from, uid, leave);
                    return self.handle_decided(now, uid, proposal, entered);
                }
                _ => {}
            }
        }
        // The sequencer knows every member and observer. An unknown process has left, perhaps before this member
        // joined, or listens in vain.
        if may_answer && leave.is_none() && self.may_assign() {
            self.tell_unneeded(uid, from);
        }
    }

    fn handle_inside(&mut self, now: Time, from: Uid, frame: Frame, level: Option<Ballot>) {
        match frame {
            Frame::Data(data) => self.handle_data(now, data),
            Frame::Ordered(ordered) => self.handle_ordered(ordered, level),
            Frame::Numbers(numbers) => self.handle_numbers(numbers, level),
            Frame::Heartbeat(heartbeat) => self.handle_heartbeat(now, from, &heartbeat),
            Frame::Watermarks(marks) => self.handle_watermarks(now, from, &marks),
            frame => self.handle_rare(now, from, frame, level),
        }
    }

    /// Handles frames that are sent only when something is lost, or members come, go or are suspected.
    #[cold]
    fn handle_rare(&mut self, now: Time, from: Uid, frame: Frame, level: Option<Ballot>) {
        match frame {
            Frame::Change { seqno, change } => self.handle_change(seqno, change, level),
            Frame::Nack { ranges } => self.handle_nack(from, &ranges),
            Frame::Want { from: first, to } => self.outbox.note_wanted(now, first, to),
            Frame::Gone { through } => self.handle_gone(now, from, through),
            Frame::Unreliable { number, payload } => self.handle_unreliable(from, number, payload),
            Frame::Note { member, number, note } => self.handle_note(from, member, number, note),
            Frame::Probe { nonce } => self.post(from, Frame::Alive { nonce }),
            Frame::Alive { nonce } => self.handle_alive(now, from, nonce),
            Frame::Confirm { nonce } => self.handle_confirm(from, nonce),
            Frame::Confirmed { nonce, end } => self.handle_confirmed(from, nonce, end),
            Frame::LeaveRequest { unnumbered_through, goodbye } => {
                self.handle_leave_request(LeaveRequest { from, unnumbered_through, goodbye });
            }
            Frame::SwitchRequest { order, since } => self.handle_switch_request(now, from, order, since),
            Frame::Met(met) => self.handle_met(&met),
            Frame::Farewell { uid, seqno } => self.handle_farewell(now, from, uid, seqno),
            Frame::Invite { ballot, members_min } => {
                self.handle_invite(now, from, Invitation { ballot, members_min });
            }
            Frame::Vote(vote) => self.handle_vote(now, from, *vote),
            Frame::Outbid { promised } => self.handle_outbid(now, promised),
            Frame::Pull { ballot, from: first, to } => {
                self.handle_pull(from, ballot, first, to);
            }
            Frame::Prepare(prepare) => self.handle_prepare(now, from, *prepare),
            Frame::Prepared { ballot } => self.note_prepared(now, from, ballot),
            Frame::Decided { proposal, entered } => self.handle_decided(now, from, proposal, entered),
            Frame::Excluded { instance, epoch, .. } if self.is_earlier(instance, epoch) => {
                // A straggler does not know this member, and takes it for one that was left behind.
                self.tell_straggler(now, from, HEADER_BYTES);
            }
            Frame::Excluded { uid, instance, epoch } => self.handle_excluded(uid, instance, epoch),
            Frame::Parcel { id, index, count, bytes } => {
                let whole =
                    self.peers.get_mut(from).and_then(|peer| peer.take_parcel(id, index, count, &bytes));
                match whole.as_ref().map(Frame::decode_alone) {
                    // No correct member puts a parcel in a parcel, or sends an unreliable message in several datagrams.
                    Some(Ok(Frame::Parcel { .. } | Frame::Unreliable { .. })) | Some(Err(_)) => {
                        self.counters.malformed += 1;
                    }
                    Some(Ok(frame)) => {
                        self.probe(Probe::ParcelUsed);
                        self.handle_inside(now, from, frame, level);
                    }
                    None => {}
                }
            }
            // A member asks what became of this epoch: nothing yet.
            Frame::Inquiry | Frame::Level { .. } => {}
            _ => self.counters.malformed += 1,
        }
    }

    // --- another epoch ---

    /// Handles a datagram of another epoch. A member of the previous one receives the decision. If this member has not
    /// heard of the epoch yet, it asks about it.
    #[cold]
    fn receive_strange(
        &mut self,
        now: Time,
        from: SocketAddr,
        header: &Header,
        payload: Bytes,
        length: usize,
    ) {
        self.counters.stale += 1;
        self.probe(Probe::StaleRefused);
        if self.handle_straggler(now, from, header, &payload) {
            return;
        }
        if self.peers.get(header.sender).is_some() && self.phase != Phase::Locating {
            self.inquire(now, header.sender, length);
            return;
        }
        let asks = Decoder::new(payload).flatten().any(|frame| frame == Frame::Inquiry);
        let counts = match self.phase {
            Phase::Member | Phase::Resetting | Phase::Leaving => true,
            // An observer may listen before a quorum is in its epoch, and that quorum may need the asker.
            Phase::Joining => self.is_member(),
            Phase::Locating | Phase::Excluded | Phase::Gone => false,
        };
        if asks && counts && !self.may_need(header.epoch) {
            // No longer than the question, which is padded. A process that is further on, or in another group of the
            // port, ignores it.
            let excluded = Frame::Excluded { uid: header.sender, instance: self.instance, epoch: self.epoch };
            self.post_under(from, header.epoch, excluded);
        }
    }
}

/// True for frames sent in an epoch by processes that are in another one, and may never have been in this one.
fn is_told_from_elsewhere(frame: &Frame) -> bool {
    matches!(frame, Frame::Excluded { .. } | Frame::Decided { .. })
}
