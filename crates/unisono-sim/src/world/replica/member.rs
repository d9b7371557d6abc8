//! A server's part in the group: what it takes from its member and its disk, and what it gives them.

use super::context::Context;
use super::server::{Over, Server};
use crate::record::ReplicaRecord;
use crate::world::{Notice, Trigger};
use unisono_core::{ConfirmError, EpochTag, Event, SendError};

impl Server {
    pub(super) fn take_events(&mut self, cx: &mut Context<'_>) -> bool {
        self.follow_views(cx);
        let mut moved = self.finish_job(cx);
        while cx.takes_events
            && let Some(event) = self.group.poll_event()
        {
            moved = true;
            self.take_event(cx, event);
        }
        while let Some((_, seqno)) = self.group.poll_confirmed() {
            moved = true;
            self.replica.handle_confirmed(seqno);
        }
        while self.group.poll_sent().is_some() {
            cx.recorder.totals.messages += 1;
        }
        moved
    }

    /// Records how the members change.
    fn note_members(&self, cx: &mut Context<'_>, event: &Event) {
        let joins = |cx: &mut Context<'_>, life| {
            let service = cx.common.service_of(self.service());
            cx.note(ReplicaRecord::Joined { service, life });
        };
        match event {
            Event::OrderChanged { sequencer, .. } if *sequencer == self.group.info().me => {
                cx.recorder.totals.switches += 1;
            }
            Event::Entered { seqno: 0, view } => {
                let service = cx.common.service_of(self.service());
                let names = &mut cx.recorder.names;
                let members = view.members.iter().map(|member| names.life(member.uid)).collect();
                cx.note(ReplicaRecord::Founded { service, members });
            }
            Event::Entered { .. } => joins(cx, cx.life),
            Event::Joined { member, .. } => {
                let life = cx.recorder.names.life(member.uid);
                joins(cx, life);
            }
            Event::Left { member, .. } => {
                let life = cx.recorder.names.life(member.uid);
                cx.note(ReplicaRecord::Left { life });
            }
            Event::Reset { view, forced, .. } => {
                let names = &mut cx.recorder.names;
                let members = view.members.iter().map(|member| names.life(member.uid)).collect();
                cx.note(ReplicaRecord::WentOn { members, forced: *forced });
            }
            _ => {}
        }
    }

    fn take_event(&mut self, cx: &mut Context<'_>, event: Event) {
        self.note_members(cx, &event);
        cx.recorder.latest_views.change(self.instance, self.epoch_counter, &event);
        let over = match &event {
            Event::Excluded { .. } => Some(Over::Excluded),
            Event::JoinFailed { .. } => Some(Over::JoinFailed),
            Event::Gone => Some(Over::Gone),
            _ => None,
        };
        match &event {
            // The copy submits everything anew that has not been in the order.
            Event::Reset { .. } => self.to_send.clear(),
            Event::Message { .. } => {}
            event => cx.recorder.trace(
                cx.now,
                &format!("m{}/{}", cx.process, cx.life.0),
                format_args!("event {event:?}"),
            ),
        }
        self.last_seqno = event.seqno().unwrap_or(self.last_seqno);
        self.replica.handle_event(cx.local, event);
        self.note_steps(cx);
        if let Some(over) = over {
            if over == Over::JoinFailed {
                // Its join, or its part in a formation, may be in the order.
                cx.recorder.crashed.push(self.group.info().me);
            }
            self.end_part(cx, over);
        }
    }

    /// Notes that this life has no part in the group any more.
    pub(super) fn end_part(&mut self, cx: &mut Context<'_>, over: Over) {
        if self.over.is_some() {
            return;
        }
        self.over = Some(over);
        cx.note(ReplicaRecord::Out);
        let (process, life) = (cx.process as u16, cx.life);
        cx.trigger(Trigger::Notice { process, life, notice: Notice::Over });
    }

    fn follow_views(&mut self, cx: &mut Context<'_>) {
        let epoch = self.group.marks().epoch;
        if epoch == self.epoch || epoch == EpochTag::OUTSIDE {
            return;
        }
        let info = self.group.info();
        if self.instance != info.instance {
            cx.recorder.latest_views.give_up(self.instance);
        }
        (self.epoch, self.epoch_counter, self.instance) = (epoch, info.epoch.counter, info.instance);
        cx.recorder.latest_views.enter(&info);
        if info.epoch.counter > 0 {
            cx.recorder.count_epoch(info.epoch);
        }
    }

    pub(super) fn send_waiting(&mut self, cx: &mut Context<'_>) -> bool {
        let before = self.to_send.len();
        while let Some((message, quality)) = self.to_send.front() {
            match self.group.send_with(cx.local, message.clone(), *quality) {
                Ok(_) | Err(SendError::Left | SendError::TooLarge { .. }) => _ = self.to_send.pop_front(),
                Err(_) => break,
            }
        }
        if self.wants_confirmation {
            let confirming = self.group.confirm(cx.local);
            self.wants_confirmation = matches!(confirming, Err(ConfirmError::NotMember));
        }
        self.to_send.len() < before
    }
}
