//! What commands do to the model. A command that is refused leaves everything but the number as it is.

use super::{Body, Cap, Changed, Model, Object, Open, ROOT, Row, limits, masks_of};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::rc::Rc;
use unisono_table::{Answer, Bound, Command, Event, Masks, Name, Place, Reason, Refusal, Replacement};

/// A row that a command is about.
type Target = (u64, Name);

impl Model {
    /// Returns the state after a command, the result, and the changed rows. `None` stands for what cannot be read.
    pub(in super::super) fn after(
        &self,
        command: Option<&Command>,
    ) -> (Model, Result<Answer, Refusal>, Vec<Changed>) {
        let number = self.number + 1;
        let mut work = Work { model: Model { number, ..self.clone() }, changed: Vec::new() };
        let result = match command {
            None => Err(Reason::Unreadable.into()),
            Some(Command::ReplaceSet { rows }) => work.replace_set(rows),
            Some(command) => work.execute(command).map_err(Refusal::from),
        };
        match result {
            Ok(answer) => (work.model, Ok(answer), work.changed),
            Err(refusal) => (Model { number, ..self.clone() }, Err(refusal), Vec::new()),
        }
    }
}

/// A command at work.
struct Work {
    model: Model,
    changed: Vec<Changed>,
}

impl Work {
    fn execute(&mut self, command: &Command) -> Result<Answer, Reason> {
        match command {
            Command::Found { port, secret, .. } => {
                if self.model.objects.contains_key(&ROOT) {
                    return Err(Reason::Founded);
                }
                self.model.port = port.0;
                let columns =
                    ["owner", "group", "other"].iter().filter_map(|name| name.parse().ok()).collect();
                let body = Body::Directory { columns, rows: BTreeMap::new() };
                Ok(Answer::Capability(self.add(secret.to_bits(), body).capability()))
            }
            Command::CreateDirectory { place, columns, masks, secret } => {
                let target = self.new_target(place)?;
                full(self.model.directories(), 1, limits().directories, Bound::Directories)?;
                let body = Body::Directory { columns: columns.clone(), rows: BTreeMap::new() };
                self.create(target, masks, secret.to_bits(), body)
            }
            Command::CreateFile { place, masks, secret, content } => {
                let target = self.new_target(place)?;
                full(self.model.files().count() as u64, 1, limits().files, Bound::Files)?;
                let bytes = self.model.files().map(|file| file.len() as u64).sum();
                full(bytes, content.len() as u64, limits().file_bytes, Bound::FileBytes)?;
                self.create(target, masks, secret.to_bits(), Body::File(Bytes::copy_from_slice(content)))
            }
            Command::DeleteDirectory { place } => {
                let (row, cap) = self.row_and_object(place)?;
                let Open { directory, rights, .. } = self.model.open(&cap)?;
                match () {
                    () if rights & 0x80 == 0 => Err(Reason::Denied),
                    () if directory == ROOT => Err(Reason::Root),
                    () if !self.model.rows(directory).is_empty() => Err(Reason::NotEmpty),
                    () => Ok(self.delete(directory, row)),
                }
            }
            Command::DeleteFile { place } => {
                let (row, cap) = self.row_and_object(place)?;
                self.model.good(&cap)?.file().ok_or(Reason::NotAFile)?;
                if cap.rights & 0x08 == 0 { Err(Reason::Denied) } else { Ok(self.delete(cap.object, row)) }
            }
            Command::Append { place, capability, masks } => {
                let target = self.free(place)?;
                let cap = Cap::from(capability);
                let of_directory = self.model.good(&cap).is_ok_and(|object| object.rows().is_some());
                self.append(target, cap, masks, of_directory)?;
                Ok(Answer::Done)
            }
            Command::Chmod { place, masks } => {
                let (open, name) = self.parent(place)?;
                let Row { cap, masks: before } = self.model.row(open, &name)?.clone();
                let masks = self.masks(open.directory, Some(masks), false)?;
                let own = (0..).zip(&before).filter(|(column, _)| open.columns & (1 << column) != 0);
                let own = own.fold(0, |own, (_, mask)| own | mask);
                if before.iter().zip(&masks).any(|(before, after)| after & !before & !own != 0) {
                    return Err(Reason::Denied);
                }
                let target = (open.directory, name);
                self.put(target, Row { cap, masks }, Event::Chmod);
                Ok(Answer::Done)
            }
            Command::DeleteRow { place } => {
                let target = self.present(place)?;
                self.drop_row(target);
                Ok(Answer::Done)
            }
            Command::Revoke { place, secret } => {
                let (row, cap) = self.row_and_object(place)?;
                let object = self.model.good(&cap)?.clone();
                if cap.rights != u8::MAX {
                    return Err(Reason::Denied);
                }
                let secret = secret.to_bits();
                self.model.objects.insert(cap.object, Rc::new(Object { secret, ..object }));
                let fresh = Cap { check: secret, ..cap };
                row.into_iter().for_each(|target| self.set(target, fresh));
                Ok(Answer::Capability(fresh.capability()))
            }
            Command::DeleteUnreachable { owner, created_through } => {
                self.model.require_owner(owner)?;
                let mut lost = self.model.unreachable();
                lost.retain(|number| self.model.objects[number].created <= *created_through);
                let directories =
                    lost.iter().filter(|number| self.model.objects[number].rows().is_some()).count() as u64;
                lost.iter().for_each(|number| _ = self.model.objects.remove(number));
                Ok(Answer::Deleted { directories, files: lost.len() as u64 - directories })
            }
            _ => Err(Reason::Unreadable),
        }
    }

