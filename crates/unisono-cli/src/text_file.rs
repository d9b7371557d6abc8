//! Reads text files that the user names. A device, a pipe or a file that is too long is refused, so that reading always
//! ends.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Returns the text of a regular file of at most `bytes_max` bytes.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<String> {
    // Checked first, because opening a pipe may wait for ever.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut text = String::new();
    File::open(path)?.take(bytes_max + 1).read_to_string(&mut text)?;
    match text.len() as u64 <= bytes_max {
        true => Ok(text),
        false => Err(io::Error::other(format!("it has more than {} KiB", bytes_max >> 10))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_up_to_their_bound_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        fs::write(&path, "x".repeat(1024)).unwrap();
        assert_eq!(read(&path, 1024).unwrap().len(), 1024);
        assert!(read(&path, 1023).is_err());
        for other in [Path::new("/dev/zero"), folder.path(), &folder.path().join("absent")] {
            assert!(read(other, 1024).is_err(), "{}", other.display());
        }
    }
}
