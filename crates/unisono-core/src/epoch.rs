//! How a group, a log and an epoch begin, and how a member forgets them.
//!
//! A founder begins with the first view of the group, and so do participants that formed a group together. A joiner
//! begins with the seqno from which on it is served, and a reset leads from one epoch into the next. What the
//! modules keep for one epoch only is cleared here, and at a reset also in `membership/recovery/outcome`.

use crate::config::GroupConfig;
use crate::episode::Episode;
use crate::event::Event;
use crate::group::{Group, Phase};
use crate::identity::{EpochId, EpochTag, Instance, Seqno};
use crate::time::Time;
use crate::wire::{Founding, LogBase};
use alloc::vec::Vec;
use bytes::Bytes;

impl Group {
    /// Founds the group with a view of this member alone, as sequencer. `hello` is kept in case the group gives way to
    /// another.
    pub(crate) fn found(&mut self, now: Time, config: GroupConfig, hello: Bytes) {
        let instance =
            Instance(u128::from(self.random.next_u64()) << 64 | u128::from(self.random.next_u64()));
        let epoch = EpochId { counter: 0, coordinator: self.me.uid, nonce: self.random.next_u64() };
        self.begin_group(now, Founding { instance, epoch, config, members: [self.me.clone()].into() });
        self.seek_others(now, hello);
    }

    /// Begins the group with its first view, which includes this member; the first of the view is sequencer.
    pub(crate) fn begin_group(&mut self, now: Time, founding: Founding) {
        let Founding { instance, epoch, config, members } = founding;
        (self.instance, self.config) = (instance, config);
        let sequencer = members[0].uid;
        let order = (0, self.config.order);
        let base = LogBase { seqno: 0, members, term: (0, sequencer), order, last_numbers: Vec::new() };
        self.begin_log(now, epoch, 0, &base);
        self.joining = None;
        self.phase = Phase::Member;
        let view = self.view_at(0, sequencer);
        self.episodes.push(Episode::Entered { seqno: 0, members: view.members.len() });
        self.notices.push_back(Event::Entered { seqno: 0, view });
    }

    /// Begins a log: nothing before `base` concerns this member, and nothing after it has arrived yet.
    pub(crate) fn begin_log(&mut self, now: Time, epoch: EpochId, epoch_start: Seqno, base: &LogBase) {
        self.enter_epoch(now, epoch, epoch_start);
        self.order.listen();
        self.log.begin(base);
        self.forget_acknowledgements(base.seqno);
        // A base at the beginning of the epoch does not show which members have entered the epoch. A later base does:
        // all members hold what is no longer kept.
        let held_by_all = if base.seqno > epoch_start { base.seqno } else { 0 };
        self.peers.take_view(now, self.me.uid, &base.members, held_by_all);
    }

    /// Enters an epoch, which datagrams carry from here on.
    pub(crate) fn enter_epoch(&mut self, now: Time, epoch: EpochId, start: Seqno) {
        (self.epoch, self.epoch_entered_at) = (epoch, now);
        while self.epochs.len() > 1 && self.epochs[1].0 <= self.log.delivered() {
            self.epochs.pop_front();
        }
        self.epochs.push_back((start, epoch));
        self.epoch_tag = epoch.tag(self.instance);
        self.epoch_start = start;
        self.order.begin(start);
        self.departures.forget_requests();
        self.repair.clear();
        self.notes.begin_epoch();
    }

    /// Forgets the group, as if this member had never heard of one.
    pub(crate) fn forget_group(&mut self) {
        self.epochs.clear();
        self.epoch_tag = EpochTag::OUTSIDE;
        self.peers.clear();
        self.log.drop_waiting();
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
    }
}
