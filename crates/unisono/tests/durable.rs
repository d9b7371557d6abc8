//! Servers on disk that are processes, under load: killed, stopped, beside a slow disk. What callers saw is judged from outside.
//!
//! The service keeps one list. An append answers with the place that its number got, a read with the length of the list. So the
//! answers say in which order everything took effect, and the judge need not search for one.
//!
//! The servers are this test program again. Their environment makes them servers; lines at their standard input say how long
//! their disk takes, and ask whether all three serve.

mod common;

use common::{PATIENCE, fresh_name, watchful};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::os::fd::{BorrowedFd, RawFd};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use unisono::replica::{
    Command as ReplicaCommand, DiskOptions, Kind, NotRestored, Outcome, Replica, ReplicaOptions,
    ReplicaState, StateMachine,
};
use unisono::rpc::{Client, Port, PrivatePort};
use unisono::{Bytes, Options, Transport};

const SERVICE: &str = "UNISONO_TEST_SERVICE";
const ID: &str = "UNISONO_TEST_ID";
const DATA: &str = "UNISONO_TEST_DATA";
/// Questions to a server, and an answer.
const SENT: &str = "how many datagrams have you sent?";
const ALL_SERVE: &str = "do all three serve?";
const SERVES: &str = "all three serve";
const SERVERS: usize = 3;
/// Callers, each with one call at a time.
const CALLERS: usize = 8;
/// One in this many calls only reads.
const READS_ONE_IN: u64 = 8;
const APPEND: u8 = b'+';
const LENGTH: &[u8] = b"length";
const ALL: &[u8] = b"all";
/// Numbers in a part of a snapshot.
const PART_NUMBERS: usize = 4096;

// --- the servers ---

/// Time that this process's disk takes for each sync besides, in milliseconds.
static SYNC_TAKES_MS: AtomicU64 = AtomicU64::new(0);

/// In place of the C library's function, which the standard library calls to sync a file.
#[unsafe(no_mangle)]
extern "C" fn fdatasync(file: RawFd) -> c_int {
    thread::sleep(Duration::from_millis(SYNC_TAKES_MS.load(Ordering::Relaxed)));
    // Sound: the caller has the file open during this call.
    let file = unsafe { BorrowedFd::borrow_raw(file) };
    rustix::fs::fdatasync(file).map_or(-1, |()| 0)
}

/// The list.
#[derive(Debug, Default)]
struct List(Vec<u64>);

impl StateMachine for List {
    fn kind(request: &[u8]) -> Kind {
        if request.first() == Some(&APPEND) { Kind::Command } else { Kind::Read }
    }

    fn apply(&mut self, command: &ReplicaCommand<'_>) -> Outcome {
        self.0.extend(command.payload[1..].first_chunk().map(|number| u64::from_be_bytes(*number)));
        Outcome::Reply(number(self.0.len() as u64 - 1))
    }

    fn read(&self, query: &Bytes) -> Outcome {
        Outcome::Reply(match &query[..] {
            ALL => bytes_of(&self.0),
            _ => number(self.0.len() as u64),
        })
    }

    fn snapshot(&self) -> Vec<Bytes> {
        self.0.chunks(PART_NUMBERS).map(bytes_of).collect()
    }

    fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
        self.0 = parts.iter().flat_map(numbers).collect();
        Ok(())
    }
}

fn number(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn bytes_of(numbers: &[u64]) -> Bytes {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

fn numbers(bytes: &Bytes) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|number| u64::from_be_bytes(*number)).collect()
}

/// A server process, until its standard input ends.
#[test]
fn server() {
    let Ok(name) = std::env::var(SERVICE) else { return };
    let variable = |name: &str| std::env::var(name).unwrap();
    let disk = DiskOptions::of_three(variable(ID).parse().unwrap(), variable(DATA));
    let settings = ReplicaOptions { open_within: Some(PATIENCE), ..ReplicaOptions::default() };
    let mut options = watchful();
    options.settings.transport = Transport::Multicast;
    let server = Replica::begin_on_disk(&name, disk, List::default(), settings, &options).unwrap();
    server.serve(&PrivatePort::from_name(&name)).unwrap();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        match line.parse() {
            Ok(takes_ms) => SYNC_TAKES_MS.store(takes_ms, Ordering::Relaxed),
            Err(_) if line == SENT => println!("\n{}", server.datagrams_sent()),
            Err(_) => {
                let all_serve = || {
                    let status = server.status();
                    status.state == ReplicaState::Serving && status.copies.len() == SERVERS
                };
                while !all_serve() {
                    thread::sleep(Duration::from_millis(5));
                }
                println!("\n{SERVES}");
            }
        }
    }
}

/// A server process that does not outlive the test.
struct Server {
    process: Child,
    said: BufReader<ChildStdout>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn say(&mut self, line: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }
}

