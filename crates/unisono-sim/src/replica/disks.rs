//! The disks of the servers as the director handles them: it opens them for each new process, replaces those that cannot
//! be used, and lets disks be lost, spoiled and put back as far as the durability allows.

use super::director::Director;
use crate::bugs::Planted;
use crate::record::{ReplicaRecord, Stop};
use crate::world::{Disk, DiskBirth, Image, digest};
use unisono_core::replica::DiskStart;
use unisono_core::replica::disk::{Block, DiskDurability, Loaded};

/// The disk of one server.
#[derive(Default)]
pub(super) struct Place {
    disk: Disk,
    /// What the disk had some time ago.
    image: Option<Image>,
    /// True if the next process says that a blank disk takes the place of another one.
    replaces: bool,
    /// True if the next process lets the service begin anew from this disk.
    begins_anew: bool,
    /// True if that was refused: a majority of the disks is there. The next process does not say so again.
    is_refused: bool,
}

impl Place {
    /// Remembers what the disk has.
    pub(super) fn keep_image(&mut self) {
        self.image = Some(self.disk.image());
    }

    /// Puts back what was remembered of the disk, which no process uses.
    pub(super) fn put_image_back(&mut self) {
        if let Some(image) = self.image.take() {
            self.disk.put_back(&image);
        }
    }

    /// Flips a bit in the middle of the log.
    pub(super) fn flip_log(&self) {
        self.disk.flip_log(digest);
    }
}

