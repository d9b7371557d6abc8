//! Controls a group whose latency is measured, from the measuring process.

use super::member::{self, Answer, Instruction, Usage};
use crate::bench::Protocol;
use crate::bench::reset::WasReset;
use crate::bench::side::UNTIMED;
use crate::location::Location;
use crate::problem::Problem;
use crate::processes::Crew;
use crate::settings::Settings;
use crate::trial::lot;
use crate::worker;
use std::time::{Duration, Instant};

/// Time limit for a block or a join: 30 s.
const PATIENCE: Duration = Duration::from_secs(30);

/// The properties of the group.
pub(in crate::bench) struct Wanted {
    pub(in crate::bench) protocol: Protocol,
    /// Size of a message.
    pub(in crate::bench) bytes: usize,
}

/// A group whose latency is measured. Member 0 founds it and is the sequencer, unless the role follows the load or goes
/// round. Member 1 sends.
pub(in crate::bench) struct Measured {
    crew: Crew<Instruction, Answer>,
}

const SENDER: usize = 1;

/// Puts the receiver on the sender's processor if it is on the sequencer's. Receiver and sequencer work at the same time, as on
/// two machines; the sender sleeps then.
pub(super) fn part_receiver_from_sequencer(locations: &mut [Location]) {
    if let [sequencer, sender, .., receiver] = locations
        && receiver.processor == sequencer.processor
    {
        receiver.processor = sender.processor;
    }
}

impl Measured {
    pub(in crate::bench) fn start(
        wanted: &Wanted,
        locations: &[Location],
        settings: &Settings,
    ) -> Result<Measured, Problem> {
        let group = format!("bench-{:08x}", lot(1 << 32)?);
        let mut measured = Measured { crew: Crew::new() };
        // Members join one after the other, so that the sender has the second lowest rank.
        for (index, location) in locations.iter().enumerate() {
            let assignment = member::Assignment {
                group: group.clone(),
                founder: index == 0,
                sender: index == SENDER,
                protocol: wanted.protocol,
                bytes: wanted.bytes,
                location: location.clone(),
                settings: settings.clone(),
            };
            measured.crew.start(&worker::Assignment::Latency(assignment))?;
            measured.answer("a member to join")?;
        }
        Ok(measured)
    }

    /// Sends messages. Returns the time of each timed one to its own delivery, in nanoseconds.
    pub(in crate::bench) fn measure(&mut self, timed: usize) -> Result<Vec<u64>, Problem> {
        self.crew.instruct(SENDER, &Instruction::Send { untimed: UNTIMED, timed })?;
        match self.answer("messages to be delivered")? {
            Answer::Took(took) => Ok(took),
            other => Err(Problem::failed(format!("a member answered {other:?}"))),
        }
    }

    /// Sends messages. Returns the time of each timed one to its delivery at the last member, in nanoseconds.
    pub(in crate::bench) fn measure_at_receiver(&mut self, timed: usize) -> Result<Vec<u64>, Problem> {
        let receiver = if self.crew.len() == 2 { 0 } else { self.crew.len() - 1 };
        let count = UNTIMED + timed;
        self.crew.instruct(receiver, &Instruction::Note { count })?;
        self.answer("a receiver")?;
        self.crew.instruct(SENDER, &Instruction::SendApart { count })?;
        let (mut began, mut noted) = (None, None);
        while began.is_none() || noted.is_none() {
            match self.answer("messages to be delivered")? {
                Answer::Began(times) => began = Some(times),
                Answer::Noted(times) => noted = Some(times),
                other => return Err(Problem::failed(format!("a member answered {other:?}"))),
            }
        }
        // All messages are in both lists, and one is under way at a time.
        let both = began.into_iter().flatten().zip(noted.into_iter().flatten());
        Ok(both.skip(UNTIMED).map(|(began, noted)| noted.saturating_sub(began)).collect())
    }

    /// Returns what all members have used so far.
    pub(in crate::bench) fn usage(&mut self) -> Result<Usage, Problem> {
        let mut sum = Usage::default();
        for index in 0..self.crew.len() {
            self.crew.instruct(index, &Instruction::Usage)?;
            if let Answer::Usage(usage) = self.answer("a member's counters")? {
                sum.processor_ns += usage.processor_ns;
                sum.datagrams += usage.datagrams;
                sum.passes.add(usage.passes);
                sum.by_multicast |= usage.by_multicast;
                sum.hand_overs += usage.hand_overs;
            }
        }
        Ok(sum)
    }

    fn answer(&mut self, what: &str) -> Result<Answer, Problem> {
        match self.crew.answer(Instant::now() + PATIENCE, &[], what)? {
            (_, Answer::WasReset) => Err(anyhow::Error::new(WasReset).into()),
            (index, Answer::Trouble(trouble)) => Err(Problem::failed(format!("member {index}: {trouble}"))),
            (_, answer) => Ok(answer),
        }
    }
}
