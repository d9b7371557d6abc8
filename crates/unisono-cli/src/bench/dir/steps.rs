//! What a client does in a measured operation: requests one after the other.

use serde::{Deserialize, Serialize};

/// A measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// One lookup of a row, by its name.
    Lookup,
    /// A row is appended and deleted.
    AppendDelete,
    /// A file is created and entered, looked up, read and deleted.
    TemporaryFile,
    /// 98 lookups, an append and a delete: what the paper counted in use. Each counts as an operation.
    Mixed,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Looks up one of the rows that are always there.
    Lookup,
    /// Adds a row.
    Append,
    /// Deletes that row.
    DeleteRow,
    /// Creates a file and enters it.
    Create,
    /// Creates a file at the file server.
    CreateApart,
    /// Enters that file.
    Enter,
    /// Looks the file up.
    Find,
    /// Reads the file that was found.
    Read,
    /// Deletes the file and its row.
    DeleteFile,
}

/// What an operation is measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Our directory service.
    Directory,
    /// The service of two servers by RPC, beside a file server.
    Pair,
    /// The file system.
    Files,
}

const MIXED: [Step; 100] = {
    let mut steps = [Step::Lookup; 100];
    steps[49] = Step::Append;
    steps[99] = Step::DeleteRow;
    steps
};

impl Work {
    /// Returns the requests.
    pub(super) fn steps(self, kind: Kind) -> &'static [Step] {
        match (self, kind) {
            (Work::Lookup, _) => &[Step::Lookup],
            (Work::AppendDelete, _) => &[Step::Append, Step::DeleteRow],
            // Its directory and its files are two services. As in the paper the file itself stays.
            (Work::TemporaryFile, Kind::Pair) => {
                &[Step::CreateApart, Step::Enter, Step::Find, Step::Read, Step::DeleteRow]
            }
            (Work::TemporaryFile, _) => &[Step::Create, Step::Find, Step::Read, Step::DeleteFile],
            (Work::Mixed, _) => &MIXED,
        }
    }

    /// True if each request counts as an operation.
    pub(super) fn counts_requests(self) -> bool {
        self == Work::Mixed
    }

    /// Returns the number of calls and of commands of an operation of our directory.
    pub(super) fn costs(self) -> [f64; 2] {
        let steps = self.steps(Kind::Directory);
        let each = if self.counts_requests() { steps.len() as f64 } else { 1.0 };
        let commands = steps.iter().filter(|step| step.is_command()).count();
        [steps.len() as f64 / each, commands as f64 / each]
    }
}

impl Step {
    fn is_command(self) -> bool {
        !matches!(self, Step::Lookup | Step::Find | Step::Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_leaves_nothing_behind() {
        for work in [Work::Lookup, Work::AppendDelete, Work::TemporaryFile, Work::Mixed] {
            for kind in [Kind::Directory, Kind::Pair, Kind::Files] {
                let count =
                    |wanted: &[Step]| work.steps(kind).iter().filter(|step| wanted.contains(step)).count();
                let entered = count(&[Step::Append, Step::Create, Step::Enter]);
                assert_eq!(entered, count(&[Step::DeleteRow, Step::DeleteFile]), "{work:?} {kind:?}");
            }
        }
        assert_eq!(Work::AppendDelete.costs(), [2.0, 2.0]);
        assert_eq!(Work::TemporaryFile.costs(), [4.0, 2.0]);
        assert_eq!(Work::Mixed.costs(), [1.0, 0.02]);
    }
}
