//! The examples of replicas as processes, of which some are killed with `kill -9` and others stopped for a while.
//!
//! `cargo test` builds the examples before it runs this. `cargo test --test examples` does not: add `--examples`.

mod common;

// The test and the example read the same map.
#[path = "../examples/tsp/cities.rs"]
mod cities;

use common::{PATIENCE, fresh_name};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const NAMES: [&str; 3] = ["ann", "bob", "cleo"];
/// Time for which a process is stopped: longer than the others take to exclude it.
const STOPPED: Duration = Duration::from_secs(1);

/// A process that does not outlive the test.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processes of one example, and the lines that they print.
struct Processes {
    example: &'static str,
    running: BTreeMap<usize, Process>,
    /// Lines of all processes in the order in which they arrived, each with the number of its process.
    log: Vec<(usize, String)>,
    lines: Receiver<(usize, String)>,
    printed: Sender<(usize, String)>,
    /// Tests take turns: the processes of one already keep a small machine busy.
    _turn: MutexGuard<'static, ()>,
}

impl Processes {
    fn of(example: &'static str) -> Processes {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (printed, lines) = channel();
        Processes { example, running: BTreeMap::new(), log: Vec::new(), lines, printed, _turn: turn }
    }

    /// Starts a process. Its number is free again once it was killed.
    fn start(&mut self, number: usize, arguments: &[&str]) {
        let mut command = Command::new(program(self.example));
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        self.follow(number, "", child.stdout.take().unwrap());
        self.follow(number, "error: ", child.stderr.take().unwrap());
        let process = Process { input: child.stdin.take(), child };
        assert!(self.running.insert(number, process).is_none(), "process {number} runs");
    }

    fn follow(&self, number: usize, mark: &'static str, output: impl Read + Send + 'static) {
        let printed = self.printed.clone();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if printed.send((number, format!("{mark}{line}"))).is_err() {
                    return;
                }
            }
        });
    }

    /// Starts the member with this number.
    fn join(&mut self, group: &str, number: usize, more: &[&str]) {
        let all = NAMES.join(",");
        self.start(number, &[&[group, NAMES[number], "--form", &all], more].concat());
    }

    /// Starts all members.
    fn form(&mut self, group: &str, more: &[&str]) {
        (0..NAMES.len()).for_each(|number| self.join(group, number, more));
    }

    fn numbers(&self) -> Vec<usize> {
        self.running.keys().copied().collect()
    }

    fn type_in(&mut self, number: usize, line: &str) {
        let input = self.running.get_mut(&number).unwrap().input.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
    }

    /// Closes the input of a process, which makes it leave.
    fn close(&mut self, number: usize) {
        drop(self.running.get_mut(&number).unwrap().input.take());
    }

    /// Kills a process with SIGKILL, and waits until it is dead.
    fn kill(&mut self, number: usize) {
        drop(self.running.remove(&number).unwrap());
    }

    fn signal(&self, number: usize, signal: Signal) {
        kill_process(Pid::from_child(&self.running[&number].child), signal).unwrap();
    }

    fn stop(&self, number: usize) {
        self.signal(number, Signal::STOP);
    }

    fn go_on(&self, number: usize) {
        self.signal(number, Signal::CONT);
    }

    /// Stops a process for [`STOPPED`].
    fn stop_for_a_while(&self, number: usize) {
        self.stop(number);
        thread::sleep(STOPPED);
        self.go_on(number);
    }

    /// Returns the number of lines so far: later lines are those from this index on.
    fn mark(&mut self) -> usize {
        self.log.extend(self.lines.try_iter());
        self.log.len()
    }

    /// Waits until the lines from index `since` on contain what is `wanted`.
    fn until<T>(
        &mut self,
        since: usize,
        what: &str,
        wanted: impl FnMut(&[(usize, String)]) -> Option<T>,
    ) -> T {
        self.within(PATIENCE, since, wanted).unwrap_or_else(|| panic!("no {what}; lines: {:#?}", self.log))
    }

    fn within<T>(
        &mut self,
        time: Duration,
        since: usize,
        mut wanted: impl FnMut(&[(usize, String)]) -> Option<T>,
    ) -> Option<T> {
        let begin = Instant::now();
        self.mark();
        loop {
            if let Some(found) = wanted(&self.log[since..]) {
                return Some(found);
            }
            let rest = time.checked_sub(begin.elapsed())?;
            self.log.push(self.lines.recv_timeout(rest).ok()?);
        }
    }

    /// Waits for a line of this process that begins with `prefix`, and returns the rest of it.
    fn line(&mut self, since: usize, number: usize, prefix: &str) -> String {
        let what = format!("line `{prefix}` of process {number}");
        self.until(since, &what, |log| {
            log.iter().find_map(|(its, line)| {
                line.strip_prefix(prefix).filter(|_| *its == number).map(String::from)
            })
        })
    }

    /// Types a line, and returns the rest of the answer that begins with `prefix`.
    fn ask(&mut self, number: usize, line: &str, prefix: &str) -> String {
        let since = self.mark();
        self.type_in(number, line);
        self.line(since, number, prefix)
    }
}

