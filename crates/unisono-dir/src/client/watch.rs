//! A watch of a directory: every change of its rows from a number on.

use super::{Client, ClientError, heard};
use crate::attempts::Heard;
use crate::operation::{self, Changes};
use crate::watches::TOO_MANY;
use std::collections::VecDeque;
use std::thread;
use std::time::Duration;
use unisono::rpc::{CallFailure, Port};
use unisono_table::{Answer, Capability, Change, Place, Query, Reason, Reply, Request};

/// Time for which a watch waits at one server: longer than servers hold one.
const WAITS_FOR: Duration = Duration::from_secs(10);
/// Time after which a watch asks again that found no server with room for it, and no changes.
const PAUSE: Duration = Duration::from_millis(500);

/// Returns the changes of a directory's rows one by one: none is missing and none comes twice, whichever servers fail
/// meanwhile. It stays with the directory to which the path led at the beginning, and ends with [`Reason::NotFound`] when
/// that is deleted or its capability revoked; changes since its last answer are then not returned. To resume it later, or in
/// another process, begin one from the number after that of the last change.
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
    /// The directory.
    directory: Capability,
    /// The number from which to ask for changes.
    from: u64,
    /// Changes that were received and not returned yet.
    changes: VecDeque<Change>,
    /// The port of watches, once it is known.
    port: Option<Port>,
}

impl Client {
    /// Begins to watch a directory: from this number on, or from now on.
    ///
    /// # Errors
    /// The directory cannot be read; or the number is in the future, or older than what is kept
    /// ([`Reason::Future`], [`Reason::NoLongerKept`]).
    pub fn watch(&self, place: Place, from: Option<u64>) -> Result<Watch, ClientError> {
        let (directory, number) = self.directory_at(place)?;
        let from = from.unwrap_or(number + 1);
        let mut watch = Watch { client: self.clone(), directory, from, changes: VecDeque::new(), port: None };
        let first = watch.ask_service()?;
        watch.take(first);
        Ok(watch)
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
            self.take(changes);
        }
    }

    /// Returns the number from which a watch has to begin to go on after the changes that were returned. Changes of one
    /// number come together: between two of them it is that number.
    pub fn from(&self) -> u64 {
        self.changes.front().map_or(self.from, |change| change.number)
    }

    fn take(&mut self, Changes { changes, next }: Changes) {
        self.changes.extend(changes);
        self.from = self.from.max(next);
    }

    /// Asks for the changes until now. A read of the state that contains everything says whether a server serves.
    fn ask_service(&self) -> Result<Changes, ClientError> {
        Ok(self.client.run(&operation::changes(Place::of(self.directory), self.from))?.value)
    }

    /// Waits at a server until there are changes, or for some seconds.
    fn wait(&mut self) -> Result<Changes, ClientError> {
        let port = match self.port {
            Some(port) => port,
            None => *self.port.insert(self.client.ports(self.directory.port)?.0),
        };
        let (place, from) = (Place::of(self.directory), self.from);
        let question = Request::LocalQuery(Query::Changes { place, from }).encode();
        let call = self.client.calls.start(port, question, WAITS_FOR).map_err(ClientError::NotSent)?;
        let outcome = call.wait();
        let is_full = matches!(&outcome, Err(CallFailure::Refused(reason)) if *reason == TOO_MANY);
        let reply = match heard(outcome) {
            Heard::Reply(reply) => Reply::decode(&reply).ok_or(ClientError::Unreadable)?,
            Heard::OtherInstance => return Err(ClientError::OtherInstance),
            Heard::DidNotHappen | Heard::Unclear => {
                let changes = self.ask_service()?;
                if is_full && changes.changes.is_empty() {
                    thread::sleep(PAUSE);
                }
                return Ok(changes);
            }
        };
        match reply.result {
            Ok(Answer::Changes { changes, next }) => Ok(Changes { changes, next }),
            // That server is behind.
            Err(refusal) if matches!(refusal.reason, Reason::Future { .. }) => {
                Ok(Changes { changes: Vec::new(), next: self.from })
            }
            Err(refusal) => Err(ClientError::Refused(refusal)),
            Ok(_) => Err(ClientError::Unreadable),
        }
    }
}
