//! What the model answers. Changes of a directory are not part of it: `Timeline` has them.

use super::{Body, Cap, Model};
use std::ops::Bound;
use unisono_table::{
    Answer, Listed, Looked, Masks, Name, ObjectNumber, Place, Query, Reason, Refusal, Rights, Row,
};

impl Model {
    /// Returns the answer to a query. Of an information about the service the beginning of the history is 0.
    pub(in super::super) fn ask(&self, query: &Query) -> Result<Answer, Refusal> {
        let answer = match query {
            Query::List { place, after } => self.list(place, after.as_ref()),
            Query::Lookup { places } => {
                Ok(Answer::Looked(places.iter().map(|place| self.look(place)).collect()))
            }
            Query::Restrict { place, rights } => self.at(place).and_then(|cap| {
                let secret = self.good(&cap)?.secret;
                Ok(Answer::Capability(cap.with(cap.rights & rights.0, secret).capability()))
            }),
            Query::Read { place, offset, length } => self.file(place).map(|content| {
                let begin = content.len().min(*offset as usize);
                let end = content.len().min(begin + *length as usize);
                Answer::Content { size: content.len() as u64, bytes: content.slice(begin..end) }
            }),
            Query::Size { place } => self.file(place).map(|content| Answer::Size(content.len() as u64)),
            Query::Files { owner, after } => self
                .require_owner(owner)
                .map(|()| self.listed(after, |number| self.objects[number].file().is_some())),
            Query::Unreachable { owner, after } => self.require_owner(owner).map(|()| {
                let lost = self.unreachable();
                self.listed(after, |number| lost.contains(number))
            }),
            Query::Info => {
                let (directories, rows) = (self.directories(), self.row_count());
                let (files, file_bytes) =
                    self.files().fold((0, 0), |(files, bytes), file| (files + 1, bytes + file.len() as u64));
                Ok(Answer::Info(unisono_table::Info { directories, rows, files, file_bytes, kept_from: 0 }))
            }
            _ => Err(Reason::Unreadable),
        };
        answer.map_err(Refusal::from)
    }

    /// Returns queries that ask for everything, with the capabilities of owners.
    pub(in super::super) fn all_queries(&self) -> Vec<Query> {
        let ask = |(number, object): (&u64, &std::rc::Rc<super::Object>)| {
            let owner = Cap { port: self.port, object: *number, rights: u8::MAX, check: object.secret };
            let place = Place::of(owner.capability());
            match &object.body {
                Body::Directory { .. } => Query::List { place, after: None },
                Body::File(_) => Query::Read { place, offset: 0, length: u32::MAX },
            }
        };
        self.objects.iter().map(ask).collect()
    }

    /// Returns the number of the directory at a place whose changes may be read.
    pub(in super::super) fn watched(&self, place: &Place) -> Result<u64, Reason> {
        Ok(self.open(&self.at(place)?)?.directory)
    }

    fn look(&self, place: &Place) -> Result<Looked, Reason> {
        let cap = self.at(place)?;
        let object = self.good(&cap);
        if let (true, Err(reason)) = (place.path.is_empty(), &object) {
            return Err(*reason);
        }
        let is_directory = object.is_ok_and(|object| object.rows().is_some());
        Ok(Looked { capability: cap.capability(), is_directory })
    }

    fn list(&self, place: &Place, after: Option<&Name>) -> Result<Answer, Reason> {
        let open = self.open(&self.at(place)?)?;
        let Some(Body::Directory { columns, rows }) = self.objects.get(&open.directory).map(|o| &o.body)
        else {
            return Err(Reason::NotADirectory);
        };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = rows.range((from, Bound::Unbounded)).filter_map(|(name, row)| {
            let masks: Vec<Rights> = row.masks.iter().copied().map(Rights).collect();
            let capability = self.show(open, row).map(Cap::capability);
            Some(Row { name: name.clone(), capability, masks: Masks::new(&masks)? })
        });
        Ok(Answer::Rows { columns: columns.clone(), rows: rows.collect(), more: false })
    }

    fn file(&self, place: &Place) -> Result<&bytes::Bytes, Reason> {
        let cap = self.at(place)?;
        let content = self.good(&cap)?.file().ok_or(Reason::NotAFile)?;
        if cap.rights & 0x02 == 0 { Err(Reason::Denied) } else { Ok(content) }
    }

    fn listed(&self, after: &ObjectNumber, is_listed: impl Fn(&u64) -> bool) -> Answer {
        let later = self.objects.range(after.0 + 1..).filter(|(number, _)| is_listed(number));
        let objects = later.map(|(number, object)| Listed {
            object: ObjectNumber(*number),
            created: object.created,
            size: object.file().map(|content| content.len() as u64),
        });
        Answer::Objects { objects: objects.collect(), more: false }
    }
}
