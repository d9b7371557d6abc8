//! `unisono keygen`: a key that only its owner can read.

use crate::arguments::Common;
use crate::output::Output;
use crate::problem::Problem;
use clap::Args;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use unisono::{Key, KeyError};

/// Write a new group key that only its owner can read
///
/// Everyone with the key is trusted: copy it to each member by a way you trust, such as scp.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono keygen group.key\n  unisono listen news --key group.key")]
pub(crate) struct Keygen {
    /// Where to write it; a file that is there is never overwritten
    file: PathBuf,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: Keygen, output: &Output) -> Result<(), Problem> {
    Key::generate()?.write_new(&command.file).map_err(advise)?;
    let file = command.file.display().to_string();
    output.say(format_args!("{file}: a new key; copy it to every member, and to nobody else"))?;
    output.object(&serde_json::json!({"command": "keygen", "file": file}))?;
    Ok(())
}

/// What to do about a file that cannot be written.
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
            "there is no room for {file}, and what is there is no key: remove it, make room and try again"
        )),
        _ => error.into(),
    }
}
