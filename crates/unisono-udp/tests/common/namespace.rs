//! Starts a test program again in a network namespace of its own, for tests that need links other than the machine's.
//!
//! The tests of unisono have a symbolic link to this file, which `cargo package` follows.

use std::io::Write;
use std::process::Command;

/// Environment variable of a program that was started again.
const INSIDE: &str = "UNISONO_TEST_NAMESPACE";

/// Runs a test, the only one of its program, in a network namespace that these shell commands have set up. Says so if a
/// namespace cannot be set up here: the test is skipped then.
pub(crate) fn run_inside(commands: &str, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    let script = format!("{commands} && exec \"$0\" --nocapture");
    let myself = std::env::current_exe().unwrap();
    let inside =
        Command::new("unshare").args(["-rn", "sh", "-c", &script]).arg(&myself).env(INSIDE, "1").output();
    match inside {
        Ok(output) if String::from_utf8_lossy(&output.stdout).contains("1 test") => {
            assert!(output.status.success(), "{output:?}");
        }
        other => {
            let _ = writeln!(std::io::stderr(), "skipped: cannot set up a network namespace here: {other:?}");
        }
    }
}
