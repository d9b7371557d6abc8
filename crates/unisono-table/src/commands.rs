//! What each command does. Every check comes before the first change, so a refused command changes nothing.

use crate::bounds::SET_ROWS_MAX;
use crate::capability::{Capability, Check, ObjectNumber, Port, Rights};
use crate::name::Name;
use crate::object::{Body, Directory, Object, StoredRow};
use crate::planted::Planted;
use crate::reach;
use crate::refusal::{Reason, Refusal};
use crate::reply::{Answer, Event};
use crate::request::{Command, Masks, Place, Replacement};
use crate::table::Table;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use bytes::Bytes;

/// Columns of the root directory.
const ROOT_COLUMNS: [&str; 3] = ["owner", "group", "other"];

/// A row that a command may change.
struct Target {
    directory: ObjectNumber,
    name: Name,
}

impl Table {
    pub(crate) fn change(&mut self, command: Command) -> Result<Answer, Refusal> {
        let done = match command {
            Command::Found { port, secret, service } => self.found(port, secret, service),
            Command::CreateDirectory { place, columns, masks, secret } => self
                .room_for_directory_at(&place)
                .and_then(|()| self.create(&place, masks, secret, Body::Directory(Directory::new(columns)))),
            Command::CreateFile { place, masks, secret, content } => self
                .room_for_file_at(&place, content.len())
                .and_then(|()| self.create(&place, masks, secret, Body::File(content))),
            Command::DeleteDirectory { place } => self.delete_directory(&place),
            Command::DeleteFile { place } => self.delete_file(&place),
            Command::Append { place, capability, masks } => self.append(&place, capability, masks),
            Command::Chmod { place, masks } => self.chmod(&place, masks),
            Command::DeleteRow { place } => self.drop_row(&place),
            Command::ReplaceSet { rows } => return self.replace_set(rows),
            Command::Revoke { place, secret } => self.revoke(&place, secret),
            Command::DeleteUnreachable { owner, created_through } => {
                self.delete_unreachable(&owner, created_through)
            }
        };
        done.map_err(Refusal::from)
    }

    /// Returns why a command would be refused in this state; `None` if it would be carried out.
    pub(crate) fn refusal_of(&self, command: &Command) -> Option<Refusal> {
        let checked = match command {
            Command::Found { .. } if self.root().is_some() => Err(Reason::Founded),
            Command::Found { .. } => Ok(()),
            Command::CreateDirectory { place, masks, .. } => {
                self.room_for_directory_at(place).and_then(|()| self.entered(place, *masks, true)).map(drop)
            }
            Command::CreateFile { place, masks, content, .. } => {
                self.enterable_file(place, *masks, content.len())
            }
            Command::DeleteDirectory { place } => self.deleted_directory(place).map(drop),
            Command::DeleteFile { place } => self.deleted_file(place).map(drop),
            Command::Append { place, capability, masks } => {
                self.appended(place, capability, *masks).map(drop)
            }
            Command::Chmod { place, masks } => self.changed_masks(place, *masks).map(drop),
            Command::DeleteRow { place } => self.present_row(place).map(drop),
            Command::ReplaceSet { rows } => return self.replaceable_set(rows).err(),
            Command::Revoke { place, .. } => self.revoked(place).map(drop),
            Command::DeleteUnreachable { owner, .. } => self.require_owner(owner),
        };
        checked.err().map(Refusal::from)
    }

    /// Checks whether a file of this many bytes could be created there.
    pub(crate) fn enterable_file(
        &self,
        place: &Place,
        masks: Option<Masks>,
        bytes: usize,
    ) -> Result<(), Reason> {
        self.room_for_file_at(place, bytes)?;
        self.entered(place, masks, false).map(drop)
    }

