//! A server: a replica of the directory on disk, and what clients reach beside it.
//!
//! | | |
//! |---|---|
//! | `restoring` | a folder that a backup was put into |
//! | `status_desk` | answers for the server's status, from the beginning to the end |
//! | `watch_desk` | holds watches while the server serves |
//! | `backup_desk` | gives the state to owners |

mod backup_desk;
mod restoring;
mod signal;
mod status_desk;
mod watch_desk;

pub(crate) use backup_desk::{Begun, PieceQuestion, begin_question};
pub use restoring::{RestoreError, check_backup, restore};
pub(crate) use watch_desk::TOO_MANY;

use crate::machine::Directory;
use crate::ports::{Ports, status_by_name, status_by_port};
use crate::root::{ROOT_FILE, has_capability, read_capability, write_capability};
use bytes::Bytes;
use signal::Signal;
use status_desk::StatusDesk;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use thiserror::Error;
use unisono::replica::{
    DiskOptions, NotServed, Notice, Replica, ReplicaEnd, ReplicaError, ReplicaOptions, ReplicaState,
    StopReason, instance_of,
};
use unisono::rpc::{Answer, PrivatePort, Request as Asked, ServiceError};
use unisono::{Instance, Key, Options};
use unisono_table::{Capability, Command, Limits, Port, Request, Table};

/// Maximum length of a question for changes, or for a part of a backup: a path and little more.
const QUESTION_BYTES_MAX: u32 = 8 << 10;
/// Interval at which a server looks whether its state and its root are as they were.
const LOOKS_EVERY: Duration = Duration::from_millis(200);

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Name of the service: `directory` unless there are several.
    pub service: String,
    /// Which server this is, and its folder.
    pub disk: DiskOptions,
    /// How the servers reach each other, with their key.
    pub servers: Options,
    /// Key of clients, if they have another one than the servers. Clients then reach this server at a UDP port of its own:
    /// the one after [`Options::bind`], or one that the system chooses. Each server with such a key needs a process of its
    /// own.
    pub client_key: Option<Key>,
    /// How much the service takes, if this server creates it.
    pub limits: Limits,
}

/// Why a server did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// Its folder or its group.
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    /// The backup in its folder.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// Clients would have the key of the servers.
    #[error(
        "--key and --client-key are the same key: clients could join the servers; make another with `unisono keygen \
         clients.key`"
    )]
    SameKey,
    /// It cannot answer for its status.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The operating system gave no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
}

/// Why a server has ended.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ServerEnd {
    /// Its replica has ended.
    #[error(transparent)]
    Replica(ReplicaEnd),
    /// A backup was to be restored, and a majority of the servers of before is there. Nothing changed.
    #[error(
        "a majority of the servers of before runs: to go on from the backup, stop them and move their folders away; to go on \
         without it, start this server with an empty folder and --replace"
    )]
    BeforeIsThere,
    /// It cannot write the root's capability.
    #[error("cannot write {}: {cause}", path.display())]
    Root {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: Arc<io::Error>,
    },
    /// The operating system gave no random numbers for a new service.
    #[error("no random numbers: {0}")]
    NoRandom(Arc<io::Error>),
    /// It cannot serve clients.
    #[error("cannot serve clients: {0}")]
    NotServed(Arc<NotServed>),
}

/// A running server. It ends when this is dropped.
///
/// ```no_run
/// use unisono_dir::{Limits, Options, Server, ServerOptions, DiskOptions};
/// let server = Server::begin(ServerOptions {
///     service: "directory".into(),
///     disk: DiskOptions::of_three(1, "/var/lib/unisono"),
///     servers: Options::default(),
///     client_key: None,
///     limits: Limits::default(),
/// })?;
/// server.wait_until_serving()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Server {
    shared: Arc<Shared>,
}

/// What the threads of a server share.
struct Shared {
    options: ServerOptions,
    /// True if the service is to begin anew from a backup.
    restores: bool,
    /// How clients reach this server, if not as the servers do.
    clients: Option<Options>,
    replica: Replica<Directory>,
    /// Rises with each change of the state.
    signal: Arc<Signal>,
    status: StatusDesk,
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    is_serving: bool,
    end: Option<ServerEnd>,
}

