//! A flood of copies of one recorded question for a port hardly disturbs the group of the process that serves it.
//!
//! It prints how long that process's own messages take, at the median, undisturbed and under 20,000 copies per second:
//! `cargo test -p unisono --test flood -- --nocapture`. The process is this test program again. Its environment
//! makes it a member.

mod common;

use common::{fresh_name, until_so};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use unisono::rpc::{Client, PrivatePort, ServeOptions, Server};
use unisono::{Event, Group, GroupConfig, MULTICAST_PORT, Options};

const GROUP: &str = "UNISONO_TEST_GROUP";
const PORT_FILE: &str = "UNISONO_TEST_PORT_FILE";
const COPIES_PER_S: u32 = 20_000;
const BLOCK: Duration = Duration::from_secs(1);
/// Pairs of blocks, undisturbed and flooded. One pair must pass: where other work takes the processors, members are rightly
/// suspected and messages take longer.
const ROUNDS: usize = 3;
/// Minimum size of a question for a port. Members of this test multicast shorter datagrams only.
const QUESTION_BYTES_MIN: usize = 300;
/// A fresh question is answered within this time.
const FRESH: Duration = Duration::from_secs(1);
/// A server that signs an answer to each copy makes messages take 9 to 11 times as long. The goal is 1.5.
const SLOWER_MAX: f64 = 4.0;

/// A member that serves a port. For each line of its standard input it sends messages one by one for a block of time, and
/// prints their median in nanoseconds and the number of resets.
#[test]
fn member() {
    let Ok(name) = std::env::var(GROUP) else { return };
    let group = Group::create(&name, GroupConfig::default(), &Options::default()).unwrap();
    let port = PrivatePort::load(std::env::var(PORT_FILE).unwrap()).unwrap();
    let server = Server::beside(&group, &port, ServeOptions::default()).unwrap();
    thread::spawn(move || server.serve(1, |request| request.payload().clone().into()));
    println!("\nready");
    for _ in std::io::stdin().lines() {
        let (begin, mut times) = (Instant::now(), Vec::new());
        while begin.elapsed() < BLOCK {
            let sent = Instant::now();
            let ticket = group.submit("x").unwrap();
            while !matches!(group.receive().unwrap(), Event::Message { .. }) {}
            times.push(sent.elapsed());
            ticket.wait().unwrap();
            thread::sleep(Duration::from_micros(200));
        }
        times.sort();
        println!("\nmedian {} {}", times[times.len() / 2].as_nanos(), group.counters().resets);
    }
}

/// The member process. It does not outlive the test.
struct Flooded {
    child: Child,
    told: ChildStdin,
    says: BufReader<ChildStdout>,
}

impl Drop for Flooded {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Flooded {
    fn begin(name: &str, port_file: &std::path::Path) -> Flooded {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "member", "--nocapture"])
            .env(GROUP, name)
            .env(PORT_FILE, port_file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let told = child.stdin.take().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Flooded { child, told, says }
    }

    /// Waits for a line that begins so, and returns the rest of it.
    fn line(&mut self, begins: &str) -> String {
        let mut lines = (&mut self.says).lines().map_while(Result::ok);
        let rest = lines.find_map(|line| line.strip_prefix(begins).map(String::from));
        rest.expect("the member process ended")
    }

    /// Lets it send for a block of time. Returns the median of its messages' times, and its resets so far.
    fn block(&mut self) -> (Duration, u64) {
        writeln!(self.told).unwrap();
        let line = self.line("median ");
        let (median, resets) = line.split_once(' ').unwrap();
        (Duration::from_nanos(median.parse().unwrap()), resets.parse().unwrap())
    }
}

