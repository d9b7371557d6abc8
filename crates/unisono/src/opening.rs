//! Entering a group, for both kinds of handles: from a name and options to a member that has begun to enter.

use crate::engine::{Access, Engine, Shared, Way};
use crate::error::OpenError;
use crate::log::Label;
use crate::options::Options;
use crate::reach::{Place, Wish, datagram_bytes_max, port, wait_for_address};
use crate::sealed::Sealed;
use crate::seeds::Seeds;
use bytes::Bytes;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unisono_core::wire::{Checksum, Protection};
use unisono_core::{EntryMode, Group, JoinFailure, Member, Random, Settings, Uid};

/// Maximum time for which dropping the last handle of a blocking program waits for the leave.
const LEAVE_WAIT: Duration = Duration::from_secs(1);

/// Maximum number of attempts at a join that a reset interrupted or that took too long, each with a new uid.
const LIVES_MAX: usize = 8;

/// A join gives up after 10 times the setting `locate`.
const JOIN_LOCATES: u32 = 10;
/// Minimum of the setting `locate`: 5 ms.
const LOCATE_MIN: Duration = Duration::from_millis(5);

/// Returns how long an entry waits until a seed has an address: zero for a founder and for the participants of a
/// formation, which can begin without one.
pub(crate) fn seeds_timeout(entry: &EntryMode, options: &Options) -> Duration {
    match entry {
        EntryMode::Found(_) | EntryMode::Form(..) | EntryMode::JoinOrForm(..) => Duration::ZERO,
        EntryMode::Join | EntryMode::JoinOrFound(_) => options.seeds_timeout,
    }
}

/// Returns the addresses of seeds that an entry begins with.
fn to_ask(
    entry: &EntryMode,
    known: Result<Vec<SocketAddr>, OpenError>,
) -> Result<Vec<SocketAddr>, OpenError> {
    match entry {
        // A founder asks no seed, and the seeds of those that form a group may have no address yet.
        EntryMode::Found(_) | EntryMode::Form(..) | EntryMode::JoinOrForm(..) => {
            Ok(known.unwrap_or_default())
        }
        // A process that cannot ask must not found a second group.
        EntryMode::Join | EntryMode::JoinOrFound(_) => known,
    }
}

/// Returns the addresses of the seeds once one is known, and waits for at most `patience` until this machine has an address
/// itself. The inner error is only for entries that ask a seed. Blocks.
pub(crate) fn find_ways(
    name: &str,
    seeds: &Seeds,
    seeds_timeout: Duration,
    options: &Options,
    patience: Duration,
) -> Result<Result<Vec<SocketAddr>, OpenError>, OpenError> {
    let known = seeds.resolve_within(seeds_timeout, name);
    wait_for_address(name, options, known.as_deref().unwrap_or_default(), patience)?;
    Ok(known)
}

/// A member that is about to enter.
pub(crate) struct Opening<'a> {
    pub(crate) name: &'a str,
    pub(crate) hello: Bytes,
    pub(crate) options: &'a Options,
}

impl Opening<'_> {
    /// Puts the next life of the member into an engine, where it begins to enter as `entry` says. `known` are the addresses
    /// of the seeds.
    pub(crate) fn begin(
        self,
        lives: &mut Lives,
        entry: &EntryMode,
        seeds: Seeds,
        known: Result<Vec<SocketAddr>, OpenError>,
    ) -> Result<Shared, OpenError> {
        let wish = Wish::of(self.options);
        let places = wish.choices(&to_ask(entry, known)?)?;
        let (place, entry, options) = lives.next(entry, self.options, &places);
        let port = port(self.name)?;
        let uid = Uid(u64::from_ne_bytes(random()?));
        let random = Random::from_seed(random()?);
        let needs_multicast = seeds.is_empty() && !matches!(entry, EntryMode::Found(_));
        let make = |now, address: SocketAddr, receive_buffer_bytes| {
            let me = Member { uid, name: options.name.clone(), address, floor: Default::default(), hops: 1 };
            let datagram_bytes_max = datagram_bytes_max(options.settings.datagram_bytes_max, address.ip());
            let settings = Settings { receive_buffer_bytes, datagram_bytes_max, ..options.settings.clone() };
            Group::new(now, me, port, entry, self.hello, settings, protection(&options), random)
        };
        let label = Label { group: self.name.into(), me: options.name.clone() };
        let access = Access {
            key: options.key.clone(),
            seeds: seeds.clone(),
            settings: options.calls.clone(),
            hops: options.settings.hops,
        };
        let way = Way { tag: port.tag(), seeds, access, label, needs_multicast };
        Engine::enter(wish, place, way, options.spin, make)
    }
}

