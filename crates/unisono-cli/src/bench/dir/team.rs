//! Controls the processes of one measured service, from the measuring process.

use super::folders::Folders;
use super::pair::Twin;
use super::steps::Kind;
use super::target::Target;
use super::worker::{Answer, Assignment, Instruction, Part, Seat, Task};
use crate::bench::rpc::worker::Loaded;
use crate::bench::side::UNTIMED;
use crate::location::Location;
use crate::problem::Problem;
use crate::processes::{Blow, Crew};
use crate::settings::Settings;
use crate::trial::lot;
use crate::worker;
use std::time::{Duration, Instant};
use unisono_dir::ROOT_FILE;

/// Time that an answer may take beyond its planned duration: 60 s.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of servers of the pair.
pub(super) const TWINS: usize = 2;

/// What a team is to be.
pub(super) struct Plan<'a> {
    pub(super) kind: Kind,
    /// Locations of the servers of our directory.
    pub(super) servers: &'a [Location],
    pub(super) clients: &'a [Location],
    pub(super) needs_one: bool,
    pub(super) settings: &'a Settings,
}

/// The processes of one service. Its servers, if it has any, come first, then its clients.
pub(super) struct Team {
    crew: Crew<Instruction, Answer>,
    service: String,
    settings: Settings,
    /// Index of each server's process.
    servers: Vec<usize>,
    clients: Vec<usize>,
    seats: Vec<Seat>,
    dead: Vec<usize>,
    _folders: Folders,
}

impl Team {
    /// Starts all processes and waits until they are ready.
    pub(super) fn start(plan: &Plan<'_>, folders: Folders) -> Result<Team, Problem> {
        let count = plan.servers.len() as u8;
        let seats = (1..=count).map(|id| {
            let name = format!("server-{id}");
            let (data, log_dir) = (folders.data(usize::from(id) - 1, &name), folders.log(&name));
            Seat { id, servers: count, data, log_dir, needs_one: plan.needs_one }
        });
        let seats: Vec<Seat> = seats.collect();
        let twin = |is_first: bool| {
            let name = if is_first { "first" } else { "second" };
            Twin {
                is_first,
                folder: folders.log(name).unwrap_or_else(|| folders.data(usize::from(!is_first), name)),
            }
        };
        let (parts, target): (Vec<Part>, Target) = match plan.kind {
            Kind::Directory => {
                let root = folders.data(0, "server-1").join(ROOT_FILE);
                (seats.iter().cloned().map(Part::Server).collect(), Target::Directory { root })
            }
            Kind::Pair => (vec![Part::Twin(twin(true)), Part::Twin(twin(false))], Target::Pair),
            Kind::Files => (Vec::new(), Target::Files { folder: folders.data(0, "files") }),
        };
        let mut team = Team {
            crew: Crew::new(),
            service: format!("bench-{:08x}", lot(1 << 32)?),
            settings: plan.settings.clone(),
            servers: Vec::new(),
            clients: Vec::new(),
            seats,
            dead: Vec::new(),
            _folders: folders,
        };
        for (part, location) in parts.into_iter().zip(plan.servers.iter().cycle()) {
            let index = team.launch(part, location)?;
            team.servers.push(index);
        }
        // The servers create the service together.
        for index in team.servers.clone() {
            team.readiness(index)?;
        }
        for (number, location) in plan.clients.iter().enumerate() {
            let index = team.launch(Part::Client { target: target.clone(), number }, location)?;
            // The first one makes what the others find.
            team.readiness(index)?;
            team.clients.push(index);
        }
        Ok(team)
    }

    fn launch(&mut self, part: Part, location: &Location) -> Result<usize, Problem> {
        let (service, settings) = (self.service.clone(), self.settings.clone());
        let assignment = Assignment { service, part, location: location.clone(), settings };
        Ok(self.crew.start(&worker::Assignment::Dir(assignment))?)
    }

    fn readiness(&mut self, index: usize) -> Result<Duration, Problem> {
        match self.answer_of(index, "a process to be ready", PATIENCE)? {
            Answer::Ready { took_ns } => Ok(Duration::from_nanos(took_ns)),
            other => Err(strange(&other)),
        }
    }

    pub(super) fn seats(&self) -> &[Seat] {
        &self.seats
    }

