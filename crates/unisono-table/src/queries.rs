//! What each query answers.

use crate::bounds::{LIST_BYTES_MAX, READ_BYTES_MAX, SET_ROWS_MAX};
use crate::capability::{CAPABILITY_BYTES, Capability, ObjectNumber, Rights};
use crate::name::Name;
use crate::object::Object;
use crate::reach;
use crate::refusal::{Reason, Refusal};
use crate::reply::{Answer, Listed, Looked, Reply, Row};
use crate::request::{Place, Query, Request};
use crate::table::Table;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Bound;

/// Length of an object in an answer, in bytes.
const LISTED_BYTES: usize = 24;

impl Table {
    /// Answers the query with these bytes, and returns the bytes of the reply.
    pub fn answer(&self, request: &Bytes) -> Bytes {
        let unreadable = || self.reply(Err(Reason::Unreadable));
        if Request::is_lookup(request) {
            // A lookup that cannot be read is not read a second time, with all its names.
            let places = Request::places_of_lookup(request, |capability| self.object(capability).is_ok());
            return places.map_or_else(unreadable, |places| self.reply(self.lookup(&places))).encode();
        }
        match Request::decode(request) {
            Some(Request::Query(query) | Request::LocalQuery(query)) => self.ask(&query),
            _ => unreadable(),
        }
        .encode()
    }

    /// Answers a query.
    pub fn ask(&self, query: &Query) -> Reply {
        self.reply(match query {
            Query::List { place, after } => self.list(place, after.as_ref()),
            Query::Lookup { places } => self.lookup(places),
            Query::Restrict { place, rights } => self.restrict(place, *rights),
            Query::Read { place, offset, length } => self.read(place, *offset, *length),
            Query::Size { place } => self.file_at(place).map(|content| Answer::Size(content.len() as u64)),
            Query::Files { owner, after } => self.files(owner, *after),
            Query::Unreachable { owner, after } => self.unreachable(owner, *after),
            Query::Changes { place, from } => self.changes_of(place, *from),
            Query::Info => Ok(Answer::Info(self.info())),
        })
    }

    fn reply(&self, result: Result<Answer, Reason>) -> Reply {
        Reply { number: self.number, changes: self.changes, result: result.map_err(Refusal::from) }
    }

    fn list(&self, place: &Place, after: Option<&Name>) -> Result<Answer, Reason> {
        let opened = self.open_at(place)?;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut rows, mut bytes, mut more) = (Vec::new(), 0, false);
        for (name, row) in opened.directory.rows.range((from, Bound::Unbounded)) {
            if bytes >= LIST_BYTES_MAX {
                more = true;
                break;
            }
            bytes += CAPABILITY_BYTES + 8 + name.as_str().len();
            let capability = self.show(&opened, row);
            rows.push(Row { name: name.clone(), capability, masks: row.masks });
        }
        Ok(Answer::Rows { columns: opened.directory.columns.clone(), rows, more })
    }

    fn lookup(&self, places: &[Place]) -> Result<Answer, Reason> {
        if places.len() > SET_ROWS_MAX {
            return Err(Reason::Unreadable);
        }
        let look = |place: &Place| {
            let capability = self.walk(&place.capability, place.path.names())?;
            let object = self.object(&capability);
            if place.path.is_empty() {
                // Of a row the capability is shown even if it is void or of another service; that of the caller is judged.
                object.as_ref().map_err(|reason| *reason)?;
            }
            let is_directory = object.is_ok_and(|object| object.directory().is_some());
            Ok(Looked { capability, is_directory })
        };
        Ok(Answer::Looked(places.iter().map(look).collect()))
    }

    fn restrict(&self, place: &Place, rights: Rights) -> Result<Answer, Reason> {
        let capability = self.walk(&place.capability, place.path.names())?;
        let object = self.object(&capability)?;
        let common = capability.rights.and(rights);
        Ok(Answer::Capability(capability.with_secret(common, object.secret)))
    }

    // --- files ---

    /// Returns the file at a place if the capability allows to read it.
    fn file_at(&self, place: &Place) -> Result<&Bytes, Reason> {
        let capability = self.walk(&place.capability, place.path.names())?;
        let content = self.object(&capability)?.file().ok_or(Reason::NotAFile)?;
        if capability.rights.include(Rights::READ) { Ok(content) } else { Err(Reason::Denied) }
    }

    fn read(&self, place: &Place, offset: u64, length: u32) -> Result<Answer, Reason> {
        let content = self.file_at(place)?;
        let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(READ_BYTES_MAX);
        let end = begin.saturating_add(length).min(content.len());
        Ok(Answer::Content { size: content.len() as u64, bytes: content.slice(begin..end) })
    }

    // --- the owner's questions ---

    fn files(&self, owner: &Capability, after: ObjectNumber) -> Result<Answer, Reason> {
        self.require_owner(owner)?;
        let later = self.objects.range((Bound::Excluded(after), Bound::Unbounded));
        Ok(listed(later.filter(|(_, object)| object.file().is_some())))
    }

    fn unreachable(&self, owner: &Capability, after: ObjectNumber) -> Result<Answer, Reason> {
        self.require_owner(owner)?;
        let numbers = reach::unreachable(self).into_iter().filter(|number| *number > after);
        Ok(listed(numbers.filter_map(|number| self.objects.get_key_value(&number))))
    }

    // --- watches ---

    fn changes_of(&self, place: &Place, from: u64) -> Result<Answer, Reason> {
        let opened = self.open_at(place)?;
        let (from, number) = (from.max(1), self.number);
        if from > number + 1 {
            return Err(Reason::Future { number });
        }
        if from < self.history.kept_from() {
            return Err(Reason::NoLongerKept { kept_from: self.history.kept_from() });
        }
        if opened.directory.changed < from {
            return Ok(Answer::Changes { changes: Vec::new(), next: number + 1 });
        }
        let (changes, next) = self.history.of(opened.number, from, number, LIST_BYTES_MAX);
        Ok(Answer::Changes { changes, next })
    }
}

/// Returns as many objects as fit into an answer.
fn listed<'a>(mut objects: impl Iterator<Item = (&'a ObjectNumber, &'a Object)>) -> Answer {
    let list = objects.by_ref().take(LIST_BYTES_MAX / LISTED_BYTES).map(|(number, object)| Listed {
        object: *number,
        created: object.created,
        size: object.file().map(|content| content.len() as u64),
    });
    let list: Vec<Listed> = list.collect();
    Answer::Objects { objects: list, more: objects.next().is_some() }
}