impl Server {
    /// Starts a server, and returns as soon as its folder has been read.
    pub fn begin(options: ServerOptions) -> Result<Server, StartError> {
        let keys = options.servers.key.as_ref().zip(options.client_key.as_ref());
        if keys.is_some_and(|(servers, clients)| servers.overlaps(clients)) {
            return Err(StartError::SameKey);
        }
        let clients = options.client_key.as_ref().map(|key| Options {
            key: Some(key.clone()),
            bind: options.servers.bind.map(after),
            ..options.servers.clone()
        });
        let status = StatusDesk::new(&options.disk);
        // Before the group is entered: calls with another key then have their address for as long as the process runs.
        let reach = clients.as_ref().unwrap_or(&options.servers);
        let id = options.disk.id;
        status.open(&status_by_name(&options.service, id), reach)?;
        let known = read_capability(options.disk.data.join(ROOT_FILE)).ok();
        if let Some(root) = known {
            status.open(&status_by_port(root.port, id), reach)?;
        }
        let signal = Arc::new(Signal::default());
        let observed = signal.clone();
        let machine = Directory::new(options.limits, Arc::new(move || observed.raise()));
        let mut disk = options.disk.clone();
        let restores = restoring::prepare(&options.service, &disk)?;
        disk.begin_anew |= restores;
        let replica = Replica::begin_on_disk(
            &options.service,
            disk,
            machine,
            ReplicaOptions::default(),
            &options.servers,
        )?;
        status.set(replica.clone());
        let shared = Arc::new(Shared {
            options,
            restores,
            clients,
            replica,
            signal,
            status,
            progress: Mutex::default(),
            changed: Condvar::new(),
        });
        let keeper = shared.clone();
        let server = Server { shared };
        spawn("keeper", move || keeper.keep(known))?;
        Ok(server)
    }