    fn found(&mut self, port: Port, secret: Check, service: Bytes) -> Result<Answer, Reason> {
        if self.root().is_some() {
            return Err(Reason::Founded);
        }
        let columns: Vec<Name> = ROOT_COLUMNS.iter().filter_map(|name| name.parse().ok()).collect();
        self.port = port;
        self.service = service;
        let body = Body::Directory(Directory::new(columns));
        let number = self.add(Object { created: self.number, secret, body });
        Ok(Answer::Capability(Capability::of_owner(port, number, secret)))
    }

    // --- objects ---

    /// Checks the capability first: a stranger does not learn that the service is full.
    fn room_for_directory_at(&self, place: &Place) -> Result<(), Reason> {
        self.may_create(place)?;
        self.room_for_directory()
    }

    fn room_for_file_at(&self, place: &Place, bytes: usize) -> Result<(), Reason> {
        self.may_create(place)?;
        self.room_for_file(bytes)
    }

    /// Creating an object without a name takes any open column; entering it takes the right to modify.
    fn may_create(&self, place: &Place) -> Result<(), Reason> {
        match place.path.is_empty() {
            true => self.open(&place.capability).map(drop),
            false => self.free_row(place).map(drop),
        }
    }

    /// Returns a row that does not exist yet, in a directory that the caller may modify.
    fn free_row(&self, place: &Place) -> Result<Target, Reason> {
        let (parent, name) = self.open_parent(place)?;
        match parent.directory.rows.contains_key(name) {
            true => Err(Reason::Exists),
            false => Ok(Target { directory: parent.number, name: name.clone() }),
        }
    }

    /// Returns the row at a place, in a directory that the caller may modify.
    fn present_row(&self, place: &Place) -> Result<(Target, &StoredRow), Reason> {
        let (parent, name) = self.open_parent(place)?;
        let row = parent.directory.rows.get(name).ok_or(Reason::NotFound)?;
        Ok((Target { directory: parent.number, name: name.clone() }, row))
    }

    /// Returns the masks for a row of a directory: those that were given, one for each column, or the default.
    fn masks_for(
        &self,
        directory: ObjectNumber,
        masks: Option<Masks>,
        of_directory: bool,
    ) -> Result<Masks, Reason> {
        let directory = self.objects.get(&directory).and_then(Object::directory).ok_or(Reason::NotFound)?;
        let columns = directory.columns.len();
        match masks {
            Some(masks) if masks.as_slice().len() == columns => Ok(masks),
            Some(masks) => Err(Reason::Masks { columns: columns as u8, masks: masks.as_slice().len() as u8 }),
            None => directory.default_masks(of_directory).ok_or(Reason::NotFound),
        }
    }

    /// Returns the row in which a new object is to be entered, with its masks; `None` if it is not to be entered.
    fn entered(
        &self,
        place: &Place,
        masks: Option<Masks>,
        is_directory: bool,
    ) -> Result<Option<(Target, Masks)>, Reason> {
        if place.path.is_empty() {
            return Ok(None);
        }
        let target = self.free_row(place)?;
        let masks = self.masks_for(target.directory, masks, is_directory)?;
        self.room_for_row()?;
        Ok(Some((target, masks)))
    }

    /// Adds an object, and a row with its capability if the path is not empty.
    fn create(
        &mut self,
        place: &Place,
        masks: Option<Masks>,
        secret: Check,
        body: Body,
    ) -> Result<Answer, Reason> {
        let is_directory = matches!(body, Body::Directory(_));
        let row = self.entered(place, masks, is_directory)?;
        let number = self.add(Object { created: self.number, secret, body });
        let capability = Capability::of_owner(self.port, number, secret);
        if let Some((target, masks)) = row {
            self.put_row(target.directory, Event::Append, &target.name, StoredRow { capability, masks });
        }
        Ok(Answer::Capability(capability))
    }

    /// Returns the capability at a place that is to be deleted or changed, and the row that led to it, which goes with it.
    fn with_row(&self, place: &Place) -> Result<(Capability, Option<Target>), Reason> {
        let row = match place.path.is_empty() {
            true => None,
            false => Some(self.present_row(place)?.0),
        };
        Ok((self.walk(&place.capability, place.path.names())?, row))
    }

