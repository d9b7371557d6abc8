//! What a client asks: our directory, the pair of servers, or the file system. A request is begun, and its answer waited for.

use super::pair;
use super::steps::{Kind, Step};
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;
use unisono::rpc::{self, Call};
use unisono::{Bytes, Options};
use unisono_dir::{
    Answer, Capability, Check, Client, ClientError, Command, Name, ObjectNumber, Operation, Pending, Place,
    Port, Query, Reply, Request, operation, random_check, read_capability,
};

/// Maximum time for a request: 30 s.
const WITHIN: Duration = Duration::from_secs(30);
/// Name of the measured directory.
const DIRECTORY: &str = "bench";
/// Number of rows that are always there, to be looked up.
pub(super) const ROWS: usize = 100;
/// Content of a temporary file: four bytes, as in the paper.
const CONTENT: &[u8] = b"temp";
/// Name of the file that entries of the file system lead to.
const OBJECT: &str = "object";

/// Where a client finds what it asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Target {
    /// A directory service, whose root's capability is in this file.
    Directory { root: PathBuf },
    /// The pair of servers of this service.
    Pair,
    /// A folder.
    Files { folder: PathBuf },
}

/// A client's access to its target.
pub(super) struct Access {
    way: Way,
    /// The lookups of the rows that are always there: linearizable ones, and local ones.
    lookups: [Vec<Operation<Answer>>; 2],
    /// The measured directory.
    directory: Capability,
}

enum Way {
    Directory(Client),
    Pair { client: rpc::Client, ports: Box<pair::Ports>, files: Capability },
    Files(Folder),
}

struct Folder {
    path: PathBuf,
    file: File,
}

/// What one operation in flight uses: a name of its own, and the file that it holds.
pub(super) struct Slot {
    place: Place,
    name: String,
    held: Capability,
    /// Number of lookups so far.
    looked_up: usize,
}

/// A request under way.
pub(super) enum Begun {
    Operation(Box<Pending<Answer>>),
    Call(Call),
    /// It is done.
    Done,
}

/// Returns the capability of an object of no service.
fn elsewhere() -> Capability {
    Capability::of_owner(Port(7), ObjectNumber(1), Check::from_bits(1))
}

fn place(capability: Capability, name: &str) -> anyhow::Result<Place> {
    Ok(Place { capability, path: name.parse()? })
}

fn row_name(number: usize) -> String {
    format!("row-{number}")
}

impl Target {
    /// Makes the measured directory with its rows, if this is the first client, and finds it.
    pub(super) fn open(&self, service: &str, is_first: bool, options: &Options) -> anyhow::Result<Access> {
        let (way, root) = match self {
            Target::Directory { root } => {
                let client = Client::new(options)?.within(WITHIN);
                (Way::Directory(client), read_capability(root)?)
            }
            Target::Pair => {
                let (ports, client) = (Box::new(pair::Ports::of(service)), rpc::Client::new(options)?);
                let files = pair::founded(pair::FILES)?.1;
                (Way::Pair { client, ports, files }, pair::founded(pair::DIRECTORY)?.1)
            }
            Target::Files { folder } => (Way::Files(Folder::open(folder, is_first)?), elsewhere()),
        };
        let mut access = Access { way, lookups: [Vec::new(), Vec::new()], directory: elsewhere() };
        if matches!(access.way, Way::Files(_)) {
            return Ok(access);
        }
        if is_first {
            access.make_directory(root)?;
        }
        access.directory =
            match access.ask(Request::Query(Query::Lookup { places: vec![place(root, DIRECTORY)?] }))? {
                Answer::Looked(looked) => found(looked)?,
                other => anyhow::bail!("a lookup was answered by {other:?}"),
            };
        for number in 0..ROWS {
            let query = Query::Lookup { places: vec![place(access.directory, &row_name(number))?] };
            let lookups = [Request::Query(query.clone()), Request::LocalQuery(query)];
            for (lookups, request) in access.lookups.iter_mut().zip(lookups) {
                lookups.push(operation::of_request(access.directory.port, request));
            }
        }
        Ok(access)
    }
}