/// Returns the file of an example, beside which cargo puts this test.
fn program(example: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(example);
    assert!(path.exists(), "{} is missing: test with `--examples`", path.display());
    path
}

// --- counter ---

#[test]
fn the_counter_keeps_what_was_added() {
    let group = &fresh_name("counter");
    let mut counter = Processes::of("counter");
    counter.form(group, &[]);
    for number in 0..3 {
        counter.line(0, number, "the counter is at ");
    }
    let mut sum = 0;
    let mut add = |counter: &mut Processes, number, amount: i64| {
        sum += amount;
        assert_eq!(counter.ask(number, &amount.to_string(), ""), sum.to_string());
        sum
    };
    for number in 0..3 {
        add(&mut counter, number, 1 << number);
    }
    counter.kill(0);
    add(&mut counter, 1, 10);
    // A newcomer gets the value although one of those that have it leaves.
    let since = counter.mark();
    counter.join(group, 0, &[]);
    counter.close(1);
    let sum = add(&mut counter, 2, 100);
    counter.line(since, 0, "the counter is at ");
    // Its value may be one from before the last addition; what it adds to it is not.
    assert_eq!(counter.ask(0, "0", ""), sum.to_string());
    counter.kill(1);
    let since = counter.mark();
    counter.join(group, 1, &[]);
    counter.line(since, 1, "the counter is at ");
    counter.stop_for_a_while(2);
    assert_eq!(counter.ask(2, "1000", ""), (sum + 1000).to_string());
    // Any process may call.
    counter.start(3, &[group, "add", "-7"]);
    assert_eq!(counter.line(0, 3, ""), (sum + 993).to_string());
}

// --- map ---

// --- desk ---

#[test]
fn the_desk_goes_to_the_next_when_the_process_at_it_is_killed() {
    let group = &fresh_name("desk");
    let mut desk = Processes::of("desk");
    desk.form(group, &[]);
    for number in desk.numbers() {
        desk.line(0, number, "the desk has served ");
    }
    let ask = |desk: &mut Processes, number, ticket: u64| {
        let since = desk.mark();
        desk.start(number, &[group, "ask", "why?"]);
        desk.line(since, number, &format!("ticket {ticket}, \"why?\": served by "))
    };
    let first = ask(&mut desk, 3, 1);
    assert_eq!(ask(&mut desk, 4, 2), first);
    let holder = NAMES.iter().position(|name| *name == first).unwrap();
    desk.kill(holder);
    let second = ask(&mut desk, 5, 3);
    assert_ne!(second, first);
    assert_eq!(ask(&mut desk, 6, 4), second);
}

fn http(method: &str, address: SocketAddr, path: &str, body: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let status = reply.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = reply.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    status.zip(body).ok_or_else(|| std::io::Error::other(format!("not a reply: {reply:?}")))
}

/// Writes new keys until `over`, and hands on each that was acknowledged.
fn write_keys(address: SocketAddr, over: &AtomicBool, acknowledged: &Sender<String>) {
    for count in 0.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let key = format!("/key{count}");
        if let Ok((200, previous)) = http("PUT", address, &key, &format!("value of {key}")) {
            assert_eq!(previous, "");
            acknowledged.send(key).unwrap();
        }
    }
}

