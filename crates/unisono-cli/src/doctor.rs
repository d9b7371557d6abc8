//! `unisono doctor`: what stops people, checked one by one. Each line says good, or what to type.

use crate::arguments::Common;
use crate::connection;
use crate::output::{Output, Tone, visible};
use crate::problem::Problem;
use crate::settings::Settings;
use anyhow::Context;
use clap::Args;
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover};
use serde_json::json;
use socket2::{Domain, SockRef, Socket, Type};
use std::io::{Error, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};
use unisono::{DEFAULT_PORT, MULTICAST_PORT, OpenError};

/// A datagram to oneself that takes longer is lost.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long other versions are listened for: an idle group of up to 32 members multicasts every 100 ms.
const LISTENS: Duration = Duration::from_millis(500);
/// The receive buffer that a busy member wants, in bytes.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// The largest datagram that members send by default.
const DATAGRAM_BYTES: usize = 1472;
/// A member that is woken so late will be suspected without reason before long.
const LATE: Duration = Duration::from_millis(50);

/// Check what stops people: key, address, port, seeds, multicast, wire versions, buffers, datagram size, clock
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  unisono doctor\n  unisono doctor --bind 192.0.2.7:7195 --key group.key")]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What a check found.
enum Finding {
    Good(String),
    /// What is wrong, and what to do.
    Bad(String, String),
}

use Finding::{Bad, Good};

pub(crate) fn run(_: Doctor, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let (found, unasked) = address(settings)?;
    let bound = settings.bind.map_or(Ipv4Addr::LOCALHOST.into(), |bind| bind.ip());
    let address = *found.as_ref().unwrap_or(&bound);
    let checks: [(&str, &dyn Fn() -> Finding); 9] = [
        ("key", &|| key(settings)),
        ("address", &|| reach(&found)),
        ("port", &|| port(settings, address)),
        ("seeds", &|| seeds(settings, &unasked, address)),
        ("multicast", &|| multicast(address, MULTICAST_PORT)),
        ("versions", &|| versions(settings, address)),
        ("buffers", &|| buffers()),
        ("datagrams", &|| datagrams(address)),
        ("clock", &|| clock()),
    ];
    let mut bad = 0;
    for (name, check) in checks {
        let (good, finding, advice) = match check() {
            Good(finding) => (true, finding, None),
            Bad(finding, advice) => (false, finding, Some(advice)),
        };
        bad += u32::from(!good);
        let mark = if good { output.tone(Tone::Good, "good") } else { output.tone(Tone::Bad, "bad ") };
        // Settings may come from somebody else's file.
        output.say(format_args!("{mark}  {name:10} {}", visible(&finding)))?;
        if let Some(advice) = &advice {
            output.say(format_args!("                 {}", visible(advice)))?;
        }
        output.object(&json!({"check": name, "good": good, "finding": finding, "advice": advice}))?;
    }
    output.object(&json!({"command": "doctor", "bad": bad}))?;
    match bad {
        0 => Ok(()),
        bad => Err(Problem::failed(format!("{bad} of the checks found something to mend"))),
    }
}

/// The address that a member with these settings would have. Seeds without an address are told of by themselves, and so
/// are those that nobody could ask from there: by the error that comes along.
fn address(settings: &Settings) -> Result<(Result<IpAddr, OpenError>, Option<OpenError>), Problem> {
    let mut options = connection::options(&Settings { key: None, ..settings.clone() }, None)?;
    options.insecure |= settings.key.is_some();
    options.seeds.retain(|seed| unisono::seed_addresses(seed).is_ok());
    match options.address() {
        Err(unasked @ OpenError::SeedFamily { .. }) => {
            options.seeds.clear();
            Ok((options.address(), Some(unasked)))
        }
        found => Ok((found, None)),
    }
}

fn reach(address: &Result<IpAddr, OpenError>) -> Finding {
    match address {
        Ok(address) if address.is_loopback() => Good(format!("{address}, which nobody reaches from elsewhere")),
        Ok(address) => Good(format!("members elsewhere are told {address}")),
        Err(OpenError::Unprotected { address }) => Bad(
            format!("{} is not on this machine's loopback, and there is no key: nothing is sent", address.ip()),
            "make a key with `unisono keygen FILE` and give it to every member (--key), or allow it with --insecure".into(),
        ),
        Err(error) => Bad("none to be reached at".into(), error.to_string()),
    }
}

