//! Tests a group of member processes: all send, a fault is inflicted on one, and the others' deliveries are compared.
//! The demonstration shows one such trial, the failover benchmark measures many.

pub(crate) mod member;
mod verdict;

use crate::arguments::OrderChoice;
use crate::location::Location;
use crate::passes::Passes;
use crate::problem::Problem;
use crate::processes::{Blow, Crew, Received, monotonic_ns};
use crate::settings::Settings;
use crate::worker;
use member::{Answer, Instruction};
use std::time::{Duration, Instant};
use verdict::{Content, Entry, Evidence};

pub(crate) use member::{Share, name};
pub(crate) use verdict::Verdict;

/// A trial fails if no member answers for this long: 15 s.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time for the members to leave: 2 s.
const FAREWELL: Duration = Duration::from_secs(2);

/// The member processes and what they have reported.
pub(crate) struct Trial {
    group: String,
    resilience: u8,
    crew: Crew<Instruction, Answer>,
    members: Vec<Seen>,
    victim: Option<usize>,
}

/// What a member has reported.
#[derive(Default)]
struct Seen {
    uid: Option<u64>,
    view: String,
    view_members: usize,
    sequencer: u64,
    entries: Vec<Entry>,
    sent: u64,
    sent_again: u64,
    accepted: u64,
    done: bool,
    noticed_ns: Option<u64>,
    resumed_ns: Option<u64>,
    closed: bool,
    passes: Passes,
    /// What it last answered to the question which member is the sequencer.
    asked: Option<u64>,
}

impl Trial {
    /// Starts a member at each of the locations and waits until all of them are in the view of each.
    pub(crate) fn begin(
        locations: &[Location],
        resilience: u8,
        order: OrderChoice,
        settings: &Settings,
    ) -> Result<Trial, Problem> {
        let mut trial = Trial {
            group: format!("trial-{:08x}", lot(1 << 32)?),
            resilience,
            crew: Crew::new(),
            members: Vec::new(),
            victim: None,
        };
        for (index, location) in locations.iter().enumerate() {
            let assignment = member::Assignment {
                group: trial.group.clone(),
                index,
                resilience,
                order,
                location: location.clone(),
                settings: settings.clone(),
            };
            trial.members.push(Seen::default());
            trial.crew.start(&worker::Assignment::Trial(assignment))?;
            if index == 0 {
                trial.until("the first member to found the group", |trial| trial.members[0].uid.is_some())?;
            }
        }
        trial.until("all members to join", |trial| {
            trial.members.iter().all(|member| member.uid.is_some() && member.view_members == locations.len())
        })?;
        Ok(trial)
    }

    /// Makes a member send its share.
    pub(crate) fn send(&mut self, index: usize, share: Share) -> Result<(), Problem> {
        Ok(self.crew.instruct(index, &Instruction::Send(share))?)
    }

    /// Makes the survivors begin no further messages.
    pub(crate) fn stop(&mut self) -> Result<(), Problem> {
        let survivors: Vec<usize> = self.survivors().map(|(index, _)| index).collect();
        for index in survivors {
            self.crew.instruct(index, &Instruction::Stop)?;
        }
        Ok(())
    }

    /// Inflicts a fault on a member. Returns the time of that, on the machine's monotonic clock.
    pub(crate) fn strike(&mut self, victim: usize, blow: Blow) -> Result<u64, Problem> {
        self.victim = Some(victim);
        let at_ns = monotonic_ns();
        self.crew.strike(victim, blow)?;
        Ok(at_ns)
    }

    /// Waits until all messages of the survivors are accepted, and each survivor has delivered everything.
    pub(crate) fn finish(&mut self, progress: impl Fn(&Trial)) -> Result<(), Problem> {
        self.until("all messages to be accepted", |trial| {
            progress(trial);
            trial.survivors().all(|(_, member)| member.done)
        })?;
        let first = self.survivors().next().map_or(0, |(index, _)| index);
        self.crew.instruct(first, &Instruction::Close)?;
        self.until("the last message to be delivered", |trial| {
            progress(trial);
            trial.survivors().all(|(_, member)| member.closed)
        })
    }

    /// Compares what the members recorded.
    pub(crate) fn judge(&self) -> Verdict {
        Verdict::of(&Evidence {
            survivors: self.survivors().map(|(index, member)| (index, member.entries.as_slice())).collect(),
            dead: self.victim.map(|index| (index, self.members[index].entries.as_slice())),
            accepted: self.members.iter().map(|member| member.accepted).collect(),
            resilient: self.resilience > 0,
        })
    }

    /// Makes the members leave, and waits for that.
    pub(crate) fn end(mut self) {
        if let Some(victim) = self.victim {
            // It may only be stopped or cut off, and would not end by itself.
            let _ = self.crew.strike(victim, Blow::Kill);
        }
        self.crew.dismiss(FAREWELL);
    }

    /// Receives answers until a condition holds. `what` describes it, for the error.
    pub(crate) fn until(&mut self, what: &str, holds: impl Fn(&Trial) -> bool) -> Result<(), Problem> {
        while !holds(self) {
            match self.crew.receive(Instant::now() + PATIENCE) {
                Some((index, Received::Answer(answer))) => self.take(index, answer)?,
                Some((index, _)) if self.victim == Some(index) => {}
                Some((index, Received::Nonsense(line))) => {
                    return Err(Problem::failed(format!(
                        "{} wrote a line that is no answer: {line}",
                        name(index)
                    )));
                }
                Some((index, Received::Ended)) => {
                    return Err(Problem::failed(format!("{} ended unexpectedly", name(index))));
                }
                None => return Err(Problem::failed(format!("waited too long for {what}"))),
            }
        }
        Ok(())
    }

