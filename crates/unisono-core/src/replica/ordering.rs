//! A replica follows the order: it applies events, repeats what a reset dropped, and compares its copy with the others.

use super::chain;
use super::replicated::Applied;
use super::word::Word;
use super::{Output, Replica, StateMachine, StopReason};
use crate::event::Event;
use crate::identity::Uid;
use crate::planted::{Planted, Probe};
use crate::time::Time;
use alloc::vec::Vec;

impl<S: StateMachine> Replica<S> {
    /// Follows an event that has a seqno.
    pub(super) fn follow(&mut self, now: Time, event: Event) {
        let changes = self.view.as_mut().is_some_and(|view| view.follow(&event));
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
        arriving.backlog.push(event);
        if arriving.backlog.is_full() {
            // What was fetched is too old by now. The parts that did not change need not travel again.
            self.watched.probe(Probe::BacklogFull);
            if let Some(view) = &self.view {
                arriving.backlog.forget(view);
                arriving.fetch.begin_anew();
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
        if let Event::Message { sender, payload, .. } = event
            && *sender == self.me
            && self.unseen.front().is_some_and(|word| word.write() == *payload)
        {
            self.unseen.pop_front();
        }
        self.note_applied(applied);
        self.write_view();
        self.after_change(event);
        self.apply_durable(false);
        self.serve_reads();
    }

    /// Does what follows from something that was applied.
    pub(super) fn note_applied(&mut self, applied: Applied) {
        match applied {
            Applied::Nothing => {}
            Applied::Logged(entry) => self.write_entry(entry),
            Applied::DiskHeard => self.write_heard(),
            Applied::Command { client, call, position, outcome } => {
                self.conclude(client, call, position, outcome);
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
        let commands = self.waiting.commands(now).into_iter().map(Word::Command);
        for word in words.into_iter().chain(commands) {
            self.submit(word);
        }
    }

    pub(super) fn submit(&mut self, word: Word) {
        self.outputs.push_back(Output::Submit(word.write()));
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