#[test]
fn the_map_keeps_what_was_acknowledged() {
    let group = &fresh_name("map");
    let mut map = Processes::of("map");
    map.form(group, &["127.0.0.1:0"]);
    let address = |map: &mut Processes, since, number| -> SocketAddr {
        map.line(since, number, "serving at ").parse().unwrap()
    };
    let addresses = [0, 1, 2].map(|number| address(&mut map, 0, number));
    let over = AtomicBool::new(false);
    let (acknowledged, keys) = channel();
    let mut written = Vec::new();
    let mut more = |count: usize| {
        written.extend((0..count).map(|_| keys.recv_timeout(PATIENCE).expect("a write is acknowledged")));
        written.clone()
    };
    thread::scope(|scope| {
        let writer = scope.spawn(|| write_keys(addresses[0], &over, &acknowledged));
        more(20);
        map.kill(1);
        more(20);
        map.stop_for_a_while(2);
        more(20);
        over.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
    let mut written = more(0);
    written.extend(keys.try_iter());
    let get = |address, path: &str| http("GET", address, path, "").unwrap();
    for key in &written {
        assert_eq!(get(addresses[2], key), (200, format!("value of {key}")));
    }
    let since = map.mark();
    map.join(group, 1, &["127.0.0.1:0"]);
    let newcomer = address(&mut map, since, 1);
    for key in &written {
        assert_eq!(get(newcomer, &format!("{key}?local")), (200, format!("value of {key}")));
    }
    assert_eq!(http("DELETE", newcomer, "/key0", "").unwrap(), (200, "value of /key0".into()));
    assert_eq!(get(addresses[0], "/key0").0, 404);
    assert_eq!(get(addresses[0], "/key1").0, 200);
}

// --- ledger ---

/// Addresses of this machine that no process uses at present.
fn free_addresses() -> [String; 3] {
    let sockets = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    sockets.map(|socket| socket.local_addr().unwrap().to_string())
}

#[test]
fn the_ledger_outlives_the_crash_of_all_its_servers() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let key = path("key");
    unisono::Key::generate().unwrap().write_new(&key).unwrap();
    let addresses = free_addresses();
    let seeds = addresses.join(",");
    let mut ledger = Processes::of("ledger");
    let serve = |ledger: &mut Processes, number: usize| {
        let id = (number + 1).to_string();
        ledger.start(number, &["serve", &id, &path(&id), &key, &addresses[number], &seeds]);
    };
    serve(&mut ledger, 0);
    // Alone it waits, and says for which servers.
    let waits = format!("error: server 1, at {}, waits for servers ", addresses[0]);
    assert_eq!(ledger.line(0, 0, &waits), "2, 3");
    (1..3).for_each(|number| serve(&mut ledger, number));
    (0..3).for_each(|number| drop(ledger.line(0, number, "server ")));
    assert_eq!(ledger.ask(0, "ann 5", ""), "5");
    ledger.start(3, &["add", "ann", "-7", &key, &seeds]);
    assert_eq!(ledger.line(0, 3, ""), "-2");
    assert_eq!(ledger.ask(1, "ann", ""), "-2");
    (0..3).for_each(|number| ledger.kill(number));
    // Any two of them have everything that was answered.
    let since = ledger.mark();
    [2, 1].into_iter().for_each(|number| serve(&mut ledger, number));
    ledger.line(since, 2, "server ");
    assert_eq!(ledger.ask(2, "ann", ""), "-2");
    assert_eq!(ledger.ask(2, "ann 3", ""), "1");
    // After the first start an empty folder is a disk that is not mounted.
    let (since, none) = (ledger.mark(), path("none"));
    ledger.start(4, &["serve", "1", &none, &key, &addresses[0], &seeds, "--existing"]);
    let refused = ledger.line(since, 4, "error: the folder ");
    assert!(refused.contains("DiskOptions::existing"), "{refused}");
    ledger.start(5, &["serve", "x", &none, &key, &addresses[0], &seeds]);
    ledger.line(since, 5, "error: ID is 1, 2 or 3, not x");
}

// --- lock ---

/// What the leader's work reaches: refuses a fence lower than one that it has received.
#[derive(Default)]
struct Resource {
    highest: u64,
    /// The process of each fence.
    leaders: BTreeMap<u64, usize>,
}

impl Resource {
    /// Takes the answers to a line of work, and returns how many were accepted.
    fn take(&mut self, answers: &[(usize, Option<u64>)]) -> usize {
        let done = answers.iter().filter_map(|(number, fence)| fence.map(|fence| (*number, fence)));
        let mut accepted = 0;
        for (number, fence) in done {
            assert_eq!(
                *self.leaders.entry(fence).or_insert(number),
                number,
                "two leaders with fence {fence}"
            );
            accepted += usize::from(fence >= self.highest);
            self.highest = fence.max(self.highest);
        }
        accepted
    }
}

/// Waits until each of the processes has answered this line of work; returns the fence of each that did it.
fn answers(lock: &mut Processes, since: usize, numbers: &[usize], work: &str) -> Vec<(usize, Option<u64>)> {
    lock.until(since, "answer to work", |log| {
        let answers = log.iter().filter_map(|(number, line)| {
            let (how, its) = line.split_once(": ")?;
            let fence = how.strip_prefix("done with fence ").map(|fence| fence.parse().unwrap());
            (its == work).then_some((*number, fence))
        });
        let answers: Vec<_> = answers.collect();
        (answers.len() == numbers.len()).then_some(answers)
    })
}

/// Gives all processes the same work until one does it. No two do.
fn work_once(lock: &mut Processes, resource: &mut Resource) {
    for attempt in 0.. {
        assert!(attempt < 1000, "no process leads: {:#?}", lock.log);
        let (since, numbers, work) = (lock.mark(), lock.numbers(), format!("work{attempt}"));
        numbers.iter().for_each(|number| lock.type_in(*number, &work));
        let answers = answers(lock, since, &numbers, &work);
        let done = answers.iter().filter(|(_, fence)| fence.is_some()).count();
        match resource.take(&answers) {
            0 => thread::yield_now(),
            accepted => {
                // The election may change in between; then the fences differ.
                assert!(accepted == done || accepted == 1, "{answers:?}");
                return;
            }
        }
    }
}

/// Waits until a process other than `not` leads with a fence above `above`, and returns it with the fence.
fn leads(lock: &mut Processes, time: Duration, not: Option<usize>, above: u64) -> Option<(usize, u64)> {
    let running = lock.numbers();
    lock.within(time, 0, |log| {
        log.iter().rev().find_map(|(number, line)| {
            let fence: u64 = line.strip_prefix("leading with fence ")?.parse().unwrap();
            (running.contains(number) && Some(*number) != not && fence > above).then_some((*number, fence))
        })
    })
}

#[test]
fn one_leader_acts_at_a_time() {
    let group = &fresh_name("lock");
    let mut lock = Processes::of("lock");
    let mut resource = Resource::default();
    lock.form(group, &[]);
    (0..3).for_each(|number| drop(lock.line(0, number, "entered")));
    work_once(&mut lock, &mut resource);

    // The leader is killed.
    let killed = resource.leaders[&resource.highest];
    lock.kill(killed);
    leads(&mut lock, PATIENCE, None, resource.highest).expect("another leader");
    work_once(&mut lock, &mut resource);
    let since = lock.mark();
    lock.join(group, killed, &[]);
    lock.line(since, killed, "entered");

    // The leader is stopped, and works on when it comes back.
    let (stopped, since) = (0..)
        .find_map(|attempt| {
            assert!(attempt < 5, "no other leader: {:#?}", lock.log);
            work_once(&mut lock, &mut resource);
            let (leader, since) = (resource.leaders[&resource.highest], lock.mark());
            lock.stop(leader);
            lock.type_in(leader, "late");
            let another = leads(&mut lock, PATIENCE / 4, Some(leader), resource.highest);
            if another.is_none() {
                // A slow machine: the group had fewer members, and cannot do without this one.
                lock.go_on(leader);
                answers(&mut lock, since, &[leader], "late");
            }
            another.map(|(new, fence)| {
                lock.type_in(new, "at once");
                let answers = answers(&mut lock, since, &[new], "at once");
                assert!(answers[0].1.is_none_or(|its| its >= fence));
                resource.take(&answers);
                (leader, since)
            })
        })
        .unwrap();
    lock.go_on(stopped);
    lock.line(since, stopped, "not leading");
    let late = answers(&mut lock, since, &[stopped], "late");
    assert!(late[0].1.is_none_or(|fence| fence <= resource.highest), "{late:?}");
    work_once(&mut lock, &mut resource);
    // It is in the group again: of two members only the first could go on alone.
    lock.ask(stopped, "acquire pan", "acquired pan with fence ");

    // A lock is for the next in line when its holder dies.
    let first: u64 = lock.ask(0, "acquire stove", "acquired stove with fence ").parse().unwrap();
    let since = lock.mark();
    lock.type_in(1, "acquire stove");
    lock.kill(0);
    let second: u64 = lock.line(since, 1, "acquired stove with fence ").parse().unwrap();
    assert!(second > first);
    assert_eq!(lock.ask(1, "release stove", "released "), "stove");
    work_once(&mut lock, &mut resource);

    // The group ends, and is founded again.
    lock.numbers().into_iter().for_each(|number| lock.kill(number));
    let since = lock.mark();
    lock.form(group, &[]);
    (0..3).for_each(|number| drop(lock.line(since, number, "entered")));
    let before = resource.highest.max(second);
    leads(&mut lock, PATIENCE, None, before).expect("fences rise across foundings");
}

// --- queue ---

/// Jobs: a number, its smallest factor. The first take about half a second each.
const JOBS: [(u64, u64); 9] = [
    (10000004400000259, 100000007),
    (10000004400000259, 100000007),
    (10000004400000259, 100000007),
    (10000004400000259, 100000007),
    (91, 7),
    (97, 97),
    (1024, 2),
    (100000980001501, 10000019),
    (221, 13),
];

#[test]
fn a_job_whose_worker_dies_is_done_by_another() {
    let group = &fresh_name("queue");
    let mut queue = Processes::of("queue");
    queue.form(group, &[]);
    (0..3).for_each(|number| drop(queue.line(0, number, "entered")));
    let mut expected = BTreeMap::new();
    for (count, (job, factor)) in JOBS.iter().enumerate() {
        let id: u64 = queue.ask(count % 3, &job.to_string(), "added ").parse().unwrap();
        assert!(expected.insert(id, format!("{job} {factor}")).is_none());
    }
    // The worker that began the last job so far is most likely at it.
    let killed = queue.until(0, "worker", |log| {
        log.iter().rev().find_map(|(number, line)| line.starts_with("works on ").then_some(*number))
    });
    queue.kill(killed);
    let rest = queue.numbers();
    queue.stop_for_a_while(rest[1]);
    for number in rest {
        while queue.ask(number, "results", "not done: ") != "0" {
            thread::yield_now();
        }
        let results: BTreeMap<u64, String> = queue
            .log
            .iter()
            .filter(|(its, _)| *its == number)
            .filter_map(|(_, line)| line.strip_prefix("result ")?.split_once(": "))
            .map(|(id, result)| (id.parse().unwrap(), result.to_owned()))
            .collect();
        assert_eq!(results, expected);
    }
    let recorded: Vec<&str> =
        queue.log.iter().filter_map(|(_, line)| line.strip_prefix("recorded ")).collect();
    let once: BTreeSet<&str> = recorded.iter().copied().collect();
    assert_eq!(once.len(), recorded.len(), "recorded more than once: {recorded:?}");
}

// --- tsp ---

/// Returns the length of the shortest tour: for each set of cities and last city the shortest way from city 0.
fn shortest(distances: &[Vec<u32>]) -> u32 {
    let count = distances.len() - 1;
    let mut ways = vec![vec![u32::MAX; count]; 1 << count];
    for city in 0..count {
        ways[1 << city][city] = distances[0][city + 1];
    }
    for set in 1..1usize << count {
        for last in (0..count).filter(|last| set & (1 << last) != 0) {
            for next in (0..count).filter(|next| set & (1 << next) == 0) {
                let way = ways[set][last].saturating_add(distances[last + 1][next + 1]);
                let longer = &mut ways[set | (1 << next)][next];
                *longer = way.min(*longer);
            }
        }
    }
    let all = ways.last().unwrap();
    (0..count).map(|last| all[last] + distances[last + 1][0]).min().unwrap()
}

/// Checks a line of the example: the length, and a tour through all cities that has it.
fn check_optimum(line: &str, distances: &[Vec<u32>]) {
    let (length, tour) = line.split_once(" by ").unwrap();
    let tour: Vec<usize> = tour.split('-').map(|city| city.parse().unwrap()).collect();
    let steps = tour.iter().zip(tour.iter().cycle().skip(1));
    assert_eq!(tour.iter().collect::<BTreeSet<_>>().len(), distances.len());
    assert_eq!(steps.map(|(from, to)| distances[*from][*to]).sum::<u32>().to_string(), length);
    assert_eq!(length, shortest(distances).to_string());
}

#[test]
fn the_shortest_tour_is_found_although_workers_die() {
    let (cities, seed) = ("14", "4");
    let distances = cities::distances(14, 4);
    let group = &fresh_name("tsp");
    let mut tsp = Processes::of("tsp");
    tsp.form(group, &[cities, seed]);
    (0..3).for_each(|number| drop(tsp.line(0, number, "ready")));
    (0..3).for_each(|number| tsp.type_in(number, "go"));
    let killed = tsp.until(0, "worker", |log| {
        log.iter().find_map(|(number, line)| line.starts_with("takes ").then_some(*number))
    });
    tsp.kill(killed);
    let rest = tsp.numbers();
    tsp.stop_for_a_while(rest[0]);
    for number in rest {
        let optimum = tsp.line(0, number, "optimum ");
        check_optimum(&optimum, &distances);
    }
}

#[test]
fn the_speed_up_is_printed() {
    let mut tsp = Processes::of("tsp");
    tsp.start(0, &["11", "5", "3"]);
    let optimum = tsp.line(0, 0, "3 processes: optimum ");
    check_optimum(optimum.split(',').next().unwrap(), &cities::distances(11, 5));
    tsp.line(0, 0, "speed-up with 3 processes: ").parse::<f64>().unwrap();
}

// --- qualities ---

#[test]
fn a_game_sends_messages_of_four_qualities() {
    let group = &fresh_name("qualities");
    let mut game = Processes::of("qualities");
    game.start(0, &["ann", group]);
    game.line(0, 0, "in, with ");
    game.start(1, &["bob", group]);
    game.line(0, 1, "in, with 2");
    // A position is one datagram, which may be lost. The lines after it are not.
    game.type_in(0, "3 4");
    for line in ["well met", "score 10", "result ann wins"] {
        game.type_in(0, line);
    }
    for number in 0..2 {
        for line in ["well met", "score 10", "result ann wins"] {
            game.until(0, line, |log| {
                let ends = format!(": ann: {line}");
                let is_it = |(by, text): &&(usize, String)| *by == number && text.ends_with(&ends);
                let (_, text) = log.iter().find(is_it)?;
                let place = text.split(':').next()?;
                // A line of the chat may come before its seqno is known; nothing else may.
                (place.parse::<u64>().is_ok() || (line, place) == ("well met", "source")).then_some(())
            });
        }
    }
    // The sender delivers its own position itself.
    game.until(0, "position", |log| log.contains(&(0, "unreliable: ann: 3 4".to_string())).then_some(()));
    (0..2).for_each(|number| game.close(number));
}

// --- text ---

/// The examples promise to be short. Comments and empty lines do not count.
#[test]
fn the_short_examples_are_short() {
    for (name, source) in [("counter", COUNTER), ("map", include_str!("../examples/map.rs"))] {
        let code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        let lines = source.lines().filter(code).count();
        assert!(lines < 50, "{name} has {lines} lines of code");
    }
}

const COUNTER: &str = include_str!("../examples/counter.rs");
const LEDGER: &str = include_str!("../examples/ledger.rs");

/// The README shows the state machine of the example, whose servers the test above kills.
#[test]
fn the_readme_shows_the_ledger() {
    let from = LEDGER.find("/// The balance").unwrap();
    let to = LEDGER.find("fn serve(").unwrap();
    assert!(
        include_str!("workspace-readme.txt").contains(&LEDGER[from..to]),
        "the README has another ledger"
    );
}