/// The lives of one join, one after the other. A member whose seeds are reached from several of its addresses first looks for
/// the group from each of the others, in a life of its own, and then enters from the first.
#[derive(Debug)]
pub(crate) struct Lives {
    failed: usize,
    /// When the formation's time is over, in which the process joins or forms.
    until: Option<Instant>,
    /// Number of the address from which the present life asks.
    place: usize,
    /// Number of the next address from which the group is only looked for.
    next_place: usize,
    /// The present life only looks for the group.
    only_looks: bool,
}

impl Lives {
    pub(crate) fn new(entry: &EntryMode) -> Lives {
        let until = match entry {
            EntryMode::JoinOrForm(formation, _) => Instant::now().checked_add(formation.within),
            _ => None,
        };
        Lives { failed: 0, until, place: 0, next_place: 1, only_looks: false }
    }

    /// Returns where and how the next life is to enter.
    pub(crate) fn next(
        &mut self,
        entry: &EntryMode,
        options: &Options,
        places: &[Place],
    ) -> (Place, EntryMode, Options) {
        let joins = !matches!(entry, EntryMode::Found(_) | EntryMode::Form(..));
        self.only_looks = joins && self.failed == 0 && self.next_place < places.len();
        if self.only_looks {
            self.place = self.next_place;
            let mut options = options.clone();
            let locate = &mut options.settings.locate;
            *locate = (*locate / JOIN_LOCATES).max(LOCATE_MIN);
            return (places[self.place], EntryMode::Join, options);
        }
        let (entry, options) = self.entry(entry, options);
        (places[self.place.min(places.len() - 1)], entry, options)
    }

    /// Returns how the next life is to enter. Only the first life takes part in a formation: another one would count as
    /// a participant that has restarted. The formation's time bounds all lives.
    fn entry(&self, entry: &EntryMode, options: &Options) -> (EntryMode, Options) {
        let mut options = options.clone();
        match entry {
            EntryMode::JoinOrForm(..) if self.failed > 0 => {
                let left =
                    self.until.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
                let locate = &mut options.settings.locate;
                *locate = (*locate).min(left / JOIN_LOCATES).max(LOCATE_MIN);
                (EntryMode::Join, options)
            }
            entry => (entry.clone(), options),
        }
    }

    /// Returns the outcome of the join, or `None` if this life failed for a passing reason and another one is to try.
    pub(crate) fn conclude(&mut self, entered: Result<(), OpenError>) -> Option<Result<(), OpenError>> {
        match entered {
            // No group is there; perhaps it is elsewhere.
            Err(OpenError::Join(JoinFailure::NotFound) | OpenError::Unasked { .. }) if self.only_looks => {
                (self.place, self.next_place) = (0, self.next_place + 1);
                None
            }
            Err(OpenError::Join(JoinFailure::Reset | JoinFailure::TimedOut))
                if self.failed + 1 < LIVES_MAX && self.until.is_none_or(|at| Instant::now() < at) =>
            {
                self.failed += 1;
                None
            }
            // An earlier life got an answer from the group.
            Err(OpenError::Join(JoinFailure::NotFound)) if self.failed > 0 => {
                Some(Err(OpenError::Join(JoinFailure::Lost)))
            }
            entered => Some(entered),
        }
    }
}

