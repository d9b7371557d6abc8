//! Runs scripts in which processes form a group.

use super::stage::Stage;
use super::{Action, Course, Scenario};
use crate::draw::{MILLISECOND, SECOND};
use crate::plan::name;
use crate::properties::{self, Checkers, GroupTerms};
use crate::recorder::Recorder;
use crate::world::{Birth, GroupBirth, GroupCommon, GroupSide};
use std::io::Write;
use unisono_core::{EntryMode, Phase, Quality, Settings};

/// Most nanoseconds for the formation of the group; after these the script fails.
const FORMATION_MAX: u64 = 20 * SECOND;

impl Scenario {
    pub(super) fn run_group(&self, trace: Option<Box<dyn Write>>) -> Course {
        let checkers = Checkers::new(properties::all(&GroupTerms {
            config: self.config.clone(),
            founders_min: 1,
            may_be_ring: true,
            is_quiet: false,
        }));
        let common = GroupCommon::new(self.config.history_messages);
        let mut stage = Stage::<GroupSide>::new(self, common, Recorder::new(checkers, trace));
        if stage.form_group() {
            stage.play(Stage::act, |_, _| {});
        }
        stage.close()
    }
}

impl Stage<'_, GroupSide> {
    /// Lets the members join one after another, then waits until the group is idle. Returns false if a member cannot
    /// join.
    fn form_group(&mut self) -> bool {
        for process in 0..self.scenario.members {
            let entry =
                if process == 0 { EntryMode::Found(self.scenario.config.clone()) } else { EntryMode::Join };
            self.give_life(process, entry);
            while !self.has_entered(process) {
                if self.world.now > FORMATION_MAX || self.world.recorder.violation().is_some() {
                    self.problems.push(format!("{process} did not join"));
                    return false;
                }
                self.pass(MILLISECOND);
            }
        }
        self.pass(2 * SECOND);
        if let Some(event_log) = &mut self.world.event_log {
            event_log.clear();
        }
        true
    }

    fn has_entered(&self, process: usize) -> bool {
        self.world.resident(process).is_some_and(|resident| resident.side.group.phase() == Phase::Member)
    }

    fn act(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Send { process, payload, times } => {
                for _ in 0..*times {
                    self.world
                        .send_payload(*process, payload.clone(), Quality::ORDERED)
                        .map_err(|error| error.to_string())?;
                }
            }
            Action::Leave { process } => self.world.leave(*process).map_err(|error| error.to_string())?,
            Action::HandOver { to } => {
                let successor = self.world.resident(*to).ok_or("no life is running there")?.uid;
                let mut sequencers = (0..self.scenario.places).filter(|place| {
                    self.world
                        .resident(*place)
                        .is_some_and(|resident| resident.side.group.info().sequencer == resident.uid)
                });
                let sequencer = sequencers.next_back().ok_or("there is no sequencer")?;
                self.world.hand_over(sequencer, successor);
            }
            Action::Force { process, without } => self.world.force(*process, without),
            Action::Reset { process, members_min } => self.world.reset(*process, *members_min),
            Action::Start { process, founds: false } => self.give_life(*process, EntryMode::Join),
            Action::Start { process, founds: true } => {
                self.give_life(*process, EntryMode::JoinOrFound(self.scenario.config.clone()));
            }
            other => return self.act_common(other),
        }
        Ok(())
    }

    fn give_life(&mut self, process: usize, entry: EntryMode) {
        let settings = Settings { transport: self.scenario.transport, ..Settings::default() };
        let birth = Birth {
            name: name(process, false),
            side: GroupBirth { entry, settings },
            gain: 0,
            clock: None,
            events_first: false,
            planted: None,
        };
        if let Err(error) = self.world.start(process, birth) {
            self.problems.push(error.to_string());
        }
    }
}
