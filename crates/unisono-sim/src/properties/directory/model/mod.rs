//! What a directory does, written anew from its page in plain maps, so that an error of the table shows. Only the types of
//! requests and replies, and their bytes, are those of the table.

mod commands;
mod queries;

use crate::directory::limits;
use std::collections::BTreeMap;
use std::rc::Rc;
use unisono_table::{Capability, Check, Command, Event, Masks, Name, Place, Reason, Request, Rights};

/// Number of the root directory.
const ROOT: u64 = 1;
/// Second half of the key of a restricted check.
const RESTRICTED: &[u8; 16] = b"unisono check v1";

/// All objects of a service. Objects are shared between the states before and after a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Model {
    port: u128,
    /// Number of commands so far.
    pub(super) number: u64,
    /// Number of the object that was created last.
    last_object: u64,
    objects: BTreeMap<u64, Rc<Object>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Object {
    /// Number of the command that created it.
    created: u64,
    secret: u128,
    body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Body {
    Directory { columns: Vec<Name>, rows: BTreeMap<Name, Row> },
    File(bytes::Bytes),
}

/// A row: a capability as numbers, and a mask for each column.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Row {
    cap: Cap,
    masks: Vec<u8>,
}

/// A capability as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Cap {
    port: u128,
    object: u64,
    rights: u8,
    check: u128,
}

/// A change of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) directory: u64,
    pub(super) event: Event,
    pub(super) name: Name,
}

/// A directory that a capability opens: its number, the rights of the capability, and the open columns as bits.
#[derive(Clone, Copy)]
struct Open {
    directory: u64,
    rights: u8,
    columns: u8,
}

impl From<&Capability> for Cap {
    fn from(capability: &Capability) -> Cap {
        let Capability { port, object, rights, check } = capability;
        Cap { port: port.0, object: object.0, rights: rights.0, check: check.to_bits() }
    }
}

impl Cap {
    fn capability(self) -> Capability {
        Capability {
            port: unisono_table::Port(self.port),
            object: unisono_table::ObjectNumber(self.object),
            rights: Rights(self.rights),
            check: Check::from_bits(self.check),
        }
    }

    /// Returns it with these rights, as the holder of the object's secret makes it.
    fn with(self, rights: u8, secret: u128) -> Cap {
        let check = match rights {
            u8::MAX => secret,
            _ => {
                let mut key = [0; 32];
                key[..16].copy_from_slice(&secret.to_be_bytes());
                key[16..].copy_from_slice(RESTRICTED);
                let fields = [&self.port.to_be_bytes()[..], &self.object.to_be_bytes(), &[rights]].concat();
                let hash = blake3::keyed_hash(&key, &fields);
                u128::from_be_bytes(*hash.as_bytes().first_chunk().unwrap_or(&[0; 16]))
            }
        };
        Cap { rights, check, ..self }
    }
}

impl Object {
    fn rows(&self) -> Option<&BTreeMap<Name, Row>> {
        match &self.body {
            Body::Directory { rows, .. } => Some(rows),
            Body::File(_) => None,
        }
    }

    fn file(&self) -> Option<&bytes::Bytes> {
        match &self.body {
            Body::File(content) => Some(content),
            Body::Directory { .. } => None,
        }
    }
}

impl Model {
    // --- capabilities ---

    /// Returns the object of a capability that is good.
    fn good(&self, cap: &Cap) -> Result<&Object, Reason> {
        let object = self.objects.get(&cap.object).ok_or(Reason::NotFound)?;
        let is_good = cap.port == self.port && cap.with(cap.rights, object.secret) == *cap;
        if is_good { Ok(object) } else { Err(Reason::NotFound) }
    }

    /// True if this capability is good.
    pub(super) fn is_good(&self, capability: &Capability) -> bool {
        self.good(&capability.into()).is_ok()
    }