fn found(looked: Vec<Result<unisono_dir::Looked, unisono_dir::Reason>>) -> anyhow::Result<Capability> {
    match looked.into_iter().next() {
        Some(Ok(looked)) => Ok(looked.capability),
        other => anyhow::bail!("a row that exists was not found: {other:?}"),
    }
}

fn is_refusal(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ClientError::Refused(_)))
}

impl Access {
    pub(super) fn kind(&self) -> Kind {
        match self.way {
            Way::Directory(_) => Kind::Directory,
            Way::Pair { .. } => Kind::Pair,
            Way::Files(_) => Kind::Files,
        }
    }

    fn make_directory(&self, root: Capability) -> anyhow::Result<()> {
        let columns: Result<Vec<Name>, _> = ["owner", "group", "other"].map(str::parse).into_iter().collect();
        let (place_of, secret) = (place(root, DIRECTORY)?, random_check()?);
        let made = Command::CreateDirectory { place: place_of, columns: columns?, masks: None, secret };
        let Answer::Capability(directory) = self.ask(Request::Command(made))? else {
            anyhow::bail!("no directory was made");
        };
        for number in 0..ROWS {
            self.ask(self.append(place(directory, &row_name(number))?, elsewhere()))?;
        }
        Ok(())
    }

    fn append(&self, place: Place, capability: Capability) -> Request {
        Request::Command(Command::Append { place, capability, masks: None })
    }

    /// Does a request and returns its answer.
    pub(super) fn ask(&self, request: Request) -> anyhow::Result<Answer> {
        let begun = self.begin_request(request)?;
        begun.wait()?.context("this answers no requests")
    }

    /// Returns the slot of this number of this client.
    pub(super) fn slot(&self, client: usize, number: usize) -> anyhow::Result<Slot> {
        let name = format!("temporary-{client}-{number}");
        let place = place(self.directory, &name)?;
        Ok(Slot { place, name, held: elsewhere(), looked_up: client * 37 + number })
    }

    /// Begins a step of an operation.
    pub(super) fn begin(&self, step: Step, is_local: bool, slot: &mut Slot) -> anyhow::Result<Begun> {
        if let Way::Files(folder) = &self.way {
            folder.follow(step, slot)?;
            return Ok(Begun::Done);
        }
        let place = || slot.place.clone();
        let request = match step {
            Step::Lookup => {
                slot.looked_up += 1;
                return self.begin_operation(&self.lookups[usize::from(is_local)][slot.looked_up % ROWS]);
            }
            Step::Append => self.append(place(), elsewhere()),
            Step::Enter => self.append(place(), slot.held),
            Step::DeleteRow => Request::Command(Command::DeleteRow { place: place() }),
            Step::Create | Step::CreateApart => {
                let place = match (&self.way, step) {
                    (Way::Pair { files, .. }, Step::CreateApart) => Place::of(*files),
                    _ => place(),
                };
                let content = Bytes::from_static(CONTENT);
                Request::Command(Command::CreateFile { place, masks: None, secret: random_check()?, content })
            }
            Step::Find => Request::Query(Query::Lookup { places: vec![place()] }),
            Step::Read => {
                let length = CONTENT.len() as u32;
                Request::Query(Query::Read { place: Place::of(slot.held), offset: 0, length })
            }
            Step::DeleteFile => Request::Command(Command::DeleteFile { place: place() }),
        };
        self.begin_request(request)
    }

    /// Gives a command that is logged with these bytes and refused: to create a file under a name that exists.
    pub(super) fn log_only(&self, content: Bytes) -> anyhow::Result<()> {
        let (place, secret) = (place(self.directory, &row_name(0))?, random_check()?);
        match self.ask(Request::Command(Command::CreateFile { place, masks: None, secret, content })) {
            Err(error) if is_refusal(&error) => Ok(()),
            Err(error) => Err(error),
            Ok(answer) => anyhow::bail!("a name was given twice: {answer:?}"),
        }
    }

    /// Begins to append a row of this name.
    pub(super) fn begin_row(&self, name: &str) -> anyhow::Result<Begun> {
        self.begin_request(self.append(place(self.directory, name)?, elsewhere()))
    }

