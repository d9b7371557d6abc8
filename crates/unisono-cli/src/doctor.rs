//! `unisono doctor`: checks this machine for the usual problems. Each failed check says what to type.

use crate::arguments::Common;
use crate::connection;
use crate::output::{Output, Tone, visible};
use crate::problem::Problem;
use crate::settings::Settings;
use anyhow::Context;
use clap::Args;
use rustix::io::Errno;
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, ip_mtu, ipv6_mtu, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use serde_json::json;
use socket2::{Domain, SockRef, Socket, Type};
use std::fs;
use std::io::{Error, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};
use unisono::{DEFAULT_PORT, MULTICAST_PORT, OpenError};
use unisono_udp::{Neighbour, Neighbours};

/// A datagram to this machine itself that takes longer than this, 500 ms, counts as lost.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time to listen for datagrams of other versions, 500 ms: an idle group of up to 32 members multicasts every 100 ms.
const LISTENS: Duration = Duration::from_millis(500);
/// The receive buffer that a busy member needs: 4 MiB.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// The largest datagram that members send by default, in bytes.
const DATAGRAM_BYTES: usize = 1472;
/// The same over IPv6.
const IPV6_DATAGRAM_BYTES: usize = 1232;
/// Folder with the settings of each network interface.
const CONFIGURED: &str = "/proc/sys/net/ipv4/conf";
/// A thread that wakes this late, 50 ms, makes other members suspect this one without reason.
const LATE: Duration = Duration::from_millis(50);

/// Find out what is wrong with this machine: key, address, loopback, port, seeds, multicast, wire versions, buffers, datagram
/// size, clock
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  unisono doctor\n  unisono doctor --bind 192.0.2.7:7195 --key group.key")]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) common: Common,
}

/// The result of a check.
enum Finding {
    Good(String),
    /// What is wrong, and the advice what to do.
    Bad(String, String),
}

use Finding::{Bad, Good};

pub(crate) fn run(_: Doctor, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let (found, unasked) = address(settings)?;
    let bound = settings.bind.map_or(Ipv4Addr::LOCALHOST.into(), |bind| bind.ip());
    let address = *found.as_ref().unwrap_or(&bound);
    let elsewhere = seeds_elsewhere(settings);
    let checks: [(&str, &dyn Fn() -> Finding); 10] = [
        ("key", &|| key(settings)),
        ("address", &|| reach(&found)),
        ("loopback", &|| loopback(Path::new(CONFIGURED))),
        ("port", &|| port(settings, address)),
        ("seeds", &|| seeds(settings, &unasked)),
        ("multicast", &|| multicast(address, MULTICAST_PORT)),
        ("versions", &|| versions(settings, address)),
        ("buffers", &|| buffers()),
        ("datagrams", &|| datagrams(settings, address, &elsewhere)),
        ("clock", &|| clock()),
    ];
    let (mut bad, count) = (0, checks.len());
    for (name, check) in checks {
        let (good, finding, advice) = match check() {
            Good(finding) => (true, finding, None),
            Bad(finding, advice) => (false, finding, Some(advice)),
        };
        bad += u32::from(!good);
        let mark = if good { output.tone(Tone::Good, "good") } else { output.tone(Tone::Bad, "bad ") };
        // Another user may have written the settings file.
        output.say(format_args!("{mark}  {name:10} {}", visible(&finding)))?;
        if let Some(advice) = &advice {
            output.say(format_args!("                 {}", visible(advice)))?;
        }
        output.object(&json!({"check": name, "good": good, "finding": finding, "advice": advice}))?;
    }
    output.object(&json!({"command": "doctor", "bad": bad}))?;
    match bad {
        0 => Ok(()),
        bad => Err(Problem::failed(format!("{bad} of {count} checks failed: follow the advice of each"))),
    }
}

/// Returns the address that a member with these settings would have, and the error of seeds of another IP version.
/// Ignores seeds without an address: the check of the seeds reports these.
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
        Ok(address) if address.is_loopback() => Good(format!("{address}: other machines cannot reach it")),
        Ok(address) => Good(format!("{address}: members on other machines send to it")),
        Err(OpenError::Unprotected { address }) => Bad(
            format!("{} is not on this machine's loopback, and there is no key: nothing is sent", address.ip()),
            "make a key with `unisono keygen FILE` and give it to every member (--key), or allow it with --insecure".into(),
        ),
        Err(error) => Bad("members cannot reach this machine".into(), error.to_string()),
    }
}