/// A service of three servers, and its folders.
struct Service {
    name: String,
    folder: tempfile::TempDir,
    servers: BTreeMap<usize, Server>,
}

impl Service {
    fn begin(what: &str) -> Service {
        let (name, folder) = (fresh_name(what), tempfile::tempdir().unwrap());
        let mut service = Service { name, folder, servers: BTreeMap::new() };
        (1..=SERVERS).for_each(|id| service.start(id));
        service.until_all_serve();
        service
    }

    fn data(&self, id: usize) -> PathBuf {
        self.folder.path().join(id.to_string())
    }

    fn start(&mut self, id: usize) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "server", "--nocapture"]).env(SERVICE, &self.name);
        command.env(ID, id.to_string()).env(DATA, self.data(id));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        self.servers.insert(id, Server { process, said });
    }

    /// Ends servers by kill -9, all at the same time.
    fn kill(&mut self, ids: &[usize]) {
        ids.iter().for_each(|id| self.servers[id].signal(Signal::KILL));
        ids.iter().for_each(|id| drop(self.servers.remove(id)));
    }

    /// Lets each sync of a server's disk take this much longer.
    fn slow_down(&mut self, id: usize, takes_ms: u64) {
        self.servers.get_mut(&id).unwrap().say(&takes_ms.to_string());
    }

    /// Waits until all three serve.
    fn until_all_serve(&mut self) {
        for server in self.servers.values_mut() {
            server.say(ALL_SERVE);
            let mut lines = server.said.by_ref().lines();
            assert!(lines.any(|line| line.unwrap() == SERVES), "a server has ended");
        }
    }

    /// Returns the number of datagrams that all servers have sent.
    fn sent(&mut self) -> u64 {
        let sent = |server: &mut Server| -> u64 {
            server.say(SENT);
            let mut lines = server.said.by_ref().lines();
            lines.find_map(|line| line.unwrap().parse().ok()).expect("a server has ended")
        };
        self.servers.values_mut().map(sent).sum()
    }
}

// --- the callers ---

/// What an operation was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// This number has this place, if the answer came.
    Appended(u64, Option<u64>),
    /// The list has this length.
    Length(u64),
}

/// An operation, as its caller saw it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    began: Instant,
    ended: Instant,
    answer: Answer,
}

/// Callers that never pause, and what they saw.
struct Load {
    client: Client,
    port: Port,
    answered: AtomicU64,
    is_over: AtomicBool,
    seen: Mutex<Vec<Seen>>,
}

impl Load {
    /// Lets callers call while `act` acts, and judges what they saw.
    fn beside(service: &mut Service, act: impl FnOnce(&mut Service, &Load)) {
        let load = Arc::new(Load {
            client: Client::new(&Options::default()).unwrap(),
            port: PrivatePort::from_name(&service.name).public(),
            answered: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            seen: Mutex::default(),
        });
        let callers: Vec<_> = (0..CALLERS as u64)
            .map(|caller| {
                let load = load.clone();
                thread::spawn(move || load.call(caller))
            })
            .collect();
        act(service, &load);
        service.until_all_serve();
        load.is_over.store(true, Ordering::Relaxed);
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        let all = load.client.call_within(load.port, ALL, PATIENCE).unwrap();
        let seen = load.seen.lock().unwrap();
        println!("{} operations, {} of them answered", seen.len(), load.answered.load(Ordering::Relaxed));
        judge(&seen, &numbers(&all)).unwrap();
    }

    fn call(&self, caller: u64) {
        let mut seen = Vec::new();
        for count in 1.. {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let mine = caller << 32 | count;
            let (reads, began) = (count % READS_ONE_IN == 0, Instant::now());
            let request = match reads {
                true => Bytes::from_static(LENGTH),
                false => [&[APPEND][..], &mine.to_be_bytes()].concat().into(),
            };
            let reply = self.client.call_within(self.port, request, PATIENCE).ok();
            let reply = reply.map(|reply| u64::from_be_bytes(*reply.first_chunk().unwrap()));
            self.answered.fetch_add(u64::from(reply.is_some()), Ordering::Relaxed);
            let answer = match (reads, reply) {
                (true, None) => continue,
                (true, Some(length)) => Answer::Length(length),
                (false, place) => Answer::Appended(mine, place),
            };
            seen.push(Seen { began, ended: Instant::now(), answer });
        }
        self.seen.lock().unwrap().extend(seen);
    }

    /// Waits until this number of operations more were answered. Returns how many were answered in a second.
    fn answers(&self, more: u64) -> f64 {
        let (begun, before) = (Instant::now(), self.answered.load(Ordering::Relaxed));
        let (mut answered, mut since) = (0, begun);
        while answered < more {
            thread::sleep(Duration::from_millis(1));
            let now = self.answered.load(Ordering::Relaxed) - before;
            if std::mem::replace(&mut answered, now) < now {
                since = Instant::now();
            }
            assert!(since.elapsed() < PATIENCE, "no answers");
        }
        more as f64 / begun.elapsed().as_secs_f64()
    }
}

