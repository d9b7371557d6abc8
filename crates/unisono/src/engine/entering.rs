//! How members enter an engine, and how engines begin. A process has one engine for each place (local address and
//! interface) at which its members are reached.

use super::fork::Home;
use super::lease::{IoLease, WAKEUP};
use super::send_queue::Reach;
use super::shared::Shared;
use super::slot::Slot;
use super::state::State;
use super::{Access, Engine, Membership, clock_ns, fallback_thread};
use crate::error::OpenError;
use crate::log::Label;
use crate::reach::{Place, multicast_address};
use crate::seeds::Seeds;
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use unisono_core::{ConfigError, Group, GroupTag, Time};
use unisono_udp::{Socket, SocketWaker, Wakeup, Watch};

/// The engines of this process. In a forked child, the first list is that of its parent.
static ENGINES: OnceLock<Box<Engines>> = OnceLock::new();

/// The engines of one process. A forked child makes a list of its own: at the fork, another thread of the parent may
/// hold the lock of the parent's list, and the child does not have that thread to release it.
struct Engines {
    process: u32,
    list: Mutex<Vec<Weak<Engine>>>,
    /// List of a child of this process.
    child: OnceLock<Box<Engines>>,
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
    /// Enters a member into an engine at `place`. `make` makes the member for the engine's address.
    pub(crate) fn enter(
        place: Place,
        way: Way,
        spin: Duration,
        make: impl FnOnce(Time, SocketAddr, usize) -> Result<Group, ConfigError>,
    ) -> Result<Shared, OpenError> {
        let mut engines = engines();
        for engine in engines.iter().filter_map(Weak::upgrade) {
            if engine.place != place {
                continue;
            }
            let mut state = engine.lock();
            if state.closed {
                continue;
            }
            // Other calls may be there; then there is no room for calls beside the member.
            if place.bind.port() == 0 && !state.takes_calls_like(&way.access) {
                continue;
            }
            if !state.has(way.tag) {
                return engine.admit(state, way, spin, make);
            }
            if place.bind.port() != 0 {
                let address = engine.address;
                return Err(match state.is_abandoned(way.tag) {
                    true => OpenError::StillLeaving { address },
                    false => OpenError::AlreadyMember { address },
                });
            }
        }
        Engine::begin(&mut engines, place, |engine| engine.admit(engine.lock(), way, spin, make))
    }

    /// Begins another engine at `place`. Its fallback thread starts once `enter` has entered something.
    pub(super) fn begin<T>(
        engines: &mut Vec<Weak<Engine>>,
        place: Place,
        enter: impl FnOnce(&Arc<Engine>) -> Result<T, OpenError>,
    ) -> Result<T, OpenError> {
        let engine = Arc::new(Engine::new(place)?);
        let entered = enter(&engine)?;
        fallback_thread::start(engine.clone()).map_err(|cause| socket_error("start a thread", cause))?;
        engines.push(Arc::downgrade(&engine));
        Ok(entered)
    }

    fn new(place: Place) -> Result<Engine, OpenError> {
        let mut unicast = Socket::bind(place.bind).map_err(|cause| match cause.kind() {
            io::ErrorKind::AddrInUse => OpenError::AddressInUse { address: place.bind },
            io::ErrorKind::AddrNotAvailable => OpenError::NotOurAddress { address: place.bind },
            _ => socket_error("open a socket", cause),
        })?;
        if place.bind.ip().is_unspecified() {
            // A member has one address, even if it can be reached at several addresses of the machine.
            unicast.send_as(place.advertised);
        }
        if let Some(interface) = place.interface {
            // If this fails, listening fails too and reports it.
            let _ = unicast.send_multicast_by(interface, 1);
        }
        let socket_waker = SocketWaker::new(unicast.address(), place.interface)
            .map_err(|cause| socket_error("open a second socket", cause))?;
        let wakeup = Wakeup::new().map_err(|cause| socket_error("make an event counter", cause))?;
        let watch = Watch::new()
            .and_then(|watch| watch.add(&wakeup, WAKEUP).map(|()| Arc::new(watch)))
            .map_err(|cause| socket_error("prepare to wait for sockets", cause))?;
        let home = Home::new();
        Ok(Engine {
            home,
            address: unicast.address(),
            state: Mutex::new(State::new(
                Arc::new(unicast),
                IoLease::new(watch.clone()),
                socket_waker.port(),
                home,
            )),
            watch,
            wakeup,
            fallback: Watch::new().map_err(|cause| socket_error("make a timer", cause))?,
            socket_waker,
            place,
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
        let group = make(now, self.address, state.receive_buffer_bytes())?;
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
        let listens = match self.place.interface {
            Some(interface) => state.listen(address, interface),
            None => Err(no_multicast()),
        };
        match listens {
            Ok(()) => Ok(Some(address.into())),
            Err(cause) if needed => Err(OpenError::NoMulticast { address: self.address, cause }),
            Err(_) => Ok(None),
        }
    }
}

/// Locks and returns the list of this process's engines. No engine is added meanwhile.
pub(super) fn engines() -> MutexGuard<'static, Vec<Weak<Engine>>> {
    let process = std::process::id();
    let own = || Box::new(Engines { process, list: Mutex::default(), child: OnceLock::new() });
    let mut engines = ENGINES.get_or_init(own);
    while engines.process != process {
        engines = engines.child.get_or_init(own);
    }
    let mut list = engines.list.lock().unwrap_or_else(PoisonError::into_inner);
    list.retain(|engine| engine.strong_count() > 0);
    list
}

pub(crate) fn no_multicast() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "multicast is done with IPv4 only")
}

fn socket_error(what: &'static str, cause: io::Error) -> OpenError {
    OpenError::Socket { what, cause }
}
