//! The table: all directories and files of a service, and what a capability opens of them.

use crate::bounds::Limits;
use crate::capability::{Capability, Check, ObjectNumber, Port, Rights};
use crate::history::History;
use crate::name::Name;
use crate::object::{Directory, Object, StoredRow};
use crate::parts::Parts;
use crate::planted::{Planted, Watched};
use crate::refusal::{Bound, Reason, Refusal};
use crate::reply::{Answer, Event, Info, Reply};
use crate::request::{Command, Masks, Place, Request};
use crate::snapshot::Cut;
use crate::touched::Touched;
use alloc::collections::BTreeMap;
use bytes::Bytes;

/// Number of the root directory: that of the first object.
pub const ROOT: ObjectNumber = ObjectNumber(1);

/// All directories and files of a service. See the crate.
#[derive(Debug)]
pub struct Table {
    pub(crate) limits: Limits,
    pub(crate) port: Port,
    /// What the program keeps with the service.
    pub(crate) service: Bytes,
    /// Number of commands so far.
    pub(crate) number: u64,
    /// Number of commands so far that changed something.
    pub(crate) changes: u64,
    /// Number that the next object gets. No number is used twice.
    pub(crate) next_object: u64,
    pub(crate) objects: BTreeMap<ObjectNumber, Object>,
    pub(crate) amounts: Amounts,
    pub(crate) history: History,
    pub(crate) touched: Touched,
    /// Parts of the next snapshot that are encoded already. No part of the state.
    pub(crate) parts: Parts,
    pub(crate) cut: Cut,
    pub(crate) watched: Watched,
}

/// How much a table has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amounts {
    pub(crate) directories: u64,
    pub(crate) rows: u64,
    pub(crate) files: u64,
    pub(crate) file_bytes: u64,
}

/// A directory that a capability opens.
pub(crate) struct Opened<'a> {
    pub(crate) number: ObjectNumber,
    pub(crate) directory: &'a Directory,
    /// All rights of the capability.
    rights: Rights,
    /// Its columns that exist here; at least one.
    columns: Rights,
}

impl Opened<'_> {
    /// True if the holder may give a row these masks: none lets through more than before, except what the open columns let
    /// through already. Otherwise the holder of one column could open all of them for itself.
    pub(crate) fn may_set(&self, row: &StoredRow, masks: &Masks) -> bool {
        let own = Directory::mask(row, self.columns);
        let mut both = row.masks.as_slice().iter().zip(masks.as_slice());
        both.all(|(before, after)| before.or(own).include(*after))
    }

    pub(crate) fn require(&self, right: Rights) -> Result<(), Reason> {
        if self.rights.include(right) { Ok(()) } else { Err(Reason::Denied) }
    }
}

impl Default for Table {
    fn default() -> Table {
        Table::new(Limits::default())
    }
}

impl Table {
    /// Returns a table without a root directory; [`Command::Found`] makes it.
    pub fn new(limits: Limits) -> Table {
        Table {
            limits,
            port: Port::default(),
            service: Bytes::new(),
            number: 0,
            changes: 0,
            next_object: ROOT.0,
            objects: BTreeMap::new(),
            amounts: Amounts::default(),
            history: History::new(limits.history_bytes),
            touched: Touched::default(),
            parts: Parts::default(),
            cut: Cut::default(),
            watched: Watched::default(),
        }
    }

    // --- commands ---

    /// Applies the command with these bytes, and returns the bytes of the reply. Bytes that are no command get a number
    /// too, and are refused.
    pub fn apply(&mut self, request: &Bytes) -> Bytes {
        let command = match Request::decode(request) {
            Some(Request::Command(command)) => Some(command),
            _ => None,
        };
        self.run(command).encode()
    }