    fn take(&mut self, index: usize, answer: Answer) -> Result<(), Problem> {
        let member = &mut self.members[index];
        match answer {
            Answer::Entered { uid } => member.uid = Some(uid),
            Answer::View { view, members, sequencer } => {
                (member.view, member.view_members, member.sequencer) = (view, members, sequencer);
            }
            Answer::Delivered(entries) => member.entries.extend(entries),
            Answer::Noticed { at_ns } => member.noticed_ns = member.noticed_ns.or(Some(at_ns)),
            Answer::Resumed { at_ns } => member.resumed_ns = member.resumed_ns.or(Some(at_ns)),
            Answer::Accepted { sent, accepted } => (member.sent, member.accepted) = (sent, accepted),
            Answer::Done { sent_again } => (member.done, member.sent_again) = (true, sent_again),
            Answer::Sequencer(uid) => member.asked = Some(uid),
            Answer::Closed(passes) => (member.closed, member.passes) = (true, passes),
            Answer::Excluded | Answer::Trouble(_) if self.victim == Some(index) => {}
            Answer::Excluded => {
                return Err(Problem::failed(format!("the group excluded {}, which is alive", name(index))));
            }
            Answer::Trouble(trouble) => return Err(Problem::failed(format!("{}: {trouble}", name(index)))),
        }
        Ok(())
    }

    fn survivors(&self) -> impl Iterator<Item = (usize, &Seen)> {
        self.members.iter().enumerate().filter(|(index, _)| self.victim != Some(*index))
    }

    /// Returns the name of the group.
    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    /// Returns the number of members started.
    pub(crate) fn members(&self) -> usize {
        self.members.len()
    }

    /// Returns the number of members without a fault.
    pub(crate) fn survivors_count(&self) -> usize {
        self.survivors().count()
    }

    /// Returns the number of messages sent by all members, and the number of those sent again. The failed member may
    /// not have reported its last messages, so its delivered messages count.
    pub(crate) fn sent(&self) -> (u64, u64) {
        let mut highest = vec![0_u64; self.members.len()];
        for Entry(_, content) in self.survivors().flat_map(|(_, member)| &member.entries) {
            if let Content::Message(sender, number) = content
                && let Some(highest) = highest.get_mut(*sender)
            {
                *highest = (*highest).max(*number);
            }
        }
        let sent = self.members.iter().zip(highest).map(|(member, highest)| member.sent.max(highest)).sum();
        (sent, self.members.iter().map(|member| member.sent_again).sum())
    }

    /// Returns the number of this member's messages that were acknowledged to it as accepted.
    pub(crate) fn accepted(&self, index: usize) -> u64 {
        self.members[index].accepted
    }

    /// Returns the number of events that the slowest survivor has delivered.
    pub(crate) fn delivered(&self) -> u64 {
        self.survivors().map(|(_, member)| member.entries.len() as u64).min().unwrap_or(0)
    }

    /// Asks the first member which one is the sequencer, or has the token, and returns its index. Events do not tell where
    /// the token is.
    pub(crate) fn ask_sequencer(&mut self) -> Result<Option<usize>, Problem> {
        self.members[0].asked = None;
        self.crew.instruct(0, &Instruction::Sequencer)?;
        self.until("a member to say which one is the sequencer", |trial| trial.members[0].asked.is_some())?;
        let sequencer = self.members[0].asked;
        Ok(self.members.iter().position(|member| member.uid == sequencer))
    }

    /// Returns the passes of the token by all survivors.
    pub(crate) fn passes(&self) -> Passes {
        let mut passes = Passes::default();
        self.survivors().for_each(|(_, member)| passes.add(member.passes));
        passes
    }

    /// Returns the index of the sequencer, according to the last event of the first survivor that named one.
    pub(crate) fn sequencer(&self) -> Option<usize> {
        let sequencer = self.survivors().next().map(|(_, member)| member.sequencer);
        self.members.iter().position(|member| member.uid == sequencer)
    }

    /// Returns the view of the first survivor.
    pub(crate) fn view(&self) -> &str {
        self.survivors().next().map_or("", |(_, member)| &member.view)
    }

    /// Returns the time at which the first survivor noticed the fault.
    pub(crate) fn noticed_ns(&self) -> Option<u64> {
        self.survivors().filter_map(|(_, member)| member.noticed_ns).min()
    }

    /// Returns the time at which the last survivor delivered its first message after the reset. None until all have.
    pub(crate) fn resumed_ns(&self) -> Option<u64> {
        let all: Option<Vec<u64>> = self.survivors().map(|(_, member)| member.resumed_ns).collect();
        all?.into_iter().max()
    }
}

/// Returns a random number below `bound`.
pub(crate) fn lot(bound: u64) -> Result<u64, Problem> {
    let drawn = getrandom::u64()
        .map_err(|error| Problem::failed(format!("the system gave no random numbers: {error}")))?;
    Ok(drawn % bound)
}
