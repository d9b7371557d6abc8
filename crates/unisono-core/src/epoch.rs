//! Beginnings: of a group, of a log, of an epoch; and forgetting all of it.
//!
//! A founder, and whoever formed a group together with others, begins with the first view of the group. A joiner begins
//! with the place from which it is served, and a reset leads from one epoch into the next. Whatever belongs to an
//! epoch only, in whichever room, is put back here.

use crate::config::GroupConfig;
use crate::episode::Episode;
use crate::event::Event;
use crate::group::{Group, Phase};
use crate::history::History;
use crate::identity::{EpochId, EpochTag, Instance, Seqno};
use crate::peers::Peers;
use crate::time::Time;
use crate::wire::{Founding, LogBase};
use alloc::vec::Vec;
use bytes::Bytes;

impl Group {
    /// Founds the group: a view of one, which orders. `hello` is kept in case it gives way to another group.
    pub(crate) fn found(&mut self, now: Time, config: GroupConfig, hello: Bytes) {
        let instance =
            Instance(u128::from(self.random.next_u64()) << 64 | u128::from(self.random.next_u64()));
        let epoch = EpochId { counter: 0, coordinator: self.me.uid, nonce: self.random.next_u64() };
        self.begin_group(now, Founding { instance, epoch, config, members: [self.me.clone()].into() });
        self.seek_others(now, hello);
    }

    /// Begins the group with its first view, of which this member is one; the first of them orders.
    pub(crate) fn begin_group(&mut self, now: Time, founding: Founding) {
        let Founding { instance, epoch, config, members } = founding;
        (self.instance, self.config) = (instance, config);
        let sequencer = members[0].uid;
        let base = LogBase { seqno: 0, members, term: (0, sequencer), last_numbers: Vec::new() };
        self.begin_log(now, epoch, 0, &base);
        self.joining = None;
        self.phase = Phase::Member;
        let view = self.view_at(0, sequencer);
        self.episodes.push(Episode::Entered { seqno: 0, members: view.members.len() });
        self.notices.push_back(Event::Entered { seqno: 0, view });
    }

    /// Nothing before `base` concerns this member, and nothing after it has come yet.
    pub(crate) fn begin_log(&mut self, now: Time, epoch: EpochId, epoch_start: Seqno, base: &LogBase) {
        self.enter_epoch(now, epoch, epoch_start);
        self.order.listen();
        self.history = History::new(base);
        (self.accepted, self.delivered) = (base.seqno, base.seqno);
        self.forget_acknowledgements(base.seqno);
        // A log that begins with its epoch says nothing of who has entered that epoch; one that begins later does:
        // all hold what is not kept any more.
        let held_by_all = if base.seqno > epoch_start { base.seqno } else { 0 };
        self.take_peers(now, &base.members, held_by_all);
    }

    /// From here on datagrams carry this epoch.
    pub(crate) fn enter_epoch(&mut self, now: Time, epoch: EpochId, start: Seqno) {
        (self.epoch, self.epoch_entered_at) = (epoch, now);
        while self.epochs.len() > 1 && self.epochs[1].0 <= self.delivered {
            self.epochs.pop_front();
        }
        self.epochs.push_back((start, epoch));
        self.epoch_tag = epoch.tag(self.instance);
        self.epoch_start = start;
        self.order.begin(start);
        self.departures.forget_requests();
        self.repair.clear();
        self.audience_is_stale = true;
    }

    /// As if no group had ever been heard of.
    pub(crate) fn forget_group(&mut self) {
        self.epochs.clear();
        self.epoch_tag = EpochTag::OUTSIDE;
        self.peers = Peers::default();
        self.unordered.clear();
        self.repair.clear();
        self.order.begin(0);
        self.order.stop();
        self.detector.stop();
        self.recovery = Default::default();
        self.previous = None;
        self.departures.forget_requests();
        self.seek = None;
        self.mail.clear();
        self.serves.clear();
        self.audience_is_stale = true;
    }
}
