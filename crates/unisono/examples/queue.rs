//! A work queue that several processes share. The job of a worker that dies goes to another one, and the result of each
//! job is recorded once.
//!
//! Start it in three terminals, and type numbers in any of them. Each is a job: find its smallest factor.
//!
//! ```sh
//! cargo run -p unisono --example queue -- home ann --form ann,bob,cleo
//! cargo run -p unisono --example queue -- home bob --form ann,bob,cleo
//! cargo run -p unisono --example queue -- home cleo --form ann,bob,cleo
//! ```
//!
//! `10000004400000259` is a job of about half a second, and `1000000016000000063` one of several seconds: kill the
//! worker that works on it. `results` prints what was recorded.
//!
//! The queue is a state machine. Its method `members` is called when a worker joins, leaves, crashes or is excluded, at
//! the same place between the commands at all members; there the jobs of a worker that has gone return to the queue. A
//! worker that was excluded although it lives may finish its job too, so a job may be done twice: the first result is
//! recorded, and the other one is refused.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use unisono::replica::{
    Command, CommandFailure, NotRestored, Outcome, Position, Replica, ReplicaState, Server, StateMachine,
};
use unisono::{Bytes, Formation, Options};

/// The state that all members keep. The id of a job is the position of the command that added it.
#[derive(Default, Serialize, Deserialize)]
struct Jobs {
    waiting: BTreeMap<Position, u64>,
    /// Jobs that are worked on, each with the uid of its worker.
    taken: BTreeMap<Position, (u64, u64)>,
    results: BTreeMap<Position, String>,
}

impl Jobs {
    /// Gives a worker a job: the one that it has, if it asks again because no reply came.
    fn take(&mut self, worker: &Server) -> String {
        let has = self.taken.iter().find(|(_, (_, its))| *its == worker.uid.0);
        let job = has.map(|(id, (number, _))| (*id, *number)).or_else(|| self.waiting.pop_first());
        let Some((id, number)) = job else { return String::new() };
        self.taken.insert(id, (number, worker.uid.0));
        format!("{id} {number}")
    }

    fn finish(&mut self, id: Position, result: &str) -> Result<(), &'static str> {
        let returned = self.waiting.remove(&id);
        let number = returned.or_else(|| self.taken.remove(&id).map(|(number, _)| number));
        let number = number.ok_or("this job is done already")?;
        self.results.insert(id, format!("{number} {result}"));
        Ok(())
    }

    /// Returns the number of jobs that are not done.
    fn rest(&self) -> usize {
        self.waiting.len() + self.taken.len()
    }

    fn return_jobs_of_the_gone(&mut self, members: &[Server]) {
        let gone = |worker| members.iter().all(|member| member.uid.0 != worker);
        let returned = self.taken.extract_if(.., |_, (_, worker)| gone(*worker));
        self.waiting.extend(returned.map(|(id, (number, _))| (id, number)));
    }
}

/// The jobs, and what wakes the worker of this process when they change.
struct Queue {
    jobs: Jobs,
    changed: SyncSender<()>,
}

impl Queue {
    fn note(&self) {
        // The channel has one place. If it is taken, the worker is about to look anyway.
        let _ = self.changed.try_send(());
    }
}

impl StateMachine for Queue {
    fn apply(&mut self, command: &Command<'_>) -> Outcome {
        let words = String::from_utf8_lossy(command.payload);
        let reply = match (&words.split(' ').collect::<Vec<_>>()[..], command.received_by) {
            (["add", number], _) => match number.parse() {
                Ok(number) => {
                    self.jobs.waiting.insert(command.position, number);
                    command.position.to_string()
                }
                Err(_) => return Outcome::Refuse("type a number, or `results`".into()),
            },
            (["take"], Some(worker)) => self.jobs.take(worker),
            (["finish", id, result], _) => match self.jobs.finish(id.parse().unwrap_or(0), result) {
                Ok(()) => String::new(),
                Err(reason) => return Outcome::Refuse(reason.into()),
            },
            _ => return Outcome::Refuse("not a command, or its worker has gone".into()),
        };
        self.note();
        reply.into()
    }

    fn members(&mut self, members: &[Server]) {
        self.jobs.return_jobs_of_the_gone(members);
        self.note();
    }

    fn snapshot(&self) -> Vec<Bytes> {
        vec![serde_json::to_vec(&self.jobs).expect("maps from numbers").into()]
    }

    fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
        let jobs = serde_json::from_slice(&parts.concat());
        self.jobs = jobs.map_err(|_| NotRestored("the state is no queue"))?;
        self.note();
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, group, me, _, all] = &args[..] else { return Err("type GROUP NAME --form NAMES".into()) };
    let formation = Formation::majority_of(all.split(',').map(str::parse).collect::<Result<_, _>>()?);
    let options = Options { name: me.parse()?, ..Options::default() };
    let (changed, changes) = sync_channel(1);
    let queue = Replica::join_or_form(group, formation, Queue { jobs: Jobs::default(), changed }, &options)?;
    println!("entered");
    let worker = queue.clone();
    thread::spawn(move || work(&worker, &changes));
    for line in std::io::stdin().lines() {
        let line = line?;
        if line == "results" {
            // All that were recorded before this line was typed, by any member.
            let (results, rest) = queue.read(|queue| (queue.jobs.results.clone(), queue.jobs.rest()))?;
            results.iter().for_each(|(id, result)| println!("result {id}: {result}"));
            println!("not done: {rest}");
        } else {
            match queue.command(format!("add {line}")) {
                Ok(done) => println!("added {}", String::from_utf8_lossy(&done.reply)),
                Err(failure) => println!("{failure}"),
            }
        }
    }
    queue.end(std::time::Duration::from_secs(1));
    Ok(())
}

/// Works until the replica ends.
fn work(queue: &Replica<Queue>, changes: &Receiver<()>) {
    while queue.status().state != ReplicaState::Ended {
        let is_empty = queue.look(|queue| queue.jobs.waiting.is_empty());
        let job = if is_empty { String::new() } else { ask(queue, "take").unwrap_or_default() };
        let Some((id, number)) = job.split_once(' ') else {
            // No job, or another worker was faster.
            let _ = changes.recv();
            continue;
        };
        println!("works on {id}");
        let factor = smallest_factor(number.parse().unwrap_or(0));
        match ask(queue, &format!("finish {id} {factor}")) {
            Ok(_) => println!("recorded {id}"),
            Err(failure) => println!("not recorded {id}: {failure}"),
        }
    }
}

/// Gives a command until its outcome is known. Both commands of a worker have the same effect if they are repeated.
fn ask(queue: &Replica<Queue>, command: &str) -> Result<String, CommandFailure> {
    loop {
        match queue.command(command.to_owned()) {
            Ok(done) => return Ok(String::from_utf8_lossy(&done.reply).into_owned()),
            Err(CommandFailure::Unknown) if queue.status().state != ReplicaState::Ended => {}
            Err(failure) => return Err(failure),
        }
    }
}

/// Returns the smallest factor of a number above 1, by trying all.
fn smallest_factor(number: u64) -> u64 {
    let odd = (3..).step_by(2).take_while(|factor: &u64| factor.saturating_mul(*factor) <= number);
    std::iter::once(2).chain(odd).find(|factor| number.is_multiple_of(*factor)).unwrap_or(number)
}
