//! A simple model of the table, written from the rules: plain maps that are copied before each command.

use super::*;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};

#[derive(Clone, Default)]
pub(super) struct Model {
    pub(super) number: u64,
    pub(super) changes: u64,
    next: u64,
    secrets: BTreeMap<u64, Check>,
    directories: BTreeMap<u64, Directory>,
    files: BTreeMap<u64, Vec<u8>>,
    log: Vec<(u64, u64, Event, String)>,
}

#[derive(Clone)]
struct Directory {
    columns: usize,
    rows: BTreeMap<String, (Capability, Vec<u8>)>,
}

type Answered = Result<Answer, Refusal>;

impl Model {
    pub(super) fn run(&mut self, command: &Command) -> Reply {
        let mut after = self.clone();
        after.number += 1;
        let result = after.change(command);
        match &result {
            Ok(answer) => {
                let is_nothing = *answer == Answer::Deleted { directories: 0, files: 0 };
                after.changes += u64::from(!is_nothing);
                *self = after;
            }
            Err(_) => self.number += 1,
        }
        Reply { number: self.number, changes: self.changes, result }
    }

    /// Returns the object for which a capability is good.
    fn good(&self, capability: &Capability) -> Result<u64, Reason> {
        let number = capability.object.0;
        let secret = self.secrets.get(&number).ok_or(Reason::NotFound)?;
        let owner = Capability::of_owner(PORT, capability.object, *secret);
        let same = owner.restrict(capability.rights) == Some(*capability);
        if same { Ok(number) } else { Err(Reason::NotFound) }
    }

    fn open(&self, capability: &Capability) -> Result<(u64, u8), Reason> {
        let number = self.good(capability)?;
        let directory = self.directories.get(&number).ok_or(Reason::NotADirectory)?;
        let columns = capability.rights.0 & ((1u8 << directory.columns) - 1);
        if columns == 0 { Err(Reason::Denied) } else { Ok((number, columns)) }
    }

    fn shown(&self, directory: u64, columns: u8, name: &str) -> Result<Capability, Reason> {
        let (stored, masks) = self.directories[&directory].rows.get(name).ok_or(Reason::NotFound)?;
        let mut mask = 0;
        for (column, bits) in masks.iter().enumerate() {
            if columns >> column & 1 == 1 {
                mask |= bits;
            }
        }
        let rights = stored.rights.0 & mask;
        if rights == 0 {
            return Err(Reason::Denied);
        }
        if rights == stored.rights.0 || stored.rights.0 == 0xff {
            return stored.restrict(Rights(rights)).ok_or(Reason::Denied);
        }
        if stored.port != PORT {
            return Err(Reason::Denied);
        }
        let secret = self.secrets[&self.good(stored)?];
        Capability::of_owner(PORT, stored.object, secret).restrict(Rights(rights)).ok_or(Reason::Denied)
    }

    fn walk(&self, start: Capability, names: &[Name]) -> Result<Capability, Reason> {
        let Some((first, rest)) = names.split_first() else { return Ok(start) };
        let (directory, columns) = self.open(&start)?;
        let next = self.shown(directory, columns, first.as_str())?;
        if !rest.is_empty() && next.port != PORT {
            return Err(Reason::NotADirectory);
        }
        self.walk(next, rest)
    }

    /// Returns the directory of a row to change, its open columns, and the row's name.
    fn parent(&self, place: &Place) -> Result<(u64, u8, String), Reason> {
        let (name, parents) = place.path.names().split_last().ok_or(Reason::NoName)?;
        let capability = self.walk(place.capability, parents)?;
        let (directory, columns) = self.open(&capability)?;
        if capability.rights.0 & 0x40 == 0 {
            return Err(Reason::Denied);
        }
        Ok((directory, columns, name.to_string()))
    }

    fn row(&self, place: &Place) -> Result<(u64, String), Reason> {
        let (directory, _, name) = self.parent(place)?;
        match self.directories[&directory].rows.contains_key(&name) {
            true => Ok((directory, name)),
            false => Err(Reason::NotFound),
        }
    }