/// Checks that no datagram from outside can arrive at a loopback address.
fn loopback(configured: &Path) -> Finding {
    let Ok(interfaces) = fs::read_dir(configured) else {
        return Good(
            "not checked: the system does not tell which interfaces route loopback addresses".into(),
        );
    };
    let routes = |interface: &fs::DirEntry| {
        let set = fs::read_to_string(interface.path().join("route_localnet"));
        interface.file_name() != "lo" && set.is_ok_and(|set| set.trim() != "0")
    };
    let routing = interfaces.flatten().filter(routes);
    let mut routing: Vec<String> =
        routing.map(|interface| interface.file_name().to_string_lossy().into_owned()).collect();
    routing.sort();
    match routing.first() {
        None => Good("no interface routes datagrams from outside to loopback addresses".into()),
        Some(first) => Bad(
            format!(
                "neighbours on {} may reach loopback addresses of this machine (route_localnet); members without a key \
                 drop what they send",
                routing.join(", ")
            ),
            format!(
                "type `sysctl -w net.ipv4.conf.{first}.route_localnet=0` as root, unless a proxy such as kube-proxy needs it"
            ),
        ),
    }
}

fn key(settings: &Settings) -> Finding {
    match &settings.key {
        None if settings.insecure => Good(
            "none, and --insecure: anyone on the network can read and forge what is sent (`unisono keygen FILE` makes one)"
                .into(),
        ),
        None => Good(
            "none: all traffic stays on this machine, and members with a key are not seen (`unisono keygen FILE` makes one)"
                .into(),
        ),
        Some(path) => match connection::load_key(path) {
            Ok(_) => Good(format!("{} is readable, and other users cannot read it", path.display())),
            Err(problem) => Bad("the key cannot be used".into(), problem.into_error().to_string()),
        },
    }
}

