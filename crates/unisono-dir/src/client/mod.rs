//! The client: operations at any server of a service, watches, status, backups.

mod pause;
mod save;
mod status;
mod watch;

pub use save::{SaveError, Saved};
pub use watch::Watch;

use crate::attempts::{Attempts, Declined, Failure, Heard, Step, taken};
use crate::machine::COMMAND_WAITS_MAX;
use crate::operation::{self, Operation, Rows};
use crate::ports::{PORTS_QUESTION, public, read_answer};
use bytes::Bytes;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;
use unisono::rpc::{BUSY_NOW, Call, CallFailure, CallSettings, NOTHING_HAPPENED, NotSent, Port};
use unisono::{OpenError, Options};
use unisono_table::{FILE_BYTES_MAX, Place, READ_BYTES_MAX, Refusal, Reply, Request, RequestKind};

/// A server that has not answered for this time, 300 ms, is given up, and its calls are repeated at another one.
pub const SILENCE: Duration = Duration::from_millis(300);
/// Maximum time for an operation: 6 s. One with much to carry gets a second more for each MiB.
pub const OPERATION_WITHIN: Duration = Duration::from_secs(6);
/// Time for which the servers of the port are looked for, unless the options say another one.
const LOCATE: Duration = Duration::from_secs(1);

/// Why an operation failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The service refused it: nothing changed. The reason says what to do.
    #[error(transparent)]
    Refused(Refusal),
    /// The service did not take the request, and says why: nothing changed. One that was busy was asked again until the time
    /// was over.
    #[error("{reason}; nothing changed")]
    Declined {
        /// What the server said.
        reason: String,
    },
    /// No server has a majority of the servers. Start those that are missing.
    #[error("no majority: the service waits for {}{}", Servers(missing), Perhaps(*may_have_happened))]
    NoMajority {
        /// Ids of the servers that are missing.
        missing: Vec<u8>,
        /// True if a command was perhaps executed all the same.
        may_have_happened: bool,
    },
    /// No server answers. Check the key, the address and the network.
    #[error(
        "no server of this service answers: check that servers run, that this client has the clients' key, and that \
         multicast reaches the servers or --seeds names them (at the port above that of the servers' --bind, if clients \
         have a key of their own){}",
        Perhaps(*may_have_happened)
    )]
    NoServer {
        /// True if a command was perhaps executed all the same.
        may_have_happened: bool,
    },
    /// A server serves, and no answer came in time. Try again.
    #[error("no answer came in time{}", PerhapsNot(*may_have_happened))]
    Late {
        /// True if a command was perhaps executed all the same.
        may_have_happened: bool,
    },
    /// The service that answers was founded apart from the one that this client has called or has a position of, or began
    /// anew since.
    #[error(
        "the service began anew since this client called it, or since the position was taken: what was changed last may be \
         missing there; to go on with it, accept it (`Client::accept_instance`) or start this program again"
    )]
    OtherInstance,
    /// The service has begun anew once, and a number alone does not say whether it is of before.
    #[error(
        "the service has begun anew since it was created, so number {number} may be of before: name its instance \
         (INSTANCE:{number})"
    )]
    WhichInstance {
        /// The number.
        number: u64,
    },
    /// The reply cannot be read.
    #[error("the reply cannot be read; does the server run a newer version than this client?")]
    Unreadable,
    /// The request was not sent.
    #[error(transparent)]
    NotSent(NotSent),
    /// The operating system gave no random numbers.
    #[error("no random numbers: {0}")]
    NoRandom(std::io::Error),
}

impl ClientError {
    /// True if a command was perhaps executed all the same.
    pub fn may_have_happened(&self) -> bool {
        match self {
            ClientError::NoMajority { may_have_happened, .. }
            | ClientError::NoServer { may_have_happened }
            | ClientError::Late { may_have_happened } => *may_have_happened,
            // There was a reply.
            ClientError::Unreadable => true,
            ClientError::Refused(_)
            | ClientError::Declined { .. }
            | ClientError::OtherInstance
            | ClientError::WhichInstance { .. }
            | ClientError::NotSent(_)
            | ClientError::NoRandom(_) => false,
        }
    }
}

struct Servers<'a>(&'a [u8]);

impl fmt::Display for Servers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("servers"),
            [one] => write!(f, "server {one}"),
            [first, rest @ .., last] => {
                write!(f, "servers {first}")?;
                rest.iter().try_for_each(|id| write!(f, ", {id}"))?;
                write!(f, " and {last}")
            }
        }
    }
}

struct Perhaps(bool);