fn key(settings: &Settings) -> Finding {
    match &settings.key {
        None if settings.insecure => Good(
            "none, and --insecure: anyone on the network can read and forge what is sent (`unisono keygen FILE` makes one)"
                .into(),
        ),
        None => Good(
            "none: everything stays on this machine, apart from members with a key (`unisono keygen FILE` makes one)".into(),
        ),
        Some(path) => match connection::load_key(path) {
            Ok(_) => Good(format!("{} can be read, and by nobody else", path.display())),
            Err(problem) => Bad("the key cannot be used".into(), problem.into_error().to_string()),
        },
    }
}

fn port(settings: &Settings, address: IpAddr) -> Finding {
    let wanted = settings.bind.unwrap_or(SocketAddr::new(address, 0));
    match UdpSocket::bind(wanted) {
        Ok(_) if wanted.port() == 0 => Good(format!(
            "{address} can be used, at any free port; give seeds a fixed one (such as {DEFAULT_PORT})"
        )),
        Ok(_) => Good(format!("{wanted} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let port = wanted.port();
            Bad(
                format!("{wanted} is in use"),
                format!("type `ss -ulpn 'sport = :{port}'` to see by whom, or choose another port"),
            )
        }
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => Bad(
            format!("{address} is not an address of this machine"),
            "type `ip address` to see those it has".into(),
        ),
        Err(error) => Bad(format!("{wanted} cannot be used"), error.to_string()),
    }
}

fn seeds(settings: &Settings, unasked: &Option<OpenError>, from: IpAddr) -> Finding {
    if settings.seeds.is_empty() {
        return Good("none: the group is looked for by multicast".into());
    }
    let mut found = Vec::new();
    for seed in &settings.seeds {
        match unisono::seed_addresses(seed) {
            Ok(addresses) => found.extend(addresses),
            Err(OpenError::Seeds { source, .. }) => {
                return Bad(format!("{seed} has no address: {source}"), crate::seeds::advice(seed));
            }
            Err(error) => return Bad(format!("{seed} cannot be asked"), error.to_string()),
        }
    }
    if let Some(error) = unasked {
        return Bad("they cannot all be asked from one address".into(), error.to_string());
    }
    let ways: Vec<_> = found.iter().map(|seed| way(from, *seed)).collect();
    if let Some(Err(error)) = ways.last()
        && ways.iter().all(Result::is_err)
    {
        return Bad(
            format!("there is no way to them from {from}: {error}"),
            format!("type `ip route get {}`, and see whether the network is up", found[0].ip()),
        );
    }
    let found = found.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ");
    Good(format!("resolves to {found}; nobody was asked: `unisono members GROUP` with the same flags asks"))
}

/// Whether the system would send there from an address; nothing is sent.
fn way(from: IpAddr, to: SocketAddr) -> std::io::Result<()> {
    UdpSocket::bind((from, 0))?.connect(to)
}

/// Whether a process is heard that uses another version of the wire format. Nothing is sent.
fn versions(settings: &Settings, address: IpAddr) -> Finding {
    let interface = match address {
        IpAddr::V4(interface) => Some(interface),
        IpAddr::V6(_) => None,
    };
    match unisono::hear_other_version(interface, settings.bind, LISTENS) {
        Ok(None) => Good(format!("none but this one was heard in {} ms", LISTENS.as_millis())),
        Ok(Some((from, version))) => Bad(
            format!("{from} uses version {version} of the wire format, which this release does not read"),
            "type `unisono --version` there and here, and use the same release in all processes".into(),
        ),
        // What is wrong with multicast is another check's finding.
        Err(error) => Good(format!("not heard: cannot listen: {error}")),
    }
}

/// A datagram to a multicast group on the interface of this address, and whether it came.
fn multicast(address: IpAddr, port: u16) -> Finding {
    let without = "name members to ask with --seeds HOST:PORT, and use --transport unicast".to_string();
    let IpAddr::V4(interface) = address else {
        return Bad("checked for IPv4 only".into(), without);
    };
    match hear_oneself(interface, port) {
        Ok(true) => Good(format!("sent to port {port} and received on the interface of {interface}")),
        Ok(false) => Bad(format!("sent on the interface of {interface}, but not received"), without),
        Err(error) if error.downcast_ref::<Error>().is_some_and(|e| e.kind() == ErrorKind::AddrInUse) => Bad(
            format!("port {port}, to which all multicasts go, is in use by a program that does not share it"),
            format!("type `ss -ulpn 'sport = :{port}'` to see by whom; or {without}"),
        ),
        Err(error) => Bad(format!("does not work on the interface of {interface}: {error:#}"), without),
    }
}

fn hear_oneself(interface: Ipv4Addr, port: u16) -> anyhow::Result<bool> {
    let group = Ipv4Addr::new(239, 255, 71, 95);
    let receiver = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    receiver.set_reuse_address(true)?;
    receiver.bind(&SocketAddrV4::new(group, port).into())?;
    receiver.join_multicast_v4(&group, &interface).context("cannot join")?;
    receiver.set_read_timeout(Some(PATIENCE))?;
    let receiver = UdpSocket::from(receiver);
    let sender = UdpSocket::bind((interface, 0))?;
    SockRef::from(&sender).set_multicast_if_v4(&interface)?;
    let words = format!("unisono doctor {}", std::process::id());
    sender.send_to(words.as_bytes(), (group, port)).context("cannot send")?;
    hears(&receiver, words.as_bytes())
}

/// Whether these words come; others may come before them.
fn hears(receiver: &UdpSocket, words: &[u8]) -> anyhow::Result<bool> {
    let mut buffer = [0; 2 * DATAGRAM_BYTES];
    let deadline = Instant::now() + PATIENCE;
    loop {
        match receiver.recv(&mut buffer) {
            Ok(bytes) if &buffer[..bytes] == words => return Ok(true),
            Ok(_) if Instant::now() < deadline => {}
            Ok(_) => return Ok(false),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn buffers() -> Finding {
    let granted = || -> std::io::Result<usize> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
        // The system answers with twice what it grants: half is for its own bookkeeping.
        Ok(socket.recv_buffer_size()? / 2)
    };
    match granted() {
        Ok(bytes) if bytes >= RECEIVE_BUFFER_BYTES => Good(format!("{} KiB for what arrives", bytes >> 10)),
        Ok(bytes) => Bad(
            format!("only {} KiB for what arrives: bursts will be lost and sent again", bytes >> 10),
            format!("type `sysctl -w net.core.rmem_max={RECEIVE_BUFFER_BYTES}` as root"),
        ),
        Err(error) => {
            Bad(format!("cannot be set: {error}"), "receive buffers stay as the system gives them".into())
        }
    }
}

fn datagrams(address: IpAddr) -> Finding {
    let whole = || -> anyhow::Result<bool> {
        let any = if address.is_ipv4() {
            IpAddr::from(Ipv4Addr::UNSPECIFIED)
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let receiver = UdpSocket::bind((address, 0)).or_else(|_| UdpSocket::bind((any, 0)))?;
        receiver.set_read_timeout(Some(PATIENCE))?;
        let sender = UdpSocket::bind((address, 0))?;
        if address.is_ipv4() {
            set_ip_mtu_discover(&sender, Ipv4PathMtuDiscovery::DO)?;
        }
        let words = [b'u'; DATAGRAM_BYTES];
        sender.send_to(&words, (address, receiver.local_addr()?.port()))?;
        hears(&receiver, &words)
    };
    match whole() {
        Ok(true) => Good(format!("{DATAGRAM_BYTES} bytes pass whole on this machine")),
        Ok(false) => Bad(
            format!("{DATAGRAM_BYTES} bytes do not pass"),
            "type `ip link` and look for an interface with an mtu below 1500".into(),
        ),
        Err(error) => Bad(
            format!("{DATAGRAM_BYTES} bytes cannot be sent: {error:#}"),
            format!(
                "type `ip address` and see that {address} is there, its interface up, the mtu 1500 or more"
            ),
        ),
    }
}

/// Members measure silence: a machine that wakes them late makes them suspect each other.
fn clock() -> Finding {
    let mut latest = Duration::ZERO;
    for _ in 0..20 {
        let begin = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        latest = latest.max(begin.elapsed().saturating_sub(Duration::from_millis(1)));
    }
    let micros = latest.as_micros();
    if latest < LATE {
        Good(format!("runs, and wakes a sleeper at most {micros} us late"))
    } else {
        Bad(
            format!("wakes a sleeper {micros} us late: members will be suspected without reason"),
            "this machine is overloaded: type `top` to see by whom, or be patient with members: --patience 1000".into(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multicast_port_that_another_program_keeps_to_itself_is_told_of() {
        let other = UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = other.local_addr().unwrap().port();
        let Bad(finding, advice) = multicast(Ipv4Addr::LOCALHOST.into(), port) else {
            panic!("nothing is wrong")
        };
        assert!(
            finding.contains(&format!("port {port}")) && advice.contains("ss -ulpn"),
            "{finding}: {advice}"
        );
    }
}
