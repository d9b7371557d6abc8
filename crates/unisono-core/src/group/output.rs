//! Output: packs what the modules have to send into datagrams.
//!
//! No timer waits to fill a datagram: what is queued now goes together. First go control frames and retransmissions,
//! each to one address; then unreliable messages, and what this member numbered, to all members; then its other messages; then an acknowledgement,
//! if it did not ride along.

use super::{Destination, Group, Phase};
use crate::flow::Outgoing;
use crate::identity::{Ballot, EpochTag, Instance, Seqno, Uid};
use crate::log::{Entry, Message};
use crate::planted::Planted;
use crate::time::Time;
use crate::wire::{
    Frame, HEADER_BYTES, Header, Heartbeat, KeyContext, Method, Numbers, RunHead, Writer, cut, seal,
};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// A frame that waits to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Mail {
    to: Destination,
    under: EpochTag,
    /// `None` for a bare header, a datagram without frames.
    frame: Option<Frame>,
}

/// Entries that wait to be sent to one address.
#[derive(Clone, Debug)]
pub(crate) struct Serve {
    pub(crate) to: SocketAddr,
    pub(crate) under: EpochTag,
    /// Ballot of the reset that they are served for, if they are.
    pub(crate) level: Option<Ballot>,
    pub(crate) next: Seqno,
    pub(crate) last: Seqno,
}

/// Maximum number of control frames that wait to be sent. Only a flood of requests makes more.
const MAIL_MAX: usize = 4096;
/// Maximum size of what goes into a datagram beside one message of this member: the header, an acknowledgement and the
/// heads of the message. They come to less.
const BESIDE_MESSAGE_BYTES: usize = 160;

impl Group {
    /// Queues a frame for a peer, in this epoch.
    pub(crate) fn post(&mut self, to: Uid, frame: Frame) {
        if let Some(address) = self.peers.address(to) {
            self.post_under(address, self.epoch_tag, frame);
        }
    }

    /// Queues a frame for an address, in the epoch of this tag.
    pub(crate) fn post_under(&mut self, to: SocketAddr, under: EpochTag, frame: Frame) {
        self.push_mail(Mail { to: Destination::Address(to), under, frame: Some(frame) });
    }

    /// Queues a bare header, a datagram without frames, for an address.
    pub(crate) fn post_bare(&mut self, to: SocketAddr, under: EpochTag) {
        self.push_mail(Mail { to: Destination::Address(to), under, frame: None });
    }

    /// Queues a frame outside of any epoch.
    pub(crate) fn post_outside(&mut self, to: SocketAddr, frame: Frame) {
        self.post_under(to, EpochTag::OUTSIDE, frame);
    }

    pub(crate) fn post_to_rendezvous(&mut self, frame: Frame) {
        self.push_mail(Mail { to: Destination::Rendezvous, under: EpochTag::OUTSIDE, frame: Some(frame) });
    }

    /// Queues a frame for all members, in this epoch.
    pub(crate) fn post_to_everyone(&mut self, frame: Frame) {
        if self.peers.len() > 0 {
            self.push_mail(Mail { to: Destination::Everyone, under: self.epoch_tag, frame: Some(frame) });
        }
    }

    /// Queues a frame for each member alone: a frame that is sent once is not left to a multicast that may never
    /// arrive.
    pub(crate) fn post_to_each(&mut self, frame: &Frame) {
        let uids: Vec<Uid> = self.peers.iter().map(|peer| peer.uid()).collect();
        uids.into_iter().for_each(|uid| self.post(uid, frame.clone()));
    }

    fn push_mail(&mut self, mail: Mail) {
        if self.mail.len() < MAIL_MAX {
            self.mail.push_back(mail);
        }
    }