/// Hears what is multicast on loopback, as any process without rights can. Returns the first question for a port, and the
/// address to which it was sent.
fn recorded_question(meanwhile: impl FnOnce()) -> (Vec<u8>, SocketAddrV4) {
    let addresses = (1..=32).map(|host| Ipv4Addr::new(239, 195, 117, host));
    let sockets: Vec<(UdpSocket, SocketAddrV4)> = addresses
        .map(|address| {
            let at = SocketAddrV4::new(address, MULTICAST_PORT);
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
            socket.set_reuse_address(true).unwrap();
            socket.bind(&SockAddr::from(at)).unwrap();
            socket.join_multicast_v4(&address, &Ipv4Addr::LOCALHOST).unwrap();
            socket.set_nonblocking(true).unwrap();
            (socket.into(), at)
        })
        .collect();
    meanwhile();
    let mut room = [0; 65_536];
    let begin = Instant::now();
    while begin.elapsed() < common::PATIENCE {
        for (socket, at) in &sockets {
            while let Ok(bytes) = socket.recv(&mut room) {
                if bytes >= QUESTION_BYTES_MIN {
                    return (room[..bytes].to_vec(), *at);
                }
            }
        }
    }
    panic!("no question was heard");
}

/// Sends copies of the question until told to stop. Returns how many were answered.
fn flood((question, to): &(Vec<u8>, SocketAddrV4), stop: &AtomicBool, sent: &AtomicU64) -> usize {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    let socket = UdpSocket::from(socket);
    socket.set_nonblocking(true).unwrap();
    let begin = Instant::now();
    let (mut room, mut count, mut answered) = ([0; 2_048], 0, 0);
    while !stop.load(Ordering::Relaxed) {
        let due = (begin.elapsed().as_secs_f64() * f64::from(COPIES_PER_S)) as u64;
        // After a delay of this thread it does not send all that is due at once.
        count = count.max(due.saturating_sub(100));
        while count < due {
            socket.send_to(question, to).unwrap();
            count += 1;
            sent.fetch_add(1, Ordering::Relaxed);
        }
        thread::sleep(Duration::from_micros(200));
        answered += std::iter::from_fn(|| socket.recv(&mut room).ok()).count();
    }
    answered
}

#[test]
fn a_flood_of_one_recorded_question_hardly_disturbs_the_servers_group() {
    let name = fresh_name("flood");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("port");
    let port = PrivatePort::random().unwrap();
    port.write_new(&file).unwrap();
    let mut flooded = Flooded::begin(&name, &file);
    flooded.line("ready");
    let others: Vec<Group> = (0..2).map(|_| Group::join(&name, "", &Options::default()).unwrap()).collect();
    until_so(&others[0], |group| group.members().len() == 3);
    for group in others.iter() {
        group.ignore_events();
    }
    let ask = || {
        let begin = Instant::now();
        let answer = Client::new(&Options::default()).map(|client| client.call(port.public(), "fresh"));
        (answer, begin.elapsed())
    };
    let question = recorded_question(|| assert_eq!(ask().0.unwrap().unwrap(), "fresh"));
    let stop = AtomicBool::new(false);
    let passed = (0..ROUNDS).any(|round| {
        let (quiet, resets_before) = flooded.block();
        let sent = AtomicU64::new(0);
        stop.store(false, Ordering::Relaxed);
        let (under, resets, fresh, answered) = thread::scope(|scope| {
            let flood = scope.spawn(|| flood(&question, &stop, &sent));
            let (under, resets) = flooded.block();
            let fresh = ask();
            stop.store(true, Ordering::Relaxed);
            (under, resets, fresh, flood.join().unwrap())
        });
        let slower = under.as_secs_f64() / quiet.as_secs_f64();
        let _ = writeln!(
            std::io::stderr(),
            "round {round}: median {quiet:?}, under {} copies {under:?}, {slower:.2} of it; {answered} answered; \
             {} resets; a fresh question: {:?}",
            sent.load(Ordering::Relaxed),
            resets - resets_before,
            fresh.1,
        );
        assert!(answered > 0, "the flood does not reach the server");
        slower < SLOWER_MAX && resets == resets_before && matches!(fresh.0, Ok(Ok(_))) && fresh.1 < FRESH
    });
    assert!(passed);
}
