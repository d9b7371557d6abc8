//! `unisono dir backup` and `restore`.

use super::session::{At, Session};
use crate::arguments::Common;
use crate::output::{Output, quoted};
use crate::problem::Problem;
use crate::progress;
use crate::settings::Settings;
use clap::Args;
use serde_json::json;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use unisono_dir::RestoreError;

/// Save the whole service into one file, while it goes on
///
/// The file has all names and files at one instant, and everything that protects them: keep it as you keep a key. It takes
/// the root's capability, with all rights.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono dir backup monday.backup")]
pub(crate) struct Backup {
    /// The file, which is replaced if it exists
    file: PathBuf,

    #[command(flatten)]
    pub(crate) at: At,
}

pub(crate) fn backup(command: &Backup, settings: &Settings, output: &Output) -> Result<(), Problem> {
    if fs::symlink_metadata(&command.file).is_ok_and(|found| !found.is_file()) {
        return Err(Problem::usage(format!(
            "{} is not a regular file: name a file for the backup",
            quoted(&command.file.display().to_string())
        )));
    }
    let session = Session::begin(&command.at, settings)?;
    let mut beside = command.file.clone().into_os_string();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    let saved = save(&session, &beside, &command.file);
    if saved.is_err() {
        // It may not even have been created.
        let _ = fs::remove_file(&beside);
    }
    let saved = saved?;
    output.say(format_args!(
        "saved everything through command {} in {} bytes; `unisono dir restore {} --data DIR` makes a folder of it",
        saved.number,
        saved.bytes,
        quoted(&command.file.display().to_string())
    ))?;
    output.object(&json!({
        "command": "dir backup", "seqno": saved.number, "bytes": saved.bytes, "file": command.file.display().to_string()
    }))?;
    Ok(())
}

/// Saves beside the file, and then gives it the file's name.
fn save(session: &Session, beside: &Path, file: &Path) -> Result<unisono_dir::Saved, Problem> {
    let open = || {
        let opened = create_private(beside);
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot write {}: {error}", beside.display()))
        };
        opened.map(BufWriter::new).map_err(named)
    };
    let bar = progress::count("bytes saved");
    let saved = session.client.save(session.at, open, |here, _| bar.set_position(here))?;
    bar.finish_and_clear();
    File::open(beside)?.sync_all()?;
    fs::rename(beside, file)?;
    Ok(saved)
}

/// Creates a file that only this user may read. What is there goes first: another user may have made the file, or a link.
fn create_private(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Put a backup into an empty folder, in which a server then begins anew
///
/// Start that server first, as it was started before; then the others, each with an empty folder and --replace. The service
/// goes on with what the backup has, as another instance: folders of before are refused from then on.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono dir restore monday.backup --data /var/lib/unisono\n  \
                        unisono dir serve --id 1 --data /var/lib/unisono")]
pub(crate) struct Restore {
    /// The backup
    file: PathBuf,

    /// Folder for a server: empty, or not there yet
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn restore(command: &Restore, output: &Output) -> Result<(), Problem> {
    let backup = unisono_dir::restore(&command.file, &command.data)?;
    let data = quoted(&command.data.display().to_string());
    let (service, servers) = (backup.service(), backup.servers());
    output.say(format_args!(
        "checked and restored through command {}: start this server with `unisono dir serve --id ID --replicas {servers} \
         --service {} --data {data}` and with the flags of before (--key, --client-key), then the others with empty folders \
         and --replace",
        backup.number,
        quoted(service)
    ))?;
    output.object(
        &json!({"command": "dir restore", "seqno": backup.number, "service": service, "servers": servers}),
    )?;
    Ok(())
}

impl From<RestoreError> for Problem {
    fn from(error: RestoreError) -> Problem {
        match error {
            RestoreError::Write { .. } => Problem::failed(error),
            error => Problem::usage(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn secrets_are_not_written_into_what_another_user_made() {
        let folder = tempfile::tempdir().unwrap();
        let [path, elsewhere] = ["b.part", "elsewhere"].map(|name| folder.path().join(name));
        let holds_nothing = |path: &Path| fs::read(path).unwrap().is_empty();
        fs::write(&elsewhere, "").unwrap();
        for link in
            [|from: &Path, to: &Path| symlink(from, to), |from: &Path, to: &Path| fs::hard_link(from, to)]
        {
            let _ = fs::remove_file(&path);
            link(&elsewhere, &path).unwrap();
            create_private(&path).unwrap().write_all(b"secret").unwrap();
            assert!(holds_nothing(&elsewhere));
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        create_private(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
