//! What a store asks of a folder.

use alloc::string::String;
use alloc::vec::Vec;
use thiserror::Error;

/// Where a store keeps its bytes: a folder with few files. Its methods block. The crate `unisono` has it on a real folder,
/// the simulator on simulated disks.
pub trait Files {
    /// Returns the names of all files.
    ///
    /// # Errors
    /// The disk fails.
    fn list(&self) -> Result<Vec<String>, FileError>;

    /// Returns the whole content of a file.
    ///
    /// # Errors
    /// The file does not exist ([`FileErrorKind::NotFound`]), or the disk fails.
    fn read(&self, name: &str) -> Result<Vec<u8>, FileError>;

    /// Returns the first `most` bytes of a file, or all if it has fewer, and its length.
    ///
    /// # Errors
    /// The file does not exist ([`FileErrorKind::NotFound`]), or the disk fails.
    fn read_first(&self, name: &str, most: u64) -> Result<(Vec<u8>, u64), FileError>;

    /// Writes bytes at an offset; creates the file if it does not exist. They are durable only after
    /// [`sync`](Files::sync).
    ///
    /// # Errors
    /// The disk is full or fails.
    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<(), FileError>;

    /// Cuts a file off after `length` bytes. That is durable only after [`sync`](Files::sync).
    ///
    /// # Errors
    /// The file does not exist, or the disk fails.
    fn truncate(&mut self, name: &str, length: u64) -> Result<(), FileError>;

    /// Makes the content of a file, and its name in the folder, durable. After a failure it is not known what is durable.
    ///
    /// # Errors
    /// The file does not exist, or the disk fails.
    fn sync(&mut self, name: &str) -> Result<(), FileError>;

    /// Gives a file a name that no other has. A crash before the next [`sync`](Files::sync) of the new name may leave it with
    /// the old one.
    ///
    /// # Errors
    /// The file does not exist, or the disk fails.
    fn rename(&mut self, from: &str, to: &str) -> Result<(), FileError>;

    /// Removes a file. A crash soon after may bring it back.
    ///
    /// # Errors
    /// The file does not exist, or the disk fails.
    fn remove(&mut self, name: &str) -> Result<(), FileError>;

    /// Notes that the store has done some work without an operation on a file, such as hashing a part of a snapshot.
    fn gets_on(&self) {}
}

impl<F: Files> Files for &mut F {
    fn list(&self) -> Result<Vec<String>, FileError> {
        (**self).list()
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
        (**self).read(name)
    }

    fn read_first(&self, name: &str, most: u64) -> Result<(Vec<u8>, u64), FileError> {
        (**self).read_first(name, most)
    }

    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<(), FileError> {
        (**self).write(name, at, bytes)
    }

    fn truncate(&mut self, name: &str, length: u64) -> Result<(), FileError> {
        (**self).truncate(name, length)
    }

    fn sync(&mut self, name: &str) -> Result<(), FileError> {
        (**self).sync(name)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), FileError> {
        (**self).rename(from, to)
    }

    fn remove(&mut self, name: &str) -> Result<(), FileError> {
        (**self).remove(name)
    }

    fn gets_on(&self) {
        (**self).gets_on();
    }
}

/// An operation on a file failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct FileError {
    /// What kind of failure it is.
    pub what: FileErrorKind,
    /// A sentence for the operator: the operation, the file, the reason.
    pub text: String,
}

/// Kinds of failures of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileErrorKind {
    /// The file does not exist.
    NotFound,
    /// The disk is full.
    Full,
    /// This process has no right to do it.
    Denied,
    /// Another process uses the folder.
    Locked,
    /// The path is not a folder.
    NotFolder,
    /// In place of a file, the folder has a symbolic link or something else, or the folder belongs to another user, or others
    /// may write to it.
    NotOwnFile,
    /// The disk fails, or another reason.
    Failed,
}
