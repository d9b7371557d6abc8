//! How members enter an engine, and how engines begin. A process has one engine for each wish where its members are to be
//! reached (the address to bind and the interface that options name, if any), at each address.

use super::following::Doubt;
use super::lease::{IoLease, WAKEUP};
use super::send_queue::Reach;
use super::shared::Shared;
use super::slot::Slot;
use super::state::State;
use super::whereabouts::Whereabouts;
use super::{Access, Engine, Membership, clock_ns, fallback_thread, following};
use crate::error::OpenError;
use crate::log::Label;
use crate::reach::{Place, Purpose, Wish, multicast_address};
use crate::seeds::Seeds;
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use unisono_core::{ConfigError, Group, GroupTag, Member, Time};
use unisono_fork::Process;
use unisono_udp::{Socket, SocketWaker, Wakeup, Watch};

/// The engines of this process. In a forked child, the first list is that of its parent.
static ENGINES: OnceLock<Box<Engines>> = OnceLock::new();

/// The engines of one process. A forked child makes a list of its own: at the fork, another thread of the parent may
/// hold the lock of the parent's list, and the child does not have that thread to release it.
struct Engines {
    process: u32,
    list: Mutex<List>,
    /// List of a child of this process.
    child: OnceLock<Box<Engines>>,
}

/// What is known of the engines of one process.
#[derive(Default)]
pub(super) struct List {
    pub(super) engines: Vec<Weak<Engine>>,
    /// Raised when sends fail; made with the first engine.
    doubt: Option<Arc<Doubt>>,
    /// A thread looks whether this machine's network changes.
    pub(super) is_followed: bool,
}

impl List {
    /// Returns the engines of processes with this wish.
    pub(super) fn of(&self, wish: Wish) -> impl Iterator<Item = Arc<Engine>> {
        self.engines.iter().filter_map(Weak::upgrade).filter(move |engine| engine.wish == wish)
    }

    fn doubt(&mut self) -> io::Result<Arc<Doubt>> {
        match &self.doubt {
            Some(doubt) => Ok(doubt.clone()),
            None => Ok(self.doubt.insert(Arc::new(Doubt::new()?)).clone()),
        }
    }

    /// Adds an engine, and sees to it that it follows the network.
    fn add(&mut self, engine: &Arc<Engine>) {
        self.engines.push(Arc::downgrade(engine));
        if engine.is_followed
            && !self.is_followed
            && let Some(doubt) = &self.doubt
        {
            // If this fails, engines stay where they are until another one begins.
            self.is_followed = following::start(doubt.clone()).is_ok();
        }
    }
}

/// How a group is found.
pub(crate) struct Way {
    pub(crate) tag: GroupTag,
    pub(crate) seeds: Seeds,
    /// How calls beside the member reach other processes.
    pub(crate) access: Access,
    /// Names of the group and of the member, for the log.
    pub(crate) label: Label,
    /// Multicast is the only way to it.
    pub(crate) needs_multicast: bool,
}

impl Engine {
    /// Enters a member into an engine of this wish, at `place`. `make` makes the member for the
    /// engine's address.
    pub(crate) fn enter(
        wish: Wish,
        place: Place,
        way: Way,
        spin: Duration,
        make: impl FnOnce(Time, SocketAddr, usize) -> Result<Group, ConfigError>,
    ) -> Result<Shared, OpenError> {
        let mut engines = engines();
        for engine in engines.of(wish) {
            let mut state = engine.lock();
            if state.closed {
                continue;
            }
            // Other calls may be there; then there is no room for calls beside the member.
            if !wish.names_port() && !state.takes_calls_like(&way.access) {
                continue;
            }
            if !engine.catch_up(&mut state, &place) {
                continue;
            }
            state.whereabouts.note_entry(Purpose::IsFound);
            if !state.has(way.tag) {
                return engine.admit(state, way, spin, make);
            }
            if wish.names_port() {
                let address = state.own_address;
                return Err(match state.is_abandoned(way.tag) {
                    true => OpenError::StillLeaving { address },
                    false => OpenError::AlreadyMember { address },
                });
            }
        }
        let whereabouts = Whereabouts::new((wish, Purpose::IsFound), way.seeds.clone(), place);
        Engine::begin(&mut engines, whereabouts, |engine| engine.admit(engine.lock(), way, spin, make))
    }

    /// Begins another engine. Its fallback thread starts once `enter` has entered something.
    pub(super) fn begin<T>(
        list: &mut List,
        whereabouts: Whereabouts,
        enter: impl FnOnce(&Arc<Engine>) -> Result<T, OpenError>,
    ) -> Result<T, OpenError> {
        let doubt = list.doubt().map_err(|cause| socket_error("make an event counter", cause))?;
        let engine = Arc::new(Engine::new(whereabouts, doubt)?);
        let entered = enter(&engine)?;
        fallback_thread::start(engine.clone()).map_err(|cause| socket_error("start a thread", cause))?;
        list.add(&engine);
        Ok(entered)
    }

