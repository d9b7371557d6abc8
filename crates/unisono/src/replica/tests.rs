//! Replicas whose members die or are excluded, which only tests inside of the crate can arrange.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use unisono_core::replica::DISK_FORMS_WITHIN;
use unisono_core::{EntryMode, Name, Settings};

/// Longer than any working case takes.
const LONG: Duration = Duration::from_secs(60);

/// A list of words.
#[derive(Debug, Default)]
struct Words(Vec<Bytes>);

impl StateMachine for Words {
    fn apply(&mut self, command: &Command<'_>) -> Outcome {
        self.0.push(command.payload.clone());
        Outcome::Reply(self.0.len().to_string().into())
    }

    fn snapshot(&self) -> Vec<Bytes> {
        self.0.clone()
    }

    fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
        self.0 = parts.to_vec();
        Ok(())
    }
}

fn fresh_name(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("replica-{what}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

fn options(name: &str) -> Options {
    let settings = Settings { patience: Duration::from_secs(1), ..Settings::default() };
    Options { name: Name::new(name).unwrap(), settings, ..Options::default() }
}

fn open(name: &str, founding: Founding, me: &str) -> Replica<Words> {
    let settings = ReplicaOptions { open_within: Some(LONG), ..ReplicaOptions::default() };
    Replica::open(name, founding, Words::default(), settings, &options(me)).unwrap()
}

/// Opens a service of three.
fn three(name: &str) -> [Replica<Words>; 3] {
    let first = open(name, Founding::Create, "first");
    [first, open(name, Founding::Join, "second"), open(name, Founding::Join, "third")]
}

impl Replica<Words> {
    /// Ends this life as a crash would.
    fn kill(&self) {
        let life = self.copy().lock().life.clone();
        life.unwrap().group.end();
    }

    fn words(&self) -> Vec<Bytes> {
        self.look(|words| words.0.clone())
    }

    fn state(&self) -> ReplicaState {
        self.status().state
    }
}

fn wait_until(what: &str, so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !so() {
        thread::sleep(Duration::from_millis(2));
        assert!(begun.elapsed() < LONG, "{what}");
    }
}

#[test]
fn commands_survive_the_death_of_the_sequencer() {
    let name = fresh_name("death");
    let [first, second, third] = three(&name);
    second.command("before").unwrap();
    let commands: Vec<_> = (0..50).map(|number| third.start(format!("{number}"))).collect();
    first.kill();
    let mut positions: Vec<_> =
        commands.into_iter().map(|command| command.wait().unwrap().position).collect();
    positions.sort_unstable();
    assert_eq!(positions, (2..=51).collect::<Vec<_>>());
    let last = second.command("after").unwrap().position;
    assert_eq!(second.words().len(), 52);
    assert_eq!(third.look_at(last, |words| words.0.clone()).unwrap(), second.words());
    assert_eq!(second.read(|words| words.0.len()), Ok(52));
}

#[test]
fn the_last_member_of_a_halted_group_ends_within_a_second() {
    let name = fresh_name("halted");
    let first = open(&name, Founding::Create, "first");
    let second = open(&name, Founding::Join, "second");
    second.command("x").unwrap();
    // The second of two cannot go on without the first.
    first.kill();
    loop {
        match second.next_notice().unwrap() {
            Notice::Halted { missing } => break assert_eq!(missing.len(), 1),
            other => println!("{other:?}"),
        }
    }
    assert_eq!(second.state(), ReplicaState::Halted);
    let (command, read, begun) = (second.start("y"), second.barrier_start(), Instant::now());
    drop(second);
    assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
    assert_eq!(command.wait(), Err(CommandFailure::Unknown));
    assert_eq!(read.wait(LONG), Err(ReadFailure::Ended));
}

#[test]
fn an_excluded_member_comes_back_and_finishes_its_commands() {
    let name = fresh_name("excluded");
    let [first, second, third] = three(&name);
    third.command("before").unwrap();
    let life = third.copy().lock().life.clone().unwrap();
    // The others exclude it as if it were dead; it learns that it was excluded when it is heard again.
    life.group.shared().cut_off(true);
    let command = third.start("meanwhile");
    let read = third.barrier_start();
    wait_until("the others go on", || first.status().members.len() == 2);
    first.command("without").unwrap();
    life.group.shared().cut_off(false);
    drop(life);
    assert_eq!(command.wait().unwrap().position, 3);
    read.wait(LONG).unwrap();
    assert_eq!(third.words(), ["before", "without", "meanwhile"]);
    assert_eq!(second.look_at(3, |words| words.0.clone()).unwrap(), third.words());
    let notices: Vec<_> = std::iter::from_fn(|| third.copy().lock().notices.pop_front()).collect();
    assert!(notices.contains(&Notice::Reentering), "{notices:?}");
    wait_until("all have the state", || first.status().copies.len() == 3);
}

#[test]
fn ports_are_served_in_later_lives_too() {
    let name = fresh_name("served");
    let [first, _second, third] = three(&name);
    let port = PrivatePort::random().unwrap();
    third.serve(&port).unwrap();
    let client = crate::rpc::Client::new(&options("client")).unwrap();
    assert_eq!(client.call_within(port.public(), "one", LONG).unwrap(), "1");
    let life = third.copy().lock().life.clone().unwrap();
    life.group.shared().cut_off(true);
    wait_until("the others go on", || first.status().members.len() == 2);
    life.group.shared().cut_off(false);
    drop(life);
    wait_until("it is back", || third.state() == ReplicaState::Serving && third.copy().lock().lives == 2);
    let answered = || client.call_within(port.public(), "two", LONG);
    wait_until("it serves again", || answered().is_ok());
}

#[test]
fn a_member_that_leaves_waits_until_another_has_the_state() {
    let name = fresh_name("leaves");
    let first = open(&name, Founding::Create, "first");
    first.command("x").unwrap();
    let second = Replica::begin(
        &name,
        Founding::Join,
        Words::default(),
        ReplicaOptions::default(),
        &options("second"),
    )
    .unwrap();
    wait_until("it has joined", || first.status().members.len() == 2);
    first.end(LONG);
    assert!(second.ready().wait(LONG).unwrap());
    assert_eq!(second.words(), ["x"]);
    assert_eq!(second.command("y").unwrap().position, 2);
}

#[test]
fn of_two_services_of_one_name_the_one_without_commands_joins_the_other() {
    let name = fresh_name("twice");
    let first = open(&name, Founding::Create, "first");
    first.command("x").unwrap();
    let second = open(&name, Founding::Create, "second");
    wait_until("it has joined", || second.words() == ["x"]);
    assert_eq!(second.command("y").unwrap().position, 2);
    assert_eq!(first.look_at(2, |words| words.0.len()), Ok(2));
}

#[test]
fn of_two_services_of_one_name_the_one_with_fewer_commands_stops_and_says_what_it_holds() {
    let name = fresh_name("both");
    let first = open(&name, Founding::Create, "first");
    let second = open(&name, Founding::Create, "second");
    let rejoined = || second.copy().lock().lives > 1 || first.copy().lock().lives > 1;
    // Two founders that have ordered nothing may have met already.
    if !rejoined() {
        for word in ["a", "b", "c"] {
            first.start(word).wait().unwrap();
        }
        match second.start("d").wait() {
            Ok(done) if done.position == 1 => {
                let end = second.wait();
                let held = |end: &ReplicaEnd| {
                    matches!(end, ReplicaEnd::Stopped(StopReason::GivesWay { acknowledged: 1 }))
                };
                assert!(held(&end), "{end:?}");
                assert_eq!(second.words(), ["d"]);
            }
            other => println!("they met before: {other:?}"),
        }
    }
    assert!(first.command("e").is_ok());
}

#[test]
fn a_command_that_waits_for_another_life_fails_at_its_deadline() {
    let name = fresh_name("deadline");
    let first = open(&name, Founding::Create, "first");
    let settings = ReplicaOptions { command_within: Duration::from_millis(500), ..ReplicaOptions::default() };
    let second =
        Replica::open(&name, Founding::Join, Words::default(), settings, &options("second")).unwrap();
    let third = open(&name, Founding::Join, "third");
    let life = second.copy().lock().life.clone().unwrap();
    life.group.shared().cut_off(true);
    wait_until("the others go on", || first.status().members.len() == 2);
    first.kill();
    third.kill();
    life.group.shared().cut_off(false);
    drop(life);
    let begun = Instant::now();
    assert_eq!(second.command("x"), Err(CommandFailure::Unknown));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// Begins a server with a disk that never serves, and returns why it ends.
fn why_it_ends(name: &str, disk: DiskOptions) -> StopReason {
    let settings = ReplicaOptions::default();
    let other = Replica::begin_on_disk(name, disk, Words::default(), settings, &options("server")).unwrap();
    match other.ready().wait(LONG) {
        Err(ReplicaEnd::Stopped(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_second_process_beside_a_service_on_disk_ends_and_says_why() {
    let name = fresh_name("second");
    let directory = tempfile::tempdir().unwrap();
    let folder = |name: &str| directory.path().join(name);
    let settings = ReplicaOptions { open_within: Some(LONG), ..ReplicaOptions::default() };
    let servers = [1, 2, 3].map(|id| {
        let disk = DiskOptions::of_three(id, folder(&id.to_string()));
        Replica::begin_on_disk(&name, disk, Words::default(), settings.clone(), &options("server")).unwrap()
    });
    servers.iter().for_each(|server| assert!(server.ready().wait(LONG).unwrap()));
    servers[0].command("x").unwrap();
    let copied = folder("copied");
    std::fs::create_dir(&copied).unwrap();
    for file in std::fs::read_dir(folder("1")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copied.join(file.file_name())).unwrap();
    }
    let same = why_it_ends(&name, DiskOptions::of_three(1, copied));
    assert!(matches!(same, StopReason::RunsAlready { server: 1, .. }), "{same:?}");
    let fourth_of_five = DiskOptions { servers: 5, ..DiskOptions::of_three(4, folder("4")) };
    assert_eq!(why_it_ends(&name, fourth_of_five), StopReason::OtherServers);
    assert_eq!(servers[0].command("y").unwrap().position, 2);
}

/// Opens a folder that a replica of this process has used: the thread that writes has it until it ends.
fn once_unlocked(begin: impl Fn() -> Result<Replica<Words>, ReplicaError>) -> Replica<Words> {
    let is_locked = |error: &ReplicaError| error.to_string().contains("another process uses");
    let until = Instant::now() + LONG;
    loop {
        match begin() {
            Err(error) if is_locked(&error) && Instant::now() < until => thread::yield_now(),
            begun => break begun.unwrap(),
        }
    }
}

#[test]
fn an_empty_folder_is_refused_where_a_state_has_to_be() {
    let directory = tempfile::tempdir().unwrap();
    let name = fresh_name("existing");
    let begin = |data: &str, existing| {
        let servers = DiskOptions::of_three(1, directory.path().join(data));
        let disk = DiskOptions { servers: 1, existing, ..servers };
        let settings = ReplicaOptions { open_within: Some(LONG), ..ReplicaOptions::default() };
        Replica::open_on_disk(&name, disk, Words::default(), settings, &options("server"))
    };
    std::fs::create_dir(directory.path().join("empty")).unwrap();
    for data in ["none", "empty"] {
        let refused = begin(data, true).err();
        assert!(matches!(refused, Some(ReplicaError::Disk(DiskError::Empty { .. }))), "{refused:?}");
    }
    assert!(!directory.path().join("none").exists());
    assert_eq!(std::fs::read_dir(directory.path().join("empty")).unwrap().count(), 0);
    let first = begin("empty", false).unwrap();
    let created = first.disk().unwrap().0.created_at_ms();
    assert!(created.is_some() && first.has_created());
    drop(first);
    let second = once_unlocked(|| begin("empty", true));
    assert_eq!(second.disk().unwrap().0.created_at_ms(), created);
    assert!(!second.has_created());
}

#[test]
fn lives_on_disk_try_for_different_times() {
    let directory = tempfile::tempdir().unwrap();
    let disk = DiskOptions::of_three(1, directory.path());
    let settings = ReplicaOptions::default();
    let server =
        Replica::begin_on_disk(&fresh_name("lot"), disk, Words::default(), settings, &options("server"))
            .unwrap();
    let drawn: BTreeSet<Duration> = (0..16)
        .map(|_| match server.owner.0.entry() {
            EntryMode::JoinOrForm(formation, _) => formation.within,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(drawn.iter().all(|within| (DISK_FORMS_WITHIN.start..=DISK_FORMS_WITHIN.end).contains(within)));
    assert!(drawn.len() > 4, "{drawn:?}");
}

#[test]
fn a_server_enters_once_another_of_its_process_has_closed_its_desk() {
    let name = fresh_name("desks");
    let options = options("server");
    let desk = crate::rpc::Server::new(&transfer::port(&name), crate::rpc::ServeOptions::default(), &options)
        .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let disk = DiskOptions { servers: 1, ..DiskOptions::of_three(1, directory.path()) };
    let settings = ReplicaOptions { open_within: Some(LONG), ..ReplicaOptions::default() };
    let server = Replica::begin_on_disk(&name, disk, Words::default(), settings, &options).unwrap();
    let waits = server.ready().wait(Duration::from_secs(3));
    assert!(matches!(waits, Ok(false)), "{waits:?}");
    drop(desk);
    assert!(server.ready().wait(LONG).unwrap());
}

#[test]
fn a_server_that_may_not_wait_longer_names_the_servers_that_are_missing() {
    let directory = tempfile::tempdir().unwrap();
    // Servers wait for their majority without limit unless they are told otherwise.
    assert_eq!(ReplicaOptions::default().open_within, None);
    let settings =
        ReplicaOptions { open_within: Some(Duration::from_millis(1500)), ..ReplicaOptions::default() };
    let disk = DiskOptions::of_three(1, directory.path());
    let name = fresh_name("limit");
    let refused = Replica::open_on_disk(&name, disk, Words::default(), settings, &options("server"));
    let words = refused.err().unwrap().to_string();
    assert_eq!(words, "this server waited 1.5 s for servers 2, 3 (ReplicaOptions::open_within)");
}

#[test]
fn a_server_that_loses_its_address_while_it_waits_tries_again() {
    let directory = tempfile::tempdir().unwrap();
    let disk = DiskOptions::of_three(1, directory.path());
    let settings = ReplicaOptions::default();
    let server =
        Replica::begin_on_disk(&fresh_name("lost"), disk, Words::default(), settings, &options("server"))
            .unwrap();
    let address = "192.0.2.1:7195".parse().unwrap();
    let tries_again = |error: OpenError, failures| order::tries_again(server.copy(), &error, failures);
    assert!(tries_again(OpenError::Unasked { address }, 0));
    assert!(tries_again(OpenError::NotOurAddress { address }, 1));
    // Before any attempt succeeded in binding it, the address is a mistake.
    assert!(!tries_again(OpenError::NotOurAddress { address }, 0));
}

#[test]
fn the_thread_that_hashes_states_yields_to_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let disk = DiskOptions::of_three(1, directory.path());
    let settings = ReplicaOptions::default();
    let _server =
        Replica::begin_on_disk(&fresh_name("yields"), disk, Words::default(), settings, &options("server"))
            .unwrap();
    let priorities = |name: &str| -> Vec<i32> {
        let threads = fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path());
        // Threads of other tests may end meanwhile.
        let stats = threads.filter_map(|thread| fs::read_to_string(thread.join("stat")).ok());
        let rest = |stat: String| {
            let (_, rest) = stat.split_once(&format!("({name}) "))?;
            rest.split(' ').nth(16)?.parse().ok()
        };
        stats.filter_map(rest).collect()
    };
    let (usual, begun) = (priorities("unisono-order")[0], Instant::now());
    while !priorities("unisono-hash").contains(&19.min(usual + 10)) {
        assert!(begun.elapsed() < LONG, "its priority is that of the others");
        std::thread::yield_now();
    }
}

/// Returns how often each thread of this process with this name has gone to sleep, by its number.
fn sleeps(name: &str) -> BTreeMap<String, u64> {
    let threads = fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path());
    let sleeps = |thread: PathBuf| {
        let is_it = fs::read_to_string(thread.join("comm")).is_ok_and(|found| found.trim() == name);
        // It may have ended meanwhile.
        let status = fs::read_to_string(thread.join("status")).ok().filter(|_| is_it)?;
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some((thread.display().to_string(), count.trim().parse().unwrap()))
    };
    threads.filter_map(sleeps).collect()
}

#[test]
fn the_thread_for_the_disk_sleeps_while_commands_go_to_a_log_in_memory() {
    let data = tempfile::tempdir().unwrap();
    // Where there is no such folder, the log is on disk, and only the commands are checked.
    let log = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let is_in_memory = Folder::open(data.path(), Some(log.path())).unwrap().log_is_in_memory();
    let disk =
        DiskOptions { servers: 1, log_dir: Some(log.path().into()), ..DiskOptions::of_three(1, data.path()) };
    let open = |name: &str| {
        let settings = ReplicaOptions { open_within: Some(LONG), ..ReplicaOptions::default() };
        Replica::open_on_disk(name, disk.clone(), Words::default(), settings, &options("server"))
    };
    let name = fresh_name("in-memory");
    let others = sleeps("unisono-disk");
    let replica = open(&name).unwrap();
    const COMMANDS: u64 = 200;
    for number in 1..=COMMANDS {
        replica.command(Bytes::from(number.to_string())).unwrap();
    }
    if is_in_memory {
        let own = sleeps("unisono-disk").into_iter().filter(|(thread, _)| !others.contains_key(thread));
        let fewest = own.map(|(_, count)| count).min().unwrap();
        assert!(fewest < COMMANDS / 2, "it slept {fewest} times");
    }
    drop(replica);
    assert_eq!(once_unlocked(|| open(&name)).words().len() as u64, COMMANDS);
}
