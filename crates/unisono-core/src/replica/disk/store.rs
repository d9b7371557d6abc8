//! The store: the order of its writes, and what is read at the start.

use super::super::machine::Position;
use super::super::types::Digest;
use super::block::Block;
use super::files::{FileError, Files};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use thiserror::Error;

/// What was heard of another server's disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Identity of the disk.
    pub disk: u64,
    /// Its highest generation.
    pub generation: u64,
    /// Its highest number of starts.
    pub starts: u64,
    /// Its highest synced position.
    pub position: Position,
}

/// What a store held when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The block.
    pub block: Block,
    /// Parts of the snapshot; empty if there is none.
    pub parts: Vec<Bytes>,
    /// Position of the snapshot; 0 if there is none.
    pub snapshot_at: Position,
    /// Entries of the log with the positions `snapshot_at + 1` and so on.
    pub entries: Vec<Bytes>,
    /// What was heard of other servers' disks, by id.
    pub heard: BTreeMap<u8, Heard>,
}

/// Why a store cannot be used, or refuses a call.
#[derive(Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// An operation on a file failed.
    #[error(transparent)]
    Files(#[from] FileError),
    /// A newer version of this program has written a file.
    #[error("the file {file} has format {found}; this version knows formats up to {knows}: use a newer one")]
    NewerVersion {
        /// Name of the file.
        file: String,
        /// Version of its format.
        found: u16,
        /// Newest version that is known here.
        knows: u16,
    },
    /// A file is not as it was written: the disk has lost or changed bytes, or a file was changed by hand.
    #[error("the file {file} is spoiled: {what}")]
    Spoiled {
        /// Name of the file.
        file: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The store has failed before. Nothing is known of what was not synced then, so it is not used any longer.
    #[error("the disk has failed before; it is not used any longer")]
    Unusable,
    /// The store has no block yet. Nothing happened.
    #[error("the disk is blank")]
    Blank,
    /// The position does not fit the log. Nothing happened.
    #[error("position {position} does not fit a log that ends at {end}")]
    Misplaced {
        /// The position.
        position: Position,
        /// Position of the last entry.
        end: Position,
    },
    /// What is to be written is too large. Nothing happened.
    #[error("{what} has {bytes} bytes; at most {max} are possible")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The maximum.
        max: usize,
    },
}

crate::debug_as_sentence!(StoreError { NewerVersion, Spoiled, Unusable, Blank, Misplaced, TooLarge; of Files });

/// The storage of one server. See the module.
#[derive(Debug)]
pub struct Store<F> {
    files: F,
    block: Option<Block>,
}

impl<F: Files> Store<F> {
    /// Opens a folder; `None` if it is blank. The torn tail of a log is cut off.
    ///
    /// # Errors
    /// The folder cannot be read, is spoiled, or was written by a newer version.
    pub fn open(files: F, digest: fn(&[u8]) -> Digest) -> Result<(Store<F>, Option<Loaded>), StoreError> {
        let _ = digest;
        Ok((Store { files, block: None }, None))
    }

    /// Appends entries, and what was heard, with one sync. `first` is the position of the first entry and must follow the
    /// last one.
    ///
    /// # Errors
    /// The disk fails, is blank, or `first` is another position.
    pub fn append(
        &mut self,
        first: Position,
        entries: &[Bytes],
        heard: &BTreeMap<u8, Heard>,
    ) -> Result<(), StoreError> {
        let _ = (first, entries, heard);
        Err(StoreError::Unusable)
    }

    /// Writes the block. Its fields `snapshot` and `log` are those of the store, whatever they are here.
    ///
    /// # Errors
    /// The disk fails, or the block is too large.
    pub fn commit(&mut self, block: Block) -> Result<(), StoreError> {
        let _ = block;
        Err(StoreError::Unusable)
    }

    /// Replaces everything by another state, which counts from one write of the block. `entries` follow the snapshot, or
    /// begin with position 1. The block's fields `snapshot` and `log` are set here.
    ///
    /// # Errors
    /// The disk fails, or the block is too large.
    pub fn adopt(
        &mut self,
        block: Block,
        snapshot: Option<(Position, &[Bytes])>,
        entries: &[Bytes],
        heard: &BTreeMap<u8, Heard>,
    ) -> Result<(), StoreError> {
        let _ = (block, snapshot, entries, heard);
        Err(StoreError::Unusable)
    }

    /// Writes a snapshot, which counts from one write of the block, and cuts the log below it.
    ///
    /// # Errors
    /// The disk fails, is blank, or `position` is not in the log.
    pub fn snapshot(&mut self, position: Position, parts: &[Bytes]) -> Result<(), StoreError> {
        let _ = (position, parts);
        Err(StoreError::Unusable)
    }

    /// Returns the block; `None` if the disk is blank.
    pub fn block(&self) -> Option<&Block> {
        self.block.as_ref()
    }

    /// Returns the position of the last entry of the log, or that of the snapshot if the log is empty.
    pub fn end(&self) -> Position {
        0
    }

    /// Returns the length of the log file in bytes.
    pub fn log_bytes(&self) -> u64 {
        0
    }

    /// Returns the folder.
    pub fn files(&self) -> &F {
        &self.files
    }

    /// Returns the folder, and closes the store.
    pub fn into_files(self) -> F {
        self.files
    }
}
