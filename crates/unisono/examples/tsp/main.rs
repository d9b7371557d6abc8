//! The travelling salesman by branch and bound, in several processes that share the bound: the parallel program with
//! which the paper of 1989 (section 1) argues for ordered broadcast, and Orca's measurements (KT96, section 5) too.
//!
//! ```sh
//! cargo run --release -p unisono --example tsp              # 14 cities; 1 process, then one for each processor
//! cargo run --release -p unisono --example tsp -- 15 7 4    # 15 cities of seed 7; 1 process, then 4
//! ```
//!
//! The length of the best tour so far is read at nearly every step of the search, and changes a few dozen times. So it
//! is replicated: reading it is local ([`Replica::look`]), and an improvement is a command that all processes receive
//! in the same order. The subtrees of the search are jobs in the same state. The subtree of a process that dies goes
//! to another one.
//!
//! Nothing here has to outlive a crash at once: a lost improvement would be lost together with what came after it, also
//! the end of the subtree in which it was found. So commands are only ordered ([`Durability::Ordered`]), which is
//! faster than to wait until all members hold them.

mod cities;

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};
use unisono::replica::{
    Command, CommandFailure, Durability, Founding, NotRestored, Outcome, Replica, ReplicaOptions, Server,
    StateMachine,
};
use unisono::{Bytes, Formation, Options};

/// Number of cities whose order the search of a subtree tries without reading the shared bound between.
const TAIL: usize = 4;

/// The state that all processes share. A subtree is the tours that begin with city 0 and two other cities.
#[derive(Default, Serialize, Deserialize)]
struct Search {
    waiting: BTreeSet<u32>,
    /// Subtrees that are searched, each with the uid of its worker.
    taken: BTreeMap<u32, u64>,
    /// Length of the best tour so far: the bound.
    length: u32,
    tour: Vec<usize>,
}

impl Search {
    fn new(cities: u32) -> Search {
        let waiting = (0..(cities - 1) * (cities - 2)).collect();
        Search { waiting, length: u32::MAX, ..Search::default() }
    }

    fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.taken.is_empty()
    }

    /// Gives a worker a subtree: the one that it has, if it asks again because no reply came.
    fn take(&mut self, worker: &Server) -> String {
        let has = self.taken.iter().find(|(_, its)| **its == worker.uid.0).map(|(subtree, _)| *subtree);
        let Some(subtree) = has.or_else(|| self.waiting.pop_first()) else { return String::new() };
        self.taken.insert(subtree, worker.uid.0);
        subtree.to_string()
    }

    /// Ends a subtree if it still belongs to the worker. A worker that was excluded meanwhile may have searched with an
    /// improvement that was lost.
    fn finish(&mut self, subtree: u32, worker: &Server) {
        if self.taken.get(&subtree) == Some(&worker.uid.0) {
            self.taken.remove(&subtree);
        }
    }

    fn improve(&mut self, length: u32, tour: &str) {
        if length < self.length {
            self.length = length;
            self.tour = tour.split('-').filter_map(|city| city.parse().ok()).collect();
        }
    }
}

/// The search, and what wakes the worker of this process when it changes.
struct Shared {
    search: Search,
    changed: SyncSender<()>,
}

impl StateMachine for Shared {
    fn apply(&mut self, command: &Command<'_>) -> Outcome {
        let words = String::from_utf8_lossy(command.payload);
        let mut reply = String::new();
        match (&words.split(' ').collect::<Vec<_>>()[..], command.received_by) {
            (["take"], Some(worker)) => reply = self.search.take(worker),
            (["finish", subtree], Some(worker)) => {
                self.search.finish(subtree.parse().unwrap_or(u32::MAX), worker);
            }
            (["improve", length, tour], _) => self.search.improve(length.parse().unwrap_or(u32::MAX), tour),
            _ => return Outcome::Refuse("not a command, or its worker has gone".into()),
        }
        let _ = self.changed.try_send(());
        reply.into()
    }

    fn members(&mut self, members: &[Server]) {
        let gone = |worker| members.iter().all(|member| member.uid.0 != worker);
        let returned = self.search.taken.extract_if(.., |_, worker| gone(*worker));
        self.search.waiting.extend(returned.map(|(subtree, _)| subtree));
        let _ = self.changed.try_send(());
    }

    fn snapshot(&self) -> Vec<Bytes> {
        vec![serde_json::to_vec(&self.search).expect("numbers").into()]
    }

    fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
        let search = serde_json::from_slice(&parts.concat());
        self.search = search.map_err(|_| NotRestored("the state is no search"))?;
        let _ = self.changed.try_send(());
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [group, me, "--form", all, cities, seed] => work(group, me, all, cities.parse()?, seed.parse()?),
        [] => compare("14", "4", available_parallelism()?.get().max(2)),
        [cities, seed, processes] => compare(cities, seed, processes.parse()?),
        _ => Err("type nothing, or CITIES SEED PROCESSES".into()),
    }
}

// --- the one that starts the others ---

/// Prints the optimum, and how long one process and several take to find it.
fn compare(cities: &str, seed: &str, processes: usize) -> Result<(), Box<dyn Error>> {
    let alone = measure(cities, seed, 1)?;
    let together = measure(cities, seed, processes)?;
    println!("speed-up with {processes} processes: {:.2}", alone.as_secs_f64() / together.as_secs_f64());
    Ok(())
}

