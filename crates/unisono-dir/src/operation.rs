//! Operations: requests of clients, each with what its answer contains.
//!
//! A read asks the state that contains everything that was answered before, unless [`Operation::local`] asks the state of
//! the server that gets it, which may be behind.

use unisono_table::{
    Answer, Capability, Check, Command, Looked, Masks, Name, ObjectNumber, Place, Port, Query, Reason,
    Replacement, Request, Rights, Row, SET_BYTES_MAX, SET_NAMES_MAX, SET_ROWS_MAX,
};

/// A request, and what its answer contains.
#[derive(Clone, Debug)]
pub struct Operation<T> {
    pub(crate) port: Port,
    pub(crate) request: Request,
    pub(crate) take: fn(Answer) -> Option<T>,
}

/// Rows of a directory, by name, as far as one answer reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Names of the columns.
    pub columns: Vec<Name>,
    /// The rows.
    pub rows: Vec<Row>,
    /// True if there are more after these.
    pub more: bool,
}

/// Objects by number, as far as one answer reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objects {
    /// The objects.
    pub objects: Vec<unisono_table::Listed>,
    /// True if there are more after these.
    pub more: bool,
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Length of the whole file in bytes.
    pub size: u64,
    /// The part.
    pub bytes: bytes::Bytes,
}

/// Changes of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The changes in their order.
    pub changes: Vec<unisono_table::Change>,
    /// The number from which to ask for the next ones.
    pub next: u64,
}

/// Numbers of objects that were deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Number of directories.
    pub directories: u64,
    /// Number of files.
    pub files: u64,
}

impl<T> Operation<T> {
    fn command(port: Port, command: Command, take: fn(Answer) -> Option<T>) -> Operation<T> {
        Operation { port, request: Request::Command(command), take }
    }

    fn query(port: Port, query: Query, take: fn(Answer) -> Option<T>) -> Operation<T> {
        Operation { port, request: Request::Query(query), take }
    }

    /// Returns the same read of the state of the server that gets it, which may be behind. A command stays one.
    #[must_use]
    pub fn local(self) -> Operation<T> {
        let request = match self.request {
            Request::Query(query) => Request::LocalQuery(query),
            other => other,
        };
        Operation { request, ..self }
    }

    /// Returns the port of its service.
    pub fn port(&self) -> Port {
        self.port
    }

    /// Returns the request.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Returns the bytes of the request.
    pub fn encode(&self) -> bytes::Bytes {
        self.request.encode()
    }
}

/// Makes an operation of any request, with the answer as it is.
pub fn of_request(port: Port, request: Request) -> Operation<Answer> {
    Operation { port, request, take: Some }
}

fn done(answer: Answer) -> Option<()> {
    (answer == Answer::Done).then_some(())
}

fn capability(answer: Answer) -> Option<Capability> {
    if let Answer::Capability(capability) = answer { Some(capability) } else { None }
}

/// Creates a directory with these columns, 1 to 4, and enters it at the place unless that has an empty path. The secret is
/// random ([`random_check`](crate::random_check)).
pub fn create_directory(
    place: Place,
    columns: Vec<Name>,
    masks: Option<Masks>,
    secret: Check,
) -> Operation<Capability> {
    let port = place.capability.port;
    Operation::command(port, Command::CreateDirectory { place, columns, masks, secret }, capability)
}

/// Creates a file, and enters it at the place unless that has an empty path.
pub fn create_file(
    place: Place,
    content: bytes::Bytes,
    masks: Option<Masks>,
    secret: Check,
) -> Operation<Capability> {
    let port = place.capability.port;
    Operation::command(port, Command::CreateFile { place, masks, secret, content }, capability)
}

/// Deletes an empty directory and the row that leads to it.
pub fn delete_directory(place: Place) -> Operation<()> {
    Operation::command(place.capability.port, Command::DeleteDirectory { place }, done)
}

/// Deletes a file and the row that leads to it.
pub fn delete_file(place: Place) -> Operation<()> {
    Operation::command(place.capability.port, Command::DeleteFile { place }, done)
}

/// Adds a row with this capability.
pub fn append(place: Place, capability: Capability, masks: Option<Masks>) -> Operation<()> {
    Operation::command(place.capability.port, Command::Append { place, capability, masks }, done)
}

/// Replaces the masks of a row.
pub fn chmod(place: Place, masks: Masks) -> Operation<()> {
    Operation::command(place.capability.port, Command::Chmod { place, masks }, done)
}

/// Deletes a row, but not its object.
pub fn delete_row(place: Place) -> Operation<()> {
    Operation::command(place.capability.port, Command::DeleteRow { place }, done)
}