fn port(settings: &Settings, address: IpAddr) -> Finding {
    let wanted = settings.bind.unwrap_or(SocketAddr::new(address, 0));
    match UdpSocket::bind(wanted) {
        Ok(_) if wanted.port() == 0 => Good(format!(
            "{address} can be used, with any free port; a seed needs a fixed one (such as {DEFAULT_PORT})"
        )),
        Ok(_) => Good(format!("{wanted} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let port = wanted.port();
            Bad(
                format!("{wanted} is in use"),
                format!(
                    "type `ss -ulpn 'sport = :{port}'` to see which program uses it, or choose another port"
                ),
            )
        }
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => Bad(
            format!("{address} is not an address of this machine"),
            "type `ip address` to list its addresses".into(),
        ),
        Err(error) => Bad(format!("{wanted} cannot be used"), error.to_string()),
    }
}

fn seeds(settings: &Settings, unasked: &Option<OpenError>) -> Finding {
    if settings.seeds.is_empty() {
        return Good("none: groups are looked for by multicast".into());
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
        return Bad("one address cannot reach all of them".into(), error.to_string());
    }
    let bound = settings.bind.map(|bind| bind.ip());
    let ways: Vec<_> = found.iter().map(|seed| toward(bound, *seed)).collect();
    if let Some(Err(error)) = ways.last()
        && ways.iter().all(Result::is_err)
    {
        return Bad(
            format!("no route to them: {error}"),
            format!("type `ip route get {}`, and check that the network is up", found[0].ip()),
        );
    }
    let found = found.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ");
    Good(format!("resolves to {found}; not asked: `unisono members GROUP` with the same flags asks them"))
}

/// Returns the addresses of the seeds that are not on this machine's loopback.
fn seeds_elsewhere(settings: &Settings) -> Vec<SocketAddr> {
    let found = settings.seeds.iter().filter_map(|seed| unisono::seed_addresses(seed).ok());
    found.flatten().filter(|seed| !seed.ip().is_loopback()).collect()
}

/// Returns a socket that is connected with `to`, from an address or else from the one that the route to it has. Sends nothing.
fn toward(from: Option<IpAddr>, to: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind((from.unwrap_or(any(to.is_ipv6())), 0))?;
    socket.connect(to)?;
    Ok(socket)
}

fn any(version_six: bool) -> IpAddr {
    if version_six { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// Listens for processes that use another version of the wire format. Sends nothing.
fn versions(settings: &Settings, address: IpAddr) -> Finding {
    let interface = match address {
        IpAddr::V4(interface) => Some(interface),
        IpAddr::V6(_) => None,
    };
    match unisono::hear_other_version(interface, settings.bind, LISTENS) {
        Ok(None) => Good(format!("no datagram of another version arrived in {} ms", LISTENS.as_millis())),
        Ok(Some((from, version))) => Bad(
            format!("{from} uses version {version} of the wire format, which this release does not read"),
            "type `unisono --version` there and here, and use the same release in all processes".into(),
        ),
        // The check of multicast reports what is wrong with it.
        Err(error) => Good(format!("not checked: cannot listen: {error}")),
    }
}

/// Sends a datagram to a multicast group on the interface of this address, and checks that it arrives.
fn multicast(address: IpAddr, port: u16) -> Finding {
    let without = "name members with --seeds HOST:PORT, and use --transport unicast".to_string();
    let IpAddr::V4(interface) = address else {
        return Bad("checked for IPv4 only".into(), without);
    };
    match receives_own_multicast(interface, port) {
        Ok(true) => Good(format!("sent to port {port} and received on the interface of {interface}")),
        Ok(false) => Bad(format!("sent on the interface of {interface}, but not received"), without),
        Err(error) if error.downcast_ref::<Error>().is_some_and(|e| e.kind() == ErrorKind::AddrInUse) => Bad(
            format!("port {port}, which all multicasts use, is in use by a program that does not share it"),
            format!("type `ss -ulpn 'sport = :{port}'` to see which program; or {without}"),
        ),
        Err(error) => Bad(format!("does not work on the interface of {interface}: {error:#}"), without),
    }
}

fn receives_own_multicast(interface: Ipv4Addr, port: u16) -> anyhow::Result<bool> {
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
    receives(&receiver, words.as_bytes())
}

/// Waits for this datagram. Others may arrive before it.
fn receives(receiver: &UdpSocket, words: &[u8]) -> anyhow::Result<bool> {
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
        // Linux reports twice the size that it grants: half of it is for its own bookkeeping.
        Ok(socket.recv_buffer_size()? / 2)
    };
    match granted() {
        Ok(bytes) if bytes >= RECEIVE_BUFFER_BYTES => Good(format!("receive buffers of {} KiB", bytes >> 10)),
        Ok(bytes) => Bad(
            format!("receive buffers of only {} KiB: bursts will be lost and retransmitted", bytes >> 10),
            format!("type `sysctl -w net.core.rmem_max={RECEIVE_BUFFER_BYTES}` as root"),
        ),
        Err(error) => Bad(format!("cannot be set: {error}"), "members use the system's default size".into()),
    }
}

/// Checks that the largest datagrams pass in one piece: to all seeds with a route, or else on this machine.
fn datagrams(settings: &Settings, address: IpAddr, seeds: &[SocketAddr]) -> Finding {
    if !seeds.is_empty() && settings.key.is_none() && !settings.insecure {
        return Good("not checked: without a key nothing is sent to other machines".into());
    }
    let reached = seeds.iter().filter_map(|seed| Some((toward(None, *seed).ok()?, *seed)));
    let mut first = None;
    for (socket, seed) in reached {
        match datagrams_toward(&socket, seed) {
            Good(finding) => drop(first.get_or_insert(finding)),
            bad => return bad,
        }
    }
    if let Some(finding) = first {
        return Good(finding);
    }
    let bytes = datagram_bytes(address);
    let whole = || -> anyhow::Result<bool> {
        let any = any(address.is_ipv6());
        let receiver = UdpSocket::bind((address, 0)).or_else(|_| UdpSocket::bind((any, 0)))?;
        receiver.set_read_timeout(Some(PATIENCE))?;
        let sender = UdpSocket::bind((address, 0))?;
        do_not_fragment(&sender, address)?;
        let words = vec![b'u'; bytes];
        sender.send_to(&words, (address, receiver.local_addr()?.port()))?;
        receives(&receiver, &words)
    };
    match whole() {
        Ok(true) => Good(format!(
            "{bytes} bytes pass in one piece on this machine; name a member with --seeds to measure the way to it"
        )),
        Ok(false) => Bad(
            format!("{bytes} bytes do not pass in one piece"),
            "type `ip link` and look for an interface with an mtu below 1500".into(),
        ),
        Err(error) => Bad(
            format!("{bytes} bytes cannot be sent: {error:#}"),
            format!(
                "type `ip address` and check that {address} is listed, its interface is up, and the mtu is 1500 or more"
            ),
        ),
    }
}

/// Sends the largest datagrams to a seed, which drops them, and looks whether this machine or a router refuses them.
fn datagrams_toward(socket: &UdpSocket, seed: SocketAddr) -> Finding {
    let bytes = datagram_bytes(seed.ip());
    let sent = || -> std::io::Result<()> {
        do_not_fragment(socket, seed.ip())?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.send(&vec![b'u'; bytes])?;
        // Nothing is expected but the error that a router reports, or the host itself.
        match socket.recv(&mut [0; DATAGRAM_BYTES]) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(()),
            received => received.map(drop),
        }
    };
    let mtu = |sent: &str| {
        let mtu = if seed.is_ipv4() { ip_mtu(socket) } else { ipv6_mtu(socket) };
        mtu.map_or(sent.to_owned(), |mtu| {
            format!("{sent} (the mtu of the path is {mtu}, as far as this machine knows)")
        })
    };
    match sent() {
        Ok(()) if Neighbours::read().at(seed.ip()) == Neighbour::Silent => Bad(
            format!("no machine on this network answers for the address {}", seed.ip()),
            format!(
                "check --seeds, that the machine runs, and its cable; `ip neigh show {}` shows more",
                seed.ip()
            ),
        ),
        Ok(()) => Good(mtu(&format!(
            "{bytes} bytes leave for {} in one piece, and no router refuses them; whether they arrive was not asked",
            seed.ip()
        ))),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Good(mtu(&format!(
            "{bytes} bytes arrive at {} in one piece; no process has port {}",
            seed.ip(),
            seed.port()
        ))),
        Err(error) if error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error()) => Bad(
            mtu(&format!("{bytes} bytes do not pass to {} in one piece", seed.ip())),
            format!("type `ip link` and `ip route get {}`, and look for an mtu below 1500", seed.ip()),
        ),
        Err(error) => Bad(
            format!("{bytes} bytes cannot be sent to {seed}: {error}"),
            format!(
                "type `ip route get {}` to see whether there is a route, and look for a firewall",
                seed.ip()
            ),
        ),
    }
}

