//! A lab for a test: hosts of its own on this machine. Labs need root and a few tools.

use super::{group, json, unisono};
use std::io::Write;

/// A lab of one test, removed at its end.
pub(crate) struct Lab {
    pub(crate) name: String,
}

impl Lab {
    /// Sets up a lab. None where labs are impossible; prints that past the test harness.
    pub(crate) fn up(more: &[&str]) -> Option<Lab> {
        let name = group("test");
        let output = unisono([&["lab", "up", "--name", &name, "--json"], more].concat());
        let words = String::from_utf8_lossy(&output.stderr);
        if let Some(reason) = words.strip_prefix("unisono: a lab needs") {
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            let _ = write!(std::io::stderr(), "skipped: a lab needs{reason}");
            return None;
        }
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(json(&output)["lab"], name.as_str());
        Some(Lab { name })
    }

    /// Returns arguments that run a command on a host.
    pub(crate) fn on<'a>(&'a self, host: &'a str, command: &[&'a str]) -> Vec<&'a str> {
        [&["lab", "exec", host, "--name", &self.name, "--"], command].concat()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        unisono(["lab", "down", "--name", &self.name]);
    }
}