/// Draws a time in this range; its end if there are no random numbers.
pub(crate) fn by_lot(range: Range<Duration>) -> Duration {
    let lot = random().map_or(1.0, |[lot]| f64::from(lot) / f64::from(u8::MAX));
    range.start + (range.end - range.start).mul_f64(lot)
}

/// Returns random bits from the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], OpenError> {
    let mut bytes = [0; N];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(OpenError::Socket {
            what: "get random numbers from the system",
            cause: io::Error::other(error),
        }),
    }
}

/// Returns a seal if there is a key, else a checksum.
pub(crate) fn protection(options: &Options) -> Box<dyn Protection> {
    match &options.key {
        Some(key) => Box::new(Sealed::new(key)),
        None => Box::new(Checksum),
    }
}

/// Keeps a member in its group. When the last handle drops it, the member leaves. Public only because [`Handle`] is; it
/// cannot be named outside of this crate.
#[derive(Debug)]
pub struct Owner {
    pub(crate) shared: Arc<Shared>,
    /// Options with which the member was opened.
    pub(crate) options: Options,
    /// True if dropping it may block.
    pub(crate) waits: bool,
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.shared.abandon() && self.waits && !std::thread::panicking() {
            self.shared.block(Some(LEAVE_WAIT), crate::commands::departed);
        }
    }
}

/// A handle on a member of a group: a [`Group`](crate::Group) or an [`AsyncGroup`](crate::AsyncGroup). Functions that
/// work with either take a `&impl Handle`. No other type implements it.
///
/// ```
/// use unisono::rpc::{PrivatePort, ServeOptions, Server, ServiceError};
/// use unisono::{AsyncGroup, Group, Handle};
///
/// fn serve_beside<M: Handle>(member: &M) -> Result<Server, ServiceError> {
///     Server::beside(member, &PrivatePort::from_name("archive"), ServeOptions::default())
/// }
///
/// let (_blocking, _asynchronous) = (serve_beside::<Group>, serve_beside::<AsyncGroup>);
/// ```
pub trait Handle: sealed::Owned {}

pub(crate) mod sealed {
    /// Not reachable outside of this crate, so that no other type is a handle.
    pub trait Owned {
        /// Returns the owner of the member.
        fn owner(&self) -> &super::Owner;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands;
    use crate::error::LeaveFailure;
    use unisono_core::{Formation, GroupConfig};

    fn failed(reason: JoinFailure) -> Result<(), OpenError> {
        Err(OpenError::Join(reason))
    }

    #[test]
    fn eight_lives_try_and_the_last_failure_is_told() {
        let mut lives = Lives::new(&EntryMode::Join);
        for _ in 1..LIVES_MAX {
            assert!(lives.conclude(failed(JoinFailure::TimedOut)).is_none());
        }
        let told = lives.conclude(failed(JoinFailure::Reset));
        assert!(matches!(told, Some(Err(OpenError::Join(JoinFailure::Reset)))), "{told:?}");
    }

    #[test]
    fn a_group_that_an_earlier_life_has_heard_is_lost_and_not_missing() {
        let mut lives = Lives::new(&EntryMode::Join);
        let told = lives.conclude(failed(JoinFailure::NotFound));
        assert!(matches!(told, Some(Err(OpenError::Join(JoinFailure::NotFound)))), "{told:?}");
        assert!(lives.conclude(failed(JoinFailure::TimedOut)).is_none());
        let told = lives.conclude(failed(JoinFailure::NotFound));
        assert!(matches!(told, Some(Err(OpenError::Join(JoinFailure::Lost)))), "{told:?}");
    }

