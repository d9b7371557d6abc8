//! The errors of commands and their exit statuses: 1 for a command that failed, 2 for bad usage or configuration, 3 for
//! no quorum or exclusion, 128 + N for signal N. The message says what to do.

use crate::output::{tell, visible, without_checks};
use std::fmt::Display;
use std::process::ExitCode;

/// Errors of the system that stop whatever meets them first, and what to say before its words.
const CAUSES: [(&str, &str); 3] = [
    (
        "(os error 24)",
        "too few open files are allowed: raise the limit (`ulimit -n 1024`, LimitNOFILE=1024 in a unit)",
    ),
    ("(os error 28)", "the disk is full: make room"),
    ("(os error 122)", "this user's quota of the disk is full: make room"),
];

/// An error that ends a command.
#[derive(Debug)]
pub(crate) struct Problem {
    status: u8,
    error: anyhow::Error,
}

impl Problem {
    /// The command failed: exit status 1.
    pub(crate) fn failed(message: impl Display) -> Problem {
        Problem { status: 1, error: anyhow::anyhow!("{message}") }
    }

    /// Flags, environment or settings file are invalid: exit status 2.
    pub(crate) fn usage(message: impl Display) -> Problem {
        Problem { status: 2, error: anyhow::anyhow!("{message}") }
    }

    /// Fails with exit status 2 if a group of this many members cannot have the resilience.
    pub(crate) fn beyond(resilience: u8, members: u64) -> Result<(), Problem> {
        let most = members.saturating_sub(1);
        match u64::from(resilience) > most {
            true => Err(Problem::usage(format!(
                "--resilience {resilience} is too high for {members} members: at most {most} of them can crash at once"
            ))),
            false => Ok(()),
        }
    }

    /// The group excluded this member, or has no quorum: exit status 3.
    pub(crate) fn not_primary(message: impl Display) -> Problem {
        Problem { status: 3, error: anyhow::anyhow!("{message}") }
    }

    /// A signal ended the command: exit status 128 + the signal's number, and no message.
    pub(crate) fn interrupted(signal: i32) -> Problem {
        Problem { status: u8::try_from(128 + signal).unwrap_or(u8::MAX), error: anyhow::anyhow!("") }
    }

    /// True if the error is of type `E`.
    pub(crate) fn is<E: std::error::Error + Send + Sync + 'static>(&self) -> bool {
        self.error.is::<E>()
    }

    /// Returns the error without the exit status.
    pub(crate) fn into_error(self) -> anyhow::Error {
        self.error
    }

    /// Prints the message and returns the exit status. A closed pipe on standard output is no failure: its reader wants
    /// no more output.
    pub(crate) fn report(self) -> ExitCode {
        if self.error.chain().any(is_broken_pipe) {
            return ExitCode::SUCCESS;
        }
        let message = with_cause(without_checks(&format!("{:#}", self.error)));
        if !message.is_empty() {
            // The message may quote a file or a name that another user wrote.
            let lines: Vec<_> = message.lines().map(visible).collect();
            tell(format_args!("{}", lines.join("\n")));
        }
        ExitCode::from(self.status)
    }
}

/// Puts the cause first, if it is one that the place of the error hides.
fn with_cause(message: String) -> String {
    let cause = CAUSES.iter().find(|(code, _)| message.contains(code));
    cause.map_or_else(|| message.clone(), |(_, words)| format!("{words}; {message}"))
}

fn is_broken_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

impl From<anyhow::Error> for Problem {
    fn from(error: anyhow::Error) -> Problem {
        Problem { status: 1, error }
    }
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Problem {
        Problem { status: 1, error: error.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_the_place_of_an_error_hides_comes_first() {
        let hidden = "multicast does not work: Too many open files (os error 24)";
        assert!(with_cause(hidden.into()).starts_with("too few open files are allowed"));
        assert!(with_cause("cannot write x (os error 28)".into()).starts_with("the disk is full"));
        assert_eq!(with_cause("not found (os error 2)".into()), "not found (os error 2)");
    }
}
