//! A replica on disk: which server this process is, what its folder must be, and the thread that answers while it is in no group.

use super::StateMachine;
use super::copy::Copy;
use super::folder::{BLOCK_FILE, Folder, check_alone};
use super::options::Founding;
use super::transfer::{self, sha256};
use crate::opening::random;
use crate::rpc::{ServeOptions, Server};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;
use unisono_core::replica::disk::{
    Block, Created, FileError, FileErrorKind, Loaded, Store, StoreError, instance_begun,
};
use unisono_core::replica::{DISK_FORMS_WITHIN, DiskStart, NotRestored, check_first_part};
use unisono_core::{Formation, GroupConfig, Name, Quorum, debug_as_sentence};

pub use unisono_core::replica::disk::DiskDurability;

/// Maximum number of servers of a service on disk.
pub const DISK_SERVERS_MAX: u8 = 9;
/// Maximum length of the name of a service on disk, 255 bytes: the commit block has room for it and much else.
pub const DISK_NAME_BYTES_MAX: usize = 255;
/// Interval at which a server that waits looks whether it is in a group.
const DESK_LOOKS_EVERY: Duration = Duration::from_millis(100);

/// Which server of a service this process is, and where it keeps its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// Id of this server, from 1 to `servers`. It is the name of the member, too.
    pub id: u8,
    /// Number of servers, from 1 to 9, fixed when the service is created.
    pub servers: u8,
    /// Folder of this server. It is made if it does not exist, and belongs to one process at a time.
    pub data: PathBuf,
    /// Folder for the log, if it is to lie elsewhere, such as on a faster device. As durable as the state is to be.
    pub log_dir: Option<PathBuf>,
    /// How many disks hold a command before it is answered, fixed when the service is created.
    pub durability: DiskDurability,
    /// True if the folder is empty because it replaces another one of this server.
    pub replace: bool,
    /// True to go on alone from this disk as a new instance, because a majority of the disks is lost for ever. The disks
    /// of before are refused from then on.
    pub begin_anew: bool,
    /// True if an empty folder is refused: after the first start it is a disk that is not mounted, or the wrong folder.
    pub existing: bool,
}

impl DiskOptions {
    /// Returns the options of one of three servers.
    pub fn of_three(id: u8, data: impl Into<PathBuf>) -> DiskOptions {
        DiskOptions {
            id,
            servers: 3,
            data: data.into(),
            log_dir: None,
            durability: DiskDurability::default(),
            replace: false,
            begin_anew: false,
            existing: false,
        }
    }

    /// Returns what makes the disk in this folder count; `None` if it is blank. No server may run with it.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn block(&self) -> Result<Option<Block>, DiskError> {
        Ok(self.load()?.map(|loaded| loaded.block))
    }

    /// Returns the last snapshot in this folder, without the commands of the log after it: the parts of the user's state;
    /// none if there is no snapshot yet. No server may run with it.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn snapshot(&self) -> Result<Vec<Bytes>, DiskError> {
        let parts = self.load()?.map_or_else(Vec::new, |loaded| loaded.parts);
        // The first part holds all but the user's state.
        Ok(parts.into_iter().skip(1).collect())
    }

    fn load(&self) -> Result<Option<Loaded>, DiskError> {
        let folder = || self.data.clone();
        let files = Folder::open(&self.data, self.log_dir.as_deref())
            .map_err(|error| DiskError::Folder { folder: folder(), error })?;
        let (_, loaded) =
            Store::open(files, sha256).map_err(|error| DiskError::Store { folder: folder(), error })?;
        Ok(loaded)
    }

    fn majority(&self) -> u16 {
        u16::from(self.servers / 2 + 1)
    }

    /// Returns the name of a member that is this server.
    pub(super) fn name(&self) -> Name {
        name_of(self.id)
    }

    /// Returns how its lives enter the group; each of them draws the time of a formation.
    pub(super) fn founding(&self) -> Founding {
        let participants = (1..=self.servers).map(name_of).collect();
        Founding::JoinOrForm(Formation {
            participants,
            at_least: self.majority(),
            within: DISK_FORMS_WITHIN.end,
        })
    }

    /// Returns the configuration of the group: a majority of the servers is necessary for everything.
    pub(super) fn config(&self, config: GroupConfig) -> GroupConfig {
        GroupConfig {
            members_min: self.majority(),
            members_max: u16::from(self.servers),
            // What the disks have counts, whichever members are there.
            keeps_state: false,
            resilience: self.durability.resilience(self.servers),
            quorum: Quorum::MajorityOf((1..=self.servers).map(name_of).collect()),
            ..config
        }
    }
}

fn name_of(id: u8) -> Name {
    Name::new(&id.to_string()).unwrap_or_default()
}

