//! Runs the system's commands for namespaces, links and packet filters.

use anyhow::Context;
use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, Stdio};

/// Folders of these commands, which the PATH of a user may lack.
const SYSTEM_FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Returns the Debian package that contains a command.
fn package(tool: &str) -> &'static str {
    match tool {
        "iptables" => "iptables",
        _ => "iproute2",
    }
}

/// Returns a message about missing commands, with what to type; none if all are installed.
pub(super) fn missing(tools: &[&str]) -> Option<String> {
    let folders: Vec<_> = env::split_paths(&path()).collect();
    let lacks = |tool: &&&str| !folders.iter().any(|folder| folder.join(tool).is_file());
    let missing: Vec<&str> = tools.iter().filter(lacks).copied().collect();
    if missing.is_empty() {
        return None;
    }
    let mut packages: Vec<&str> = missing.iter().map(|tool| package(tool)).collect();
    packages.dedup();
    Some(format!("a lab needs {}; on Debian: apt install {}", missing.join(" and "), packages.join(" ")))
}

/// Runs a command with this standard input. Returns its standard output.
pub(super) fn run(tool: &str, arguments: &[&str], input: &str) -> anyhow::Result<String> {
    let mut child = Command::new(tool)
        .args(arguments)
        .env("PATH", path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {tool}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that fails early closes its input; its standard error says why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(
        output.status.success(),
        "{tool} {} failed: {}",
        arguments.join(" "),
        words.lines().map(str::trim).collect::<Vec<_>>().join(" / ")
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn path() -> OsString {
    let given = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&given).chain(SYSTEM_FOLDERS.map(Into::into));
    env::join_paths(folders).unwrap_or(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_what_to_type() {
        assert_eq!(missing(&["sh"]), None);
        let words = missing(&["sh", "no-such-tool"]).unwrap();
        assert_eq!(words, "a lab needs no-such-tool; on Debian: apt install iproute2");
    }

    #[test]
    fn a_tool_that_fails_is_quoted() {
        assert_eq!(run("sh", &["-c", "cat"], "in\n").unwrap(), "in\n");
        let error = run("sh", &["-c", "echo why >&2; exit 3"], "").unwrap_err().to_string();
        assert!(error.ends_with("failed: why"), "{error}");
    }
}