impl fmt::Display for Perhaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            true => {
                f.write_str("; the command may have been executed, once at most: look before you repeat it")
            }
            false => Ok(()),
        }
    }
}

struct PerhapsNot(bool);

impl fmt::Display for PerhapsNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            true => write!(f, "{}", Perhaps(true)),
            false => f.write_str("; nothing changed; try again"),
        }
    }
}

impl From<Failure> for ClientError {
    fn from(failure: Failure) -> ClientError {
        match failure {
            Failure::Refused(refusal) => ClientError::Refused(refusal),
            Failure::Declined(reason) => ClientError::Declined { reason },
            Failure::NoMajority { missing, may_have_happened } => {
                ClientError::NoMajority { missing, may_have_happened }
            }
            Failure::NoServer { may_have_happened } => ClientError::NoServer { may_have_happened },
            Failure::Late { may_have_happened } => ClientError::Late { may_have_happened },
            Failure::OtherInstance => ClientError::OtherInstance,
            Failure::Unreadable => ClientError::Unreadable,
        }
    }
}

/// What an operation returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done<T> {
    /// What its answer contains.
    pub value: T,
    /// Number of the command among all commands of the service; for a read, number of the last command before.
    pub number: u64,
}

/// A handle for operations at any server of a service. Clones are the same client, for any number of threads and tasks.
///
/// ```no_run
/// use unisono_dir::{Client, Name, Options, Place, operation, random_check, read_capability};
/// let client = Client::new(&Options::default())?;
/// let root = read_capability("/var/lib/unisono/root.cap")?;
/// let place = Place { capability: root, path: "home".parse()? };
/// let columns: Vec<Name> = vec!["owner".parse()?, "other".parse()?];
/// let made = client.run(&operation::create_directory(place, columns, None, random_check()?))?;
/// println!("command {}", made.number);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    calls: unisono::rpc::Client,
    within: Duration,
}

impl Client {
    /// Returns a client that looks for servers as these options say, with the clients' key. It sends nothing yet.
    pub fn new(options: &Options) -> Result<Client, OpenError> {
        let calls = call_settings(&options.calls);
        let calls = unisono::rpc::Client::new(&Options { calls, ..options.clone() })?;
        Ok(Client { calls, within: OPERATION_WITHIN })
    }

    /// Returns the client with another maximum time for an operation than 6 s: 60 s at most.
    #[must_use]
    pub fn within(self, within: Duration) -> Client {
        Client { within, ..self }
    }

    /// Does an operation, and blocks until its outcome is known.
    pub fn run<T>(&self, operation: &Operation<T>) -> Result<Done<T>, ClientError> {
        let asking = Asking::new(self, operation.port, &operation.request, operation.encode());
        done(asking.wait()?, operation.take)
    }

    /// Begins an operation and returns it, to wait for its outcome later. Others may be begun meanwhile.
    ///
    /// ```no_run
    /// use unisono_dir::{Client, Options, Place, operation, read_capability};
    /// let client = Client::new(&Options::default())?;
    /// let root = read_capability("/var/lib/unisono/root.cap")?;
    /// let look = |name: &str| Some(Place { capability: root, path: name.parse().ok()? });
    /// let [one, other] = ["alpha", "beta"].map(|name| operation::lookup(look(name).into_iter().collect()));
    /// let both = [one, other].into_iter().flatten().map(|lookup| client.start(&lookup));
    /// for pending in both.collect::<Result<Vec<_>, _>>()? {
    ///     println!("{:?}", pending.wait()?.value);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The first call cannot be begun: nothing happened.
    pub fn start<T>(&self, operation: &Operation<T>) -> Result<Pending<T>, ClientError> {
        let asking = Asking::new(self, operation.port, &operation.request, operation.encode());
        let call = asking.call(asking.first_timeout())?;
        Ok(Pending { asking, call, take: operation.take })
    }

    /// Does an operation, for asynchronous programs. If the future is dropped, a command takes effect once or not at all.
    pub async fn run_async<T>(&self, operation: &Operation<T>) -> Result<Done<T>, ClientError> {
        let asking = Asking::new(self, operation.port, &operation.request, operation.encode());
        done(asking.finish().await?, operation.take)
    }

    /// Lists all rows of a directory. A directory with more than 1 MiB of rows comes in several answers, each of an instant
    /// of its own.
    pub fn list(&self, place: &Place, is_local: bool) -> Result<Done<Rows>, ClientError> {
        let ask = |after| {
            let operation = operation::list(place.clone(), after);
            self.run(&if is_local { operation.local() } else { operation })
        };
        let mut all = ask(None)?;
        while all.value.more {
            let after = all.value.rows.last().map(|row| row.name.clone());
            let next = ask(after)?;
            all.value.rows.extend(next.value.rows);
            (all.value.more, all.number) = (next.value.more, next.number);
        }
        Ok(all)
    }

