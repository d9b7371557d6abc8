//! Members read a key file again when it changed.
//!
//! A thread looks at the file once a second, as long as the key is in use. A file that cannot be read or is incomplete
//! changes nothing: it may be about to be written. It is read again at the next look.

use super::{Keyring, load_secrets};
use crate::log;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::Duration;

/// Interval between two looks at the file.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Whether the file of a key is followed.
#[derive(Default)]
pub(super) struct Rereading(OnceLock<()>);

/// Follows the file of this key from now on, if it has one.
pub(super) fn begin(keyring: &Arc<Keyring>) {
    let Some(file) = &keyring.file else { return };
    keyring.rereading.0.get_or_init(|| {
        let (keyring, file) = (Arc::downgrade(keyring), file.clone());
        let looks = thread::Builder::new().name("unisono-key".into()).stack_size(128 << 10);
        // Without the thread the key stays as it is.
        if let Err(error) = looks.spawn(move || look(&keyring, &file)) {
            log::key_not_followed(&error.to_string());
        }
    });
}

fn look(keyring: &Weak<Keyring>, file: &Path) {
    // The file may have changed since the key was loaded.
    let mut follower = Follower::default();
    while let Some(keyring) = keyring.upgrade() {
        follower.look(&keyring, file);
        drop(keyring);
        thread::sleep(READ_AGAIN_AFTER);
    }
}

/// What is known of a file.
#[derive(Default)]
struct Follower {
    /// State of the file when its keys were last read.
    read: Option<State>,
    /// State of the file when reading it last failed.
    failed: Option<State>,
}

/// What changes whenever a file does.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    place: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl State {
    fn of(file: &Path) -> io::Result<State> {
        let metadata = fs::metadata(file)?;
        Ok(State {
            place: (metadata.dev(), metadata.ino()),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

impl Follower {
    /// Reads the file again if it changed.
    fn look(&mut self, keyring: &Keyring, file: &Path) {
        // The file may be absent for a moment. What is read below is never older than this state.
        let Ok(state) = State::of(file) else { return };
        if self.read == Some(state) {
            return;
        }
        match load_secrets(file) {
            Ok(secrets) => {
                self.read = Some(state);
                if keyring.change(secrets) {
                    log::key_changed(file);
                }
            }
            Err(error) => {
                if self.failed.replace(state) != Some(state) {
                    log::key_not_reread(&error.to_string());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    #[test]
    fn a_file_that_changes_is_read_again_and_one_that_is_torn_or_gone_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        Key::generate().unwrap().write_new(&file).unwrap();
        let key = Key::load(&file).unwrap();
        let (keyring, mut follower) = (&key.0, Follower::default());
        follower.look(keyring, &file);
        assert_eq!((keyring.changes(), keyring.secrets().len()), (0, 1));
        Key::add_next(&file).unwrap();
        follower.look(keyring, &file);
        assert_eq!((keyring.changes(), keyring.secrets().len()), (1, 2));
        // As `cp` writes it: in place, and for a moment not to its end.
        let whole = fs::read_to_string(&file).unwrap();
        fs::write(&file, &whole[..100]).unwrap();
        follower.look(keyring, &file);
        fs::remove_file(&file).unwrap();
        follower.look(keyring, &file);
        assert_eq!(keyring.changes(), 1);
        Key::generate().unwrap().write_new(&file).unwrap();
        follower.look(keyring, &file);
        assert_eq!((keyring.changes(), keyring.secrets().len()), (2, 1));
        assert!(Key::load(&file).unwrap().is_like(&key));
    }

    #[test]
    fn the_thread_ends_with_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        Key::generate().unwrap().write_new(&file).unwrap();
        let key = Key::load(&file).unwrap();
        let weak = Arc::downgrade(&key.0);
        let looks = {
            let (weak, file) = (weak.clone(), file.clone());
            thread::spawn(move || look(&weak, &file))
        };
        drop(key);
        looks.join().unwrap();
        assert!(weak.upgrade().is_none());
    }
}