    /// Looks at the command with these bytes before it is ordered: returns the bytes of the reply if it would be refused for
    /// its capability, for an object or row that it needs, or because it cannot be read. Whatever else the state decides
    /// gets a number.
    pub fn admit(&self, request: &Bytes) -> Option<Bytes> {
        if let Some(refusal) = self.refusal_of_first(request) {
            return self.early(refusal);
        }
        let refusal = match Request::decode(request) {
            Some(Request::Command(command)) => self.refusal_of(&command)?,
            _ => Reason::Unreadable.into(),
        };
        self.early(refusal)
    }

    /// True if the first capability of a request is good for something, whatever it is asked for.
    pub fn shows_right(&self, request: &Bytes) -> bool {
        Request::capability(request).is_some_and(|capability| self.object(&capability).is_ok())
    }

    /// Refuses a command of which the first capability proves nothing, without reading it to its end: a set names thousands of
    /// rows.
    fn refusal_of_first(&self, request: &Bytes) -> Option<Refusal> {
        let (capability, names) = Request::first_capability(request)?;
        let reason = match names {
            0 if Request::needs_name(request) => Reason::NoName,
            _ => self.object(&capability).err()?,
        };
        Some(Refusal { reason, entry: Request::replaces_set(request).then_some(0) })
    }

    /// Looks at the first bytes of a request of `bytes` bytes, as [`Table::admit`] does at a whole command. A lookup is not refused
    /// for its capabilities: it shows of each place why there is nothing.
    pub fn admit_beginning(&self, beginning: &Bytes, bytes: usize) -> Option<Bytes> {
        if let Some(refusal) = self.refusal_of_first(beginning) {
            return self.early(refusal);
        }
        if bytes > Request::bytes_max(beginning) {
            return self.early(Reason::Unreadable.into());
        }
        let file = Request::file_that_begins(beginning, bytes)?;
        let enterable = |(place, masks, bytes)| self.enterable_file(&place, masks, bytes);
        self.early(file.and_then(enterable).err()?.into())
    }

    /// Returns the bytes of the reply for a refusal before the order, if it is one of rights.
    fn early(&self, refusal: Refusal) -> Option<Bytes> {
        let reply = Reply { number: self.number, changes: self.changes, result: Err(refusal) };
        refusal.reason.is_of_rights().then(|| reply.encode())
    }

    /// Applies a command.
    pub fn execute(&mut self, command: Command) -> Reply {
        self.run(Some(command))
    }

    fn run(&mut self, command: Option<Command>) -> Reply {
        self.number += 1;
        let result = command.map_or(Err(Reason::Unreadable.into()), |command| self.change(command));
        let is_effective = match &result {
            Ok(Answer::Deleted { directories, files }) => directories + files > 0,
            result => result.is_ok(),
        };
        self.changes += u64::from(is_effective);
        if result.is_err() && self.watched.broken(Planted::RefusedWithoutNumber) {
            self.number -= 1;
        }
        Reply { number: self.number, changes: self.changes, result }
    }

    /// Switches a bug on. Without the feature `planted` this does nothing.
    pub fn plant(&mut self, bug: Planted) {
        self.watched.plant(bug);
    }

    // --- what it is like now ---

    /// Returns the number of commands so far.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the root's capability with all rights, or `None` as long as there is no root directory.
    pub fn root(&self) -> Option<Capability> {
        let root = self.objects.get(&ROOT)?;
        Some(Capability::of_owner(self.port, ROOT, root.secret))
    }

    /// Returns what the program keeps with the service.
    pub fn service(&self) -> &Bytes {
        &self.service
    }

    /// Checks that this is the root's capability with all rights.
    ///
    /// # Errors
    /// It is not valid, or not the root's, or lacks rights.
    pub fn require_owner(&self, owner: &Capability) -> Result<(), Reason> {
        self.object(owner)?;
        let is_owner = owner.object == ROOT && owner.rights == Rights::ALL;
        if is_owner { Ok(()) } else { Err(Reason::Denied) }
    }

    /// Returns how much the service has.
    pub fn info(&self) -> Info {
        let Amounts { directories, rows, files, file_bytes } = self.amounts;
        Info { directories, rows, files, file_bytes, kept_from: self.history.kept_from() }
    }

