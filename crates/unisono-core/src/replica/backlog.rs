//! Events that a newcomer keeps until it has the state.

use crate::event::{Event, View};
use crate::identity::Seqno;
use alloc::collections::VecDeque;

/// Maximum bytes of commands that are kept.
pub(super) const BACKLOG_BYTES_MAX: usize = 64 << 20;
/// Maximum number of events that are kept.
const BACKLOG_EVENTS_MAX: usize = 1 << 20;

/// The events since a newcomer entered, or since it forgot the earlier ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Backlog {
    /// View before the first of the events.
    view: Option<View>,
    events: VecDeque<Event>,
    bytes: usize,
    /// Seqno of the event before the first of them.
    begins: Seqno,
    /// Seqno of the last event.
    reaches: Seqno,
}

impl Backlog {
    /// Begins after the event with this seqno, with this view.
    pub(super) fn since(seqno: Seqno, view: View) -> Backlog {
        Backlog { view: Some(view), begins: seqno, reaches: seqno, ..Backlog::default() }
    }

    pub(super) fn push(&mut self, event: Event) {
        self.reaches = event.seqno().unwrap_or(self.reaches);
        if let Event::Message { payload, .. } = &event {
            self.bytes += payload.len();
        }
        self.events.push_back(event);
    }

    /// Returns the seqno after which events are kept. A state of an earlier point lacks what was ordered in between.
    pub(super) fn begins(&self) -> Seqno {
        self.begins
    }

    /// Returns the seqno of the last event that arrived.
    pub(super) fn reaches(&self) -> Seqno {
        self.reaches
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes > BACKLOG_BYTES_MAX || self.events.len() > BACKLOG_EVENTS_MAX
    }

    /// Drops all events. Only a state of a later point is of use from here on. `view` is the view after them.
    pub(super) fn forget(&mut self, view: &View) {
        *self = Backlog::since(self.reaches, view.clone());
    }

    /// Returns the view at `at`, which must not be before the first kept event.
    pub(super) fn view_at(&self, at: Seqno) -> Option<View> {
        let mut view = self.view.clone();
        let before = self.events.iter().take_while(|event| event.seqno().is_some_and(|seqno| seqno <= at));
        before.for_each(|event| _ = view.as_mut().map(|view| view.follow(event)));
        view
    }

    /// Returns the events after `at`.
    pub(super) fn after(mut self, at: Seqno) -> VecDeque<Event> {
        while self.events.front().and_then(Event::seqno).is_some_and(|seqno| seqno <= at) {
            self.events.pop_front();
        }
        self.events
    }
}
