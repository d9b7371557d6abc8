//! The bugs that can be planted: in the core, in the table of the directory, and in the servers that run it.

use std::fmt;
use std::str::FromStr;
use unisono_core::Planted as CoreBug;
use unisono_table::Planted as TableBug;

/// A rule that is broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Planted {
    /// A rule of the core.
    Core(CoreBug),
    /// A rule of the table of directories.
    Table(TableBug),
    /// A rule of the servers and clients of the directory, or of clients from outside.
    Service(ServiceBug),
}

/// A rule of servers and clients that is broken on purpose: of the directory, or of members that send for clients from
/// outside. The simulator drives them, so it breaks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServiceBug {
    /// Each server draws the secret of a new object, which is not that of the command.
    CheckDrawnByServer,
    /// A server lists rows in an order of its own.
    RowsInHashOrder,
    /// Half of a lookup set is answered from the state before the last command.
    LookupSetAtTwoInstants,
    /// A server answers a linearizable read at once, like a local one.
    LocalReadGivenAsLinearizable,
    /// A server whose group has lost its majority goes on answering reads.
    MinorityReads,
    /// A server that stops serving answers its watches as if nothing had changed since.
    WatchSkipsAtViewChange,
    /// A watch is resumed from the last change that it got, not from the one after it.
    WatchRepeatsOnResume,
    /// A server answers a watch from before the history as if it began where the history does.
    WatchEndsSilently,
    /// A watch takes the answers of a service that began anew for ones of the instance of its position.
    PositionWithoutInstance,
    /// A backup lacks what its server remembers of commands.
    MemoryNotInBackup,
    /// A backup is taken of a state that may be behind, and has the number of the present one.
    BackupBehindItsNumber,
    /// A server refuses a command before it is ordered that the order would take.
    RefusedThoughAllowed,
    /// A client from outside is known by its address: the next process there is taken for it.
    ClientKnownByAddress,
}

impl ServiceBug {
    const ALL: &'static [ServiceBug] = &[
        ServiceBug::CheckDrawnByServer,
        ServiceBug::RowsInHashOrder,
        ServiceBug::LookupSetAtTwoInstants,
        ServiceBug::LocalReadGivenAsLinearizable,
        ServiceBug::MinorityReads,
        ServiceBug::WatchSkipsAtViewChange,
        ServiceBug::WatchRepeatsOnResume,
        ServiceBug::WatchEndsSilently,
        ServiceBug::PositionWithoutInstance,
        ServiceBug::MemoryNotInBackup,
        ServiceBug::BackupBehindItsNumber,
        ServiceBug::RefusedThoughAllowed,
        ServiceBug::ClientKnownByAddress,
    ];
}

impl Planted {
    /// Returns all bugs: those of the core first.
    pub fn all() -> impl Iterator<Item = Planted> {
        let core = CoreBug::ALL.iter().copied().map(Planted::Core);
        let table = TableBug::ALL.iter().copied().map(Planted::Table);
        core.chain(table).chain(ServiceBug::ALL.iter().copied().map(Planted::Service))
    }

    /// Returns it if it is one of the core.
    pub(crate) fn of_core(self) -> Option<CoreBug> {
        match self {
            Planted::Core(bug) => Some(bug),
            _ => None,
        }
    }
}

impl From<CoreBug> for Planted {
    fn from(bug: CoreBug) -> Planted {
        Planted::Core(bug)
    }
}

/// Its name alone.
impl fmt::Debug for Planted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Planted::Core(bug) => bug.fmt(f),
            Planted::Table(bug) => bug.fmt(f),
            Planted::Service(bug) => bug.fmt(f),
        }
    }
}

impl FromStr for Planted {
    type Err = String;

    fn from_str(text: &str) -> Result<Planted, String> {
        Planted::all().find(|bug| format!("{bug:?}") == text).ok_or_else(|| {
            let names: Vec<String> = Planted::all().map(|bug| format!("{bug:?}")).collect();
            format!("the planted bugs are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bug_is_found_by_its_name() {
        let all: Vec<Planted> = Planted::all().collect();
        assert!(all.iter().all(|bug| format!("{bug:?}").parse() == Ok(*bug)));
        assert!("NoSuchBug".parse::<Planted>().is_err());
    }
}
