//! No member is suspected because all are busy, or because the network loses a fifth of the datagrams.
//!
//! Each case takes ten seconds by default. With `UNISONO_SOAK_SECONDS=600 cargo test --release -p unisono --test soak
//! -- --nocapture` it takes ten minutes. The processes are this test program again. Their environment makes them
//! members.

mod common;

use common::{PATIENCE, fresh_name, hasty};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use socket2::{SockFilter, SockRef, Type};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use unisono::{Bytes, Event, Group, GroupConfig, Options};

const GROUP: &str = "UNISONO_TEST_GROUP";
const MEMBERS: &str = "UNISONO_TEST_MEMBERS";
const FOUNDS: &str = "UNISONO_TEST_FOUNDS";
const LOSS_PERCENT: &str = "UNISONO_TEST_LOSS_PERCENT";
const SECONDS: &str = "UNISONO_SOAK_SECONDS";
const SECONDS_DEFAULT: u64 = 10;
/// Maximum number of short rounds of which one must pass without a suspicion. Where one processor of two stands still
/// for a quarter of a second members are rightly suspected, but hardly in each round.
const ROUNDS_MAX: usize = 3;
/// Far less than a slow machine orders: it shows that the members were busy.
const MESSAGES_PER_S_MIN: u64 = 100;
const MESSAGE: Bytes = Bytes::from_static(&[7; 64]);
const BATCH: usize = 500;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn duration() -> Duration {
    Duration::from_secs(number(SECONDS).unwrap_or(SECONDS_DEFAULT))
}

/// Returns this process's datagram sockets.
fn sockets() -> std::io::Result<Vec<OwnedFd>> {
    let process = pidfd_open(getpid(), PidfdFlags::empty())?;
    let mut sockets = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let path = entry?.path();
        let is_socket = std::fs::read_link(&path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
        let number = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        let (true, Some(number)) = (is_socket, number) else { continue };
        let descriptor = pidfd_getfd(&process, number, PidfdGetfdFlags::empty())?;
        if SockRef::from(&descriptor).r#type()? == Type::DGRAM {
            sockets.push(descriptor);
        }
    }
    Ok(sockets)
}

/// From now on the sockets of this process lose this share of the datagrams that arrive.
fn lose(percent: u64) {
    // In the kernel's packet language: loads a random word, and drops the packet if the word is small.
    const LOAD_RANDOM: SockFilter = SockFilter::new(0x20, 0, 0, 0xffff_f038);
    let small = (u64::from(u32::MAX) * percent / 100) as u32;
    let filter = [
        LOAD_RANDOM,
        SockFilter::new(0x35, 1, 0, small),
        SockFilter::new(0x06, 0, 0, 0),
        SockFilter::new(0x06, 0, 0, u32::MAX),
    ];
    let sockets = sockets().unwrap();
    assert!(!sockets.is_empty());
    for socket in sockets {
        SockRef::from(&socket).attach_filter(&filter).unwrap();
    }
}

/// A member process. When all are there it sends as fast as it can, then reports its counters, and stays until its
/// standard input ends.
#[test]
fn member() {
    let Ok(name) = std::env::var(GROUP) else { return };
    let members = number(MEMBERS).unwrap() as usize;
    // The failure detector has its default settings. Only a join waits longer, for the founder's process to begin.
    let options = hasty(PATIENCE / 10, Options::default());
    let group = match std::env::var_os(FOUNDS) {
        Some(_) => Group::create(&name, GroupConfig::default(), &options).unwrap(),
        None => Group::join(&name, "", &options).unwrap(),
    };
    while group.members().len() < members {
        group.receive().unwrap();
    }
    match number(LOSS_PERCENT) {
        None | Some(0) => {}
        Some(percent) => lose(percent),
    }
    let receiving = group.clone();
    std::thread::spawn(move || {
        let mut events = Vec::new();
        while receiving.receive_many(&mut events).is_ok() {
            for event in events.drain(..) {
                if let Event::Reset { .. } | Event::Excluded { .. } = event {
                    let _ = writeln!(std::io::stderr(), "{event:?}");
                }
            }
        }
    });
    let begin = Instant::now();
    while begin.elapsed() < duration() {
        group.submit_all(std::iter::repeat_n(MESSAGE, BATCH)).unwrap().wait();
    }
    let counters = group.counters();
    println!(
        "\nsaw {} {} {} {}",
        counters.suspicions, counters.resets, counters.messages_delivered, counters.nacks_sent
    );
    let _ = std::io::stdin().read(&mut [0]);
}

/// A member process that does not outlive the test, and its output.
struct Member {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Member {
    fn begin(name: &str, founds: bool, members: usize, loss_percent: u64) -> Member {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "member", "--nocapture"])
            .env(GROUP, name)
            .envs(founds.then_some((FOUNDS, "1")))
            .env(MEMBERS, members.to_string())
            .env(LOSS_PERCENT, loss_percent.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Member { child, says }
    }

    /// Returns its suspicions, resets, messages received and retransmission requests.
    fn saw(&mut self) -> [u64; 4] {
        let line = (&mut self.says).lines().map_while(Result::ok).find_map(|line| {
            let numbers = line.strip_prefix("saw ")?.split(' ').map(|number| number.parse().unwrap());
            Some(numbers.collect::<Vec<u64>>())
        });
        line.expect("a member died").try_into().unwrap()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn busy_members_and_a_lossy_network_are_no_reason_to_suspect_anybody() {
    let _socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (members, loss_percent) in [(5, 0), (5, 20)] {
        if loss_percent > 0
            && let Err(error) = sockets()
        {
            let _ = writeln!(std::io::stderr(), "skipped: may not filter its own sockets: {error}");
            return;
        }
        let rounds = if number(SECONDS).is_some() { 1 } else { ROUNDS_MAX };
        let none_suspected = (0..rounds).any(|_| no_member_is_suspected(members, loss_percent));
        assert!(none_suspected, "{members} members, {loss_percent} % loss, {rounds} rounds");
    }
}

/// Lets the members send as fast as they can. Returns whether none of them suspected another.
fn no_member_is_suspected(members: usize, loss_percent: u64) -> bool {
    let name = fresh_name("soak");
    let mut group: Vec<Member> =
        (0..members).map(|index| Member::begin(&name, index == 0, members, loss_percent)).collect();
    let saw: Vec<[u64; 4]> = group.iter_mut().map(Member::saw).collect();
    let sum = |what: usize| saw.iter().map(|numbers| numbers[what]).sum::<u64>();
    let (suspicions, resets, nacks) = (sum(0), sum(1), sum(3));
    let messages = saw.iter().map(|numbers| numbers[2]).min().unwrap();
    let _ = writeln!(
        std::io::stderr(),
        "{members} members, {loss_percent} % loss, {:?}: {messages} messages at the slowest, {nacks} NACKs, \
         {suspicions} suspicions, {resets} resets",
        duration()
    );
    let quiet = (suspicions, resets) == (0, 0);
    assert!(!quiet || messages > MESSAGES_PER_S_MIN * duration().as_secs(), "{saw:?}");
    quiet
}