/// Why a folder cannot be used. Nothing in it changed.
#[derive(Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The number of servers is not possible.
    #[error("a service on disk has 1 to {DISK_SERVERS_MAX} servers, not {0}")]
    Servers(u8),
    /// There is no server with this id.
    #[error("id {id} is not possible: with {servers} servers the ids are 1 to {servers}")]
    Id {
        /// The id.
        id: u8,
        /// Number of servers.
        servers: u8,
    },
    /// The name of the service is longer than [`DISK_NAME_BYTES_MAX`].
    #[error(
        "the name of a service on disk has at most {DISK_NAME_BYTES_MAX} bytes, not {bytes}: use a shorter one"
    )]
    NameTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The folder cannot be used.
    #[error("cannot use the folder {}: {error}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        error: FileError,
    },
    /// What is in the folder cannot be used.
    #[error("the folder {}: {error}", folder.display())]
    Store {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        error: StoreError,
    },
    /// The folder is of another server.
    #[error("the folder {} is of server {found}: start it with --id {found}, or use another folder", folder.display())]
    OtherId {
        /// The folder.
        folder: PathBuf,
        /// The id of that server.
        found: u8,
    },
    /// The folder is of another service.
    #[error("the folder {} is of the service {found}: use another folder", folder.display())]
    OtherService {
        /// The folder.
        folder: PathBuf,
        /// Name of that service.
        found: String,
    },
    /// The service was created with another number of servers.
    #[error("the folder {} is of a service with {found} servers: start it with --servers {found}", folder.display())]
    OtherServers {
        /// The folder.
        folder: PathBuf,
        /// That number.
        found: u8,
    },
    /// The service was created with another durability.
    #[error(
        "the folder {} is of a service with the durability `{}`: start it with --durability {}",
        folder.display(), durability_word(*found), durability_word(*found)
    )]
    OtherDurability {
        /// The folder.
        folder: PathBuf,
        /// That durability.
        found: DiskDurability,
    },
    /// A service cannot begin anew from this disk.
    #[error("the folder {} has no state with which a service could begin anew", folder.display())]
    NothingToBeginWith {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder is empty, and was to have a state ([`DiskOptions::existing`]). It is not made if it does not exist.
    #[error(
        "the folder {} is empty, and --existing (DiskOptions::existing) says that it has the state of a server: see that its \
         disk is mounted there; leave --existing out of the first start, and of one with --replace",
        folder.display()
    )]
    Empty {
        /// The folder.
        folder: PathBuf,
    },
    /// A state was to be written to a folder that has one.
    #[error("the folder {} has the state of a server; use an empty one", folder.display())]
    NotEmpty {
        /// The folder.
        folder: PathBuf,
    },
    /// The operating system gives no random numbers.
    #[error("no random numbers: {0}")]
    NoRandom(crate::OpenError),
}

debug_as_sentence!(DiskError {
    Servers,
    Id,
    NameTooLong,
    Folder,
    Store,
    OtherId,
    OtherService,
    OtherServers,
    OtherDurability,
    NothingToBeginWith,
    Empty,
    NotEmpty,
    NoRandom
});

fn durability_word(durability: DiskDurability) -> &'static str {
    match durability {
        DiskDurability::Majority => "majority",
        DiskDurability::One => "one",
    }
}

impl DiskError {
    /// True if other arguments or another folder cure it; false if the disk is at fault.
    pub fn is_wrong_use(&self) -> bool {
        match self {
            DiskError::Folder { error, .. } | DiskError::Store { error: StoreError::Files(error), .. } => {
                !matches!(error.what, FileErrorKind::Failed | FileErrorKind::Full)
            }
            DiskError::Store { error, .. } => {
                matches!(error, StoreError::NewerVersion { .. } | StoreError::OlderVersion { .. })
            }
            DiskError::NoRandom(_) => false,
            _ => true,
        }
    }
}