/// Starts the processes, and returns the time from when all are ready until all know the optimum.
fn measure(cities: &str, seed: &str, processes: usize) -> Result<Duration, Box<dyn Error>> {
    let group = format!("tsp-{}-{processes}", std::process::id());
    let names: Vec<String> = (0..processes).map(|index| format!("worker{index}")).collect();
    let all = names.join(",");
    let mut workers = Vec::new();
    for name in &names {
        let mut worker = std::process::Command::new(std::env::current_exe()?);
        worker.args([&group, name, "--form", &all, cities, seed]);
        let mut worker = worker.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = worker.stdout.take().ok_or("no output")?;
        workers.push((worker, BufReader::new(output)));
    }
    for (_, output) in &mut workers {
        line_with(output, "ready")?;
    }
    let began = Instant::now();
    for (worker, _) in &mut workers {
        worker.stdin.as_mut().ok_or("no input")?.write_all(b"go\n")?;
    }
    let mut optimum = String::new();
    for (_, output) in &mut workers {
        optimum = line_with(output, "optimum")?;
    }
    let took = began.elapsed();
    println!("{processes} processes: {optimum}, found and proved in {:.2} s", took.as_secs_f64());
    // The end of its input ends a worker.
    let mut ending: Vec<Child> = workers.into_iter().map(|(worker, _)| worker).collect();
    ending.iter_mut().for_each(|worker| drop(worker.stdin.take()));
    for mut worker in ending {
        worker.wait()?;
    }
    Ok(took)
}

fn line_with(output: &mut BufReader<ChildStdout>, word: &str) -> Result<String, Box<dyn Error>> {
    for line in output.lines() {
        let line = line?;
        if line.starts_with(word) {
            return Ok(line);
        }
    }
    Err("a worker has ended".into())
}

// --- a worker ---

fn work(group: &str, me: &str, all: &str, cities: usize, seed: u64) -> Result<(), Box<dyn Error>> {
    let formation = Formation::majority_of(all.split(',').map(str::parse).collect::<Result<_, _>>()?);
    let fast = ReplicaOptions { durability: Durability::Ordered, ..ReplicaOptions::default() };
    let options = Options { name: me.parse()?, ..Options::default() };
    let (changed, changes) = sync_channel(1);
    let shared = Shared { search: Search::new(cities as u32), changed };
    let shared = Replica::open(group, Founding::JoinOrForm(formation), shared, fast, &options)?;
    println!("ready");
    let mut lines = std::io::stdin().lines();
    lines.next().ok_or("no line")??;
    let mut worker = Worker { shared, changes, distances: cities::distances(cities, seed) };
    worker.run()?;
    let (length, tour) = worker.shared.look(|shared| (shared.search.length, shared.search.tour.clone()));
    println!("optimum {length} by {}", written(&tour));
    // The others may still need this member's answers.
    lines.for_each(drop);
    worker.shared.end(Duration::from_secs(1));
    Ok(())
}

fn written(tour: &[usize]) -> String {
    tour.iter().map(usize::to_string).collect::<Vec<_>>().join("-")
}

struct Worker {
    shared: Replica<Shared>,
    changes: Receiver<()>,
    distances: Vec<Vec<u32>>,
}

impl Worker {
    /// Searches subtrees until all are finished.
    fn run(&mut self) -> Result<(), CommandFailure> {
        while !self.shared.look(|shared| shared.search.is_over()) {
            let is_waiting = self.shared.look(|shared| !shared.search.waiting.is_empty());
            let reply = if is_waiting { self.ask("take".into())? } else { String::new() };
            match reply.parse::<usize>() {
                Ok(subtree) => {
                    println!("takes {subtree}");
                    self.search_subtree(subtree)?;
                    self.ask(format!("finish {subtree}"))?;
                }
                // The last subtrees are searched by others. One of them may come back.
                Err(_) => drop(self.changes.recv()),
            }
        }
        Ok(())
    }

    /// Gives a command until its outcome is known. All of them have the same effect if they are repeated.
    fn ask(&self, command: String) -> Result<String, CommandFailure> {
        loop {
            match self.shared.command(command.clone()) {
                Ok(done) => return Ok(String::from_utf8_lossy(&done.reply).into_owned()),
                Err(CommandFailure::Refused(_)) => return Ok(String::new()),
                Err(CommandFailure::Unknown) => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    fn search_subtree(&mut self, subtree: usize) -> Result<(), CommandFailure> {
        let cities = self.distances.len();
        let second = 1 + subtree / (cities - 2);
        let mut rest: Vec<usize> = (1..cities).filter(|city| *city != second).collect();
        let third = rest.remove(subtree % (cities - 2));
        let length = self.distances[0][second] + self.distances[second][third];
        let mut tour = vec![0, second, third];
        tour.append(&mut rest);
        let bound = self.bound();
        self.extend(&mut tour, 3, length, bound).map(drop)
    }

    fn bound(&self) -> u32 {
        self.shared.look(|shared| shared.search.length)
    }

    /// Tries all orders of the cities from `fixed` on, and returns the bound as it is afterwards.
    fn extend(
        &self,
        tour: &mut [usize],
        fixed: usize,
        length: u32,
        mut bound: u32,
    ) -> Result<u32, CommandFailure> {
        let last = tour[fixed - 1];
        if fixed == tour.len() {
            let length = length + self.distances[last][0];
            if length < bound {
                self.ask(format!("improve {length} {}", written(tour)))?;
                bound = self.bound();
            }
            return Ok(bound);
        }
        if tour.len() - fixed > TAIL {
            bound = self.bound();
        }
        for next in fixed..tour.len() {
            tour.swap(fixed, next);
            let length = length + self.distances[last][tour[fixed]];
            if length < bound {
                bound = self.extend(tour, fixed + 1, length, bound)?;
            }
            tour.swap(fixed, next);
        }
        Ok(bound)
    }
}