// --- the judge ---

/// Says what is wrong with what callers saw, if the list has these numbers in the end. The answers are right exactly if an order
/// explains them in which each append took effect once, and everything between its beginning and its end.
fn judge(seen: &[Seen], all: &[u64]) -> Result<(), String> {
    let places: BTreeMap<u64, u64> = all.iter().copied().zip(0..).collect();
    if places.len() < all.len() {
        return Err("a number was appended twice".into());
    }
    let begun: BTreeSet<u64> = seen
        .iter()
        .filter_map(|seen| match seen.answer {
            Answer::Appended(number, _) => Some(number),
            Answer::Length(_) => None,
        })
        .collect();
    if let Some(number) = all.iter().find(|number| !begun.contains(number)) {
        return Err(format!("no caller appended {number}"));
    }
    // Where each operation is in the order: the append at place p between the reads of the lengths p and p + 1.
    let mut placed = Vec::new();
    for Seen { began, ended, answer } in seen {
        match *answer {
            Answer::Length(length) => placed.push((*began, Some(*ended), 2 * length)),
            Answer::Appended(number, said) => match (said, places.get(&number)) {
                (None, None) => {}
                // It took effect, and its caller did not learn when.
                (None, Some(place)) => placed.push((*began, None, 2 * place + 1)),
                (Some(said), Some(place)) if said == *place => {
                    placed.push((*began, Some(*ended), 2 * place + 1))
                }
                (said, place) => {
                    return Err(format!("{number} was said to be at {said:?} and is at {place:?}"));
                }
            },
        }
    }
    let mut ends: Vec<(Instant, u64)> =
        placed.iter().filter_map(|(_, ended, at)| ended.map(|ended| (ended, *at))).collect();
    ends.sort_unstable();
    placed.sort_unstable();
    let (mut ends, mut latest) = (ends.into_iter().peekable(), 0);
    for (began, _, at) in placed {
        while let Some((_, ended_at)) = ends.next_if(|(ended, _)| *ended < began) {
            latest = ended_at.max(latest);
        }
        if at < latest {
            return Err(format!("an operation at {at} began when one at {latest} had ended"));
        }
    }
    let longest = longest_read(seen);
    if longest > all.len() as u64 {
        return Err(format!("a read saw {longest} numbers of {}", all.len()));
    }
    Ok(())
}

/// Returns the greatest length that a read saw.
fn longest_read(seen: &[Seen]) -> u64 {
    let lengths = seen.iter().map(|seen| match seen.answer {
        Answer::Length(length) => length,
        Answer::Appended(..) => 0,
    });
    lengths.max().unwrap_or(0)
}

#[test]
fn the_judge_finds_what_is_lost_doubled_stale_or_out_of_order() {
    let origin = Instant::now();
    let seen = |began, ended, answer| Seen {
        began: origin + Duration::from_millis(began),
        ended: origin + Duration::from_millis(ended),
        answer,
    };
    use Answer::{Appended, Length};
    let good = [
        seen(0, 10, Appended(7, Some(1))),
        seen(5, 15, Appended(8, Some(0))),
        seen(12, 13, Length(2)),
        seen(16, 20, Appended(9, None)),
        seen(18, 19, Length(2)),
        seen(21, 22, Length(3)),
        seen(23, 24, Appended(10, None)),
    ];
    assert_eq!(judge(&good, &[8, 7, 9]), Ok(()));
    assert_eq!(judge(&good[..5], &[8, 7]), Ok(()));
    for (all, wrong) in [
        (&[8, 9, 7][..], "another place than was answered"),
        (&[8], "lost"),
        (&[8, 7, 9, 8], "doubled"),
        (&[8, 7, 9, 11], "of no caller"),
        (&[8, 7], "seen by a read, and gone"),
    ] {
        assert!(judge(&good, all).is_err(), "{wrong}");
    }
    let with = |answer| [&good[..4], &[seen(30, 31, answer)]].concat();
    assert_eq!(judge(&with(Length(2)), &[8, 7]), Ok(()));
    assert!(judge(&with(Length(1)), &[8, 7]).is_err(), "a stale read");
    let late = [seen(0, 1, Appended(1, Some(1))), seen(2, 3, Appended(2, Some(0)))];
    assert!(judge(&late, &[2, 1]).is_err(), "the later append is first");
    let unknown = [seen(0, 1, Length(1)), seen(2, 3, Appended(1, None))];
    assert!(judge(&unknown, &[1]).is_err(), "it was read before it began");
}

// --- what is tortured ---