    /// Returns the secret of an object.
    pub(crate) fn secret_of(&self, object: ObjectNumber) -> Option<Check> {
        self.objects.get(&object).map(|object| object.secret)
    }

    /// Returns the number of the last command that may have changed a row of this directory.
    pub(crate) fn last_change_of(&self, directory: ObjectNumber) -> Option<u64> {
        Some(self.objects.get(&directory)?.directory()?.changed)
    }

    // --- capabilities ---

    /// Returns the object of a capability whose check proves its rights. A wrong check and a missing object are the same
    /// error, after the same time.
    pub(crate) fn object(&self, capability: &Capability) -> Result<&Object, Reason> {
        let object = self.objects.get(&capability.object);
        let secret = object.map_or(Check::from_bits(0), |object| object.secret);
        let is_proved = capability.is_proved_by(secret) || self.is_proved_wrongly(capability, secret);
        object.filter(|_| is_proved && capability.port == self.port).ok_or(Reason::NotFound)
    }

    /// True if a planted bug takes the capability for good.
    fn is_proved_wrongly(&self, capability: &Capability, secret: Check) -> bool {
        let with = |rights| Capability { rights: Rights(rights), ..*capability };
        let proves_any = || (0..=u8::MAX).any(|rights| with(rights).is_proved_by(secret));
        let was_good =
            || self.watched.former(capability.object).any(|secret| capability.is_proved_by(secret));
        self.watched.broken(Planted::RightsNotInCheck) && proves_any()
            || capability.rights != Rights::ALL && was_good()
    }