    /// Reads a whole file.
    pub fn read_file(&self, place: &Place, is_local: bool) -> Result<Vec<u8>, ClientError> {
        let mut content = Vec::new();
        loop {
            let part = operation::read(place.clone(), content.len() as u64, READ_BYTES_MAX as u32);
            let part = self.run(&if is_local { part.local() } else { part })?.value;
            content.extend_from_slice(&part.bytes);
            if part.bytes.is_empty() || content.len() as u64 >= part.size.min(FILE_BYTES_MAX as u64) {
                return Ok(content);
            }
        }
    }

    /// Accepts the service at this port also if it began anew since this process called it
    /// ([`ClientError::OtherInstance`]). All clients of this process with the same options then go on with it.
    pub fn accept_instance(&self, port: unisono_table::Port) -> Result<(), ClientError> {
        self.calls.forget_instance(public(port.0));
        let (watch, backup) = self.ports(port)?;
        self.calls.forget_instance(watch);
        self.calls.forget_instance(backup);
        Ok(())
    }

    /// Asks for the ports of watches and backups.
    fn ports(&self, port: unisono_table::Port) -> Result<(Port, Port), ClientError> {
        let begun = Instant::now();
        let mut attempts = Attempts::new(RequestKind::LocalQuery, self.within);
        loop {
            match attempts.step(begun.elapsed()) {
                Step::Call(within) => {
                    let call = self.calls.start(public(port.0), PORTS_QUESTION.to_vec(), within);
                    match call.map_err(ClientError::NotSent)?.wait() {
                        Ok(answer) => return read_answer(&answer).ok_or(ClientError::Unreadable),
                        Err(failure) => attempts.heard(heard(Err(failure))),
                    }
                }
                Step::AskServers => attempts.heard_servers(begun.elapsed(), &self.servers(port)),
                Step::Pause(pause) => {
                    thread::sleep(pause);
                    attempts.paused();
                }
                Step::Over(Err(failure)) => return Err(failure.into()),
                Step::Over(Ok(_)) => return Err(ClientError::Unreadable),
            }
        }
    }
}

/// Returns the settings of calls to directories: those given, with shorter times in place of the usual ones.
fn call_settings(given: &CallSettings) -> CallSettings {
    let usual = CallSettings::default();
    CallSettings {
        silence: if given.silence == usual.silence { SILENCE } else { given.silence },
        locate: if given.locate == usual.locate { LOCATE } else { given.locate },
        ..given.clone()
    }
}

fn done<T>(reply: Reply, take: fn(unisono_table::Answer) -> Option<T>) -> Result<Done<T>, ClientError> {
    let (value, number) = taken(reply, take)?;
    Ok(Done { value, number })
}

/// Returns what a call came to. A refusal that does not say that nothing happened says that this server has no copy, not
/// whether another one executed the command.
fn heard(outcome: Result<Bytes, CallFailure>) -> Heard {
    match outcome {
        Ok(reply) => Heard::Reply(reply),
        Err(CallFailure::OtherInstance) => Heard::OtherInstance,
        Err(CallFailure::Refused(reason)) if reason.ends_with(NOTHING_HAPPENED) => {
            let is_busy = reason.starts_with(BUSY_NOW);
            let words = &reason[..reason.len() - NOTHING_HAPPENED.len()];
            Heard::Declined(Declined { reason: String::from_utf8_lossy(words).into(), is_busy })
        }
        Err(failure @ CallFailure::Busy) => {
            Heard::Declined(Declined { reason: failure.to_string(), is_busy: true })
        }
        Err(failure) if failure.did_not_happen() => Heard::DidNotHappen,
        Err(_) => Heard::Unclear,
    }
}

/// An operation under way, from [`Client::start`]. If it is dropped, a command takes effect once or not at all.
#[must_use = "an operation that is dropped is given up"]
pub struct Pending<T> {
    asking: Asking,
    /// The first call; the others begin when it has failed.
    call: Call,
    take: fn(unisono_table::Answer) -> Option<T>,
}

impl<T> Pending<T> {
    /// Blocks until the outcome is known.
    pub fn wait(self) -> Result<Done<T>, ClientError> {
        let Pending { mut asking, call, take } = self;
        asking.attempts.heard(heard(call.wait()));
        done(asking.wait()?, take)
    }
}

/// A request on its way to an outcome.
struct Asking {
    client: Client,
    port: unisono_table::Port,
    request: Bytes,
    attempts: Attempts,
    begun: Instant,
}

