//! `unisono keygen`: writes a new key that only its owner can read.

use crate::arguments::Common;
use crate::output::Output;
use crate::problem::Problem;
use clap::Args;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use unisono::{Key, KeyError};

/// Write a new group key that only its owner can read
///
/// Every process with the key is trusted. Copy the file to each member's machine by a secure way, such as scp.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono keygen group.key\n  unisono listen news --key group.key")]
pub(crate) struct Keygen {
    /// File to write; an existing file is never overwritten
    file: PathBuf,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: Keygen, output: &Output) -> Result<(), Problem> {
    Key::generate()?.write_new(&command.file).map_err(advise)?;
    let file = command.file.display().to_string();
    output
        .say(format_args!("{file}: a new key; copy it to the machine of every member, and keep it secret"))?;
    output.object(&serde_json::json!({"command": "keygen", "file": file}))?;
    Ok(())
}

/// Turns an error of writing the file into one that says what to do.
fn advise(error: KeyError) -> Problem {
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
            "no space is left for {file}, which is incomplete: remove it, free some space and try again"
        )),
        _ => error.into(),
    }
}
