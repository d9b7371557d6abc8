//! Output: packs what the client and the server side have to send into datagrams.
//!
//! No timer holds frames back to fill a datagram: all that is queued now for one address is sent together. Parts of
//! large messages go last, one datagram at a time, so that they delay no small call.

use super::Endpoint;
use super::types::{CALLS_TAG, CallDestination};
use crate::identity::{EpochTag, Instance};
use crate::time::Time;
use crate::wire::{HEADER_BYTES, Header, KeyContext, Writer, seal};
use alloc::vec::Vec;

impl Endpoint {
    /// Writes the next datagram to send into `out`, which is cleared first, and returns its destination.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<CallDestination> {
        out.clear();
        if self.has_nothing_to_say() {
            return None;
        }
        // The header is written when the datagram is finished.
        out.resize(HEADER_BYTES, 0);
        let to = self.pack(now, out)?;
        self.packet_number += 1;
        let header = Header {
            protection: self.protection.kind(),
            group: CALLS_TAG,
            epoch: EpochTag::OUTSIDE,
            sender: self.common.me,
            number: self.packet_number,
        };
        out[..HEADER_BYTES].copy_from_slice(&header.bytes());
        let context = KeyContext { instance: Instance(0), sender: self.common.me };
        if !seal(out, &header, &context, &mut *self.protection) {
            out.clear();
            return None;
        }
        self.common.counters.datagrams_sent += 1;
        Some(to)
    }

    fn pack(&mut self, now: Time, out: &mut Vec<u8>) -> Option<CallDestination> {
        let mut writer = Writer::new(out, self.common.settings.datagram_bytes_max);
        if let Some(to) = self.write_mail(&mut writer) {
            return Some(to);
        }
        let common = &mut self.common;
        let address = self
            .server
            .write_news(now, common, &mut writer)
            .or_else(|| self.client.write_requests(now, common, &mut writer))
            .or_else(|| self.server.write_part(now, common, &mut writer))
            .or_else(|| self.client.write_part(now, common, &mut writer))?;
        Some(CallDestination::Address(address))
    }

    /// True if nothing waits to be sent, which is the usual case.
    fn has_nothing_to_say(&self) -> bool {
        self.common.mail.is_empty() && self.server.has_nothing_to_say() && self.client.has_nothing_to_say()
    }

    fn write_mail(&mut self, writer: &mut Writer<'_>) -> Option<CallDestination> {
        let mail = &mut self.common.mail;
        let to = mail.front()?.0;
        while let Some((_, frame)) = mail.front().filter(|(next, _)| *next == to) {
            if !writer.frame(frame) {
                break;
            }
            mail.pop_front();
        }
        Some(to)
    }
}
