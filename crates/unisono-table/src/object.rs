//! Objects: directories with their rows, and files.

use crate::capability::{Capability, Check, Rights};
use crate::name::Name;
use crate::request::Masks;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;

/// An object, under its number.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// Number of the command that created it.
    pub(crate) created: u64,
    pub(crate) secret: Check,
    pub(crate) body: Body,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Directory(Directory),
    File(Bytes),
}

impl Object {
    pub(crate) fn directory(&self) -> Option<&Directory> {
        match &self.body {
            Body::Directory(directory) => Some(directory),
            Body::File(_) => None,
        }
    }

    pub(crate) fn file(&self) -> Option<&Bytes> {
        match &self.body {
            Body::File(content) => Some(content),
            Body::Directory(_) => None,
        }
    }
}

/// A table of rows by name, with 1 to 4 columns.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    pub(crate) columns: Vec<Name>,
    pub(crate) rows: BTreeMap<Name, StoredRow>,
    /// Number of the last command that may have changed a row. Not part of the state: it saves a search for changes.
    pub(crate) changed: u64,
}

/// A row: a capability, and a mask for each column.
#[derive(Clone, Debug)]
pub(crate) struct StoredRow {
    pub(crate) capability: Capability,
    pub(crate) masks: Masks,
}

impl Directory {
    pub(crate) fn new(columns: Vec<Name>) -> Directory {
        Directory { columns, rows: BTreeMap::new(), changed: 0 }
    }

    /// Returns the columns that a capability with these rights opens here.
    pub(crate) fn opened_by(&self, rights: Rights) -> Rights {
        let existing = Rights((1 << self.columns.len()) - 1);
        rights.and(existing)
    }

    /// Returns the mask of a row under these open columns: what at least one of them lets through.
    pub(crate) fn mask(row: &StoredRow, open: Rights) -> Rights {
        let columns = row.masks.as_slice().iter().enumerate();
        columns
            .filter(|(column, _)| open.include(Rights(1 << column)))
            .fold(Rights::NONE, |all, (_, mask)| all.or(*mask))
    }

    /// Returns the masks that a row gets by default: `ff,02,04,08` for a directory, of which each column opens itself, and
    /// `ff,02,02,02` for anything else.
    pub(crate) fn default_masks(&self, of_directory: bool) -> Option<Masks> {
        let mask = |column: usize| match (column, of_directory) {
            (0, _) => Rights::ALL,
            (_, true) => Rights(1 << column),
            (_, false) => Rights::READ,
        };
        let masks: Vec<Rights> = (0..self.columns.len()).map(mask).collect();
        Masks::new(&masks)
    }
}
