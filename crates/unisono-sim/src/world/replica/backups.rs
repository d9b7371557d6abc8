//! Backups of a directory: the state of a server, taken after a barrier, so that it has everything that was answered before.

use super::context::Context;
use super::server::Server;
use super::{Backup, ReplicaSide};
use crate::bugs::ServiceBug;
use crate::record::DirectoryRecord;
use crate::world::World;
use bytes::Bytes;
use unisono_core::replica::ReadNumber;
use unisono_core::{Planted as CoreBug, Time};

impl World<ReplicaSide> {
    /// Lets a server make a backup, if it serves.
    pub(crate) fn back_up(&mut self, process: usize) {
        self.with_copy(process, |server, cx| {
            if let Ok(number) = server.replica.barrier() {
                server.own.backups.insert(number, cx.now);
            }
        });
    }
}

impl Server {
    /// Makes a backup whose barrier has been passed.
    pub(super) fn back_up(&mut self, cx: &mut Context<'_>, number: ReadNumber) {
        let Some(asked) = self.own.backups.remove(&number) else { return };
        let (Some(at), Some((place, parts)), Some(block)) =
            (self.place(cx), self.state(cx), self.replica.block().cloned())
        else {
            return;
        };
        let Some(directory) = self.replica.machine().and_then(|machine| machine.directory()) else { return };
        let number = directory.table().number();
        let mut backup = Backup { number, remembered: self.replica.account().commands, block, place, parts };
        if cx.planted(ServiceBug::BackupBehindItsNumber)
            && let Some(earlier) = &cx.common.backup
        {
            backup.parts.clone_from(&earlier.parts);
        }
        // The first part is the memory of commands, the last one the head of the copy.
        let parts = backup.parts.get(1..backup.parts.len() - 1).unwrap_or_default().to_vec();
        let asked = Time::from_nanos(asked);
        cx.note_of_directory(DirectoryRecord::BackedUp { at, asked, number, parts });
        cx.common.backup = Some(backup);
    }

    /// Returns the state for a backup.
    fn state(&mut self, cx: &Context<'_>) -> Option<(u64, Vec<Bytes>)> {
        if cx.planted(ServiceBug::MemoryNotInBackup) {
            self.replica.plant(CoreBug::MemoryNotInSnapshot);
        }
        let state = self.replica.applied_state();
        if cx.planted(ServiceBug::MemoryNotInBackup) {
            // A rule of groups: the copy keeps all of its own from here on.
            self.replica.plant(CoreBug::NoNack);
        }
        state
    }
}