    fn no_row(&self, place: &Place) -> Result<(u64, String), Reason> {
        let (directory, _, name) = self.parent(place)?;
        match self.directories[&directory].rows.contains_key(&name) {
            true => Err(Reason::Exists),
            false => Ok((directory, name)),
        }
    }

    fn masks(&self, directory: u64, masks: Option<&Masks>, of_directory: bool) -> Result<Vec<u8>, Reason> {
        let columns = self.directories[&directory].columns;
        let Some(masks) = masks else {
            let by_kind: &[u8] = if of_directory { &[0xff, 2, 4, 8] } else { &[0xff, 2, 2, 2] };
            return Ok(by_kind[..columns].to_vec());
        };
        let masks: Vec<u8> = masks.as_slice().iter().map(|mask| mask.0).collect();
        match masks.len() == columns {
            true => Ok(masks),
            false => Err(Reason::Masks { columns: columns as u8, masks: masks.len() as u8 }),
        }
    }

    fn put(&mut self, directory: u64, name: String, row: (Capability, Vec<u8>), event: Event) {
        self.directories.get_mut(&directory).unwrap().rows.insert(name.clone(), row);
        self.log.push((self.number, directory, event, name));
    }

    fn delete(&mut self, directory: u64, name: String) {
        self.directories.get_mut(&directory).unwrap().rows.remove(&name);
        self.log.push((self.number, directory, Event::Delete, name));
    }

    fn forget(&mut self, object: u64) {
        self.secrets.remove(&object);
        self.directories.remove(&object);
        self.files.remove(&object);
    }

    fn create(
        &mut self,
        place: &Place,
        masks: Option<&Masks>,
        secret: Check,
        columns: Option<usize>,
        content: &[u8],
    ) -> Result<Answer, Reason> {
        let row = match place.path.is_empty() {
            true => {
                self.open(&place.capability)?;
                None
            }
            false => {
                let (directory, name) = self.no_row(place)?;
                Some((directory, name, self.masks(directory, masks, columns.is_some())?))
            }
        };
        self.next += 1;
        self.secrets.insert(self.next, secret);
        match columns {
            Some(columns) => {
                drop(self.directories.insert(self.next, Directory { columns, rows: BTreeMap::new() }))
            }
            None => drop(self.files.insert(self.next, content.to_vec())),
        }
        let capability = Capability::of_owner(PORT, ObjectNumber(self.next), secret);
        if let Some((directory, name, masks)) = row {
            self.put(directory, name, (capability, masks), Event::Append);
        }
        Ok(Answer::Capability(capability))
    }

    fn reached(&self) -> Vec<u64> {
        let mut reached = [1].to_vec();
        let mut next = 0;
        while let Some(number) = reached.get(next) {
            let rows = self.directories.get(number).map(|directory| directory.rows.values());
            let good: Vec<u64> =
                rows.into_iter().flatten().filter_map(|(capability, _)| self.good(capability).ok()).collect();
            for number in good {
                if !reached.contains(&number) {
                    reached.push(number);
                }
            }
            next += 1;
        }
        reached
    }

    fn require_owner(&self, owner: &Capability) -> Result<(), Reason> {
        let number = self.good(owner)?;
        if number == 1 && owner.rights.0 == 0xff { Ok(()) } else { Err(Reason::Denied) }
    }

    fn change(&mut self, command: &Command) -> Answered {
        if let Command::ReplaceSet { rows } = command {
            return self.replace(rows);
        }
        self.change_one(command).map_err(Refusal::from)
    }