/// Opens the folder of a server, and returns what its replica begins with.
pub(super) fn open(name: &str, options: &DiskOptions) -> Result<(DiskStart, Store<Folder>), DiskError> {
    let DiskOptions { id, servers, .. } = *options;
    if !(1..=DISK_SERVERS_MAX).contains(&servers) {
        return Err(DiskError::Servers(servers));
    }
    if !(1..=servers).contains(&id) {
        return Err(DiskError::Id { id, servers });
    }
    if name.len() > DISK_NAME_BYTES_MAX {
        return Err(DiskError::NameTooLong { bytes: name.len() });
    }
    let folder = || options.data.clone();
    if options.begin_anew && !options.data.exists() {
        // Not even the folder is made.
        return Err(DiskError::NothingToBeginWith { folder: folder() });
    }
    if options.existing && matches!(options.data.join(BLOCK_FILE).try_exists(), Ok(false)) {
        // Nothing is written below a mount point whose disk is missing.
        return Err(DiskError::Empty { folder: folder() });
    }
    let files = Folder::open(&options.data, options.log_dir.as_deref())
        .map_err(|error| DiskError::Folder { folder: folder(), error })?;
    let (store, loaded) =
        Store::open(files, sha256).map_err(|error| DiskError::Store { folder: folder(), error })?;
    if let Some(loaded) = &loaded {
        let block = &loaded.block;
        if block.name != name {
            return Err(DiskError::OtherService { folder: folder(), found: block.name.clone() });
        }
        if block.server != id {
            return Err(DiskError::OtherId { folder: folder(), found: block.server });
        }
        if block.servers != servers {
            return Err(DiskError::OtherServers { folder: folder(), found: block.servers });
        }
        if block.durability != options.durability {
            return Err(DiskError::OtherDurability { folder: folder(), found: block.durability });
        }
    }
    if options.existing && loaded.is_none() {
        return Err(DiskError::Empty { folder: folder() });
    }
    let is_created = loaded.as_ref().is_some_and(|loaded| matches!(loaded.block.created, Created::Done(_)));
    if options.begin_anew && !is_created {
        return Err(DiskError::NothingToBeginWith { folder: folder() });
    }
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let start = DiskStart {
        name: name.to_owned(),
        server: id,
        servers,
        durability: options.durability,
        loaded,
        disk: u64::from_ne_bytes(random().map_err(DiskError::NoRandom)?),
        nonce: instance_begun(
            since_1970.as_millis() as u64,
            u64::from_ne_bytes(random().map_err(DiskError::NoRandom)?),
        ),
        replaces: options.replace,
        begins_anew: options.begin_anew.then_some(since_1970.as_millis() as u64),
    };
    Ok((start, store))
}

/// Checks that a folder for a server belongs to this user or root, and that no other user may write to it.
///
/// # Errors
/// It does not exist, or other users may change files in it.
pub fn check_folder(folder: &Path) -> Result<(), DiskError> {
    check_alone(folder).map_err(|error| DiskError::Folder { folder: folder.into(), error })
}

/// The state of a serving server with a disk, from [`Replica::disk_state`](super::Replica::disk_state). It shares memory
/// with the server's.
#[derive(Clone, Debug)]
pub struct DiskState {
    /// What made the server's disk count.
    pub block: Block,
    /// Place of the last entry of the log that is in the state.
    pub place: u64,
    /// The state in parts. The first holds all but the user's state, the others are the user's.
    pub parts: Vec<Bytes>,
}

impl DiskState {
    /// Checks that a server can go on with the first part. The others are the user's to check.
    ///
    /// # Errors
    /// No server writes such a part.
    pub fn check(&self) -> Result<(), NotRestored> {
        check_first_part(self.parts.first().cloned().unwrap_or_default())
    }

    /// Makes the empty folder of a server that has this state. A server that is started with it begins a service anew, as
    /// [`DiskOptions::begin_anew`] says. `identity` is that of the new disk: a random number, since no two disks may have
    /// the same.
    ///
    /// # Errors
    /// The folder is not empty, or cannot be written.
    pub fn write_to(&self, name: &str, options: &DiskOptions, identity: u64) -> Result<(), DiskError> {
        let folder = || options.data.clone();
        let files = Folder::open(&options.data, options.log_dir.as_deref())
            .map_err(|error| DiskError::Folder { folder: folder(), error })?;
        let failed = |error| DiskError::Store { folder: folder(), error };
        let (mut store, loaded) = Store::open(files, sha256).map_err(failed)?;
        if loaded.is_some() {
            return Err(DiskError::NotEmpty { folder: folder() });
        }
        let block = Block {
            server: options.id,
            servers: options.servers,
            durability: options.durability,
            disk: identity,
            starts: 1,
            promised: self.block.generation,
            view: None,
            name: name.to_owned(),
            ..self.block.clone()
        };
        store.adopt(block, Some((self.place, &self.parts)), &[], &BTreeMap::new()).map_err(failed)
    }
}

/// Answers questions for this server's status while it is in no group, so that callers learn what it waits for.
pub(super) fn answer_while_waiting<S: StateMachine>(copy: &Copy<S>) {
    while copy.lock().end.is_none() {
        if !copy.may_open_desk() {
            thread::sleep(DESK_LOOKS_EVERY);
            continue;
        }
        let port = transfer::port(&copy.name);
        match Server::new(&port, ServeOptions::default(), &copy.options) {
            Ok(desk) if copy.take_desk(&desk) => answer(copy, &desk),
            Ok(_) => {}
            Err(_) => thread::sleep(DESK_LOOKS_EVERY),
        }
        copy.desk_is_closed();
    }
}

/// Answers until this server enters a group.
fn answer<S: StateMachine>(copy: &Copy<S>, desk: &Server) {
    while copy.has_desk() {
        let request = match desk.get_request_timeout(DESK_LOOKS_EVERY) {
            Ok(Some(request)) => request,
            Ok(None) => continue,
            Err(_) => return,
        };
        let question = request.payload().clone();
        let status = copy.lock().copy().and_then(|copy| copy.answer_status(&question, Duration::ZERO));
        // If this fails, the caller does not wait any longer.
        let _ = match status {
            Some(status) => request.reply(status),
            None => request.refuse("this server is in no group at present"),
        };
    }
}