    fn replace_set(&mut self, rows: &[Replacement]) -> Result<Answer, Refusal> {
        if rows.is_empty() {
            return Err(Reason::Unreadable.into());
        }
        let mut targets: Vec<Target> = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            let target = self.replaceable(row).and_then(|target| match targets.contains(&target) {
                true => Err(Reason::Twice),
                false => Ok(target),
            });
            targets.push(target.map_err(|reason| Refusal { reason, entry: Some(index as u16) })?);
        }
        for (target, row) in targets.into_iter().zip(rows) {
            self.set(target, Cap::from(&row.capability));
        }
        Ok(Answer::Done)
    }

    fn replaceable(&self, row: &Replacement) -> Result<Target, Reason> {
        let (open, name) = self.parent(&row.place)?;
        let shown = self.model.show(open, self.model.row(open, &name)?);
        match row.expected {
            Some(expected) if shown != Ok(Cap::from(&expected)) => Err(Reason::Differs),
            _ => Ok((open.directory, name)),
        }
    }

    // --- what rows a command is about ---

    fn parent(&self, place: &Place) -> Result<(Open, Name), Reason> {
        let (name, parents) = place.path.names().split_last().ok_or(Reason::NoName)?;
        let open = self.model.open(&self.model.walk(&place.capability, parents)?)?;
        if open.rights & 0x40 == 0 { Err(Reason::Denied) } else { Ok((open, name.clone())) }
    }

    fn free(&self, place: &Place) -> Result<Target, Reason> {
        let (open, name) = self.parent(place)?;
        match self.model.row(open, &name) {
            Ok(_) => Err(Reason::Exists),
            Err(_) => Ok((open.directory, name)),
        }
    }

    fn present(&self, place: &Place) -> Result<Target, Reason> {
        let (open, name) = self.parent(place)?;
        self.model.row(open, &name)?;
        Ok((open.directory, name))
    }

    /// Returns where a new object is to be entered, if anywhere.
    fn new_target(&self, place: &Place) -> Result<Option<Target>, Reason> {
        match place.path.is_empty() {
            true => self.model.open(&Cap::from(&place.capability)).map(|_| None),
            false => self.free(place).map(Some),
        }
    }

    /// Returns the capability of an object, and the row that leads to it, which has to be one that may be changed.
    fn row_and_object(&self, place: &Place) -> Result<(Option<Target>, Cap), Reason> {
        let row = if place.path.is_empty() { None } else { Some(self.present(place)?) };
        Ok((row, self.model.at(place)?))
    }

    fn masks(&self, directory: u64, masks: Option<&Masks>, of_directory: bool) -> Result<Vec<u8>, Reason> {
        let Some(Body::Directory { columns, .. }) = self.model.objects.get(&directory).map(|o| &o.body)
        else {
            return Err(Reason::NotFound);
        };
        let columns = columns.len() as u8;
        let default = |column| match (column, of_directory) {
            (0, _) => 0xff,
            (_, true) => 1 << column,
            (_, false) => 0x02,
        };
        match masks.map(masks_of) {
            None => Ok((0..columns).map(default).collect()),
            Some(masks) if masks.len() == usize::from(columns) => Ok(masks),
            Some(masks) => Err(Reason::Masks { columns, masks: masks.len() as u8 }),
        }
    }

    // --- changes ---

    fn add(&mut self, secret: u128, body: Body) -> Cap {
        let object = self.model.last_object + 1;
        self.model.last_object = object;
        let created = self.model.number;
        self.model.objects.insert(object, Rc::new(Object { created, secret, body }));
        Cap { port: self.model.port, object, rights: u8::MAX, check: secret }
    }

    fn create(
        &mut self,
        target: Option<Target>,
        masks: &Option<Masks>,
        secret: u128,
        body: Body,
    ) -> Result<Answer, Reason> {
        let of_directory = matches!(body, Body::Directory { .. });
        let cap = self.add(secret, body);
        if let Some(target) = target {
            self.append(target, cap, masks, of_directory)?;
        }
        Ok(Answer::Capability(cap.capability()))
    }

    fn append(
        &mut self,
        target: Target,
        cap: Cap,
        masks: &Option<Masks>,
        of_directory: bool,
    ) -> Result<(), Reason> {
        let masks = self.masks(target.0, masks.as_ref(), of_directory)?;
        full(self.model.row_count(), 1, limits().rows, Bound::Rows)?;
        self.put(target, Row { cap, masks }, Event::Append);
        Ok(())
    }

    fn set(&mut self, target: Target, cap: Cap) {
        let masks = self.model.rows(target.0)[&target.1].masks.clone();
        self.put(target, Row { cap, masks }, Event::Replace);
    }

    fn put(&mut self, (directory, name): Target, row: Row, event: Event) {
        self.change(directory, |rows| _ = rows.insert(name.clone(), row));
        self.changed.push(Changed { directory, event, name });
    }

    fn drop_row(&mut self, (directory, name): Target) {
        self.change(directory, |rows| _ = rows.remove(&name));
        self.changed.push(Changed { directory, event: Event::Delete, name });
    }

    fn change(&mut self, directory: u64, change: impl FnOnce(&mut BTreeMap<Name, Row>)) {
        let Some(object) = self.model.objects.get_mut(&directory) else { return };
        if let Body::Directory { rows, .. } = &mut Rc::make_mut(object).body {
            change(rows);
        }
    }

    fn delete(&mut self, object: u64, row: Option<Target>) -> Answer {
        self.model.objects.remove(&object);
        row.into_iter().for_each(|row| self.drop_row(row));
        Answer::Done
    }
}

fn full(present: u64, more: u64, limit: u64, bound: Bound) -> Result<(), Reason> {
    if present + more > limit { Err(Reason::Full { bound, limit }) } else { Ok(()) }
}
