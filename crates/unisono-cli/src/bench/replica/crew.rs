//! Controls the processes of a measured service, from the measuring process.

use super::disks::Disks;
use super::worker::{Answer, Asks, Assignment, Instruction, Part, Used};
use crate::location::Location;
use crate::problem::Problem;
use crate::processes::{Blow, Crew};
use crate::settings::Settings;
use crate::trial::lot;
use crate::worker;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time that a block may take beyond its planned duration: 60 s.
const BLOCK_PATIENCE: Duration = Duration::from_secs(60);

/// The processes of one service.
pub(in crate::bench) struct Staff {
    crew: Crew<Instruction, Answer>,
    service: String,
    bytes: usize,
    /// Bytes that a process that is started will receive and keep.
    pub(super) receives: usize,
    settings: Settings,
    /// Processes that were killed.
    dead: Vec<usize>,
    /// Where servers with disks keep their files.
    disks: Option<Rc<Disks>>,
}

impl Staff {
    /// Prepares a service whose commands have this size.
    pub(in crate::bench) fn new(
        bytes: usize,
        disks: Option<Rc<Disks>>,
        settings: &Settings,
    ) -> Result<Staff, Problem> {
        let service = format!("bench-{:08x}", lot(1 << 32)?);
        Ok(Staff {
            crew: Crew::new(),
            service,
            bytes,
            receives: 0,
            settings: settings.clone(),
            dead: Vec::new(),
            disks,
        })
    }

    /// Kills all processes. What servers have on disk stays.
    pub(super) fn dismiss(&mut self) {
        (self.crew, self.dead) = (Crew::new(), Vec::new());
    }

    /// Returns the folders of the servers.
    pub(super) fn disks(&self) -> Option<&Disks> {
        self.disks.as_deref()
    }

    /// Starts a process and waits until it is ready. Returns its index, and the time in which a server
    /// got the state.
    pub(in crate::bench) fn start(
        &mut self,
        part: Part,
        location: &Location,
    ) -> Result<(usize, Duration), Problem> {
        let index = self.launch(part, location)?;
        Ok((index, self.readiness(index)?))
    }

    /// Kills a server.
    pub(super) fn kill(&mut self, server: usize) -> Result<(), Problem> {
        self.dead.push(server);
        Ok(self.crew.strike(server, Blow::Kill)?)
    }

    /// Starts a server with a disk again that was killed. Returns the index of the new process; [`Staff::is_ready`] says
    /// whether it serves.
    pub(super) fn start_again(&mut self, server: usize, location: &Location) -> Result<usize, Problem> {
        self.launch_at(server, Part::Server, location)
    }

    /// Returns the time that a process took until it was ready; `None` while it is not yet.
    pub(super) fn is_ready(&mut self, index: usize) -> Result<Option<Duration>, Problem> {
        match self.crew.has_answered(index, &self.dead)? {
            true => self.readiness(index).map(Some),
            false => Ok(None),
        }
    }

    /// Starts a process for each location at once, and waits until all are ready. Returns the time that each took.
    pub(super) fn start_all(&mut self, part: Part, locations: &[Location]) -> Result<Vec<Duration>, Problem> {
        let launched = locations.iter().map(|location| self.launch(part, location));
        let launched = launched.collect::<Result<Vec<_>, _>>()?;
        launched.into_iter().map(|index| self.readiness(index)).collect()
    }

    fn launch(&mut self, part: Part, location: &Location) -> Result<usize, Problem> {
        self.launch_at(self.crew.len(), part, location)
    }

    /// Launches a process at the seat with this index.
    fn launch_at(&mut self, seat: usize, part: Part, location: &Location) -> Result<usize, Problem> {
        let seat = self.disks().map(|disks| disks.seat(seat));
        let assignment = Assignment {
            service: self.service.clone(),
            part,
            bytes: self.bytes,
            receives: self.receives,
            seat,
            location: location.clone(),
            settings: self.settings.clone(),
        };
        Ok(self.crew.start(&worker::Assignment::Replica(assignment))?)
    }

    fn readiness(&mut self, index: usize) -> Result<Duration, Problem> {
        match self.answer_of(index, "a process to be ready", BLOCK_PATIENCE)? {
            Answer::Ready { took_ns } => Ok(Duration::from_nanos(took_ns)),
            other => Err(strange(&other)),
        }
    }

    /// Starts the servers of a service, and a caller at the last location. Servers in memory start one after the other;
    /// those with disks create the service together.
    pub(super) fn start_service(&mut self, servers: usize, locations: &[Location]) -> Result<usize, Problem> {
        let places = &locations[..servers];
        if self.disks.is_some() {
            self.start_all(Part::Server, places)?;
        } else {
            for (index, location) in places.iter().enumerate() {
                self.start(if index == 0 { Part::Founder } else { Part::Joiner }, location)?;
            }
        }
        self.start(Part::Caller, &locations[servers]).map(|(caller, _)| caller)
    }

    /// Lets a process give commands or calls, one at a time. Returns the time of each, in nanoseconds.
    pub(in crate::bench) fn one_by_one(
        &mut self,
        index: usize,
        asks: Asks,
        (untimed, timed): (usize, usize),
    ) -> Result<Vec<u64>, Problem> {
        self.crew.instruct(index, &Instruction::OneByOne { asks, untimed, timed })?;
        match self.answer_of(index, "answers", BLOCK_PATIENCE)? {
            Answer::Took(took) => Ok(took),
            other => Err(strange(&other)),
        }
    }

