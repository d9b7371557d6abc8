//! A replica enters its group: it begins with its own state as a founder, or gets the state from a donor.

use super::backlog::Backlog;
use super::fetch::Fetch;
use super::replicated::Replicated;
use super::word::Word;
use super::{Arriving, CommandFailure, Output, Replica, StateMachine, StopReason};
use crate::event::View;
use crate::identity::Seqno;
use crate::planted::Probe;
use crate::time::Time;

impl<S: StateMachine> Replica<S> {
    pub(super) fn enter(&mut self, now: Time, seqno: Seqno, view: View) {
        if self.durable.is_some() {
            return self.enter_closed(now, seqno, view);
        }
        let machine =
            match (self.replicated.take(), self.arriving.take().and_then(|arriving| arriving.machine)) {
                // A founder that is alone and has ordered nothing gave way to another group.
                (Some(state), _) => {
                    self.is_used = true;
                    state.into_machine()
                }
                (None, Some(machine)) => machine,
                (None, None) => return,
            };
        self.view = Some(view.clone());
        if seqno == 0 {
            let Some(machine) = self.as_at_first(machine) else { return };
            let founded = Replicated::founded(machine, view, &self.settings);
            return self.begin_with(now, founded);
        }
        let (backlog, mut fetch) = (Backlog::since(seqno, view), Fetch::new());
        fetch.keep(self.settings.digest, &machine.snapshot());
        self.arriving = Some(Arriving { machine: Some(machine), backlog, fetch });
        self.fetch_more(now);
    }

    /// Returns the state machine with the state that the program gave; `None` if it does not take that back.
    fn as_at_first(&mut self, mut machine: S) -> Option<S> {
        if self.is_used
            && let Some(beginning) = &self.beginning
            && let Err(reason) = machine.restore(beginning)
        {
            self.stop(StopReason::NotRestored(reason));
            return None;
        }
        self.is_used = false;
        Some(machine)
    }

    /// Begins to apply events, and submits the own commands that waited for that.
    pub(super) fn begin_with(&mut self, now: Time, state: Replicated<S>) {
        for number in self.waiting.begin_service(state.founded_in()) {
            self.outputs.push_back(Output::Done(number, Err(CommandFailure::Unknown)));
        }
        self.replicated = Some(state);
        if self.serves() {
            self.outputs.push_back(Output::Informed);
            self.claim_handlers();
        }
        if self.durable.is_some() {
            self.submit_all_commands(now);
        }
        self.ask_for_confirmation();
        self.serve_reads();
    }

    /// Sends the calls that the state's transfer needs now.
    pub(super) fn fetch_more(&mut self, now: Time) {
        let (Some(arriving), Some(view)) = (&mut self.arriving, &self.view) else { return };
        let donors = self.adopting.as_ref().map_or(view, |(_, donors)| donors);
        arriving.fetch.advance(now, self.me, donors);
        if arriving.fetch.is_lost() {
            return match self.durable {
                Some(_) => self.stop(StopReason::StateLost),
                // Another group may have the state, or the servers form the service anew.
                None => self.reenter(),
            };
        }
        if let Some(reason) = arriving.fetch.is_impossible() {
            return self.stop(StopReason::NotRestored(reason));
        }
        while let Some((call, to, request)) = arriving.fetch.poll_call() {
            self.outputs.push_back(Output::Fetch { call, to, request });
        }
    }

    /// Begins with the state that has arrived, as soon as this member's events reach the point that it is as of.
    pub(super) fn take_state(&mut self, now: Time) {
        let Some(arriving) = &mut self.arriving else { return };
        let Some(at) = arriving.fetch.whole_at() else { return };
        if at < arriving.backlog.begins() {
            arriving.fetch.refuse_whole();
            return self.fetch_more(now);
        }
        if arriving.backlog.reaches() < at {
            return;
        }
        let Some(Arriving { machine, backlog, mut fetch }) = self.arriving.take() else { return };
        let (parts, donor) = fetch.take_whole();
        let Some(machine) = machine else {
            return self.take_state_to_disk(now, (at, parts), (backlog, fetch, donor));
        };
        match Replicated::restored(machine, (at, &parts), backlog.view_at(at), &self.settings) {
            Ok(state) => {
                self.watched.probe(Probe::StateFetched);
                self.begin_with(now, state);
                self.say(Word::HasState);
                for event in backlog.after(at) {
                    self.apply(&event);
                }
                self.outputs.push_back(Output::StateFetched);
            }
            Err((machine, reason)) => {
                self.is_used = true;
                fetch.give_up(donor, reason);
                self.arriving = Some(Arriving { machine: Some(machine), backlog, fetch });
            }
        }
    }
}