    // A process that takes part in a formation again counts as a participant that has restarted.
    #[test]
    fn only_the_first_life_takes_part_in_a_formation() {
        let formation = |within| Formation { participants: vec![], at_least: 1, within };
        let entry = |within| EntryMode::JoinOrForm(formation(within), GroupConfig::default());
        let (long, options) = (entry(Duration::from_secs(3600)), Options::default());
        let mut lives = Lives::new(&long);
        assert_eq!(lives.entry(&long, &options).0, long);
        assert!(lives.conclude(failed(JoinFailure::TimedOut)).is_none());
        assert_eq!(lives.entry(&long, &options).0, EntryMode::Join);
        // No time is left for another life.
        let mut lives = Lives::new(&entry(Duration::ZERO));
        let told = lives.conclude(failed(JoinFailure::TimedOut));
        assert!(matches!(told, Some(Err(OpenError::Join(JoinFailure::TimedOut)))), "{told:?}");
    }

    #[test]
    fn a_former_member_at_an_address_is_told_from_another_member_there() {
        let name = format!("former-{}", std::process::id());
        let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let fixed = Options { bind: Some(free), ..Options::default() };
        let one = crate::Group::create(&name, GroupConfig::default(), &Options::default()).unwrap();
        let two = crate::Group::join(&name, "", &fixed).unwrap();
        let again = || crate::Group::join(&name, "", &fixed).unwrap_err();
        assert!(matches!(again(), OpenError::AlreadyMember { .. }));
        // Its leave does not end, because no other member hears it.
        one.shared().cut_off(true);
        drop(two);
        assert!(matches!(again(), OpenError::StillLeaving { address } if address == free));
    }

    // A group has its members in one network and in one IP version, which the first seed need not have.
    #[test]
    fn a_group_is_looked_for_from_each_address_before_it_is_founded_from_the_first() {
        let place = |ip: [u8; 4]| Place {
            bind: (ip, 0).into(),
            advertised: ip.into(),
            roams: false,
            is_nowhere: false,
            interface: None,
        };
        let places = [place([192, 0, 2, 1]), place([198, 51, 100, 1]), place([203, 0, 113, 1])];
        let (entry, options) = (EntryMode::JoinOrFound(GroupConfig::default()), Options::default());
        let mut lives = Lives::new(&entry);
        for other in &places[1..] {
            let (place, looks, short) = lives.next(&entry, &options, &places);
            assert_eq!((place, looks), (*other, EntryMode::Join));
            assert_eq!(short.settings.locate * JOIN_LOCATES, options.settings.locate);
            assert!(lives.conclude(failed(JoinFailure::NotFound)).is_none());
        }
        let (place, founds, full) = lives.next(&entry, &options, &places);
        assert_eq!((place, founds, full.settings), (places[0], entry.clone(), options.settings.clone()));
        assert!(lives.conclude(Ok(())).is_some());
        // Where a group was heard, the member goes on.
        let mut lives = Lives::new(&entry);
        lives.next(&entry, &options, &places);
        assert!(lives.conclude(failed(JoinFailure::TimedOut)).is_none());
        assert_eq!(lives.next(&entry, &options, &places).0, places[1]);
        assert!(matches!(lives.conclude(failed(JoinFailure::NotFound)), Some(Err(_))));
        // A founder asks none.
        let found = EntryMode::Found(GroupConfig::default());
        assert_eq!(Lives::new(&found).next(&found, &options, &places).0, places[0]);
    }

    // A founder that gives way may be in no group for long; its leave must still end.
    #[test]
    fn a_member_of_no_group_leaves_within_the_time_of_a_leave() {
        let settings = Settings { locate: Duration::from_secs(60), ..Settings::default() };
        let options = Options { settings, ..Options::default() };
        let name = format!("nowhere-{}", std::process::id());
        let opening = Opening { name: &name, hello: Bytes::new(), options: &options };
        let (mut lives, entry) = (Lives::new(&EntryMode::Join), EntryMode::Join);
        let shared = opening.begin(&mut lives, &entry, Seeds::default(), Ok(Vec::new())).unwrap();
        let (patience, mut begun) = (Duration::from_secs(60), false);
        let left = shared
            .block(Some(patience), |member, now| commands::leave(member, now, &Bytes::new(), &mut begun));
        assert_eq!(left, Some(Err(LeaveFailure::Unconfirmed)));
    }
}
