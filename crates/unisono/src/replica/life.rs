//! One life of a replica: a member of the group, and what this process offers beside it.
//!
//! One thread waits for all input of a life at the same time, so that no other thread stands between the network and
//! the copy: [`Life::wait`].

use super::transfer;
use crate::commands::{self, Message};
use crate::engine::{Attempt, CallInterest, Calls, Interest, Membership};
use crate::error::Ended;
use crate::group::Group;
use crate::options::Options;
use crate::rpc::{Client, PrivatePort, Request, ServeOptions, Server, ServiceError};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use unisono_core::replica::{Durability, ReplicaSettings, instance_of};
use unisono_core::rpc::CallNumber;
use unisono_core::{ConfirmError, ConfirmNumber, Event, Instance, SendError, Seqno, Time, Uid};

/// Maximum number of parts of a piece of the state under way: the datagrams of commands wait behind them.
const REPLY_PARTS_MAX: u16 = 64;
/// Maximum length of a question about the state, far above that of the longest one.
const QUESTION_BYTES_MAX: u32 = 1 << 10;
/// Maximum number of requests that are taken at once, and of their bytes: what costs much to look at delays the others by no
/// more than that.
const REQUESTS_PER_STEP: usize = 64;
const REQUEST_BYTES_PER_STEP: usize = 16 << 10;

/// A life. See the module.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) group: Group,
    pub(super) me: Uid,
    /// Asks other members for the state.
    pub(super) client: Client,
    /// Answers other members that ask for it.
    pub(super) transfer: Server,
    /// The services that callers use. Locked while the engine is locked, so not the other way round.
    services: Mutex<Services>,
    /// What the thread that waits does for others. Likewise.
    due: Mutex<Due>,
}

#[derive(Debug, Default)]
struct Services {
    servers: Vec<Server>,
    /// Those at another address than the member's, for callers with another key.
    doors: Vec<Server>,
    is_over: bool,
}

#[derive(Debug, Default)]
struct Due {
    /// Messages for which the group had no room yet. The order does not matter.
    submits: VecDeque<Message>,
    /// The confirmation under way.
    confirming: Option<ConfirmNumber>,
}

/// What a life waits for.
pub(super) enum Input {
    /// Events have been added to the caller's list.
    Events,
    /// The confirmation has this result.
    Confirmed(Seqno),
    /// Requests of callers have been added to the caller's list.
    Requests,
    /// Another member asks for the state.
    Question(Request),
}

impl Life {
    /// Begins to answer questions beside a member that has entered.
    pub(super) fn new(name: &str, group: Group) -> Result<Life, ServiceError> {
        let me = group.info().me;
        let client = Client::beside(&group)?;
        let port = transfer::port(name);
        let serve = ServeOptions {
            reply_parts_max: REPLY_PARTS_MAX,
            request_bytes_max: QUESTION_BYTES_MAX,
            ..ServeOptions::default()
        };
        let transfer = Server::beside(&group, &port, serve)?;
        Ok(Life { me, client, transfer, services: Mutex::default(), due: Mutex::default(), group })
    }

    /// Returns the settings of this life's copy.
    pub(super) fn settings(
        &self,
        client: Uid,
        on_disk: bool,
        digest: fn(&[u8]) -> [u8; 32],
    ) -> ReplicaSettings {
        let config = self.group.shared().with(|member, _| member.group.config().clone());
        ReplicaSettings {
            client,
            durability: if on_disk { Durability::OnDisk } else { Durability::of(&config) },
            message_bytes_max: config.message_bytes_max as usize,
            members_min: config.members_min,
            names: ReplicaSettings::names_of(&config),
            window: config.window,
            quorums_intersect: config.quorums_intersect(),
            digest,
        }
    }

    fn services(&self) -> MutexGuard<'_, Services> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn due(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // --- the thread that waits ---

    /// Waits for the next input of any kind. `turn` alternates which kind is looked for first.
    pub(super) fn wait(
        &self,
        turn: &mut bool,
        events: &mut Vec<Event>,
        requests: &mut Vec<Request>,
    ) -> Result<Input, Ended> {
        *turn = !*turn;
        let ports = |add: &mut dyn FnMut(unisono_core::Port)| {
            let services = self.services();
            services.servers.iter().chain([&self.transfer]).for_each(|server| add(server.port().0));
        };
        let of_member = |member: &mut Membership, now| self.take_of_member(member, now, events);
        let questions_first = *turn;
        let of_calls =
            |calls: &mut Calls, now| match self.take_of_calls(calls, now, questions_first, requests) {
                Some(input) => Attempt::Taken(Ok(input)),
                None => Attempt::Wait(CallInterest::Request(self.transfer.port().0)),
            };
        let interests = [Interest::Event, Interest::Progress, Interest::Confirmation];
        self.group.shared().block_beside(
            self.transfer.shared(),
            *turn,
            &interests,
            ports,
            of_member,
            of_calls,
        )
    }

