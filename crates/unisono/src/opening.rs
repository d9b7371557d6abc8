//! Entering a group, for both kinds of handles: from a name and options to a member that has begun to enter.

use crate::engine::{Access, Engine, Shared, Way};
use crate::error::OpenError;
use crate::log::Label;
use crate::options::Options;
use crate::reach::{Place, port};
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

/// A member that is about to enter.
pub(crate) struct Opening<'a> {
    pub(crate) name: &'a str,
    pub(crate) entry: EntryMode,
    pub(crate) hello: Bytes,
    pub(crate) options: &'a Options,
}

impl Opening<'_> {
    /// Puts the member into an engine, where it begins to enter. `known` are the addresses of the seeds.
    pub(crate) fn begin(
        self,
        seeds: Seeds,
        known: Result<Vec<SocketAddr>, OpenError>,
    ) -> Result<Shared, OpenError> {
        let known = match self.entry {
            // A founder asks no seed, and the seeds of those that form a group may have no address yet.
            EntryMode::Found(_) | EntryMode::Form(..) | EntryMode::JoinOrForm(..) => {
                known.unwrap_or_default()
            }
            // A process that cannot ask must not found a second group.
            EntryMode::Join | EntryMode::JoinOrFound(_) => known?,
        };
        let options = self.options;
        let place = Place::choose(options, &known)?;
        let port = port(self.name)?;
        let uid = Uid(u64::from_ne_bytes(random()?));
        let random = Random::from_seed(random()?);
        let needs_multicast = seeds.is_empty() && !matches!(self.entry, EntryMode::Found(_));
        let make = |now, address, receive_buffer_bytes| {
            let me = Member { uid, name: options.name.clone(), address };
            let settings = Settings { receive_buffer_bytes, ..options.settings.clone() };
            Group::new(now, me, port, self.entry, self.hello, settings, protection(options), random)
        };
        let label = Label { group: self.name.into(), me: options.name.clone() };
        let access =
            Access { key: options.key.clone(), seeds: seeds.clone(), settings: options.calls.clone() };
        let way = Way { tag: port.tag(), seeds, access, label, needs_multicast };
        Engine::enter(place, way, options.spin, make)
    }
}

/// The lives of one join, one after the other.
#[derive(Debug)]
pub(crate) struct Lives {
    failed: usize,
    /// When the formation's time is over, in which the process joins or forms.
    until: Option<Instant>,
}

impl Lives {
    pub(crate) fn new(entry: &EntryMode) -> Lives {
        let until = match entry {
            EntryMode::JoinOrForm(formation, _) => Instant::now().checked_add(formation.within),
            _ => None,
        };
        Lives { failed: 0, until }
    }

    /// Returns how the next life is to enter. Only the first life takes part in a formation: another one would count as
    /// a participant that has restarted. The formation's time bounds all lives.
    pub(crate) fn entry(&self, entry: &EntryMode, options: &Options) -> (EntryMode, Options) {
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

    // A founder that gives way may be in no group for long; its leave must still end.
    #[test]
    fn a_member_of_no_group_leaves_within_the_time_of_a_leave() {
        let settings = Settings { locate: Duration::from_secs(60), ..Settings::default() };
        let options = Options { settings, ..Options::default() };
        let name = format!("nowhere-{}", std::process::id());
        let opening = Opening { name: &name, entry: EntryMode::Join, hello: Bytes::new(), options: &options };
        let shared = opening.begin(Seeds::default(), Ok(Vec::new())).unwrap();
        let (patience, mut begun) = (Duration::from_secs(60), false);
        let left = shared
            .block(Some(patience), |member, now| commands::leave(member, now, &Bytes::new(), &mut begun));
        assert_eq!(left, Some(Err(LeaveFailure::Unconfirmed)));
    }
}