    fn new(whereabouts: Whereabouts, doubt: Arc<Doubt>) -> Result<Engine, OpenError> {
        let place = *whereabouts.place();
        let unicast =
            open_unicast(&place, Member::HOPS_DEFAULT, None).map_err(|cause| match cause.kind() {
                io::ErrorKind::AddrInUse => OpenError::AddressInUse { address: place.bind },
                io::ErrorKind::AddrNotAvailable => OpenError::NotOurAddress { address: place.bind },
                _ => socket_error("open a socket", cause),
            })?;
        let socket_waker = SocketWaker::new(unicast.address(), place.interface)
            .map_err(|cause| socket_error("open a second socket", cause))?;
        let wakeup = Wakeup::new().map_err(|cause| socket_error("make an event counter", cause))?;
        let watch = Watch::new()
            .and_then(|watch| watch.add(&wakeup, WAKEUP).map(|()| Arc::new(watch)))
            .map_err(|cause| socket_error("prepare to wait for sockets", cause))?;
        let home = Process::current();
        Ok(Engine {
            home,
            wish: *whereabouts.wish(),
            is_followed: whereabouts.is_to_be_watched(),
            state: Mutex::new(State::new(
                Arc::new(unicast),
                IoLease::new(watch.clone()),
                socket_waker.port(),
                (home, whereabouts, doubt),
            )),
            watch,
            wakeup,
            fallback: Watch::new().map_err(|cause| socket_error("make a timer", cause))?,
            socket_waker,
            origin_ns: clock_ns(),
        })
    }

    fn admit(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        way: Way,
        spin: Duration,
        make: impl FnOnce(Time, SocketAddr, usize) -> Result<Group, ConfigError>,
    ) -> Result<Shared, OpenError> {
        let now = self.now();
        let group = make(now, state.own_address, state.receive_buffer_bytes())?;
        let multicast = self.listen(&mut state, multicast_address(way.tag), way.needs_multicast)?;
        let membership = Membership::new(group, Reach { multicast, seeds: way.seeds }, way.label);
        let index = state.insert(way.tag, Slot::Membership(Box::new(membership)));
        state.access.get_or_insert(way.access);
        self.settle(&mut state, now);
        self.pass_lease(&mut state, now, false);
        self.unlock(state);
        Ok(Shared::new(self.clone(), index, spin))
    }

    /// Listens at a multicast address and returns it. If that is impossible, returns nothing, or an error if it is
    /// `needed`.
    pub(super) fn listen(
        &self,
        state: &mut State,
        address: SocketAddrV4,
        needed: bool,
    ) -> Result<Option<SocketAddr>, OpenError> {
        let place = *state.whereabouts.place();
        let listens = match place.interface {
            None if !place.is_nowhere => Err(no_multicast()),
            interface => state.listen(address, interface),
        };
        match listens {
            Ok(()) => Ok(Some(address.into())),
            Err(cause) if needed => Err(OpenError::NoMulticast { address: state.own_address, cause }),
            Err(_) => Ok(None),
        }
    }
}

/// Opens the socket that sends, at this place. `before` is the one that an engine had at another place.
pub(super) fn open_unicast(
    place: &Place,
    hops: u8,
    before: Option<(&Place, &Arc<Socket>)>,
) -> io::Result<Socket> {
    let mut unicast = match before {
        // The port stays the same.
        Some((former, before)) if place.bind.ip().is_unspecified() && place.bind == former.bind => {
            return before.again_as(place.advertised);
        }
        Some((_, before)) if place.bind.port() == 0 => {
            let same = SocketAddr::new(place.bind.ip(), before.address().port());
            Socket::bind(same).or_else(|_| Socket::bind(place.bind))?
        }
        _ => Socket::bind(place.bind)?,
    };
    if place.bind.ip().is_unspecified() {
        // A member has one address, even if it can be reached at several addresses of the machine.
        unicast.send_as(place.advertised);
    }
    if let Some(interface) = place.interface {
        // If this fails, listening fails too and reports it.
        let _ = unicast.send_multicast_by(interface, hops.into());
    }
    Ok(unicast)
}

/// Locks and returns the list of this process's engines. No engine is added meanwhile.
pub(super) fn engines() -> MutexGuard<'static, List> {
    let process = std::process::id();
    let own = || Box::new(Engines { process, list: Mutex::default(), child: OnceLock::new() });
    let mut engines = ENGINES.get_or_init(own);
    while engines.process != process {
        engines = engines.child.get_or_init(own);
    }
    let mut list = engines.list.lock().unwrap_or_else(PoisonError::into_inner);
    list.engines.retain(|engine| engine.strong_count() > 0);
    list
}

pub(crate) fn no_multicast() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "multicast is done with IPv4 only")
}

fn socket_error(what: &'static str, cause: io::Error) -> OpenError {
    OpenError::Socket { what, cause }
}
