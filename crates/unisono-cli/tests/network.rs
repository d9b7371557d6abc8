//! The network of a host changes under processes that live long: each of them goes on by itself.
//!
//! The hosts are those of a lab. Servers of a directory run on hosts 1 to 3, with the members of a counter in memory; host 3
//! also serves a port. On host 4 a client watches. Each case of the table changes the network of hosts 3 and 4, then all of
//! this must work again, as host 5 sees it.

mod common;

use common::{Background, PATIENCE, command, group, unisono};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which a condition is looked at again.
const LOOKS_EVERY: Duration = Duration::from_millis(200);
/// The hosts whose network changes: one of servers, and one of a client.
const CHANGED: [&str; 2] = ["3", "4"];

/// What happens to the network of a host.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    /// The address is gone, and comes back when the others have noticed.
    AddressGone,
    /// There is another address in its place.
    OtherAddress,
    /// The interface is removed, and made again with the same address.
    InterfaceAgain,
    /// The processes start before there is an address.
    InterfaceLate,
}

struct World {
    lab: String,
    folder: tempfile::TempDir,
    servers: Vec<Background>,
    counters: Vec<Background>,
    /// On host 3.
    service: Option<Background>,
    /// On host 4.
    watch: Option<Background>,
    changes: usize,
}

impl World {
    /// Sets the hosts up. None where labs are impossible; prints that past the test harness.
    fn up() -> Option<World> {
        let lab = group("network");
        let output = unisono(["lab", "up", "--hosts", "5", "--name", &lab]);
        let words = String::from_utf8_lossy(&output.stderr);
        if let Some(reason) = words.strip_prefix("unisono: a lab needs") {
            let _ = write!(std::io::stderr(), "skipped: a lab needs{reason}");
            return None;
        }
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let folder = tempfile::tempdir().unwrap();
        let world = World {
            lab,
            folder,
            servers: Vec::new(),
            counters: Vec::new(),
            service: None,
            watch: None,
            changes: 0,
        };
        for key in ["servers", "clients"] {
            assert_eq!(unisono(["keygen", &world.file(key)]).status.code(), Some(0));
        }
        Some(world)
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn on(&self, host: &str, command: &[&str]) -> Vec<String> {
        let lab = ["lab", "exec", host, "--name", &self.lab, "--", env!("CARGO_BIN_EXE_unisono")];
        lab.iter().chain(command).map(ToString::to_string).collect()
    }

    fn start(&self, host: &str, command: &[&str]) -> Background {
        let words = self.on(host, command);
        Background::start_heard(&words.iter().map(String::as_str).collect::<Vec<&str>>())
    }

    /// Runs a command on a host to its end, as a client.
    fn ask(&self, host: &str, words: &[&str]) -> Output {
        let (cap, key) = (self.file("1/root.cap"), self.file("clients"));
        command().args(self.on(host, words)).args(["--key", &key]).env("UNISONO_CAP", cap).output().unwrap()
    }

    fn start_server(&self, host: &str) -> Background {
        let (data, keys) = (self.file(host), [self.file("servers"), self.file("clients")]);
        let keys = ["--key", &keys[0], "--client-key", &keys[1], "--patience", "1000"];
        self.start(host, &[&["dir", "serve", "--id", host, "--data", &data][..], &keys].concat())
    }

    fn start_counter(&self, host: &str) -> Background {
        let key = self.file("clients");
        let form = ["--form", "1,2,3", "--name", host, "--key", &key, "--patience", "1000"];
        self.start(host, &[&["rpc", "counter", "votes"][..], &form].concat())
    }

    fn start_service(&self) -> Background {
        self.start("3", &["rpc", "serve", "upper", "--exec", "tr a-z A-Z", "--key", &self.file("clients")])
    }

    fn start_watch(&self) -> Background {
        let (cap, key) = (self.file("1/root.cap"), self.file("clients"));
        self.start("4", &["dir", "watch", "home", "--cap", &cap, "--key", &key])
    }

    // --- the network ---

    fn ip(&self, host: &str, words: &str) {
        let place = format!("unisono-{}-{host}", self.lab);
        let done = Command::new("ip").args(["-n", &place]).args(words.split(' ')).output().unwrap();
        assert!(done.status.success(), "ip {words} on {host}: {done:?}");
    }

    /// Gives a host its interface again.
    fn plug(&self, host: &str) {
        let place = format!("unisono-{}-{host}", self.lab);
        self.ip("switch", &format!("link add port{host} type veth peer name eth0 netns {place}"));
        self.ip("switch", &format!("link set port{host} master bridge up"));
        self.ip(host, "link set eth0 up");
    }

    fn address(&self, host: &str, number: usize) {
        self.ip(host, &format!("address add 10.195.{number}.{host}/16 dev eth0"));
        self.ip(host, "route replace 224.0.0.0/4 dev eth0");
    }

    fn change(&mut self, what: Change) {
        let number = self.changes;
        match what {
            Change::AddressGone => {
                CHANGED.iter().for_each(|host| self.ip(host, "address flush dev eth0"));
                self.until("the others go on without server 3", |world| world.serving() == 2);
                CHANGED.iter().for_each(|host| self.address(host, number));
            }
            Change::OtherAddress => {
                self.changes += 1;
                CHANGED.iter().for_each(|host| self.ip(host, "address flush dev eth0"));
                CHANGED.iter().for_each(|host| self.address(host, self.changes));
            }
            Change::InterfaceAgain => {
                CHANGED.iter().for_each(|host| self.ip("switch", &format!("link delete port{host}")));
                self.until("the others go on without server 3", |world| world.serving() == 2);
                CHANGED.iter().for_each(|host| self.plug(host));
                CHANGED.iter().for_each(|host| self.address(host, number));
            }
            Change::InterfaceLate => {
                drop((self.servers.pop(), self.counters.pop(), self.service.take(), self.watch.take()));
                CHANGED.iter().for_each(|host| self.ip(host, "address flush dev eth0"));
                self.servers.push(self.start_server("3"));
                self.counters.push(self.start_counter("3"));
                self.service = Some(self.start_service());
                // A watch that begins says that no server answers.
                self.until("the others go on without server 3", |world| world.serving() == 2);
                CHANGED.iter().for_each(|host| self.address(host, number));
                self.watch = Some(self.start_watch());
            }
        }
    }

    // --- what works ---

    fn until(&mut self, what: &str, holds: impl Fn(&World) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < deadline, "not in time: {what}");
            thread::sleep(LOOKS_EVERY);
        }
    }

    /// Returns the number of servers whose status desks say that they serve.
    fn serving(&self) -> usize {
        let status = self.ask("5", &["dir", "status", "--json"]);
        String::from_utf8_lossy(&status.stdout).matches("\"state\":\"serving\"").count()
    }

    /// Returns the number of members of the counter.
    fn members(&self) -> usize {
        let answer = self.ask("5", &["members", "votes", "--json"]);
        let last = String::from_utf8_lossy(&answer.stdout).lines().last().map(str::to_owned);
        let members = last.and_then(|line| serde_json::from_str::<Value>(&line).ok());
        members.and_then(|members| Some(members["members"].as_array()?.len())).unwrap_or_default()
    }

    fn all_works(&mut self, after: &str) {
        self.until(&format!("{after}: three servers serve"), |world| world.serving() == 3);
        self.until(&format!("{after}: three copies of the counter"), |world| world.members() == 3);
        self.until(&format!("{after}: the service answers"), |world| {
            world.ask("5", &["rpc", "call", "upper", "hello"]).stdout.starts_with(b"HELLO")
        });
        self.until(&format!("{after}: the counter counts"), |world| {
            world.ask("5", &["rpc", "call", "votes", "add"]).status.success()
        });
        let row = format!("home/{}", after.to_lowercase());
        self.until(&format!("{after}: a change is made"), |world| {
            world.ask("5", &["dir", "mkdir", &row]).status.success()
        });
        let watch = self.watch.as_mut().unwrap();
        let name = after.to_lowercase();
        watch.until("the watch", |seen| seen.iter().any(|line| line["name"] == name.as_str()));
        // A client that is new on the changed host reaches them too, and the backup's desk answers.
        let copy = self.file(&format!("backup-{name}"));
        self.until(&format!("{after}: a backup"), |world| {
            world.ask("4", &["dir", "backup", &copy]).status.success()
        });
        for process in self.servers.iter_mut().chain(&mut self.counters).chain(&mut self.service) {
            assert_eq!(process.process.try_wait().unwrap(), None, "{after}: it ended: {:?}", process.seen);
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        (self.service, self.watch) = (None, None);
        self.servers.clear();
        self.counters.clear();
        unisono(["lab", "down", "--name", &self.lab]);
    }
}

