//! Tests of addresses on hosts of their own: wildcards, both IP versions, and datagrams over IPv6.
//!
//! They need root and a few tools. Without these they skip themselves.

mod common;

use common::lab::Lab;
use common::{Background, LOOKS_LONG, alone, group, json, persistently, unisono};
use rustix::process::Signal;
use std::io::Write;
use std::path::PathBuf;
use std::process::Output;

const OWN: &str = env!("CARGO_BIN_EXE_unisono");
/// Address of a member on host 1, which names itself as a seed: IPv6 has no multicast here.
const AT: &str = "[fd00:195::1]:7195";
/// Address of a service on host 1.
const CALLED: &str = "[fd00:195::1]:7301";

/// Two hosts and the keys of a directory service with one server, which is on host 1.
struct Hosts {
    lab: Lab,
    folder: tempfile::TempDir,
    server: Option<Background>,
}

impl Hosts {
    fn up() -> Option<Hosts> {
        let hosts =
            Hosts { lab: Lab::up(&["--hosts", "2"])?, folder: tempfile::tempdir().unwrap(), server: None };
        for key in ["servers", "clients"] {
            assert_eq!(unisono(["keygen", &hosts.path(key)]).status.code(), Some(0));
        }
        Some(hosts)
    }

    /// The same, with IPv6. None where there is none; prints that past the test harness.
    fn up_with_ipv6() -> Option<Hosts> {
        let hosts = Hosts::up()?;
        for host in ["1", "2"] {
            let address = format!("fd00:195::{host}/64");
            let added = hosts.run(host, &["ip", "-6", "address", "add", &address, "dev", "eth0", "nodad"]);
            if added.status.code() != Some(0) {
                let _ = writeln!(std::io::stderr(), "skipped: no IPv6 on hosts of a lab: {added:?}");
                return None;
            }
        }
        Some(hosts)
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn run(&self, host: &str, command: &[&str]) -> Output {
        unisono(self.lab.on(host, command))
    }

    /// Starts the server, and waits until it serves. Over IPv6, which has no multicast here, it names itself as a seed.
    fn serve(&mut self, bind: &str) {
        let [data, servers, clients] = ["data", "servers", "clients"].map(|name| self.path(name));
        let command = [OWN, "dir", "serve", "--id", "1", "--replicas", "1", "--data", &data, "--bind", bind];
        let keys = ["--key", &servers, "--client-key", &clients];
        let seeds: &[&str] = if bind.starts_with('[') { &["--seeds", AT] } else { &[] };
        let mut server = Background::start_heard(&self.lab.on("1", &[&command[..], &keys, seeds].concat()));
        server.until("the server", |seen| seen.iter().any(|line| line["event"] == "serving"));
        self.server = Some(server);
    }

    fn kill(&mut self) {
        let mut server = self.server.take().unwrap();
        server.signal(Signal::KILL);
        server.end();
    }

    /// Runs a command of a client on host 2.
    fn ask(&self, command: &[&str], seeds: &str) -> Output {
        let key = self.path("clients");
        let command = [&[OWN], command, &["--key", &key, "--seeds", seeds]].concat();
        persistently(|| self.run("2", &command), |output| output.status.code() == Some(0))
    }

    fn is_served(&self, seeds: &str) {
        let said = self.ask(&["dir", "status", "--json"], seeds);
        assert!(String::from_utf8_lossy(&said.stdout).contains(r#""state":"serving""#), "{seeds}: {said:?}");
    }
}

// The port of clients is then that of all multicasts.
#[test]
fn a_server_at_all_addresses_and_listeners_share_a_port() {
    let _alone = alone();
    let Some(mut hosts) = Hosts::up() else { return };
    hosts.serve("0.0.0.0:7195");
    hosts.is_served("10.195.0.1:7196");
    let listen = [OWN, "listen", &group("other")];
    let mut listener = Background::start(&hosts.lab.on("1", &listen));
    listener.until("the view", |seen| !seen.is_empty());
    // A restart finds the port in use by the listener.
    hosts.kill();
    hosts.serve("0.0.0.0:7195");
    hosts.is_served("10.195.0.1:7196");
    let second = hosts
        .run("1", &[OWN, "rpc", "serve", "upper", "--exec", "true", "--insecure", "--bind", "0.0.0.0:7196"]);
    assert_eq!(second.status.code(), Some(1), "{second:?}");
    assert!(String::from_utf8_lossy(&second.stderr).contains("in use"), "{second:?}");
}

#[test]
fn a_client_asks_seeds_of_both_ip_versions() {
    let _alone = alone();
    let Some(mut hosts) = Hosts::up_with_ipv6() else { return };
    // The server answers from its IPv6 address alone. There is no host 7.
    hosts.serve("[::]:7195");
    for seeds in ["10.195.0.1:7196,[fd00:195::1]:7196", "[fd00:195::1]:7196,10.195.0.7:7196"] {
        hosts.is_served(seeds);
    }
    hosts.kill();
    hosts.serve("10.195.0.1:7195");
    hosts.is_served("[fd00:195::1]:7196,10.195.0.1:7196");
}

#[test]
fn a_member_finds_its_group_in_another_ip_version_than_that_of_the_first_seed() {
    let _alone = alone();
    let Some(hosts) = Hosts::up_with_ipv6() else { return };
    let (name, key) = (group("six"), hosts.path("servers"));
    let listen = [OWN, "listen", &name, "--key", &key, "--bind", AT, "--seeds", AT, "--count", "1"];
    let mut listener = Background::start(&hosts.lab.on("1", &listen));
    listener.until("the view", |seen| !seen.is_empty());
    let seeds = format!("10.195.0.1:7195,{AT}");
    let send = [&[OWN, "send", &name, "hello", "--key", &key, "--seeds", &seeds, "--json"], &LOOKS_LONG[..]]
        .concat();
    let sent = hosts.run("2", &send);
    assert_eq!(json(&sent)["accepted"], 1, "{sent:?}");
    listener.until_messages(1);
    assert_eq!(listener.texts(), ["hello"]);
}

#[test]
fn over_ipv6_messages_calls_and_files_of_any_size_pass() {
    let _alone = alone();
    let Some(mut hosts) = Hosts::up_with_ipv6() else { return };
    let text: String = ('a'..='z').cycle().take(60_000).collect();
    let (name, key) = (group("large"), hosts.path("servers"));
    let listen = [OWN, "listen", &name, "--key", &key, "--bind", AT, "--seeds", AT, "--count", "1"];
    let mut listener = Background::start(&hosts.lab.on("1", &listen));
    listener.until("the view", |seen| !seen.is_empty());
    let seeds = ["--key", &key, "--seeds", AT];
    let send = [&[OWN, "send", &name, &text, "--json"], &seeds[..], &LOOKS_LONG[..]].concat();
    let sent = hosts.run("2", &send);
    assert_eq!(json(&sent)["accepted"], 1, "{sent:?}");
    listener.until_messages(1);
    assert!(listener.texts() == [text.as_str()]);

    let serve = [
        OWN,
        "rpc",
        "serve",
        "upper",
        "--exec",
        "tr a-z A-Z",
        "--key",
        &key,
        "--bind",
        CALLED,
        "--seeds",
        CALLED,
    ];
    let mut server = Background::start(&hosts.lab.on("1", &serve));
    server.until("the service", |seen| seen.iter().any(|line| line["event"] == "serving"));
    let call = [OWN, "rpc", "call", "upper", &text, "--key", &key, "--seeds", CALLED];
    let called = hosts.run("2", &call);
    assert!(called.stdout.starts_with(text.to_uppercase().as_bytes()), "{:?}", called.stderr);

    // The listener, which has the message, has ended: its port is free.
    assert_eq!(listener.end(), Some(0));
    hosts.serve(AT);
    let cap = PathBuf::from(hosts.path("data")).join("root.cap").display().to_string();
    let (file, seeds) = (hosts.path("file"), "[fd00:195::1]:7196");
    std::fs::write(&file, &text).unwrap();
    let put = hosts.ask(&["file", "put", &file, "--as", "large", "--cap", &cap], seeds);
    assert_eq!(put.status.code(), Some(0), "{put:?}");
    let got = hosts.ask(&["file", "get", "large", "--cap", &cap], seeds);
    assert!(got.stdout == text.as_bytes(), "{:?}", got.stderr);
}

#[test]
fn a_doctor_measures_the_way_to_a_seed() {
    let _alone = alone();
    let Some(hosts) = Hosts::up() else { return };
    let key = hosts.path("servers");
    let doctor_of = |seeds: &str| {
        let said = hosts.run("2", &[OWN, "doctor", "--key", &key, "--seeds", seeds, "--json"]);
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        text.lines().find(|line| line.contains(r#""datagrams""#)).unwrap().to_owned()
    };
    let doctor = || doctor_of("10.195.0.1:7195");
    let absent = doctor_of("10.195.0.1:7195,10.195.0.99:7195");
    assert!(
        absent.contains(r#""good":false"#) && absent.contains("answers for the address 10.195.0.99"),
        "{absent}"
    );
    let good = doctor();
    assert!(good.contains(r#""good":true"#) && good.contains("10.195.0.1"), "{good}");
    hosts.run("2", &["ip", "link", "set", "eth0", "mtu", "1400"]);
    let narrow = doctor();
    assert!(narrow.contains(r#""good":false"#) && narrow.contains("1400"), "{narrow}");
}
