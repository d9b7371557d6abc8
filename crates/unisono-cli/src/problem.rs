//! What goes wrong, and the exit status that tells scripts: 1 what was asked for failed, 2 bad usage or
//! configuration, 3 no quorum, 128 and more a signal. The message says what to do.

use crate::output::{tell, visible};
use std::fmt::Display;
use std::process::ExitCode;

/// A command came to nothing.
#[derive(Debug)]
pub(crate) struct Problem {
    status: u8,
    error: anyhow::Error,
}

impl Problem {
    /// What was asked for failed: exit 1.
    pub(crate) fn failed(message: impl Display) -> Problem {
        Problem { status: 1, error: anyhow::anyhow!("{message}") }
    }

    /// Flags, environment or file make no sense: exit 2.
    pub(crate) fn usage(message: impl Display) -> Problem {
        Problem { status: 2, error: anyhow::anyhow!("{message}") }
    }

    /// More crashes at once than a group of so many members can survive: exit 2.
    pub(crate) fn beyond(resilience: u8, members: u64) -> Result<(), Problem> {
        let most = members.saturating_sub(1);
        match u64::from(resilience) > most {
            true => Err(Problem::usage(format!(
                "--resilience is {resilience}; of {members} members at most {most} can be lost at once"
            ))),
            false => Ok(()),
        }
    }

    /// The group goes on without this member, or cannot go on: exit 3.
    pub(crate) fn not_primary(message: impl Display) -> Problem {
        Problem { status: 3, error: anyhow::anyhow!("{message}") }
    }

    /// A signal ended it, as it ends processes that do not look: nothing is to be told.
    pub(crate) fn interrupted(signal: i32) -> Problem {
        Problem { status: u8::try_from(128 + signal).unwrap_or(u8::MAX), error: anyhow::anyhow!("") }
    }

    /// It is of this kind.
    pub(crate) fn is<E: std::error::Error + Send + Sync + 'static>(&self) -> bool {
        self.error.is::<E>()
    }

    /// What happened, without the status.
    pub(crate) fn into_error(self) -> anyhow::Error {
        self.error
    }

    /// Tells the person and gives the status for the script. Whoever stopped reading our output wants no more of
    /// it: that is no failure.
    pub(crate) fn report(self) -> ExitCode {
        if self.error.chain().any(is_broken_pipe) {
            return ExitCode::SUCCESS;
        }
        let message = format!("{:#}", self.error);
        if !message.is_empty() {
            // It may quote a file, a name or an address that somebody else wrote.
            let lines: Vec<_> = message.lines().map(visible).collect();
            tell(format_args!("{}", lines.join("\n")));
        }
        ExitCode::from(self.status)
    }
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
