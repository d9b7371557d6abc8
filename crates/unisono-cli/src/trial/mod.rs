//! A group put to the test: member processes that all send, one of them struck down, and the proof that the others
//! agree. The demonstration shows one such trial, the failover benchmark measures many.

pub(crate) mod member;
mod verdict;

use crate::arguments::OrderChoice;
use crate::location::Location;
use crate::problem::Problem;
use crate::processes::{Blow, Crew, Received, monotonic_ns};
use crate::settings::Settings;
use crate::worker;
use member::{Answer, Instruction};
use std::time::{Duration, Instant};
use verdict::{Content, Evidence, Place};

pub(crate) use member::{Share, name};
pub(crate) use verdict::Verdict;

/// The longest silence of all members that is not taken for a failure.
const PATIENCE: Duration = Duration::from_secs(15);
/// The members may take so long to leave in good order.
const FAREWELL: Duration = Duration::from_secs(2);

/// The members and what is known of them.
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
    places: Vec<Place>,
    sent: u64,
    sent_again: u64,
    accepted: u64,
    done: bool,
    noticed_ns: Option<u64>,
    resumed_ns: Option<u64>,
    closed: bool,
}

impl Trial {
    /// Starts a member at each of the locations and waits until all of them see all of them.
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
        trial.until("all members to be in", |trial| {
            trial.members.iter().all(|member| member.uid.is_some() && member.view_members == locations.len())
        })?;
        Ok(trial)
    }

    /// Lets a member send.
    pub(crate) fn send(&mut self, index: usize, share: Share) -> Result<(), Problem> {
        Ok(self.crew.instruct(index, &Instruction::Send(share))?)
    }

    /// Lets the survivors send no more than they have begun to.
    pub(crate) fn stop(&mut self) -> Result<(), Problem> {
        let survivors: Vec<usize> = self.survivors().map(|(index, _)| index).collect();
        for index in survivors {
            self.crew.instruct(index, &Instruction::Stop)?;
        }
        Ok(())
    }

    /// Strikes a member down; when, on the machine's monotonic clock.
    pub(crate) fn strike(&mut self, victim: usize, blow: Blow) -> Result<u64, Problem> {
        self.victim = Some(victim);
        let at_ns = monotonic_ns();
        self.crew.strike(victim, blow)?;
        Ok(at_ns)
    }

    /// Waits until all survivors have seen each of their messages to its place, and have delivered everything.
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

    /// Judges what the members wrote down.
    pub(crate) fn judge(&self) -> Verdict {
        Verdict::of(&Evidence {
            survivors: self.survivors().map(|(index, member)| (index, member.places.as_slice())).collect(),
            dead: self.victim.map(|index| (index, self.members[index].places.as_slice())),
            accepted: self.members.iter().map(|member| member.accepted).collect(),
            resilient: self.resilience > 0,
        })
    }

    /// Lets the members leave.
    pub(crate) fn end(mut self) {
        if let Some(victim) = self.victim {
            // It is dead, or stands still and must not wait.
            let _ = self.crew.strike(victim, Blow::Kill);
        }
        self.crew.dismiss(FAREWELL);
    }

    /// Takes reports until something is so.
    pub(crate) fn until(&mut self, what: &str, so: impl Fn(&Trial) -> bool) -> Result<(), Problem> {
        while !so(self) {
            match self.crew.receive(Instant::now() + PATIENCE) {
                Some((index, Received::Answer(answer))) => self.take(index, answer)?,
                Some((index, _)) if self.victim == Some(index) => {}
                Some((index, Received::Nonsense(line))) => {
                    return Err(Problem::failed(format!("{} said something strange: {line}", name(index))));
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
            Answer::Delivered(places) => member.places.extend(places),
            Answer::Noticed { at_ns } => member.noticed_ns = member.noticed_ns.or(Some(at_ns)),
            Answer::Resumed { at_ns } => member.resumed_ns = member.resumed_ns.or(Some(at_ns)),
            Answer::Accepted { sent, accepted } => (member.sent, member.accepted) = (sent, accepted),
            Answer::Done { sent_again } => (member.done, member.sent_again) = (true, sent_again),
            Answer::Closed => member.closed = true,
            Answer::Excluded | Answer::Trouble(_) if self.victim == Some(index) => {}
            Answer::Excluded => {
                return Err(Problem::failed(format!(
                    "the group went on without {}, which is alive",
                    name(index)
                )));
            }
            Answer::Trouble(trouble) => return Err(Problem::failed(format!("{}: {trouble}", name(index)))),
        }
        Ok(())
    }

    fn survivors(&self) -> impl Iterator<Item = (usize, &Seen)> {
        self.members.iter().enumerate().filter(|(index, _)| self.victim != Some(*index))
    }

    /// The name of the group.
    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    /// How many were started.
    pub(crate) fn members(&self) -> usize {
        self.members.len()
    }

    /// How many were not struck down.
    pub(crate) fn survivors_count(&self) -> usize {
        self.survivors().count()
    }

    /// Messages put on their way by all members, and those of them that had to be sent again. The one struck down
    /// may not have told of its last ones: those that were delivered count.
    pub(crate) fn sent(&self) -> (u64, u64) {
        let mut highest = vec![0_u64; self.members.len()];
        for Place(_, content) in self.survivors().flat_map(|(_, member)| &member.places) {
            if let Content::Message(sender, number) = content
                && let Some(highest) = highest.get_mut(*sender)
            {
                *highest = (*highest).max(*number);
            }
        }
        let sent = self.members.iter().zip(highest).map(|(member, highest)| member.sent.max(highest)).sum();
        (sent, self.members.iter().map(|member| member.sent_again).sum())
    }

    /// Messages of this member that it was told are accepted.
    pub(crate) fn accepted(&self, index: usize) -> u64 {
        self.members[index].accepted
    }

    /// Places delivered by the slowest of the survivors.
    pub(crate) fn delivered(&self) -> u64 {
        self.survivors().map(|(_, member)| member.places.len() as u64).min().unwrap_or(0)
    }

    /// Who orders, according to the first survivor.
    pub(crate) fn sequencer(&self) -> Option<usize> {
        let sequencer = self.survivors().next().map(|(_, member)| member.sequencer);
        self.members.iter().position(|member| member.uid == sequencer)
    }

    /// The view, according to the first survivor.
    pub(crate) fn view(&self) -> &str {
        self.survivors().next().map_or("", |(_, member)| &member.view)
    }

    /// When the first survivor noticed that something is wrong.
    pub(crate) fn noticed_ns(&self) -> Option<u64> {
        self.survivors().filter_map(|(_, member)| member.noticed_ns).min()
    }

    /// When the last survivor delivered its first message after the reset; nothing while one has not.
    pub(crate) fn resumed_ns(&self) -> Option<u64> {
        let all: Option<Vec<u64>> = self.survivors().map(|(_, member)| member.resumed_ns).collect();
        all?.into_iter().max()
    }
}

/// A number below `bound`, drawn by lot.
pub(crate) fn lot(bound: u64) -> Result<u64, Problem> {
    let drawn =
        getrandom::u64().map_err(|error| Problem::failed(format!("no random numbers to be had: {error}")))?;
    Ok(drawn % bound)
}
