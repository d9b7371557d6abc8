//! Running the command from a test.

use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the command to its end.
pub(crate) fn unisono(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    unisono_in(Path::new("."), arguments)
}

/// Runs the command in a folder to its end.
pub(crate) fn unisono_in(folder: &Path, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_unisono")).current_dir(folder).args(arguments).output().unwrap()
}

/// The last line of what it printed, as an object.
pub(crate) fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("no object at the end of {output:?}: {error}"))
}
