//! `unisono keygen`: writes a new key that only its owner can read.

use crate::arguments::Common;
use crate::output::Output;
use crate::problem::Problem;
use crate::signals;
use clap::Args;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use unisono::{Key, KeyError};

/// Write a new group key that only its owner can read, or change the key of a running group
///
/// Every process with the key is trusted. Copy the file to each member's machine by a secure way, such as scp.
///
/// To change the key of a running group: add the next key with --next and copy the file to all members, who read it
/// again within a second or two. When all have it, drop the first key with --retire and copy the file once more.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  unisono keygen group.key\n  unisono listen news --key group.key\n  \
                  unisono keygen --next group.key      then copy it to all members\n  \
                  unisono keygen --retire group.key    then copy it to all members again")]
pub(crate) struct Keygen {
    /// File to write; an existing file is never overwritten
    file: PathBuf,

    /// Add a second key to FILE: both open, the first still seals
    #[arg(long, conflicts_with = "retire")]
    next: bool,

    /// Drop the first of the two keys in FILE: the second seals from now on
    #[arg(long)]
    retire: bool,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: Keygen, output: &Output) -> Result<(), Problem> {
    signals::leave_no_core();
    let path = &command.file;
    let (written, said, keys) = match (command.next, command.retire) {
        (true, _) => (
            Key::add_next(path),
            "has two keys now; copy it to the machine of every member, then type `unisono keygen --retire FILE`",
            2,
        ),
        (_, true) => (
            Key::retire(path),
            "has the next key only; copy it to the machine of every member within five minutes",
            1,
        ),
        _ => (
            Key::generate()?.write_new(path),
            "a new key; copy it to the machine of every member, and keep it secret",
            1,
        ),
    };
    written.map_err(advise)?;
    let file = path.display().to_string();
    output.say(format_args!("{file}: {said}"))?;
    output.object(&serde_json::json!({"command": "keygen", "file": file, "keys": keys}))?;
    Ok(())
}

/// Turns an error of writing a secret's file into one that says what to do.
pub(crate) fn advise(error: KeyError) -> Problem {
    let KeyError::File { path, cause } = &error else { return error.into() };
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let is_folder = folder.is_dir();
    let (file, folder) = (path.display(), folder.display());
    match cause.kind() {
        ErrorKind::NotFound if is_folder => {
            Problem::usage(format!("{folder} takes no new files: name a file in a folder of yours"))
        }
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            Problem::usage(format!("no such folder: {folder}; name a file in a folder that exists"))
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Problem::usage(format!("{folder} cannot be written ({cause}): name a file in a folder of yours"))
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Problem::failed(format!(
            "no space is left for {file}, which was not written: free some space and try again"
        )),
        _ => error.into(),
    }
}