/// Answers after each fault before the next one.
const ANSWERS: u64 = 200;

#[test]
fn answers_survive_kills_of_any_and_all_and_pauses_of_each_under_load() {
    let mut service = Service::begin("tortured");
    Load::beside(&mut service, |service, load| {
        load.answers(ANSWERS);
        // Each has a role of its own: the sequencer, the next by rank, the last.
        for id in 1..=SERVERS {
            service.kill(&[id]);
            load.answers(ANSWERS);
            service.start(id);
            load.answers(ANSWERS);
            service.until_all_serve();
        }
        for id in 1..=SERVERS {
            service.servers[&id].signal(Signal::STOP);
            load.answers(ANSWERS);
            service.servers[&id].signal(Signal::CONT);
            load.answers(ANSWERS);
            service.until_all_serve();
        }
        service.kill(&[1, 2, 3]);
        (1..=SERVERS).for_each(|id| service.start(id));
        load.answers(ANSWERS);
    });
}

/// Maximum number of datagrams of one command, of servers and caller. A command takes 7 on an idle machine, and 9 to 12 beside
/// other tests on two processors, where fewer notes go with another datagram. With an announcement of each server in the order it
/// took 25.
const DATAGRAMS_MAX: f64 = 16.0;
/// Commands whose datagrams are counted.
const COUNTED: u64 = 300;

#[test]
fn a_durable_command_costs_few_datagrams() {
    let mut service = Service::begin("datagrams");
    let client = Client::new(&Options::default()).unwrap();
    let port = PrivatePort::from_name(&service.name).public();
    let append = |number: u64| {
        let request = [&[APPEND][..], &number.to_be_bytes()].concat();
        client.call_within(port, request, PATIENCE).unwrap();
    };
    append(0);
    let mut counts = Vec::new();
    for _ in 0..TRIES {
        let before = service.sent() + client.counters().datagrams_sent;
        (0..COUNTED).for_each(append);
        let sent = service.sent() + client.counters().datagrams_sent - before;
        counts.push(sent as f64 / COUNTED as f64);
        if counts.last().is_some_and(|count| *count <= DATAGRAMS_MAX) {
            println!("{counts:?} datagrams per command");
            return;
        }
    }
    panic!("{counts:?} datagrams per command");
}

/// A disk that is slow takes this long for a sync.
const SLOW_MS: u64 = 50;
/// Answers whose rate is measured. The disks of all machines bring them in less than a second.
const MEASURED: u64 = 1000;
/// The same where two disks are slow.
const MEASURED_SLOW: u64 = 30;
/// Tries at a rate: other work on the machine may take the processors from one.
const TRIES: usize = 3;

#[test]
fn one_slow_disk_or_one_returning_server_leaves_the_others_their_pace() {
    let mut service = Service::begin("pace");
    Load::beside(&mut service, |service, load| {
        load.answers(MEASURED);
        let mut slow = 0;
        keeps_pace("beside a slow disk", 0.4, || {
            slow = slow % SERVERS + 1;
            let before = load.answers(MEASURED);
            service.slow_down(slow, SLOW_MS);
            let beside = load.answers(MEASURED);
            service.slow_down(slow, 0);
            (beside, before.min(load.answers(MEASURED)))
        });
        let before = load.answers(MEASURED);
        (1..SERVERS).for_each(|id| service.slow_down(id, SLOW_MS));
        // What was synced before does not count.
        load.answers(2 * CALLERS as u64);
        let held_up = load.answers(MEASURED_SLOW);
        (1..SERVERS).for_each(|id| service.slow_down(id, 0));
        assert!(
            held_up < before / 2.0 && held_up < 2.0 * CALLERS as f64 * 1000.0 / SLOW_MS as f64,
            "{held_up:.0} of {before:.0} answers a second: a majority has two disks"
        );
        let mut victim = 0;
        keeps_pace("beside a returning server", 0.25, || {
            victim = victim % SERVERS + 1;
            service.kill(&[victim]);
            load.answers(MEASURED);
            let alone = load.answers(MEASURED);
            let (before, begun) = (load.answered.load(Ordering::Relaxed), Instant::now());
            service.start(victim);
            service.until_all_serve();
            let answered = load.answered.load(Ordering::Relaxed) - before;
            (answered as f64 / begun.elapsed().as_secs_f64(), alone)
        });
    });
}

/// Checks that a rate is at least this share of another one. Both are per second.
fn keeps_pace(what: &str, least: f64, mut measure: impl FnMut() -> (f64, f64)) {
    let mut ratios = Vec::new();
    for _ in 0..TRIES {
        let (rate, of) = measure();
        println!("{what}: {rate:.0} of {of:.0} a second");
        ratios.push(rate / of);
        if rate >= least * of {
            return;
        }
    }
    panic!("{what}: {ratios:?} of the rate before");
}