    /// Lets all processes do so at once. Returns the times of all of them.
    pub(super) fn all_one_by_one(&mut self, (untimed, timed): (usize, usize)) -> Result<Vec<u64>, Problem> {
        for index in 0..self.crew.len() {
            self.crew.instruct(index, &Instruction::OneByOne { asks: Asks::Command, untimed, timed })?;
        }
        let mut all = Vec::new();
        for index in 0..self.crew.len() {
            match self.answer_of(index, "syncs", BLOCK_PATIENCE)? {
                Answer::Took(mut took) => all.append(&mut took),
                other => return Err(strange(&other)),
            }
        }
        Ok(all)
    }

    /// Begins a load; [`Staff::loaded`] has its result.
    pub(super) fn load(
        &mut self,
        index: usize,
        asks: Asks,
        in_flight: usize,
        [untimed, timed]: [Duration; 2],
    ) -> Result<(), Problem> {
        let [untimed_ms, timed_ms] = [untimed, timed].map(|time| time.as_millis() as u64);
        Ok(self.crew.instruct(index, &Instruction::Load { asks, in_flight, untimed_ms, timed_ms })?)
    }

    /// Returns the time of each that was answered in the timed part of a load, and the number of all.
    pub(super) fn loaded(&mut self, index: usize, takes: Duration) -> Result<(Vec<u64>, u64), Problem> {
        match self.answer_of(index, "answers", BLOCK_PATIENCE + takes)? {
            Answer::Loaded { took, all } => Ok((took, all)),
            other => Err(strange(&other)),
        }
    }

    /// Returns what all processes together have used so far.
    pub(super) fn used(&mut self) -> Result<Used, Problem> {
        let mut sum = Used::default();
        for index in 0..self.crew.len() {
            self.crew.instruct(index, &Instruction::Usage)?;
            match self.answer_of(index, "a process's counters", BLOCK_PATIENCE)? {
                Answer::Used(used) => {
                    sum.datagrams += used.datagrams;
                    sum.switches += used.switches;
                }
                other => return Err(strange(&other)),
            }
        }
        Ok(sum)
    }

    /// Lets a caller get pages of a shelf and keep them. Returns the time that took.
    pub(super) fn keep(&mut self, index: usize, pages: u32, in_flight: usize) -> Result<Duration, Problem> {
        self.crew.instruct(index, &Instruction::Keep { pages, in_flight })?;
        match self.answer_of(index, "pages", BLOCK_PATIENCE)? {
            Answer::Took(took) => Ok(Duration::from_nanos(took.iter().sum())),
            other => Err(strange(&other)),
        }
    }

    /// Fills the state with this number of pages.
    pub(super) fn fill(&mut self, index: usize, pages: u32) -> Result<(), Problem> {
        self.crew.instruct(index, &Instruction::Fill { pages })?;
        match self.answer_of(index, "the state to be filled", BLOCK_PATIENCE)? {
            Answer::Filled => Ok(()),
            other => Err(strange(&other)),
        }
    }

    /// Adds pages to the state, each by a command that contains it.
    pub(super) fn write_pages(&mut self, index: usize, pages: u32) -> Result<(), Problem> {
        self.crew.instruct(index, &Instruction::Write { pages })?;
        match self.answer_of(index, "pages to be on disk", BLOCK_PATIENCE)? {
            Answer::Filled => Ok(()),
            other => Err(strange(&other)),
        }
    }

    /// Replaces the state by this number of parts, all of which are others with another version.
    pub(super) fn change_parts(&mut self, index: usize, parts: u32, version: u32) -> Result<(), Problem> {
        self.crew.instruct(index, &Instruction::Change { parts, version })?;
        match self.answer_of(index, "the parts of the state to change", BLOCK_PATIENCE)? {
            Answer::Filled => Ok(()),
            other => Err(strange(&other)),
        }
    }

    /// Gives commands of this size, one after the other, that change nothing.
    pub(super) fn give(&mut self, index: usize, commands: u32, bytes: usize) -> Result<(), Problem> {
        self.crew.instruct(index, &Instruction::Give { commands, bytes })?;
        match self.answer_of(index, "commands to be on disk", BLOCK_PATIENCE)? {
            Answer::Filled => Ok(()),
            other => Err(strange(&other)),
        }
    }

    /// Kills a server while a caller calls one by one. Returns the longest time that a call took.
    pub(super) fn kill_while_watched(
        &mut self,
        (caller, victim): (usize, usize),
        asks: Asks,
        watched: Duration,
    ) -> Result<Duration, Problem> {
        let for_ms = watched.as_millis() as u64;
        self.crew.instruct(caller, &Instruction::Watch { asks, for_ms })?;
        match self.answer_of(caller, "the caller to begin", BLOCK_PATIENCE)? {
            Answer::Watching => {}
            other => return Err(strange(&other)),
        }
        std::thread::sleep(watched / 4);
        self.kill(victim)?;
        match self.answer_of(caller, "calls to be answered again", BLOCK_PATIENCE + watched)? {
            Answer::Paused(ns) => Ok(Duration::from_nanos(ns)),
            other => Err(strange(&other)),
        }
    }

    fn answer_of(&mut self, index: usize, what: &str, patience: Duration) -> Result<Answer, Problem> {
        self.crew.answer_of(index, Instant::now() + patience, &self.dead, what)
    }
}

fn strange(answer: &Answer) -> Problem {
    Problem::failed(format!("a process answered {answer:?}"))
}
