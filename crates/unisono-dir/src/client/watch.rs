//! A watch of a directory: every change of its rows from a position on.

use super::{Client, ClientError, heard};
use crate::attempts::Heard;
use crate::operation::{self, Changes};
use crate::ports::public;
use crate::server::TOO_MANY;
use std::collections::VecDeque;
use std::thread;
use std::time::Duration;
use unisono::rpc::{CallFailure, Port};
use unisono_table::{
    Answer, Capability, Change, Followed, Follower, Lost, Place, Position, Reason, Refusal, Reply,
};

/// Time for which a watch waits at one server: longer than servers hold one.
const WAITS_FOR: Duration = Duration::from_secs(10);
/// Time after which a watch asks again that found no server with room for it, and no changes.
const PAUSE: Duration = Duration::from_millis(500);
/// Pause after the answer of a server that is behind.
const BEHIND_PAUSE: Duration = Duration::from_millis(20);
/// Number of times that all servers are asked how they are, if none says that it serves.
const LOOKS_MAX: u32 = 5;

/// Returns the changes of a directory's rows one by one: none is missing and none comes twice, whichever servers fail
/// meanwhile. It stays with the directory to which the path led at the beginning, and ends with [`Reason::NotFound`] when
/// that is deleted or its capability revoked; changes since its last answer are then not returned. It ends with
/// [`ClientError::OtherInstance`] when the service began anew: then take [`Client::now`], list the directory, and watch from that
/// position. To resume it later, or in another process, begin one from its [`Watch::position`].
///
/// ```no_run
/// use unisono_dir::{Client, Options, Place, read_capability};
/// let client = Client::new(&Options::default())?;
/// let root = read_capability("/var/lib/unisono/root.cap")?;
/// let mut watch = client.watch(Place { capability: root, path: "home".parse()? }, None)?;
/// loop {
///     let change = watch.next()?;
///     println!("{} {} {}", change.number, change.event.word(), change.name);
/// }
/// # #[allow(unreachable_code)]
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Watch {
    client: Client,
    follower: Follower,
    /// Changes that were received and not returned yet.
    changes: VecDeque<Change>,
    /// The port of watches, once it is known.
    port: Option<Port>,
}

impl Client {
    /// Begins to watch a directory: from this position on, or from now on.
    ///
    /// # Errors
    /// The directory cannot be read; or the number is in the future, or older than what is kept
    /// ([`Reason::Future`], [`Reason::NoLongerKept`]); or the position is of before the service began anew
    /// ([`ClientError::OtherInstance`]).
    pub fn watch(&self, place: Place, from: Option<Position>) -> Result<Watch, ClientError> {
        let instance = self.instance(place.capability.port)?;
        if from.is_some_and(|from| from.instance != instance) {
            return Err(ClientError::OtherInstance);
        }
        let (directory, number) = self.directory_at(place)?;
        // If the service began anew since, the number is none of this instance, which the first answer shows.
        let position = from.unwrap_or(Position { instance, number: number + 1 });
        let follower = Follower::new(directory, position);
        let mut watch = Watch { client: self.clone(), follower, changes: VecDeque::new(), port: None };
        let first = watch.ask_service()?;
        watch.changes.extend(first);
        Ok(watch)
    }

    /// Returns the position after everything that has happened so far at the service of this port. A directory that is listed
    /// after this call shows every change before the position.
    pub fn now(&self, port: unisono_table::Port) -> Result<Position, ClientError> {
        let instance = self.instance(port)?;
        let number = self.run(&operation::info(port))?.number + 1;
        match self.calls.instance_of(public(port.0)) == Some(instance) {
            true => Ok(Position { instance, number }),
            false => Err(ClientError::OtherInstance),
        }
    }

    /// Returns the position of a number that was kept without its instance.
    ///
    /// # Errors
    /// The service has begun anew, so that the number may be of before ([`ClientError::WhichInstance`]).
    pub fn position_of(&self, port: unisono_table::Port, number: u64) -> Result<Position, ClientError> {
        let instance = self.instance(port)?;
        for _ in 0..LOOKS_MAX {
            let servers = self.servers(port);
            if servers.iter().any(|server| !server.begun_anew.is_empty()) {
                return Err(ClientError::WhichInstance { number });
            }
            if servers.iter().any(|server| server.instance == instance) {
                return Ok(Position { instance, number });
            }
        }
        Err(ClientError::Late { may_have_happened: false })
    }