    fn take_of_member(
        &self,
        member: &mut Membership,
        now: Time,
        events: &mut Vec<Event>,
    ) -> Attempt<Result<Input, Ended>> {
        let mut due = self.due();
        if let Some(seqno) = due.confirming.and_then(|number| member.confirmed(number)) {
            due.confirming = None;
            return Attempt::Taken(Ok(Input::Confirmed(seqno)));
        }
        if due.submit(member, now) {
            return Attempt::Given;
        }
        let received = commands::receive_many(member, events).map(|received| received.map(|_| Input::Events));
        due.follow(events);
        received
    }

    fn take_of_calls(
        &self,
        calls: &mut Calls,
        now: Time,
        questions_first: bool,
        requests: &mut Vec<Request>,
    ) -> Option<Input> {
        for looks_for_questions in [questions_first, !questions_first] {
            if looks_for_questions {
                if let Some(question) = self.transfer.try_next(calls, now) {
                    return Some(Input::Question(question));
                }
            } else {
                let services = self.services();
                let mut next = || services.servers.iter().find_map(|server| server.try_next(calls, now));
                let mut bytes = 0;
                while requests.len() < REQUESTS_PER_STEP
                    && bytes < REQUEST_BYTES_PER_STEP
                    && let Some(request) = next()
                {
                    bytes += request.payload().len();
                    requests.push(request);
                }
                if !requests.is_empty() {
                    return Some(Input::Requests);
                }
            }
        }
        None
    }

    // --- what other threads want of the group ---

    /// Sends messages to the group, now or as soon as there is room.
    pub(super) fn submit(&self, messages: Vec<Message>) {
        let mut messages = messages.into_iter();
        self.group.shared().block(Some(Duration::ZERO), |member, now| {
            let mut result = Attempt::Gathered(Ok(()));
            for message in messages.by_ref() {
                match message.submit_unwatched(member, now, &mut SendError::WindowFull) {
                    // The thread that waits sends it. It sees the room after this, since the engine is locked.
                    Attempt::Wait(_) | Attempt::Done(Err(SendError::NotReceiving)) => {
                        self.due().submits.push_back(message);
                        result = Attempt::Done(Ok(()));
                    }
                    Attempt::Gathered(_) => {}
                    // Another error is the end of this life, which takes care of what waits.
                    submitted => result = submitted,
                }
            }
            result
        });
    }

    /// Sets this member's note in the group.
    pub(super) fn note(&self, note: Bytes, at_once: bool) {
        self.group.shared().command(|member, now| member.group.set_note(now, note, at_once));
    }

    /// Tells the group that this member has fetched the state.
    pub(super) fn note_state(&self) {
        self.group.shared().with(|member, _| member.group.note_state());
    }

    /// Begins a confirmation. Returns its result if it is known at once; else [`Life::wait`] returns it.
    pub(super) fn confirm(&self) -> Option<Seqno> {
        let begun = self.group.shared().command(|member, now| -> Result<Option<Seqno>, ConfirmError> {
            let number = commands::begin_confirm(member, now)?;
            let seqno = member.confirmed(number);
            if seqno.is_none() {
                self.due().confirming = Some(number);
            }
            Ok(seqno)
        });
        // An error is the end of this life.
        begun.unwrap_or(None)
    }

    // --- callers ---

    /// Serves a port to callers in this life. Callers stay with this service, which is that of the group unless it is given.
    pub(super) fn serve(&self, port: &PrivatePort, service: Option<u128>) -> Result<(), ServiceError> {
        let server = Server::beside(&self.group, port, self.serve_options(service))?;
        let mut services = self.services();
        if !services.is_over {
            services.servers.push(server);
        }
        drop(services);
        // The thread that waits has to look for its requests too.
        self.group.shared().look_again();
        Ok(())
    }

    fn serve_options(&self, service: Option<u128>) -> ServeOptions {
        let instance = instance_of(service.map_or(self.group.info().instance, Instance));
        ServeOptions { repeats: true, instance, looks_at_beginnings: true, ..ServeOptions::default() }
    }