    /// Writes the next datagram to send into `out` (which is cleared first), and returns its destination.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Destination> {
        if self.took_events {
            self.settle_events(now);
        }
        out.clear();
        if self.ending.is_silent() {
            return None;
        }
        let (to, under) = self.pack(now, out)?;
        if !self.finish(under, out) {
            out.clear();
            return None;
        }
        self.counters.datagrams_sent += self.copies(to);
        Some(to)
    }

    fn pack(&mut self, now: Time, out: &mut Vec<u8>) -> Option<(Destination, EpochTag)> {
        if !self.mail.is_empty()
            && let Some(packed) = self.pack_mail(out)
        {
            return Some(packed);
        }
        if !self.serves.is_empty()
            && let Some(packed) = self.pack_serve(out)
        {
            return Some(packed);
        }
        if matches!(self.phase, Phase::Locating | Phase::Excluded | Phase::Gone) {
            return None;
        }
        if self.unreliable.has_to_send() && self.pack_unreliable(out) {
            return Some((Destination::Everyone, self.epoch_tag));
        }
        if self.pack_numbered(now, out) {
            return Some((Destination::Everyone, self.epoch_tag));
        }
        if self.notes.is_due(now) && self.pack_note(now, out) {
            return Some((Destination::Everyone, self.epoch_tag));
        }
        if self.multicast_probe_is_due(now) {
            self.begin_datagram(out);
            let heartbeat = Heartbeat { asks: true, ..self.say_heartbeat(now) };
            let limit = self.settings.datagram_bytes_max;
            Writer::new(out, limit).frame(&Frame::Heartbeat(heartbeat));
            return Some((Destination::Multicast, self.epoch_tag));
        }
        if let Some(to) = self.pack_own(now, out) {
            return Some((to, self.epoch_tag));
        }
        if self.acknowledging.is_due() { self.pack_acknowledgement(now, out) } else { None }
    }

    /// Makes room for the header, which is written when the datagram is finished.
    pub(crate) fn begin_datagram(&mut self, out: &mut Vec<u8>) {
        out.clear();
        out.resize(HEADER_BYTES, 0);
    }

    /// Writes the header and seals the datagram. Returns false if it could not be sealed.
    #[inline(never)]
    fn finish(&mut self, under: EpochTag, out: &mut [u8]) -> bool {
        if self.packet_number == 0 || !self.broken(Planted::NumberNotCounted) {
            self.packet_number += 1;
        }
        let header = Header {
            protection: self.protection.kind(),
            group: self.tag,
            epoch: under,
            sender: self.me.uid,
            number: self.packet_number,
            salt: self.protection.salt(),
        };
        out[..HEADER_BYTES].copy_from_slice(&header.bytes());
        let instance = if under == EpochTag::OUTSIDE { Instance(0) } else { self.instance };
        let context = KeyContext { instance, sender: self.me.uid, salt: header.salt };
        seal(out, &header, &context, &mut *self.protection)
    }

    /// Packs control frames: those for one destination go together.
    #[inline(never)]
    fn pack_mail(&mut self, out: &mut Vec<u8>) -> Option<(Destination, EpochTag)> {
        loop {
            let first = self.mail.pop_front()?;
            let (to, under) = (first.to, first.under);
            self.begin_datagram(out);
            let limit = self.settings.datagram_bytes_max;
            let mut writer = Writer::new(out, limit);
            let Some(frame) = &first.frame else { return Some((to, under)) };
            if !writer.frame(frame) {
                self.cut_into_parcels(frame, to, under);
                continue;
            }
            while let Some(next) = self.mail.front()
                && (next.to, next.under) == (to, under)
                && next.frame.as_ref().is_some_and(|frame| writer.frame(frame))
            {
                self.mail.pop_front();
            }
            return Some((to, under));
        }
    }

    /// Cuts a frame larger than a datagram into parcels, which go before everything else.
    fn cut_into_parcels(&mut self, frame: &Frame, to: Destination, under: EpochTag) {
        self.parcel_id += 1;
        let parcels = cut(frame, self.parcel_id, self.settings.datagram_bytes_max);
        for frame in parcels.into_iter().flatten().rev() {
            self.mail.push_front(Mail { to, under, frame: Some(frame) });
        }
    }

    /// Packs entries that were requested.
    #[inline(never)]
    fn pack_serve(&mut self, out: &mut Vec<u8>) -> Option<(Destination, EpochTag)> {
        loop {
            let mut serve = self.serves.pop_front()?;
            self.begin_datagram(out);
            let limit = self.settings.datagram_bytes_max;
            let mut writer = Writer::new(out, limit);
            if let Some(ballot) = serve.level {
                writer.frame(&Frame::Level { ballot });
            }
            let mut next = self.write_entries(&mut writer, serve.next, serve.last, true);
            if next == serve.next {
                next = self.write_oversized(out, serve.next);
            }
            let written = next > serve.next;
            self.counters.repairs_sent += next - serve.next;
            serve.next = next;
            let (to, under) = (Destination::Address(serve.to), serve.under);
            if written && serve.next <= serve.last {
                self.serves.push_front(serve);
            }
            if written {
                return Some((to, under));
            }
        }
    }

    /// Writes the entries from `first` through `last` that are held and fit; returns the first seqno not written.
    /// Messages by BB go without data, unless `whole`.
    fn write_entries(&self, writer: &mut Writer<'_>, first: Seqno, last: Seqno, whole: bool) -> Seqno {
        let mut next = first;
        while next <= last {
            let Some(entry) = self.log.history().held(next) else { break };
            let after = match entry {
                Entry::Message(message) if message.broadcast && !whole => {
                    self.write_numbers(writer, next, last, message)
                }
                Entry::Message(message) => self.write_run(writer, next, last, message, whole),
                entry => match entry.to_change().map(|change| Frame::Change { seqno: next, change }) {
                    Some(frame) => next + u64::from(writer.frame(&frame)),
                    // A member that lacks a reset event lacks the epoch's beginning, which it learns from the decision.
                    None => next + 1,
                },
            };
            if after == next {
                break;
            }
            next = after;
        }
        next
    }

    /// Writes a piece alone into a larger datagram, if it was cut by a member with larger datagrams than this one's:
    /// the network then cuts it, which is better than no delivery.
    fn write_oversized(&self, out: &mut Vec<u8>, seqno: Seqno) -> Seqno {
        let limit = out.len() + crate::wire::PIECE_BYTES_MAX + crate::wire::run_overhead();
        self.write_entries(&mut Writer::new(out, limit), seqno, seqno, true)
    }

    /// Writes consecutive messages of one sender, with data; returns the first seqno not written.
    fn write_run(
        &self,
        writer: &mut Writer<'_>,
        seqno: Seqno,
        last: Seqno,
        head: &Message,
        whole: bool,
    ) -> Seqno {
        let run = RunHead::Ordered { seqno, sender: head.sender, first: head.number, quality: head.quality };
        if !writer.begin(&run) {
            return seqno;
        }
        let mut next = seqno;
        while next <= last {
            let Some(Entry::Message(message)) = self.log.history().held(next) else { break };
            let follows = message.sender == head.sender
                && message.number == head.number + (next - seqno)
                && message.quality == head.quality
                && (whole || !message.broadcast);
            let Some(data) = self.log.history().data(message).filter(|_| follows) else { break };
            if !writer.piece(data.more, data.as_bytes()) {
                break;
            }
            next += 1;
        }
        writer.end();
        next
    }

    /// Writes the seqnos of consecutive messages of one sender, without data; returns the first one not written.
    fn write_numbers(&self, writer: &mut Writer<'_>, seqno: Seqno, last: Seqno, head: &Message) -> Seqno {
        let mut next = seqno;
        while next <= last && next - seqno < u64::from(u16::MAX) {
            let Some(Entry::Message(message)) = self.log.history().held(next) else { break };
            let follows = message.sender == head.sender
                && message.number == head.number + (next - seqno)
                && message.quality == head.quality
                && message.broadcast;
            if !follows {
                break;
            }
            next += 1;
        }
        let (sender, first, quality) = (head.sender, head.number, head.quality);
        let numbers = Numbers { seqno, sender, first, quality, count: (next - seqno) as u16 };
        if writer.frame(&Frame::Numbers(numbers)) { next } else { seqno }
    }

    /// Packs what this member numbered, and its heartbeat, for all members. Returns false if there is nothing.
    fn pack_numbered(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        // What every member holds needs no announcing.
        self.order.announced = self.order.announced.max(self.log.base());
        let (first, last) = (self.order.announced + 1, self.order.numbered.min(self.log.received()));
        let news = first <= last && self.order.has_to_announce();
        (news || self.order.heartbeat_is_due()) && self.pack_news(now, out, first, last)
    }

    #[inline(never)]
    fn pack_news(&mut self, now: Time, out: &mut Vec<u8>, first: Seqno, last: Seqno) -> bool {
        let news = first <= last;
        if self.peers.len() == 0 {
            self.order.announced = last.max(self.order.announced);
            self.order.heartbeat_is_done();
            return false;
        }
        self.begin_datagram(out);
        let limit = self.settings.datagram_bytes_max;
        let due = self.order.heartbeat_is_due();
        // The heartbeat of a pass says how far the seqnos go. On a slow path members would request what is behind it.
        let comes_last = self.is_ring() && !self.may_assign();
        let mut heartbeat_sent = due && !comes_last && self.write_heartbeat(now, out);
        if news {
            let mut writer = Writer::new(out, limit);
            let mut next = self.write_entries(&mut writer, first, last, false);
            if next == first && !heartbeat_sent {
                next = self.write_oversized(out, first);
            }
            self.order.announced = next - 1;
            self.serve_sender_first(first);
        }
        if due && comes_last && (!news || self.order.announced == last) {
            heartbeat_sent = self.write_heartbeat(now, out);
        }
        if heartbeat_sent {
            self.note_heartbeat_sent(now);
        }
        self.write_waiting_note(out);
        true
    }

    /// Writes a heartbeat to all members, in a ring with this member's watermarks. Returns false if there is no room.
    fn write_heartbeat(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        let limit = self.settings.datagram_bytes_max;
        self.order.stamp = self.order.stamp.wrapping_add(1).max(1);
        let heartbeat = self.say_heartbeat(now);
        let is_written = Writer::new(out, limit).frame(&Frame::Heartbeat(heartbeat));
        if is_written && !self.may_assign() && self.is_ring() {
            let marks = self.watermarks(now);
            Writer::new(out, limit).frame(&Frame::Watermarks(marks));
        }
        if is_written && !self.notes.is_empty() {
            self.repeat_notes(out);
        }
        is_written
    }

    /// Packs own messages that ask for a seqno: by PB to the sequencer, by BB to all. An acknowledgement rides along.
    fn pack_own(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Destination> {
        if self.submit_to().is_none() || self.recovery.has_promised() || self.own_leave_is_logged() {
            return None;
        }
        let window = u64::from(self.config.window);
        self.outbox.next_to_send(window)?;
        self.pack_messages(now, out)
    }

    /// True if this member sends by BB whatever the size: it is busy, and the whole group hears the multicast. That
    /// costs it no more than PB, and the sequencer, through which everything goes, need not copy its messages.
    fn spares_the_sequencer(&self) -> bool {
        let one_copy = self.audience().multicast && self.audience().addresses.is_empty();
        one_copy && self.outbox.bytes_in_flight() >= self.settings.datagram_bytes_max as u64
    }

    #[inline(never)]
    fn pack_messages(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Destination> {
        let window = u64::from(self.config.window);
        let (first, head) = self.outbox.next_to_send(window)?;
        let sequencer = self.submit_to()?;
        let address = self.peers.address(sequencer)?;
        let multicast = self.audience().multicast;
        // Each member has the token soon.
        let busy = if self.is_ring() { multicast } else { self.spares_the_sequencer() };
        let in_vain = self.outbox.is_overdue() || (multicast && !self.outbox.may_multicast(now));
        let goes_by_bb = |outgoing: &Outgoing| (outgoing.broadcast || busy) && !in_vain;
        let broadcast = goes_by_bb(head);
        let (quality, bytes) = (head.quality, head.bytes.len());
        self.begin_datagram(out);
        let limit = self.settings.datagram_bytes_max;
        if self.acknowledging.is_due() && !broadcast && self.acknowledge_to() == Some(sequencer) {
            let marks = self.watermarks(now);
            // Only if the message still fits beside it; otherwise the acknowledgement goes alone.
            let fits = bytes + BESIDE_MESSAGE_BYTES < limit;
            if fits && Writer::new(out, limit).frame(&Frame::Watermarks(marks)) {
                self.note_told(now, sequencer, marks);
            }
        }
        let mut writer = Writer::new(out, limit);
        let method = match broadcast {
            true if self.outbox.may_wait(limit) => Method::BbStream,
            true => Method::Bb,
            false => Method::Pb,
        };
        self.outbox.note_datagram(method != Method::BbStream);
        let base = self.outbox.base();
        writer.begin(&RunHead::Data { sender: self.me.uid, first, base, method, quality });
        let mut next = first;
        let waited = self.outbox.waits_since().is_some();
        while let Some((number, outgoing)) = self.outbox.next_to_send(window)
            && number == next
            && (goes_by_bb(outgoing), outgoing.quality) == (broadcast, quality)
            && writer.piece(outgoing.more, &outgoing.bytes)
        {
            self.outbox.note_sent(now, number);
            next += 1;
        }
        if writer.end() == 0 {
            return None;
        }
        if broadcast && multicast {
            self.outbox.note_multicast(first, next - 1);
        }
        match broadcast {
            _ if !self.is_ring() => {}
            true => self.outbox.note_to_all(first, next - 1),
            false => self.note_submitted(sequencer),
        }
        if !waited {
            self.expect_number(now);
        }
        self.wake = self.next_wake();
        Some(if broadcast { Destination::Everyone } else { Destination::Address(address) })
    }

    #[inline(never)]
    fn pack_acknowledgement(&mut self, now: Time, out: &mut Vec<u8>) -> Option<(Destination, EpochTag)> {
        self.acknowledging.begin_report();
        let to = self.acknowledge_to()?;
        let address = self.peers.address(to)?;
        self.begin_datagram(out);
        let marks = self.watermarks(now);
        let limit = self.settings.datagram_bytes_max;
        Writer::new(out, limit).frame(&Frame::Watermarks(marks));
        self.note_told(now, to, marks);
        self.repeat_own_note(out);
        Some((Destination::Address(address), self.epoch_tag))
    }
}
