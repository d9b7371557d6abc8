//! What a member reports about itself and the group as it sees it: to its application, and to processes outside.
//!
//! Nothing here changes anything. The application gets a value ([`Group::info`]). A process outside sends a status
//! query in a datagram, and gets a report that is no longer than the query.

use super::{Group, Info, Phase};
use crate::config::GroupConfig;
use crate::identity::Uid;
use crate::look::{MemberReport, Report, WaitReason, Waiting};
use crate::peers::Peer;
use crate::time::Time;
use crate::wire::{FRAME_HEAD_BYTES, Frame, FrameKind, HEADER_BYTES, encode_report};
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

/// A peer counts as in reach if it was heard within this time: members of a halted group send to each other more often.
const IN_REACH: Duration = Duration::from_millis(1000);

impl Group {
    /// Returns the configuration that the founder chose; the default before this member has entered.
    pub fn config(&self) -> &GroupConfig {
        &self.config
    }

    /// Returns the state of the group as this member sees it (GetInfoGroup).
    pub fn info(&self) -> Info {
        let members = self.log.history().view().to_vec();
        Info {
            phase: self.phase,
            instance: self.instance,
            epoch: self.epoch,
            me: self.me.uid,
            rank: members.iter().position(|member| member.uid == self.me.uid),
            order: self.log.history().order(),
            sequencer: self.contact(),
            by_multicast: self.audience().multicast,
            expected: self.log.delivered() + 1,
            unstable: self.log.received() + 1,
            accepted: self.log.accepted(),
            buffered: self.log.history().len(),
            under_way: self.outbox.len(),
            window: self.config.window as usize,
            resilience: self.resilience_in(members.len()),
            resets: self.counters.resets,
            last_reset: self.last_reset,
            foreign: self.foreign,
            other_version: self.other_versions.last(),
            members,
        }
    }

    /// Answers a status query from outside, which had `room` bytes.
    pub(super) fn handle_ask(
        &mut self,
        now: Time,
        (asker, from): (Uid, SocketAddr),
        (nonce, room): (u64, u32),
        direct: bool,
    ) {
        // A peer that this member does not hear is probably out of the asker's reach too.
        let is_heard = |peer: &&Peer| now.since(peer.last_heard()) < IN_REACH;
        let in_reach = 1 + self.peers.iter().filter(is_heard).count();
        if matches!(self.phase, Phase::Locating | Phase::Joining)
            || !(direct || self.answers_status_query(now, asker, nonce, in_reach))
        {
            return;
        }
        let report = self.report(now);
        let mut bytes = Vec::new();
        // The answer is never longer than the query, although it goes in a datagram of its own.
        let datagram = (room as usize).min(self.settings.datagram_bytes_max);
        let head = HEADER_BYTES + FRAME_HEAD_BYTES + FrameKind::Tell.body_bytes_min();
        let limit = datagram.saturating_sub(head);
        if encode_report(&report, &mut bytes, limit) {
            self.post_outside(from, Frame::Tell { nonce, report: bytes.into() });
        }
    }

    /// Returns what this member reports to a process outside.
    pub fn report(&self, now: Time) -> Report {
        Report {
            epoch: self.epoch,
            primary: matches!(self.phase, Phase::Member | Phase::Leaving)
                && !self.recovery.has_promised()
                && !self.is_below_minimum(),
            reporter: self.me.uid,
            order: self.log.history().order(),
            order_since: self.log.history().order_since(),
            sequencer: self.contact(),
            term: self.term(),
            resilience: self.resilience_in(self.log.history().view().len()),
            resilience_founded: self.config.resilience,
            end: self.log.end(),
            accepted: self.log.accepted(),
            stable: self.held_by_members(),
            members: self.log.history().view().iter().map(|member| self.report_of(now, member.uid)).collect(),
            members_omitted: 0,
            waiting: self.waits(now),
            waiting_omitted: 0,
            buffered: u32::try_from(self.log.history().len()).unwrap_or(u32::MAX),
            window: self.config.window,
            under_way: u32::try_from(self.outbox.len()).unwrap_or(u32::MAX),
            in_epoch: now.since(self.epoch_entered_at),
            last_reset: self.last_reset,
            counters: self.counters,
        }
    }

    fn report_of(&self, now: Time, uid: Uid) -> MemberReport {
        match self.peers.get(uid) {
            Some(peer) => MemberReport {
                member: peer.member().clone(),
                received: peer.received(),
                delivered: peer.delivered(),
                suspected: peer.is_suspected(),
                multicast: peer.hears_multicast().unwrap_or(self.untold_hear_multicast()),
                silent: now.since(peer.last_heard()),
            },
            None => MemberReport {
                member: self.me.clone(),
                received: self.log.received(),
                delivered: self.log.delivered(),
                suspected: false,
                multicast: self.hears_multicast(now),
                silent: core::time::Duration::ZERO,
            },
        }
    }

    /// Returns what this member waits for, and for which members (`why`).
    fn waits(&self, now: Time) -> Vec<Waiting> {
        let mut waits = Vec::new();
        let mut wait = |reason, member, seqno, since: Time| {
            waits.push(Waiting { who: self.me.uid, reason, member, seqno, since: now.since(since) });
        };
        if let Some(since) = self.recovery.since() {
            wait(WaitReason::Reset, None, self.log.received(), since);
            return waits;
        }
        if let Some((since, who)) = self.window_shut_by() {
            wait(WaitReason::Window, Some(who), self.log.received() + 1, since);
        }
        let since = self.waits_for_members_since(now).unwrap_or(now);
        for _ in 0..self.members_below_minimum() {
            wait(WaitReason::Minimum, None, self.log.received() + 1, since);
        }
        if self.lacks() {
            wait(WaitReason::Flush, Some(self.contact()), self.log.received() + 1, now);
        }
        if self.log.accepted() < self.log.received() {
            let seqno = self.log.accepted() + 1;
            let view = self.log.history().view_at(self.log.accepted());
            for member in view.iter().filter(|member| !self.holds(member.uid, seqno)) {
                let since = self.peers.get(member.uid).map_or(now, |peer| peer.last_heard());
                wait(WaitReason::Ack, Some(member.uid), seqno, since);
            }
        }
        let contact = self.contact();
        if contact != self.me.uid && self.successor_is_unheard() {
            wait(WaitReason::Token, Some(contact), self.term(), now);
        }
        for (since, member) in self
            .rests_for()
            .into_iter()
            .flat_map(|(since, keep)| keep.into_iter().map(move |uid| (since, uid)))
        {
            wait(WaitReason::Rest, Some(member), self.term(), since);
        }
        waits
    }
}