    /// Waits until the server answers clients.
    ///
    /// # Errors
    /// The server ended before.
    pub fn wait_until_serving(&self) -> Result<(), ServerEnd> {
        let mut progress = self.shared.progress();
        loop {
            match &progress.end {
                Some(end) => return Err(end.clone()),
                None if progress.is_serving => return Ok(()),
                None => {
                    let waited = self.shared.changed.wait(progress);
                    progress = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Waits until the server has ended, and returns why.
    pub fn wait(&self) -> ServerEnd {
        let end = self.shared.replica.wait();
        self.shared.progress().end.clone().unwrap_or(ServerEnd::Replica(end))
    }

    /// Returns the next notice for the operator; `None` once the server has ended.
    pub fn next_notice(&self) -> Option<Notice> {
        self.shared.replica.next_notice()
    }

    /// Returns the last address that sent a datagram of the servers' group under another key, or with a key where this
    /// server has none: one of the two has the wrong key.
    pub fn foreign(&self) -> Option<SocketAddr> {
        self.shared.replica.foreign()
    }

    /// Returns what the server says of itself.
    pub fn status(&self) -> crate::status::ServerStatus {
        self.shared.status.status()
    }

    /// True if this process took part in creating the service, which began with nothing.
    pub fn has_created(&self) -> bool {
        self.shared.replica.has_created()
    }

    /// Returns the capability of the root with all rights; `None` before the service is founded.
    pub fn root(&self) -> Option<Capability> {
        self.shared.replica.look(|directory| directory.table().root())
    }

    /// Ends the server within about this time: requests that it has accepted are answered if a majority is there.
    pub fn end(&self, within: Duration) {
        self.shared.replica.end(within);
        self.shared.status.close();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end(Duration::from_secs(1));
    }
}

/// Returns the address for clients beside that of a server.
fn after(bind: SocketAddr) -> SocketAddr {
    match bind.port() {
        0 => bind,
        port => SocketAddr::new(bind.ip(), port.wrapping_add(1)),
    }
}

impl Shared {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how clients reach this server.
    fn reach(&self) -> &Options {
        self.clients.as_ref().unwrap_or(&self.options.servers)
    }

    fn is_serving(&self) -> bool {
        self.replica.status().state == ReplicaState::Serving
    }

    fn has_ended(&self) -> bool {
        self.replica.status().state == ReplicaState::Ended
    }

    /// Runs the server until it ends, and records why.
    fn keep(self: Arc<Shared>, known: Option<Capability>) {
        let kept = self.serve(known);
        if let Err(end) = kept {
            self.progress().end.get_or_insert(end);
            self.replica.end(Duration::ZERO);
        }
        let end = self.of_replica(self.replica.wait());
        self.progress().end.get_or_insert(end);
        self.changed.notify_all();
        self.signal.raise();
    }

    /// Returns why the server ended whose replica ended so.
    fn of_replica(&self, end: ReplicaEnd) -> ServerEnd {
        match end {
            ReplicaEnd::Stopped(StopReason::NothingLost) if self.restores => ServerEnd::BeforeIsThere,
            end => ServerEnd::Replica(end),
        }
    }

    /// Founds the service or waits for it, serves clients, and keeps the file of the root as it has to be.
    fn serve(self: &Arc<Shared>, known: Option<Capability>) -> Result<(), ServerEnd> {
        let Some((mut root, ports)) = self.found()? else { return Ok(()) };
        if !has_capability(&self.options.disk.data.join(ROOT_FILE), &root) {
            self.write_root(&root)?;
        }
        restoring::conclude(&self.options.disk);
        if known.is_none_or(|known| known.port != root.port) {
            let port = status_by_port(root.port, self.options.disk.id);
            self.status.open(&port, self.reach()).map_err(not_served)?;
        }
        match &self.clients {
            Some(clients) => self.replica.serve_with(&ports.service, clients),
            None => self.replica.serve(&ports.service),
        }
        .map_err(|error| ServerEnd::NotServed(Arc::new(error)))?;
        let (watched, saved) = (self.clone(), self.clone());
        let begun = spawn("watches", move || watch_desk::run(&watched, &ports.watch))
            .and_then(|()| spawn("backups", move || backup_desk::run(&saved, &ports.backup)));
        begun.map_err(|error| {
            let error = unisono::OpenError::Socket { what: "start a thread", cause: error };
            not_served(ServiceError::Open(error))
        })?;
        self.progress().is_serving = true;
        self.changed.notify_all();
        while !self.has_ended() {
            thread::sleep(LOOKS_EVERY);
            let present = self.replica.look(|directory| directory.table().root());
            if let Some(present) = present.filter(|present| *present != root) {
                self.write_root(&present)?;
                root = present;
            }
        }
        Ok(())
    }

    /// Waits until the service has a root directory, and creates it if it has none. Returns `None` if the server ends.
    fn found(&self) -> Result<Option<(Capability, Ports)>, ServerEnd> {
        let mut created = false;
        loop {
            match self.replica.ready().wait(LOOKS_EVERY) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(end) => return Err(self.of_replica(end)),
            }
            let known =
                self.replica.read(|directory| directory.table().root().zip(directory.ports().cloned()));
            match known {
                Ok(Some(known)) => return Ok(Some(known)),
                Ok(None) => {
                    // One that was refused must not be tried without a pause.
                    if created {
                        thread::sleep(LOOKS_EVERY);
                    }
                    self.create()?;
                    created = true;
                }
                Err(_) if self.has_ended() => return Ok(None),
                // No majority at present.
                Err(_) => {}
            }
        }
    }

    /// Creates the root directory, unless another server was first.
    fn create(&self) -> Result<(), ServerEnd> {
        let random = |cause| ServerEnd::NoRandom(Arc::new(cause));
        let root_check = crate::random_check().map_err(random)?;
        let port_secret = crate::random_check().map_err(random)?.to_bits().to_be_bytes();
        let Some(ports) = Ports::of_secret(&port_secret) else { return Ok(()) };
        let port = Port(crate::ports::number(ports.service.public()));
        let found =
            Command::Found { port, secret: root_check, service: Bytes::copy_from_slice(&port_secret) };
        // If this fails, the next look shows whether another server was first.
        let _ = self.replica.command(Request::Command(found).encode());
        Ok(())
    }

    fn write_root(&self, root: &Capability) -> Result<(), ServerEnd> {
        let path = self.options.disk.data.join(ROOT_FILE);
        write_capability(&path, root).map_err(|cause| ServerEnd::Root { path, cause: Arc::new(cause) })
    }

    /// Returns the number by which clients tell this service from one that was founded apart.
    fn instance(&self) -> u64 {
        self.replica.disk().map_or(1, |(block, _)| instance_of(Instance(block.service)))
    }

    /// Serves a port beside the replica's.
    fn open(&self, port: &PrivatePort, queue_max: u16) -> Result<unisono::rpc::Server, ServiceError> {
        let serve = unisono::rpc::ServeOptions {
            queue_max,
            repeats: true,
            instance: self.instance(),
            request_bytes_max: QUESTION_BYTES_MAX,
            ..Default::default()
        };
        unisono::rpc::Server::new(port, serve, self.reach())
    }
}

fn not_served(error: ServiceError) -> ServerEnd {
    ServerEnd::NotServed(Arc::new(NotServed::Service(error)))
}

/// Returns a reply to a question, as a denial if the question shows no right: clients with a right then go before clients that
/// flood the server with such questions.
fn reply_or_deny(table: &Table, question: &Bytes, reply: Bytes) -> Answer {
    if table.shows_right(question) { Answer::Reply(reply) } else { Answer::Deny(reply) }
}

/// Gives the answer of a desk. If that fails, the client does not wait any longer.
fn give(asked: Asked, answer: Answer) {
    let _ = match answer {
        Answer::Reply(reply) => asked.reply(reply),
        Answer::Deny(reply) => asked.deny(reply),
        Answer::Refuse(reason) => asked.refuse(reason),
        // A desk passes nothing on, and looks at no beginnings.
        _ => Ok(()),
    };
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(format!("directory-{name}")).spawn(work).map(drop)
}
