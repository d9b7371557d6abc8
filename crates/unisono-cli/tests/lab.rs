//! Tests of labs: hosts are set up, reach each other at the planned quality, and are removed in every case.
//!
//! They need root and a few tools. Without these they skip themselves.

mod common;

use common::lab::Lab;
use common::{Background, LOOKS_LONG, PATIENCE, group, json, persistently, unisono};
use rustix::process::Signal;
use serde_json::Value;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

impl Lab {
    fn is_there(&self) -> bool {
        let status = json(&unisono(["lab", "status", "--json"]));
        let labs = status["labs"].as_array().unwrap().iter();
        let there = labs.filter(|lab| lab["lab"] == self.name.as_str()).count() > 0;
        assert_eq!(there, !namespaces(&self.name).is_empty(), "{status}");
        there
    }

    /// Starts a process of this test program on a host.
    fn start(&self, host: &str, role: &str) -> Child {
        let own = std::env::current_exe().unwrap();
        let command = [own.to_str().unwrap(), "--exact", "a_process_on_a_host", "--nocapture"];
        common::command()
            .args(self.on(host, &command))
            .env(ROLE, role)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

/// Returns the kernel's namespaces that belong to a lab.
fn namespaces(lab: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&format!("unisono-{lab}-"))).collect()
}

/// The role of a process on a host: `flood ADDRESS`, or `count`, which prints how many bytes arrived.
const ROLE: &str = "UNISONO_TEST_LAB_ROLE";
const PORT: u16 = 5000;
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
const PAYLOAD: usize = 1400;
/// Bytes of a frame on the wire besides the payload: UDP, IP, Ethernet with preamble and gap.
const AROUND: usize = 8 + 20 + 14 + 4 + 8 + 12;
const FLOODED: Duration = Duration::from_secs(4);
const COUNTED_FROM: Duration = Duration::from_secs(1);
const COUNTED: Duration = Duration::from_secs(2);

#[test]
fn a_process_on_a_host() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let begin = Instant::now();
    if let Some(to) = role.strip_prefix("flood ") {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        while begin.elapsed() < FLOODED {
            socket.send_to(&[0; PAYLOAD], (to, PORT)).unwrap();
        }
        return;
    }
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
    socket.join_multicast_v4(&GROUP, &Ipv4Addr::UNSPECIFIED).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let (mut buffer, mut bytes) = ([0; 2000], [0; 2]);
    while begin.elapsed() < COUNTED_FROM + COUNTED {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        if begin.elapsed() >= COUNTED_FROM {
            let std::net::IpAddr::V4(from) = from.ip() else { continue };
            bytes[usize::from(from.octets()[3] != 1)] += length + AROUND;
        }
    }
    println!("counted {} {}", bytes[0], bytes[1]);
}

/// Returns the bytes per second on the wire that a host received from host 1, and from others.
fn counted(child: Child) -> [f64; 2] {
    let text = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let numbers = text.lines().find_map(|line| Some(line.split_once("counted ")?.1.to_string()));
    let numbers = numbers.unwrap_or_else(|| panic!("nothing counted: {text}"));
    let (first, others) = numbers.split_once(' ').unwrap();
    [first, others].map(|bytes| bytes.parse::<f64>().unwrap() / COUNTED.as_secs_f64())
}

#[test]
fn hosts_are_set_up_exchange_messages_and_are_removed() {
    let Some(lab) = Lab::up(&["--hosts", "2"]) else { return };
    assert!(lab.is_there());
    let again = unisono(["lab", "up", "--name", &lab.name]);
    assert_eq!(again.status.code(), Some(1), "{again:?}");

    let own = env!("CARGO_BIN_EXE_unisono");
    let name = group("news");
    let mut listener = Background::start(&lab.on("1", &[own, "listen", &name, "--insecure", "--count", "1"]));
    listener.until("the view", |seen| !seen.is_empty());
    let send = [&[own, "send", &name, "hello", "--insecure", "--json"], &LOOKS_LONG[..]].concat();
    let sent = unisono(lab.on("2", &send));
    assert_eq!(json(&sent)["accepted"], 1, "{sent:?}");
    listener.until_messages(1);
    assert_eq!(listener.end(), Some(0));
    assert_eq!(listener.texts(), ["hello"]);

    let failed = unisono(lab.on("1", &["sh", "-c", "exit 7"]));
    assert_eq!(failed.status.code(), Some(7), "the command's own status comes through");
    assert_eq!(unisono(lab.on("3", &["true"])).status.code(), Some(2));
    let down = unisono(["lab", "down", "--name", &lab.name, "--json"]);
    assert_eq!((down.status.code(), &json(&down)["still_running"]), (Some(0), &Value::Array(vec![])));
    assert!(!lab.is_there());
    let gone = unisono(lab.on("1", &["true"]));
    assert_eq!(gone.status.code(), Some(1), "{gone:?}");
}