    fn replace(&mut self, rows: &[Replacement]) -> Answered {
        let before = self.clone();
        let mut done = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            let mut one = || {
                let (directory, columns, name) = before.parent(&row.place)?;
                let (_, masks) = before.directories[&directory].rows.get(&name).ok_or(Reason::NotFound)?;
                if let Some(expected) = row.expected
                    && before.shown(directory, columns, &name) != Ok(expected)
                {
                    return Err(Reason::Differs);
                }
                if done.contains(&(directory, name.clone())) {
                    return Err(Reason::Twice);
                }
                done.push((directory, name.clone()));
                self.put(directory, name, (row.capability, masks.clone()), Event::Replace);
                Ok(())
            };
            one().map_err(|reason| Refusal { reason, entry: Some(index as u16) })?;
        }
        if rows.is_empty() { Err(Reason::Unreadable.into()) } else { Ok(Answer::Done) }
    }

    fn change_one(&mut self, command: &Command) -> Result<Answer, Reason> {
        match command {
            Command::Found { secret, .. } => {
                if !self.secrets.is_empty() {
                    return Err(Reason::Founded);
                }
                self.next = 1;
                self.secrets.insert(1, *secret);
                self.directories.insert(1, Directory { columns: 3, rows: BTreeMap::new() });
                Ok(Answer::Capability(Capability::of_owner(PORT, ROOT, *secret)))
            }
            Command::CreateDirectory { place, columns, masks, secret } => {
                self.create(place, masks.as_ref(), *secret, Some(columns.len()), &[])
            }
            Command::CreateFile { place, masks, secret, content } => {
                self.create(place, masks.as_ref(), *secret, None, content)
            }
            Command::DeleteDirectory { place } => {
                let row = if place.path.is_empty() { None } else { Some(self.row(place)?) };
                let capability = self.walk(place.capability, place.path.names())?;
                let (number, _) = self.open(&capability)?;
                if capability.rights.0 & 0x80 == 0 {
                    return Err(Reason::Denied);
                }
                if number == 1 {
                    return Err(Reason::Root);
                }
                if !self.directories[&number].rows.is_empty() {
                    return Err(Reason::NotEmpty);
                }
                self.forget(number);
                row.into_iter().for_each(|(directory, name)| self.delete(directory, name));
                Ok(Answer::Done)
            }
            Command::DeleteFile { place } => {
                let row = if place.path.is_empty() { None } else { Some(self.row(place)?) };
                let capability = self.walk(place.capability, place.path.names())?;
                let number = self.good(&capability)?;
                self.files.get(&number).ok_or(Reason::NotAFile)?;
                if capability.rights.0 & 0x08 == 0 {
                    return Err(Reason::Denied);
                }
                self.forget(number);
                row.into_iter().for_each(|(directory, name)| self.delete(directory, name));
                Ok(Answer::Done)
            }
            Command::Append { place, capability, masks } => {
                let (directory, name) = self.no_row(place)?;
                let of_directory =
                    self.good(capability).is_ok_and(|number| self.directories.contains_key(&number));
                let masks = self.masks(directory, masks.as_ref(), of_directory)?;
                self.put(directory, name, (*capability, masks), Event::Append);
                Ok(Answer::Done)
            }
            Command::Chmod { place, masks } => {
                let (directory, name) = self.row(place)?;
                let masks = self.masks(directory, Some(masks), false)?;
                let (capability, before) = self.directories[&directory].rows[&name].clone();
                let (parents, _) = place.path.split_last().expect("it has a name");
                let rights = self.walk(place.capability, parents)?.rights.0;
                let open = (0..before.len()).filter(|column| rights & 1 << column != 0);
                let own = open.fold(0, |own, column| own | before[column]);
                if (0..before.len()).any(|column| masks[column] & !(before[column] | own) != 0) {
                    return Err(Reason::Denied);
                }
                self.put(directory, name, (capability, masks), Event::Chmod);
                Ok(Answer::Done)
            }
            Command::DeleteRow { place } => {
                let (directory, name) = self.row(place)?;
                self.delete(directory, name);
                Ok(Answer::Done)
            }
            Command::Revoke { place, secret } => {
                let row = if place.path.is_empty() { None } else { Some(self.row(place)?) };
                let capability = self.walk(place.capability, place.path.names())?;
                let number = self.good(&capability)?;
                if capability.rights.0 != 0xff {
                    return Err(Reason::Denied);
                }
                self.secrets.insert(number, *secret);
                let fresh = Capability::of_owner(PORT, capability.object, *secret);
                if let Some((directory, name)) = row {
                    let masks = self.directories[&directory].rows[&name].1.clone();
                    self.put(directory, name, (fresh, masks), Event::Replace);
                }
                Ok(Answer::Capability(fresh))
            }
            Command::DeleteUnreachable { owner, .. } => {
                self.require_owner(owner)?;
                let reached = self.reached();
                let lost: Vec<u64> =
                    self.secrets.keys().copied().filter(|number| !reached.contains(number)).collect();
                let directories = lost.iter().filter(|number| self.directories.contains_key(number)).count();
                lost.iter().for_each(|number| self.forget(*number));
                let files = (lost.len() - directories) as u64;
                Ok(Answer::Deleted { directories: directories as u64, files })
            }
            other => panic!("{other:?} is not for one row"),
        }
    }

    /// Returns what a question is to be answered with, as far as the model knows.
    pub(super) fn ask(&self, query: &Query) -> Answered {
        match query {
            Query::Lookup { places } => {
                Ok(Answer::Looked(places.iter().map(|place| self.look(place)).collect()))
            }
            Query::List { place, .. } => self.list(place),
            Query::Restrict { place, rights } => (|| {
                let capability = self.walk(place.capability, place.path.names())?;
                let secret = self.secrets[&self.good(&capability)?];
                let owner = Capability::of_owner(PORT, capability.object, secret);
                let rights = Rights(capability.rights.0 & rights.0);
                Ok(Answer::Capability(owner.restrict(rights).unwrap()))
            })(),
            Query::Read { place, .. } => (|| {
                let capability = self.walk(place.capability, place.path.names())?;
                let content = self.files.get(&self.good(&capability)?).ok_or(Reason::NotAFile)?;
                let allowed = capability.rights.0 & 0x02 != 0;
                let whole = Answer::Content { size: content.len() as u64, bytes: content.clone().into() };
                if allowed { Ok(whole) } else { Err(Reason::Denied) }
            })(),
            Query::Changes { place, from } => {
                (|| {
                    let capability = self.walk(place.capability, place.path.names())?;
                    let (directory, _) = self.open(&capability)?;
                    if *from > self.number + 1 {
                        return Err(Reason::Future { number: self.number });
                    }
                    let of_directory =
                        |entry: &&(u64, u64, Event, String)| entry.1 == directory && entry.0 >= *from;
                    let changes = self.log.iter().filter(of_directory).map(|(number, _, event, name)| {
                        Change { number: *number, event: *event, name: name.parse().unwrap() }
                    });
                    Ok(Answer::Changes { changes: changes.collect(), next: self.number + 1 })
                })()
            }
            Query::Unreachable { owner, .. } => (|| {
                self.require_owner(owner)?;
                let reached = self.reached();
                // What is created when is the table's own; the numbers count here.
                let lost = self.secrets.keys().filter(|number| !reached.contains(number));
                let objects =
                    lost.map(|number| Listed { object: ObjectNumber(*number), created: 0, size: None });
                Ok(Answer::Objects { objects: objects.collect(), more: false })
            })(),
            other => panic!("{other:?} is not modelled"),
        }
        .map_err(Refusal::from)
    }

    fn look(&self, place: &Place) -> Result<Looked, Reason> {
        let capability = self.walk(place.capability, place.path.names())?;
        let object = self.good(&capability);
        if place.path.is_empty() {
            object?;
        }
        let is_directory = object.is_ok_and(|number| self.directories.contains_key(&number));
        Ok(Looked { capability, is_directory })
    }

    fn list(&self, place: &Place) -> Result<Answer, Reason> {
        let capability = self.walk(place.capability, place.path.names())?;
        let (directory, open) = self.open(&capability)?;
        let Directory { columns: count, rows } = &self.directories[&directory];
        let rows = rows.iter().map(|(name, (_, row))| Row {
            name: name.parse().unwrap(),
            capability: self.shown(directory, open, name),
            masks: masks(row),
        });
        let columns = columns(&["owner", "group", "other", "else"][..*count]);
        Ok(Answer::Rows { columns, rows: rows.collect(), more: false })
    }
}
