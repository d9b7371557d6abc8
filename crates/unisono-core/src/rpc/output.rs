//! Output: packs what the client and the server side have to send into datagrams.
//!
//! No timer holds frames back to fill a datagram: all that is queued now for one address is sent together. Parts of
//! large messages go last, one datagram at a time, so that they delay no small call.
//!
//! Frames for one life alone go into an envelope, which fills its datagram. Questions for ports and the answers to them
//! do not.

use super::Endpoint;
use super::common::To;
use super::server::SessionId;
use super::types::{CALLS_TAG, CallDestination};
use crate::identity::{EpochTag, Instance, Uid};
use crate::time::Time;
use crate::wire::{
    EnvelopeHead, HEADER_BYTES, Header, KeyContext, Opening, TAG_BYTES, Writer, close, enclose, seal,
};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// A datagram that is being written. Its header is written when it is finished.
pub(super) struct Packet<'a> {
    out: &'a mut Vec<u8>,
    limit: usize,
    /// Salt of the envelope, if there is one.
    salt: u64,
}

/// The life for which an envelope is sealed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Correspondent {
    Server(Uid),
    Client(SessionId),
}

/// Where an envelope goes, and for which life it is to be sealed.
pub(super) type Letter = (SocketAddr, Correspondent);

impl Packet<'_> {
    /// Returns a writer for frames that any holder of the group key can read. Drops what was written before.
    fn open(&mut self) -> Writer<'_> {
        self.out.clear();
        self.out.resize(HEADER_BYTES, 0);
        Writer::new(self.out, self.limit)
    }

    /// Returns a writer for frames to this server. Drops what was written before.
    pub(super) fn for_server(&mut self, to: Uid, opening: Option<Opening>) -> Writer<'_> {
        self.enclose(EnvelopeHead { to, salt: self.salt, from_server: false, opening })
    }

    /// Returns a writer for frames to this client. Drops what was written before.
    pub(super) fn for_client(&mut self, to: Uid) -> Writer<'_> {
        self.enclose(EnvelopeHead { to, salt: self.salt, from_server: true, opening: None })
    }

    fn enclose(&mut self, head: EnvelopeHead) -> Writer<'_> {
        self.out.clear();
        self.out.resize(HEADER_BYTES, 0);
        enclose(self.out, &head);
        Writer::new(self.out, self.limit - TAG_BYTES)
    }
}

impl Endpoint {
    /// Writes the next datagram to send into `out`, which is cleared first, and returns its destination.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<CallDestination> {
        out.clear();
        if self.has_nothing_to_say() {
            return None;
        }
        self.common.packet_number += 1;
        let (to, correspondent) = self.pack(now, out)?;
        if !self.finish(correspondent, out) {
            out.clear();
            return None;
        }
        self.common.counters.datagrams_sent += 1;
        Some(to)
    }

    fn pack(&mut self, now: Time, out: &mut Vec<u8>) -> Option<(CallDestination, Option<Correspondent>)> {
        let common = &mut self.common;
        let (limit, salt) = (common.settings.datagram_bytes_max, common.agreement.salt());
        let mut packet = Packet { out, limit, salt };
        if let Some(packed) = self.write_mail(&mut packet) {
            return Some(packed);
        }
        let common = &mut self.common;
        let (address, correspondent) = self
            .server
            .write_news(now, common, &mut packet)
            .or_else(|| self.client.write_requests(now, common, &mut packet))
            .or_else(|| self.server.write_part(now, common, &mut packet))
            .or_else(|| self.client.write_part(now, common, &mut packet))?;
        Some((CallDestination::Address(address), Some(correspondent)))
    }

    /// Writes the header, and seals the envelope and the datagram. Returns false if one of them could not be sealed.
    fn finish(&mut self, correspondent: Option<Correspondent>, out: &mut Vec<u8>) -> bool {
        let number = self.common.packet_number;
        let header = Header {
            protection: self.protection.kind(),
            group: CALLS_TAG,
            epoch: EpochTag::OUTSIDE,
            sender: self.common.me,
            number,
            salt: self.protection.salt(),
        };
        out[..HEADER_BYTES].copy_from_slice(&header.bytes());
        let pair = match correspondent {
            None => None,
            Some(Correspondent::Server(uid)) => self.client.pair(uid),
            Some(Correspondent::Client(id)) => self.server.pair(id),
        };
        let is_closed = match (correspondent, pair) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(_), Some(pair)) => {
                close(out, |salt, covered, contents| pair.seal(salt, number, covered, contents))
            }
        };
        let context = KeyContext { instance: Instance(0), sender: self.common.me, salt: header.salt };
        is_closed && seal(out, &header, &context, &mut *self.protection)
    }

    /// True if nothing waits to be sent, which is the usual case.
    fn has_nothing_to_say(&self) -> bool {
        self.common.mail.is_empty() && self.server.has_nothing_to_say() && self.client.has_nothing_to_say()
    }

    fn write_mail(&mut self, packet: &mut Packet<'_>) -> Option<(CallDestination, Option<Correspondent>)> {
        loop {
            let to = self.common.mail.front()?.0;
            let (address, correspondent) = match to {
                To::Anyone(destination) => (Some(destination), None),
                To::Server(uid) => (self.client.address(uid), Some(Correspondent::Server(uid))),
                To::Client(id) => (self.server.address(id), Some(Correspondent::Client(id))),
            };
            let Some(address) = address else {
                // That life was forgotten since.
                self.common.mail.pop_front();
                continue;
            };
            let mut writer = match to {
                To::Anyone(_) => packet.open(),
                To::Server(uid) => packet.for_server(uid, None),
                To::Client(id) => packet.for_client(id.client),
            };
            let mut written = false;
            while let Some((_, frame)) = self.common.mail.front().filter(|(next, _)| *next == to) {
                if !writer.frame(frame) {
                    break;
                }
                written = true;
                self.common.mail.pop_front();
            }
            if written {
                return Some((address, correspondent));
            }
            // It fits no datagram.
            self.common.mail.pop_front();
        }
    }
}