    fn delete(&mut self, object: ObjectNumber, row: Option<Target>) -> Answer {
        let is_file = self.objects.get(&object).is_some_and(|object| object.file().is_some());
        if !is_file || !self.watched.broken(Planted::DeletedFileReadable) {
            self.remove(object);
        }
        if let Some(row) = row {
            self.delete_row(row.directory, &row.name);
        }
        Answer::Done
    }

    /// Returns the directory that may be deleted, and its row.
    fn deleted_directory(&self, place: &Place) -> Result<(ObjectNumber, Option<Target>), Reason> {
        let (capability, row) = self.with_row(place)?;
        let opened = self.open(&capability)?;
        opened.require(Rights::DELETE)?;
        if opened.number == crate::ROOT {
            return Err(Reason::Root);
        }
        if !opened.directory.rows.is_empty() && !self.watched.broken(Planted::FullDirectoryDeleted) {
            return Err(Reason::NotEmpty);
        }
        Ok((capability.object, row))
    }

    fn delete_directory(&mut self, place: &Place) -> Result<Answer, Reason> {
        let (object, row) = self.deleted_directory(place)?;
        Ok(self.delete(object, row))
    }

    /// Returns the file that may be deleted, and its row.
    fn deleted_file(&self, place: &Place) -> Result<(ObjectNumber, Option<Target>), Reason> {
        let (capability, row) = self.with_row(place)?;
        self.object(&capability)?.file().ok_or(Reason::NotAFile)?;
        if !capability.rights.include(Rights::DESTROY) {
            return Err(Reason::Denied);
        }
        Ok((capability.object, row))
    }

    fn delete_file(&mut self, place: &Place) -> Result<Answer, Reason> {
        let (object, row) = self.deleted_file(place)?;
        Ok(self.delete(object, row))
    }

    /// Returns the capability of the object that may get a new secret, and its row.
    fn revoked(&self, place: &Place) -> Result<(Capability, Option<Target>), Reason> {
        let (capability, row) = self.with_row(place)?;
        self.object(&capability)?;
        if capability.rights != Rights::ALL {
            return Err(Reason::Denied);
        }
        Ok((capability, row))
    }

    fn revoke(&mut self, place: &Place, secret: Check) -> Result<Answer, Reason> {
        let (capability, row) = self.revoked(place)?;
        let fresh = Capability::of_owner(self.port, capability.object, secret);
        if let Some(object) = self.objects.get_mut(&capability.object) {
            self.watched.keep(capability.object, object.secret);
            object.secret = secret;
            self.touched.push(self.number, capability.object);
            self.parts.note_changed((capability.object, None));
        }
        if let Some(row) = row {
            self.set_capability(&row, fresh);
        }
        Ok(Answer::Capability(fresh))
    }

    fn delete_unreachable(&mut self, owner: &Capability, created_through: u64) -> Result<Answer, Reason> {
        self.require_owner(owner)?;
        let (mut directories, mut files) = (0, 0);
        for number in reach::unreachable(self) {
            let Some(object) = self.objects.get(&number).filter(|object| object.created <= created_through)
            else {
                continue;
            };
            match object.body {
                Body::Directory(_) => directories += 1,
                Body::File(_) => files += 1,
            }
            self.remove(number);
        }
        Ok(Answer::Deleted { directories, files })
    }

    // --- rows ---

    /// Returns the row that may be added, and its masks.
    fn appended(
        &self,
        place: &Place,
        capability: &Capability,
        masks: Option<Masks>,
    ) -> Result<(Target, Masks), Reason> {
        let row = self.free_row(place)?;
        let is_directory = self.object(capability).is_ok_and(|object| object.directory().is_some());
        let masks = self.masks_for(row.directory, masks, is_directory)?;
        self.room_for_row()?;
        Ok((row, masks))
    }