/// Replaces the capabilities of rows, all or none; `None` if there are no rows, or more than one replacement takes
/// ([`SET_ROWS_MAX`], [`SET_NAMES_MAX`], [`SET_BYTES_MAX`]).
pub fn replace(rows: Vec<Replacement>) -> Option<Operation<()>> {
    let port = rows.first()?.place.capability.port;
    let shape = shape_of(rows.iter().map(|row| &row.place));
    within_bounds(Operation::command(port, Command::ReplaceSet { rows }, done), shape)
}

/// Makes all capabilities of an object void, and returns the new one.
pub fn revoke(place: Place, secret: Check) -> Operation<Capability> {
    Operation::command(place.capability.port, Command::Revoke { place, secret }, capability)
}

/// Deletes all objects that no path reaches and that were created up to this number.
pub fn delete_unreachable(owner: Capability, created_through: u64) -> Operation<Deleted> {
    let command = Command::DeleteUnreachable { owner, created_through };
    Operation::command(owner.port, command, |answer| match answer {
        Answer::Deleted { directories, files } => Some(Deleted { directories, files }),
        _ => None,
    })
}

/// Lists rows of a directory, after a name if there was an earlier answer.
pub fn list(place: Place, after: Option<Name>) -> Operation<Rows> {
    Operation::query(place.capability.port, Query::List { place, after }, |answer| match answer {
        Answer::Rows { columns, rows, more } => Some(Rows { columns, rows, more }),
        _ => None,
    })
}

/// Looks rows up, all at one instant; `None` if there are none, or more than one lookup takes ([`SET_ROWS_MAX`],
/// [`SET_NAMES_MAX`], [`SET_BYTES_MAX`]).
pub fn lookup(places: Vec<Place>) -> Option<Operation<Vec<Result<Looked, Reason>>>> {
    let port = places.first()?.capability.port;
    let shape = shape_of(places.iter());
    let lookup = Operation::query(port, Query::Lookup { places }, |answer| match answer {
        Answer::Looked(looked) => Some(looked),
        _ => None,
    });
    within_bounds(lookup, shape)
}

/// Returns the number of rows of a set, and of names in all their paths.
fn shape_of<'a>(places: impl ExactSizeIterator<Item = &'a Place>) -> (usize, usize) {
    (places.len(), places.map(|place| place.path.names().len()).sum())
}

/// Returns an operation on a set of this shape, unless it is more than a server takes at once. One row always fits.
fn within_bounds<T>(operation: Operation<T>, (rows, names): (usize, usize)) -> Option<Operation<T>> {
    let fits = rows <= SET_ROWS_MAX && names <= SET_NAMES_MAX;
    let fits = rows == 1 || fits && operation.request.encode().len() <= SET_BYTES_MAX;
    fits.then_some(operation)
}

/// Restricts a capability whose holder cannot ([`Capability::restrict`]).
pub fn restrict(place: Place, rights: Rights) -> Operation<Capability> {
    Operation::query(place.capability.port, Query::Restrict { place, rights }, capability)
}

/// Reads a part of a file.
pub fn read(place: Place, offset: u64, length: u32) -> Operation<Content> {
    Operation::query(place.capability.port, Query::Read { place, offset, length }, |answer| match answer {
        Answer::Content { size, bytes } => Some(Content { size, bytes }),
        _ => None,
    })
}

/// Asks for the length of a file in bytes.
pub fn size(place: Place) -> Operation<u64> {
    Operation::query(place.capability.port, Query::Size { place }, |answer| match answer {
        Answer::Size(size) => Some(size),
        _ => None,
    })
}

fn objects(answer: Answer) -> Option<Objects> {
    if let Answer::Objects { objects, more } = answer { Some(Objects { objects, more }) } else { None }
}

/// Lists all files of the service by number, after the last number of an earlier answer, or 0.
pub fn files(owner: Capability, after: ObjectNumber) -> Operation<Objects> {
    Operation::query(owner.port, Query::Files { owner, after }, objects)
}

/// Lists the objects that no path reaches.
pub fn unreachable(owner: Capability, after: ObjectNumber) -> Operation<Objects> {
    Operation::query(owner.port, Query::Unreachable { owner, after }, objects)
}

/// Lists changes of the rows of a directory from a number on.
pub fn changes(place: Place, from: u64) -> Operation<Changes> {
    Operation::query(place.capability.port, Query::Changes { place, from }, |answer| match answer {
        Answer::Changes { changes, next } => Some(Changes { changes, next }),
        _ => None,
    })
}

/// Asks how much the service at this port has.
pub fn info(port: Port) -> Operation<unisono_table::Info> {
    Operation::query(port, Query::Info, |answer| match answer {
        Answer::Info(info) => Some(info),
        _ => None,
    })
}
