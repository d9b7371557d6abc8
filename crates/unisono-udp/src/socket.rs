//! Sockets: how they are made and configured, and how a thread is woken that waits in one.

use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::{UdpSockRef, UdpSocketState};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use socket2::{Domain, Protocol, SockAddr, SockFilter, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Size in bytes that is requested for each buffer. The kernel grants what its limits allow.
const BUFFER_BYTES: usize = 4 << 20;
/// Write timeout of a blocking socket. The kernel rounds it up to its minimum.
const SHORTEST_WAIT: Duration = Duration::from_micros(1);

/// A UDP socket, with everything that makes it fast switched on as far as the kernel allows. It never blocks, unless
/// that was requested ([`Socket::set_blocking`]).
#[derive(Debug)]
pub struct Socket {
    pub(crate) inner: socket2::Socket,
    pub(crate) state: UdpSocketState,
    address: SocketAddr,
    /// Receives block.
    pub(crate) blocking: AtomicBool,
    /// Nothing in its receive buffer is coalesced.
    uncoalesced: AtomicBool,
    /// Number of runs sent as one packet.
    pub(crate) runs: AtomicU32,
    /// The address to send from, if the kernel must not choose it for each destination.
    pub(crate) source: Option<IpAddr>,
}

impl Socket {
    /// Opens a socket to send from and be reached at. Port 0 takes any free port. `[::]` is all addresses of this machine,
    /// those of IPv4 too; `0.0.0.0` is those of IPv4. [Listeners](Socket::listen) may have the same port.
    pub fn bind(address: SocketAddr) -> io::Result<Socket> {
        let inner = udp(address)?;
        if address.ip().is_unspecified() && address.port() != 0 {
            bind_beside_listeners(&inner, address)?;
        } else {
            inner.bind(&address.into())?;
        }
        Socket::configure(inner)
    }

    /// Maximum time for which a receive from a blocking socket waits.
    pub const WAIT_MAX: Duration = Duration::from_millis(20);

    /// Opens a socket that receives what is sent to the multicast address `group` on the interface with the address
    /// `interface`. It ignores what `except` sends, and empty datagrams, unless they are [wakeup
    /// datagrams](SocketWaker) from `waker_port`. Any number of processes can listen to one group.
    pub fn listen(
        group: SocketAddrV4,
        interface: Ipv4Addr,
        except: Option<SocketAddrV4>,
        waker_port: Option<u16>,
    ) -> io::Result<Socket> {
        let inner = socket2::Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        inner.set_reuse_address(true)?;
        // Otherwise Linux also delivers groups that other sockets of this machine have joined.
        inner.set_multicast_all_v4(false)?;
        inner.attach_filter(&listener_filter(except, waker_port))?;
        inner.bind(&SockAddr::from(group))?;
        inner.join_multicast_v4(group.ip(), &interface)?;
        Socket::configure(inner)
    }

    fn configure(inner: socket2::Socket) -> io::Result<Socket> {
        // Refused beyond the system's limit, which applies then.
        let _ = inner.set_recv_buffer_size(BUFFER_BYTES);
        let _ = inner.set_send_buffer_size(BUFFER_BYTES);
        // Both apply while the socket is blocking. The second is for a send that looked as if it would not wait.
        inner.set_read_timeout(Some(Socket::WAIT_MAX))?;
        inner.set_write_timeout(Some(SHORTEST_WAIT))?;
        let state = UdpSocketState::new(UdpSockRef::from(&inner))?;
        disable_ancillary_data(&inner);
        let address = inner
            .local_addr()?
            .as_socket()
            .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "not an IP socket"))?;
        // Fragment on a path that is narrower than it looked, rather than lose all large datagrams. A socket of IPv6 has
        // both options, since it may send by IPv4.
        let _ = set_ip_mtu_discover(&inner, Ipv4PathMtuDiscovery::WANT);
        if address.is_ipv6() {
            let _ = set_ipv6_mtu_discover(&inner, Ipv6PathMtuDiscovery::WANT);
            let _ = setsockopt(&inner, sockopt::Ipv6DontFrag, &false);
        }
        let (blocking, uncoalesced) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Socket { inner, state, address, blocking, uncoalesced, runs: AtomicU32::new(0), source: None })
    }

    /// From now on multicasts from this socket leave by the interface with the address `interface`, pass fewer than
    /// `hops` routers, and reach listeners on this machine too.
    pub fn send_multicast_by(&self, interface: Ipv4Addr, hops: u32) -> io::Result<()> {
        self.inner.set_multicast_if_v4(&interface)?;
        self.inner.set_multicast_ttl_v4(hops)?;
        self.inner.set_multicast_loop_v4(true)
    }

    /// From now on datagrams from this socket have the source address `source`, one of this machine's addresses. For a
    /// socket that is bound to all of them: otherwise, or if `source` is unspecified, each receiver sees the address that
    /// is nearest to it. So do receivers of the other IP version.
    pub fn send_as(&mut self, source: IpAddr) {
        if !source.is_unspecified() {
            self.source = Some(source);
            self.address.set_ip(source);
        }
    }

    /// Returns the source address for datagrams to `destination`; `None` if the kernel chooses it.
    pub(crate) fn source_toward(&self, destination: SocketAddr) -> Option<IpAddr> {
        self.source.filter(|source| source.is_ipv4() == destination.is_ipv4())
    }

    /// Returns the same socket with another source address ([`Socket::send_as`]). What one of the two receives, the other
    /// does not.
    pub fn again_as(&self, source: IpAddr) -> io::Result<Socket> {
        let mut again = Socket::configure(self.inner.try_clone()?)?;
        again.send_as(source);
        Ok(again)
    }

    /// Sets whether [`Receiver::wait_and_receive`](crate::Receiver::wait_and_receive) sleeps until there is something
    /// to receive. If so, [`Receiver::receive`](crate::Receiver::receive) must not be called. Sending never blocks.
    pub fn set_blocking(&self, blocking: bool) -> io::Result<()> {
        self.inner.set_nonblocking(!blocking)?;
        self.blocking.store(blocking, Ordering::Relaxed);
        Ok(())
    }

    /// Switches coalescing off or on. Without it a wait for a lone datagram costs less, but the kernel splits runs up
    /// on their way here, at the cost of their sender. Coalescing stays on while the receive buffer holds something
    /// that may have been coalesced.
    pub fn set_uncoalesced(&self, uncoalesced: bool) {
        self.coalesce(!uncoalesced);
        let refused = uncoalesced && self.wait(Some(Duration::ZERO));
        if refused {
            self.coalesce(true);
        }
        self.uncoalesced.store(uncoalesced && !refused, Ordering::Relaxed);
    }

    /// True if every datagram is received separately.
    pub fn is_uncoalesced(&self) -> bool {
        self.uncoalesced.load(Ordering::Relaxed)
    }

    /// The kernel decides on coalescing before it queues a packet at the socket. So a run that is between the two when
    /// coalescing is switched off is received as one datagram. It is as good as lost: no checksum and no seal fits it.
    fn coalesce(&self, coalesced: bool) {
        // Fails on a kernel that never coalesces.
        let _ = setsockopt(&self.inner, sockopt::UdpGroSegment, &coalesced);
    }

    /// Returns the address to which the socket is bound, with the source address if one was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the size of the receive buffer, as the kernel counts: it charges about 2,300 bytes for a datagram of
    /// Ethernet size.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.inner.recv_buffer_size().unwrap_or(0)
    }

    /// Returns how many runs of datagrams were sent as one packet each. The count wraps around.
    pub fn runs_sent(&self) -> u32 {
        self.runs.load(Ordering::Relaxed)
    }

    /// True if runs of datagrams are sent as one packet at present.
    pub fn segments(&self) -> bool {
        self.state.max_gso_segments() > 1
    }
}