#[test]
fn whatever_lives_long_outlives_changes_of_its_network() {
    let Some(mut world) = World::up() else { return };
    world.servers = ["1", "2", "3"].map(|host| world.start_server(host)).into();
    world.counters = ["1", "2", "3"].map(|host| world.start_counter(host)).into();
    world.service = Some(world.start_service());
    world.until("three servers serve", |world| world.serving() == 3);
    assert!(world.ask("5", &["dir", "mkdir", "home"]).status.success());
    world.watch = Some(world.start_watch());
    world.all_works("Nothing");
    for change in [Change::InterfaceAgain, Change::OtherAddress, Change::AddressGone, Change::InterfaceLate] {
        world.change(change);
        world.all_works(&format!("{change:?}"));
    }
}

// Copies in memory: a majority that only lost its addresses for a while goes on, although each host has an address for
// containers; a service of one copy moves with its state; copies that all move at once say so and stop.
#[test]
fn copies_in_memory_outlive_a_gap_of_their_addresses_and_stop_if_all_move_at_once() {
    let Some(mut world) = World::up() else { return };
    let copies = ["1", "2", "3"];
    for host in copies {
        world.ip(host, "link add docker0 type veth peer name inside");
        world.ip(host, "address add 172.17.0.1/16 dev docker0");
        world.ip(host, "link set docker0 up");
        world.ip(host, "link set inside up");
    }
    let key = world.file("clients");
    world.service = Some(world.start("4", &["rpc", "counter", "alone", "--create", "--key", &key]));
    world.counters = copies.map(|host| world.start_counter(host)).into();
    let call = |world: &World, port: &str, command: &str| world.ask("5", &["rpc", "call", port, command]);
    for port in ["votes", "alone"] {
        world.until("the first count", |world| call(world, port, "add").status.success());
    }

    ["1", "2"].iter().for_each(|host| world.ip(host, "address flush dev eth0"));
    thread::sleep(Duration::from_secs(4));
    ["1", "2"].iter().for_each(|host| world.address(host, 0));
    world.until("the counter goes on with its sum", |world| {
        call(world, "votes", "get").stdout.starts_with(b"1")
    });

    world.ip("4", "address flush dev eth0");
    world.address("4", 1);
    world.until("the lone copy goes on with its sum", |world| {
        call(world, "alone", "get").stdout.starts_with(b"1")
    });

    copies.iter().for_each(|host| world.ip(host, "address flush dev eth0"));
    copies.iter().for_each(|host| world.address(host, 1));
    for counter in &mut world.counters {
        counter.until_said("looking from 10.195.1.");
        counter.until_said("gone if all copies moved at once");
        assert_eq!(counter.end(), Some(1), "{:?}", counter.seen);
    }
}