    /// Serves a port in this life to callers that these options reach. A thread of its own takes the requests.
    pub(super) fn open_door(
        &self,
        port: &PrivatePort,
        service: Option<u128>,
        options: &Options,
    ) -> Result<Server, ServiceError> {
        let door = Server::new(port, self.serve_options(service), options)?;
        let mut services = self.services();
        match services.is_over {
            true => door.withdraw(),
            false => services.doors.push(door.clone()),
        }
        Ok(door)
    }

    /// Takes no more requests of callers with another key, who go to other servers.
    pub(super) fn close_doors(&self) {
        let mut services = self.services();
        services.is_over = true;
        let doors = std::mem::take(&mut services.doors);
        drop(services);
        doors.iter().for_each(Server::withdraw);
    }

    /// Returns the services and doors that are open.
    fn open(&self) -> Vec<Server> {
        let services = self.services();
        services.servers.iter().chain(&services.doors).cloned().collect()
    }

    /// Returns what clients have said of replies: each needs none of its calls with lower numbers any more.
    pub(super) fn finished(&self) -> Vec<(Uid, CallNumber)> {
        let servers = self.open();
        servers.iter().flat_map(Server::finished).collect()
    }

    /// Takes no more requests of callers, and waits at most for `timeout` until those that were taken are answered.
    pub(super) fn drain(&self, timeout: Duration) {
        let begun = Instant::now();
        let servers = self.open();
        servers.iter().for_each(Server::withdraw);
        for server in servers {
            // A caller that gets no answer learns from its own library whether its call may have happened.
            let _ = server.drain(timeout.saturating_sub(begun.elapsed()));
        }
    }

    // --- the end ---

    /// Returns the events that this life has not taken, once it has ended: those that were accepted, and those of which
    /// that is not known.
    pub(super) fn held(&self) -> Vec<Event> {
        self.group.shared().with(|member, _| {
            let mut held: Vec<Event> = std::iter::from_fn(|| member.event()).collect();
            held.extend(std::iter::from_fn(|| member.group.poll_undelivered()));
            held
        })
    }

    /// Takes no more requests, because this life is over.
    pub(super) fn withdraw(&self) {
        self.close_doors();
        let servers = std::mem::take(&mut self.services().servers);
        servers.iter().for_each(Server::withdraw);
        self.transfer.withdraw();
    }

    /// Leaves the group within `timeout`, or else ends this life at once.
    pub(super) fn leave(&self, timeout: Duration) {
        let mut begun = false;
        let left = self
            .group
            .shared()
            .block(Some(timeout), |member, now| commands::leave(member, now, &Bytes::new(), &mut begun));
        if left.is_none() {
            self.group.end();
        }
    }
}

impl Due {
    /// Drops what waits at a reset, after which the copy submits everything again that has not been in the order.
    fn follow(&mut self, events: &[Event]) {
        if events.iter().any(|event| matches!(event, Event::Reset { .. })) {
            self.submits.clear();
        }
    }

    /// Sends messages for which there is room now. Returns whether there were any.
    fn submit(&mut self, member: &mut Membership, now: Time) -> bool {
        let mut has_sent = false;
        while let Some(message) = self.submits.pop_front() {
            match message.submit_unwatched(member, now, &mut SendError::WindowFull) {
                Attempt::Wait(_) | Attempt::Done(Err(SendError::NotReceiving)) => {
                    self.submits.push_front(message);
                    return has_sent;
                }
                _ => has_sent = true,
            }
        }
        has_sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::{Quality, View};

    #[test]
    fn what_waits_for_room_is_dropped_at_a_reset_after_which_all_is_repeated() {
        let mut due = Due::default();
        let payload = Bytes::from_static(b"command");
        due.submits.push_back(Message { payload, quality: Quality::ORDERED });
        let message = |seqno| {
            let payload = Bytes::from_static(b"other");
            Event::Message { seqno, sender: Uid(1), number: 1, outside: None, payload }
        };
        due.follow(&[message(1)]);
        assert_eq!(due.submits.len(), 1);
        let view = View::new(Default::default(), Vec::new(), Uid(1), 0);
        let reset = Event::Reset { seqno: 2, view, excluded: Vec::new(), degraded: false, forced: false };
        due.follow(&[message(1), reset, message(3)]);
        assert!(due.submits.is_empty());
    }
}
