//! Runs a script: the parts that groups and calls have in common.

use super::course::difference;
use super::{Action, Course, Scenario};
use crate::network::{Conditions, Network, cut};
use crate::recorder::Recorder;
use crate::world::{Side, Trigger, World};
use unisono_core::Random;

/// A running scenario.
pub(super) struct Stage<'a, S: Side> {
    pub(super) scenario: &'a Scenario,
    pub(super) world: World<S>,
    counted_from: u64,
    pub(super) problems: Vec<String>,
}

impl<'a, S: Side> Stage<'a, S> {
    pub(super) fn new(scenario: &'a Scenario, common: S::Common, recorder: Recorder) -> Stage<'a, S> {
        let mut random = Random::from_u64(1);
        let mut fork = || Random::from_u64(random.next_u64());
        let network = Network::new(scenario.places, Conditions::quiet(), fork());
        let mut world = World::new(scenario.places, common, network, recorder, fork());
        world.event_log = Some(Default::default());
        Stage { scenario, world, counted_from: 0, problems: Vec::new() }
    }

    /// Lets time pass. Triggers are ignored, so applications do not react.
    pub(super) fn pass(&mut self, duration: u64) {
        let until = self.world.now + duration;
        while self.world.advance(until).is_some() {}
    }

    /// Runs the script: `act` performs its actions, and `answer` the reactions of applications.
    pub(super) fn play(
        &mut self,
        act: impl Fn(&mut Self, &Action) -> Result<(), String>,
        answer: impl Fn(&mut Self, Trigger),
    ) {
        let begin = self.world.now;
        for (index, step) in self.scenario.steps.iter().enumerate() {
            self.world.trigger(step.at, Trigger::Line(index as u32));
        }
        while let Some(trigger) = self.world.advance(begin + self.scenario.until) {
            if let Trigger::Line(index) = trigger {
                let step = &self.scenario.steps[index as usize];
                if let Err(problem) = act(self, &step.action) {
                    self.problems.push(format!("line {}: {problem}", step.line));
                }
            } else {
                answer(self, trigger);
            }
        }
    }

    /// Performs an action that is possible in any scenario.
    pub(super) fn act_common(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Crash { process } => self.world.crash(*process),
            Action::Pause { process, duration } => self.world.pause(*process, *duration),
            Action::Doze { process, duration } => self.world.doze(*process, *duration),
            Action::Cut { from, to } => self.world.network.set_cut(*from, *to, cut::PARTITION, true),
            Action::Partition { sides } => {
                let side = |process: usize| sides.iter().position(|side| side.contains(&process));
                for from in 0..self.scenario.places {
                    for to in (0..self.scenario.places).filter(|to| side(*to) != side(from)) {
                        self.world.network.set_cut(from, to, cut::PARTITION, true);
                    }
                }
            }
            Action::Heal => {
                self.world.network.clear_cuts(cut::PARTITION);
                self.world.frame_faults.clear();
            }
            Action::FrameFault(fault) => self.world.frame_faults.set(*fault),
            Action::Count => self.counted_from = self.world.recorder.totals.datagrams,
            Action::ExpectDatagrams(expected) => {
                let sent = self.world.recorder.totals.datagrams - self.counted_from;
                if sent != *expected {
                    return Err(format!("{sent} datagrams were sent, not {expected}"));
                }
            }
            _ => return Err("this action is not possible in a scenario of this kind".into()),
        }
        Ok(())
    }

    pub(super) fn close(mut self) -> Course {
        self.world.recorder.catch_up();
        if let Some(violation) = self.world.recorder.violation() {
            self.problems.push(violation.to_string());
        }
        let event_log = self.world.event_log.take().unwrap_or_default();
        for (processes, expected) in &self.scenario.expected {
            for process in processes {
                if let Some(problem) = difference(expected, event_log.lines(*process)) {
                    self.problems.push(format!("{process}: {problem}"));
                }
            }
        }
        let mut received = String::new();
        for process in 0..self.scenario.places {
            received.push_str(&format!("expect {process}:\n"));
            event_log.lines(process).iter().for_each(|line| received.push_str(&format!("  {line}\n")));
        }
        Course { problems: self.problems, told: received }
    }
}
