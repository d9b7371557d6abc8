//! Detects processes that use another version of the wire format, for a process that is in no group. (Members do it in
//! the core.)

use crate::reach::multicast_addresses;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use unisono_core::GroupTag;
use unisono_core::wire::{Header, HeaderError, group_tag};
use unisono_udp::{Receiver, Socket, Watch};

/// Returns the version of a datagram of unisono if that is not the version of this process. If `group` is given, only a
/// datagram for that group counts.
pub(crate) fn other_version_of(datagram: &[u8], group: Option<GroupTag>) -> Option<u8> {
    let tag = group_tag(datagram)?;
    match Header::parse(datagram) {
        Err(HeaderError::Version(version)) if group.is_none_or(|group| group == tag) => Some(version),
        _ => None,
    }
}

/// Listens for datagrams of other versions of the wire format, for at most `time`. Returns the source address and the
/// version of the first one. Sends nothing. Anyone can forge such a datagram.
///
/// With `interface`, which is named by its address, it receives the multicasts of all groups there. With `bind`, it
/// receives the datagrams to that address, if no other socket is bound to it.
///
/// # Errors
/// The system refused to listen.
pub fn hear_other_version(
    interface: Option<Ipv4Addr>,
    bind: Option<SocketAddr>,
    time: Duration,
) -> io::Result<Option<(SocketAddr, u8)>> {
    let (begin, watch) = (Instant::now(), Watch::new()?);
    let mut sockets = Vec::new();
    for address in interface.into_iter().flat_map(|_| multicast_addresses()) {
        let interface = interface.unwrap_or(Ipv4Addr::LOCALHOST);
        sockets.push(Socket::listen(address, interface, None, None)?);
    }
    sockets.extend(bind.filter(|bind| bind.port() != 0).and_then(|bind| Socket::bind(bind).ok()));
    for (key, socket) in (0..).zip(&sockets) {
        watch.add(socket, key)?;
    }
    let (mut receiver, mut heard) = (Receiver::new(), None);
    while heard.is_none() && begin.elapsed() < time {
        watch.set_alarm(time.saturating_sub(begin.elapsed()));
        for socket in watch.wait().keys().iter().filter_map(|key| sockets.get(*key as usize)) {
            // An error concerns one datagram only.
            let _ = receiver.receive(socket, |from, datagram| {
                let version = other_version_of(&datagram, None);
                heard = heard.or(version.map(|version| (from, version)));
            });
        }
    }
    Ok(heard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reach::{multicast_address, port};
    use crate::{Group, GroupConfig, JoinFailure, LookError, OpenError, Options, Settings, look};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use unisono_core::wire::{Frame, ProtectionKind};
    use unisono_core::wire::{HEADER_BYTES, Writer};
    use unisono_core::{EpochTag, Uid};

    /// Longer than any working case takes.
    const PATIENCE: Duration = Duration::from_secs(60);
    /// Index of the version in a datagram.
    const VERSION_AT: usize = 2;
    const OTHER: u8 = 9;

    /// Returns a datagram for the group of this name in version `OTHER`.
    fn datagram(name: &str) -> Vec<u8> {
        let header = Header {
            protection: ProtectionKind::Sealed,
            group: port(name).unwrap().tag(),
            epoch: EpochTag(1),
            sender: Uid(2),
            number: 3,
            salt: 4,
        };
        let mut datagram = Vec::new();
        header.write(&mut datagram);
        Writer::new(&mut datagram, HEADER_BYTES + 100).frame(&Frame::Inquiry);
        datagram[VERSION_AT] = OTHER;
        datagram
    }

    /// Multicasts on loopback until it is dropped, as a member of another version does.
    struct Speaker {
        over: Arc<AtomicBool>,
        thread: Option<thread::JoinHandle<()>>,
        address: SocketAddr,
    }

    impl Speaker {
        fn new(name: &str) -> Speaker {
            let socket = Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            socket.send_multicast_by(Ipv4Addr::LOCALHOST, 1).unwrap();
            let (address, over) = (socket.address(), Arc::new(AtomicBool::new(false)));
            let (to, datagram) = (multicast_address(port(name).unwrap().tag()).into(), datagram(name));
            let ends = over.clone();
            let thread = thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    socket.send(&datagram, datagram.len(), &[to]);
                    thread::sleep(Duration::from_millis(5));
                }
            });
            Speaker { over, thread: Some(thread), address }
        }
    }

    impl Drop for Speaker {
        fn drop(&mut self) {
            self.over.store(true, Ordering::Relaxed);
            let _ = self.thread.take().unwrap().join();
        }
    }

    #[test]
    fn a_group_of_another_version_is_reported_and_not_founded_again() {
        let name = format!("version-{}", std::process::id());
        let speaker = Speaker::new(&name);
        let entered = Group::join_or_create(&name, GroupConfig::default(), "", &Options::default());
        let Err(OpenError::Join(JoinFailure::OtherVersion { by, version })) = entered else {
            panic!("{entered:?}")
        };
        assert_eq!((by, version), (speaker.address, OTHER));
        let words = entered.unwrap_err().to_string();
        let ours = format!("in version {} ", unisono_core::wire::VERSION);
        assert!(words.contains(&ours) && words.contains("in version 9"), "{words}");
        let looked = look(&name, &Options::default(), PATIENCE / 60);
        assert!(matches!(looked, Err(LookError::OtherVersion { version: OTHER, .. })), "{looked:?}");
        let heard = hear_other_version(Some(Ipv4Addr::LOCALHOST), None, PATIENCE).unwrap();
        assert_eq!(heard.map(|(_, version)| version), Some(OTHER));
    }

    #[test]
    fn a_group_that_answers_is_joined_beside_one_of_another_version_and_counts_its_datagrams() {
        let name = format!("versions-{}", std::process::id());
        let settings = Settings { patience: PATIENCE, locate: PATIENCE / 10, ..Settings::default() };
        let options = Options { settings, ..Options::default() };
        let member = Group::create(&name, GroupConfig::default(), &options).unwrap();
        let _speaker = Speaker::new(&name);
        let joiner = Group::join_or_create(&name, GroupConfig::default(), "", &options).unwrap();
        assert_eq!(joiner.members().len(), 2);
        let begin = Instant::now();
        while member.counters().other_version == 0 {
            assert!(begin.elapsed() < PATIENCE, "no such datagram arrives");
            member.receive_timeout(Duration::from_millis(5)).unwrap();
        }
        assert_eq!(member.counters().malformed, 0);
    }

    #[test]
    fn datagrams_to_the_own_address_are_received_too() {
        let free = Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let bind = free.address();
        assert_eq!(hear_other_version(None, Some(bind), Duration::ZERO).unwrap(), None, "in use");
        drop(free);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let socket = Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
                let datagram = datagram("any");
                while !over.load(Ordering::Relaxed) {
                    socket.send(&datagram, datagram.len(), &[bind]);
                    thread::sleep(Duration::from_millis(5));
                }
            });
            let heard = hear_other_version(None, Some(bind), PATIENCE);
            over.store(true, Ordering::Relaxed);
            assert_eq!(heard.unwrap().map(|(_, version)| version), Some(OTHER));
        });
    }
}
