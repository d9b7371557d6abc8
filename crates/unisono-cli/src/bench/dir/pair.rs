//! The directory service of KTV93 that worked by RPC, as the paper describes it: two servers, of which the one that gets an
//! update calls the other. That one syncs the intention to its disk and agrees; the first syncs the update to its own disk
//! and answers. The second copy follows when the other server is idle. Any of the two answers lookups. Beside the first
//! server, in its process, there is a file server.
//!
//! It tolerates no partition, as in the paper, and does not recover: it exists to be compared with. All updates go to the
//! first server here, so the two never hold intentions that conflict.

use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use unisono::rpc::{Client, PrivatePort, ServeOptions, Server};
use unisono::{Bytes, Options};
use unisono_dir::{Capability, Check, Command, Limits, Port, Table};

/// Deadline of a call to the other server: 20 s.
const CALL_WITHIN: Duration = Duration::from_secs(20);
/// A server without a request for this time, 50 ms, is idle.
const IDLE_AFTER: Duration = Duration::from_millis(50);
/// Bytes of intentions after which the second copy is written all the same: 16 MiB.
const INTENTIONS_MAX: u64 = 16 << 20;

/// One of the two servers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Twin {
    /// True for the one that gets the updates and has the files.
    pub(crate) is_first: bool,
    pub(crate) folder: PathBuf,
}

/// What the parts of the service are called.
pub(super) struct Ports {
    pub(super) updates: PrivatePort,
    pub(super) lookups: PrivatePort,
    pub(super) files: PrivatePort,
    intentions: PrivatePort,
}

impl Ports {
    pub(super) fn of(service: &str) -> Ports {
        let port = |what| PrivatePort::from_name(&format!("{service}, {what}"));
        Ports {
            updates: port("updates"),
            lookups: port("lookups"),
            files: port("files"),
            intentions: port("intentions"),
        }
    }
}

/// Returns an empty table, and its root's capability. The servers and clients of one machine need no secret from each other.
pub(super) fn founded(number: u128) -> anyhow::Result<(Table, Capability)> {
    let mut table = Table::new(Limits::default());
    let secret = Check::from_bits(number);
    table.execute(Command::Found { port: Port(number), secret, service: Bytes::from_static(b"pair") });
    let root = table.root().context("the table has no root")?;
    Ok((table, root))
}

/// Numbers of the two tables.
pub(super) const DIRECTORY: u128 = 1;
pub(super) const FILES: u128 = 2;

/// A file that grows, each time with a sync.
struct Log(File);

impl Log {
    fn open(folder: &Path, name: &str) -> anyhow::Result<Log> {
        let path = folder.join(name);
        let file = File::options().create(true).append(true).open(&path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        File::open(folder)?.sync_all()?;
        Ok(Log(file))
    }

    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes)?;
        self.0.sync_data()
    }
}

/// What the second server has agreed to and not copied yet.
struct Intentions {
    log: Log,
    /// The updates in their order.
    updates: Vec<Bytes>,
    bytes: u64,
    last_at: Instant,
}

impl Twin {
    /// Serves until the process ends.
    pub(super) fn serve(&self, service: &str, options: &Options) -> anyhow::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let ports = Ports::of(service);
        let table = Arc::new(Mutex::new(founded(DIRECTORY)?.0));
        let (looked_up, updated) = (table.clone(), table);
        open(&ports.lookups, options, move |request| {
            Ok(looked_up.lock().unwrap_or_else(PoisonError::into_inner).answer(request))
        })?;
        let log = Log::open(&self.folder, "log")?;
        match self.is_first {
            true => self.serve_first(&ports, updated, log, options),
            false => self.serve_second(&ports, updated, log, options),
        }
    }

    fn serve_first(
        &self,
        ports: &Ports,
        table: Arc<Mutex<Table>>,
        mut log: Log,
        options: &Options,
    ) -> anyhow::Result<()> {
        let (other, intentions) = (Client::new(options)?, ports.intentions.public());
        open(&ports.updates, options, move |update| {
            other.call_within(intentions, update.clone(), CALL_WITHIN).map_err(std::io::Error::other)?;
            log.append(update)?;
            Ok(table.lock().unwrap_or_else(PoisonError::into_inner).apply(update))
        })?;
        let (mut files, _) = founded(FILES)?;
        let mut content = Log::open(&self.folder, "files")?;
        open(&ports.files, options, move |request| match unisono_dir::Request::kind(request) {
            unisono_dir::RequestKind::Command => {
                content.append(request)?;
                Ok(files.apply(request))
            }
            _ => Ok(files.answer(request)),
        })
    }

    fn serve_second(
        &self,
        ports: &Ports,
        table: Arc<Mutex<Table>>,
        mut log: Log,
        options: &Options,
    ) -> anyhow::Result<()> {
        let intentions = Arc::new(Mutex::new(Intentions {
            log: Log::open(&self.folder, "intentions")?,
            updates: Vec::new(),
            bytes: 0,
            last_at: Instant::now(),
        }));
        let agreed = intentions.clone();
        open(&ports.intentions, options, move |update| {
            let mut agreed = agreed.lock().unwrap_or_else(PoisonError::into_inner);
            agreed.log.append(update)?;
            agreed.bytes += update.len() as u64;
            agreed.updates.push(update.clone());
            agreed.last_at = Instant::now();
            // The first server answers its client after this, so a lookup here may show the update.
            table.lock().unwrap_or_else(PoisonError::into_inner).apply(update);
            Ok(Bytes::new())
        })?;
        crate::threads::start("second copy", move || {
            loop {
                std::thread::sleep(IDLE_AFTER);
                let mut held = intentions.lock().unwrap_or_else(PoisonError::into_inner);
                let is_due = held.last_at.elapsed() >= IDLE_AFTER || held.bytes >= INTENTIONS_MAX;
                if held.updates.is_empty() || !is_due {
                    continue;
                }
                let copied = log.append(&held.updates.concat()).and_then(|()| held.log.0.set_len(0));
                if let Err(error) = copied {
                    crate::output::tell(format_args!("the second copy cannot be written: {error}"));
                    return;
                }
                (held.updates, held.bytes) = (Vec::new(), 0);
            }
        })
    }
}

/// Answers at a port, one request after the other.
fn open(
    port: &PrivatePort,
    options: &Options,
    mut answer: impl FnMut(&Bytes) -> std::io::Result<Bytes> + Send + 'static,
) -> anyhow::Result<()> {
    let server = Server::new(port, ServeOptions::default(), options)?;
    crate::threads::start("requests", move || {
        while let Ok(request) = server.get_request() {
            // If an answer fails, the caller does not wait any longer.
            let _ = match answer(request.payload()) {
                Ok(reply) => request.reply(reply),
                Err(error) => request.refuse(error.to_string()),
            };
        }
    })
}