/// Returns the length of the largest datagram that members with such an address send by default.
fn datagram_bytes(address: IpAddr) -> usize {
    if address.is_ipv4() { DATAGRAM_BYTES } else { IPV6_DATAGRAM_BYTES }
}

/// Has the system refuse datagrams that are longer than the mtu, instead of fragmenting them.
fn do_not_fragment(socket: &UdpSocket, address: IpAddr) -> std::io::Result<()> {
    match address {
        IpAddr::V4(_) => set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DO)?,
        IpAddr::V6(_) => set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::DO)?,
    }
    Ok(())
}

/// Measures how late the system wakes a sleeping thread. A machine that wakes members late makes them suspect each
/// other.
fn clock() -> Finding {
    let mut latest = Duration::ZERO;
    for _ in 0..20 {
        let begin = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        latest = latest.max(begin.elapsed().saturating_sub(Duration::from_millis(1)));
    }
    let micros = latest.as_micros();
    if latest < LATE {
        Good(format!("a sleeping thread wakes at most {micros} us late"))
    } else {
        Bad(
            format!("a sleeping thread wakes {micros} us late: members will be suspected without reason"),
            "this machine is overloaded: type `top` to see by which program, or give members more time: --patience 1s".into(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_routes_loopback_addresses_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        for (interface, set) in [("lo", "1\n"), ("eth0", "0\n"), ("veth1", "0\n")] {
            fs::create_dir(folder.path().join(interface)).unwrap();
            fs::write(folder.path().join(interface).join("route_localnet"), set).unwrap();
        }
        assert!(matches!(loopback(folder.path()), Good(_)), "loopback itself does not count");
        fs::write(folder.path().join("veth1/route_localnet"), "1\n").unwrap();
        let Bad(finding, advice) = loopback(folder.path()) else { panic!("an interface routes them") };
        assert!(
            finding.contains("on veth1 may reach") && advice.contains("conf.veth1.route_localnet=0"),
            "{finding}"
        );
    }

    #[test]
    fn a_multicast_port_that_another_program_does_not_share_is_reported() {
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