impl Director {
    /// Opens the disk of a server for a new process. One that cannot be used is replaced by a blank one.
    pub(super) fn open_disk(&mut self, process: usize) -> Option<DiskBirth> {
        let durability = self.plan.disks.as_ref()?.durability;
        let (bug, server) = (self.planted.and_then(Planted::of_core), process as u8 + 1);
        let as_is = self.script.is_some();
        let place = self.places.get_mut(process)?;
        let opened = match as_is {
            true => place.disk.open_as_is(digest, bug),
            false => place.disk.open(digest, bug, &mut self.app_random),
        };
        let (disk, loaded) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.world.note_trace(process, &format!("its disk cannot be used: {error}"));
                place.disk.replace();
                place.replaces = true;
                self.world.note_lost(server);
                place.disk.open(digest, bug, &mut self.app_random).ok()?
            }
        };
        self.world.note_found(server, loaded.as_ref());
        let place = &mut self.places[process];
        let begins_anew = place.begins_anew && !place.is_refused && loaded.is_some();
        if begins_anew {
            self.world.note_world(ReplicaRecord::BeginsAnew);
        }
        let start = DiskStart {
            name: "replicated".into(),
            server,
            servers: self.plan.servers as u8,
            durability,
            loaded,
            disk: self.app_random.next_u64(),
            nonce: u128::from(self.app_random.next_u64()),
            replaces: place.replaces,
            begins_anew: begins_anew.then_some(1),
        };
        Some(DiskBirth { disk, start })
    }

    /// What the operator does about a server whose process has stopped for a reason of its disk.
    pub(super) fn heed_stop(&mut self, process: usize, stop: Stop) {
        match stop {
            Stop::ReplaceNeeded => self.places[process].replaces = true,
            Stop::GivenUp => self.lose(process, true),
            Stop::NothingLost => self.places[process].is_refused = true,
            _ => {}
        }
    }

    /// Puts a blank disk in the place of a server's. `is_said` is true if its next process says so at once.
    fn lose(&mut self, process: usize, is_said: bool) {
        let place = &mut self.places[process];
        place.disk.replace();
        (place.image, place.replaces) = (None, is_said);
        self.world.note_lost(process as u8 + 1);
    }

    /// True if all servers have good disks.
    pub(super) fn all_disks_are_good(&self) -> bool {
        self.world.common.good_disks.len() == self.plan.servers
    }

    /// True if one more disk may be lost: with the durability *majority*, if a majority stays good.
    fn can_lose_disk(&self, process: usize) -> bool {
        let good = &self.world.common.good_disks;
        let is_good = good.contains(&(process as u8 + 1));
        let is_majority =
            self.plan.disks.as_ref().is_some_and(|disks| disks.durability == DiskDurability::Majority);
        is_majority && is_good && 2 * (good.len() - 1) > self.plan.servers
    }

    /// Lets something befall the disk of a server that does not run at present.
    pub(super) fn spoil_disk(&mut self, process: usize) {
        let Some(story) = self.plan.disks.as_ref().and_then(|disks| disks.story) else { return };
        if self.app_random.chance(0.3) {
            self.places[process].image = Some(self.places[process].disk.image());
        }
        if !self.app_random.chance(story.spoils) || !self.can_lose_disk(process) {
            return;
        }
        match self.app_random.below(3) {
            0 => {
                let is_said = self.app_random.chance(0.7);
                self.lose(process, is_said);
            }
            1 => {
                if self.places[process].disk.flip(digest, &mut self.app_random) {
                    self.world.note_lost(process as u8 + 1);
                }
            }
            _ => {
                if let Some(image) = self.places[process].image.take()
                    && self.is_known_to_be_old(process, &image)
                {
                    self.places[process].disk.put_back(&image);
                    self.world.note_lost(process as u8 + 1);
                }
            }
        }
    }

    /// True if all other servers have written down that this disk had more than the image has: so whichever of them are
    /// present, they notice. What no server has written down cannot be known.
    fn is_known_to_be_old(&self, process: usize, image: &Image) -> bool {
        let Some(Loaded { block, snapshot_at, entries, .. }) = image.load(digest) else { return false };
        let end = snapshot_at + entries.len() as u64;
        let others = (0..self.plan.servers).filter(|other| *other != process);
        let mut others = others.map(|other| self.places[other].disk.image().load(digest));
        others.all(|other| {
            let heard = other.and_then(|loaded| loaded.heard.get(&(process as u8 + 1)).copied());
            heard.is_some_and(|heard| {
                heard.disk == block.disk
                    && (heard.starts > block.starts
                        || (heard.generation, heard.position) > (block.generation, end))
            })
        })
    }

    /// Too many disks are lost for ever, while no server runs: the service begins anew from one of them. If these two are no
    /// majority, another server keeps its old disk, which is refused.
    pub(super) fn begin_anew(&mut self) {
        let keeps = self.app_random.below(self.plan.servers as u64) as usize;
        (self.places[keeps].begins_anew, self.places[keeps].is_refused) = (true, false);
        self.restore(keeps);
        let old = (keeps + 1) % self.plan.servers;
        for process in (0..self.plan.servers).filter(|process| *process != keeps) {
            match process == old && self.plan.servers > 3 {
                true => self.world.note_lost(process as u8 + 1),
                false => self.lose(process, true),
            }
        }
    }

    /// Puts the last backup of a directory, if there is one, in the place of a disk from which the service begins anew.
    fn restore(&mut self, process: usize) {
        if !self.plan.directory || self.app_random.chance(0.3) {
            return;
        }
        let Some(backup) = self.world.common.backup.take() else { return };
        self.world.note_lost(process as u8 + 1);
        let Place { disk, image, .. } = &mut self.places[process];
        *image = None;
        disk.replace();
        let block = Block {
            server: process as u8 + 1,
            disk: self.app_random.next_u64(),
            starts: 1,
            promised: backup.block.generation,
            view: None,
            ..backup.block
        };
        self.world.note_restored(backup.number, backup.remembered);
        if let Err(error) = disk.restore(digest, block, backup.place, &backup.parts) {
            self.world.report_violation("restore_equals", error.to_string());
        }
    }

    /// True if the service begins anew, and not all disks are of its new instance yet.
    pub(super) fn is_beginning_anew(&self) -> bool {
        self.places.iter().any(|place| place.begins_anew)
    }

    /// Once all disks are good again, no process says any more that the service begins anew, or replaces a disk.
    pub(super) fn forget_what_was_said(&mut self) {
        let good = &self.world.common.good_disks;
        for (place, server) in self.places.iter_mut().zip(1..) {
            place.begins_anew &= good.len() < self.plan.servers;
            place.replaces &= !good.contains(&server);
        }
    }
}