fn udp(address: SocketAddr) -> io::Result<socket2::Socket> {
    socket2::Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
}

/// Binds a socket to a port of all addresses of this machine. Listeners at multicast addresses may have the port too, now
/// and later, in any process: both sides permit that others share it. To no other socket is it given.
fn bind_beside_listeners(socket: &socket2::Socket, address: SocketAddr) -> io::Result<()> {
    // A socket that permits to share its port would also share it with another one at all addresses. So the port is first
    // taken at loopback without permission, which fails beside such a socket and not beside listeners. Until all
    // addresses are bound, these sockets keep out another process that does the same.
    let loopbacks = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
    let mut taken = Vec::new();
    for ip in loopbacks.into_iter().take(if address.is_ipv4() { 1 } else { 2 }) {
        let loopback = SocketAddr::new(ip, address.port());
        let claim = udp(loopback)?;
        match claim.bind(&loopback.into()) {
            Ok(()) => claim.set_reuse_address(true)?,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
            // This machine has no loopback address of that IP version.
            Err(_) => continue,
        }
        taken.push(claim);
    }
    socket.set_reuse_address(true)?;
    // Otherwise it would also receive what listeners of this machine receive at the port.
    socket.set_multicast_all_v4(false)?;
    socket.bind(&address.into())
}