#[test]
fn a_segment_carries_its_rate_whichever_way_hosts_send() {
    let Some(lab) = Lab::up(&["--hosts", "4", "--rate", "10mbit"]) else { return };
    // Host 1 sends to one host, host 2 to all: every byte counts once.
    let pass = || {
        let counting = ["3", "4"].map(|host| lab.start(host, "count"));
        let flooding = [lab.start("1", "flood 10.195.0.3"), lab.start("2", &format!("flood {GROUP}"))];
        let seen = counting.map(counted);
        for mut child in flooding {
            assert!(child.wait().unwrap().success());
        }
        seen
    };
    // Describes what is wrong with the counts of hosts 3 and 4.
    let wrong = |[third, fourth]: &[[f64; 2]; 2]| {
        let total = third[0] + third[1];
        if !(1_150e3..=1_280e3).contains(&total) {
            return Some(format!("a segment of 1,250 KB/s carried {total}"));
        }
        if !(0.9..1.1).contains(&(third[1] / fourth[1])) {
            return Some(format!("host 3 saw {third:?}, host 4 {fourth:?}"));
        }
        (!(0.8..1.25).contains(&(third[0] / third[1]))).then(|| format!("hosts take turns: {third:?}"))
    };
    // A counting process may be kept waiting for a while.
    let seen = persistently(pass, |seen| wrong(seen).is_none());
    assert_eq!(wrong(&seen), None);
    assert_eq!(seen[1][0], 0.0);
}

#[test]
fn a_cut_drops_one_direction_and_loss_drops_some() {
    let Some(lab) = Lab::up(&["--hosts", "2", "--loss", "30%"]) else { return };
    let status = json(&unisono(["lab", "status", "--json"]));
    let own = status["labs"].as_array().unwrap().iter().find(|own| own["lab"] == lab.name.as_str());
    assert_eq!(own.unwrap()["loss"], "30%", "{status}");
    let pass = |from: &str, to: &str| {
        let counting = lab.start(to, "count");
        let mut flooding = lab.start(from, &format!("flood 10.195.0.{to}"));
        let counted = counted(counting);
        flooding.wait().unwrap();
        counted[0] + counted[1]
    };
    let something_passes = || persistently(|| pass("1", "2"), |bytes| *bytes > 0.0) > 0.0;
    assert!(something_passes());
    let cut = unisono(["lab", "cut", "1", "2", "--name", &lab.name]);
    assert_eq!(cut.status.code(), Some(0), "{cut:?}");
    assert_eq!(pass("1", "2"), 0.0);
    let mend = unisono(["lab", "mend", "1", "2", "--name", &lab.name]);
    assert_eq!(mend.status.code(), Some(0), "{mend:?}");
    assert!(something_passes());
}

#[test]
fn bad_arguments_are_refused_before_anything_is_done() {
    for bad in [
        &["lab", "up", "--rate", "10"][..],
        &["lab", "up", "--loss", "1"],
        &["lab", "up", "--hosts", "0"],
        &["lab", "exec", "1"],
    ] {
        let output = unisono(bad);
        assert_eq!(output.status.code(), Some(2), "{bad:?}: {output:?}");
    }
}

/// Waits for the lab of a benchmark and returns its name.
fn lab_of(process: u32) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "the benchmark makes no lab");
        let status = json(&unisono(["lab", "status", "--json"]));
        let names: Vec<&str> =
            status["labs"].as_array().unwrap().iter().filter_map(|lab| lab["lab"].as_str()).collect();
        if let Some(name) = names.iter().find(|name| name.starts_with(&format!("bench-{process}-"))) {
            return name.to_string();
        }
    }
}

#[test]
fn the_lab_of_a_benchmark_is_removed_however_it_ends() {
    let Some(lab) = Lab::up(&["--hosts", "1"]) else { return };
    let endless = ["bench", "latency", "--members", "2", "--messages", "10000000", "--lab"];
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL] {
        let mut bench = Background::start(&endless);
        let name = lab_of(bench.process.id());
        bench.signal(signal);
        let code = bench.end();
        if signal == Signal::KILL {
            // The killed process could not remove it: the next process that sets up a lab does.
            assert_eq!(code, None);
            drop(Lab::up(&["--hosts", "1"]));
        } else {
            assert_eq!(code, Some(128 + signal.as_raw()), "{signal:?}");
        }
        assert_eq!(namespaces(&name), [""; 0], "{signal:?}");
    }
    assert!(lab.is_there(), "a lab that is not temporary stays");

    let bench = unisono(["bench", "latency", "--members", "2", "--messages", "100", "--lab", "--json"]);
    assert_eq!(bench.status.code(), Some(0), "{bench:?}");
    let summary = json(&bench);
    assert_eq!((&summary["lab"], &summary["sealed"]), (&true.into(), &true.into()), "{summary}");
    assert!(summary["ratio_path"].as_f64().unwrap() > 0.0, "{summary}");
    let wrong = unisono(["bench", "failover", "--lab", "--bind", "127.0.0.1"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    assert_eq!(unisono(["bench", "latency", "--rate", "10mbit"]).status.code(), Some(2));
}