impl Asking {
    fn new(client: &Client, port: unisono_table::Port, request: &Request, bytes: Bytes) -> Asking {
        let kind = match request {
            Request::Command(_) => RequestKind::Command,
            Request::Query(_) => RequestKind::Query,
            Request::LocalQuery(_) => RequestKind::LocalQuery,
        };
        let carries = Duration::from_secs((bytes.len() >> 20) as u64);
        // A server refuses a command that waits for longer.
        let within = (client.within + carries).min(COMMAND_WAITS_MAX);
        let attempts = Attempts::new(kind, within);
        Asking { client: client.clone(), port, request: bytes, attempts, begun: Instant::now() }
    }

    /// Returns the timeout of the first call.
    fn first_timeout(&self) -> Duration {
        match self.attempts.step(Duration::ZERO) {
            Step::Call(within) => within,
            Step::AskServers | Step::Pause(_) | Step::Over(_) => Duration::ZERO,
        }
    }

    fn call(&self, within: Duration) -> Result<Call, ClientError> {
        let port = public(self.port.0);
        self.client.calls.start(port, self.request.clone(), within).map_err(ClientError::NotSent)
    }

    fn wait(mut self) -> Result<Reply, ClientError> {
        loop {
            match self.attempts.step(self.begun.elapsed()) {
                Step::Call(within) => self.attempts.heard(heard(self.call(within)?.wait())),
                Step::AskServers => {
                    let servers = self.client.servers(self.port);
                    self.attempts.heard_servers(self.begun.elapsed(), &servers);
                }
                Step::Pause(pause) => {
                    thread::sleep(pause);
                    self.attempts.paused();
                }
                Step::Over(over) => return Ok(over?),
            }
        }
    }

    async fn finish(mut self) -> Result<Reply, ClientError> {
        loop {
            match self.attempts.step(self.begun.elapsed()) {
                Step::Call(within) => {
                    let outcome = self.call(within)?.await;
                    self.attempts.heard(heard(outcome));
                }
                Step::AskServers => {
                    let servers = self.client.servers_async(self.port).await;
                    self.attempts.heard_servers(self.begun.elapsed(), &servers);
                }
                Step::Pause(pause) => {
                    pause::for_time(pause).await;
                    self.attempts.paused();
                }
                Step::Over(over) => return Ok(over?),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_table::{Capability, Check, ObjectNumber, Query};

    fn timeout_of(operation: &Operation<impl Sized>) -> Duration {
        let client = Client::new(&Options::default()).unwrap();
        Asking::new(&client, operation.port, &operation.request, operation.encode()).first_timeout()
    }

    #[test]
    fn an_operation_gets_time_for_what_it_carries_and_a_question_asks_anew() {
        let root = Capability::of_owner(unisono_table::Port(7), ObjectNumber(1), Check::from_bits(9));
        let place = Place { capability: root, path: "file".parse().unwrap() };
        let of_file = |bytes: usize| {
            operation::create_file(place.clone(), vec![0; bytes].into(), None, Check::from_bits(1))
        };
        assert_eq!(timeout_of(&of_file(1)), OPERATION_WITHIN);
        assert_eq!(timeout_of(&of_file(15 << 20)), OPERATION_WITHIN + Duration::from_secs(15));
        let lookup = operation::lookup(vec![place.clone()]).unwrap();
        assert!(matches!(lookup.request, Request::Query(Query::Lookup { .. })));
        assert_eq!(timeout_of(&lookup), Duration::from_secs(2));
    }

    #[test]
    fn a_refusal_that_says_so_did_not_happen() {
        let refused = |reason: &'static str| heard(Err(CallFailure::Refused(reason.into())));
        let declined = |reason: &str, is_busy| Heard::Declined(Declined { reason: reason.into(), is_busy });
        assert_eq!(refused("busy: much waits; nothing happened"), declined("busy: much waits", true));
        assert_eq!(
            refused("a command is too long; nothing happened"),
            declined("a command is too long", false)
        );
        assert_eq!(refused("this server has no copy"), Heard::Unclear);
        assert!(matches!(heard(Err(CallFailure::Busy)), Heard::Declined(Declined { is_busy: true, .. })));
    }

    #[test]
    fn a_silent_server_is_given_up_early_unless_the_user_says_otherwise() {
        let settings = call_settings(&CallSettings::default());
        assert_eq!((settings.silence, settings.locate), (Duration::from_millis(300), LOCATE));
        let own = CallSettings { silence: Duration::from_secs(9), ..CallSettings::default() };
        assert_eq!(call_settings(&own).silence, own.silence);
    }
}
