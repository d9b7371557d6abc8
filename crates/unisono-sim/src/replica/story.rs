//! Runs of servers with disks that follow a story: in each act some of the servers are present, one of them may be slow, and
//! the act ends with the power, in one moment or at a step of a disk that matters. Crashes at random rarely meet in the
//! order in which a wrong rule shows: a command that one disk has alone, then two others that go on, then a third pair.

use super::director::Director;
use crate::draw::{Draw, MILLISECOND};
use crate::world::{AIMED, Aim, JobKind, Trigger};
use unisono_core::replica::disk::DiskDurability;

/// What a story is drawn from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Story {
    /// Fraction of absences in which something befalls the disk of the absent server.
    pub(crate) spoils: f64,
    /// True if enough disks are lost once that the service begins anew.
    pub(crate) begins_anew: bool,
}

/// Where a story is.
#[derive(Default)]
pub(super) struct Scene {
    /// The servers that are present.
    pub(super) present: Vec<usize>,
    act: u32,
}

/// The line at which the next act begins; lines of acts that have ended are ignored. The number of the act is added.
pub(super) const ACT: u32 = 1_000;

/// Jobs at which an act ends: those of a recovery, or those of commands.
const RECOVERY: &[JobKind] = &[JobKind::Commit, JobKind::Adopt];
const COMMANDS: &[JobKind] = &[JobKind::Append, JobKind::Snapshot, JobKind::Name];

impl Director {
    /// True if a server may run at present.
    pub(super) fn may_run(&self, process: usize) -> bool {
        self.retired != Some(process)
            && self.scene.as_ref().is_none_or(|scene| scene.present.contains(&process))
            && self.script.as_ref().is_none_or(|script| script.may_run(process))
    }

    /// Handles a line of the story.
    pub(super) fn follow_story(&mut self, line: u32) {
        let Some(scene) = &self.scene else { return };
        if !self.is_calm && (line == AIMED || line == ACT + scene.act) {
            self.end_act(line == AIMED);
        }
    }

    /// Begins the next act.
    pub(super) fn begin_act(&mut self) {
        if self.scene.is_none() {
            return;
        }
        let present = self.draw_present();
        let Some(scene) = &mut self.scene else { return };
        scene.present.clone_from(&present);
        scene.act += 1;
        let act = scene.act;
        for process in 0..self.plan.servers {
            let runs = self.world.resident(process).is_some();
            if !present.contains(&process) {
                self.world.crash(process);
                self.spoil_disk(process);
            } else if !runs {
                let delay = self.app_random.spread(MILLISECOND, 100 * MILLISECOND);
                self.world.trigger(delay, Trigger::Start { process: process as u16 });
            }
        }
        self.aim();
        let lasts = self.app_random.millis(700, 3_500);
        self.world.trigger(lasts, Trigger::Line(ACT + act));
        let slow_from = self.slow_from(lasts);
        self.world.trigger(slow_from, Trigger::Line(SLOW));
    }

    /// Draws the servers that are present: mostly as few as can go on, and not those of the last act.
    fn draw_present(&mut self) -> Vec<usize> {
        let servers = self.plan.servers;
        let majority = servers / 2 + 1;
        let before = self.scene.as_ref().map_or_else(Vec::new, |scene| scene.present.clone());
        let is_first = self.scene.as_ref().is_some_and(|scene| scene.act == 0);
        let size = match is_first {
            true => servers,
            false => self.app_random.weigh(&[(14, majority), (5, servers), (1, majority - 1)]),
        };
        let size = if self.is_beginning_anew() { servers } else { size };
        for _ in 0..8 {
            let mut all: Vec<usize> = (0..servers).collect();
            while all.len() > size.max(1) {
                all.remove(self.app_random.below(all.len() as u64) as usize);
            }
            if all != before || size == servers {
                return all;
            }
        }
        (0..servers).collect()
    }

    /// Lets half of the acts end at a step of a disk.
    fn aim(&mut self) {
        let (jobs, most) = self.app_random.pick(&[(RECOVERY, 10), (RECOVERY, 6), (COMMANDS, 40)]);
        let (done, left) = (self.app_random.chance(0.6), self.app_random.between(1, most) as u32);
        let aims = self.app_random.chance(0.5) && !self.is_beginning_anew();
        self.world.common.aim = aims.then_some(Aim { jobs, done, left });
    }

    /// Returns when one server of the act becomes slow: at once, or near its end.
    fn slow_from(&mut self, lasts: u64) -> u64 {
        match self.app_random.chance(0.4) {
            true => 0,
            false => lasts - self.app_random.below(lasts.min(600 * MILLISECOND)),
        }
    }

    /// Lets the disks of one server, or of all but one, be slow for the rest of the act.
    pub(super) fn slow_down(&mut self) {
        let Some(scene) = self.scene.as_ref().filter(|_| !self.is_calm) else { return };
        let present = scene.present.clone();
        let odd = self.app_random.pick(&present);
        let alone = self.app_random.chance(0.5);
        for process in present {
            self.world.set_slow(process, (process == odd) == alone);
        }
    }

    /// Ends the act: the power fails, or some servers crash and others come.
    fn end_act(&mut self, at_step: bool) {
        self.forget_what_was_said();
        if self.is_beginning_anew() {
            // The operator watches over it: the servers stay until all of them have the new instance.
            let act = self.scene.as_ref().map_or(0, |scene| scene.act);
            return self.world.trigger(200 * MILLISECOND, Trigger::Line(ACT + act));
        }
        let all = at_step && self.app_random.chance(0.8) || self.app_random.chance(0.6);
        if all {
            (0..self.plan.servers).for_each(|process| self.world.crash(process));
            self.begin_anew_once();
        }
        self.begin_act();
    }

    fn begin_anew_once(&mut self) {
        let Some(disks) = &mut self.plan.disks else { return };
        let Some(story) = &mut disks.story else { return };
        let act = self.scene.as_ref().map_or(0, |scene| scene.act);
        if story.begins_anew && act >= 3 && self.all_disks_are_good() {
            let story = self.plan.disks.as_mut().and_then(|disks| disks.story.as_mut());
            story.into_iter().for_each(|story| story.begins_anew = false);
            self.begin_anew();
        }
    }

    /// Draws the servers that are present when all faults are over: all, or as many as the rule lets go on.
    pub(super) fn calm_story(&mut self) {
        if self.scene.is_none() {
            return;
        }
        self.forget_what_was_said();
        self.world.common.aim = None;
        let servers = self.plan.servers;
        let is_majority =
            self.plan.disks.as_ref().is_some_and(|disks| disks.durability == DiskDurability::Majority);
        let few = is_majority && self.all_disks_are_good() && self.app_random.chance(0.4);
        let mut present: Vec<usize> = (0..servers).collect();
        while few && present.len() > servers / 2 + 1 {
            present.remove(self.app_random.below(present.len() as u64) as usize);
        }
        for process in (0..servers).filter(|process| !present.contains(process)) {
            self.world.crash(process);
        }
        if let Some(scene) = &mut self.scene {
            scene.present = present;
        }
    }

    /// Lets the servers come that were not present.
    pub(super) fn end_story(&mut self) {
        if let Some(scene) = &mut self.scene {
            scene.present = (0..self.plan.servers).collect();
            (0..self.plan.servers).for_each(|process| {
                if self.world.resident(process).is_none() {
                    self.start_later(process);
                }
            });
        }
    }
}

/// The line at which disks of an act become slow.
pub(super) const SLOW: u32 = 3;