    /// Returns the instance of the service with which this client stays. Asks the service if there is none yet.
    fn instance(&self, port: unisono_table::Port) -> Result<u64, ClientError> {
        let public = public(port.0);
        if let Some(instance) = self.calls.instance_of(public) {
            return Ok(instance);
        }
        self.run(&operation::info(port))?;
        self.calls.instance_of(public).ok_or(ClientError::OtherInstance)
    }

    /// Returns the capability at a place, and the number of the last command before.
    fn directory_at(&self, place: Place) -> Result<(Capability, u64), ClientError> {
        let port = place.capability.port;
        let lookup = operation::lookup(vec![place]).ok_or(ClientError::Unreadable)?;
        let looked = self.run(&lookup)?;
        let found = looked.value.first().copied().ok_or(ClientError::Unreadable)?;
        let capability = found.map_err(|reason| ClientError::Refused(reason.into()))?.capability;
        match capability.port == port {
            true => Ok((capability, looked.number)),
            // Its service has other numbers.
            false => Err(ClientError::Refused(Reason::NotADirectory.into())),
        }
    }
}

impl Watch {
    /// Returns the next change; blocks until there is one.
    ///
    /// # Errors
    /// No server answers at present: call it again, and the watch goes on where it was. After
    /// [`ClientError::Refused`] and [`ClientError::OtherInstance`] it does not go on.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Change, ClientError> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(change);
            }
            let changes = self.wait()?;
            self.changes.extend(changes);
        }
    }

    /// Returns from where a watch has to begin to go on after the changes that were returned. Changes of one number come
    /// together: between two of them it is that number.
    pub fn position(&self) -> Position {
        let after = self.follower.position();
        Position { number: self.changes.front().map_or(after.number, |change| change.number), ..after }
    }

    /// Asks for the changes until now. A read of the state that contains everything says whether a server serves.
    fn ask_service(&mut self) -> Result<Vec<Change>, ClientError> {
        let directory = self.follower.directory();
        let asked = operation::changes(Place::of(directory), self.follower.position().number);
        let port = public(directory.port.0);
        let answer = match self.client.run(&asked) {
            Ok(done) => {
                let Changes { changes, next } = done.value;
                Ok(Answer::Changes { changes, next })
            }
            Err(ClientError::Refused(refusal)) => {
                // The number of another instance may well be in the future, or no longer kept.
                self.take(port, Err(refusal))?;
                return Err(ClientError::Refused(refusal));
            }
            Err(error) => return Err(error),
        };
        self.take(port, answer)
    }

    /// Waits at a server until there are changes, or for some seconds.
    fn wait(&mut self) -> Result<Vec<Change>, ClientError> {
        let port = match self.port {
            Some(port) => port,
            None => *self.port.insert(self.client.ports(self.follower.directory().port)?.0),
        };
        let question = self.follower.request().encode();
        let call = self.client.calls.start(port, question, WAITS_FOR).map_err(ClientError::NotSent)?;
        let outcome = call.wait();
        let is_full = matches!(&outcome, Err(CallFailure::Refused(reason)) if *reason == TOO_MANY);
        match heard(outcome) {
            Heard::Reply(reply) => {
                let reply = Reply::decode(&reply).ok_or(ClientError::Unreadable)?;
                let is_behind = self.is_behind(&reply);
                let changes = self.take(port, reply.result)?;
                if is_behind {
                    thread::sleep(BEHIND_PAUSE);
                }
                Ok(changes)
            }
            Heard::OtherInstance => Err(ClientError::OtherInstance),
            Heard::DidNotHappen | Heard::Declined(_) | Heard::Unclear => {
                let changes = self.ask_service()?;
                if is_full && changes.is_empty() {
                    thread::sleep(PAUSE);
                }
                Ok(changes)
            }
        }
    }

    /// True if a server says that it has not got to the place of this watch yet.
    fn is_behind(&self, reply: &Reply) -> bool {
        matches!(&reply.result, Err(refusal) if matches!(refusal.reason, Reason::Future { .. }))
    }

    /// Takes what a server at this port said.
    fn take(&mut self, port: Port, result: Result<Answer, Refusal>) -> Result<Vec<Change>, ClientError> {
        match self.follower.take(self.client.calls.instance_of(port), result) {
            Ok(Followed::Changes(changes)) => Ok(changes),
            Ok(Followed::Behind) => Ok(Vec::new()),
            Err(Lost::OtherInstance) => Err(ClientError::OtherInstance),
            Err(Lost::Refused(refusal)) => Err(ClientError::Refused(refusal)),
            Err(Lost::Unreadable) => Err(ClientError::Unreadable),
        }
    }
}