    /// True if there is an object of this number.
    pub(super) fn has(&self, capability: &Capability) -> bool {
        self.objects.contains_key(&capability.object.0)
    }

    fn open(&self, cap: &Cap) -> Result<Open, Reason> {
        match &self.good(cap)?.body {
            Body::File(_) => Err(Reason::NotADirectory),
            Body::Directory { columns, .. } => {
                let columns = cap.rights & ((1 << columns.len()) - 1) as u8;
                let open = Open { directory: cap.object, rights: cap.rights, columns };
                if columns == 0 { Err(Reason::Denied) } else { Ok(open) }
            }
        }
    }

    fn rows(&self, directory: u64) -> &BTreeMap<Name, Row> {
        static NONE: BTreeMap<Name, Row> = BTreeMap::new();
        self.objects.get(&directory).and_then(|object| object.rows()).unwrap_or(&NONE)
    }

    fn row(&self, open: Open, name: &Name) -> Result<&Row, Reason> {
        self.rows(open.directory).get(name).ok_or(Reason::NotFound)
    }

    /// Returns what a row shows through the open columns.
    fn show(&self, open: Open, row: &Row) -> Result<Cap, Reason> {
        let opened = row.masks.iter().enumerate().filter(|(column, _)| open.columns & 1 << column != 0);
        let rights = row.cap.rights & opened.fold(0, |all, (_, mask)| all | mask);
        match row.cap {
            _ if rights == 0 => Err(Reason::Denied),
            cap if cap.rights == rights => Ok(cap),
            cap if cap.rights == u8::MAX => Ok(cap.with(rights, cap.check)),
            cap if cap.port != self.port => Err(Reason::Denied),
            cap => Ok(cap.with(rights, self.good(&cap)?.secret)),
        }
    }

    fn walk(&self, capability: &Capability, names: &[Name]) -> Result<Cap, Reason> {
        let mut here = Cap::from(capability);
        for (index, name) in names.iter().enumerate() {
            if index > 0 && here.port != self.port {
                return Err(Reason::NotADirectory);
            }
            let open = self.open(&here)?;
            here = self.show(open, self.row(open, name)?)?;
        }
        Ok(here)
    }

    fn at(&self, place: &Place) -> Result<Cap, Reason> {
        self.walk(&place.capability, place.path.names())
    }

    fn require_owner(&self, owner: &Capability) -> Result<(), Reason> {
        self.good(&owner.into())?;
        let is_owner = owner.object.0 == ROOT && owner.rights == Rights::ALL;
        if is_owner { Ok(()) } else { Err(Reason::Denied) }
    }

    // --- amounts ---

    fn directories(&self) -> u64 {
        self.objects.values().filter(|object| object.rows().is_some()).count() as u64
    }

    fn row_count(&self) -> u64 {
        self.objects.values().filter_map(|object| object.rows()).map(|rows| rows.len() as u64).sum()
    }

    fn files(&self) -> impl Iterator<Item = &bytes::Bytes> {
        self.objects.values().filter_map(|object| object.file())
    }

    /// Returns the objects that no path reaches.
    fn unreachable(&self) -> Vec<u64> {
        let mut reached = vec![ROOT];
        let mut next = 0;
        while let Some(directory) = reached.get(next).copied() {
            next += 1;
            for row in self.rows(directory).values() {
                if self.good(&row.cap).is_ok() && !reached.contains(&row.cap.object) {
                    reached.push(row.cap.object);
                }
            }
        }
        self.objects.keys().copied().filter(|number| !reached.contains(number)).collect()
    }
}

/// Returns the request with these bytes if it is a command.
pub(super) fn command_in(request: &bytes::Bytes) -> Option<Command> {
    match Request::decode(request) {
        Some(Request::Command(command)) => Some(command),
        _ => None,
    }
}

fn masks_of(masks: &Masks) -> Vec<u8> {
    masks.as_slice().iter().map(|mask| mask.0).collect()
}