    fn begin_request(&self, request: Request) -> anyhow::Result<Begun> {
        let place = match &request {
            Request::Query(Query::Lookup { places }) => places.first(),
            Request::Query(Query::Read { place, .. })
            | Request::Command(
                Command::CreateFile { place, .. }
                | Command::CreateDirectory { place, .. }
                | Command::Append { place, .. }
                | Command::DeleteRow { place }
                | Command::DeleteFile { place },
            ) => Some(place),
            _ => None,
        };
        let port = place.context("a request without a place")?.capability.port;
        self.begin_operation(&operation::of_request(port, request))
    }

    fn begin_operation(&self, operation: &Operation<Answer>) -> anyhow::Result<Begun> {
        Ok(match &self.way {
            Way::Directory(client) => Begun::Operation(Box::new(client.start(operation)?)),
            Way::Pair { client, ports, files } => {
                let port = match operation.request() {
                    _ if operation.port() == files.port => &ports.files,
                    Request::Command(_) => &ports.updates,
                    _ => &ports.lookups,
                };
                Begun::Call(client.start(port.public(), operation.encode(), WITHIN)?)
            }
            Way::Files(_) => anyhow::bail!("the file system answers no requests"),
        })
    }
}

impl Slot {
    /// Takes the answer to a step.
    pub(super) fn take(&mut self, step: Step, answer: Option<Answer>) -> anyhow::Result<()> {
        match (step, answer) {
            (_, None)
            | (Step::Append | Step::Enter | Step::DeleteRow | Step::DeleteFile, Some(Answer::Done)) => {}
            (Step::Lookup, Some(Answer::Looked(looked))) => drop(found(looked)?),
            (Step::Find, Some(Answer::Looked(looked))) => self.held = found(looked)?,
            (Step::Create | Step::CreateApart, Some(Answer::Capability(capability))) => {
                self.held = capability
            }
            (Step::Read, Some(Answer::Content { bytes, .. })) if bytes == CONTENT => {}
            (step, other) => anyhow::bail!("{step:?} was answered by {other:?}"),
        }
        Ok(())
    }
}

impl Begun {
    /// Waits for the answer; there is none from the file system.
    pub(super) fn wait(self) -> anyhow::Result<Option<Answer>> {
        match self {
            Begun::Operation(pending) => Ok(Some(pending.wait()?.value)),
            Begun::Call(call) => {
                let reply = Reply::decode(&call.wait()?).context("the reply cannot be read")?;
                Ok(Some(reply.result?))
            }
            Begun::Done => Ok(None),
        }
    }
}

impl Folder {
    fn open(path: &Path, is_first: bool) -> anyhow::Result<Folder> {
        if is_first {
            fs::create_dir_all(path)?;
            File::create(path.join(OBJECT))?.sync_all()?;
            for number in 0..ROWS {
                fs::hard_link(path.join(OBJECT), path.join(row_name(number)))?;
            }
        }
        let folder = Folder { path: path.into(), file: File::open(path)? };
        folder.file.sync_all()?;
        Ok(folder)
    }

    /// Does what comes closest to a step: an entry is a hard link to a file, and each change is synced.
    fn follow(&self, step: Step, slot: &mut Slot) -> anyhow::Result<()> {
        let entry = self.path.join(&slot.name);
        match step {
            Step::Lookup => {
                slot.looked_up += 1;
                fs::metadata(self.path.join(row_name(slot.looked_up % ROWS)))?;
                return Ok(());
            }
            Step::Find => _ = fs::metadata(entry)?,
            Step::Read => {
                anyhow::ensure!(fs::read(entry)? == CONTENT, "a file has other bytes than were written")
            }
            Step::Append | Step::Enter => {
                fs::hard_link(self.path.join(OBJECT), entry)?;
                self.file.sync_all()?;
            }
            Step::Create | Step::CreateApart => {
                fs::write(&entry, CONTENT)?;
                File::open(entry)?.sync_all()?;
                self.file.sync_all()?;
            }
            Step::DeleteRow | Step::DeleteFile => {
                fs::remove_file(entry)?;
                self.file.sync_all()?;
            }
        }
        Ok(())
    }
}