/// Switches off what the kernel reports with each datagram and no caller needs: its type of service, the time of its
/// arrival and its destination address. Where that fails it costs a little time.
fn disable_ancillary_data(socket: &socket2::Socket) {
    let _ = socket.set_recv_tos_v4(false);
    let _ = setsockopt(socket, sockopt::ReceiveTimestampns, &false);
    let _ = setsockopt(socket, sockopt::Ipv4PacketInfo, &false);
    let _ = setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &false);
    let _ = socket.set_recv_tclass_v6(false);
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

/// Wakes threads that wait in a receive, by empty datagrams that never leave this machine.
#[derive(Debug)]
pub struct SocketWaker {
    socket: socket2::Socket,
    is_ipv4: bool,
    port: u16,
}

impl SocketWaker {
    /// Makes one, best for sockets bound to addresses of the same family as `like`, and for listeners on this interface.
    pub fn new(like: SocketAddr, interface: Option<Ipv4Addr>) -> io::Result<SocketWaker> {
        let any: IpAddr = match like {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = socket2::Socket::new(Domain::for_address(like), Type::DGRAM, Some(Protocol::UDP))?;
        socket.bind(&SocketAddr::new(any, 0).into())?;
        socket.set_nonblocking(true)?;
        if like.is_ipv4() {
            // With a time to live of 0, a multicast stays on its machine.
            socket.set_multicast_ttl_v4(0)?;
            socket.set_multicast_loop_v4(true)?;
        }
        let port = socket.local_addr()?.as_socket().map_or(0, |address| address.port());
        let waker = SocketWaker { socket, is_ipv4: like.is_ipv4(), port };
        interface.into_iter().for_each(|interface| waker.wake_by(interface));
        Ok(waker)
    }

    /// From now on it wakes listeners on this interface.
    pub fn wake_by(&self, interface: Ipv4Addr) {
        // If this fails, no socket can listen either.
        let _ = self.socket.set_multicast_if_v4(&interface);
    }

    /// Returns the port from which its wakeup datagrams come.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Wakes a thread that waits in `socket`, now or at its next wait. Like any datagram, it may be lost.
    pub fn wake(&self, socket: &Socket) {
        let to = socket.address();
        match self.is_ipv4 && to.is_ipv6() {
            // The socket was opened in place of one of the other IP version.
            true => drop(udp(to).map(|other| other.send_to(&[], &to.into()))),
            false => drop(self.socket.send_to(&[], &to.into())),
        }
    }
}

/// Returns a filter in the kernel's packet language that drops what a listener does not want before it wakes a thread.
fn listener_filter(except: Option<SocketAddrV4>, waker_port: Option<u16>) -> Vec<SockFilter> {
    const LOAD_WORD: u16 = 0x20;
    const LOAD_HALF: u16 = 0x28;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    // Offsets count from the UDP header: source port, destination port, length. The IP header is at a special offset,
    // with the source address 12 bytes into it.
    const PORT: u32 = 0;
    const LENGTH: u32 = 4;
    const HEADER_BYTES: u32 = 8;
    const IP_SOURCE: u32 = 0xfff0_0000 + 12;
    const DROP: SockFilter = SockFilter::new(RETURN, 0, 0, 0);
    const TAKE: SockFilter = SockFilter::new(RETURN, 0, 0, u32::MAX);
    let load = SockFilter::new;
    let unless_equal = |value, skipped| SockFilter::new(JUMP_IF_EQUAL, 0, skipped, value);
    let mut filter = vec![load(LOAD_HALF, 0, 0, LENGTH)];
    // No port is 65,536 or more.
    let waker_port = waker_port.map_or(u32::MAX, u32::from);
    filter.extend([
        unless_equal(HEADER_BYTES, 4),
        load(LOAD_HALF, 0, 0, PORT),
        unless_equal(waker_port, 1),
        TAKE,
        DROP,
    ]);
    if let Some(sender) = except {
        // The port first: what precedes the UDP header takes longer to load.
        filter.extend([load(LOAD_HALF, 0, 0, PORT), unless_equal(sender.port().into(), 3)]);
        filter.extend([load(LOAD_WORD, 0, 0, IP_SOURCE), unless_equal(u32::from(*sender.ip()), 1), DROP]);
    }
    filter.push(TAKE);
    filter
}

/// Returns the address of this machine from which `destination` is reached. Sends nothing. Fails without a route.
pub fn address_toward(destination: SocketAddr) -> io::Result<IpAddr> {
    let any = match destination {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    socket.connect(destination)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Receiver;
    use bytes::BytesMut;
    use std::io::Write;
    use std::time::Instant;

    /// Longer than any datagram takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;

    pub(crate) fn bind() -> Socket {
        Socket::bind((LOOPBACK, 0).into()).unwrap()
    }

    /// A multicast group that no other test uses: its port is that of the test's own socket.
    fn group(of: &Socket) -> SocketAddrV4 {
        v4_group(of.address().port())
    }

    fn v4_group(port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(239, 195, 255, 1), port)
    }

    fn v4(socket: &Socket) -> SocketAddrV4 {
        match socket.address() {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(address) => panic!("{address} is not IPv4"),
        }
    }

    /// Receives until `count` datagrams are there or no more come.
    fn take(socket: &Socket, count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut receiver = Receiver::new();
        let mut taken = Vec::new();
        while taken.len() < count && socket.wait(Some(PATIENCE)) {
            receiver.receive(socket, |from, datagram| taken.push((from, datagram.to_vec()))).unwrap();
        }
        taken
    }

    /// Opens listeners to a fresh group. Where multicast is not permitted, reports that and returns nothing.
    fn listeners(sender: &Socket, deaf: &[Option<SocketAddrV4>]) -> Option<Vec<Socket>> {
        let made: io::Result<Vec<Socket>> = sender.send_multicast_by(LOOPBACK, 1).and_then(|()| {
            deaf.iter().map(|except| Socket::listen(group(sender), LOOPBACK, *except, None)).collect()
        });
        match made {
            Ok(listeners) => Some(listeners),
            Err(error) => {
                let _ = writeln!(io::stderr(), "skipped: no multicast on loopback here: {error}");
                None
            }
        }
    }

    #[test]
    fn every_listener_hears_a_multicast_and_others_of_its_port_do_not() {
        let sender = bind();
        let Some(listeners) = listeners(&sender, &[None, None]) else { return };
        let other = SocketAddrV4::new(Ipv4Addr::new(239, 195, 255, 2), sender.address().port());
        let stranger = Socket::listen(other, LOOPBACK, None, None).unwrap();
        sender.send(b"to all", 6, &[group(&sender).into()]);
        for listener in &listeners {
            assert_eq!(take(listener, 1), [(sender.address(), b"to all".to_vec())]);
        }
        assert!(!stranger.wait(Some(Duration::ZERO)));
    }

    #[test]
    fn a_listener_is_deaf_to_its_own_sender_only() {
        let (own, other) = (bind(), bind());
        let Some(listeners) = listeners(&own, &[Some(v4(&own))]) else { return };
        // With another address, the same port belongs to another sender.
        let namesake = (Ipv4Addr::new(127, 0, 0, 2), own.address().port());
        let others = [other, Socket::bind(namesake.into()).unwrap()];
        let to = [group(&own).into()];
        own.send(b"mine", 4, &to);
        own.send(b"minemine", 4, &to);
        for other in &others {
            other.send_multicast_by(LOOPBACK, 1).unwrap();
            other.send(b"yours", 5, &to);
        }
        // If it had received its own datagrams, they would be first.
        let heard = others.each_ref().map(|other| (other.address(), b"yours".to_vec()));
        assert_eq!(take(&listeners[0], 2), heard);
    }

    #[test]
    fn a_wakeup_datagram_wakes_only_the_socket_it_is_sent_to() {
        let sender = bind();
        let socket_waker = SocketWaker::new(sender.address(), Some(LOOPBACK)).unwrap();
        let Some(other) = listeners(&sender, &[None]) else { return };
        let woken = Socket::listen(group(&sender), LOOPBACK, None, Some(socket_waker.port())).unwrap();
        // An engine may come to another IP version than its waker had at first.
        let six = Socket::bind((Ipv6Addr::LOCALHOST, 0).into());
        for (socket, apart) in [Some(&woken), Some(&sender), six.as_ref().ok()]
            .into_iter()
            .flatten()
            .flat_map(|socket| [(socket, false), (socket, true)])
        {
            socket.set_blocking(true).unwrap();
            socket.set_uncoalesced(apart);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut receiver, begin) = (Receiver::new(), Instant::now());
                    let mut wait = || {
                        receiver.wait_and_receive(socket, |_, datagram| assert!(datagram.is_empty())).unwrap()
                    };
                    // The machine may delay the waking thread for longer than a wait lasts.
                    while wait() == 0 {
                        assert!(begin.elapsed() < PATIENCE, "it is not woken");
                    }
                });
                socket_waker.wake(socket);
            });
        }
        // If the other socket had received an empty datagram, it would be first.
        sender.send_multicast_by(LOOPBACK, 1).unwrap();
        sender.send(b"to all", 6, &[group(&sender).into()]);
        assert_eq!(take(&other[0], 1), [(sender.address(), b"to all".to_vec())]);
    }

    #[test]
    fn a_wait_in_a_receive_ends_by_itself_and_what_it_brings_is_whole() {
        for here in [IpAddr::from(LOOPBACK), Ipv6Addr::LOCALHOST.into()] {
            let (Ok(sender), Ok(socket)) = (Socket::bind((here, 0).into()), Socket::bind((here, 0).into()))
            else {
                continue;
            };
            socket.set_blocking(true).unwrap();
            for apart in [false, true, false] {
                socket.set_uncoalesced(apart);
                assert_eq!(socket.is_uncoalesced(), apart);
                is_waited_for(&sender, &socket);
            }
            socket.set_blocking(false).unwrap();
            assert!(!Receiver::new().receive(&socket, |_, _| panic!("that was all")).unwrap());
        }
    }

    fn is_waited_for(sender: &Socket, socket: &Socket) {
        let (mut receiver, begin) = (Receiver::new(), Instant::now());
        assert_eq!(receiver.wait_and_receive(socket, |_, _| panic!("nothing was sent")).unwrap(), 0);
        assert!((Socket::WAIT_MAX / 2..PATIENCE).contains(&begin.elapsed()));
        // One packet where the kernel can segment, three otherwise; a small datagram; and one of nearly the maximum
        // length.
        for (length, expected) in [(250, [100, 100, 50].as_slice()), (100, &[100]), (60_000, &[60_000])] {
            sender.send(&[7; 60_000][..length], expected[0], &[socket.address()]);
            let (mut taken, mut calls) = (Vec::new(), 0);
            while taken.len() < expected.len() && begin.elapsed() < PATIENCE {
                let take = |from, datagram: BytesMut| {
                    assert!(from == sender.address() && datagram.iter().all(|byte| *byte == 7));
                    taken.push(datagram.len());
                };
                // The kernel may be late.
                calls += receiver.wait_and_receive(socket, take).unwrap().min(1);
            }
            assert_eq!(taken, expected);
            let together = sender.segments() && !socket.is_uncoalesced();
            assert_eq!(calls, if together { 1 } else { expected.len() });
        }
        assert_eq!(receiver.receive_next(socket, |_, _| panic!("that was all")).unwrap(), 0);
        sender.send(b"x", 1, &[socket.address()]);
        assert!(socket.wait(Some(PATIENCE)));
        assert_eq!(receiver.receive_next(socket, |_, datagram| assert_eq!(datagram, "x")).unwrap(), 1);
    }

    #[test]
    fn what_was_coalesced_before_is_taken_apart() {
        let (sender, socket) = (bind(), bind());
        let mut receiver = Receiver::new();
        sender.send(&[7; 250], 100, &[socket.address()]);
        assert!(socket.wait(Some(PATIENCE)));
        socket.set_uncoalesced(true);
        let mut lengths = Vec::new();
        while lengths.len() < 3 && socket.wait(Some(PATIENCE)) {
            assert!(!socket.is_uncoalesced());
            receiver.receive_next(&socket, |_, datagram| lengths.push(datagram.len())).unwrap();
        }
        assert_eq!(lengths, [100, 100, 50]);
        socket.set_uncoalesced(true);
        assert!(socket.is_uncoalesced());
    }

    #[test]
    fn a_run_to_a_group_arrives_whole_at_every_listener() {
        let sender = bind();
        let Some(listeners) = listeners(&sender, &[None, None, None]) else { return };
        let run: Vec<u8> = (0..100u8).flat_map(|n| [n; 1400]).collect();
        assert_eq!(sender.send(&run, 1400, &[group(&sender).into()]), 0);
        for listener in &listeners {
            let taken = take(listener, 100);
            assert_eq!(taken.len(), 100);
            for (n, (_, datagram)) in taken.iter().enumerate() {
                assert_eq!(*datagram, [n as u8; 1400]);
            }
        }
    }

    #[test]
    fn the_kernel_gives_a_receive_buffer() {
        assert!(bind().receive_buffer_bytes() >= 64 << 10);
    }

    #[test]
    fn bound_to_every_address_it_sends_from_the_chosen_one() {
        let mut sender = Socket::bind((Ipv4Addr::UNSPECIFIED, 0).into()).unwrap();
        let receivers = [bind(), bind()];
        let to: Vec<SocketAddr> = receivers.iter().map(Socket::address).collect();
        let chosen = IpAddr::from([127, 0, 0, 7]);
        sender.send_as(chosen);
        assert_eq!(sender.address().ip(), chosen);
        // One datagram, a few, and a run take three ways through the kernel.
        assert_eq!(sender.send(b"x", 1, &to[..1]), 0);
        assert_eq!(sender.send(b"x", 1, &to), 0);
        assert_eq!(sender.send(b"xyz", 1, &to), 0);
        let heard = |receiver, count| take(receiver, count).into_iter().map(|(from, _)| from).collect();
        let (first, second): (Vec<_>, Vec<_>) = (heard(&receivers[0], 5), heard(&receivers[1], 4));
        assert_eq!((first, second), (vec![sender.address(); 5], vec![sender.address(); 4]));
        // Answers reach it at that address.
        receivers[0].send(b"answer", 6, &[sender.address()]);
        assert_eq!(take(&sender, 1)[0].1, b"answer");
    }

    #[test]
    fn a_port_of_all_addresses_is_shared_with_listeners_and_with_no_other() {
        let sender = bind();
        let Some(listeners) = listeners(&sender, &[None]) else { return };
        let port = group(&sender).port();
        drop(sender);
        for any in [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
            let all = match Socket::bind((any, port).into()) {
                Err(error) if any.is_ipv6() && error.kind() != io::ErrorKind::AddrInUse => {
                    let _ = writeln!(io::stderr(), "skipped: no IPv6 here: {error}");
                    continue;
                }
                all => all.unwrap(),
            };
            let another = Socket::listen(v4_group(port), LOOPBACK, None, None).unwrap();
            for taken in
                [any, Ipv4Addr::UNSPECIFIED.into(), LOOPBACK.into(), Ipv4Addr::new(127, 0, 0, 2).into()]
            {
                let refused = Socket::bind((taken, port).into()).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::AddrInUse, "{any} {taken}");
            }
            // Multicasts go to the listeners alone, other datagrams to the socket alone.
            let sender = bind();
            sender.send_multicast_by(LOOPBACK, 1).unwrap();
            sender.send(b"all", 3, &[v4_group(port).into()]);
            sender.send(b"one", 3, &[(LOOPBACK, port).into()]);
            for listener in listeners.iter().chain([&another]) {
                assert_eq!(take(listener, 1), [(sender.address(), b"all".to_vec())]);
                assert!(!listener.wait(Some(Duration::ZERO)));
            }
            assert_eq!(take(&all, 1), [(sender.address(), b"one".to_vec())]);
            assert!(!all.wait(Some(Duration::ZERO)));
        }
    }

    #[test]
    fn a_socket_at_all_addresses_speaks_both_versions() {
        let Ok(mut both) = Socket::bind((Ipv6Addr::UNSPECIFIED, 0).into()) else {
            let _ = writeln!(io::stderr(), "skipped: no IPv6 here");
            return;
        };
        let port = both.address().port();
        let mut others = vec![bind()];
        others.extend(Socket::bind((Ipv6Addr::LOCALHOST, 0).into()));
        for source in [Ipv6Addr::UNSPECIFIED.into(), IpAddr::from(Ipv6Addr::LOCALHOST)] {
            both.send_as(source);
            for other in &others {
                let (me, to) = (SocketAddr::new(other.address().ip(), port), [other.address()]);
                // One datagram, and a run.
                assert_eq!(both.send(b"x", 1, &to) + both.send(b"yz", 1, &to), 0, "{to:?}");
                let heard = [b"x", b"y", b"z"].map(|word| (me, word.to_vec()));
                assert_eq!(take(other, 3), heard);
                other.send(b"answer", 6, &[me]);
                assert_eq!(take(&both, 1), [(other.address(), b"answer".to_vec())]);
            }
        }
    }

    #[test]
    fn a_socket_that_is_bound_to_every_address_can_send_from_another_one() {
        let mut before = Socket::bind((Ipv4Addr::UNSPECIFIED, 0).into()).unwrap();
        before.send_as([127, 0, 0, 7].into());
        let (receiver, other) = (bind(), IpAddr::from([127, 0, 0, 8]));
        let again = before.again_as(other).unwrap();
        assert_eq!(again.address(), (other, before.address().port()).into());
        drop(before);
        again.send(b"x", 1, &[receiver.address()]);
        assert_eq!(take(&receiver, 1), [(again.address(), b"x".to_vec())]);
        receiver.send(b"answer", 6, &[again.address()]);
        assert_eq!(take(&again, 1)[0].1, b"answer");
    }

    #[test]
    fn loopback_is_reached_from_loopback() {
        assert_eq!(address_toward((LOOPBACK, 9).into()).unwrap(), LOOPBACK);
    }
}