    /// Lets the first client do operations one at a time. Returns the time of each, in nanoseconds.
    pub(super) fn one_by_one(&mut self, task: Task, timed: usize) -> Result<Vec<u64>, Problem> {
        let client = self.clients[0];
        self.crew.instruct(client, &Instruction::OneByOne { task, untimed: UNTIMED, timed })?;
        match self.answer_of(client, "operations to be done", PATIENCE)? {
            Answer::Took(took) => Ok(took),
            other => Err(strange(&other)),
        }
    }

    /// Lets all clients keep this number of operations in flight, at the same time.
    pub(super) fn load(
        &mut self,
        task: Task,
        in_flight: usize,
        times: [Duration; 2],
    ) -> Result<Vec<Loaded>, Problem> {
        self.begin_load(task, in_flight, times)?;
        self.loaded(times)
    }

    pub(super) fn begin_load(
        &mut self,
        task: Task,
        in_flight: usize,
        [untimed, timed]: [Duration; 2],
    ) -> Result<(), Problem> {
        let [untimed_ms, timed_ms] = [untimed, timed].map(|time| time.as_millis() as u64);
        for client in &self.clients {
            self.crew.instruct(*client, &Instruction::Load { task, in_flight, untimed_ms, timed_ms })?;
        }
        Ok(())
    }

    /// Waits for the end of a load.
    pub(super) fn loaded(&mut self, [untimed, timed]: [Duration; 2]) -> Result<Vec<Loaded>, Problem> {
        let mut all = Vec::new();
        for client in self.clients.clone() {
            match self.answer_of(client, "operations to be done", PATIENCE + untimed + timed)? {
                Answer::Loaded(loaded) => all.push(loaded),
                other => return Err(strange(&other)),
            }
        }
        Ok(all)
    }

    /// Returns the number of requests that each server was given so far.
    pub(super) fn served(&mut self) -> Result<Vec<u64>, Problem> {
        let mut served = Vec::new();
        for server in self.servers.clone() {
            self.crew.instruct(server, &Instruction::CountServed)?;
            match self.answer_of(server, "a server's counters", PATIENCE)? {
                Answer::Served(requests) => served.push(requests),
                other => return Err(strange(&other)),
            }
        }
        Ok(served)
    }

    /// Lets the first client fill the logs by commands that change nothing.
    pub(super) fn fill_logs(&mut self, bytes: usize) -> Result<(), Problem> {
        self.have_done(self.clients[0], &Instruction::FillLog { bytes })
    }

    /// Lets the first client append rows.
    pub(super) fn append_rows(&mut self, from: u32, count: u32, in_flight: usize) -> Result<(), Problem> {
        self.have_done(self.clients[0], &Instruction::AppendRows { from, count, in_flight })
    }

    /// Ends all servers, as a signal does.
    pub(super) fn end_servers(&mut self) -> Result<(), Problem> {
        for server in self.servers.clone() {
            self.have_done(server, &Instruction::End)?;
        }
        Ok(())
    }

    fn have_done(&mut self, index: usize, instruction: &Instruction) -> Result<(), Problem> {
        self.crew.instruct(index, instruction)?;
        match self.answer_of(index, "a process", PATIENCE)? {
            Answer::Done => Ok(()),
            other => Err(strange(&other)),
        }
    }

    /// Kills all processes and leaves the folders.
    pub(super) fn dismiss(&mut self) {
        self.crew = Crew::new();
        (self.servers, self.clients) = (Vec::new(), Vec::new());
        self.dead.clear();
    }

    /// Kills a server.
    pub(super) fn kill(&mut self, server: usize) -> Result<(), Problem> {
        self.dead.push(self.servers[server]);
        self.crew.strike(self.servers[server], Blow::Kill)?;
        Ok(())
    }

    /// Starts a server again that was killed; [`Team::is_back`] says whether it serves.
    pub(super) fn start_again(&mut self, server: usize, location: &Location) -> Result<(), Problem> {
        self.servers[server] = self.launch(Part::Server(self.seats[server].clone()), location)?;
        Ok(())
    }

    /// Returns the time that a server took from its start until it serves; `None` while it does not yet.
    pub(super) fn is_back(&mut self, server: usize) -> Result<Option<Duration>, Problem> {
        let index = self.servers[server];
        match self.crew.has_answered(index, &self.dead)? {
            true => self.readiness(index).map(Some),
            false => Ok(None),
        }
    }

    fn answer_of(&mut self, index: usize, what: &str, patience: Duration) -> Result<Answer, Problem> {
        self.crew.answer_of(index, Instant::now() + patience, &self.dead, what)
    }
}

fn strange(answer: &Answer) -> Problem {
    Problem::failed(format!("a process answered {answer:?}"))
}
