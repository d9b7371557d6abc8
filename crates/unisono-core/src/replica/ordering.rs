//! A replica follows the order: it applies events, repeats what a reset dropped, and compares its copy with the others.

use super::chain;
use super::durable::Durable;
use super::replicated::{Applied, Replicated};
use super::word::{Ordered, Word};
use super::{Output, Replica, StateMachine, StopReason};
use crate::event::Event;
use crate::identity::Uid;
use crate::planted::{Planted, Probe};
use crate::quality::Quality;
use crate::time::Time;
use alloc::vec::Vec;

impl<S: StateMachine> Replica<S> {
    /// Follows an event that has a seqno.
    pub(super) fn follow(&mut self, now: Time, event: Event) {
        let changes = self.view.as_mut().is_some_and(|view| view.follow(&event));
        if let (true, Some(durable), Some(view)) = (changes, &mut self.durable, &self.view) {
            durable.marks.retain(|member| view.contains(member));
        }
        if self.is_closed() {
            return self.follow_closed(now, &event);
        }
        let Some(arriving) = &mut self.arriving else {
            self.apply(&event);
            return self.work(now);
        };
        if let Event::Reset { seqno, .. } = &event
            && arriving.fetch.whole_at().is_some_and(|at| at >= *seqno)
        {
            // The state contains commands that the reset dropped.
            arriving.fetch.begin_anew();
        }
        if matches!(event, Event::Message { .. }) {
            arriving.fetch.note_command(now);
        }
        arriving.backlog.push(event);
        if arriving.backlog.is_full() {
            // What was fetched is too old by now. The parts that did not change need not travel again.
            self.watched.probe(Probe::BacklogFull);
            if let Some(view) = &self.view {
                arriving.backlog.forget(view);
                arriving.fetch.begin_anew();
                arriving.fetch.hurry();
            }
        }
        if changes {
            arriving.fetch.view_changed();
        }
        self.take_state(now);
        self.fetch_more(now);
    }

    /// Applies an event to the state, and gives the outcome to those that wait for it here.
    pub(super) fn apply(&mut self, event: &Event) {
        let Some(state) = &mut self.replicated else { return };
        let applied = state.apply(event, self.me, self.watched);
        let is_logged = matches!(applied, Applied::Logged(_));
        let is_own = matches!(event, Event::Message { sender, .. } if *sender == self.me);
        if let Event::Message { sender, payload, .. } = event
            && *sender == self.me
            && self.unseen.front().is_some_and(|word| word.write() == *payload)
        {
            self.unseen.pop_front();
        }
        match (applied, event) {
            (Applied::Logged(entry), Event::Message { sender, .. }) => {
                self.write_entry(entry, self.writes_at_once(*sender));
            }
            (applied, _) => self.note_applied(applied),
        }
        if is_logged && !is_own {
            self.durable.iter_mut().for_each(Durable::note_awaited);
        }
        if is_own
            && is_logged
            && let Event::Message { payload, .. } = event
            && let Some(Word::Command(command)) = Word::read(payload.clone())
        {
            self.waiting.note_placed(command.client, command.call);
        }
        self.submit_in_turn();
        self.write_view();
        self.after_change(event);
        self.apply_durable(false);
        self.serve_reads();
        self.answer_parked();
    }

    /// Does what follows from something that was applied.
    pub(super) fn note_applied(&mut self, applied: Applied) {
        match applied {
            Applied::Nothing => {}
            Applied::Logged(entry) => self.write_entry(entry, true),
            Applied::DiskHeard => self.write_heard(),
            Applied::Command { client, call, position, outcome } => {
                match self.may_answer() {
                    true => self.conclude(client, call, position, outcome),
                    false if !self.waiting.has(client, call) => {}
                    false => self.held_back.add((client, call), (position, outcome)),
                }
                self.agree();
            }
            Applied::Digest { by, position, digest } => {
                self.agreement.note(by, position, digest);
                self.compare();
            }
        }
    }

    /// Submits again what a reset may have dropped.
    pub(super) fn repeat_all(&mut self, now: Time) {
        if self.replicated.is_none() || self.is_stopped {
            return;
        }
        let words: Vec<Word> = self.unseen.iter().cloned().collect();
        words.into_iter().for_each(|word| self.submit(word));
        self.submit_all_commands(now);
    }

    /// Submits the commands that wait here.
    pub(super) fn submit_all_commands(&mut self, now: Time) {
        for command in self.waiting.commands(now) {
            self.submit_command(command);
        }
        self.submit_in_turn();
    }

    /// Submits a command, unless too few members have the state: then it waits here.
    pub(super) fn submit_command(&mut self, command: Ordered) {
        let is_early = |state: &Replicated<S>| !state.minimum().is_met(self.watched);
        if self.durable.is_some() || !self.replicated.as_ref().is_some_and(is_early) {
            self.submit(Word::Command(command));
        }
    }

    /// Answers what was held back and submits the commands that wait, if callers may be answered from now on. After a reset
    /// these have been submitted.
    pub(super) fn note_answering(&mut self, now: Time, after_reset: bool) {
        let may_answer = self.may_answer();
        let could_answer = core::mem::replace(&mut self.may_answer, may_answer);
        if !self.may_answer || could_answer || self.durable.is_some() || self.is_stopped {
            return;
        }
        for ((client, call), (position, outcome)) in self.held_back.take() {
            self.conclude(client, call, position, outcome);
        }
        if !after_reset {
            self.submit_all_commands(now);
        }
        self.serve_reads();
    }

    /// True if what this copy has applied may be shown to callers: enough members have it.
    pub(super) fn may_answer(&self) -> bool {
        let has_enough = |state: &Replicated<S>| state.minimum().is_met(self.watched);
        self.durable.is_some()
            || !self.held_back.awaits_reset() && self.replicated.as_ref().is_some_and(has_enough)
    }

    pub(super) fn submit(&mut self, word: Word) {
        let wished = match &word {
            Word::Command(command) => command.quality,
            _ => Quality::ORDERED,
        };
        let quality = self.settings.durability.quality_for(wished);
        self.outputs.push_back(Output::Submit(word.write(), quality));
    }

    /// Submits a message that is to be repeated until it has been in the order.
    pub(super) fn say(&mut self, word: Word) {
        self.unseen.push_back(word.clone());
        self.submit(word);
    }

    // --- agreement ---

    /// Notes the own digest where copies compare them, and sends it.
    pub(super) fn agree(&mut self) {
        let Some(state) = &self.replicated else { return };
        let (position, digest) = (state.position(), state.chain());
        if chain::is_compared(position) {
            self.agreement.note_own(position, digest);
            self.say(Word::Digest { position, digest });
        }
    }

    pub(super) fn compare(&mut self) {
        let Some(state) = &self.replicated else { return };
        let copies: Vec<Uid> = state.copies().collect();
        if let Some(position) = self.agreement.differs(&copies)
            && !self.watched.broken(Planted::ChainUncompared)
        {
            self.watched.probe(Probe::CopyDiffers);
            self.stop(StopReason::Differs { through: position, since: chain::compared_before(position) });
        }
    }

    pub(super) fn stop(&mut self, reason: StopReason) {
        self.end();
        self.outputs.push_back(Output::Stop(reason));
    }

    pub(super) fn give_way(&mut self) {
        let acknowledged = self.position();
        self.stop(StopReason::GivesWay { acknowledged });
    }
}