    /// Returns the directory of a capability that opens at least one of its columns.
    pub(crate) fn open(&self, capability: &Capability) -> Result<Opened<'_>, Reason> {
        let directory = self.object(capability)?.directory().ok_or(Reason::NotADirectory)?;
        let (number, rights) = (capability.object, capability.rights);
        match directory.opened_by(rights) {
            Rights::NONE => Err(Reason::Denied),
            columns => Ok(Opened { number, directory, rights, columns }),
        }
    }

    /// Returns what a row shows through the open columns of its directory: its capability under the OR of their masks.
    pub(crate) fn show(&self, opened: &Opened<'_>, row: &StoredRow) -> Result<Capability, Reason> {
        let stored = &row.capability;
        let mask = match opened.columns {
            _ if self.watched.broken(Planted::MaskNotApplied) => Rights::ALL,
            _ if self.watched.broken(Planted::MasksOfAllColumns) => Directory::mask(row, Rights::COLUMNS),
            columns => Directory::mask(row, columns),
        };
        let rights = stored.rights.and(mask);
        if rights == Rights::NONE {
            return Err(Reason::Denied);
        }
        if let Some(capability) = stored.restrict(rights) {
            return Ok(capability);
        }
        // Only the service of the object can restrict it. A void capability must not become good by that.
        match stored.port == self.port {
            true => self.object(stored).map(|object| stored.with_secret(rights, object.secret)),
            false => Err(Reason::Denied),
        }
    }

    /// Returns the capability at the end of a path.
    pub(crate) fn walk(&self, start: &Capability, names: &[Name]) -> Result<Capability, Reason> {
        let mut here = *start;
        for (index, name) in names.iter().enumerate() {
            if index > 0 && here.port != self.port {
                return Err(Reason::NotADirectory);
            }
            let opened = self.open(&here)?;
            let row = opened.directory.rows.get(name).ok_or(Reason::NotFound)?;
            here = self.show(&opened, row)?;
        }
        Ok(here)
    }

    /// Returns the directory at a place.
    pub(crate) fn open_at(&self, place: &Place) -> Result<Opened<'_>, Reason> {
        let capability = self.walk(&place.capability, place.path.names())?;
        self.open(&capability)
    }

    /// Returns the directory of a row that is to be changed, and the name of the row.
    pub(crate) fn open_parent<'a>(&self, place: &'a Place) -> Result<(Opened<'_>, &'a Name), Reason> {
        let (parents, name) = place.path.split_last().ok_or(Reason::NoName)?;
        let capability = self.walk(&place.capability, parents)?;
        let opened = self.open(&capability)?;
        opened.require(Rights::MODIFY)?;
        Ok((opened, name))
    }

    // --- changes, each checked before ---

    pub(crate) fn note(&mut self, directory: ObjectNumber, event: Event, name: &Name) {
        self.history.push(directory, self.number, event, name);
    }

    /// Returns a directory to change its rows.
    pub(crate) fn directory_mut(&mut self, number: ObjectNumber) -> Option<&mut Directory> {
        let changed = self.number;
        self.touched.push(changed, number);
        let object = self.objects.get_mut(&number)?;
        match &mut object.body {
            crate::object::Body::Directory(directory) => {
                directory.changed = changed;
                Some(directory)
            }
            crate::object::Body::File(_) => None,
        }
    }

    /// Adds or replaces a row.
    pub(crate) fn put_row(&mut self, directory: ObjectNumber, event: Event, name: &Name, row: StoredRow) {
        let Some(rows) = self.directory_mut(directory).map(|directory| &mut directory.rows) else { return };
        if rows.insert(name.clone(), row).is_none() {
            self.amounts.rows += 1;
        }
        self.parts.note_changed((directory, Some(name.clone())));
        self.note(directory, event, name);
    }

    pub(crate) fn delete_row(&mut self, directory: ObjectNumber, name: &Name) {
        let Some(rows) = self.directory_mut(directory).map(|directory| &mut directory.rows) else { return };
        if rows.remove(name).is_some() {
            self.amounts.rows -= 1;
        }
        self.parts.note_removed((directory, Some(name.clone())));
        self.note(directory, Event::Delete, name);
    }

    /// Adds an object and returns its number.
    pub(crate) fn add(&mut self, object: Object) -> ObjectNumber {
        self.amounts.add(&object);
        let mut number = ObjectNumber(self.next_object);
        self.next_object += 1;
        if self.watched.broken(Planted::ObjectNumberScanned) {
            let is_free = |number: &ObjectNumber| !self.objects.contains_key(number);
            number = (1..).map(ObjectNumber).find(is_free).unwrap_or(number);
        }
        self.objects.insert(number, object);
        self.parts.note_changed((number, None));
        number
    }

    pub(crate) fn remove(&mut self, number: ObjectNumber) {
        self.touched.push(self.number, number);
        if let Some(object) = self.objects.remove(&number) {
            self.amounts.remove(&object);
        }
        self.parts.note_object_removed(number);
    }

    pub(crate) fn room_for_row(&self) -> Result<(), Reason> {
        room(self.amounts.rows, 1, self.limits.rows, Bound::Rows)
    }

    pub(crate) fn room_for_directory(&self) -> Result<(), Reason> {
        room(self.amounts.directories, 1, self.limits.directories, Bound::Directories)
    }

    pub(crate) fn room_for_file(&self, bytes: usize) -> Result<(), Reason> {
        room(self.amounts.files, 1, self.limits.files, Bound::Files)?;
        room(self.amounts.file_bytes, bytes as u64, self.limits.file_bytes, Bound::FileBytes)
    }
}

fn room(present: u64, more: u64, limit: u64, bound: Bound) -> Result<(), Reason> {
    if present + more <= limit { Ok(()) } else { Err(Reason::Full { bound, limit }) }
}

impl Amounts {
    pub(crate) fn add(&mut self, object: &Object) {
        match object.file() {
            Some(content) => {
                self.files += 1;
                self.file_bytes += content.len() as u64;
            }
            None => self.directories += 1,
        }
        self.rows += object.directory().map_or(0, |directory| directory.rows.len() as u64);
    }

    fn remove(&mut self, object: &Object) {
        match object.file() {
            Some(content) => {
                self.files -= 1;
                self.file_bytes -= content.len() as u64;
            }
            None => self.directories -= 1,
        }
        self.rows -= object.directory().map_or(0, |directory| directory.rows.len() as u64);
    }
}