    fn append(
        &mut self,
        place: &Place,
        capability: Capability,
        masks: Option<Masks>,
    ) -> Result<Answer, Reason> {
        let (row, masks) = self.appended(place, &capability, masks)?;
        self.put_row(row.directory, Event::Append, &row.name, StoredRow { capability, masks });
        Ok(Answer::Done)
    }

    /// Returns the row whose masks may be replaced, as it is to be.
    fn changed_masks(&self, place: &Place, masks: Masks) -> Result<(Target, StoredRow), Reason> {
        let (parent, name) = self.open_parent(place)?;
        let row = parent.directory.rows.get(name).ok_or(Reason::NotFound)?;
        let masks = self.masks_for(parent.number, Some(masks), false)?;
        if !parent.may_set(row, &masks) {
            return Err(Reason::Denied);
        }
        let capability = row.capability;
        let target = Target { directory: parent.number, name: name.clone() };
        Ok((target, StoredRow { capability, masks }))
    }

    fn chmod(&mut self, place: &Place, masks: Masks) -> Result<Answer, Reason> {
        let (target, row) = self.changed_masks(place, masks)?;
        self.put_row(target.directory, Event::Chmod, &target.name, row);
        Ok(Answer::Done)
    }

    fn drop_row(&mut self, place: &Place) -> Result<Answer, Reason> {
        let (row, _) = self.present_row(place)?;
        self.delete_row(row.directory, &row.name);
        Ok(Answer::Done)
    }

    fn replace_set(&mut self, rows: Vec<Replacement>) -> Result<Answer, Refusal> {
        if self.watched.broken(Planted::HalfReplaceSet) {
            self.replace_half(&rows);
        }
        let targets = self.replaceable_set(&rows)?;
        targets.iter().for_each(|(target, capability)| self.set_capability(target, *capability));
        Ok(Answer::Done)
    }

    /// Replaces the rows before the first that may not be replaced: a planted bug.
    fn replace_half(&mut self, rows: &[Replacement]) {
        for row in rows {
            let Ok(target) = self.replaceable(row) else { return };
            self.set_capability(&target, row.capability);
        }
    }

    /// Returns the rows that may be replaced, all of them.
    fn replaceable_set(&self, rows: &[Replacement]) -> Result<Vec<(Target, Capability)>, Refusal> {
        if rows.is_empty() || rows.len() > SET_ROWS_MAX {
            return Err(Reason::Unreadable.into());
        }
        let (mut targets, mut named) = (Vec::with_capacity(rows.len()), BTreeSet::new());
        for (index, replacement) in rows.iter().enumerate() {
            let at_entry = |reason| Refusal { reason, entry: Some(index as u16) };
            let target = self.replaceable(replacement).map_err(at_entry)?;
            if !named.insert((target.directory, target.name.clone())) {
                return Err(at_entry(Reason::Twice));
            }
            targets.push((target, replacement.capability));
        }
        Ok(targets)
    }

    /// Returns the row of a replacement if it is what the caller expects: what a lookup at this place returns.
    fn replaceable(&self, replacement: &Replacement) -> Result<Target, Reason> {
        let (parent, name) = self.open_parent(&replacement.place)?;
        let row = parent.directory.rows.get(name).ok_or(Reason::NotFound)?;
        let target = Target { directory: parent.number, name: name.clone() };
        match replacement.expected {
            Some(_) if self.watched.broken(Planted::ExpectedNotCompared) => Ok(target),
            Some(expected) if self.show(&parent, row) != Ok(expected) => Err(Reason::Differs),
            _ => Ok(target),
        }
    }

    fn set_capability(&mut self, target: &Target, capability: Capability) {
        let row = self.objects.get(&target.directory).and_then(Object::directory);
        let Some(masks) = row.and_then(|directory| directory.rows.get(&target.name)).map(|row| row.masks)
        else {
            return;
        };
        self.put_row(target.directory, Event::Replace, &target.name, StoredRow { capability, masks });
    }
}
